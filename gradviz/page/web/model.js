/**
 * The tree of groups and cells, and the sheets. A cell is a box that is no group: an op, a leaf, an input without gradient, an output. An item is a cell, as its
 * number, or a group, as ~number. Everything inside a group is one range of cells. Group 0 is the page.
 */

/** @typedef {import("./data.js").Block} Block */
/** @typedef {import("./data.js").Column} Column */

export const OP = 0,
  LEAF = 1,
  COPY = 2,
  OUTPUT = 3,
  DATA = 4;
const KINDS = ["op", "leaf", "leaf", "output", "input"];
const WITH_VIEWS = 2; // kind of a group
export const CELL_HEIGHT = 34,
  GROUP_HEIGHT = 38;

/**
 * What alike groups have in common: local numbers are children first, then ports on top, then ports below.
 * @typedef {object} Shape
 * @property {number} children
 * @property {number} into how many ports on top
 * @property {number} out how many below
 * @property {number} width
 * @property {number} height
 * @property {Column} boxWidth
 * @property {Column} isGroup
 * @property {Column} x middles of children and ports
 * @property {Column} y
 * @property {Column} above ends of edges
 * @property {Column} below
 * @property {Int32Array} start where the points of each edge begin in px and py
 * @property {Column} px
 * @property {Column} py
 * @property {Map<number, number> | null} edgeAt edges by above * 65536 + below, made when first asked
 */

export class Model {
  /** @param {Block} block */
  constructor(block) {
    const c = block.columns;
    this.record = c.record;
    this.kind = c.kind;
    this.scope = c.scope;
    this.groupKind = c.groupKind;
    this.firstOpen = c.open;
    this.sheetOf = c.sheet;
    this.words = /** @type {string[]} */ (block.head.words);
    this.text = {
      title: c.title,
      line: c.line,
      type: c.type,
      color: c.color,
      cell: c.cellText,
      group: c.groupText,
    };
    this.sums = { ops: c.groupOps, parameters: c.groupParameters, nbytes: c.groupBytes };
    /** Where the main ops of each group begin in `mains`: those that carry its work, where they are few. */
    this.mainStart = new Int32Array(c.mainCount.length + 1);
    c.mainCount.forEach(
      (/** @type {number} */ n, /** @type {number} */ g) =>
        (this.mainStart[g + 1] = this.mainStart[g] + n),
    );
    this.mains = c.mains;
    /** Of each box of data: which tensors it shows, and the nodes that take them. */
    this.boxData = parts(c.boxData, c.boxDataCount);
    this.takers = parts(c.taker, c.takerCount);
    this.ports = c.ports;
    this.cells = c.record.length;
    this.groups = c.sheet.length;
    this.shapes = shapes(c);
    this.parent = new Int32Array(this.groups).fill(-1);
    this.depth = new Int32Array(this.groups);
    this.first = new Int32Array(this.groups);
    this.end = new Int32Array(this.groups);
    this.itemStart = new Int32Array(this.groups + 1);
    this.portStart = new Int32Array(this.groups + 1);
    this.items = new Int32Array(this.cells + this.groups);
    this.cellGroup = new Int32Array(this.cells);
    this.cellLocal = new Int32Array(this.cells);
    this.groupLocal = new Int32Array(this.groups);
    /** Another name of an item, "" for its own. @type {((item: number) => string) | null} */
    this.rename = null;
    this.#number();
  }

