/** What is shown, as a file: SVG, PNG, or on paper. All three are drawn by the code that draws the screen. */
import { CanvasPainter, SvgPainter } from "./painter.js";
import { Drawer } from "./draw.js";
import { byId, say } from "./dom.js";
import { lookOf } from "./look.js";

/** @typedef {import("./app.js").App} App */

const MARGIN = 16, LARGEST = 8000;

/** The whole page of the graph as it is open now, as SVG. @param {App} app @returns {string} */
export function svgOf(app) {
  const r = app.layout.rect(~0), w = r.w + 2 * MARGIN, h = r.h + 2 * MARGIN, painter = new SvgPainter();
  new Drawer(painter, app.layout, lookOf(app, true), { x: 0, y: 0, w, h }).draw({ x: MARGIN, y: MARGIN, k: 1 });
  return painter.document(w, h, app.colors.bg, document.title);
}

/** The same in pixels, two for each of the page where that is not too large. @param {App} app @returns {HTMLCanvasElement} */
export function pixelsOf(app) {
  const r = app.layout.rect(~0), k = Math.min(2, LARGEST / (r.w + 2 * MARGIN), LARGEST / (r.h + 2 * MARGIN));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil((r.w + 2 * MARGIN) * k);
  canvas.height = Math.ceil((r.h + 2 * MARGIN) * k);
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.fillStyle = app.colors.bg;
  c.fillRect(0, 0, canvas.width, canvas.height);
  const window = { x: 0, y: 0, w: canvas.width, h: canvas.height };
  new Drawer(new CanvasPainter(c), app.layout, lookOf(app, true), window).draw({ x: MARGIN * k, y: MARGIN * k, k });
  return canvas;
}

/** @param {Blob} blob @param {string} suffix */
function download(blob, suffix) {
  const link = document.createElement("a"), name = document.title.replace(/[^\w.-]+/g, "_").replace(/^_+|_+$/g, "") || "graph";
  link.href = URL.createObjectURL(blob);
  link.download = `${name}.${suffix}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  say(`${link.download} written`);
}

/** @param {App} app */
export function setUpExports(app) {
  byId("save-svg").addEventListener("click", () => download(new Blob([svgOf(app)], { type: "image/svg+xml" }), "svg"));
  byId("save-png").addEventListener("click", () => pixelsOf(app).toBlob((blob) => blob && download(blob, "png"), "image/png"));
  byId("print").addEventListener("click", () => print());
  const paper = /** @type {HTMLImageElement} */ (byId("paper"));
  addEventListener("beforeprint", () => {
    paper.src = `data:image/svg+xml,${encodeURIComponent(svgOf(app))}`;
  });
  addEventListener("afterprint", () => paper.removeAttribute("src"));
}
