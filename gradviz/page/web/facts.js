/**
 * What the graph knows of its nodes: columns by node id, and the wiring. Cells are boxes, nodes are records; a leaf may have several
 * cells. Outputs and boxes of data are nodes, too, numbered after all others. Knows no places.
 */
import { COPY, DATA, OUTPUT } from "./model.js";

/** @typedef {import("./data.js").Block} Block */
/** @typedef {import("./data.js").Column} Column */
/** @typedef {import("./model.js").Model} Model */

/** @typedef {{node: number, names: string[], tensor: string, kind: string, hasGrad: boolean, hooks: number, storage: number, elements: number, base: any[] | null}} Leaf */
/** @typedef {{node: number, output: number, name: string, tensor: string, why: string, base: any[] | null}} Root */
/** A tensor without gradient that ops were given. @typedef {{names: string[], tensor: string, storage: number}} Data */
/** @typedef {{path: string, type: string, call: number, parent: number, parameters: number, output: string}} Scope */
/** @typedef {{number: number, id: string, words: string, nodes: number[], edges: number[][], outputs: string[]}} Mark */

export class Facts {
  /** @param {Block} block @param {Model} model */
  constructor(block, model) {
    const head = block.head;
    this.model = model;
    this.c = block.columns;
    this.head = head;
    this.nodes = this.c.op.length;
    this.texts = /** @type {string[]} */ (head.texts);
    this.outputs = /** @type {string[][]} */ (head.outputs);
    this.names = /** @type {string[][]} */ (head.names);
    this.flags = /** @type {[string, string][][]} */ (head.flags);
    this.sources = /** @type {[string, number, string, string][]} */ (head.sources);
    this.attributes = /** @type {[string, string][][]} */ (head.attributes);
    /** @type {Leaf[]} */
    this.leaves = head.leaves.map((/** @type {any[]} */ r) => ({
      node: r[0],
      names: r[1],
      tensor: r[2],
      kind: r[3],
      hasGrad: r[4],
      hooks: r[5],
      storage: r[6],
      elements: r[7],
      base: r[8],
    }));
    /** @type {Root[]} */
    this.roots = head.roots.map((/** @type {any[]} */ r) => ({
      node: r[0],
      output: r[1],
      name: r[2],
      tensor: r[3],
      why: r[4],
      base: r[5],
    }));
    /** @type {Data[]} */
    this.data = head.data.map((/** @type {any[]} */ r) => ({
      names: r[0],
      tensor: r[1],
      storage: r[2],
    }));
    /** @type {Scope[]} */
    this.scopes = head.scopes.map((/** @type {any[]} */ r) => ({
      path: r[0],
      type: r[1],
      call: r[2],
      parent: r[3],
      parameters: r[4],
      output: r[5],
    }));
    this.anyCut = this.flags.some((flags) => flags.some(([flag]) => flag === "cut"));
    this.absent = /** @type {[string, string, string][]} */ (head.absent || []);
    /** @type {Mark[]} */
    this.marks = head.marks.map((/** @type {any[]} */ r) => ({
      number: r[0],
      id: r[1],
      words: r[2],
      nodes: r[3],
      edges: r[4],
      outputs: r[5],
    }));
    /** @type {Map<number, Leaf>} */
    this.leafOf = new Map(this.leaves.map((leaf) => [leaf.node, leaf]));
    const rooted = this.roots.filter((root) => root.node >= 0).length,
      taken = model.takers.reduce((n, takers) => n + takers.length, 0);
    this.firstData = this.nodes + this.roots.length; // outputs are nodes after all others, and behind them is data
    this.total = this.firstData + model.takers.length;
    this.gradients = this.c.producer.length + rooted; // edges from there on carry none
    this.cellOf = new Int32Array(this.total).fill(-1);
    /** @type {Map<number, Map<number, number>>} cells of a leaf that has several, by group */
    this.copies = new Map();
    this.made = new Int32Array(this.gradients + taken);
    this.used = new Int32Array(this.made.length);
    this.inStart = new Int32Array(this.total + 1);
    this.outStart = new Int32Array(this.total + 1);
    this.inEdge = new Int32Array(this.made.length);
    this.outEdge = new Int32Array(this.made.length);
    this.#wire();
  }

