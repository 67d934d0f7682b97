/** What colours mean: the kind of box, the memory it holds, the gradient that arrives, dtype, device, class of module, or a difference. */
import { DATA, OUTPUT } from "./model.js";

/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {import("./colors.js").Colors} Colors */
/** @typedef {{color: string, text: string}} Entry a line of the legend; `color` is a name of `colors` */
/** @typedef {{fill: (item: number) => string, line?: (item: number) => string, legend: Entry[]}} Overlay `fill` gives a name of `colors`, "" for that of the kind; `line` stands in the box */

export const OVERLAYS = [
  ["kind", "Kind"],
  ["memory", "Memory held"],
  ["grad", "Gradient norm"],
  ["dtype", "dtype"],
  ["device", "Device"],
  ["type", "Module type"],
  ["diff", "What changed"],
];

/** The overlays, each with how to write a page that has it, "" where this one does. @param {Facts} facts */
export function available(facts) {
  const missing = /** @type {{[id: string]: string}} */ ({
    grad: facts.head.measured ? "" : "render --color grad",
    diff: facts.c.diff ? "" : "gradviz diff before after -o page.html",
  });
  return OVERLAYS.map(([id, name]) => [id, name, missing[id] || ""]);
}

/** @param {string} id @param {Facts} facts @returns {Overlay} */
export function overlay(id, facts) {
  if (id === "memory") return heldMemory(facts);
  if (id === "grad") return gradient(facts);
  if (id === "dtype" || id === "device")
    return classes(facts, (node) => (node < facts.nodes ? facts.word(id, node) : ""));
  if (id === "type") return classes(facts, (node) => facts.scopeOf(node)?.type || "");
  if (id === "diff") return difference(facts);
  return { fill: () => "", legend: kinds(facts) };
}

/** What the colours of kinds mean, in the order of the legend. @type {{[color: string]: string}} */
const MEANING = {
  input: "input, no gradient",
  leaf: "leaf",
  op: "op",
  layer: "layer",
  attention: "attention",
  norm: "norm",
  activation: "activation",
  shape: "shape",
  loss: "loss",
  group: "several ops",
  output: "output",
};

/** @param {Facts} facts @returns {Entry[]} */
function kinds(facts) {
  const { model } = facts,
    shown = new Set(
      [...model.text.cell, ...model.text.group.subarray(1)].map(
        (row) => model.words[model.text.color[row]],
      ),
    );
  return [
    ...Object.entries(MEANING)
      .filter(([color]) => shown.has(color))
      .map(([color, text]) => ({ color, text })),
    ...(model.groups > 1 ? [{ color: "", text: "›: opens" }] : []),
    ...(facts.anyCut ? [{ color: "sheet", text: "cut off: no gradient passes" }] : []),
  ];
}

/** Values of cells, and of groups what `join` makes of them. Data has no part in it. @param {Facts} facts @param {(cell: number) => number} value @param {(a: number, b: number) => number} join @returns {(item: number) => number} */
export function aggregated(facts, value, join) {
  const model = facts.model,
    cells = new Float64Array(model.cells),
    groups = new Float64Array(model.groups).fill(NaN);
  for (let cell = 0; cell < model.cells; cell++) {
    cells[cell] = model.kind[cell] === DATA ? NaN : value(cell);
    if (model.kind[cell] === DATA) continue;
    const g = model.cellGroup[cell];
    groups[g] = Number.isNaN(groups[g]) ? cells[cell] : join(groups[g], cells[cell]);
  }
  for (let g = model.groups - 1; g > 0; g--) {
    const around = model.parent[g];
    if (!Number.isNaN(groups[g]))
      groups[around] = Number.isNaN(groups[around]) ? groups[g] : join(groups[around], groups[g]);
  }
  return (item) => (item >= 0 ? cells[item] : groups[~item]);
}

/** @param {number} bytes */
export function bytesText(bytes) {
  if (Math.abs(bytes) < 1024) return `${bytes} B`;
  let size = bytes;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    size /= 1024;
    if (Math.abs(size) < 1023.95) return `${size.toFixed(1)} ${unit}`;
  }
  return `${(size / 1024).toFixed(1)} PiB`;
}

const SHARES = [0, 0.01, 0.05, 0.2, 0.5];

/** @param {Facts} facts @returns {Overlay} */
function heldMemory(facts) {
  const model = facts.model;
  const held = aggregated(
    facts,
    (cell) => (model.kind[cell] === OUTPUT ? 0 : Number(facts.c.held[model.record[cell]])),
    (a, b) => a + b,
  );
  return shares(
    held,
    (bytes) => `holds ${bytesText(bytes)}`,
    `of ${bytesText(held(~0))} held for backward`,
  );
}

/** Parts of the whole. @param {(item: number) => number} amount @param {(amount: number) => string} text @param {string} whole @returns {Overlay} */
function shares(amount, text, whole) {
  const total = amount(~0) || 1;
  const step = (/** @type {number} */ item) =>
    SHARES.filter((share) => amount(item) > share * total).length;
  const legend = SHARES.map((share, i) => ({
    color: `heat${i + 1}`,
    text: i ? `over ${share * 100} %` : "up to 1 %",
  }));
  legend.push({ color: "", text: whole });
  return {
    fill: (item) => (step(item) ? `heat${step(item)}` : ""),
    line: (item) => (amount(item) ? text(amount(item)) : ""),
    legend,
  };
}

