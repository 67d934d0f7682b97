/** The canvas: draws a frame when something changed, and answers drag, wheel, pinch, click and keys. */
import { CanvasPainter } from "./painter.js";
import { Drawer } from "./draw.js";
import { hiddenIn, lookOf } from "./look.js";

/** @typedef {import("./app.js").App} App */

export class Stage {
  /** @param {App} app @param {HTMLCanvasElement} canvas */
  constructor(app, canvas) {
    this.app = app;
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (
      canvas.getContext("2d", { alpha: false })
    );
    this.waiting = false;
    this.drawn = 0;
    for (const change of /** @type {const} */ ([
      "open",
      "select",
      "facts",
      "overlay",
      "step",
      "camera",
      "theme",
      "lit",
      "travel",
    ]))
      app.on(change, () => this.request());
    new ResizeObserver(() => this.#resize()).observe(canvas);
    this.#resize();
    this.#pointer();
  }

  request() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  #resize() {
    const ratio = devicePixelRatio || 1,
      w = this.canvas.clientWidth,
      h = this.canvas.clientHeight;
    this.canvas.width = Math.round(w * ratio);
    this.canvas.height = Math.round(h * ratio);
    this.app.resize(w, h);
    this.draw(); // at once, or the canvas would be empty for a frame
  }

  /** @returns {number} milliseconds that it took */
  draw() {
    const began = performance.now(),
      app = this.app,
      c = this.context,
      ratio = devicePixelRatio || 1;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.globalAlpha = 1;
    c.fillStyle = app.colors.bg;
    c.fillRect(0, 0, app.width, app.height);
    const drawer = new Drawer(new CanvasPainter(c), app.layout, lookOf(app), {
      x: 0,
      y: 0,
      w: app.width,
      h: app.height,
    });
    this.drawn = drawer.draw(app.camera);
    return performance.now() - began;
  }

  /** @param {{clientX: number, clientY: number}} event */
  hit(event) {
    const box = this.canvas.getBoundingClientRect(),
      { x, y, k } = this.app.camera;
    const px = (event.clientX - box.left - x) / k,
      py = (event.clientY - box.top - y) / k;
    const found = this.app.layout.hit(px, py),
      isHidden = found.item >= 0 && hiddenIn(this.app)?.(found.item);
    return {
      px,
      py,
      ...found,
      ...(isHidden ? { item: ~this.app.model.around(found.item), title: false } : {}),
    };
  }

