/** Plays the backward pass: a slider over the engine's order, with the memory that is left as a curve along it. */
import { byId, count, el, say } from "./dom.js";
import { bytesText } from "./overlay.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./facts.js").Facts} Facts */

/**
 * Memory after each step, as a running sum: saved tensors that are left, gradients on their way, and what `.grad` took.
 * @param {Facts} facts
 * @returns {{saved: Float64Array, total: Float64Array, freed: Float64Array, peak: number}}
 */
export function memory(facts) {
  const { stepFreed, stepWaiting, stepFilled } = facts.c,
    n = stepFreed.length;
  const saved = new Float64Array(n),
    total = new Float64Array(n),
    freed = new Float64Array(n);
  let left = facts.head.heldAtFirst,
    grads = 0,
    gone = 0,
    peak = 0;
  for (let i = 0; i < n; i++) {
    left -= stepFreed[i];
    gone += stepFreed[i];
    grads += stepFilled[i];
    saved[i] = left;
    freed[i] = gone;
    total[i] = left + stepFreed[i] + stepWaiting[i] + grads; // while the function runs, what it saved is still there
    if (total[i] > total[peak]) peak = i;
  }
  return { saved, total, freed, peak };
}

/** What one press of a key plays: functions from `first` to `last`, all in the box `item`. @typedef {{item: number, first: number, last: number}} Stop */

const FRAME = 40,
  TRAVEL = 500; // ms

export class Player {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.bar = byId("player");
    this.slider = /** @type {HTMLInputElement} */ (byId("step"));
    this.curve = /** @type {HTMLCanvasElement} */ (byId("curve"));
    this.seconds = /** @type {HTMLSelectElement} */ (byId("speed"));
    this.into = /** @type {HTMLInputElement} */ (byId("into"));
    this.timer = 0;
    this.moving = 0;
    this.at = 0;
    this.pointed = -1; // the function under the pointer, on the curve
    /** @type {Stop[]} */
    this.stops = [];
    /** @type {number[]} groups that were opened to follow */
    this.opened = [];
    /** @type {ReturnType<typeof memory> | null} */
    this.memory = null;
    byId("play-open").addEventListener("click", () => this.show(this.bar.hidden === true));
    byId("player-close").addEventListener("click", () => this.show(false));
    byId("play").addEventListener("click", () => (this.timer ? this.stop() : this.start()));
    byId("step-back").addEventListener("click", () => this.go(this.at - 1));
    byId("step-on").addEventListener("click", () => this.go(this.at + 1));
    this.slider.addEventListener("input", () => this.reach(Number(this.slider.value)));
    this.into.addEventListener("change", () => this.#again());
    this.curve.addEventListener("pointermove", (event) =>
      this.#point(this.#functionAt(event.offsetX)),
    );
    this.curve.addEventListener("pointerleave", () => this.#point(-1));
    this.curve.addEventListener("pointerdown", (event) =>
      this.reach(this.#functionAt(event.offsetX)),
    );
    app.on("step", () => this.draw());
    app.on("theme", () => this.draw());
    app.on("facts", () => this.#ready());
    app.on("open", () => !this.bar.hidden && !this.into.checked && this.#again());
    new ResizeObserver(() => this.draw()).observe(this.curve);
  }

  #ready() {
    const facts = /** @type {Facts} */ (this.app.facts);
    this.memory = memory(facts);
    /** @type {HTMLButtonElement} */ (byId("play-open")).disabled = facts.c.stepNode.length === 0;
  }

  /** A step is what is visible: all that runs in one closed group is one, unless the player goes into groups. */
  #count() {
    const { app, stops } = this,
      { c, cellOf } = /** @type {Facts} */ (app.facts);
    stops.length = 0;
    for (let i = 0; i < c.stepNode.length; i++) {
      const cell = cellOf[c.stepNode[i]],
        item = this.into.checked ? cell : app.layout.shown(cell),
        before = stops[stops.length - 1];
      if (before && item < 0 && before.item === item) before.last = i;
      else stops.push({ item, first: i, last: i });
    }
    this.slider.max = String(Math.max(0, c.stepNode.length - 1)); // functions, as along the curve
  }

  /** Count the steps anew, and stay where backward is. */
  #again() {
    const step = this.app.step;
    this.#count();
    if (!this.into.checked) this.#close(-1);
    if (step >= 0) this.reach(step);
  }

  /** @param {boolean} shown */
  show(shown) {
    if (!this.memory) return;
    this.bar.hidden = !shown;
    byId("play-open").setAttribute("aria-pressed", String(shown));
    this.app.resize(this.app.stage.clientWidth, this.app.stage.clientHeight); // now, so that the first step is brought into what the bar leaves
    if (shown) {
      this.#count();
      this.go(0);
    } else {
      this.stop();
      this.#close(-1);
      this.app.setStep(-1);
    }
  }

  /** The step in which a function runs. @param {number} step */
  reach(step) {
    this.go(this.stops.findIndex((stop) => stop.last >= step));
  }

  /** @param {number} at */
  go(at) {
    const last = this.stops.length - 1,
      { app } = this;
    this.at = Math.max(0, Math.min(last, at));
    const stop = this.stops[this.at];
    if (!stop) return;
    if (this.into.checked) this.#open(stop.item);
    this.#follow(stop.item);
    app.setStep(stop.last, stop.first);
    if (this.at >= last) this.stop();
    this.#travel();
  }

  /** Open what hides a box, and close what was opened for the one before. @param {number} item */
  #open(item) {
    const { layout, model } = this.app;
    this.#close(item);
    for (let g = model.around(item); g > 0; g = model.parent[g])
      if (layout.setOpen(g, true)) this.opened.push(g);
    layout.forgetAll();
    this.app.changed("open");
  }

