/**
 * The state of the page and everything that changes it: what is open, selected, coloured, which step runs, and the camera. Parts of
 * the page listen for what changed; none calls another.
 */
import { DATA, OP } from "./model.js";
import { Layout, TITLE } from "./sheet.js";
import { textWidth } from "./painter.js";
import { Trace, litEdges } from "./trace.js";
import { firstSteps, overlay } from "./overlay.js";
import { readColors } from "./colors.js";
import { say } from "./dom.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {import("./draw.js").Camera} Camera */
/** @typedef {"open" | "select" | "facts" | "overlay" | "step" | "view" | "camera" | "theme" | "lit" | "travel"} Change */

const SHORT = 150; // ms
const LEGIBLE = 0.9,
  LARGE = 1.6; // letters of 10 px, and 18 px

export class App {
  /** @param {Model} model @param {HTMLElement} stage */
  constructor(model, stage) {
    this.model = model;
    this.layout = new Layout(model);
    this.stage = stage;
    /** @type {Camera} */
    this.camera = { x: 0, y: 0, k: 1 };
    /** @type {Facts | null} */
    this.facts = null;
    /** @type {number | null} */
    this.selected = null;
    /** @type {number | null} */
    this.other = null;
    /** A line of code, in place of a box. @type {import("./code.js").Line | null} */
    this.line = null;
    /** Whether the next box is the other end of paths. */
    this.picking = false;
    /** Of a difference: 0 shows both versions, 1 the first, 2 the second. */
    this.version = 0;
    /** Whether inputs without gradient are shown. */
    this.inputs = true;
    /** Whether shapes stand on all edges. */
    this.shapes = false;
    /** What ops are titled by: "variable", "forward" or "backward". */
    this.names = "variable";
    /** Lines of the user's code that made nodes, by "file:line". @type {Map<string, import("./code.js").Line>} */
    this.lines = new Map();
    /** @type {number | null} */
    this.hover = null;
    this.overlayId = "kind";
    /** @type {import("./overlay.js").Overlay} */
    this.overlay = { fill: () => "", legend: [] };
    this.step = -1;
    this.stepFirst = -1;
    /** How far the gradients of this step are on their way, from 0 to 1. */
    this.travel = 1;
    /** @type {Trace | null} */
    this.trace = null;
    /** What a line made. @type {import("./draw.js").Lit | null} */
    this.made = null;
    this.colors = readColors();
    /** @type {Map<Change, (() => void)[]>} */
    this.listeners = new Map();
    this.width = 0;
    this.height = 0;
    /** Room that the panel covers: at the right, or below on a narrow screen. */
    this.covered = this.coveredBelow = 0;
    this.pending = 0;
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.firstView(true);
  }

  /** @param {Change} change @param {() => void} listener */
  on(change, listener) {
    const here = this.listeners.get(change);
    if (here) here.push(listener);
    else this.listeners.set(change, [listener]);
  }

  /** @param {...Change} changes */
  changed(...changes) {
    for (const change of changes)
      for (const listener of this.listeners.get(change) || []) listener();
  }

  // -- what is open ---------------------------------------------------------------------------------------------------

  /** @param {boolean} [quiet] */
  firstView(quiet = false) {
    for (let g = 0; g < this.model.groups; g++) this.layout.open[g] = this.model.firstOpen[g];
    this.layout.open[0] = 1;
    this.layout.forgetAll();
    if (!quiet) this.#afterAll("as the page opened");
  }

  openAll() {
    this.layout.open.fill(1);
    this.layout.forgetAll();
    this.#afterAll("everything is open");
  }

  closeAll() {
    this.layout.open.fill(0);
    this.layout.open[0] = 1;
    this.layout.forgetAll();
    this.#afterAll("everything is closed");
  }

