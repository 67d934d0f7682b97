/**
 * What depends on what: everything upstream and downstream of a box, the paths between two, counted
 * exactly, and which drawn edges stand for edges that are lit. Pure functions on the wiring.
 */
import { COPY, remembered } from "./model.js";

/** @import { Facts } from "./facts.js" */
/** @import { Column } from "./model.js" */

const UP = 1;
const DOWN = 2;
const END = 4;

/**
 * All nodes that the starts depend on (upstream), or that depend on them, starts included.
 * @param {Facts} facts
 * @param {number[]} starts
 * @param {boolean} up
 * @returns {Uint8Array}
 */
export function reach(facts, starts, up) {
  const seen = new Uint8Array(facts.total);
  const found = [...starts];
  for (const node of starts) seen[node] = 1;
  const ends = up ? facts.made : facts.used;
  for (const node of found)
    for (const edge of up ? facts.edgesInto(node) : facts.edgesFrom(node)) {
      const next = ends[edge];
      if (!seen[next]) found.push(next);
      seen[next] = 1;
    }
  return seen;
}

/**
 * The shortest way from a node to an output, ends included; only the node where it reaches none.
 * @param {Facts} facts
 * @param {number} start
 * @returns {number[]}
 */
export function wayOut(facts, start) {
  const before = new Map([[start, -1]]);
  for (const [node] of before) {
    if (node >= facts.nodes) {
      const way = [];
      for (let step = node; step >= 0; step = Number(before.get(step))) way.push(step);
      return way.reverse();
    }
    for (const edge of facts.edgesFrom(node))
      if (!before.has(facts.used[edge])) before.set(facts.used[edge], node);
  }
  return [start];
}

/**
 * The nodes on paths from one set down to another, and how many paths there are: along edges,
 * parallel
 * ones apart, that leave the first set once and end where they reach the second.
 * @param {Facts} facts
 * @param {number[]} from
 * @param {number[]} to
 */
export function between(facts, from, to) {
  const up = reach(facts, to, true);
  const nodes = reach(facts, from, false).map((below, node) => below & up[node]);
  let count = 0n;
  if (!nodes.includes(1)) return { nodes, count };
  const starts = new Set(from);
  const goals = new Set(to);
  /** @type {Map<number, bigint>} */
  const ways = new Map();
  // cells are numbered with producers before consumers
  for (let cell = 0; cell < facts.model.cells; cell++) {
    const node = facts.nodeOf(cell);
    if (!nodes[node] || starts.has(node)) continue;
    let sum = 0n;
    for (const edge of facts.edgesInto(node)) {
      const made = facts.made[edge];
      sum += starts.has(made) ? 1n : ways.get(made) || 0n;
    }
    if (goals.has(node)) count += sum;
    else ways.set(node, sum);
  }
  return { nodes, count };
}

/**
 * What is lit while the rest fades: some cells and what holds them, and edges between them.
 * @param {Facts} facts
 * @param {Iterable<number>} cells
 * @param {(edge: number) => boolean} isLit
 */
function lightOf(facts, cells, isLit) {
  const { cells: size, first, end } = facts.model;
  const cell = new Uint8Array(size);
  for (const one of cells) cell[one] = 1;
  const before = new Int32Array(size + 1); // how many lit cells are before each
  cell.forEach((lit, i) => (before[i + 1] = before[i] + lit));
  /** Whether an item, or anything in it, is lit. */
  const item = (/** @type {number} */ one) =>
    one < 0 ? before[end[~one]] > before[first[~one]] : cell[one] === 1;
  /** Which edges of a group's sheet stand for one that is lit. */
  const edges = remembered((/** @type {number} */ g) => {
    const found = new Uint8Array(facts.model.shape(g).above.length);
    for (const edge of item(~g) ? edgesIn(facts, g) : [])
      if (isLit(edge)) mark(found, drawnAs(facts, g, edge), 1);
    return found;
  });
  return { cell, item, edges, isLit };
}

/** Lights these nodes, and the edges between them. @param {Facts} facts @param {number[]} nodes */
export function lightNodes(facts, nodes) {
  const chosen = new Set(nodes);
  const { made, used, cellOf } = facts;
  const cells = nodes.map((node) => cellOf[node]);
  return lightOf(facts, cells, (edge) => chosen.has(made[edge]) && chosen.has(used[edge]));
}

/**
 * Lights running functions, all that has run, and the edges that gradients go along now.
 * @param {Facts} facts
 * @param {number} first a step
 * @param {number} last
 */
export function lightSteps(facts, first, last) {
  const { gradients, used, cellOf } = facts;
  const nodes = new Set(facts.c.stepNode.subarray(first, last + 1));
  const edges = [...nodes].flatMap((node) => [...facts.gradientEdges(node)]);
  const cells = [...nodes].map((node) => cellOf[node]);
  cells.push(...edges.map((edge) => facts.madeCell(edge)));
  const light = lightOf(facts, cells, (edge) => edge < gradients && nodes.has(used[edge]));
  const begun = facts.firstStep();
  return {
    item: (/** @type {number} */ item) => begun(item) <= last || light.item(item),
    edges: light.edges
  };
}

