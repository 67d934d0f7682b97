/**
 * Where everything is, for any mix of open and closed groups. A sheet was laid out with its children closed; opening a child stretches
 * it by two monotone maps, one for each axis. So what did not overlap still does not, and edges keep their way round boxes.
 */
import { CELL_HEIGHT, GROUP_HEIGHT } from "./model.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./model.js").Shape} Shape */

export const TITLE = 26,
  SPREAD = 10,
  PAD = 14,
  FOOT = 12;
const LETTER = 6.63; // px, of titles

/** @typedef {{a: number, b: number, size: number}} Want an interval and the least length it must get */
/** @typedef {{x: number, y: number, w: number, h: number}} Rect */

/**
 * The piecewise linear map that gives every interval at least its new length and shrinks nothing.
 * @param {Want[]} wants
 * @param {number} end of the axis, which begins at 0
 * @returns {(v: number) => number}
 */
export function stretch(wants, end) {
  if (!wants.length) return (v) => v;
  const cuts = [...new Set([0, end, ...wants.flatMap((want) => [want.a, want.b])])].sort(
    (p, q) => p - q,
  );
  const at = new Map(cuts.map((cut, i) => [cut, i]));
  const to = new Float64Array(cuts.length);
  to[0] = cuts[0];
  /** @type {Map<number, Want[]>} */
  const ending = new Map();
  for (const want of wants) {
    const here = ending.get(want.b);
    if (here) here.push(want);
    else ending.set(want.b, [want]);
  }
  for (let j = 1; j < cuts.length; j++) {
    let v = to[j - 1] + cuts[j] - cuts[j - 1];
    for (const want of ending.get(cuts[j]) || [])
      v = Math.max(v, to[/** @type {number} */ (at.get(want.a))] + want.size);
    to[j] = v;
  }
  const last = cuts.length - 1;
  return (v) => {
    if (v <= cuts[0]) return v - cuts[0] + to[0];
    if (v >= cuts[last]) return to[last] + v - cuts[last];
    let low = 0,
      high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (cuts[middle] <= v) low = middle;
      else high = middle;
    }
    return to[low] + ((v - cuts[low]) / (cuts[high] - cuts[low])) * (to[high] - to[low]);
  };
}

/** Edge e goes through the points start[e] to start[e + 1], each an x and a y. @typedef {{start: Int32Array, xy: Float64Array}} Lines */

/**
 * A sheet as it is now, from its own upper left corner.
 * @typedef {object} Sheet
 * @property {number} w
 * @property {number} h
 * @property {Float64Array} box x, y, width and height of each child
 * @property {(v: number) => number} fx
 * @property {(v: number) => number} fy
 * @property {Lines | null} lines made when first drawn
 */

/** Where a piece of an edge, drawn as an S, is at a part of its height. @param {number} x0 @param {number} x1 @param {number} part */
function alongCurve(x0, x1, part) {
  let low = 0,
    high = 1;
  for (let i = 0; i < 12; i++) {
    const t = (low + high) / 2,
      y = 1.5 * t * (1 - t) + t ** 3;
    if (y < part) low = t;
    else high = t;
  }
  return x0 + (x1 - x0) * (3 * low * low - 2 * low ** 3);
}

