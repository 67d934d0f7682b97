/**
 * What depends on what: everything upstream and downstream of a box, the paths between two, counted exactly, and which drawn edges
 * stand for edges that are lit. Pure functions on the wiring.
 */
import { COPY, edgeBetween } from "./model.js";

/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Shape} Shape */

const UP = 1,
  DOWN = 2;

/** All nodes that the starts depend on (upstream), or that depend on them, starts included. @param {Facts} facts @param {number[]} starts @param {boolean} up @returns {Uint8Array} */
export function reach(facts, starts, up) {
  const seen = new Uint8Array(facts.total),
    stack = [];
  for (const node of starts)
    if (!seen[node]) {
      seen[node] = 1;
      stack.push(node);
    }
  while (stack.length) {
    const node = /** @type {number} */ (stack.pop());
    const from = up ? facts.inStart[node] : facts.outStart[node],
      to = up ? facts.inStart[node + 1] : facts.outStart[node + 1];
    for (let i = from; i < to; i++) {
      const next = up ? facts.made[facts.inEdge[i]] : facts.used[facts.outEdge[i]];
      if (!seen[next]) {
        seen[next] = 1;
        stack.push(next);
      }
    }
  }
  return seen;
}

/** The shortest way from a node to an output, ends included; only the node where it reaches none. @param {Facts} facts @param {number} start @returns {number[]} */
export function wayOut(facts, start) {
  const before = new Int32Array(facts.total).fill(-1),
    queue = [start];
  before[start] = start;
  for (let i = 0; i < queue.length; i++) {
    const node = queue[i];
    if (node >= facts.nodes) {
      const way = [node];
      while (way[0] !== start) way.unshift(before[way[0]]);
      return way;
    }
    for (let k = facts.outStart[node]; k < facts.outStart[node + 1]; k++) {
      const next = facts.used[facts.outEdge[k]];
      if (before[next] < 0) {
        before[next] = node;
        queue.push(next);
      }
    }
  }
  return [start];
}

/** Nodes with producers before consumers. @param {Facts} facts @returns {Int32Array} */
export function forwardOrder(facts) {
  const waiting = new Int32Array(facts.total),
    order = new Int32Array(facts.total);
  let size = 0;
  for (let i = 0; i < facts.total; i++) {
    waiting[i] = facts.inStart[i + 1] - facts.inStart[i];
    if (!waiting[i]) order[size++] = i;
  }
  for (let at = 0; at < size; at++) {
    const node = order[at];
    for (let i = facts.outStart[node]; i < facts.outStart[node + 1]; i++) {
      const next = facts.used[facts.outEdge[i]];
      if (!--waiting[next]) order[size++] = next;
    }
  }
  return order;
}

/**
 * The nodes on paths from one set down to another, and how many paths there are: along edges, parallel ones apart, that leave the
 * first set once and end where they reach the second.
 * @param {Facts} facts @param {number[]} from @param {number[]} to
 * @returns {{nodes: Uint8Array, count: bigint}}
 */
export function between(facts, from, to) {
  const down = reach(facts, from, false),
    up = reach(facts, to, true);
  const nodes = new Uint8Array(facts.total),
    start = new Uint8Array(facts.total),
    goal = new Uint8Array(facts.total);
  for (const node of from) start[node] = 1;
  for (const node of to) goal[node] = 1;
  let any = false;
  for (let i = 0; i < facts.total; i++)
    if (down[i] && up[i]) {
      nodes[i] = 1;
      any = true;
    }
  let count = 0n;
  if (!any) return { nodes, count };
  /** @type {Map<number, bigint>} */
  const ways = new Map();
  for (const node of forwardOrder(facts)) {
    if (!nodes[node] || start[node]) continue;
    let sum = 0n;
    for (let i = facts.inStart[node]; i < facts.inStart[node + 1]; i++) {
      const made = facts.made[facts.inEdge[i]];
      if (start[made]) sum += 1n;
      else if (nodes[made] && !goal[made]) sum += ways.get(made) || 0n;
    }
    if (goal[node]) count += sum;
    else ways.set(node, sum);
  }
  return { nodes, count };
}

/** What is lit for one selected item, or for two: an edge is, when both ends have a flag in common. */
export class Trace {
  /** @param {Facts} facts @param {number} item @param {number | null} other */
  constructor(facts, item, other) {
    this.facts = facts;
    this.model = facts.model;
    this.node = new Uint8Array(facts.total);
    this.count = 0n;
    /** @type {"one" | "between" | "apart"} */
    this.what = "one";
    this.turned = false;
    const starts = facts.nodesOf(item);
    if (other === null) {
      const up = reach(facts, starts, true),
        down = reach(facts, starts, false);
      for (let i = 0; i < facts.total; i++) this.node[i] = up[i] * UP + down[i] * DOWN;
    } else {
      const goals = facts.nodesOf(other);
      let found = between(facts, starts, goals);
      if (!found.count) {
        found = between(facts, goals, starts);
        this.turned = found.count > 0n;
      }
      this.what = found.count ? "between" : "apart";
      this.count = found.count;
      this.node = found.nodes;
      for (const node of [...starts, ...goals]) this.node[node] = this.node[node] || 4;
    }
    this.upstream = flagged(this.node, UP) - (other === null ? starts.length : 0);
    this.downstream = flagged(this.node, DOWN) - starts.length;
    this.cell = new Uint8Array(this.model.cells);
    this.before = new Int32Array(this.model.cells + 1); // how many lit cells are before each
    this.#cells(item, other);
    /** @type {Map<number, Uint8Array>} */
    this.known = new Map();
  }

