/** What is shown, as a file: SVG, PNG, or on paper. All three are drawn by the code that draws the screen. */
import { CanvasPainter, SvgPainter, textWidth } from "./painter.js";
import { Drawer } from "./draw.js";
import { byId, say } from "./dom.js";
import { lookOf } from "./look.js";

/** @typedef {import("./app.js").App} App */

const MARGIN = 16,
  ABOVE = 30,
  ROWS = 18,
  LARGEST = 8000;

/** @typedef {{text: string, color: string, x: number, row: number}} Placed an entry of the legend */

/** The size of the picture, with its title above, and the entries of its legend below, in rows. @param {App} app @returns {{w: number, h: number, legend: Placed[]}} */
function frameOf(app) {
  const r = app.layout.rect(~0),
    dtype = app.facts?.head.legend,
    room = Math.max(r.w, 420, textWidth(document.title, true) * 13);
  const entries = [...app.overlay.legend, ...(dtype ? [{ color: "", text: dtype }] : [])],
    legend = [];
  let x = 0,
    row = 0;
  for (const { text, color } of entries) {
    const wide = textWidth(text) * 11 + (color ? 18 : 0);
    if (x && x + wide > room) [x, row] = [0, row + 1];
    legend.push({ text, color, x, row });
    x += wide + 18;
  }
  return { w: room + 2 * MARGIN, h: r.h + 2 * MARGIN + ABOVE + 12 + (row + 1) * ROWS, legend };
}

/** Title, boxes and legend. @param {import("./painter.js").Painter} painter @param {App} app @param {number} k */
function paint(painter, app, k) {
  const { colors } = app,
    { w, h, legend } = frameOf(app),
    below = app.layout.rect(~0).h + MARGIN + ABOVE + 28;
  painter.text(document.title, MARGIN * k, (MARGIN + 10) * k, 13 * k, colors.text, {
    strong: true,
  });
  new Drawer(painter, app.layout, lookOf(app, true), { x: 0, y: 0, w: w * k, h: h * k }).draw({
    x: MARGIN * k,
    y: (MARGIN + ABOVE) * k,
    k,
  });
  for (const { text, color, x, row } of legend) {
    const left = (MARGIN + x) * k,
      y = (below + row * ROWS) * k;
    if (color)
      painter.rect(left, y - 10 * k, 11 * k, 11 * k, 3 * k, colors[color] || "", colors.muted, 1);
    painter.text(text, left + (color ? 18 * k : 0), y, 11 * k, colors.text);
  }
}

/** The whole page of the graph as it is open now, as SVG. @param {App} app @returns {string} */
export function svgOf(app) {
  const { w, h } = frameOf(app),
    painter = new SvgPainter();
  paint(painter, app, 1);
  return painter.document(w, h, app.colors.bg, document.title);
}

/** The same in pixels, two for each of the page where that is not too large. @param {App} app @returns {HTMLCanvasElement} */
export function pixelsOf(app) {
  const { w, h } = frameOf(app),
    k = Math.min(2, LARGEST / w, LARGEST / h);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(w * k);
  canvas.height = Math.ceil(h * k);
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.fillStyle = app.colors.bg;
  c.fillRect(0, 0, canvas.width, canvas.height);
  paint(new CanvasPainter(c), app, k);
  return canvas;
}

/** @param {Blob} blob @param {string} suffix */
function download(blob, suffix) {
  const link = document.createElement("a"),
    name = document.title.replace(/[^\w.-]+/g, "_").replace(/^_+|_+$/g, "") || "graph";
  link.href = URL.createObjectURL(blob);
  link.download = `${name}.${suffix}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  say(`${link.download} written`);
}

/** @param {App} app */
export function setUpExports(app) {
  byId("save-svg").addEventListener("click", () =>
    download(new Blob([svgOf(app)], { type: "image/svg+xml" }), "svg"),
  );
  byId("save-png").addEventListener("click", () =>
    pixelsOf(app).toBlob((blob) => blob && download(blob, "png"), "image/png"),
  );
  byId("print").addEventListener("click", () => print());
  const paper = /** @type {HTMLImageElement} */ (byId("paper"));
  addEventListener("beforeprint", () => {
    paper.src = `data:image/svg+xml,${encodeURIComponent(svgOf(app))}`;
  });
  addEventListener("afterprint", () => paper.removeAttribute("src"));
}
