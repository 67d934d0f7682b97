/**
 * Two painters with the same calls, on a canvas and as SVG text, so that what is exported is what
 * is
 * shown; and the colours, read from the style sheet. Units are pixels of the picture. Knows no
 * graph.
 */

export const FONT =
  'Helvetica, Arial, "Liberation Sans", "DejaVu Sans Condensed", "DejaVu Sans", sans-serif';

/** @typedef {{[name: string]: string}} Colors */

const GROUNDS = "bg sheet sheet-2 text muted line soft-line border hover accent accent-2 warn halo";
const KIND_COLORS =
  "op leaf output input group layer attention norm activation shape loss " +
  "saved added removed changed";
const TINTS =
  "heat1 heat2 heat3 heat4 heat5 class-1 class-2 class-3 class-4 class-5 class-6 class-7 class-8";

/** There is one place for the colours of both themes. @returns {Colors} */
export function readColors() {
  const style = getComputedStyle(document.documentElement);
  const kinds = KIND_COLORS.split(" ").flatMap((kind) => [kind, `${kind}-line`, `${kind}-dim`]);
  const names = [...GROUNDS.split(" "), ...kinds, ...TINTS.split(" ")];
  return Object.fromEntries(
    names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])
  );
}

const ruler = /** @type {CanvasRenderingContext2D} */ (
  document.createElement("canvas").getContext("2d")
);
/** @type {Map<string, number>} */
const widths = new Map();

/** Width of a text at size 1. @param {string} text @param {boolean} [strong] */
export function textWidth(text, strong = false) {
  const key = strong ? `*${text}` : text;
  let width = widths.get(key);
  if (width === undefined) {
    ruler.font = `${strong ? 600 : 400} 100px ${FONT}`;
    width = ruler.measureText(text).width / 100;
    if (widths.size > 50000) widths.clear();
    widths.set(key, width);
  }
  return width;
}

/**
 * The text, shortened in the middle where it is wider than `room`.
 * @param {string} text
 * @param {number} size
 * @param {number} room
 */
export function fitted(text, size, room) {
  const width = textWidth(text) * size;
  if (width <= room) return text;
  const keep = Math.floor((text.length * room) / width) - 1;
  if (keep < 3) return "";
  const tail = keep >> 1;
  return `${text.slice(0, keep - tail)}…${text.slice(text.length - tail)}`;
}

/**
 * @typedef {object} Painter
 * @property {number} alpha
 * @property {(x: number, y: number, w: number, h: number, r: number, fill: string, stroke: string,
 *   width: number, dash?: number[]) => void} rect
 * @property {() => Pen} begin a path
 * @property {(color: string, width: number, dash?: number[]) => void} stroke
 * @property {(color: string) => void} fill
 * @property {(text: string, x: number, y: number, size: number, color: string, how?: TextLook) =>
 *   void} text
 */
/** @typedef {{strong?: boolean, middle?: boolean, halo?: string}} TextLook */
/** What draws a path. @typedef {Pick<CanvasPath, "moveTo" | "lineTo" | "bezierCurveTo">} Pen */

/**
 * Draws a line through points, each an x and a y: an S where it does not go straight down.
 * @param {Pen} pen
 * @param {ArrayLike<number>} points
 * @param {boolean} [fine] whether an S can be told from a straight line
 */
export function curveAlong(pen, points, fine = true) {
  let [x, y] = [points[0], points[1]];
  pen.moveTo(x, y);
  for (let i = 2; i < points.length; i += 2) {
    const [nx, ny] = [points[i], points[i + 1]];
    const middle = (y + ny) / 2;
    if (!fine || Math.abs(nx - x) < 0.5) pen.lineTo(nx, ny);
    else pen.bezierCurveTo(x, middle, nx, middle, nx, ny);
    [x, y] = [nx, ny];
  }
}

/**
 * Whether a point is on a path that is drawn with this width.
 * @param {Path2D} path
 * @param {number} x
 * @param {number} y
 * @param {number} width
 */
export function isOnLine(path, x, y, width) {
  ruler.lineWidth = width;
  return ruler.isPointInStroke(path, x, y);
}