/** @param {Facts} facts @returns {Overlay} */
function gradient(facts) {
  const model = facts.model,
    norms = new Float64Array(facts.total).fill(-1);
  facts.head.norms.forEach(
    (/** @type {number | null | string} */ norm, /** @type {number} */ i) => {
      norms[facts.c.stepNode[i]] = norm === null ? -1 : norm === "inf" ? Infinity : Number(norm);
    },
  );
  const largest = norms.reduce(
    (most, norm) => (norm !== Infinity && norm > most ? norm : most),
    1e-300,
  );
  const most = aggregated(facts, (cell) => norms[facts.nodeOf(cell)], Math.max);
  const least = aggregated(
    facts,
    (cell) => (norms[facts.nodeOf(cell)] >= 0 ? norms[facts.nodeOf(cell)] : NaN),
    Math.min,
  );
  const fill = (/** @type {number} */ item) => {
    const norm = most(item);
    if (norm === Infinity) return "removed";
    if (!(norm > 0)) return "";
    return `heat${Math.max(1, 5 - Math.floor(Math.log10(largest / norm) + 1e-9))}`;
  };
  const legend = [1, 2, 3, 4, 5].map((i) => ({
    color: `heat${i}`,
    text: `${i === 1 ? "up " : ""}to ${Number((largest / 10 ** (5 - i)).toPrecision(2))}`,
  }));
  if (model.cells && norms.some((norm) => norm === Infinity))
    legend.push({ color: "removed", text: "not finite" });
  const text = (/** @type {number} */ norm) =>
    norm === Infinity ? "not finite" : String(Number(norm.toPrecision(norm < 1e-3 ? 2 : 3)));
  const line = (/** @type {number} */ item) => {
    const low = least(item),
      high = most(item);
    return high >= 0 ? `norm ${item < 0 && low < high ? `${text(low)} to ` : ""}${text(high)}` : "";
  };
  return {
    fill,
    line,
    legend: [...legend, { color: "", text: "norm of the gradient that arrives" }],
  };
}

/** @param {Facts} facts @param {(node: number) => string} word @returns {Overlay} */
function classes(facts, word) {
  const model = facts.model,
    MIXED = -2,
    NOTHING = -1;
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (let cell = 0; cell < model.cells; cell++) {
    const name = word(facts.nodeOf(cell));
    if (name) counts.set(name, (counts.get(name) || 0) + 1);
  }
  const common = [...counts.keys()].sort(
    (a, b) => Number(counts.get(b)) - Number(counts.get(a)) || (a < b ? -1 : 1),
  );
  const number = new Map(common.map((name, i) => [name, Math.min(i, 7)]));
  const of = aggregated(
    facts,
    (cell) => number.get(word(facts.nodeOf(cell))) ?? NOTHING,
    (a, b) => (a === NOTHING ? b : b === NOTHING || a === b ? a : MIXED),
  );
  const legend = common.slice(0, 7).map((name, i) => ({ color: `class-${i + 1}`, text: name }));
  if (common.length === 8) legend.push({ color: "class-8", text: common[7] });
  if (common.length > 8) legend.push({ color: "class-8", text: `${common.length - 7} others` });
  return {
    fill: (item) => (of(item) >= 0 ? `class-${of(item) + 1}` : ""),
    legend: [...legend, { color: "group", text: "several" }],
  };
}

/** @param {Facts} facts @returns {Overlay} */
function difference(facts) {
  const model = facts.model,
    names = ["", "added", "removed", "changed"];
  const of = aggregated(
    facts,
    (cell) => (model.kind[cell] === OUTPUT ? 0 : facts.c.diff[model.record[cell]]),
    (a, b) => (a === b ? a : a && b ? 3 : a || b ? 3 : 0),
  );
  return {
    fill: (item) => names[of(item)] || "",
    legend: [
      { color: "added", text: "only in the second graph" },
      { color: "removed", text: "only in the first graph" },
      { color: "changed", text: "in both, and changed" },
    ],
  };
}

/** @type {WeakMap<object, (item: number) => number>} */
const steps = new WeakMap();

/** The first step at which backward runs something of an item, endless for what it does not call. @param {Facts} facts @returns {(item: number) => number} */
export function firstSteps(facts) {
  let found = steps.get(facts);
  if (!found) {
    const at = new Float64Array(facts.total).fill(Infinity),
      { stepNode } = facts.c;
    for (let i = stepNode.length - 1; i >= 0; i--) at[stepNode[i]] = i;
    facts.roots.forEach((root, i) => {
      if (root.node >= 0) at[facts.nodes + i] = -1; // backward begins here
    });
    found = aggregated(facts, (cell) => at[facts.nodeOf(cell)], Math.min);
    steps.set(facts, found);
  }
  return found;
}