  #pointer() {
    const { app, canvas } = this;
    /** @type {Map<number, {x: number, y: number}>} */
    const down = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      app.finish();
      canvas.setPointerCapture(event.pointerId);
      down.set(event.pointerId, { x: event.clientX, y: event.clientY });
      if (down.size === 1) moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = down.get(event.pointerId);
      if (!before) return this.#hovered(event);
      const dx = event.clientX - before.x,
        dy = event.clientY - before.y;
      moved += Math.abs(dx) + Math.abs(dy);
      const others = [...down].filter(([id]) => id !== event.pointerId);
      if (others.length) {
        const other = others[0][1],
          box = canvas.getBoundingClientRect();
        const was = Math.hypot(before.x - other.x, before.y - other.y),
          is = Math.hypot(event.clientX - other.x, event.clientY - other.y);
        app.pan(dx / 2, dy / 2);
        if (was > 0)
          app.zoom(
            is / was,
            (event.clientX + other.x) / 2 - box.left,
            (event.clientY + other.y) / 2 - box.top,
          );
        moved += 10;
      } else if (moved > 4) app.pan(dx, dy);
      down.set(event.pointerId, { x: event.clientX, y: event.clientY });
      canvas.classList.toggle("dragging", moved > 4);
    });
    const up = (/** @type {PointerEvent} */ event) => {
      const was = down.delete(event.pointerId);
      canvas.classList.remove("dragging");
      if (was && event.type === "pointerup" && moved <= 4 && event.button === 0)
        this.#clicked(event);
      else if (was && down.size === 0) app.changed("select"); // the address follows the camera
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => this.#setHover(null));
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        app.finish();
        const box = canvas.getBoundingClientRect(),
          unit = event.deltaMode === 1 ? 20 : 1;
        if (event.shiftKey) app.pan(-(event.deltaY + event.deltaX) * unit, 0);
        else
          app.zoom(
            Math.exp((-event.deltaY * unit) / (event.ctrlKey ? 120 : 420)),
            event.clientX - box.left,
            event.clientY - box.top,
          );
      },
      { passive: false },
    );
  }

  /** @param {PointerEvent} event */
  #hovered(event) {
    if (event.pointerType === "touch") return;
    const hit = this.hit(event);
    this.#setHover(hit.item !== ~0 && hit.title ? hit.item : null);
  }

  /** @param {number | null} item */
  #setHover(item) {
    if (item === this.app.hover) return;
    this.app.hover = item;
    this.canvas.style.cursor = item === null ? "" : "pointer";
    this.request();
  }

  /** A click on a title opens or closes, on a box selects; with Shift it chooses the other end of paths. @param {PointerEvent} event */
  #clicked(event) {
    const app = this.app,
      hit = this.hit(event);
    if (hit.item === ~0 || !hit.title) return app.select(null);
    if ((event.shiftKey || app.picking) && app.selected !== null) return app.select(hit.item, true);
    if (hit.item < 0) app.toggle(~hit.item);
    app.select(hit.item);
    if (hit.item >= 0) app.clear(hit.item);
  }

  /** Moves and chooses by keys. @param {KeyboardEvent} event @returns {boolean} whether the key means something here */
  key(event) {
    const { app } = this,
      far = 60;
    /** @type {{[key: string]: () => void}} */
    const keys = {
      ArrowLeft: () => (event.shiftKey ? this.#step(-1, 0) : app.pan(far, 0)),
      ArrowRight: () => (event.shiftKey ? this.#step(1, 0) : app.pan(-far, 0)),
      ArrowUp: () => (event.shiftKey ? this.#step(0, -1) : app.pan(0, far)),
      ArrowDown: () => (event.shiftKey ? this.#step(0, 1) : app.pan(0, -far)),
      PageUp: () => app.pan(0, app.height * 0.8),
      PageDown: () => app.pan(0, -app.height * 0.8),
      "+": () => app.zoom(1.25),
      "=": () => app.zoom(1.25),
      "-": () => app.zoom(0.8),
      f: () => app.fit(true),
      0: () => app.fit(true),
      Enter: () => this.#enter(),
      " ": () => this.#enter(),
      Escape: () => app.select(null),
    };
    keys[event.key]?.();
    return event.key in keys;
  }

  #enter() {
    const { app } = this;
    if (app.selected !== null && app.selected < 0) app.toggle(~app.selected);
    else if (app.selected === null) app.visit(app.model.item(0, 0));
  }

  /** Select the nearest visible box in a direction. @param {number} dx @param {number} dy */
  #step(dx, dy) {
    const { app } = this;
    if (app.selected === null) return this.#enter();
    if (app.selected < 0 && dx + dy > 0 && app.layout.isOpen(~app.selected))
      return app.visit(app.model.item(~app.selected, 0)); // into the group
    const from = app.layout.rect(app.selected),
      g = app.model.around(app.selected),
      n = app.model.shape(g).children;
    let best = null,
      least = Infinity;
    for (let i = 0; i < n; i++) {
      const item = app.model.item(g, i);
      if (item === app.selected) continue;
      const r = app.layout.rect(item);
      const x = r.x + r.w / 2 - from.x - from.w / 2,
        y = r.y + r.h / 2 - from.y - from.h / 2;
      const along = x * dx + y * dy,
        across = Math.abs(x * dy) + Math.abs(y * dx);
      if (along > 1 && along + 2 * across < least) {
        least = along + 2 * across;
        best = item;
      }
    }
    if (best === null && g > 0) best = ~g;
    if (best !== null) app.visit(best);
  }
}
