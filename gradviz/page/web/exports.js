/**
 * What is shown, as a file: SVG, PNG, or on paper; and a copy of one box. All are drawn by the code
 * that draws the screen.
 */
import { app, facts, layout, model } from "./app.js";
import { byId, onClick, say } from "./dom.js";
import { draw } from "./draw.js";
import { lookOf } from "./look.js";
import { CanvasPainter, SvgPainter, textWidth } from "./painter.js";

/** @import { Painter } from "./painter.js" */

const FRAME_ROOM = 16; // px around the picture
const ABOVE = 30; // for the title
const ROWS = 18; // of the legend
const LARGEST = 8000; // px of a PNG

/** The size of the picture, with its title above, and the entries of its legend below, in rows. */
function frameOf() {
  const { w, h } = layout.rect(~0);
  const room = Math.max(w, 420, textWidth(document.title, true) * 13);
  const entries = [...app.overlay.legend];
  if (facts.head.legend) entries.push({ color: "", text: facts.head.legend });
  let x = 0;
  let row = 0;
  const legend = entries.map((entry) => {
    const wide = textWidth(entry.text) * 11 + (entry.color ? 18 : 0);
    if (x && x + wide > room) [x, row] = [0, row + 1];
    const left = x;
    x += wide + 18;
    return { ...entry, x: left, row };
  });
  const below = h + FRAME_ROOM + ABOVE + 28; // where the legend begins
  return { w: room + 2 * FRAME_ROOM, h: below + FRAME_ROOM + row * ROWS, legend, below };
}

/**
 * Title, boxes and legend.
 * @param {Painter} painter
 * @param {ReturnType<typeof frameOf>} frame
 */
function paint(painter, { w, h, legend, below }) {
  const { colors } = app;
  const left = FRAME_ROOM;
  painter.text(document.title, left, FRAME_ROOM + 10, 13, colors.text, { strong: true });
  const camera = { x: left, y: FRAME_ROOM + ABOVE, k: 1 };
  draw(painter, layout, lookOf(true), { x: 0, y: 0, w, h }, camera);
  for (const { text, color, x, row } of legend) {
    const y = below + row * ROWS;
    if (color) painter.rect(left + x, y - 10, 11, 11, 3, colors[color], colors.muted, 1);
    painter.text(text, left + x + (color ? 18 : 0), y, 11, colors.text);
  }
}

/** The whole page of the graph as it is open now, as SVG. */
export function svgOf() {
  const frame = frameOf();
  const painter = new SvgPainter();
  paint(painter, frame);
  return painter.document(frame.w, frame.h, app.colors.bg, document.title);
}

/**
 * A picture in pixels, two for each of the page where that is not too large.
 * @param {number} w
 * @param {number} h
 * @param {(painter: Painter) => void} paint
 */
function pixels(w, h, paint) {
  const k = Math.min(2, LARGEST / w, LARGEST / h);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(w * k);
  canvas.height = Math.ceil(h * k);
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.fillStyle = app.colors.bg;
  c.fillRect(0, 0, canvas.width, canvas.height);
  c.scale(k, k);
  paint(new CanvasPainter(c));
  return canvas;
}

/** The same as `svgOf`, in pixels. */
export function pixelsOf() {
  const frame = frameOf();
  return pixels(frame.w, frame.h, (painter) => paint(painter, frame));
}

/** One box alone, as it is open now. @param {number} item */
export function figureOf(item) {
  const { x, y, ...size } = layout.rect(item);
  const look = { ...lookOf(true), lit: null, selected: null, other: null };
  const w = size.w + 2 * FRAME_ROOM;
  const h = size.h + 2 * FRAME_ROOM;
  const camera = { x: FRAME_ROOM - x, y: FRAME_ROOM - y, k: 1 };
  return pixels(w, h, (painter) => draw(painter, layout, look, { x: 0, y: 0, w, h }, camera));
}

/** One box alone to the clipboard, or as a file where the browser refuses. @param {number} item */
export function copyFigure(item) {
  figureOf(item).toBlob(async (blob) => {
    if (!blob) return;
    try {
      await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
      say(`picture of ${model.title(item)} copied`);
    } catch {
      download(blob, "png", model.title(item));
    }
  });
}

/**
 * A short name for a file: of a path the last part, without options behind it and its suffix.
 * @param {string} title
 */
export function fileName(title) {
  const file = title
    .split(" ")[0]
    .replace(/^.*[/\\]/, "")
    .replace(/\.(py|ipynb|json|html)\b.*$/, "");
  return (
    file
      .replace(/[^\w.-]+/g, "_")
      .replace(/^_+|_+$/g, "")
      .slice(0, 40) || "graph"
  );
}

/** @param {Blob} blob @param {string} suffix @param {string} [title] */
function download(blob, suffix, title = document.title) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${fileName(title)}.${suffix}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  say(`${link.download} written`);
}

export function setUpExports() {
  onClick("save-svg", () => download(new Blob([svgOf()], { type: "image/svg+xml" }), "svg"));
  onClick("save-png", () => pixelsOf().toBlob((blob) => blob && download(blob, "png")));
  onClick("print", () => print());
  const paper = byId("paper");
  addEventListener("beforeprint", () => {
    paper.src = `data:image/svg+xml,${encodeURIComponent(svgOf())}`;
  });
  addEventListener("afterprint", () => paper.removeAttribute("src"));
}
