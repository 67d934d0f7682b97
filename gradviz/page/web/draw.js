/**
 * Draws what is visible, on whichever painter. The tree of groups is the spatial index: what lies
 * outside the window, or is too small to read, is not entered. Knows places and looks; what the
 * colours mean is decided elsewhere.
 */
import { clamp } from "./dom.js";
import { COPY, LEAF, OUTPUT } from "./model.js";
import { curveAlong, fitted, textWidth } from "./painter.js";

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
 * @property {(item: number) => string} [fill] "" for the colour of the kind
 * @property {(item: number) => string} line the second line
 * @property {Lit | null} lit
 * @property {number | null} selected
 * @property {number | null} other
 * @property {number | null} hover
 * @property {(item: number) => number[]} [marks] numbers of findings
 * @property {(item: number) => string} [badge] a text below the right corner: "✓ .grad"
 * @property {((item: number) => boolean) | null} [absent] what is not shown
 * @property {(g: number, lit: boolean) => ((edge: number) => string) | null} [edgeText] what stands
 *   on edges of a sheet
 * @property {number} travel how far gradients are on lit edges, from 0 to 1
 * @property {boolean} backward whether lit edges are on the way of gradients, from below to above
 * @property {(g: number) => Uint8Array} [edgeKinds] 1 for added, 2 for removed
 * @property {(item: number) => boolean} [cut] whether no gradient passes
 * @property {(g: number, edge: number) => boolean} [cutEdge] the same for an edge of a sheet
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
const thin = (/** @type {number} */ k) => clamp(1.3 * k, 0.6, 1.3);
const thick = (/** @type {number} */ k) => Math.max(1.6, 2.4 * k);
const medium = (/** @type {number} */ k) => clamp(2.2 * k, 1.4, 2.4);
/** @type {{[kind in EdgeKind]: {color: string, width: (k: number) => number, dash?: number[]}}} */
const EDGE_LOOKS = {
  faded: { color: "soft-line", width: thin },
  leaf: { color: "soft-line", width: thin },
  cut: { color: "line", width: thin, dash: DASHES },
  plain: { color: "line", width: thin },
  removed: { color: "removed-line", width: thick, dash: [6, 4] },
  added: { color: "added-line", width: thick },
  lit: { color: "accent", width: medium }
};
const EDGE_KINDS = /** @type {EdgeKind[]} */ (Object.keys(EDGE_LOOKS));

/**
 * Draws a layout as it looks.
 * @param {Painter} p
 * @param {Layout} layout
 * @param {Look} look
 * @param {Rect} view the window
 * @param {Camera} camera
 * @param {boolean} [quiet] without text
 * @returns {number} how many boxes and edges were drawn
 */
