/**
 * Where everything is, for any mix of open and closed groups. A sheet was laid out with its
 * children
 * closed; opening a child stretches it by two monotone maps, one for each axis. So what did not
 * overlap still does not, and edges keep their way round boxes.
 */
import { CELL_HEIGHT, GROUP_HEIGHT } from "./model.js";

/** @import { Model, Shape } from "./model.js" */

export const TITLE = 26;
const SPREAD = 10; // px for edges below a title
const PAD = 14;
const FOOT = 12;
const LETTER = 6.63; // px, of titles

/**
 * An interval and the least length it must get.
 * @typedef {{a: number, b: number, size: number}} Want
 */
/** @typedef {{x: number, y: number, w: number, h: number}} Rect */
/**
 * Edge e goes through the points start[e] to start[e + 1], each an x and a y.
 * @typedef {{start: Int32Array, xy: Float64Array}} Lines
 */

/**
 * The piecewise linear map that gives every interval at least its new length and shrinks nothing.
 * @param {Want[]} wants
 * @param {number} end of the axis, which begins at 0
 * @returns {(v: number) => number}
 */
export function stretch(wants, end) {
  if (!wants.length) return (v) => v;
  const cuts = [...new Set([0, end, ...wants.flatMap((want) => [want.a, want.b])])];
  cuts.sort((p, q) => p - q);
  const place = new Map(cuts.map((cut, i) => [cut, i]));
  const to = Float64Array.from(cuts);
  for (let j = 1; j < cuts.length; j++) {
    to[j] = to[j - 1] + cuts[j] - cuts[j - 1];
    for (const { a, b, size } of wants)
      if (b === cuts[j]) to[j] = Math.max(to[j], to[Number(place.get(a))] + size);
  }
  const last = cuts.length - 1;
  return (v) => {
    if (v <= cuts[0]) return v - cuts[0] + to[0];
    if (v >= cuts[last]) return to[last] + v - cuts[last];
    let low = 0;
    let high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (cuts[middle] <= v) low = middle;
      else high = middle;
    }
    return to[low] + ((v - cuts[low]) / (cuts[high] - cuts[low])) * (to[high] - to[low]);
  };
}

/**
 * A sheet as it is now, from its own upper left corner.
 * @typedef {object} Sheet
 * @property {number} w
 * @property {number} h
 * @property {Float64Array} box x, y, width and height of each child
 * @property {(v: number) => number} fx
 * @property {(v: number) => number} fy
 * @property {Lines} [lines] made when first drawn
 */

/**
 * Where a piece of an edge, drawn as an S, is at a part of its height.
 * @param {number} x0
 * @param {number} x1
 * @param {number} part
 */
function alongCurve(x0, x1, part) {
  let low = 0;
  let high = 1;
  for (let i = 0; i < 12; i++) {
    const t = (low + high) / 2;
    if (1.5 * t * (1 - t) + t ** 3 < part) low = t;
    else high = t;
  }
  return x0 + (x1 - x0) * (3 * low ** 2 - 2 * low ** 3);
}

