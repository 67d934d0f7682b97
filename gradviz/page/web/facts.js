/**
 * What the graph knows of its nodes, the one reader of it: columns by node id, tables, the wiring,
 * and what follows from them, worked out when it is first asked for. Cells are boxes, nodes are
 * records; a leaf may have several cells. Outputs and boxes of data are nodes, too, numbered after
 * all others. Knows no places.
 */
import { COPY, DATA, OUTPUT, remembered } from "./model.js";
import { edgeKinds, edgesBehind } from "./trace.js";

/** @import { Block, Column } from "./model.js" */
/** @import { Model } from "./model.js" */

/**
 * @typedef {{node: number, names: string[], tensor: string, kind: string, has_grad: boolean, hooks:
 *   number, storage: number, elements: number, base: any[] | null}} Leaf
 */
/**
 * @typedef {{node: number, output: number, name: string, tensor: string, why: string, base: any[] |
 *   null}} Root
 */
/**
 * A tensor without gradient that ops were given.
 * @typedef {{names: string[], tensor: string, storage: number}} Data
 */
/**
 * @typedef {{path: string, type: string, call: number, parameters: number, output: string}} Scope
 */
/**
 * @typedef {{number: number, id: string, words: string, nodes: number[], edges: number[][],
 *   outputs: string[]}} Mark
 */
/**
 * A line of the user's code that made nodes.
 * @typedef {{file: string, line: number, text: string, nodes: number[]}} Line
 */
/** A word stands for what is not finite. @typedef {(number | string)[]} Values */
/**
 * Numbers of a small tensor; spread: least, mean, largest.
 * @typedef {{node: number, arrived: Values, value: Values, sent: Values[], spread: Values, freed:
 *   boolean}} Small
 */

/**
 * Rows as records: `records.py` names their fields.
 * @param {{fields: string[], rows: any[][]}} table
 * @returns {any[]}
 */
const records = ({ fields, rows }) =>
  rows.map((row) => Object.fromEntries(fields.map((name, i) => [name, row[i]])));

export class Facts {
  /** @param {Block} block @param {Model} model */
  constructor({ columns, head }, model) {
    /** @type {Model} */
    this.model = model;
    this.c = columns;
    this.head = head;
    /** @type {number} */
    this.nodes = this.c.op.length;
    /** @type {string[]} */
    this.texts = head.texts;
    /** @type {string[][]} */
    this.outputs = head.outputs;
    /** @type {string[][]} */
    this.names = head.names;
    /** @type {[string, string][][]} */
    this.flags = head.flags;
    /** @type {[string, number, string, string][]} */
    this.sources = head.sources;
    /** @type {[string, string, string][]} */
    this.absent = head.absent;
    /** @type {Leaf[]} */
    this.leaves = records(head.leaves);
    this.leaves.forEach((leaf, i) => (leaf.elements = this.c.leafElements[i]));
    /** @type {Root[]} */
    this.roots = records(head.roots);
    /** @type {Data[]} */
    this.data = records(head.data);
    /** @type {Scope[]} */
    this.scopes = records(head.scopes);
    /** @type {Mark[]} */
    this.marks = records(head.marks);
    /** @type {Small[]} */
    const small = records(head.small);
    this.smallOf = new Map(small.map((one) => [one.node, one]));
    this.leafOf = new Map(this.leaves.map((leaf) => [leaf.node, leaf]));
    this.anyCut = this.flags.some((flags) => flags.some(([flag]) => flag === "cut"));
    /** @type {number} */
    this.firstData = this.nodes + this.roots.length;
    this.total = this.firstData + model.takers.length;
    this.cellOf = new Int32Array(this.total).fill(-1);
    /** The cell of a leaf in a group, of those that have several. */
    this.copyIn = new Map();
    for (let cell = 0; cell < model.cells; cell++) {
      const node = this.nodeOf(cell);
      if (model.kind[cell] === COPY) this.copyIn.set(`${node} ${model.cellGroup[cell]}`, cell);
      if (this.cellOf[node] < 0) this.cellOf[node] = cell;
    }
    const { made, used, gradients } = this.#edges();
    /** The producer of each edge, the consumer of each, and how many edges may carry a gradient. */
    this.made = Int32Array.from(made);
    this.used = Int32Array.from(used);
    this.gradients = gradients;
    this.from = sorted(this.made, this.total);
    this.into = sorted(this.used, this.total);
    /** The step at which backward calls each node, -1 where it does not. */
    this.stepOf = new Int32Array(this.total).fill(-1);
    this.steps = this.c.stepNode.length;
    this.c.stepNode.forEach((node, step) => (this.stepOf[node] = step));
  }