  /** @param {number} item @param {number | null} other */
  #cells(item, other) {
    const { facts, model, cell } = this;
    for (let i = 0; i < model.cells; i++)
      if (model.kind[i] !== COPY) cell[i] = this.node[facts.nodeOf(i)] ? 1 : 0;
    for (const node of facts.copies.keys()) {
      if (!this.node[node]) continue;
      for (let i = facts.outStart[node]; i < facts.outStart[node + 1]; i++) {
        const edge = facts.outEdge[i];
        if (this.isLit(edge)) cell[facts.madeCell(edge)] = 1;
      }
    }
    for (const one of [item, other]) if (one !== null && one >= 0) cell[one] = 1;
    for (let i = 0; i < model.cells; i++) this.before[i + 1] = this.before[i] + cell[i];
  }

  /** @param {number} edge */
  isLit(edge) {
    return (this.node[this.facts.made[edge]] & this.node[this.facts.used[edge]] & 3) !== 0;
  }

  /** Whether an item, or anything in it, is lit. @param {number} item */
  item(item) {
    if (item >= 0) return this.cell[item] === 1;
    return this.before[this.model.end[~item]] > this.before[this.model.first[~item]];
  }

  /** Which edges of a group's sheet stand for one that is lit. @param {number} g @returns {Uint8Array} */
  edges(g) {
    let found = this.known.get(g);
    if (!found) this.known.set(g, (found = litEdges(this.facts, g, (edge) => this.isLit(edge))));
    return found;
  }
}

/** @param {Uint8Array} flags @param {number} bit */
function flagged(flags, bit) {
  let found = 0;
  for (const flag of flags) if (flag & bit) found++;
  return found;
}

/** Marks the edges of a sheet for the edges of the graph that `isLit` chooses. @param {Facts} facts @param {number} g @param {(edge: number) => boolean} isLit @returns {Uint8Array} */
export function litEdges(facts, g, isLit) {
  const model = facts.model,
    found = new Uint8Array(model.shape(g).above.length);
  for (let cell = model.first[g]; cell < model.end[g]; cell++) {
    const node = facts.nodeOf(cell);
    if (model.kind[cell] !== COPY) {
      for (const e of facts.edgesInto(node)) if (isLit(e)) markEdge(facts, g, e, found, 1);
    }
    for (let i = facts.outStart[node]; i < facts.outStart[node + 1]; i++) {
      const e = facts.outEdge[i],
        user = facts.usedCell(e);
      if ((user < model.first[g] || user >= model.end[g]) && isLit(e))
        markEdge(facts, g, e, found, 1);
    }
  }
  return found;
}

/** Sets the value of the edge of a sheet that an edge of the graph runs along, if it passes there. @param {Facts} facts @param {number} g @param {number} edge @param {Uint8Array} marks @param {number} value */
export function markEdge(facts, g, edge, marks, value) {
  const at = drawnAs(facts, g, edge);
  if (at >= 0) marks[at] = value;
}

/** The edge of a sheet that an edge of the graph runs along, or -1. @param {Facts} facts @param {number} g @param {number} edge */
function drawnAs(facts, g, edge) {
  const model = facts.model,
    shape = model.shape(g),
    made = facts.madeCell(edge);
  const above = model.childOf(g, made),
    below = model.childOf(g, facts.usedCell(edge));
  if (above === below) return -1;
  if (above >= 0 && below >= 0) return edgeBetween(shape, above, below);
  return above >= 0 ? outEdge(shape, above) : intoEdge(model, g, shape, made, below);
}

/** @type {WeakMap<Facts, Map<number, Int32Array>>} */
const behind = new WeakMap();

/** For each edge of a sheet one of the graph that runs along it, -1 for none. @param {Facts} facts @param {number} g @returns {Int32Array} */
export function edgesBehind(facts, g) {
  let here = behind.get(facts);
  if (!here) behind.set(facts, (here = new Map()));
  let found = here.get(g);
  if (!found) {
    const made = (found = new Int32Array(facts.model.shape(g).above.length).fill(-1));
    litEdges(facts, g, (edge) => {
      const at = drawnAs(facts, g, edge);
      if (at >= 0) made[at] = edge;
      return false;
    });
    here.set(g, found);
  }
  return found;
}

/** The tensor whose gradient goes along an edge, without its dtype where that is the usual one. @param {Facts} facts @param {number} edge */
export function tensorOn(facts, edge) {
  const made = facts.made[edge],
    leaf = facts.leafOf.get(made),
    [data] = facts.dataOf(made);
  if (leaf || data) return facts.brief((leaf || data).tensor);
  const output =
    edge < facts.c.output.length
      ? facts.c.output[edge]
      : facts.roots[facts.used[edge] - facts.nodes].output;
  return facts.brief(facts.outputs[facts.c.outs[made]][output] || "");
}

/** @param {Shape} shape @param {number} child */
function outEdge(shape, child) {
  for (let i = 0; i < shape.out; i++) {
    const at = edgeBetween(shape, child, shape.children + shape.into + i);
    if (at >= 0) return at;
  }
  return -1;
}

/** @param {Model} model @param {number} g @param {Shape} shape @param {number} made @param {number} child */
function intoEdge(model, g, shape, made, child) {
  const first = model.portStart[g];
  for (let i = 0; i < shape.into; i++) {
    const port = model.ports[first + i];
    if (port !== made && port !== -1) continue;
    const at = edgeBetween(shape, shape.children + i, child);
    if (at >= 0) return at;
  }
  return -1;
}