  /** All edges, with those to outputs and from data: by consumer, and by producer. */
  #wire() {
    const model = this.model,
      n = this.nodes;
    for (let cell = 0; cell < model.cells; cell++) {
      const node = this.nodeOf(cell);
      if (model.kind[cell] === COPY) {
        let places = this.copies.get(node);
        if (!places) this.copies.set(node, (places = new Map()));
        places.set(model.cellGroup[cell], cell);
      }
      if (this.cellOf[node] < 0) this.cellOf[node] = cell;
    }
    for (let i = 0, e = 0; i < n; i++) {
      for (let k = 0; k < this.c.inputs[i]; k++, e++) {
        this.made[e] = this.c.producer[e];
        this.used[e] = i;
      }
    }
    let e = this.c.producer.length;
    this.roots.forEach((root, i) => {
      if (root.node >= 0) {
        this.made[e] = root.node;
        this.used[e++] = n + i;
      }
    });
    model.takers.forEach((takers, i) =>
      takers.forEach((/** @type {number} */ taker) => {
        this.made[e] = this.firstData + i;
        this.used[e++] = taker;
      }),
    );
    sortInto(this.made, this.outStart, this.outEdge);
    sortInto(this.used, this.inStart, this.inEdge);
  }

  /** The node behind a cell; those of outputs and data are after all others. @param {number} cell */
  nodeOf(cell) {
    const { kind, record } = this.model;
    return (
      record[cell] + (kind[cell] === OUTPUT ? this.nodes : kind[cell] === DATA ? this.firstData : 0)
    );
  }

  /** The tensors of a box of data; none of any other node. @param {number} node @returns {Data[]} */
  dataOf(node) {
    return node < this.firstData
      ? []
      : Array.from(this.model.boxData[node - this.firstData], (i) => this.data[i]);
  }

  /** Edges into a node, those from data at the end. @param {number} node @returns {Column} */
  edgesInto(node) {
    return this.inEdge.subarray(this.inStart[node], this.inStart[node + 1]);
  }

  /** Edges into a node along which backward may send a gradient. @param {number} node @returns {Column} */
  gradientEdges(node) {
    return this.edgesInto(node).filter((edge) => edge < this.gradients);
  }

  /** The cell at which an edge begins. @param {number} edge */
  madeCell(edge) {
    const node = this.made[edge],
      copies = this.copies.get(node);
    return copies?.get(this.model.cellGroup[this.cellOf[this.used[edge]]]) ?? this.cellOf[node];
  }

  /** @param {number} edge */
  usedCell(edge) {
    return this.cellOf[this.used[edge]];
  }

  /** Whether a node is an op: neither a leaf, nor an output, nor data. @param {number} node */
  isOp(node) {
    return node < this.nodes && !this.leafOf.has(node);
  }

  /** @param {number} node @returns {number[]} */
  inputsOf(node) {
    return [...new Set(Array.from(this.edgesInto(node), (edge) => this.made[edge]))];
  }

  /** @param {number} node @returns {number[]} */
  usersOf(node) {
    return [
      ...new Set(
        [...this.outEdge.subarray(this.outStart[node], this.outStart[node + 1])].map(
          (edge) => this.used[edge],
        ),
      ),
    ];
  }

  /** Nodes of an item: of a cell its own, of a group all inside. @param {number} item @returns {number[]} */
  nodesOf(item) {
    if (item >= 0) return [this.nodeOf(item)];
    const found = [];
    for (let cell = this.model.first[~item]; cell < this.model.end[~item]; cell++)
      found.push(this.nodeOf(cell));
    return found;
  }

  /** A tensor without the dtype that goes without saying. @param {string} text */
  brief(text) {
    return this.head.dtype ? text.replaceAll(`) ${this.head.dtype}`, ")") : text;
  }

  /** A text of a column, "" for nothing. @param {string} name @param {number} i */
  word(name, i) {
    const at = this.c[name][i];
    return at < 0 ? "" : this.texts[at];
  }

  /** The path of the innermost module or function around an item, "" outside of all. @param {number} item */
  pathOf(item) {
    const { model } = this,
      own = item < 0 ? -1 : this.nodeOf(item);
    if (own >= 0 && own < this.nodes) return this.scopeOf(own)?.path || "";
    for (let g = model.around(item); g > 0; g = model.parent[g])
      if (model.scope[g] >= 0) return this.scopes[model.scope[g]].path;
    return "";
  }

  /** @param {number} node */
  scopeOf(node) {
    return node < this.nodes && this.c.scope[node] >= 0 ? this.scopes[this.c.scope[node]] : null;
  }
}

/** Puts edges in the order of their ends: those of node i are from start[i] to start[i + 1]. @param {Int32Array} ends @param {Int32Array} start @param {Int32Array} sorted */
function sortInto(ends, start, sorted) {
  for (const node of ends) start[node + 1]++;
  for (let i = 1; i < start.length; i++) start[i] += start[i - 1];
  const free = start.slice();
  ends.forEach((node, edge) => (sorted[free[node]++] = edge));
}