  /** All edges, behind those of the graph those to outputs and from data. */
  #edges() {
    const made = [...this.c.producer];
    const used = [...this.c.consumer];
    const add = (/** @type {number} */ producer, /** @type {number} */ consumer) => {
      made.push(producer);
      used.push(consumer);
    };
    this.roots.forEach((root, i) => root.node >= 0 && add(root.node, this.nodes + i));
    const gradients = made.length;
    this.model.takers.forEach((takers, i) =>
      takers.forEach((taker) => add(this.firstData + i, taker))
    );
    return { made, used, gradients };
  }

  // -- nodes and their edges ---------------------------------------------------------------------

  /**
   * The node behind a cell; those of outputs and data are after all others.
   * @param {number} cell
   * @returns {number}
   */
  nodeOf(cell) {
    const { kind, record } = this.model;
    if (kind[cell] === OUTPUT) return this.nodes + record[cell];
    return kind[cell] === DATA ? this.firstData + record[cell] : record[cell];
  }

  /**
   * Nodes of an item: of a cell its own, of a group all inside.
   * @param {number} item
   * @returns {number[]}
   */
  nodesOf(item) {
    return this.model.cellsOf(item).map((cell) => this.nodeOf(cell));
  }

  /**
   * The tensors of a box of data; none of any other node.
   * @param {number} node
   * @returns {Data[]}
   */
  dataOf(node) {
    const numbers = node < this.firstData ? [] : this.model.boxData[node - this.firstData];
    return Array.from(numbers, (i) => this.data[i]);
  }

  /** Whether a node is an op: neither a leaf, nor an output, nor data. @param {number} node */
  isOp(node) {
    return node < this.nodes && !this.leafOf.has(node);
  }

  /** Edges into a node, those from data at the end. @param {number} node @returns {Column} */
  edgesInto(node) {
    const { start, edges } = this.into;
    return edges.subarray(start[node], start[node + 1]);
  }

  /** @param {number} node @returns {Column} */
  edgesFrom(node) {
    const { start, edges } = this.from;
    return edges.subarray(start[node], start[node + 1]);
  }

  /**
   * Edges into a node along which backward may send a gradient.
   * @param {number} node
   * @returns {Column}
   */
  gradientEdges(node) {
    return this.edgesInto(node).filter((edge) => edge < this.gradients);
  }

  /** @param {number} node @returns {number[]} */
  inputsOf(node) {
    return [...new Set(Array.from(this.edgesInto(node), (edge) => this.made[edge]))];
  }

  /** @param {number} node @returns {number[]} */
  usersOf(node) {
    return [...new Set(Array.from(this.edgesFrom(node), (edge) => this.used[edge]))];
  }

  /** The cell at which an edge begins. @param {number} edge */
  madeCell(edge) {
    const node = this.made[edge];
    const group = this.model.cellGroup[this.usedCell(edge)];
    return this.copyIn.get(`${node} ${group}`) ?? this.cellOf[node];
  }

  /** @param {number} edge */
  usedCell(edge) {
    return this.cellOf[this.used[edge]];
  }

  // -- texts -------------------------------------------------------------------------------------

  /** A text of a column, "" for nothing. @param {string} name @param {number} i */
  word(name, i) {
    return this.texts[this.c[name][i]] || "";
  }

  /** A tensor without the dtype that goes without saying. @param {string} text */
  brief(text) {
    return this.head.dtype ? text.replaceAll(`) ${this.head.dtype}`, ")") : text;
  }

  /**
   * For each edge of a sheet one of the graph that runs along it, -1 for none.
   * @type {(g: number) => Int32Array}
   */
  edgesBehind = remembered((g) => edgesBehind(this, g));

  /**
   * Which edges of a sheet a difference added (1) or removed (2).
   * @type {(g: number) => Uint8Array}
   */
  edgeKinds = remembered((g) => edgeKinds(this, g));

  /** What a node made, each tensor in words. @param {number} node @returns {string[]} */
  tensorsOf(node) {
    const leaf = this.leafOf.get(node);
    if (leaf) return [leaf.tensor];
    if (node < this.nodes) return this.outputs[this.c.outs[node]];
    if (node < this.firstData) return [this.roots[node - this.nodes].tensor];
    return this.dataOf(node).map((data) => data.tensor);
  }

  /** The tensor whose gradient goes along an edge, in brief. @param {number} edge */
  tensorOn(edge) {
    const tensors = this.tensorsOf(this.made[edge]);
    const { output } = this.c;
    const root = this.roots[this.used[edge] - this.nodes];
    const place = edge < output.length ? output[edge] : root ? root.output : 0;
    return this.brief(tensors.length > 1 ? tensors[place] || "" : tensors[0] || "");
  }

  /** @param {number} edge */
  edgeTitle(edge) {
    const { model } = this;
    return `${model.title(this.madeCell(edge))} → ${model.title(this.usedCell(edge))}`;
  }

  /**
   * The innermost module or function that a node ran in.
   * @param {number} node
   * @returns {Scope | undefined}
   */
  scopeOf(node) {
    return node < this.nodes ? this.scopes[this.c.scope[node]] : undefined;
  }

  /**
   * The path of the innermost module or function around an item, "" outside of all.
   * @param {number} item
   */
  pathOf(item) {
    const { model } = this;
    if (item >= 0 && this.nodeOf(item) < this.nodes)
      return this.scopeOf(this.nodeOf(item))?.path || "";
    const called = model.groupsAround(item).find((g) => model.scope[g] >= 0);
    return called ? this.scopes[model.scope[called]].path : "";
  }

  /**
   * The call of a module around a node, as a group; its own cell where there is none.
   * @param {number} node
   */
  callOf(node) {
    const { scope } = this.model;
    const cell = this.cellOf[node];
    const call = this.model.groupsAround(cell).find((g) => scope[g] === this.c.scope[node]);
    return call ? ~call : cell;
  }

  /** @param {number} node @param {string} flag */
  hasFlag(node, flag) {
    return node < this.nodes && this.flags[this.c.flag[node]].some(([known]) => known === flag);
  }

  // -- backward ----------------------------------------------------------------------------------

  /**
   * The norm of the gradient that arrives; "inf" is not finite, null not measured.
   * @param {number} node
   * @returns {number | "inf" | null}
   */
  norm(node) {
    return this.head.norms?.[this.stepOf[node]] ?? null;
  }

  /** The norm of the gradient along an edge: known where the tensor has no other user. */
  normAlong(/** @type {number} */ edge) {
    const made = this.made[edge];
    return this.edgesFrom(made).length === 1 ? this.norm(made) : null;
  }

  /**
   * The first step at which backward runs something of an item, endless for what it does not call.
   */
  firstStep = remembered(() =>
    this.aggregated((cell) => {
      const node = this.nodeOf(cell);
      const root = this.roots[node - this.nodes];
      if (root) return root.node >= 0 ? -1 : Infinity; // backward begins here
      return this.stepOf[node] < 0 ? Infinity : this.stepOf[node];
    }, Math.min)
  );

  /**
   * How many gradients of a node have arrived after a step, and how many will.
   * @param {number} node
   * @param {number} step
   * @returns {[number, number]}
   */
  arrived(node, step) {
    let there = 0;
    let all = 0;
    for (const edge of this.edgesFrom(node)) {
      const called = this.stepOf[this.used[edge]];
      if (called < 0 && this.used[edge] < this.nodes) continue; // backward does not call it
      all++;
      if (called <= step) there++;
    }
    return [there, all];
  }

  // -- saved tensors -----------------------------------------------------------------------------

  /** Slots by a column of them. @type {(column: string) => Map<number, number[]>} */
  #slotsBy = remembered((column) =>
    Map.groupBy(this.c[column].keys(), (slot) => this.c[column][slot])
  );

  /** The saved slots of a node. @param {number} node */
  slotsOf(node) {
    return this.#slotsBy("slotNode").get(node) || [];
  }

  /** Nodes that hold a storage. @param {number} storage @returns {number[]} */
  holders(storage) {
    const slots = this.#slotsBy("slotStorage").get(storage) || [];
    return [...new Set(slots.map((slot) => this.c.slotNode[slot]))];
  }

  // -- lines of code -----------------------------------------------------------------------------

  /**
   * The lines that made a node, as numbers of `sources`: the one in a library, the user's that led
   * there.
   * @param {number} node
   */
  sourcesOf(node) {
    if (node >= this.nodes) return [];
    const numbers = [this.c.source[node], this.c.scriptLine[node]];
    return [...new Set(numbers)].filter((number) => number >= 0);
  }

  /** Lines of the user's code that made nodes, by "file:line". */
  lines = remembered(() => {
    const files = new Set(this.head.code.map((/** @type {[string]} */ [file]) => file));
    /** @type {Map<string, Line>} */
    const found = new Map();
    for (let node = 0; node < this.nodes; node++) {
      for (const number of this.sourcesOf(node)) {
        const [file, line, , text] = this.sources[number];
        const known = found.get(`${file}:${line}`);
        if (known) known.nodes.push(node);
        else if (files.has(file)) found.set(`${file}:${line}`, { file, line, text, nodes: [node] });
      }
    }
    return found;
  });

  /** What some nodes hold, and the largest gradient that arrives at one. @param {number[]} nodes */
  sumsOf(nodes) {
    let bytes = 0;
    let norm = /** @type {number | string | null} */ (null);
    for (const node of nodes) {
      bytes += this.c.held[node];
      const here = this.norm(node);
      if (here !== null && (norm === null || here > norm)) norm = here;
    }
    return { bytes, norm };
  }

  // -- what holds of items -----------------------------------------------------------------------

  /**
   * Values of cells, and of groups what `join` makes of them. Data has no part in it.
   * @param {(cell: number) => number} value
   * @param {(a: number, b: number) => number} join
   * @returns {(item: number) => number}
   */
  aggregated(value, join) {
    const { model } = this;
    const cells = new Float64Array(model.cells).fill(NaN);
    const groups = new Float64Array(model.groups).fill(NaN);
    const add = (/** @type {number} */ g, /** @type {number} */ more) => {
      if (!Number.isNaN(more)) groups[g] = Number.isNaN(groups[g]) ? more : join(groups[g], more);
    };
    for (let cell = 0; cell < model.cells; cell++) {
      if (model.kind[cell] === DATA) continue;
      cells[cell] = value(cell);
      add(model.cellGroup[cell], cells[cell]);
    }
    for (let g = model.groups - 1; g > 0; g--) add(model.parent[g], groups[g]);
    return (item) => (item >= 0 ? cells[item] : groups[~item]);
  }

  #cut = remembered(() =>
    this.aggregated((cell) => Number(this.hasFlag(this.nodeOf(cell), "cut")), Math.min)
  );

  /** Whether an item was cut off, of a group all that is in it. @param {number} item */
  isCut(item) {
    return this.anyCut && item !== ~0 && this.#cut()(item) === 1;
  }

  /** Whether no gradient goes along an edge. @param {number} edge */
  isCutEdge(edge) {
    return this.hasFlag(this.made[edge], "cut") || this.hasFlag(this.used[edge], "cut");
  }

  /**
   * For each of two versions what is in it: added is not in the first, removed not in the second.
   */
  versions = remembered(() =>
    [1, 2].map((kind) =>
      this.aggregated((cell) => Number(this.c.diff[this.nodeOf(cell)] !== kind), Math.max)
    )
  );

  /**
   * Why a finding is one, and what to do: known on a page of `check`.
   * @param {number} number
   * @returns {{[word: string]: string}}
   */
  reasonsOf(number) {
    return this.head.findings?.[number] || {};
  }

  /** Names of the tensors that a finding is about. @param {number} number */
  namesOf(number) {
    return (this.reasonsOf(number).names || "").split(", ").filter(Boolean);
  }

  /**
   * The cells that a finding is about: those of its nodes, else those of the leaves that it names.
   * @param {Mark} mark
   * @returns {number[]}
   */
  cellsOf(mark) {
    const nodes = [...mark.nodes, ...mark.edges.map(([consumer]) => consumer)];
    this.roots.forEach((root, i) => {
      if (mark.outputs.includes(root.name)) nodes.push(this.nodes + i);
    });
    const names = nodes.length ? [] : this.namesOf(mark.number);
    const named = this.leaves.filter((leaf) => leaf.names.some((name) => names.includes(name)));
    nodes.push(...named.map((leaf) => leaf.node));
    return nodes.map((node) => this.cellOf[node]).filter((cell) => cell >= 0);
  }

  #marks = remembered(() => this.marks.map((mark) => ({ ...mark, cells: this.cellsOf(mark) })));

  /** Numbers of the findings of an item. @param {number} item @returns {number[]} */
  marksOf(item) {
    const holds = (/** @type {number} */ cell) =>
      item < 0 ? this.model.holds(~item, cell) : cell === item;
    const here = this.#marks().filter(({ cells }) => cells.some(holds));
    return here.map(({ number }) => number);
  }
}

/**
 * Edges in the order of their ends: those of node i are from start[i] to start[i + 1].
 * @param {Int32Array} ends
 * @param {number} nodes
 */
function sorted(ends, nodes) {
  const start = new Int32Array(nodes + 1);
  for (const node of ends) start[node + 1]++;
  for (let i = 0; i < nodes; i++) start[i + 1] += start[i];
  const free = start.slice();
  const edges = new Int32Array(ends.length);
  ends.forEach((node, edge) => (edges[free[node]++] = edge));
  return { start, edges };
}