export class Layout {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.open = new Uint8Array(model.groups);
    /** @type {(Sheet | undefined)[]} */
    this.sheets = [];
    /** A group that is on its way from closed (0) to open (1). */
    this.moving = { group: -1, part: 1 };
    this.setAll(() => 0);
  }

  /** @param {number} g */
  isOpen(g) {
    return this.open[g] === 1;
  }

  /** Whether an item is an open group. @param {number} item */
  isSheet(item) {
    return item < 0 && this.open[~item] === 1;
  }

  /** Whether the inside of a group shows: it and all around it are open. @param {number} g */
  isShown(g) {
    return this.isOpen(g) && this.shown(~g) === ~g;
  }

  /** The item itself, or the closed group that hides it. @param {number} item */
  shown(item) {
    let found = item;
    for (let g = this.model.around(item); g > 0; g = this.model.parent[g])
      if (!this.open[g]) found = ~g;
    return found;
  }

  /** @param {number} g @param {boolean} open @returns {boolean} whether it was not */
  setOpen(g, open) {
    if (g === 0 || this.isOpen(g) === open) return false;
    this.open[g] = Number(open);
    this.forget(g);
    return true;
  }

  /** @param {(g: number) => number | boolean} isOpen @param {Iterable<number>} [groups] */
  setAll(isOpen, groups = this.open.keys()) {
    for (const g of groups) this.open[g] = Number(isOpen(g));
    this.open[0] = 1;
    this.sheets = new Array(this.model.groups);
  }

  /** Forget what was computed for the groups around one. @param {number} g */
  forget(g) {
    for (let outer = this.model.parent[g]; outer >= 0; outer = this.model.parent[outer])
      this.sheets[outer] = undefined;
  }

  /** @param {number} g @returns {Sheet} */
  sheet(g) {
    return (this.sheets[g] ??= this.#make(g));
  }

  /**
   * Size of an item with its border and title.
   * @param {number} item
   * @param {number} width when it is closed
   * @returns {[number, number]}
   */
  #size(item, width) {
    if (!this.isSheet(item)) return [width, item < 0 ? GROUP_HEIGHT : CELL_HEIGHT];
    const g = ~item;
    const inner = this.sheet(g);
    const w = Math.max(width + 12, inner.w + 2 * PAD, this.#titleRoom(g));
    const h = inner.h + this.#head(g) + FOOT;
    if (this.moving.group !== g) return [w, h];
    const { part } = this.moving;
    return [width + (w - width) * part, GROUP_HEIGHT + (h - GROUP_HEIGHT) * part];
  }

  /** Width that a title needs where edges enter beside it, in the middle. @param {number} g */
  #titleRoom(g) {
    if (!this.model.shape(g).into) return 0;
    const title = this.model.title(~g).length;
    const both = title + this.model.type(~g).length + 1;
    return 2 * ((both <= 26 ? both : title) * LETTER + 30);
  }

  /**
   * Height above the inside: the title, and room for edges to spread below it.
   * @param {number} g
   */
  #head(g) {
    return TITLE + (this.model.shape(g).into ? SPREAD : 0);
  }

  /** @param {number} g @returns {Sheet} */
  #make(g) {
    const shape = this.model.shape(g);
    const { x, y, boxWidth } = shape;
    const items = this.model.itemsOf(g);
    const sizes = items.map((item, i) => this.#size(item, boxWidth[i]));
    /** @type {Want[]} */
    const wide = [];
    /** @type {Want[]} */
    const tall = [];
    items.forEach((item, i) => {
      if (!this.isSheet(item)) return;
      const half = boxWidth[i] / 2;
      wide.push({ a: x[i] - half, b: x[i] + half, size: sizes[i][0] });
      const top = y[i] - GROUP_HEIGHT / 2;
      tall.push({ a: top, b: top + GROUP_HEIGHT, size: sizes[i][1] });
    });
    const fx = stretch(wide, shape.width);
    const fy = stretch(tall, shape.height);
    const box = new Float64Array(4 * items.length);
    items.forEach((item, i) => {
      const [w, h] = sizes[i];
      const half = this.isSheet(item) ? boxWidth[i] / 2 : 0;
      const middle = (fx(x[i] - half) + fx(x[i] + half)) / 2;
      const top = half ? fy(y[i] - GROUP_HEIGHT / 2) : fy(y[i]) - h / 2;
      box.set([middle - w / 2, top, w, h], 4 * i);
    });
    return { w: fx(shape.width), h: fy(shape.height), box, fx, fy };
  }

  /**
   * The edges of a sheet; ends meet the middle of their box's border.
   * @param {number} g
   * @returns {Lines}
   */
  lines(g) {
    const sheet = this.sheet(g);
    if (sheet.lines) return sheet.lines;
    const shape = this.model.shape(g);
    const { px, py, above, below } = shape;
    const start = new Int32Array(above.length + 1);
    /** @type {number[]} */
    const xy = [];
    for (let e = 0; e < above.length; e++) {
      const first = shape.start[e];
      const last = shape.start[e + 1] - 1;
      if (first < last) {
        const [x, y, ...inner] = this.#end(sheet, shape, below[e], last, last - 1);
        xy.push(...this.#end(sheet, shape, above[e], first, first + 1));
        for (let i = first + 1; i < last; i++) xy.push(sheet.fx(px[i]), sheet.fy(py[i]));
        xy.push(...inner, x, y);
      }
      start[e + 1] = xy.length / 2;
    }
    return (sheet.lines = { start, xy: Float64Array.from(xy) });
  }

  /**
   * The end of an edge, and where it leaves the row of its box: beside an open group that row is
   * higher than the box.
   * @param {Sheet} sheet
   * @param {Shape} shape
   * @param {number} child
   * @param {number} end a point
   * @param {number} next
   */
  #end(sheet, shape, child, end, next) {
    const { px, py } = shape;
    if (child >= shape.children) return [sheet.fx(px[end]), sheet.fy(py[end])];
    const [left, top, w, h] = sheet.box.subarray(4 * child, 4 * child + 4);
    const side = py[end] > shape.y[child] ? 1 : -1; // 1 below the box
    const border = shape.y[child] + (side * GROUP_HEIGHT) / 2;
    const x = left + w / 2;
    const y = side > 0 ? top + h : top;
    const row = sheet.fy(border);
    const leaves = (py[next] - border) * side > 2; // not where it has a point already
    return leaves && Math.abs(row - y) > 1 ? [x, y, x, row] : [x, y];
  }

  /**
   * Where the inside of an open group begins, and how much it is scaled while it opens.
   * @param {number} g
   * @param {Rect} box
   */
  inside(g, box) {
    const scale = this.moving.group === g ? Math.max(0.02, this.moving.part) : 1;
    const x = box.x + (box.w - this.sheet(g).w * scale) / 2;
    return { x, y: box.y + this.#head(g) * scale, scale };
  }

  /**
   * Where an item is on the page, or the closed group that hides it.
   * @param {number} item
   * @returns {Rect & {shown: number}}
   */
  rect(item) {
    const { model } = this;
    /** @type {number[]} */
    const way = [];
    for (let outer = item; outer !== ~0; outer = ~model.around(outer)) way.push(outer);
    let x = 0;
    let y = 0;
    let k = 1;
    let found = { x, y, w: this.sheet(0).w, h: this.sheet(0).h, shown: ~0 };
    for (const shown of way.reverse()) {
      const i = 4 * model.local(shown);
      const [left, top, w, h] = this.sheet(model.around(shown)).box.subarray(i, i + 4);
      found = { x: x + left * k, y: y + top * k, w: w * k, h: h * k, shown };
      if (!this.isSheet(shown)) break;
      const inner = this.inside(~shown, { x: left, y: top, w, h });
      x += inner.x * k;
      y += inner.y * k;
      k *= inner.scale;
    }
    return found;
  }

  /**
   * The edge of a sheet that passes a point within a distance, or -1; all from the corner of the
   * sheet.
   * @param {number} g
   * @param {number} px
   * @param {number} py
   * @param {number} near
   */
  edgeAt(g, px, py, near) {
    const { start, xy } = this.lines(g);
    let best = -1;
    let least = near;
    for (let e = 0; e < start.length - 1; e++)
      for (let i = 2 * start[e]; i < 2 * start[e + 1] - 2; i += 2) {
        const [x0, y0, x1, y1] = xy.subarray(i, i + 4);
        const part = y1 === y0 ? 0 : (py - y0) / (y1 - y0);
        if (part < -0.05 || part > 1.05) continue;
        const distance = Math.abs(px - alongCurve(x0, x1, part));
        if (distance < least) [least, best] = [distance, e];
      }
    return best;
  }

  /**
   * The innermost item at a point of the page, whether the point is on it or on its title, and
   * where its inside begins.
   * @param {number} px
   * @param {number} py
   */
  hit(px, py) {
    const { model } = this;
    let found = { item: ~0, title: false, x: 0, y: 0 };
    for (let g = 0; g >= 0;) {
      const { box } = this.sheet(g);
      const { x, y } = found;
      const i = model.itemsOf(g).findIndex((_, i) => {
        const across = px - x - box[4 * i];
        const down = py - y - box[4 * i + 1];
        return across >= 0 && across <= box[4 * i + 2] && down >= 0 && down <= box[4 * i + 3];
      });
      if (i < 0) break;
      const item = model.item(g, i);
      found = { item, title: true, x, y };
      g = this.isSheet(item) ? ~item : -1;
      if (g < 0) break;
      const [left, top, w, h] = box.subarray(4 * i, 4 * i + 4);
      const inner = this.inside(g, { x: x + left, y: y + top, w, h });
      found = { item, title: py <= y + top + TITLE, x: inner.x, y: inner.y };
    }
    return found;
  }
}