  /** Follows the walk that Python made: children of a sheet in order, the inside of each group when it is met. */
  #number() {
    for (let g = 0; g < this.groups; g++) {
      const shape = this.shape(g);
      this.itemStart[g + 1] = this.itemStart[g] + shape.children;
      this.portStart[g + 1] = this.portStart[g] + shape.into;
    }
    let cell = 0,
      group = 1;
    const stack = [[0, 0]];
    while (stack.length) {
      const top = stack[stack.length - 1],
        g = top[0],
        shape = this.shape(g);
      let i = top[1];
      while (i < shape.children && !shape.isGroup[i]) {
        this.items[this.itemStart[g] + i] = cell;
        this.cellGroup[cell] = g;
        this.cellLocal[cell++] = i++;
      }
      if (i === shape.children) {
        this.end[g] = cell;
        stack.pop();
        continue;
      }
      const inner = group++;
      this.items[this.itemStart[g] + i] = ~inner;
      this.groupLocal[inner] = i;
      this.parent[inner] = g;
      this.depth[inner] = this.depth[g] + 1;
      this.first[inner] = cell;
      top[1] = i + 1;
      stack.push([inner, 0]);
    }
  }

  /** @param {number} g @returns {Shape} */
  shape(g) {
    return this.shapes[this.sheetOf[g]];
  }

  /** @param {number} g @param {number} i @returns {number} */
  item(g, i) {
    return this.items[this.itemStart[g] + i];
  }

  /** The group that an item lies in, -1 for the page. @param {number} item */
  around(item) {
    return item < 0 ? this.parent[~item] : this.cellGroup[item];
  }

  /** @param {number} item */
  local(item) {
    return item < 0 ? this.groupLocal[~item] : this.cellLocal[item];
  }

  /** @param {number} item */
  #row(item) {
    return item < 0 ? this.text.group[~item] : this.text.cell[item];
  }
  /** @param {number} item */
  title(item) {
    return (this.rename && this.rename(item)) || this.words[this.text.title[this.#row(item)]];
  }
  /** @param {number} item */
  line(item) {
    return this.words[this.text.line[this.#row(item)]];
  }
  /** The class of a module, "" for everything else. @param {number} item */
  type(item) {
    return this.words[this.text.type[this.#row(item)]];
  }

  /** What an item is: "group", "op", "leaf", "output", "input". @param {number} item */
  kindWord(item) {
    return item < 0 ? "group" : KINDS[this.kind[item]];
  }

  /** The name of the colour that an item has when it is closed. @param {number} item */
  color(item) {
    return this.words[this.text.color[this.#row(item)]];
  }

  /** Main ops of a group, as nodes. @param {number} g @returns {number[]} */
  mainOps(g) {
    return [...this.mains.subarray(this.mainStart[g], this.mainStart[g + 1])];
  }

  /** Groups that are an op with the ops beside it that only change a shape. @returns {number[]} */
  withViews() {
    return [...this.groupKind.keys()].filter((g) => this.groupKind[g] === WITH_VIEWS);
  }

  /** The cell in a group that has its title, or -1. @param {number} item */
  alike(item) {
    for (let cell = this.first[~item]; cell < this.end[~item]; cell++)
      if (this.title(cell) === this.title(item)) return cell;
    return -1;
  }

  /** The cell that an edge of a sheet comes from, in it or outside; -1 for a group, and where several have one port. @param {number} g @param {number} above a local number */
  source(g, above) {
    const shape = this.shape(g),
      port = above - shape.children;
    return port < 0
      ? Math.max(this.item(g, above), -1)
      : port < shape.into
        ? this.ports[this.portStart[g] + port]
        : -1;
  }

  /** The child of `g` that holds a cell, by local number, or -1 when it lies outside. @param {number} g @param {number} cell */
  childOf(g, cell) {
    if (cell < this.first[g] || cell >= this.end[g]) return -1;
    let at = this.cellGroup[cell];
    if (at === g) return this.cellLocal[cell];
    while (this.parent[at] !== g) at = this.parent[at];
    return this.groupLocal[at];
  }
}

/** A column in parts of these lengths. @param {Column} column @param {Column} counts @returns {Column[]} */
function parts(column, counts) {
  let end = 0;
  return Array.from(counts, (/** @type {number} */ n) => column.subarray(end, (end += n)));
}

/** @param {{[name: string]: Column}} c @returns {Shape[]} */
function shapes(c) {
  const found = [];
  let box = 0,
    place = 0,
    edge = 0,
    point = 0;
  for (let s = 0; s < c.children.length; s++) {
    const children = c.children[s],
      into = c.into[s],
      out = c.out[s],
      edges = c.edges[s];
    const start = new Int32Array(edges + 1);
    for (let e = 0; e < edges; e++) start[e + 1] = start[e] + c.points[edge + e];
    const places = children + into + out,
      points = start[edges];
    found.push({
      children,
      into,
      out,
      width: c.width[s],
      height: c.height[s],
      boxWidth: c.boxWidth.subarray(box, box + children),
      isGroup: c.isGroup.subarray(box, box + children),
      x: c.x.subarray(place, place + places),
      y: c.y.subarray(place, place + places),
      above: c.above.subarray(edge, edge + edges),
      below: c.below.subarray(edge, edge + edges),
      start,
      px: c.pointX.subarray(point, point + points),
      py: c.pointY.subarray(point, point + points),
      edgeAt: null,
    });
    box += children;
    place += places;
    edge += edges;
    point += points;
  }
  return found;
}

/** The edge of a shape between two local numbers, or -1. @param {Shape} shape @param {number} above @param {number} below */
export function edgeBetween(shape, above, below) {
  if (!shape.edgeAt) {
    shape.edgeAt = new Map();
    for (let e = 0; e < shape.above.length; e++)
      shape.edgeAt.set(shape.above[e] * 65536 + shape.below[e], e);
  }
  const found = shape.edgeAt.get(above * 65536 + below);
  return found === undefined ? -1 : found;
}
