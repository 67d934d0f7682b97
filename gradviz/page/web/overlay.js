/**
 * What colours mean: the kind of box, the memory it holds, the gradient that arrives, dtype,
 * device,
 * class of module, or a difference.
 */
import { alike, bytesText } from "./dom.js";
import { OUTPUT } from "./model.js";

/** @import { Facts } from "./facts.js" */

/**
 * A line of the legend; `color` is a name of `colors`.
 * @typedef {{color: string, text: string}} Entry
 */
/**
 * `fill` gives a name of `colors`, "" for that of the kind; `line` stands in the box.
 * @typedef {{fill: (item: number) => string, line?: (item: number) => string, legend: Entry[]}}
 *   Overlay
 */

/** Each with how to write a page that has it, "" where this one does. @param {Facts} facts */
export const overlays = ({ head, c }) => [
  ["kind", "Kind", ""],
  ["memory", "Memory held", ""],
  ["grad", "Gradient norm", head.measured ? "" : "render --color grad"],
  ["dtype", "dtype", ""],
  ["device", "Device", ""],
  ["type", "Module type", ""],
  ["diff", "What changed", c.diff ? "" : "gradviz diff before after -o page.html"]
];

/** @param {string} id @param {Facts} facts @returns {Overlay} */
export function overlay(id, facts) {
  const made = {
    memory: () => heldMemory(facts),
    grad: () => gradient(facts),
    dtype: () => classes(facts, (node) => (node < facts.nodes ? facts.word(id, node) : "")),
    device: () => classes(facts, (node) => (node < facts.nodes ? facts.word(id, node) : "")),
    type: () => classes(facts, (node) => facts.scopeOf(node)?.type || ""),
    diff: () => difference(facts)
  }[id];
  return made ? made() : { fill: () => "", legend: kinds(facts) };
}

/** What the colours of kinds mean, in the order of the legend. */
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
  output: "output"
};

/** @param {Facts} facts @returns {Entry[]} */
function kinds({ model, anyCut }) {
  const shown = model.colors();
  const legend = Object.entries(MEANING).map(([color, text]) => ({ color, text }));
  const entries = legend.filter(({ color }) => shown.has(color));
  if (model.groups > 1) entries.push({ color: "", text: "›: opens" });
  if (anyCut) entries.push({ color: "sheet", text: "cut off: no gradient passes" });
  return entries;
}

const SHARES = [0, 0.01, 0.05, 0.2, 0.5];

/** @param {Facts} facts @returns {Overlay} */
function heldMemory(facts) {
  const { kind, record } = facts.model;
  const held = facts.aggregated(
    (cell) => (kind[cell] === OUTPUT ? 0 : facts.c.held[record[cell]]),
    (a, b) => a + b
  );
  const total = held(~0) || 1;
  const legend = SHARES.map((share, i) => ({
    color: `heat${i + 1}`,
    text: i ? `over ${share * 100} %` : "up to 1 %"
  }));
  legend.push({ color: "", text: `of ${bytesText(held(~0))} held for backward` });
  return {
    fill: (item) => {
      const step = SHARES.filter((share) => held(item) > share * total).length;
      return step ? `heat${step}` : "";
    },
    line: (item) => (held(item) ? `holds ${bytesText(held(item))}` : ""),
    legend
  };
}

/** @param {number} norm */
function normText(norm) {
  if (norm === Infinity) return "not finite";
  return String(Number(norm.toPrecision(norm < 1e-3 ? 2 : 3)));
}

/** @param {Facts} facts @returns {Overlay} */
function gradient(facts) {
  const norms = Array.from({ length: facts.total }, (_, node) => {
    const norm = facts.norm(node);
    return norm === "inf" ? Infinity : (norm ?? NaN);
  });
  const largest = norms.reduce(
    (most, norm) => (norm < Infinity && norm > most ? norm : most),
    1e-300
  );
  const norm = (/** @type {number} */ cell) => norms[facts.nodeOf(cell)];
  const most = facts.aggregated(norm, Math.max);
  const least = facts.aggregated(norm, Math.min);
  const legend = [1, 2, 3, 4, 5].map((i) => {
    const end = Number((largest / 10 ** (5 - i)).toPrecision(2));
    return { color: `heat${i}`, text: `${i === 1 ? "up " : ""}to ${end}` };
  });
  if (norms.includes(Infinity)) legend.push({ color: "removed", text: "not finite" });
  legend.push({ color: "", text: "norm of the gradient that arrives" });
  return {
    fill: (item) => {
      if (most(item) === Infinity) return "removed";
      const tenths = Math.floor(Math.log10(largest / most(item)) + 1e-9);
      return most(item) > 0 ? `heat${Math.max(1, 5 - tenths)}` : "";
    },
    line: (item) => {
      const low = least(item);
      const high = most(item);
      const range = low < high ? `${normText(low)} to ` : "";
      return high >= 0 ? `norm ${range}${normText(high)}` : "";
    },
    legend
  };
}

const CLASSES = 8; // colours; more classes share the last one
const MIXED = -1;

/** @param {Facts} facts @param {(node: number) => string} word @returns {Overlay} */
function classes(facts, word) {
  const names = Array.from({ length: facts.total }, (_, node) => word(node));
  const common = alike(names.filter(Boolean), (name) => name)
    .sort((a, b) => b.length - a.length || (a[0] < b[0] ? -1 : 1))
    .map(([name]) => name);
  const numbers = new Map(common.map((name, i) => [name, Math.min(i, CLASSES - 1)]));
  const number = facts.aggregated(
    (cell) => numbers.get(names[facts.nodeOf(cell)]) ?? NaN,
    (a, b) => (a === b ? a : MIXED)
  );
  const legend = common.slice(0, CLASSES).map((text, i) => ({ color: `class-${i + 1}`, text }));
  const others = common.length - CLASSES + 1;
  if (others > 1) legend[CLASSES - 1].text = `${others} others`;
  legend.push({ color: "group", text: "several" });
  return { fill: (item) => (number(item) >= 0 ? `class-${number(item) + 1}` : ""), legend };
}

/** @param {Facts} facts @returns {Overlay} */
function difference(facts) {
  const { kind, record } = facts.model;
  const names = ["", "added", "removed", "changed"];
  const number = facts.aggregated(
    (cell) => (kind[cell] === OUTPUT ? 0 : facts.c.diff[record[cell]]),
    (a, b) => (a === b ? a : 3)
  );
  const legend = [
    { color: "added", text: "only in the second graph" },
    { color: "removed", text: "only in the first graph" },
    { color: "changed", text: "in both, and changed" }
  ];
  return { fill: (item) => names[number(item)] || "", legend };
}
