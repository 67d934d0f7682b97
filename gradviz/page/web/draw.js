/**
 * Draws what is visible, on whichever painter. The tree of groups is the spatial index: what lies
 * outside the window, or is too small to read, is not entered. Knows places and looks; what the
 * colours mean is decided elsewhere.
 */
import { COPY, LEAF, OUTPUT } from "./model.js";
import { fitted, textWidth } from "./painter.js";

/** @import { Colors, Painter } from "./painter.js" */
/** @import { Layout, Rect } from "./layout.js" */

/**
 * What is lit while the rest fades.
 * @typedef {{item: (item: number) => boolean, edges: (g: number) => Uint8Array | null}} Lit
 */

/**
 * @typedef {object} Look
 * @property {Colors} colors
 * @property {(item: number) => string} kind the name of the colour of its kind
 * @property {(item: number) => string} fill "" for the colour of the kind
 * @property {(item: number) => string} line the second line
 * @property {Lit | null} lit
 * @property {number | null} selected
 * @property {number | null} other
 * @property {number | null} hover
 * @property {(item: number) => number[]} marks numbers of findings
 * @property {(item: number) => string} badge a text below the right corner: "✓ .grad"
 * @property {((item: number) => boolean) | null} absent what is not shown
 * @property {(g: number, lit: boolean) => ((edge: number) => string) | null} edgeText what stands
 *   on edges of a sheet
 * @property {number} travel how far gradients are on lit edges, from 0 to 1
 * @property {boolean} backward whether lit edges are on the way of gradients, from below to above
 * @property {(g: number) => Uint8Array | null} edgeKinds 1 for added, 2 for removed
 * @property {(item: number) => boolean} cut whether no gradient passes
 * @property {(g: number, edge: number) => boolean} cutEdge the same for an edge of a sheet
 */

/**
 * A point p of the page is drawn at p * k + (x, y).
 * @typedef {{x: number, y: number, k: number}} Camera
 */
/**
 * @typedef {"faded" | "leaf" | "cut" | "plain" | "removed" | "added" | "lit"} EdgeKind in the order
 *   in which they are drawn
 */

const LETTERS = 11; // px of a title
const SMALLEST = 5; // px, the least size of letters
const PLAIN = 7; // px; below, a box has its title alone, as large as it takes
const DASHES = [4, 3];
const FADED = 0.33;
/** @type {EdgeKind[]} */
const EDGE_KINDS = ["faded", "leaf", "cut", "plain", "removed", "added", "lit"];

export class Drawer {
  /** @param {Painter} painter @param {Layout} layout @param {Look} look @param {Rect} window */
  constructor(painter, layout, look, window) {
    this.p = painter;
    this.layout = layout;
    this.model = layout.model;
    this.look = look;
    this.window = window;
    this.quiet = false; // no text
    this.drawn = 0;
    /**
     * Titles of open groups too small for one, drawn over all.
     * @type {{x: number, y: number, text: string}[]}
     */
    this.labels = [];
  }

  /** The page, or the inside of a group. @param {Camera} camera @param {number} [g] */
  draw(camera, g = 0) {
    const { text, halo } = this.look.colors;
    this.#sheet(g, camera, 0, false);
    this.p.alpha = 1;
    for (const label of this.quiet ? [] : this.labels)
      this.p.text(label.text, label.x, label.y, 10, text, { strong: true, halo });
    return this.drawn;
  }