export class Layout {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.open = new Uint8Array(model.groups);
    this.open[0] = 1;
    /** @type {(Sheet | undefined)[]} */
    this.cache = new Array(model.groups);
    /** A group that is on its way from closed (0) to open (1). */
    this.moving = { group: -1, part: 1 };
  }

  /** @param {number} g */
  isOpen(g) {
    return this.open[g] === 1;
  }

  /** Whether the inside of a group shows: it and all around it are open. @param {number} g */
  isShown(g) {
    for (let at = g; at >= 0; at = this.model.parent[at]) if (!this.open[at]) return false;
    return true;
  }

  /** The item itself, or the closed group that hides it. @param {number} item */
  shown(item) {
    let found = item;
    for (let g = this.model.around(item); g > 0; g = this.model.parent[g])
      if (!this.open[g]) found = ~g;
    return found;
  }

  /** @param {number} g @param {boolean} open */
  setOpen(g, open) {
    if (g === 0 || (this.open[g] === 1) === open) return false;
    this.open[g] = open ? 1 : 0;
    this.forget(g);
    return true;
  }

  /** Forget what was computed for the groups around one. @param {number} g */
  forget(g) {
    for (let at = this.model.parent[g]; at >= 0; at = this.model.parent[at])
      this.cache[at] = undefined;
  }

  forgetAll() {
    this.cache = new Array(this.model.groups);
  }

  /** @param {number} g @returns {Sheet} */
  sheet(g) {
    let found = this.cache[g];
    if (!found) found = this.cache[g] = this.#make(g);
    return found;
  }

  /** Size of an open group with its border and title. @param {number} g @param {number} closedWidth @returns {[number, number]} */
  openSize(g, closedWidth) {
    const inside = this.sheet(g);
    const w = Math.max(closedWidth + 12, inside.w + 2 * PAD, this.#titleRoom(g)),
      h = inside.h + this.#head(g) + FOOT;
    if (this.moving.group !== g) return [w, h];
    const part = this.moving.part;
    return [closedWidth + (w - closedWidth) * part, GROUP_HEIGHT + (h - GROUP_HEIGHT) * part];
  }

  /** Width that a title needs where edges enter beside it, in the middle. @param {number} g */
  #titleRoom(g) {
    if (!this.model.shape(g).into) return 0;
    const title = this.model.title(~g).length,
      both = title + this.model.type(~g).length + 1;
    return 2 * ((both <= 26 ? both : title) * LETTER + 30);
  }

  /** Height above the inside: the title, and room for edges to spread below it. @param {number} g */
  #head(g) {
    return TITLE + (this.model.shape(g).into ? SPREAD : 0);
  }

  /** @param {number} g @returns {Sheet} */
  #make(g) {
    const model = this.model,
      shape = model.shape(g),
      n = shape.children;
    const sizes = new Float64Array(2 * n);
    /** @type {Want[]} */
    const wide = [],
      tall = [];
    for (let i = 0; i < n; i++) {
      const item = model.item(g, i),
        w = shape.boxWidth[i],
        h = item < 0 ? GROUP_HEIGHT : CELL_HEIGHT;
      sizes[2 * i] = w;
      sizes[2 * i + 1] = h;
      if (item < 0 && this.open[~item]) {
        const [ow, oh] = this.openSize(~item, w);
        sizes[2 * i] = ow;
        sizes[2 * i + 1] = oh;
        wide.push({ a: shape.x[i] - w / 2, b: shape.x[i] + w / 2, size: ow });
        tall.push({ a: shape.y[i] - h / 2, b: shape.y[i] + h / 2, size: oh });
      }
    }
    const fx = stretch(wide, shape.width),
      fy = stretch(tall, shape.height);
    const box = new Float64Array(4 * n);
    for (let i = 0; i < n; i++) {
      const w = sizes[2 * i],
        h = sizes[2 * i + 1],
        item = model.item(g, i);
      const isOpen = item < 0 && this.open[~item];
      const half = shape.boxWidth[i] / 2;
      const x = isOpen ? (fx(shape.x[i] - half) + fx(shape.x[i] + half)) / 2 : fx(shape.x[i]);
      const top = isOpen ? fy(shape.y[i] - GROUP_HEIGHT / 2) : fy(shape.y[i]) - h / 2;
      box.set([x - w / 2, top, w, h], 4 * i);
    }
    return { w: fx(shape.width), h: fy(shape.height), box, fx, fy, lines: null };
  }

  /** The edges of a sheet; ends meet the middle of their box's border. @param {number} g @returns {Lines} */
  lines(g) {
    const sheet = this.sheet(g);
    if (sheet.lines) return sheet.lines;
    const shape = this.model.shape(g),
      { px, py, above, below } = shape,
      start = new Int32Array(above.length + 1);
    /** @type {number[]} */
    const xy = [];
    for (let e = 0; e < above.length; e++) {
      const first = shape.start[e],
        last = shape.start[e + 1] - 1;
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
   * The end of an edge, and where it leaves the row of its box: beside an open group that row is higher than the box.
   * @param {Sheet} sheet @param {Shape} shape @param {number} child @param {number} end a point @param {number} next
   */
  #end(sheet, shape, child, end, next) {
    const { px, py } = shape;
    if (child >= shape.children) return [sheet.fx(px[end]), sheet.fy(py[end])];
    const [left, top, w, h] = sheet.box.subarray(4 * child, 4 * child + 4),
      middle = shape.y[child];
    const isBelow = py[end] > middle,
      border = middle + (isBelow ? GROUP_HEIGHT : -GROUP_HEIGHT) / 2;
    const x = left + w / 2,
      y = isBelow ? top + h : top,
      row = sheet.fy(border);
    const leaves = isBelow ? py[next] > border + 2 : py[next] < border - 2; // not where it has a point already
    return leaves && Math.abs(row - y) > 1 ? [x, y, x, row] : [x, y];
  }

  /** Where the inside of an open group begins, and how much it is scaled while it opens. @param {number} g @param {Rect} box */
  inside(g, box) {
    const inner = this.sheet(g);
    const scale = this.moving.group === g ? Math.max(0.02, this.moving.part) : 1;
    return { x: box.x + (box.w - inner.w * scale) / 2, y: box.y + this.#head(g) * scale, scale };
  }

  /** Where an item is on the page, or the closed group that hides it. @param {number} item @returns {Rect & {shown: number}} */
  rect(item) {
    const model = this.model;
    /** @type {number[]} */
    const way = [];
    for (let at = item; at !== ~0; at = ~model.around(at)) way.push(at);
    let x = 0,
      y = 0,
      k = 1;
    /** @type {Rect & {shown: number}} */
    let found = { x: 0, y: 0, w: this.sheet(0).w, h: this.sheet(0).h, shown: ~0 };
    for (let i = way.length - 1; i >= 0; i--) {
      const at = way[i],
        sheet = this.sheet(model.around(at)),
        j = 4 * model.local(at);
      found = {
        x: x + sheet.box[j] * k,
        y: y + sheet.box[j + 1] * k,
        w: sheet.box[j + 2] * k,
        h: sheet.box[j + 3] * k,
        shown: at,
      };
      if (i === 0 || at >= 0 || !this.open[~at]) break;
      const inner = this.inside(~at, { x: found.x, y: found.y, w: found.w / k, h: found.h / k });
      x = found.x + (inner.x - found.x) * k;
      y = found.y + (inner.y - found.y) * k;
      k *= inner.scale;
    }
    return found;
  }

  /** The edge of a sheet that passes a point within a distance, or -1; all from the corner of the sheet. @param {number} g @param {number} px @param {number} py @param {number} near */
  edgeAt(g, px, py, near) {
    const { start, xy: lines } = this.lines(g);
    let best = -1,
      least = near * near;
    for (let e = 0; e < start.length - 1; e++)
      for (let i = 2 * start[e]; i < 2 * start[e + 1] - 2; i += 2) {
        const y = lines[i + 1],
          dy = lines[i + 3] - y,
          part = dy ? (py - y) / dy : 0;
        if (part < -0.05 || part > 1.05) continue;
        const apart = (px - alongCurve(lines[i], lines[i + 2], part)) ** 2;
        if (apart < least) {
          least = apart;
          best = e;
        }
      }
    return best;
  }

  /** The innermost item at a point of the page, and whether the point is on an open group's title. @param {number} px @param {number} py */
  hit(px, py) {
    const model = this.model;
    let g = 0,
      x = 0,
      y = 0;
    let found = { item: ~0, title: false, x, y };
    for (;;) {
      const sheet = this.sheet(g),
        n = model.shape(g).children;
      let inner = -1;
      for (let i = 0; i < n; i++) {
        const bx = x + sheet.box[4 * i],
          by = y + sheet.box[4 * i + 1],
          w = sheet.box[4 * i + 2],
          h = sheet.box[4 * i + 3];
        if (px < bx || px > bx + w || py < by || py > by + h) continue;
        const item = model.item(g, i);
        found = { item, title: true, x, y };
        if (item < 0 && this.open[~item]) {
          const place = this.inside(~item, { x: bx, y: by, w, h });
          found.title = py <= by + TITLE;
          inner = ~item;
          x = place.x;
          y = place.y;
          found.x = x;
          found.y = y;
        }
        break;
      }
      if (inner < 0) return found;
      g = inner;
    }
  }
}
