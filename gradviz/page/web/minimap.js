/** The small map of the whole in the corner, and the window in it; a click or a drag goes there. */
import { CanvasPainter } from "./painter.js";
import { Drawer } from "./draw.js";
import { byId } from "./dom.js";
import { lookOf } from "./look.js";

/** @typedef {import("./app.js").App} App */

const LEAST = 480; // px of the sheet; in less, the legend would cover it

export class Minimap {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.canvas = /** @type {HTMLCanvasElement} */ (byId("map"));
    /** @type {HTMLCanvasElement} the picture of the whole, drawn anew only when what is shown changed */
    this.whole = document.createElement("canvas");
    this.stale = true;
    this.scale = 1;
    this.waiting = false;
    for (const change of /** @type {const} */ (["open", "lit", "overlay", "theme", "facts"]))
      app.on(change, () => {
        this.stale = true;
        this.request();
      });
    app.on("camera", () => this.request());
    let held = false;
    const go = (/** @type {PointerEvent} */ event) => {
      const box = this.canvas.getBoundingClientRect(),
        { k } = app.camera;
      const px = (event.clientX - box.left - this.left) / this.scale,
        py = (event.clientY - box.top - this.top) / this.scale;
      app.fly({ k, x: (app.width - app.covered) / 2 - px * k, y: app.height / 2 - py * k }, true);
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      held = true;
      this.canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    this.canvas.addEventListener("pointermove", (event) => held && go(event));
    this.canvas.addEventListener("pointerup", () => (held = false));
  }

  request() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const { app, canvas } = this,
      r = app.layout.rect(~0),
      { x, y, k } = app.camera,
      width = app.width - app.covered;
    canvas.hidden =
      width < LEAST ||
      (x + r.x * k > -1 &&
        y + r.y * k > -1 &&
        x + (r.x + r.w) * k < width + 1 &&
        y + (r.y + r.h) * k < app.height + 1);
    if (canvas.hidden) return app.stage.style.removeProperty("--map");
    const ratio = devicePixelRatio || 1,
      most = Math.min(170, app.width / 3),
      tall = Math.min(190, app.height / 3);
    this.scale = Math.min((most - 12) / r.w, (tall - 12) / r.h);
    const w = Math.max(r.w * this.scale + 12, 40),
      h = Math.max(r.h * this.scale + 12, 40);
    this.left = (w - r.w * this.scale) / 2;
    this.top = (h - r.h * this.scale) / 2;
    if (
      this.stale ||
      this.whole.width !== Math.round(w * ratio) ||
      this.whole.height !== Math.round(h * ratio)
    )
      this.#paint(w, h, ratio);
    canvas.width = this.whole.width;
    canvas.height = this.whole.height;
    canvas.style.width = `${w}px`;
    canvas.style.height = `${h}px`;
    app.stage.style.setProperty("--map", `${w + 12}px`); // the legend leaves its place free
    canvas.style.right = `${app.covered + 12}px`;
    const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    c.drawImage(this.whole, 0, 0);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.strokeStyle = app.colors.accent;
    c.lineWidth = 1.5;
    const s = this.scale / k,
      left = Math.max(1, this.left - x * s),
      top = Math.max(1, this.top - y * s);
    const right = Math.min(w - 1, this.left + (width - x) * s),
      bottom = Math.min(h - 1, this.top + (app.height - y) * s);
    c.strokeRect(left, top, Math.max(right - left, 3), Math.max(bottom - top, 3));
  }

  /** @param {number} w @param {number} h @param {number} ratio */
  #paint(w, h, ratio) {
    const { app, whole } = this;
    whole.width = Math.round(w * ratio);
    whole.height = Math.round(h * ratio);
    const c = /** @type {CanvasRenderingContext2D} */ (whole.getContext("2d"));
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = app.colors.sheet;
    c.fillRect(0, 0, w, h);
    const drawer = new Drawer(
      new CanvasPainter(c),
      app.layout,
      { ...lookOf(app, true), marks: () => [], badge: () => "" },
      { x: 0, y: 0, w, h },
    );
    drawer.quiet = true;
    drawer.draw({ x: this.left || 0, y: this.top || 0, k: this.scale });
    this.stale = false;
  }

  left = 0;
  top = 0;
}