/** @implements {Painter} */
export class CanvasPainter {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.c = context;
  }

  /** @param {number} part */
  set alpha(part) {
    this.c.globalAlpha = part;
  }

  /** @type {Painter["rect"]} */
  rect(x, y, w, h, r, fill, stroke, width, dash) {
    const { c } = this;
    if (w < 6 || h < 6) {
      c.fillStyle = stroke || fill;
      c.fillRect(x, y, Math.max(w, 0.75), Math.max(h, 0.75));
      return;
    }
    c.beginPath();
    c.roundRect(x, y, w, h, r);
    if (fill) this.fill(fill);
    if (stroke) this.stroke(stroke, width, dash);
  }

  begin() {
    this.c.beginPath();
    return this.c;
  }

  /** @type {Painter["stroke"]} */
  stroke(color, width, dash = []) {
    this.c.strokeStyle = color;
    this.c.lineWidth = width;
    this.c.setLineDash(dash);
    this.c.stroke();
  }

  /** @param {string} color */
  fill(color) {
    this.c.fillStyle = color;
    this.c.fill();
  }

  /** @type {Painter["text"]} */
  text(text, x, y, size, color, { strong, middle, halo } = {}) {
    const { c } = this;
    c.font = `${strong ? 600 : 400} ${Math.round(size * 4) / 4}px ${FONT}`;
    c.textAlign = middle ? "center" : "left";
    if (halo) {
      c.strokeStyle = halo;
      c.lineWidth = 4;
      c.lineJoin = "round";
      c.setLineDash([]);
      c.strokeText(text, x, y);
    }
    c.fillStyle = color;
    c.fillText(text, x, y);
  }
}

/** @implements {Painter} */
export class SvgPainter {
  /** @type {string[]} */
  elements = [];
  path = "";
  alpha = 1;

  /**
   * An element; numbers are rounded.
   * @param {string} tag
   * @param {{[name: string]: string | number}} attributes
   * @param {string} [text]
   */
  #add(tag, attributes, text) {
    const all = this.alpha < 1 ? { ...attributes, opacity: this.alpha } : attributes;
    const words = Object.entries(all).map(([name, value]) => ` ${name}="${short(value)}"`);
    const end = text === undefined ? "/>" : `>${escaped(text)}</${tag}>`;
    this.elements.push(`<${tag}${words.join("")}${end}`);
  }

  /** @param {string} color @param {number} width @param {number[]} [dash] */
  #line(color, width, dash) {
    const line = { stroke: color, "stroke-width": width };
    return dash ? { ...line, "stroke-dasharray": dash.join(" ") } : line;
  }

  /** @type {Painter["rect"]} */
  rect(x, y, width, height, r, fill, stroke, thick, dash) {
    const line = stroke ? this.#line(stroke, thick, dash) : {};
    this.#add("rect", { x, y, width, height, rx: r, fill: fill || "none", ...line });
  }

  begin() {
    this.path = "";
    return this;
  }

  /** @type {Pen["moveTo"]} */
  moveTo(x, y) {
    this.path += `M${short(x)} ${short(y)}`;
  }

  /** @type {Pen["lineTo"]} */
  lineTo(x, y) {
    this.path += `L${short(x)} ${short(y)}`;
  }

  /** @type {Pen["bezierCurveTo"]} */
  bezierCurveTo(...points) {
    this.path += `C${points.map(short).join(" ")}`;
  }

  /** @type {Painter["stroke"]} */
  stroke(color, width, dash) {
    if (this.path)
      this.#add("path", { d: this.path, fill: "none", ...this.#line(color, width, dash) });
  }

  /** @param {string} color */
  fill(color) {
    if (this.path) this.#add("path", { d: this.path, fill: color });
  }

  /** @type {Painter["text"]} */
  text(text, x, y, size, color, { strong, middle, halo } = {}) {
    const outline = halo && {
      "paint-order": "stroke",
      ...this.#line(halo, 4),
      "stroke-linejoin": "round"
    };
    const weight = strong && { "font-weight": 600 };
    const anchor = middle && { "text-anchor": "middle" };
    this.#add(
      "text",
      { x, y, "font-size": size, fill: color, ...anchor, ...weight, ...outline },
      text
    );
  }

  /** @param {number} w @param {number} h @param {string} background @param {string} title */
  document(w, h, background, title) {
    const [width, height] = [Math.ceil(w), Math.ceil(h)];
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"
 viewBox="0 0 ${width} ${height}" font-family="${escaped(FONT)}" role="img">
<title>${escaped(title)}</title>
<rect width="100%" height="100%" fill="${background}"/>
${this.elements.join("\n")}
</svg>
`;
  }
}

/** @param {string | number} value */
const short = (value) => (typeof value === "number" ? String(Math.round(value * 10) / 10) : value);

/** @param {string} text */
function escaped(text) {
  const named = text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  // eslint-disable-next-line no-control-regex
  return named.replace(/"/g, "&quot;").replace(/[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, "\ufffd");
}