  /** @param {string} words */
  #afterAll(words) {
    say(words);
    this.changed("open");
    this.fit();
  }

  /** Show or hide ops that only change a shape: open or close every group of an op with such. @param {boolean} shown */
  showViews(shown) {
    for (const g of this.model.withViews()) this.layout.open[g] = shown ? 1 : 0;
    this.layout.forgetAll();
    say(
      shown ? "ops that only change a shape are shown" : "ops that only change a shape are hidden",
    );
    this.changed("open", "camera");
  }

  /** What of two versions is shown, what ops are titled by, and whether inputs and shapes on edges are shown. @param {{version?: number, names?: string, inputs?: boolean, shapes?: boolean}} view */
  setView({
    version = this.version,
    names = this.names,
    inputs = this.inputs,
    shapes = this.shapes,
  }) {
    if (names !== this.names) this.#rename(names);
    Object.assign(this, { version, names, inputs, shapes });
    this.changed("view", "lit");
  }

  /** Title ops by variable, by forward op, or by backward function. @param {string} names */
  #rename(names) {
    const { facts, model } = this,
      column = { forward: "forward", backward: "op" }[names];
    model.rename = null;
    const alike = new Map(model.withViews().map((g) => [~g, model.alike(~g)])); // by their own titles
    if (facts && column) {
      model.rename = (item) => {
        const cell = item >= 0 ? item : (alike.get(item) ?? -1);
        return cell >= 0 && model.kind[cell] === OP ? facts.word(column, model.record[cell]) : "";
      };
    }
    this.changed("select", "open");
  }

  /** Open or close a group where it stands: its title stays where it is on the screen. @param {number} g @param {boolean} [open] */
  toggle(g, open = !this.layout.isOpen(g)) {
    this.finish();
    if (g === 0 || this.layout.isOpen(g) === open) return;
    const shown = this.layout.isShown(this.model.parent[g]);
    if (!shown) {
      this.layout.setOpen(g, open);
      this.changed("open");
      return;
    }
    const [ax, ay] = this.#titleOnScreen(g);
    const layout = this.layout;
    say(`${this.model.title(~g)} ${open ? "opened" : "closed"}`);
    layout.setOpen(g, true); // while it moves it counts as open
    const from = open ? 0 : 1;
    const place = (/** @type {number} */ part) => {
      layout.moving = { group: g, part };
      layout.forget(g);
      this.#keep(g, ax, ay);
    };
    const end = () => {
      layout.moving = { group: -1, part: 1 };
      layout.setOpen(g, open);
      layout.forget(g);
      this.#keep(g, ax, ay);
      this.changed("open", "camera");
    };
    this.animate((part) => place(from + (1 - 2 * from) * part), end);
  }

  /** Where the middle of a group's title is. @param {number} g @returns {[number, number]} */
  #titleOnScreen(g) {
    const { x, y, k } = this.camera,
      r = this.layout.rect(~g),
      [dx, dy] = this.#titleIn(g, r.w);
    return [x + (r.x + dx) * k, y + (r.y + dy) * k];
  }

  /** The middle of the title in its box: from the middle of a closed box to the left of an open one. @param {number} g @param {number} w @returns {[number, number]} */
  #titleIn(g, w) {
    const half = (textWidth(this.model.title(~g), true) * 11) / 2,
      part = this.layout.isOpen(g)
        ? this.layout.moving.group === g
          ? this.layout.moving.part
          : 1
        : 0;
    const closed = w / 2 + 7,
      open = Math.min(22 + half, w / 2);
    return [closed + (open - closed) * part, TITLE / 2];
  }

  /** Move the camera so that a group's title is at a point of the screen. @param {number} g @param {number} x @param {number} y */
  #keep(g, x, y) {
    const [nx, ny] = this.#titleOnScreen(g);
    this.camera.x += x - nx;
    this.camera.y += y - ny;
  }

  /** Open everything around an item. @param {number} item @returns {boolean} whether anything was closed */
  uncover(item) {
    let closed = false;
    for (let g = this.model.around(item); g > 0; g = this.model.parent[g]) {
      if (!this.layout.isOpen(g)) {
        this.layout.setOpen(g, true);
        closed = true;
      }
    }
    if (closed) this.changed("open");
    return closed;
  }

  /** Open what hides an item, select it and bring it into view. @param {number} item */
  visit(item) {
    if (this.model.kind[item] === DATA) this.setView({ inputs: true });
    this.uncover(item);
    this.select(item);
    this.bringIntoView(item);
  }

  // -- what is selected -----------------------------------------------------------------------------------------------

  /** Light what a line of code made, and bring the first of it into view. @param {import("./code.js").Line} line */
  choose(line) {
    this.selected = this.other = null;
    this.line = line;
    this.#retrace();
    this.changed("select", "lit");
    const facts = /** @type {Facts} */ (this.facts);
    say(`line ${line.line} made ${line.nodes.length} ops`);
    this.bringIntoView(this.layout.shown(facts.cellOf[this.clearest(line.nodes)]));
  }

  /** Of several nodes the one that shows best: in no closed group, else in the innermost one; of equal ones the first to run. @param {number[]} nodes */
  clearest(nodes) {
    const { layout, model } = this,
      facts = /** @type {Facts} */ (this.facts);
    let best = nodes[0],
      most = -1;
    for (const node of nodes) {
      const shown = layout.shown(facts.cellOf[node]),
        depth = shown >= 0 ? Infinity : model.depth[~shown];
      if (depth > most || (depth === most && facts.cellOf[node] < facts.cellOf[best]))
        [best, most] = [node, depth];
    }
    return best;
  }

  /** @param {number | null} item @param {boolean} [second] as the other end of paths */
  select(item, second = this.picking) {
    this.line = null;
    this.picking = false;
    if (item !== null && item !== ~0)
      say(
        [this.model.title(item), this.model.type(item), this.model.line(item)]
          .filter(Boolean)
          .join(", "),
      );
    if (second && this.selected !== null && item !== this.selected) this.other = item;
    else {
      this.selected = item;
      this.other = null;
    }
    this.#retrace();
    this.changed("select", "lit");
  }

  #retrace() {
    this.trace =
      this.facts && this.selected !== null && this.step < 0
        ? new Trace(this.facts, this.selected, this.other)
        : null;
    this.made =
      this.facts && this.line && this.step < 0 ? alone(this.facts, this.line.nodes) : null;
  }

  /** @param {Facts} facts */
  setFacts(facts) {
    this.facts = facts;
    this.names = facts.head.titles;
    this.#retrace();
    this.setOverlay(this.overlayId);
    this.changed("facts", "lit");
  }

  /** @param {string} id */
  setOverlay(id) {
    this.overlayId = id;
    if (this.facts) this.overlay = overlay(id, this.facts);
    this.changed("overlay");
  }

  /** @param {number} step the last function that runs, from 0; -1 for none @param {number} [first] the first that runs with it */
  setStep(step, first = step) {
    this.step = step;
    this.stepFirst = first;
    this.#retrace();
    this.changed("step", "lit");
  }

  /** What to light: the running function and its edges, else the trace. @returns {import("./draw.js").Lit | null} */
  lit() {
    if (this.step >= 0 && this.facts) return this.#running(this.facts, this.stepFirst, this.step);
    return this.made || this.trace;
  }

  /** @param {Facts} facts @param {number} begin @param {number} step */
  #running(facts, begin, step) {
    const model = this.model,
      nodes = new Set(facts.c.stepNode.subarray(begin, step + 1)),
      cells = [];
    for (const node of nodes) {
      cells.push(facts.cellOf[node]);
      for (const edge of facts.gradientEdges(node)) cells.push(facts.madeCell(edge));
    }
    const inside = within(model, cells);
    const known = new Map(),
      first = firstSteps(facts);
    return {
      item: (/** @type {number} */ item) => first(item) <= step || inside(item), // what has run stays lit
      edges: (/** @type {number} */ g) => {
        if (!known.has(g))
          known.set(
            g,
            inside(~g)
              ? litEdges(facts, g, (edge) => edge < facts.gradients && nodes.has(facts.used[edge]))
              : null,
          );
        return known.get(g);
      },
    };
  }

  // -- the camera -----------------------------------------------------------------------------------------------------

  /** @param {number} width @param {number} height */
  resize(width, height) {
    const hidden = !this.height; // as in a frame that a notebook has not opened yet
    if (this.width) this.camera.x += (width - this.width) / 2; // what was in the middle stays there
    this.width = width;
    this.height = height;
    if (hidden && height) this.fit(false, true);
    this.changed("camera");
  }

  /** The camera that shows a rectangle of the page whole, small ones larger than life. @param {{x: number, y: number, w: number, h: number}} r @param {number} [largest] @returns {Camera} */
  cameraFor(r, largest = LARGE) {
    const width = Math.max(this.width - this.covered, 80),
      margin = Math.min(32, width / 12),
      left = width > 500 ? 54 : margin; // left of it are buttons
    const k = Math.min(
      (width - margin - left) / Math.max(r.w, 1),
      (this.height - 2 * margin) / Math.max(r.h, 1),
      largest,
    );
    return {
      k,
      x: left + (width - margin - left - r.w * k) / 2 - r.x * k,
      y: Math.max((this.height - r.h * k) / 2, margin) - r.y * k,
    };
  }

  /** Everything; where that would be too small to read, its top at a size that can be read. @param {boolean} [whole] however small @param {boolean} [at_once] */
  fit(whole = false, at_once = false) {
    const r = this.layout.rect(~0),
      camera = this.cameraFor(r);
    if (!whole && camera.k < LEGIBLE) {
      const width = Math.max(this.width - this.covered, 80);
      const left = width > 500 ? 54 : 10,
        room = width - left - 14;
      const k = Math.min(Math.max(room / r.w, LEGIBLE), 1);
      const top = r.w * k <= room + 1 ? r.w / 2 : this.#firstRow();
      const x = left + room / 2 - top * k;
      this.fly(
        { k, x: r.w * k > room ? Math.min(left, Math.max(left + room - r.w * k, x)) : x, y: 28 },
        at_once,
      );
    } else this.fly(camera, at_once);
  }

  /** The middle of what stands first, so that a wide page begins where there is something. */
  #firstRow() {
    const sheet = this.layout.sheet(0),
      n = this.model.shape(0).children;
    let best = Infinity,
      x = sheet.w / 2;
    for (let i = 0; i < n; i++)
      if (sheet.box[4 * i + 1] < best) {
        best = sheet.box[4 * i + 1];
        x = sheet.box[4 * i] + sheet.box[4 * i + 2] / 2;
      }
    return x;
  }

  /** Move where the panel would cover a box. @param {number} item */
  clear(item) {
    const r = this.layout.rect(item),
      { x, y, k } = this.camera,
      left = x + r.x * k,
      top = y + r.y * k;
    const across = this.covered ? left + r.w * k - (this.width - this.covered - 20) : 0,
      down = this.coveredBelow ? top + r.h * k - (this.height - this.coveredBelow - 20) : 0;
    if (across > 0 || down > 0)
      this.fly({
        k,
        x: x - Math.min(Math.max(0, across), Math.max(0, left - 20)),
        y: y - Math.min(Math.max(0, down), Math.max(0, top - 20)),
      });
  }

  /** @param {number} item */
  bringIntoView(item) {
    const r = this.layout.rect(item),
      { x, y, k } = this.camera,
      width = this.width - this.covered,
      height = this.height - this.coveredBelow;
    const left = x + r.x * k,
      top = y + r.y * k,
      w = r.w * k,
      h = r.h * k;
    const size = k < 0.5 || k > 2 ? Math.min(1, Math.max(0.5, this.cameraFor(r).k)) : k;
    if (size === k && left > 20 && top > 20 && left + w < width - 20 && top + h < height - 20)
      return this.changed("camera");
    const tall = r.h * size > height - 60;
    this.fly({
      k: size,
      x: width / 2 - (r.x + r.w / 2) * size,
      y: tall ? 40 - r.y * size : height / 2 - (r.y + r.h / 2) * size,
    });
  }

  /** Zoom about a point of the screen. @param {number} factor @param {number} [px] @param {number} [py] */
  zoom(factor, px = (this.width - this.covered) / 2, py = this.height / 2) {
    const c = this.camera,
      k = Math.min(8, Math.max(0.001, c.k * factor));
    c.x = px - ((px - c.x) * k) / c.k;
    c.y = py - ((py - c.y) * k) / c.k;
    c.k = k;
    this.changed("camera");
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.camera.x += dx;
    this.camera.y += dy;
    this.changed("camera");
  }

  /** @param {Camera} to @param {boolean} [at_once] @param {number} [ms] */
  fly(to, at_once = false, ms = SHORT) {
    const from = { ...this.camera };
    if (at_once) {
      Object.assign(this.camera, to);
      this.changed("camera");
      return;
    }
    this.animate(
      (part) => {
        const k = from.k * (to.k / from.k) ** part; // about a fixed point of the page, so that nothing swings
        const t = Math.abs(to.k - from.k) < 1e-9 ? part : (k - from.k) / (to.k - from.k);
        this.camera.k = k;
        this.camera.x = from.x + (to.x - from.x) * t;
        this.camera.y = from.y + (to.y - from.y) * t;
      },
      () => {
        Object.assign(this.camera, to);
        this.changed("camera");
      },
      ms,
    );
  }

  /** Calls `place` with 0 to 1 over a short time, at once where motion is not wanted. @param {(part: number) => void} place @param {() => void} end @param {number} [ms] */
  animate(place, end, ms = SHORT) {
    this.finish();
    if (this.still || document.hidden) return end();
    const began = performance.now();
    this.last = end;
    const frame = (/** @type {number} */ now) => {
      const part = Math.min(1, Math.max(0, (now - began) / ms));
      if (part >= 1) return this.finish();
      place(1 - (1 - part) ** 3);
      this.changed("camera");
      this.pending = requestAnimationFrame(frame);
    };
    this.pending = requestAnimationFrame(frame);
  }

  /** Ends what is moving. */
  finish() {
    cancelAnimationFrame(this.pending);
    const end = this.last;
    this.last = undefined;
    if (end) end();
  }
}