  /** @param {number} left @param {number} top @param {number} right @param {number} bottom */
  #isOutside(left, top, right, bottom) {
    const { x, y, w, h } = this.window;
    return left > x + w || top > y + h || right < x || bottom < y;
  }

  /**
   * @param {number} g
   * @param {Camera} camera of its corner
   * @param {number} depth
   * @param {boolean} labelled
   */
  #sheet(g, camera, depth, labelled) {
    const { k } = camera;
    const { box } = this.layout.sheet(g);
    if (k * 34 >= 2) this.#edges(g, camera);
    for (let i = 0; i < box.length / 4; i++) {
      const x = camera.x + box[4 * i] * k;
      const y = camera.y + box[4 * i + 1] * k;
      const w = box[4 * i + 2] * k;
      const h = box[4 * i + 3] * k;
      if (this.#isOutside(x - 8, y - 8, x + w + 8, y + h + 8)) continue;
      const item = this.model.item(g, i);
      if ((item >= 0 && h < 0.8) || this.look.absent?.(item)) continue;
      this.drawn++;
      if (this.layout.isSheet(item)) this.#open(item, { x, y, w, h }, k, depth, labelled);
      else this.#closed(item, { x, y, w, h }, k);
    }
  }

  /** @param {number} item */
  #fades(item) {
    return this.look.lit !== null && !this.look.lit.item(item);
  }

  /**
   * @param {number} item
   * @param {Rect} r
   * @param {number} k
   * @param {number} depth
   * @param {boolean} labelled
   */
  #open(item, r, k, depth, labelled) {
    const { p } = this;
    const { colors } = this.look;
    const tint = this.look.fill(item);
    const ground = depth % 2 ? colors["sheet-2"] : colors.sheet;
    const border = this.#fades(item) ? colors["soft-line"] : colors.border;
    p.alpha = 1;
    p.rect(r.x, r.y, r.w, r.h, Math.min(8 * k, 8), ground, border, 1);
    if (tint && r.w > 12 && r.h > 12)
      p.rect(r.x, r.y, Math.max(3, 4 * k), r.h, Math.min(4 * k, 3), tint, "", 0);
    this.#outline(item, r, 8 * k);
    if (r.w < 8 || r.h < 10) return;
    const inner = this.layout.inside(~item, { x: 0, y: 0, w: r.w / k, h: r.h / k });
    const camera = { x: r.x + inner.x * k, y: r.y + inner.y * k, k: k * inner.scale };
    const scale = LETTERS * k < PLAIN ? Math.min(PLAIN / LETTERS, 1.5 * k) : k;
    const readable = LETTERS * scale >= SMALLEST && !this.quiet;
    const alone = !readable && !labelled && r.w > 70 && r.h > 18 && r.h < this.window.h * 0.7;
    this.#ports(~item, r, camera);
    this.#sheet(~item, camera, depth + 1, labelled || alone);
    p.alpha = this.#fades(item) ? 0.5 : 1;
    if (readable) this.#title(item, r, scale, Math.min(17 * scale, 21 * k), ground);
    else if (alone) {
      const text = fitted(this.model.title(item), 10, r.w - 8);
      this.labels.push({ x: r.x + 4, y: r.y + LETTERS, text });
    }
    this.#marks(item, r, k);
  }

  /**
   * @param {number} item
   * @param {Rect} r
   * @param {number} k of the letters
   * @param {number} down to their foot
   * @param {string} halo
   */
  #title(item, r, k, down, halo) {
    const { text, muted } = this.look.colors;
    const size = LETTERS * k;
    const type = this.model.type(item);
    const y = r.y + down;
    this.#chevron(r.x + 12 * k, y - 4 * k, k, true);
    const room = r.w - 30 * k;
    const shown = fitted(this.model.title(item), size * 1.04, room);
    this.p.text(shown, r.x + 22 * k, y, size, text, { strong: true, halo });
    const used = textWidth(shown, true) * size + size;
    // edges enter in the middle
    const free = this.model.shape(~item).into ? r.w / 2 - 24 * k : room;
    if (type && used + textWidth(type) * size < free)
      this.p.text(type, r.x + 22 * k + used, y, size, muted, { halo });
  }

  /** @param {number} x @param {number} y @param {number} k @param {boolean} open */
  #chevron(x, y, k, open) {
    const { p } = this;
    const d = 3.4 * k;
    const [across, down] = open ? [d, d / 2] : [d / 2, d];
    p.begin();
    p.move(x - across, y - down);
    if (open) p.line(x, y + down);
    else p.line(x + across, y);
    p.line(open ? x + across : x - across, open ? y - down : y + down);
    p.stroke(this.look.colors.muted, Math.max(1, 1.4 * k));
  }

  /** @param {number} item @param {Rect} r @param {number} k */
  #closed(item, r, k) {
    const { p, look } = this;
    const { colors } = look;
    const isGroup = item < 0;
    const kind = look.kind(item);
    const line = colors[`${kind}-line`];
    const cut = look.cut(item);
    const tint = cut ? colors.sheet : look.fill(item);
    p.alpha = this.#fades(item) ? FADED : 1;
    const round = isGroup ? 8 * k : this.#isRound(item) ? r.h / 2 : 5 * k;
    if (isGroup && r.w > 14 && r.h > 10)
      // a second sheet behind it: there is more inside
      p.rect(r.x + 3 * k, r.y + 3 * k, r.w, r.h, round, colors[kind], line, 1);
    const [edge, dashes] = cut ? [colors.muted, DASHES] : [line, undefined];
    p.rect(r.x, r.y, r.w, r.h, round, tint || colors[kind], edge, 1, dashes);
    // on a tint, dim text has too little contrast
    if (LETTERS * k >= PLAIN) this.#words(item, r, k, tint ? colors.text : colors[`${kind}-dim`]);
    else if (r.h * 0.62 >= SMALLEST && !this.quiet) this.#titleAlone(item, r);
    this.#badge(item, r, k);
    this.#outline(item, r, round);
    this.#marks(item, r, k);
  }

  /** @param {number} item */
  #isRound(item) {
    return item >= 0 && [LEAF, COPY, OUTPUT].includes(this.model.kind[item]);
  }

  /**
   * Title, class and second line of a closed box.
   * @param {number} item
   * @param {Rect} r
   * @param {number} k
   * @param {string} dim
   */
  #words(item, r, k, dim) {
    const { p, model, look } = this;
    const { text } = look.colors;
    const isGroup = item < 0;
    const size = LETTERS * k;
    const title = fitted(model.title(item), LETTERS, r.w / k - (isGroup ? 28 : 6));
    const line = look.line(item);
    const type = model.type(item);
    const middle = r.x + r.w / 2 + (isGroup ? 7 * k : 0);
    const y = r.y + (isGroup ? 16.5 : line ? 14.5 : 21) * k;
    if (type) {
      const used = textWidth(title, true) * size + size;
      const x = middle - (used + textWidth(type) * size) / 2;
      p.text(title, x, y, size, text, { strong: true });
      p.text(type, x + used, y, size, dim);
    } else p.text(title, middle, y, size, text, { strong: true, middle: true });
    if (line) {
      const room = r.w - (isGroup ? 36 : 12) * k;
      const below = r.y + (isGroup ? 30.5 : 27.5) * k;
      p.text(line, middle, below, Math.min(10 * k, room / textWidth(line)), dim, { middle: true });
    }
    if (isGroup) this.#chevron(r.x + 13 * k, r.y + r.h / 2, k, false);
  }

  /** @param {number} item @param {Rect} r */
  #titleAlone(item, { x, y, w, h }) {
    const title = this.model.title(item);
    const widest = Math.max(SMALLEST + 1, (w - 4) / textWidth(title, true));
    const size = Math.min(9, h * 0.62, widest);
    const { text } = this.look.colors;
    const how = { strong: true, middle: true };
    this.p.text(fitted(title, size, w - 4), x + w / 2, y + h / 2 + size * 0.36, size, text, how);
  }

  /** @param {number} item @param {Rect} r @param {number} k */
  #badge(item, r, k) {
    const badge = this.look.badge(item);
    const size = 9 * k;
    if (!badge || size < SMALLEST) return;
    const { accent, halo } = this.look.colors;
    const x = r.x + r.w - 4 * k - textWidth(badge) * size;
    this.p.alpha = 1;
    this.p.text(badge, x, r.y + r.h + 10 * k, size, accent, { strong: true, halo });
  }

  /** @param {number} item @param {Rect} r @param {number} round */
  #outline(item, r, round) {
    const { selected, other, hover, colors } = this.look;
    const chosen = item === selected || item === other;
    if (!chosen && item !== hover) return;
    const color = item === other ? colors["accent-2"] : colors.accent;
    const d = 1.5;
    this.p.alpha = 1;
    this.p.rect(r.x - d, r.y - d, r.w + 2 * d, r.h + 2 * d, round + d, "", color, chosen ? 2.5 : d);
  }

  /** @param {number} item @param {Rect} r @param {number} k */
  #marks(item, r, k) {
    const numbers = this.look.marks(item);
    if (!numbers.length || r.w < 14) return;
    const { warn, bg } = this.look.colors;
    const size = Math.max(9, Math.min(LETTERS * k, 13));
    const text = numbers.length > 2 ? `${numbers[0]}…` : numbers.join(",");
    const w = Math.max(size * 1.6, textWidth(text, true) * size + 8);
    const x = r.x + r.w;
    const y = r.y - size * 0.8;
    this.p.alpha = 1;
    this.p.rect(x - w / 2, y, w, size * 1.6, size * 0.8, warn, bg, 1.5);
    this.p.text(text, x, y + size * 1.16, size, bg, { strong: true, middle: true });
  }

  // -- edges -------------------------------------------------------------------------------------

  /**
   * How an edge of a sheet is drawn.
   * @param {number} g
   * @param {number} edge
   * @param {Uint8Array | null | undefined} lit
   * @param {Uint8Array | null} changes
   * @returns {EdgeKind}
   */
  #edgeKind(g, edge, lit, changes) {
    const { look } = this;
    if (lit?.[edge]) return "lit";
    if (changes?.[edge]) return changes[edge] === 1 ? "added" : "removed";
    if (look.lit) return "faded";
    if (look.cutEdge(g, edge)) return "cut";
    return this.#isFromLeaf(g, this.model.shape(g).above[edge]) ? "leaf" : "plain";
  }

  /**
   * Whether an edge of a sheet begins at a leaf, in it or outside: it looks the same on both sides
   * of a border.
   * @param {number} g
   * @param {number} above a local number
   */
  #isFromLeaf(g, above) {
    const cell = this.model.source(g, above);
    return cell >= 0 && [LEAF, COPY].includes(this.model.kind[cell]);
  }

  /**
   * Whether what stands at an end of an edge, in the sheet or outside, is not shown.
   * @param {number} g
   * @param {number} end a local number
   */
  #isHidden(g, end) {
    if (!this.look.absent) return false;
    const inside = end < this.model.shape(g).children;
    const item = inside ? this.model.item(g, end) : this.model.source(g, end);
    return (inside || item >= 0) && this.look.absent(item);
  }

  /** @param {EdgeKind} kind @param {number} k */
  #stroke(kind, k) {
    const { colors } = this.look;
    const thin = Math.max(0.6, Math.min(1.3, 1.3 * k));
    const thick = Math.max(1.6, 2.4 * k);
    this.p.alpha = kind === "faded" ? 0.35 : 1;
    if (kind === "lit") this.p.stroke(colors.accent, Math.max(1.4, Math.min(2.4, 2.2 * k)));
    else if (kind === "added") this.p.stroke(colors["added-line"], thick);
    else if (kind === "removed") this.p.stroke(colors["removed-line"], thick, [6, 4]);
    else if (kind === "cut") this.p.stroke(colors.line, thin, DASHES);
    else this.p.stroke(colors[kind === "plain" ? "line" : "soft-line"], thin);
  }

  /**
   * Lines through the title of an open group, from where edges meet its border to its ports.
   * @param {number} g
   * @param {Rect} r
   * @param {Camera} camera
   */
  #ports(g, r, camera) {
    const { p } = this;
    const { children, into, out, x, y, above, below } = this.model.shape(g);
    const sheet = this.layout.sheet(g);
    const lit = this.look.lit?.edges(g);
    /** @type {Map<number, EdgeKind>} */
    const kinds = new Map();
    for (let port = children; port < children + into + out; port++)
      if (!this.#isHidden(g, port))
        kinds.set(port, lit ? "faded" : this.#isFromLeaf(g, port) ? "leaf" : "plain");
    const special = lit ? "lit" : "cut";
    for (let e = 0; e < above.length; e++)
      if (lit ? lit[e] : this.look.cutEdge(g, e))
        for (const end of [above[e], below[e]]) if (kinds.has(end)) kinds.set(end, special);
    const middle = r.x + r.w / 2;
    for (const wanted of EDGE_KINDS) {
      const ports = [...kinds].filter(([, kind]) => kind === wanted);
      if (!ports.length) continue;
      p.begin();
      for (const [port] of ports) {
        const px = camera.x + sheet.fx(x[port]) * camera.k;
        const py = camera.y + sheet.fy(y[port]) * camera.k;
        if (port < children + into) {
          const foot = r.y + 19 * camera.k;
          p.move(middle, r.y);
          p.line(middle, foot);
          this.#bend(middle, foot, px, py);
        } else {
          p.move(px, py);
          this.#bend(px, py, middle, r.y + r.h);
        }
      }
      this.#stroke(wanted, camera.k);
    }
  }

  /**
   * An S from where the path is.
   * @param {number} x0
   * @param {number} y0
   * @param {number} x1
   * @param {number} y1
   */
  #bend(x0, y0, x1, y1) {
    const middle = (y0 + y1) / 2;
    this.p.curve(x0, middle, x1, middle, x1, y1);
  }

  /** @param {number} g @param {Camera} camera */
  #edges(g, camera) {
    const { look, model } = this;
    const { k } = camera;
    const { above, below } = model.shape(g);
    const { start, xy } = this.layout.lines(g);
    const lit = look.lit?.edges(g);
    const changes = look.edgeKinds(g);
    /**
     * Edges of each kind, and their points on the screen.
     * @type {Map<EdgeKind, [number, Float64Array][]>}
     */
    const kinds = new Map(EDGE_KINDS.map((kind) => [kind, []]));
    for (let e = 0; e < above.length; e++) {
      if (start[e] === start[e + 1]) continue;
      const points = xy.slice(2 * start[e], 2 * start[e + 1]);
      if (this.#isAway(points, camera)) continue;
      if (this.#isHidden(g, above[e]) || this.#isHidden(g, below[e])) continue;
      kinds.get(this.#edgeKind(g, e, lit, changes))?.push([e, points]);
      this.drawn++;
    }
    for (const [kind, edges] of kinds) {
      if (!edges.length) continue;
      this.p.begin();
      for (const [, points] of edges) this.#route(points, k > 0.22);
      this.#stroke(kind, k);
      if (k > 0.3) this.#heads(g, edges, k, kind);
      if (k > 0.7 && !this.quiet) this.#edgeTexts(g, edges, k, kind);
      if (kind === "lit" && look.travel < 1)
        for (const [, points] of edges) this.#traveller(points, k);
    }
  }

  /**
   * Moves points to the screen.
   * @param {Float64Array} points
   * @param {Camera} camera
   * @returns {boolean} whether all are out of the window
   */
  #isAway(points, { x, y, k }) {
    let left = Infinity;
    let right = -Infinity;
    for (let i = 0; i < points.length; i += 2) {
      points[i] = x + points[i] * k;
      points[i + 1] = y + points[i + 1] * k;
      left = Math.min(left, points[i]);
      right = Math.max(right, points[i]);
    }
    const ends = [points[1], points[points.length - 1]]; // an edge goes down, or up, all the way
    return this.#isOutside(left, Math.min(...ends), right, Math.max(...ends));
  }

  /** @param {Float64Array} points @param {boolean} fine */
  #route(points, fine) {
    let [x, y] = points;
    this.p.move(x, y);
    for (let i = 2; i < points.length; i += 2) {
      const nx = points[i];
      const ny = points[i + 1];
      if (!fine || Math.abs(nx - x) < 0.5) this.p.line(nx, ny);
      else this.#bend(x, y, nx, ny);
      [x, y] = [nx, ny];
    }
  }

  /**
   * What stands on edges, each in the middle of its longest piece, where no other one does.
   * @param {number} g
   * @param {[number, Float64Array][]} edges
   * @param {number} k
   * @param {EdgeKind} kind
   */
  #edgeTexts(g, edges, k, kind) {
    const words = this.look.edgeText(g, kind === "lit");
    if (!words) return;
    const { muted, halo } = this.look.colors;
    const size = 9 * Math.min(k, 1.3);
    /** Left and right ends, and baselines. @type {[number, number, number][]} */
    const taken = [];
    this.p.alpha = 1;
    for (const [e, points] of edges) {
      const text = words(e);
      const height = (/** @type {number} */ i) => Math.abs(points[i + 3] - points[i + 1]);
      let best = 0;
      for (let i = 2; i < points.length - 2; i += 2) if (height(i) > height(best)) best = i;
      if (!text || height(best) < 18) continue;
      const across = points[best + 2] - points[best];
      const down = points[best + 3] - points[best + 1];
      const isFlat = Math.abs(across) > Math.abs(down);
      // to the right of its middle, a flat S has room on one side
      const foot = isFlat ? (across * down > 0 ? -3 : size + 1) : 3;
      const x = points[best] + across / 2 + 5;
      const y = points[best + 1] + down / 2 + foot;
      const right = x + 0.6 * size * text.length;
      if (taken.some(([a, b, foot]) => Math.abs(foot - y) < size && a < right && x < b)) continue;
      taken.push([x, right, y]);
      this.p.text(text, x, y, size, muted, { halo });
    }
  }

  /** The gradient on its way up an edge. @param {Float64Array} points @param {number} k */
  #traveller(points, k) {
    const last = points.length / 2 - 1;
    const place = last * (1 - this.look.travel);
    const i = 2 * Math.min(Math.floor(place), last - 1);
    const part = place - i / 2;
    const d = Math.max(3, 5 * k);
    const x = points[i] + (points[i + 2] - points[i]) * part;
    const y = points[i + 1] + (points[i + 3] - points[i + 1]) * part;
    const { bg, "accent-2": color } = this.look.colors;
    this.p.rect(x - d, y - d, 2 * d, 2 * d, d, color, bg, 1.5);
  }

  /**
   * Arrow heads where edges end at a box.
   * @param {number} g
   * @param {[number, Float64Array][]} edges
   * @param {number} k
   * @param {EdgeKind} kind
   */
  #heads(g, edges, k, kind) {
    const { p } = this;
    const { above, below, children } = this.model.shape(g);
    const d = (kind === "lit" ? 4 : 3.2) * Math.min(k, 1.4);
    const turned = kind === "lit" && this.look.backward;
    p.begin();
    for (const [e, points] of edges) {
      const end = turned ? above[e] : below[e];
      if (end >= children || this.layout.isSheet(this.model.item(g, end))) continue;
      const [tip, tail] = turned ? [0, points.length - 2] : [points.length - 2, 0];
      const x = points[tip];
      const y = points[tip + 1];
      const foot = y + (points[tail + 1] > y ? 2 * d : -2 * d);
      p.move(x, y);
      p.line(x - d, foot);
      p.line(x + d, foot);
      p.line(x, y);
    }
    const {
      accent,
      line,
      "soft-line": soft,
      "added-line": added,
      "removed-line": removed
    } = this.look.colors;
    p.fill({ lit: accent, plain: line, added, removed, faded: soft, leaf: soft, cut: soft }[kind]);
  }
}