/**
 * What is lit for one selected item, or for two: an edge is, when both ends have a flag in common.
 * For one, how many other ops it depends on (up) and depend on it (down); for two, how many paths.
 * @param {Facts} facts
 * @param {number} item
 * @param {number | null} other
 */
export function traceOf(facts, item, other) {
  const own = facts.nodesOf(item);
  if (other === null) {
    const up = reach(facts, own, true);
    const down = reach(facts, own, false);
    const node = up.map((above, i) => above * UP + down[i] * DOWN);
    for (const start of own) up[start] = down[start] = 0;
    const ops = (/** @type {Uint8Array} */ side) =>
      side.reduce((n, seen, i) => n + Number(seen && facts.isOp(i)), 0);
    return light({ node, count: 0n, turned: false, up: ops(up), down: ops(down) }, [item]);
  }
  const goals = facts.nodesOf(other);
  let found = between(facts, own, goals);
  const turned = !found.count; // the paths, if any, lead from the other to the item
  if (turned) found = between(facts, goals, own);
  for (const end of [...own, ...goals]) found.nodes[end] ||= END;
  const { nodes, count } = found;
  return light({ node: nodes, count, turned, up: 0, down: 0 }, [item, other]);

  /** @template {{node: Uint8Array}} T @param {T} trace @param {number[]} items */
  function light(trace, items) {
    const { node } = trace;
    const { made, used, model } = facts;
    const isLit = (/** @type {number} */ edge) =>
      (node[made[edge]] & node[used[edge]] & (UP | DOWN)) !== 0;
    const cells = items.filter((one) => one >= 0);
    for (let i = 0; i < model.cells; i++)
      if (model.kind[i] !== COPY && node[facts.nodeOf(i)]) cells.push(i);
    // of a leaf with several cells those at which a lit edge begins
    for (const leaf of facts.leafOf.keys())
      for (const edge of facts.edgesFrom(leaf)) if (isLit(edge)) cells.push(facts.madeCell(edge));
    return Object.assign(lightOf(facts, cells, isLit), trace);
  }
}

/** @param {Uint8Array | Int32Array} marks @param {number} place -1 for none @param {number} value */
function mark(marks, place, value) {
  if (place >= 0) marks[place] = value;
}

/** Edges of the graph that end in a group or leave it. @param {Facts} facts @param {number} g */
function* edgesIn(facts, g) {
  const { model } = facts;
  for (let cell = model.first[g]; cell < model.end[g]; cell++) {
    const node = facts.nodeOf(cell);
    if (model.kind[cell] !== COPY) yield* facts.edgesInto(node);
    for (const edge of facts.edgesFrom(node)) if (!model.holds(g, facts.usedCell(edge))) yield edge;
  }
}

/** Edges of a sheet by one of their ends. */
const edgesAt = remembered((/** @type {Column} */ ends) =>
  Map.groupBy(ends.keys(), (edge) => ends[edge])
);

/**
 * The edge of a sheet that an edge of the graph runs along, or -1.
 * @param {Facts} facts
 * @param {number} g
 * @param {number} edge
 */
function drawnAs(facts, g, edge) {
  const { model } = facts;
  const shape = model.shape(g);
  const { children, into } = shape;
  const made = facts.madeCell(edge);
  const above = model.childOf(g, made);
  const below = model.childOf(g, facts.usedCell(edge));
  if (above === below) return -1;
  const edges = above < 0 ? edgesAt(shape.below).get(below) : edgesAt(shape.above).get(above);
  const found = edges?.find((e) => {
    const port = model.ports[g][shape.above[e] - children];
    const begins = above >= 0 || port === made || port === -1;
    return begins && (below < 0 ? shape.below[e] >= children + into : shape.below[e] === below);
  });
  return found ?? -1;
}

/**
 * For each edge of a sheet one of the graph that runs along it, -1 for none.
 * @param {Facts} facts
 * @param {number} g
 */
export function edgesBehind(facts, g) {
  const found = new Int32Array(facts.model.shape(g).above.length).fill(-1);
  for (const edge of edgesIn(facts, g)) mark(found, drawnAs(facts, g, edge), edge);
  return found;
}

/**
 * Edges of a sheet that a difference added (1) or removed (2).
 * @param {Facts} facts
 * @param {number} g
 */
export function edgeKinds(facts, g) {
  const found = new Uint8Array(facts.model.shape(g).above.length);
  for (const [edge, kind] of facts.head.edgeDiff || []) mark(found, drawnAs(facts, g, edge), kind);
  return found;
}
