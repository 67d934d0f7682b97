/** How everything looks now: colours, what is lit, numbers of findings, badges. The same for the screen and for export. */

import { DATA } from "./model.js";
import { aggregated } from "./overlay.js";
import { edgesBehind, markEdge, tensorOn } from "./trace.js";
import { factorOn, scalarLine, short3, sumLine } from "./numbers.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./draw.js").Look} Look */

/** @param {App} app @param {boolean} [plain] without what the pointer is on @returns {Look} */
export function lookOf(app, plain = false) {
  const { colors, facts } = app;
  return {
    colors,
    lit: app.lit(),
    selected: app.step >= 0 && facts ? running(app) : app.selected,
    other: app.other,
    hover: plain ? null : app.hover,
    kind: (item) => (app.overlayId === "kind" ? app.model.color(item) : app.model.kindWord(item)), // few colours beside those of an overlay
    fill: (item) => colors[app.overlay.fill(item)] || "",
    line: (item) =>
      app.overlay.line?.(item) || (facts && item >= 0 ? scalarLine(facts, facts.nodeOf(item)) : ""),
    marks: (item) => marksOf(app, item),
    badge: (item) => badge(app, item),
    absent: hiddenIn(app),
    edgeText: (g, lit) => edgeText(app, g, lit),
    backward: app.step >= 0,
    travel: app.step >= 0 ? app.travel : 1,
    edgeKinds: (g) => edgeKinds(app, g),
    cut: (item) => isCut(app, item),
    cutEdge: (g, e) => cutEdge(app, g, e),
  };
}

/** @type {WeakMap<object, (item: number) => number>} */
const cutOff = new WeakMap();

/** Whether an item was cut off, of a group all that is in it. @param {App} app @param {number} item */
export function isCut(app, item) {
  const facts = app.facts;
  if (!facts || item === ~0) return false;
  let found = cutOff.get(facts);
  if (!found) {
    found = aggregated(
      facts,
      (cell) => Number(hasFlag(facts, facts.nodeOf(cell), "cut")),
      Math.min,
    );
    cutOff.set(facts, found);
  }
  return found(item) === 1;
}

/** Whether no gradient goes along an edge of a sheet. @param {App} app @param {number} g @param {number} e */
function cutEdge(app, g, e) {
  const facts = app.facts,
    edge = facts?.anyCut ? edgesBehind(facts, g)[e] : -1;
  return (
    facts !== null &&
    edge >= 0 &&
    (hasFlag(facts, facts.made[edge], "cut") || hasFlag(facts, facts.used[edge], "cut"))
  );
}

/** @param {import("./facts.js").Facts} facts @param {number} node @param {string} flag */
function hasFlag(facts, node, flag) {
  return node < facts.nodes && facts.flags[facts.c.flag[node]].some(([known]) => known === flag);
}

/** @type {WeakMap<object, ((item: number) => number)[]>} */
const versions = new WeakMap();

/** Whether an item is not shown: of another version, or an input without gradient. @param {App} app @returns {((item: number) => boolean) | null} */
export function hiddenIn(app) {
  const absent = absentIn(app),
    { kind } = app.model;
  return app.inputs ? absent : (item) => kind[item] === DATA || (absent !== null && absent(item));
}

/** Whether an item is in no other version than the one that is not shown. @param {App} app @returns {((item: number) => boolean) | null} */
function absentIn(app) {
  const facts = app.facts,
    version = app.version;
  if (!facts || !version) return null;
  let found = versions.get(facts);
  if (!found) {
    const there = (/** @type {number} */ kind) => (/** @type {number} */ cell) =>
      facts.nodeOf(cell) < facts.nodes && facts.c.diff[facts.nodeOf(cell)] === kind ? 0 : 1;
    versions.set(facts, (found = [1, 2].map((kind) => aggregated(facts, there(kind), Math.max)))); // added is not in the first, removed not in the second
  }
  const shown = found[version - 1];
  return (item) => shown(item) === 0;
}

/** What stands on the edges of a sheet: by what a single number multiplies its gradient, and shapes on those that are lit, or on all. @param {App} app @param {number} g @param {boolean} lit */
function edgeText(app, g, lit) {
  const facts = app.facts,
    shapes = app.shapes || (lit && app.step < 0);
  if (!facts || !(shapes || facts.head.small.length)) return null;
  const along = edgesBehind(facts, g);
  return (/** @type {number} */ e) => {
    const factor = along[e] >= 0 ? factorOn(facts, along[e]) : null;
    return factor !== null
      ? `× ${short3(factor)}`
      : along[e] >= 0 && shapes
        ? tensorOn(facts, along[e])
        : "";
  };
}

/** The item that stands for the running function: its cell, or the closed group that hides it. @param {App} app */
function running(app) {
  const facts = /** @type {import("./facts.js").Facts} */ (app.facts);
  return app.layout.rect(facts.cellOf[facts.c.stepNode[app.step]]).shown;
}