  /** @param {number} item close all that the player opened and that is not around it; -1 for none */
  #close(item) {
    const { layout, model } = this.app,
      around = (/** @type {number} */ g) => item >= model.first[g] && item < model.end[g];
    for (const g of this.opened) if (!around(g)) layout.setOpen(g, false);
    const kept = this.opened.filter(around);
    if (kept.length === this.opened.length) return;
    this.opened = kept;
    layout.forgetAll();
    this.app.changed("open");
  }

  /** Milliseconds for a step, and how many steps go at once: all of them take the seconds that were chosen. */
  pace() {
    const whole = 1000 * Number(this.seconds.value),
      wait = whole / Math.max(1, this.stops.length);
    return {
      wait: Math.min(1500, Math.max(FRAME, wait)),
      jump: Math.max(1, Math.round(FRAME / wait)),
    };
  }

  /** Bring what runs into the middle, at a size that can be read. @param {number} item */
  #follow(item) {
    const { app } = this,
      r = app.layout.rect(item),
      { x, y, k } = app.camera,
      width = app.width - app.covered,
      margin = 60;
    const size = k < 0.6 || k > 2 ? 1 : k,
      left = x + r.x * k,
      top = y + r.y * k;
    const inside =
      left > margin &&
      top > margin &&
      left + r.w * k < width - margin &&
      top + r.h * k < app.height - margin;
    if (inside && size === k) return;
    const to = {
      k: size,
      x: width / 2 - (r.x + r.w / 2) * size,
      y: app.height * 0.6 - (r.y + r.h / 2) * size,
    };
    const { wait } = this.pace(),
      ease = this.timer ? Math.min(wait * 0.8, 400) : 300;
    app.fly(to, app.still || ease < 60, ease);
  }

  /** The gradients go along their edges. */
  #travel() {
    cancelAnimationFrame(this.moving);
    const { app } = this,
      ms = this.timer ? Math.min(TRAVEL, this.pace().wait * 0.8) : TRAVEL,
      began = performance.now();
    app.travel = 1;
    if (app.still || ms < 100) return;
    const frame = (/** @type {number} */ now) => {
      app.travel = Math.min(1, Math.max(0, (now - began) / ms));
      app.changed("travel");
      if (app.travel < 1) this.moving = requestAnimationFrame(frame);
    };
    frame(began);
  }

  /** Keys while the player is open. @param {string} key @returns {boolean} whether it was one of them */
  key(key) {
    if (this.bar.hidden) return false;
    if (key === " ") this.timer ? this.stop() : this.start();
    else if (key === "ArrowRight") this.go(this.at + 1);
    else if (key === "ArrowLeft") this.go(this.at - 1);
    else if (key === "Escape") this.show(false);
    else return false;
    return true;
  }

  start() {
    if (this.at >= this.stops.length - 1) this.go(0);
    const tick = () => {
      const { wait, jump } = this.pace();
      this.go(this.at + jump);
      if (this.timer) this.timer = window.setTimeout(tick, wait);
    };
    this.timer = window.setTimeout(tick, 0);
    byId("play").textContent = "Pause";
    byId("play").setAttribute("aria-label", "Pause");
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
    byId("play").textContent = "Play";
    byId("play").setAttribute("aria-label", "Play");
  }

  draw() {
    if (this.bar.hidden || !this.memory || this.app.step < 0) return;
    const { app, memory: m } = this,
      facts = /** @type {Facts} */ (app.facts),
      n = this.stops.length,
      functions = app.step - app.stepFirst + 1;
    this.slider.value = String(app.step);
    const name = this.#name(facts),
      words = [
        el("strong", { text: `${count(this.at + 1)} / ${count(n)}` }),
        " ",
        el("span", { class: "running", text: name }),
      ];
    this.slider.setAttribute("aria-valuetext", `step ${this.at + 1} of ${n}: ${name}`);
    const norm = facts.head.norms && functions === 1 ? facts.head.norms[app.step] : null;
    if (functions > 1)
      words.push(
        el("span", {
          text: ` · ${count(functions)} functions, ${bytesText(sum(facts.c.stepFreed, app.stepFirst, app.step))} freed`,
        }),
      );
    if (norm !== null && norm !== undefined)
      words.push(el("span", { text: ` · gradient norm ${norm}` }));
    words.push(
      el("span", {
        text: ` · ${bytesText(m.freed[app.step])} freed of ${bytesText(facts.head.heldAtFirst)} held for backward`,
      }),
    );
    byId("step-words").replaceChildren(...words);
    if (!this.timer) say(`step ${this.at + 1} of ${n}: ${name}`);
    this.#curve(m, app.step, facts.c.stepNode.length);
  }

  /** What runs, in words. @param {Facts} facts */
  #name(facts) {
    const { item, last } = this.stops[this.at],
      leaf = facts.leafOf.get(facts.c.stepNode[last]);
    return leaf && item >= 0
      ? `${leaf.names[0] || "leaf"}.grad is filled`
      : this.app.model.title(item);
  }

  /** The function at a place of the curve. @param {number} x */
  #functionAt(x) {
    const n = this.app.facts?.c.stepNode.length || 1;
    return Math.max(
      0,
      Math.min(
        n - 1,
        Math.round(((x - AXIS) / Math.max(1, this.curve.clientWidth - AXIS - THUMB)) * (n - 1)),
      ),
    );
  }

  /** Say what is alive at a place of the curve. @param {number} step */
  #point(step) {
    const m = this.memory;
    this.pointed = step;
    this.draw();
    if (!m) return;
    const grads = m.total[step] - m.saved[step];
    byId("alive").textContent =
      step < 0
        ? ""
        : `function ${count(step + 1)}: ${bytesText(m.saved[step])} held for backward, about ${bytesText(grads)} of gradients`;
  }

  /** @param {ReturnType<typeof memory>} m @param {number} step @param {number} n */
  #curve(m, step, n) {
    const { curve, app } = this,
      ratio = devicePixelRatio || 1,
      w = curve.clientWidth,
      h = curve.clientHeight;
    if (!w || !h) return;
    curve.width = Math.round(w * ratio);
    curve.height = Math.round(h * ratio);
    const c = /** @type {CanvasRenderingContext2D} */ (curve.getContext("2d")),
      { colors } = app;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const top = m.total[m.peak] || 1,
      foot = h - 14;
    const px = (/** @type {number} */ i) => AXIS + ((w - AXIS - THUMB) * i) / Math.max(1, n - 1),
      py = (/** @type {number} */ v) => foot - ((foot - 8) * v) / top;
    const every = Math.max(1, Math.floor(n / w));
    for (const [values, color] of /** @type {[Float64Array, string][]} */ ([
      [m.total, colors["soft-line"]],
      [m.saved, colors.saved],
    ])) {
      c.beginPath();
      c.moveTo(px(0), foot);
      for (let i = 0; i < n; i += every) c.lineTo(px(i), py(values[i]));
      c.lineTo(px(n - 1), py(values[n - 1]));
      c.lineTo(px(n - 1), foot);
      c.fillStyle = color;
      c.fill();
    }
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = colors.muted;
    c.strokeStyle = colors.border;
    c.textAlign = "right";
    for (const part of [0, 0.5, 1]) {
      c.fillText(bytesText(Math.round(top * part)), AXIS - 6, py(top * part) + 4);
      c.beginPath();
      c.moveTo(AXIS, py(top * part));
      c.lineTo(w - THUMB, py(top * part));
      c.stroke();
    }
    c.fillText(`function ${count(n)}`, w - THUMB, h - 2);
    c.textAlign = "left";
    c.fillText("1: from the loss", AXIS, h - 2);
    c.fillStyle = colors.warn;
    c.beginPath();
    c.arc(px(m.peak), py(m.total[m.peak]), 3, 0, 7);
    c.fill();
    const right = px(m.peak) > w - 80;
    c.textAlign = right ? "right" : "left";
    c.fillText(
      `peak, about ${bytesText(top)}`,
      px(m.peak) + (right ? -6 : 6),
      py(m.total[m.peak]) + 9,
    );
    c.fillStyle = colors.accent;
    c.fillRect(px(step) - 1, 0, 2, foot);
    if (this.pointed >= 0) c.fillRect(px(this.pointed), 0, 1, foot);
  }
}

const THUMB = 8; // px, half of the slider's: as far from its ends as the curve begins and ends
const AXIS = 72 + THUMB; // px, room for bytes at the left of the curve

/** @param {import("./data.js").Column} values @param {number} first @param {number} last */
function sum(values, first, last) {
  let found = 0;
  for (let i = first; i <= last; i++) found += Number(values[i]);
  return found;
}
