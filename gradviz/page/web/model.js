/**
 * The tree of groups and cells, and the sheets. A cell is a box that is no group: an op, a leaf, an
 * input without gradient, an output. An item is a cell, as its number, or a group, as ~number.
 * Everything inside a group is one range of cells. Group 0 is the page.
 */

export const OP = 0;
export const LEAF = 1;
export const COPY = 2;
export const OUTPUT = 3;
export const DATA = 4;
const KINDS = ["op", "leaf", "leaf", "output", "input"];
const WITH_VIEWS = 2; // kind of a group
export const CELL_HEIGHT = 34;
export const GROUP_HEIGHT = 38;

/**
 * What alike groups have in common: local numbers are children first, then ports on top, then
 * below.
 * @typedef {object} Shape
 * @property {number} children
 * @property {number} into how many ports on top
 * @property {number} out how many below
 * @property {number} width
 * @property {number} height
 * @property {Column} boxWidth
 * @property {Column} x middles of children and ports
 * @property {Column} y
 * @property {Column} above ends of edges
 * @property {Column} below
 * @property {Column} firstPoint of each edge, in px and py
 * @property {Column} lastPoint
 * @property {Column} px
 * @property {Column} py
 */

/**
 * What a function gives, worked out once for each key, and only when it is asked for.
 * @template K, V
 * @param {(key: K) => V} make
 * @returns {(key?: any) => V}
 */
export function remembered(make) {
  const known = new Map();
  return (key) => {
    if (!known.has(key)) known.set(key, make(key));
    return known.get(key);
  };
}

export class Model {
  /** @param {Block} block */
  constructor({ columns: c, head }) {
    this.record = c.record;
    this.kind = c.kind;
    this.scope = c.scope;
    this.groupKind = c.groupKind;
    this.firstOpen = c.open;
    this.sheetOf = c.sheet;
    this.words = /** @type {string[]} */ (head.words);
    this.text = { title: c.title, line: c.line, type: c.type, color: c.color };
    this.row = { cell: c.cellText, group: c.groupText };
    this.sums = { ops: c.groupOps, parameters: c.groupParameters, nbytes: c.groupBytes };
    /** The ops that carry the work of each group, where they are few. */
    this.mains = parts(c.mains, c.mainCount);
    /** Of each box of data: which tensors it shows, and the nodes that take them. */
    this.boxData = parts(c.boxData, c.boxDataCount);
    this.takers = parts(c.taker, c.takerCount);
    this.cells = c.record.length;
    this.groups = c.sheet.length;
    this.shapes = shapes(c);
    this.ports = parts(
      c.ports,
      Array.from(c.sheet, (sheet) => this.shapes[sheet].into)
    );
    /** What stands in each group. */
    this.items = parts(
      c.item,
      Array.from(c.sheet, (sheet) => this.shapes[sheet].children)
    );
    const ofGroups = () => new Int32Array(this.groups);
    this.parent = ofGroups().fill(-1);
    this.depth = ofGroups();
    this.first = ofGroups();
    this.end = ofGroups();
    this.groupLocal = ofGroups();
    this.cellGroup = new Int32Array(this.cells);
    this.cellLocal = new Int32Array(this.cells);
    /** Another name of an item, "" for its own. @type {(item: number) => string} */
    this.rename = () => "";
    this.#place();
  }

