/**
 * Draws what is visible, on whichever painter. The tree of groups is the spatial index: what lies outside the window, or is too small
 * to read, is not entered. Knows places and looks; what the colours mean is decided elsewhere.
 */
import { COPY, DATA, LEAF, OP, OUTPUT } from "./model.js";
import { fitted, textWidth } from "./painter.js";

/** @typedef {import("./painter.js").Painter} Painter */
/** @typedef {import("./sheet.js").Layout} Layout */
/** @typedef {import("./sheet.js").Rect} Rect */
/** @typedef {import("./colors.js").Colors} Colors */

/** What is lit while the rest fades. @typedef {{item: (item: number) => boolean, edges: (g: number) => Uint8Array | null}} Lit */

/**
 * @typedef {object} Look
 * @property {Colors} colors
 * @property {(item: number) => string} kind the name of the colour of its kind
 * @property {(item: number) => string} fill "" for the colour of the kind
 * @property {(item: number) => string} line what to say in place of the second line, "" for nothing
 * @property {Lit | null} lit
 * @property {number | null} selected
 * @property {number | null} other
 * @property {number | null} hover
 * @property {(item: number) => number[]} marks numbers of findings
 * @property {(item: number) => string} badge a short text in the lower right corner, such as "✓ .grad"
 * @property {((item: number) => boolean) | null} absent what another version has
 * @property {(g: number, lit: boolean) => ((edge: number) => string) | null} edgeText what stands on edges of a sheet
 * @property {number} travel how far gradients are on lit edges, from 0 to 1
 * @property {boolean} backward whether lit edges are on the way of gradients, from below to above
 * @property {(g: number) => Uint8Array | null} edgeKinds 1 for added, 2 for removed
 * @property {(item: number) => boolean} cut whether no gradient passes
 * @property {(g: number, edge: number) => boolean} cutEdge the same for an edge of a sheet
 */

/** @typedef {{x: number, y: number, k: number}} Camera a point p of the page is drawn at p * k + (x, y) */

const SMALLEST = 5,
  PLAIN = 7; // px, sizes of letters: the least; below the other a box has its title alone, as large as it takes
