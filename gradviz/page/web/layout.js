/**
 * Where everything is, for any mix of open and closed groups. A sheet was laid out with its
 * children
 * closed; opening a child stretches it by two monotone maps, one for each axis. So what did not
 * overlap still does not, and edges keep their way round boxes.
 */
import { CELL_HEIGHT, GROUP_HEIGHT } from "./model.js";
import { curveAlong, isOnLine } from "./painter.js";

/** @import { Model, Shape } from "./model.js" */

export const TITLE = 26;
const TITLE_FOOT = 19; // px to which an edge goes straight down through a title
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

  /** The item itself, or the closed group that hides it. @param {number} item */
  shown(item) {
    const hiding = this.model.groupsAround(item).findLast((g) => !this.open[g]);
    return hiding ? ~hiding : item;
  }

  /** How far a group is on its way from closed (0) to open (1). @param {number} g */
  partOf(g) {
    return this.moving.group === g ? this.moving.part : 1;
  }

  /** @param {number} g @param {boolean} open @returns {boolean} whether it was not */
  setOpen(g, open) {
    if (g === 0 || this.isOpen(g) === open) return false;
    this.open[g] = Number(open);
    this.forget(g);
    return true;
  }

  /** Open what hides an item. @param {number} item @returns {number[]} what was closed */
  openAround(item) {
    return this.model.groupsAround(item).filter((g) => this.setOpen(g, true));
  }

  /** @param {(g: number) => number | boolean} isOpen @param {Iterable<number>} [groups] */
  setAll(isOpen, groups = this.open.keys()) {
    for (const g of groups) this.open[g] = Number(isOpen(g));
    this.open[0] = 1;
    this.sheets = new Array(this.model.groups);
  }

  /** Forget what was computed for the groups around one. @param {number} g */
  forget(g) {
    for (const outer of [...this.model.groupsAround(~g), 0]) this.sheets[outer] = undefined;
  }

  /** @param {number} g @returns {Sheet} */
  sheet(g) {
    return (this.sheets[g] ??= this.#make(g));
  }

  /** @param {number} g @param {number} i a child @returns {Rect} from the corner of the sheet */
  box(g, i) {
    const [x, y, w, h] = this.sheet(g).box.subarray(4 * i, 4 * i + 4);
    return { x, y, w, h };
  }

  /** Of all children. @param {number} g */
  boxes(g) {
    return this.model.itemsOf(g).map((_, i) => this.box(g, i));
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
    const part = this.partOf(g);
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
   * The edges of a sheet; ends meet the middle of their box's border, and those of ports, through
   * the title, that of the open group's.
   * @param {number} g
   * @returns {Lines}
   */
  lines(g) {
    const sheet = this.sheet(g);
    if (sheet.lines) return sheet.lines;
    const shape = this.model.shape(g);
    const { px, py, above, below } = shape;
    const start = new Int32Array(above.length + 1);
    const middle = sheet.w / 2;
    const top = -this.#head(g);
    const entry = [middle, top, middle, top + TITLE_FOOT];
    /** @type {number[]} */
    const xy = [];
    for (let e = 0; e < above.length; e++) {
      const first = shape.firstPoint[e];
      const last = shape.lastPoint[e];
      if (first < last) {
        if (above[e] >= shape.children) xy.push(...entry);
        const [x, y, ...inner] = this.#end(sheet, shape, below[e], last, last - 1);
        xy.push(...this.#end(sheet, shape, above[e], first, first + 1));
        for (let i = first + 1; i < last; i++) xy.push(sheet.fx(px[i]), sheet.fy(py[i]));
        xy.push(...inner, x, y);
        if (below[e] >= shape.children) xy.push(middle, sheet.h + FOOT);
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
    const scale = Math.max(0.02, this.partOf(g));
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
    const { w, h } = this.sheet(0);
    let found = { x: 0, y: 0, w, h, shown: ~0 };
    let corner = { x: 0, y: 0, scale: 1 }; // of the sheet that is come to
    const outer = model.groupsAround(item).map((g) => ~g);
    for (const shown of item === ~0 ? [] : [...outer.reverse(), item]) {
      const { x, y, scale } = corner;
      const box = this.box(model.around(shown), model.local(shown));
      found = {
        x: x + box.x * scale,
        y: y + box.y * scale,
        w: box.w * scale,
        h: box.h * scale,
        shown
      };
      if (!this.isSheet(shown)) break;
      const inner = this.inside(~shown, box);
      corner = { x: x + inner.x * scale, y: y + inner.y * scale, scale: scale * inner.scale };
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
    const paths = Array.from(start.subarray(1), (end, e) => {
      const path = new Path2D();
      curveAlong(path, xy.subarray(2 * start[e], 2 * end));
      return path;
    });
    // the nearest, as well as two strokes tell
    const widths = [near / 2, 2 * near];
    const under = widths.map((width) => paths.findIndex((path) => isOnLine(path, px, py, width)));
    return under.find((edge) => edge >= 0) ?? -1;
  }

  /**
   * The innermost item at a point of the page, whether the point is on it or on its title, and
   * where its inside begins.
   * @param {number} px
   * @param {number} py
   */
  hit(px, py) {
    let found = { item: ~0, title: false, x: 0, y: 0 };
    while (this.isSheet(found.item)) {
      const { item: outer, x, y } = found;
      const boxes = this.boxes(~outer);
      const i = boxes.findIndex((box) => {
        const across = px - x - box.x;
        const down = py - y - box.y;
        return across >= 0 && across <= box.w && down >= 0 && down <= box.h;
      });
      if (i < 0) break;
      const item = this.model.item(~outer, i);
      found = { item, title: true, x, y };
      if (!this.isSheet(item)) break;
      const { w, h } = boxes[i];
      const top = y + boxes[i].y;
      const inner = this.inside(~item, { x: x + boxes[i].x, y: top, w, h });
      found = { item, title: py <= top + TITLE, x: inner.x, y: inner.y };
    }
    return found;
  }
}