/** Numbers of findings by cell, and sums for groups, made once. @type {WeakMap<object, {cells: Map<number, number[]>, sorted: number[]}>} */
const known = new WeakMap();

/** @param {App} app @param {number} item @returns {number[]} */
export function marksOf(app, item) {
  const facts = app.facts;
  if (!facts || !facts.marks.length) return [];
  let found = known.get(facts);
  if (!found) {
    const cells = new Map();
    const put = (/** @type {number} */ cell, /** @type {number} */ number) => {
      const here = cells.get(cell) || [];
      if (cell >= 0 && !here.includes(number)) cells.set(cell, [...here, number]);
    };
    for (const mark of facts.marks) for (const cell of cellsOf(facts, mark)) put(cell, mark.number);
    known.set(facts, (found = { cells, sorted: [...cells.keys()].sort((a, b) => a - b) }));
  }
  if (item >= 0) return found.cells.get(item) || [];
  if (app.layout.isOpen(~item)) return [];
  const numbers = new Set();
  for (const cell of found.sorted)
    if (cell >= app.model.first[~item] && cell < app.model.end[~item])
      for (const n of found.cells.get(cell) || []) numbers.add(n);
  return [...numbers].sort((a, b) => a - b);
}

/** The cells that a finding is about. @param {import("./facts.js").Facts} facts @param {import("./facts.js").Mark} mark @returns {number[]} */
export function cellsOf(facts, mark) {
  const nodes = [...mark.nodes, ...mark.edges.map(([consumer]) => consumer)];
  facts.roots.forEach((root, i) => {
    if (mark.outputs.includes(root.name)) nodes.push(facts.nodes + i);
  });
  return nodes.map((node) => facts.cellOf[node]).filter((cell) => cell >= 0);
}

/** @param {App} app @param {number} item */
function badge(app, item) {
  const facts = app.facts;
  if (!facts || item < 0) return "";
  const node = facts.nodeOf(item);
  if (app.step >= 0) {
    const at = stepOf(facts, node);
    if (at < 0) return "";
    if (at > app.step) return waiting(app, facts, node);
    const sum = sumLine(facts, node);
    if (sum) return sum;
    return facts.leafOf.has(node) ? "✓ .grad" : at >= app.stepFirst ? `#${at + 1}` : "✓";
  }
  if (node >= facts.nodes) return "";
  return facts.flags[facts.c.flag[node]]
    .map(([flag]) => flag)
    .filter((flag) => flag !== "cut" && (flag !== "freed" || !facts.head.allFreed))
    .join(" ");
}

/** `1 of 2` where a function waits for more gradients before it runs. @param {App} app @param {import("./facts.js").Facts} facts @param {number} node */
function waiting(app, facts, node) {
  const [there, all] = arrived(facts, node, app.step);
  return there && there < all ? `${there} of ${all}` : "";
}

/** How many gradients of a node have arrived after a step, and how many will. @param {import("./facts.js").Facts} facts @param {number} node @param {number} step @returns {[number, number]} */
export function arrived(facts, node, step) {
  let there = 0,
    all = 0;
  for (let i = facts.outStart[node]; i < facts.outStart[node + 1]; i++) {
    const user = facts.used[facts.outEdge[i]],
      at = user >= facts.nodes ? -1 : stepOf(facts, user);
    if (user < facts.nodes && at < 0) continue; // backward does not call it
    all++;
    if (at <= step) there++;
  }
  return [there, all];
}

/** @type {WeakMap<object, Int32Array>} */
const places = new WeakMap();

/** The step at which backward calls a node, -1 when it does not. @param {import("./facts.js").Facts} facts @param {number} node */
export function stepOf(facts, node) {
  let found = places.get(facts);
  if (!found) {
    found = new Int32Array(facts.total).fill(-1);
    for (let i = 0; i < facts.c.stepNode.length; i++) found[facts.c.stepNode[i]] = i;
    places.set(facts, found);
  }
  return found[node];
}

/** @type {WeakMap<object, Map<number, Uint8Array | null>>} */
const differing = new WeakMap();

/** Edges of a sheet that a difference added (1) or removed (2). @param {App} app @param {number} g */
function edgeKinds(app, g) {
  const facts = app.facts;
  if (!facts || !facts.head.edgeDiff) return null;
  let here = differing.get(facts);
  if (!here) differing.set(facts, (here = new Map()));
  if (!here.has(g)) here.set(g, markKinds(facts, g));
  return here.get(g) || null;
}

/** @param {import("./facts.js").Facts} facts @param {number} g */
function markKinds(facts, g) {
  const found = new Uint8Array(facts.model.shape(g).above.length);
  for (const [edge, kind] of facts.head.edgeDiff) markEdge(facts, g, edge, found, kind);
  return found;
}