const DASHES = [4, 3];
const FADED = 0.33;
const HIDDEN = 3; // a port of what is not shown

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
    /** @type {{x: number, y: number, text: string}[]} */
    this.labels = [];
  }

  /** @param {Camera} camera */
  draw(camera) {
    this.#sheet(0, camera.x, camera.y, camera.k, 0, false);
    this.p.alpha(1);
    for (const label of this.quiet ? [] : this.labels) {
      this.p.text(label.text, label.x, label.y, 10, this.look.colors.text, {
        strong: true,
        halo: this.look.colors.halo,
      });
    }
    return this.drawn;
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h */
  #outside(x, y, w, h) {
    const window = this.window;
    return (
      x > window.x + window.w || y > window.y + window.h || x + w < window.x || y + h < window.y
    );
  }

  /** @param {number} g @param {number} ox @param {number} oy @param {number} k @param {number} depth @param {boolean} labelled */
  #sheet(g, ox, oy, k, depth, labelled) {
    const model = this.model,
      sheet = this.layout.sheet(g),
      n = model.shape(g).children,
      box = sheet.box;
    if (k * 34 >= 2) this.#edges(g, ox, oy, k);
    for (let i = 0; i < n; i++) {
      const x = ox + box[4 * i] * k,
        y = oy + box[4 * i + 1] * k,
        w = box[4 * i + 2] * k,
        h = box[4 * i + 3] * k;
      if (this.#outside(x - 8, y - 8, w + 16, h + 16)) continue;
      const item = model.item(g, i);
      if ((item >= 0 && h < 0.8) || this.look.absent?.(item)) continue;
      this.drawn++;
      if (item < 0 && this.layout.isOpen(~item))
        this.#open(item, { x, y, w, h }, k, depth, labelled);
      else this.#closed(item, { x, y, w, h }, k);
    }
  }

  /** @param {number} item */
  #fades(item) {
    return this.look.lit !== null && !this.look.lit.item(item);
  }

  /** @param {number} item @param {Rect} r @param {number} k @param {number} depth @param {boolean} labelled */
  #open(item, r, k, depth, labelled) {
    const g = ~item,
      p = this.p,
      { colors } = this.look;
    const tint = this.look.fill(item),
      ground = depth % 2 ? colors["sheet-2"] : colors.sheet;
    p.alpha(1);
    p.rect(
      r.x,
      r.y,
      r.w,
      r.h,
      Math.min(8 * k, 8),
      ground,
      this.#fades(item) ? colors["soft-line"] : colors.border,
      1,
    );
    if (tint && r.w > 12 && r.h > 12)
      p.rect(r.x, r.y, Math.max(3, 4 * k), r.h, Math.min(4 * k, 3), tint, "", 0);
    this.#outline(item, r, 8 * k);
    if (r.w < 8 || r.h < 10) return;
    const place = this.layout.inside(g, { x: 0, y: 0, w: r.w / k, h: r.h / k });
    const inner = k * place.scale,
      ox = r.x + place.x * k,
      oy = r.y + place.y * k;
    const letters = 11 * k < PLAIN ? Math.min(PLAIN / 11, 1.5 * k) : k,
      readable = 11 * letters >= SMALLEST && !this.quiet;
    const alone = !readable && !labelled && r.w > 70 && r.h > 18 && r.h < this.window.h * 0.7;
    if (r.h >= 10) {
      this.#ports(g, r, ox, oy, inner);
      this.#sheet(g, ox, oy, inner, depth + 1, labelled || alone);
    }
    p.alpha(this.#fades(item) ? 0.5 : 1);
    if (readable) this.#title(item, r, letters, Math.min(17 * letters, 21 * k), ground);
    else if (alone)
      this.labels.push({
        x: r.x + 4,
        y: r.y + 11,
        text: fitted(this.model.title(item), 10, r.w - 8),
      });
    this.#marks(item, r, k);
  }

  /** @param {number} item @param {Rect} r @param {number} k of the letters @param {number} down to their foot @param {string} halo */
  #title(item, r, k, down, halo) {
    const { colors } = this.look,
      model = this.model,
      size = 11 * k,
      title = model.title(item),
      type = model.type(item);
    const y = r.y + down;
    this.#chevron(r.x + 12 * k, y - 4 * k, k, true);
    const room = r.w - 30 * k,
      shown = fitted(title, size * 1.04, room);
    this.p.text(shown, r.x + 22 * k, y, size, colors.text, { strong: true, halo });
    const used = textWidth(shown, true) * size;
    const free = this.model.shape(~item).into ? r.w / 2 - 24 * k : room; // edges enter in the middle
    if (type && used + (textWidth(type) + 1) * size < free)
      this.p.text(type, r.x + 22 * k + used + size, y, size, colors.muted, { halo });
  }

  /** @param {number} x @param {number} y @param {number} k @param {boolean} open */
  #chevron(x, y, k, open) {
    const p = this.p,
      d = 3.4 * k;
    p.begin();
    if (open) {
      p.move(x - d, y - d / 2);
      p.line(x, y + d / 2);
      p.line(x + d, y - d / 2);
    } else {
      p.move(x - d / 2, y - d);
      p.line(x + d / 2, y);
      p.line(x - d / 2, y + d);
    }
    p.stroke(this.look.colors.muted, Math.max(1, 1.4 * k));
  }

  /** @param {number} item @param {Rect} r @param {number} k */
  #closed(item, r, k) {
    const p = this.p,
      { colors } = this.look,
      model = this.model,
      isGroup = item < 0;
    const kind = this.look.kind(item),
      isRound = !isGroup && [LEAF, COPY, OUTPUT].includes(model.kind[item]);
    p.alpha(this.#fades(item) ? FADED : 1);
    const round = isGroup ? 8 * k : isRound ? r.h / 2 : 5 * k;
    const cut = this.look.cut(item),
      tint = cut ? colors.sheet : this.look.fill(item),
      fill = tint || colors[kind],
      second = tint ? colors.text : colors[`${kind}-dim`]; // on a tint, dim text has too little contrast
    if (isGroup && r.w > 14 && r.h > 10) {
      // a second sheet behind it: there is more inside
      p.rect(r.x + 3 * k, r.y + 3 * k, r.w, r.h, round, colors[kind], colors[`${kind}-line`], 1);
    }
    p.rect(
      r.x,
      r.y,
      r.w,
      r.h,
      round,
      fill,
      cut ? colors.muted : colors[`${kind}-line`],
      1,
      cut ? DASHES : undefined,
    );
    if (11 * k >= PLAIN) {
      const title = fitted(model.title(item), 11, r.w / k - (isGroup ? 28 : 6)),
        line = this.look.line(item) || model.line(item),
        type = model.type(item),
        size = 11 * k;
      const middle = r.x + r.w / 2 + (isGroup ? 7 * k : 0);
      const y = r.y + (isGroup ? 16.5 : line ? 14.5 : 21) * k;
      if (type) {
        const a = textWidth(title, true) * size,
          b = textWidth(type) * size,
          x = middle - (a + size + b) / 2;
        p.text(title, x, y, size, colors.text, { strong: true });
        p.text(type, x + a + size, y, size, second);
      } else p.text(title, middle, y, size, colors.text, { strong: true, middle: true });
      if (line)
        p.text(
          line,
          middle,
          r.y + (isGroup ? 30.5 : 27.5) * k,
          Math.min(10 * k, (r.w - (isGroup ? 36 : 12) * k) / textWidth(line)),
          second,
          { middle: true },
        );
      if (isGroup) this.#chevron(r.x + 13 * k, r.y + r.h / 2, k, false);
    } else if (r.h * 0.62 >= SMALLEST && !this.quiet) {
      const title = model.title(item),
        size = Math.min(9, r.h * 0.62, Math.max(SMALLEST + 1, (r.w - 4) / textWidth(title, true)));
      p.text(
        fitted(title, size, r.w - 4),
        r.x + r.w / 2,
        r.y + r.h / 2 + size * 0.36,
        size,
        colors.text,
        { strong: true, middle: true },
      );
    }
    const badge = this.look.badge(item);
    if (badge && 9 * k >= SMALLEST) {
      p.alpha(1);
      p.text(
        badge,
        r.x + r.w - 4 * k - textWidth(badge) * 9 * k,
        r.y + r.h + 10 * k,
        9 * k,
        colors.accent,
        { strong: true, halo: colors.halo },
      );
    }
    this.#outline(item, r, round);
    this.#marks(item, r, k);
  }

  /** @param {number} item @param {Rect} r @param {number} round */
  #outline(item, r, round) {
    const { selected, other, hover, colors } = this.look;
    if (item !== selected && item !== other && item !== hover) return;
    this.p.alpha(1);
    const color = item === other ? colors["accent-2"] : colors.accent;
    const width = item === hover && item !== selected && item !== other ? 1.5 : 2.5,
      d = 1.5;
    this.p.rect(r.x - d, r.y - d, r.w + 2 * d, r.h + 2 * d, round + d, "", color, width);
  }

  /** @param {number} item @param {Rect} r @param {number} k */
  #marks(item, r, k) {
    const numbers = this.look.marks(item);
    if (!numbers.length || r.w < 14) return;
    const p = this.p,
      size = Math.max(9, Math.min(11 * k, 13)),
      text = numbers.length > 2 ? `${numbers[0]}…` : numbers.join(",");
    const w = Math.max(size * 1.6, textWidth(text, true) * size + 8),
      x = r.x + r.w - w / 2,
      y = r.y - size * 0.8;
    p.alpha(1);
    p.rect(x, y, w, size * 1.6, size * 0.8, this.look.colors.warn, this.look.colors.bg, 1.5);
    p.text(text, x + w / 2, y + size * 1.16, size, this.look.colors.bg, {
      strong: true,
      middle: true,
    });
  }

  /** Lines through the title of an open group, from where edges meet its border to its ports. @param {number} g @param {Rect} r @param {number} ox @param {number} oy @param {number} k */
  #ports(g, r, ox, oy, k) {
    const model = this.model,
      shape = model.shape(g),
      sheet = this.layout.sheet(g),
      n = shape.children;
    if (!shape.into && !shape.out) return;
    const lit = this.look.lit ? this.look.lit.edges(g) : null;
    const on = Uint8Array.from({ length: shape.into + shape.out }, (_, i) =>
      this.#isHidden(g, n + i) ? HIDDEN : Number(this.#isLeaf(g, n + i)),
    );
    for (let e = 0; e < shape.above.length; e++)
      if (lit ? lit[e] : this.look.cutEdge(g, e)) {
        if (shape.above[e] >= n && on[shape.above[e] - n] !== HIDDEN) on[shape.above[e] - n] = 2;
        if (shape.below[e] >= n) on[shape.below[e] - n] = 2;
      }
    for (const wanted of [1, 0, 2].filter((one) => on.includes(one))) {
      this.p.begin();
      for (let i = 0; i < on.length; i++) {
        if (on[i] !== wanted) continue;
        const x = ox + sheet.fx(shape.x[n + i]) * k,
          y = oy + sheet.fy(shape.y[n + i]) * k;
        const middle = r.x + r.w / 2,
          below = r.y + 19 * k;
        if (i < shape.into) {
          this.p.move(middle, r.y);
          this.p.line(middle, below);
          this.#piece(middle, below, x, y);
        } else this.#piece(x, y, middle, r.y + r.h);
      }
      this.#stroke(
        wanted === 2 ? (lit ? "lit" : "cut") : this.look.lit ? "faded" : wanted ? "leaf" : "plain",
        k,
      );
    }
  }

  /** @param {number} g @param {number} above a local number */
  #isHidden(g, above) {
    const cell = this.model.source(g, above);
    return cell >= 0 && this.look.absent !== null && this.look.absent(cell);
  }

  /** Whether an edge of a sheet begins at a leaf, in it or outside: it looks the same on both sides of a border. @param {number} g @param {number} above a local number */
  #isLeaf(g, above) {
    const { model } = this,
      cell = model.source(g, above);
    return cell >= 0 && (model.kind[cell] === LEAF || model.kind[cell] === COPY);
  }

  /** @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 */
  #piece(x0, y0, x1, y1) {
    this.p.move(x0, y0);
    const middle = (y0 + y1) / 2;
    this.p.curve(x0, middle, x1, middle, x1, y1);
  }

  /** @param {"plain" | "leaf" | "lit" | "faded" | "added" | "removed" | "cut"} how @param {number} k */
  #stroke(how, k) {
    const { colors } = this.look,
      width = Math.max(0.6, Math.min(1.3, 1.3 * k));
    this.p.alpha(how === "faded" ? 0.35 : 1);
    if (how === "lit") this.p.stroke(colors.accent, Math.max(1.4, Math.min(2.4, 2.2 * k)));
    else if (how === "added" || how === "removed")
      this.p.stroke(
        colors[`${how}-line`] || colors[how],
        Math.max(1.6, 2.4 * k),
        how === "removed" ? [6, 4] : undefined,
      );
    else if (how === "cut") this.p.stroke(colors.line, width, DASHES);
    else this.p.stroke(how === "plain" ? colors.line : colors["soft-line"], width);
  }

  /** @param {number} g @param {number} ox @param {number} oy @param {number} k */
  #edges(g, ox, oy, k) {
    const model = this.model,
      shape = model.shape(g),
      { start, xy: lines } = this.layout.lines(g),
      n = shape.children,
      count = shape.above.length;
    const lit = this.look.lit ? this.look.lit.edges(g) : null,
      kinds = this.look.edgeKinds(g);
    const fine = k > 0.22,
      seen = [];
    /** @type {Record<string, number[]>} */
    const batches = { faded: [], leaf: [], cut: [], plain: [], removed: [], added: [], lit: [] };
    for (let e = 0; e < count; e++) {
      const a = 2 * start[e],
        b = 2 * start[e + 1] - 2;
      if (b < a) continue;
      const top = oy + Math.min(lines[a + 1], lines[b + 1]) * k,
        bottom = oy + Math.max(lines[a + 1], lines[b + 1]) * k;
      if (top > this.window.y + this.window.h || bottom < this.window.y) continue;
      let left = lines[a],
        right = lines[a];
      for (let i = a + 2; i <= b; i += 2) {
        if (lines[i] < left) left = lines[i];
        if (lines[i] > right) right = lines[i];
      }
      if (ox + left * k > this.window.x + this.window.w || ox + right * k < this.window.x) continue;
      const source = model.source(g, shape.above[e]),
        above = shape.above[e] < n ? model.item(g, shape.above[e]) : source < 0 ? ~0 : source,
        below = shape.below[e] < n ? model.item(g, shape.below[e]) : ~0;
      if (
        this.look.absent &&
        ((above !== ~0 && this.look.absent(above)) || (below !== ~0 && this.look.absent(below)))
      )
        continue;
      const how =
        lit && lit[e]
          ? "lit"
          : kinds && kinds[e]
            ? kinds[e] === 1
              ? "added"
              : "removed"
            : this.look.lit
              ? "faded"
              : this.look.cutEdge(g, e)
                ? "cut"
                : this.#isLeaf(g, shape.above[e])
                  ? "leaf"
                  : "plain";
      batches[how].push(e);
      seen.push(e);
    }
    this.drawn += seen.length;
    for (const [how, edges] of Object.entries(batches)) {
      if (!edges.length) continue;
      this.p.begin();
      for (const e of edges)
        this.#route(lines, 2 * start[e], 2 * start[e + 1] - 2, ox, oy, k, fine);
      this.#stroke(/** @type {"plain"} */ (how), k);
      if (k > 0.3) this.#heads(g, edges, { start, xy: lines }, ox, oy, k, how);
      const words = k > 0.7 && !this.quiet ? this.look.edgeText(g, how === "lit") : null;
      /** @type {[number, number, number][]} */
      const taken = [];
      if (words)
        for (const e of edges)
          this.#edgeText(lines, 2 * start[e], 2 * start[e + 1] - 2, ox, oy, k, words(e), taken);
      if (how === "lit" && this.look.travel < 1)
        for (const e of edges) this.#traveller(lines, start[e], start[e + 1] - 1, ox, oy, k);
    }
  }

  /** @param {Float64Array} lines @param {number} a @param {number} b @param {number} ox @param {number} oy @param {number} k @param {boolean} fine */
  #route(lines, a, b, ox, oy, k, fine) {
    const p = this.p;
    let x = ox + lines[a] * k,
      y = oy + lines[a + 1] * k;
    p.move(x, y);
    for (let i = a + 2; i <= b; i += 2) {
      const nx = ox + lines[i] * k,
        ny = oy + lines[i + 1] * k;
      if (!fine || Math.abs(nx - x) < 0.5) p.line(nx, ny);
      else p.curve(x, (y + ny) / 2, nx, (y + ny) / 2, nx, ny);
      x = nx;
      y = ny;
    }
  }

  /** What stands on an edge, in the middle of its longest piece, where no other text of the sheet does. @param {Float64Array} lines @param {number} a @param {number} b @param {number} ox @param {number} oy @param {number} k @param {string} text @param {[number, number, number][]} taken left, right and baseline of texts */
  #edgeText(lines, a, b, ox, oy, k, text, taken) {
    let best = a,
      longest = 0;
    for (let i = a; i < b; i += 2) {
      const length = Math.abs(lines[i + 3] - lines[i + 1]);
      if (length > longest) [longest, best] = [length, i];
    }
    if (!text || longest * k < 18) return;
    const x = ox + ((lines[best] + lines[best + 2]) / 2) * k + 5,
      y = oy + ((lines[best + 1] + lines[best + 3]) / 2) * k + 3;
    const size = 9 * Math.min(k, 1.3),
      right = x + 0.6 * size * text.length;
    if (taken.some(([from, to, line]) => Math.abs(line - y) < size && from < right && x < to))
      return;
    taken.push([x, right, y]);
    this.p.alpha(1);
    this.p.text(text, x, y, size, this.look.colors.muted, { halo: this.look.colors.halo });
  }

  /** The gradient on its way up an edge. @param {Float64Array} lines @param {number} first @param {number} last @param {number} ox @param {number} oy @param {number} k */
  #traveller(lines, first, last, ox, oy, k) {
    const at = last - (last - first) * this.look.travel,
      i = Math.min(Math.floor(at), last - 1),
      part = at - i,
      d = Math.max(3, 5 * k);
    const x = ox + (lines[2 * i] + (lines[2 * i + 2] - lines[2 * i]) * part) * k,
      y = oy + (lines[2 * i + 1] + (lines[2 * i + 3] - lines[2 * i + 1]) * part) * k;
    this.p.rect(
      x - d,
      y - d,
      2 * d,
      2 * d,
      d,
      this.look.colors["accent-2"],
      this.look.colors.bg,
      1.5,
    );
  }

  /** Arrow heads where edges end at a box. @param {number} g @param {number[]} edges @param {import("./sheet.js").Lines} lines @param {number} ox @param {number} oy @param {number} k @param {string} how */
  #heads(g, edges, { start, xy: lines }, ox, oy, k, how) {
    const shape = this.model.shape(g),
      p = this.p,
      d = (how === "lit" ? 4 : 3.2) * Math.min(k, 1.4),
      { colors } = this.look;
    p.begin();
    const turned = how === "lit" && this.look.backward;
    for (const e of edges) {
      const at = turned ? shape.above[e] : shape.below[e];
      if (at >= shape.children) continue;
      const item = this.model.item(g, at);
      if (item < 0 && this.layout.isOpen(~item)) continue;
      const first = 2 * start[e],
        last = 2 * start[e + 1] - 2,
        b = turned ? first : last,
        x = ox + lines[b] * k,
        y = oy + lines[b + 1] * k;
      const tail = lines[first + last - b + 1] > lines[b + 1] ? 2 * d : -2 * d;
      p.move(x, y);
      p.line(x - d, y + tail);
      p.line(x + d, y + tail);
      p.line(x, y);
    }
    const color = {
      lit: colors.accent,
      plain: colors.line,
      added: colors["added-line"],
      removed: colors["removed-line"],
    }[how];
    p.fill(color || colors["soft-line"]);
  }
}

/** What a cell is, in words. @param {number} kind */
export function kindWord(kind) {
  if (kind === DATA) return "input without gradient";
  return kind === OP ? "backward function" : kind === OUTPUT ? "output" : "leaf";
}