/** Whether one of the cells is an item, or in it. @param {Model} model @param {number[]} cells @returns {(item: number) => boolean} */
function within(model, cells) {
  const sorted = Int32Array.from(cells).sort();
  return (item) =>
    hasBetween(
      sorted,
      item >= 0 ? item : model.first[~item],
      item >= 0 ? item + 1 : model.end[~item],
    );
}

/** Lights these nodes, the groups around them, and the edges between them. @param {Facts} facts @param {number[]} nodes @returns {import("./draw.js").Lit} */
function alone(facts, nodes) {
  const chosen = new Set(nodes),
    item = within(
      facts.model,
      nodes.map((node) => facts.cellOf[node]),
    ),
    known = new Map();
  return {
    item,
    edges: (/** @type {number} */ g) => {
      if (!known.has(g))
        known.set(
          g,
          item(~g)
            ? litEdges(
                facts,
                g,
                (edge) => chosen.has(facts.made[edge]) && chosen.has(facts.used[edge]),
              )
            : null,
        );
      return known.get(g);
    },
  };
}

/** Whether a sorted list has a number from `first` on, below `end`. @param {Int32Array} sorted @param {number} first @param {number} end */
function hasBetween(sorted, first, end) {
  let low = 0,
    high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < first) low = middle + 1;
    else high = middle;
  }
  return low < sorted.length && sorted[low] < end;
}