  /** Finds the group around each item, and the range of cells in each group. */
  #place() {
    this.items.forEach((items, g) =>
      items.forEach((item, i) => {
        if (item < 0) {
          this.parent[~item] = g;
          this.depth[~item] = this.depth[g] + 1;
          this.groupLocal[~item] = i;
        } else {
          this.cellGroup[item] = g;
          this.cellLocal[item] = i;
        }
      })
    );
    for (let g = this.groups - 1; g >= 0; g--) {
      const [first] = this.items[g];
      const last = this.items[g][this.items[g].length - 1];
      this.first[g] = first < 0 ? this.first[~first] : first;
      this.end[g] = last < 0 ? this.end[~last] : last + 1;
    }
  }

  /** @param {number} g @returns {Shape} */
  shape(g) {
    return this.shapes[this.sheetOf[g]];
  }

  /** @param {number} g @param {number} i @returns {number} */
  item(g, i) {
    return this.items[g][i];
  }

  /** What stands in a group. @param {number} g @returns {number[]} */
  itemsOf(g) {
    return [...this.items[g]];
  }

  /** The group that an item lies in, -1 for the page. @param {number} item */
  around(item) {
    return item < 0 ? this.parent[~item] : this.cellGroup[item];
  }

  /** The groups around an item, outwards, without the page. @param {number} item */
  groupsAround(item) {
    const found = [];
    for (let g = this.around(item); g > 0; g = this.parent[g]) found.push(g);
    return found;
  }

  /** @param {number} item */
  local(item) {
    return item < 0 ? this.groupLocal[~item] : this.cellLocal[item];
  }

  /** @param {"title" | "line" | "type" | "color"} column @param {number} item */
  #word(column, item) {
    const row = item < 0 ? this.row.group[~item] : this.row.cell[item];
    return this.words[this.text[column][row]];
  }

  /** @param {number} item */
  title(item) {
    return this.rename(item) || this.#word("title", item);
  }

  /** @param {number} item */
  line(item) {
    return this.#word("line", item);
  }

  /** The class of a module, "" for everything else. @param {number} item */
  type(item) {
    return this.#word("type", item);
  }

  /** The name of the colour that an item has when it is closed. @param {number} item */
  color(item) {
    return this.#word("color", item);
  }

  /** Names of all colours that items have. */
  colors() {
    const rows = new Set([...this.row.cell, ...this.row.group.subarray(1)]);
    return new Set([...rows].map((row) => this.words[this.text.color[row]]));
  }

  /** The title with the class of a module. @param {number} item */
  fullTitle(item) {
    const type = this.type(item);
    return type ? `${this.title(item)}  ${type}` : this.title(item);
  }

  /** What an item is: "group", "op", "leaf", "output", "input". @param {number} item */
  kindWord(item) {
    return item < 0 ? "group" : KINDS[this.kind[item]];
  }

  /** Groups that are an op with the ops beside it that only change a shape. @returns {number[]} */
  withViews() {
    return [...this.groupKind.keys()].filter((g) => this.groupKind[g] === WITH_VIEWS);
  }

  /** Whether a cell lies in a group. @param {number} g @param {number} cell */
  holds(g, cell) {
    return cell >= this.first[g] && cell < this.end[g];
  }

  /** The cells of an item. @param {number} item @returns {number[]} */
  cellsOf(item) {
    if (item >= 0) return [item];
    const first = this.first[~item];
    return Array.from({ length: this.end[~item] - first }, (_, i) => first + i);
  }

  /**
   * The cell that an edge of a sheet comes from, in it or outside; -1 for a group, and where
   * several have one port.
   * @param {number} g
   * @param {number} above a local number
   */
  source(g, above) {
    const shape = this.shape(g);
    const port = above - shape.children;
    if (port < 0) return Math.max(this.item(g, above), -1);
    return port < shape.into ? this.ports[g][port] : -1;
  }

  /**
   * The child of `g` that holds a cell, by local number, or -1 when it lies outside.
   * @param {number} g
   * @param {number} cell
   */
  childOf(g, cell) {
    if (!this.holds(g, cell)) return -1;
    let inner = this.cellGroup[cell];
    if (inner === g) return this.cellLocal[cell];
    while (this.parent[inner] !== g) inner = this.parent[inner];
    return this.groupLocal[inner];
  }
}

/**
 * A column in parts of these lengths.
 * @param {Column} column
 * @param {Column | number[]} counts
 * @returns {Column[]}
 */
function parts(column, counts) {
  let end = 0;
  return Array.from(counts, (n) => column.subarray(end, (end += n)));
}

/** @param {{[name: string]: Column}} c @returns {Shape[]} */
function shapes(c) {
  const places = c.children.map((children, s) => children + c.into[s] + c.out[s]);
  const x = parts(c.x, places);
  const y = parts(c.y, places);
  const boxWidth = parts(c.boxWidth, c.children);
  const above = parts(c.above, c.edges);
  const below = parts(c.below, c.edges);
  const firstPoint = parts(c.firstPoint, c.edges);
  const lastPoint = parts(c.lastPoint, c.edges);
  return Array.from(c.children, (children, s) => ({
    children,
    into: c.into[s],
    out: c.out[s],
    width: c.width[s],
    height: c.height[s],
    boxWidth: boxWidth[s],
    x: x[s],
    y: y[s],
    above: above[s],
    below: below[s],
    firstPoint: firstPoint[s],
    lastPoint: lastPoint[s],
    px: c.pointX,
    py: c.pointY
  }));
}

// -- the blocks of data that the page carries: deflated, in base64, columns of whole numbers and one
// JSON text, which `pack.py` writes

/** @typedef {Int32Array | Float64Array} Column */
/** @typedef {{[name: string]: Column}} Columns */
/** @typedef {{columns: Columns, head: any}} Block */

/** @param {string} id of the script element that holds the block @returns {Promise<Block>} */
export async function readBlock(id) {
  const raw = atob((document.getElementById(id)?.textContent || "").trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return unpack(new Uint8Array(await new Response(stream).arrayBuffer()));
}

/**
 * The length of the JSON text, the text, and the columns that it lists.
 * @param {Uint8Array} bytes
 */
function unpack(bytes) {
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  /** @type {Columns} */
  const columns = {};
  let start = 4 + size;
  for (const [name, length, nbytes, wide] of head.columns) {
    columns[name] = column(bytes, start, wide ? new Float64Array(length) : new Int32Array(length));
    start += nbytes;
  }
  return { columns, head };
}

/**
 * Differences as zigzag numbers of 7 bits a byte.
 * @param {Uint8Array} bytes
 * @param {number} place
 * @param {Column} values to fill
 */
function column(bytes, place, values) {
  let before = 0;
  for (let i = 0; i < values.length; i++) {
    let byte = bytes[place++];
    let number = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = bytes[place++];
      number += (byte & 127) * scale;
    }
    before += number % 2 ? -(number + 1) / 2 : number / 2;
    values[i] = before;
  }
  return values;
}
