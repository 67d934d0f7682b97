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
  const { stepFreed, stepWaiting, stepFilled } = facts.c, n = stepFreed.length;
  const saved = new Float64Array(n), total = new Float64Array(n), freed = new Float64Array(n);
  let left = facts.head.heldAtFirst, grads = 0, gone = 0, peak = 0;
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

export class Player {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.bar = byId("player");
    this.slider = /** @type {HTMLInputElement} */ (byId("step"));
    this.curve = /** @type {HTMLCanvasElement} */ (byId("curve"));
    this.speed = /** @type {HTMLSelectElement} */ (byId("speed"));
    this.timer = 0;
    /** @type {ReturnType<typeof memory> | null} */
    this.memory = null;
    byId("play-open").addEventListener("click", () => this.show(this.bar.hidden === true));
    byId("player-close").addEventListener("click", () => this.show(false));
    byId("play").addEventListener("click", () => (this.timer ? this.stop() : this.start()));
    byId("step-back").addEventListener("click", () => this.go(this.app.step - 1));
    byId("step-on").addEventListener("click", () => this.go(this.app.step + 1));
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    app.on("step", () => this.draw());
    app.on("theme", () => this.draw());
    app.on("facts", () => this.#ready());
    new ResizeObserver(() => this.draw()).observe(this.curve);
  }

  #ready() {
    const facts = /** @type {Facts} */ (this.app.facts), n = facts.c.stepNode.length;
    this.memory = memory(facts);
    this.slider.max = String(Math.max(0, n - 1));
    /** @type {HTMLButtonElement} */ (byId("play-open")).disabled = n === 0;
  }

  /** @param {boolean} shown */
  show(shown) {
    if (!this.memory) return;
    this.bar.hidden = !shown;
    byId("play-open").setAttribute("aria-pressed", String(shown));
    if (shown) this.go(0);
    else {
      this.stop();
      this.app.setStep(-1);
    }
  }

  /** @param {number} step */
  go(step) {
    const last = Number(this.slider.max);
    this.app.setStep(Math.max(0, Math.min(last, step)));
    if (step >= last) this.stop();
    this.#follow();
  }

  /** Keep the running function in view. */
  #follow() {
    const { app } = this, facts = /** @type {Facts} */ (app.facts), cell = facts.cellOf[facts.c.stepNode[app.step]];
    const r = app.layout.rect(cell), { x, y, k } = app.camera, width = app.width - app.covered, margin = 60;
    const left = x + r.x * k, top = y + r.y * k;
    const dx = left < margin ? width / 3 - left : left + r.w * k > width - margin ? (width * 2) / 3 - left - r.w * k : 0;
    const dy = top < margin ? app.height / 2 - top : top + r.h * k > app.height - margin ? app.height / 2 - top : 0;
    if (r.w * k < width && (dx || dy)) app.fly({ k, x: x + dx, y: y + dy }, app.still || this.timer > 0);
  }

  start() {
    if (this.app.step >= Number(this.slider.max)) this.go(0);
    const tick = () => {
      const [wait, jump] = this.speed.value.split(",").map(Number);
      this.go(this.app.step + jump);
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
    const { app } = this, facts = /** @type {Facts} */ (app.facts), step = app.step, n = facts.c.stepNode.length, m = this.memory;
    this.slider.value = String(step);
    const node = facts.c.stepNode[step], leaf = facts.leafOf.get(node);
    const name = leaf ? `${leaf.names[0] || "leaf"}.grad is filled` : app.model.title(facts.cellOf[node]);
    this.slider.setAttribute("aria-valuetext", `step ${step + 1} of ${n}: ${name}`);
    const norm = facts.head.norms ? facts.head.norms[step] : null;
    const words = [
      el("strong", { text: `${count(step + 1)} / ${count(n)}` }), " ", el("span", { class: "running", text: name }),
      el("span", { text: ` · ${bytesText(m.freed[step])} of ${bytesText(facts.head.heldAtFirst)} saved freed` }),
      el("span", { text: ` · about ${bytesText(m.total[step])} in use, peak ${bytesText(m.total[m.peak])} at step ${count(m.peak + 1)}` }),
    ];
    if (norm !== null && norm !== undefined) words.push(el("span", { text: ` · gradient norm ${norm}` }));
    byId("step-words").replaceChildren(...words);
    if (!this.timer) say(`step ${step + 1} of ${n}: ${name}`);
    this.#curve(m, step, n);
  }

  /** @param {ReturnType<typeof memory>} m @param {number} step @param {number} n */
  #curve(m, step, n) {
    const { curve, app } = this, ratio = devicePixelRatio || 1, w = curve.clientWidth, h = curve.clientHeight;
    if (!w || !h) return;
    curve.width = Math.round(w * ratio);
    curve.height = Math.round(h * ratio);
    const c = /** @type {CanvasRenderingContext2D} */ (curve.getContext("2d")), { colors } = app;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const pad = 8, top = m.total[m.peak] || 1; // the slider's knob is 16 wide
    const px = (/** @type {number} */ i) => pad + ((w - 2 * pad) * i) / Math.max(1, n - 1), py = (/** @type {number} */ v) => h - 2 - ((h - 14) * v) / top;
    const every = Math.max(1, Math.floor(n / w));
    for (const [values, color] of /** @type {[Float64Array, string][]} */ ([[m.total, colors["soft-line"]], [m.saved, colors["heat4"]]])) {
      c.beginPath();
      c.moveTo(px(0), h);
      for (let i = 0; i < n; i += every) c.lineTo(px(i), py(values[i]));
      c.lineTo(px(n - 1), py(values[n - 1]));
      c.lineTo(px(n - 1), h);
      c.fillStyle = color;
      c.fill();
    }
    c.fillStyle = colors.warn;
    c.beginPath();
    c.arc(px(m.peak), py(m.total[m.peak]), 3, 0, 7);
    c.fill();
    c.font = "11px system-ui, sans-serif";
    const right = px(m.peak) > w - 60;
    c.textAlign = right ? "right" : "left";
    c.fillText("peak", px(m.peak) + (right ? -6 : 6), py(m.total[m.peak]) + 3);
    c.fillStyle = colors.accent;
    c.fillRect(px(step) - 1, 0, 2, h);
  }
}