export function draw(p, layout, look, view, camera, quiet = false) {
  const { model } = layout;
  const { colors } = look;
  let count = 0;
  /**
   * Titles of open groups too small for one, drawn over all.
   * @type {{x: number, y: number, text: string}[]}
   */
  const labels = [];
  paintSheet(0, camera, 0, false);
  p.alpha = 1;
  const how = { strong: true, halo: colors.halo };
  for (const { text, x, y } of quiet ? [] : labels) p.text(text, x, y, 10, colors.text, how);
  return count;

  /** Whether a box, with what stands around it, is out of the window. @param {Rect} r */
  function isOutside({ x, y, w, h }) {
    const [right, bottom] = [view.x + view.w, view.y + view.h];
    return x - 8 > right || y - 8 > bottom || x + w + 8 < view.x || y + h + 8 < view.y;
  }

  /**
   * @param {number} g
   * @param {Camera} camera of its corner
   * @param {number} depth
   * @param {boolean} labelled
   */
  function paintSheet(g, camera, depth, labelled) {
    const { k } = camera;
    if (k * 34 >= 2) paintEdges(g, camera);
    layout.boxes(g).forEach((box, i) => {
      const r = {
        x: camera.x + box.x * k,
        y: camera.y + box.y * k,
        w: box.w * k,
        h: box.h * k
      };
      const item = model.item(g, i);
      if (isOutside(r) || (item >= 0 && r.h < 0.8) || look.absent?.(item)) return;
      count++;
      if (layout.isSheet(item)) paintOpen(item, r, k, depth, labelled);
      else paintClosed(item, r, k);
    });
  }

  /** @param {number} item */
  function fades(item) {
    return look.lit !== null && !look.lit.item(item);
  }

  /**
   * @param {number} item
   * @param {Rect} r
   * @param {number} k
   * @param {number} depth
   * @param {boolean} labelled
   */
  function paintOpen(item, r, k, depth, labelled) {
    const tint = look.fill?.(item);
    const ground = depth % 2 ? colors["sheet-2"] : colors.sheet;
    const border = fades(item) ? colors["soft-line"] : colors.border;
    p.alpha = 1;
    p.rect(r.x, r.y, r.w, r.h, Math.min(8 * k, 8), ground, border, 1);
    if (tint && r.w > 12 && r.h > 12)
      p.rect(r.x, r.y, Math.max(3, 4 * k), r.h, Math.min(4 * k, 3), tint, "", 0);
    paintOutline(item, r, 8 * k);
    if (r.w < 8 || r.h < 10) return;
    const inner = layout.inside(~item, { x: 0, y: 0, w: r.w / k, h: r.h / k });
    const camera = { x: r.x + inner.x * k, y: r.y + inner.y * k, k: k * inner.scale };
    const scale = LETTERS * k < PLAIN ? Math.min(PLAIN / LETTERS, 1.5 * k) : k;
    const readable = LETTERS * scale >= SMALLEST && !quiet;
    const alone = !readable && !labelled && r.w > 70 && r.h > 18 && r.h < view.h * 0.7;
    paintSheet(~item, camera, depth + 1, labelled || alone);
    p.alpha = fades(item) ? 0.5 : 1;
    if (readable) paintTitle(item, r, scale, Math.min(17 * scale, 21 * k), ground);
    else if (alone) {
      const text = fitted(model.title(item), 10, r.w - 8);
      labels.push({ x: r.x + 4, y: r.y + LETTERS, text });
    }
    paintMarks(item, r, k);
  }

  /**
   * @param {number} item
   * @param {Rect} r
   * @param {number} k of the letters
   * @param {number} down to their foot
   * @param {string} halo
   */
  function paintTitle(item, r, k, down, halo) {
    const { text, muted } = colors;
    const size = LETTERS * k;
    const type = model.type(item);
    const y = r.y + down;
    paintChevron(r.x + 12 * k, y - 4 * k, k, true);
    const room = r.w - 30 * k;
    const shown = fitted(model.title(item), size * 1.04, room);
    p.text(shown, r.x + 22 * k, y, size, text, { strong: true, halo });
    const used = textWidth(shown, true) * size + size;
    // edges enter in the middle
    const free = model.shape(~item).into ? r.w / 2 - 24 * k : room;
    if (type && used + textWidth(type) * size < free)
      p.text(type, r.x + 22 * k + used, y, size, muted, { halo });
  }

  /** @param {number} x @param {number} y @param {number} k @param {boolean} open */
  function paintChevron(x, y, k, open) {
    const d = 3.4 * k;
    const [across, down] = open ? [d, d / 2] : [d / 2, d];
    const pen = p.begin();
    pen.moveTo(x - across, y - down);
    if (open) pen.lineTo(x, y + down);
    else pen.lineTo(x + across, y);
    pen.lineTo(open ? x + across : x - across, open ? y - down : y + down);
    p.stroke(colors.muted, Math.max(1, 1.4 * k));
  }

  /** @param {number} item @param {Rect} r @param {number} k */
  function paintClosed(item, r, k) {
    const isGroup = item < 0;
    const kind = look.kind(item);
    const line = colors[`${kind}-line`];
    const cut = look.cut?.(item);
    const tint = cut ? colors.sheet : look.fill?.(item);
    p.alpha = fades(item) ? FADED : 1;
    const round = isGroup ? 8 * k : isRound(item) ? r.h / 2 : 5 * k;
    if (isGroup && r.w > 14 && r.h > 10)
      // a second sheet behind it: there is more inside
      p.rect(r.x + 3 * k, r.y + 3 * k, r.w, r.h, round, colors[kind], line, 1);
    const [edge, dashes] = cut ? [colors.muted, DASHES] : [line, undefined];
    p.rect(r.x, r.y, r.w, r.h, round, tint || colors[kind], edge, 1, dashes);
    // on a tint, dim text has too little contrast
    if (LETTERS * k >= PLAIN) paintWords(item, r, k, tint ? colors.text : colors[`${kind}-dim`]);
    else if (r.h * 0.62 >= SMALLEST && !quiet) paintTitleAlone(item, r);
    paintBadge(item, r, k);
    paintOutline(item, r, round);
    paintMarks(item, r, k);
  }

  /** @param {number} item */
  function isRound(item) {
    return item >= 0 && [LEAF, COPY, OUTPUT].includes(model.kind[item]);
  }

  /**
   * Title, class and second line of a closed box.
   * @param {number} item
   * @param {Rect} r
   * @param {number} k
   * @param {string} dim
   */
  function paintWords(item, r, k, dim) {
    const { text } = colors;
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
    if (isGroup) paintChevron(r.x + 13 * k, r.y + r.h / 2, k, false);
  }

  /** @param {number} item @param {Rect} r */
  function paintTitleAlone(item, { x, y, w, h }) {
    const title = model.title(item);
    const widest = Math.max(SMALLEST + 1, (w - 4) / textWidth(title, true));
    const size = Math.min(9, h * 0.62, widest);
    const { text } = colors;
    const how = { strong: true, middle: true };
    p.text(fitted(title, size, w - 4), x + w / 2, y + h / 2 + size * 0.36, size, text, how);
  }

  /** @param {number} item @param {Rect} r @param {number} k */
  function paintBadge(item, r, k) {
    const badge = look.badge?.(item);
    const size = 9 * k;
    if (!badge || size < SMALLEST) return;
    const { accent, halo } = colors;
    const x = r.x + r.w - 4 * k - textWidth(badge) * size;
    p.alpha = 1;
    p.text(badge, x, r.y + r.h + 10 * k, size, accent, { strong: true, halo });
  }

  /** @param {number} item @param {Rect} r @param {number} round */
  function paintOutline(item, r, round) {
    const { selected, other, hover, colors } = look;
    const chosen = item === selected || item === other;
    if (!chosen && item !== hover) return;
    const color = item === other ? colors["accent-2"] : colors.accent;
    const d = 1.5;
    p.alpha = 1;
    p.rect(r.x - d, r.y - d, r.w + 2 * d, r.h + 2 * d, round + d, "", color, chosen ? 2.5 : d);
  }

  /** @param {number} item @param {Rect} r @param {number} k */
  function paintMarks(item, r, k) {
    const numbers = look.marks?.(item) || [];
    if (!numbers.length || r.w < 14) return;
    const { warn, bg } = colors;
    const size = clamp(LETTERS * k, 9, 13);
    const text = numbers.length > 2 ? `${numbers[0]}…` : numbers.join(",");
    const w = Math.max(size * 1.6, textWidth(text, true) * size + 8);
    const x = r.x + r.w;
    const y = r.y - size * 0.8;
    p.alpha = 1;
    p.rect(x - w / 2, y, w, size * 1.6, size * 0.8, warn, bg, 1.5);
    p.text(text, x, y + size * 1.16, size, bg, { strong: true, middle: true });
  }

  // -- edges -------------------------------------------------------------------------------------

  /**
   * How an edge of a sheet is drawn.
   * @param {number} g
   * @param {number} edge
   * @param {Uint8Array | null | undefined} lit
   * @param {Uint8Array | undefined} changes
   * @returns {EdgeKind}
   */
  function kindOfEdge(g, edge, lit, changes) {
    if (lit?.[edge]) return "lit";
    if (changes?.[edge]) return changes[edge] === 1 ? "added" : "removed";
    if (look.lit) return "faded";
    if (look.cutEdge?.(g, edge)) return "cut";
    return isFromLeaf(g, model.shape(g).above[edge]) ? "leaf" : "plain";
  }

  /**
   * Whether an edge of a sheet begins at a leaf, in it or outside: it looks the same on both sides
   * of a border.
   * @param {number} g
   * @param {number} above a local number
   */
  function isFromLeaf(g, above) {
    const cell = model.source(g, above);
    return cell >= 0 && [LEAF, COPY].includes(model.kind[cell]);
  }

  /**
   * Whether what stands at an end of an edge, in the sheet or outside, is not shown.
   * @param {number} g
   * @param {number} end a local number
   */
  function isHidden(g, end) {
    if (!look.absent) return false;
    const inside = end < model.shape(g).children;
    const item = inside ? model.item(g, end) : model.source(g, end);
    return (inside || item >= 0) && look.absent(item);
  }

  /** @param {EdgeKind} kind @param {number} k */
  function strokeEdges(kind, k) {
    const { color, width, dash } = EDGE_LOOKS[kind];
    p.alpha = kind === "faded" ? 0.35 : 1;
    p.stroke(colors[color], width(k), dash);
  }

  /** @param {number} g @param {Camera} camera */
  function paintEdges(g, camera) {
    const { k } = camera;
    const { above, below } = model.shape(g);
    const { start, xy } = layout.lines(g);
    const lit = look.lit?.edges(g);
    const changes = look.edgeKinds?.(g);
    const corner = [camera.x, camera.y];
    /** Each with its points on the screen. @type {[number, Float64Array][]} */
    const every = Array.from(above, (_, e) => {
      const points = xy.subarray(2 * start[e], 2 * start[e + 1]);
      return [e, points.map((place, i) => corner[i % 2] + place * k)];
    });
    const drawn = every.filter(
      ([e, points]) => points.length && !isHidden(g, above[e]) && !isHidden(g, below[e])
    );
    count += drawn.length;
    const kinds = Map.groupBy(drawn, ([e]) => kindOfEdge(g, e, lit, changes));
    for (const kind of EDGE_KINDS) {
      const edges = kinds.get(kind);
      if (!edges) continue;
      const pen = p.begin();
      for (const [, points] of edges) curveAlong(pen, points, k > 0.22);
      strokeEdges(kind, k);
      if (k > 0.3) paintHeads(g, edges, k, kind);
      if (k > 0.7 && !quiet) paintEdgeTexts(g, edges, k, kind);
      if (kind === "lit" && look.travel < 1)
        for (const [, points] of edges) paintTraveller(points, k);
    }
  }

  /**
   * What stands on edges, each in the middle of its longest piece, where no other one does.
   * @param {number} g
   * @param {[number, Float64Array][]} edges
   * @param {number} k
   * @param {EdgeKind} kind
   */
  function paintEdgeTexts(g, edges, k, kind) {
    const words = look.edgeText?.(g, kind === "lit");
    if (!words) return;
    const { above, children } = model.shape(g);
    const { muted, halo } = colors;
    const size = 9 * Math.min(k, 1.3);
    /** Left and right ends, and baselines. @type {[number, number, number][]} */
    const taken = [];
    p.alpha = 1;
    for (const [e, points] of edges) {
      const text = words(e);
      const height = (/** @type {number} */ i) => Math.abs(points[i + 3] - points[i + 1]);
      let best = above[e] < children ? 0 : 4; // not in a title
      for (let i = best; i < points.length - 2; i += 2) if (height(i) > height(best)) best = i;
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
      p.text(text, x, y, size, muted, { halo });
    }
  }

  /** The gradient on its way up an edge. @param {Float64Array} points @param {number} k */
  function paintTraveller(points, k) {
    const last = points.length / 2 - 1;
    const place = last * (1 - look.travel);
    const i = 2 * Math.min(Math.floor(place), last - 1);
    const part = place - i / 2;
    const d = Math.max(3, 5 * k);
    const x = points[i] + (points[i + 2] - points[i]) * part;
    const y = points[i + 1] + (points[i + 3] - points[i + 1]) * part;
    const { bg, "accent-2": color } = colors;
    p.rect(x - d, y - d, 2 * d, 2 * d, d, color, bg, 1.5);
  }

  /**
   * Arrow heads where edges end at a box.
   * @param {number} g
   * @param {[number, Float64Array][]} edges
   * @param {number} k
   * @param {EdgeKind} kind
   */
  function paintHeads(g, edges, k, kind) {
    const { above, below, children } = model.shape(g);
    const d = (kind === "lit" ? 4 : 3.2) * Math.min(k, 1.4);
    const turned = kind === "lit" && look.backward;
    const pen = p.begin();
    for (const [e, points] of edges) {
      const end = turned ? above[e] : below[e];
      if (end >= children || layout.isSheet(model.item(g, end))) continue;
      const [tip, tail] = turned ? [0, points.length - 2] : [points.length - 2, 0];
      const x = points[tip];
      const y = points[tip + 1];
      const foot = y + (points[tail + 1] > y ? 2 * d : -2 * d);
      pen.moveTo(x, y);
      pen.lineTo(x - d, foot);
      pen.lineTo(x + d, foot);
      pen.lineTo(x, y);
    }
    p.fill(colors[EDGE_LOOKS[kind].color]);
  }
}
