/**
 * Two painters with the same calls, on a canvas and as SVG text, so that what is exported is what is shown. Units are pixels of the
 * picture. Knows nothing of graphs.
 */

export const FONT =
  'Helvetica, Arial, "Liberation Sans", "DejaVu Sans Condensed", "DejaVu Sans", sans-serif';

/** @type {CanvasRenderingContext2D | null} */
let ruler = null;
/** @type {Map<string, number>} */
const widths = new Map();

/** Width of a text at size 1. @param {string} text @param {boolean} strong */
export function textWidth(text, strong = false) {
  const key = strong ? `*${text}` : text;
  let width = widths.get(key);
  if (width === undefined) {
    ruler =
      ruler ||
      /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
    ruler.font = `${strong ? 600 : 400} 100px ${FONT}`;
    width = ruler.measureText(text).width / 100;
    if (widths.size > 50000) widths.clear();
    widths.set(key, width);
  }
  return width;
}

/** The text, shortened in the middle where it is wider than `room`. @param {string} text @param {number} size @param {number} room */
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
 * @property {(part: number) => void} alpha
 * @property {(x: number, y: number, w: number, h: number, r: number, fill: string, stroke: string, width: number, dash?: number[]) => void} rect
 * @property {() => void} begin
 * @property {(x: number, y: number) => void} move
 * @property {(x: number, y: number) => void} line
 * @property {(a: number, b: number, c: number, d: number, x: number, y: number) => void} curve
 * @property {(color: string, width: number, dash?: number[]) => void} stroke
 * @property {(color: string) => void} fill
 * @property {(text: string, x: number, y: number, size: number, color: string, how?: TextLook) => void} text
 */
/** @typedef {{strong?: boolean, middle?: boolean, halo?: string}} TextLook */

/** @implements {Painter} */
export class CanvasPainter {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.c = context;
    this.font = "";
  }
  /** @param {number} part */
  alpha(part) {
    this.c.globalAlpha = part;
  }
  /** @type {Painter["rect"]} */
  rect(x, y, w, h, r, fill, stroke, width, dash) {
    const c = this.c;
    if (w < 6 || h < 6) {
      c.fillStyle = stroke || fill;
      c.fillRect(x, y, Math.max(w, 0.75), Math.max(h, 0.75));
      return;
    }
    c.beginPath();
    if (r > 0.5) c.roundRect(x, y, w, h, r);
    else c.rect(x, y, w, h);
    if (fill) {
      c.fillStyle = fill;
      c.fill();
    }
    if (stroke) {
      this.stroke(stroke, width, dash);
    }
  }
  begin() {
    this.c.beginPath();
  }
  /** @param {number} x @param {number} y */
  move(x, y) {
    this.c.moveTo(x, y);
  }
  /** @param {number} x @param {number} y */
  line(x, y) {
    this.c.lineTo(x, y);
  }
  /** @type {Painter["curve"]} */
  curve(a, b, c, d, x, y) {
    this.c.bezierCurveTo(a, b, c, d, x, y);
  }
  /** @type {Painter["stroke"]} */
  stroke(color, width, dash) {
    this.c.strokeStyle = color;
    this.c.lineWidth = width;
    if (dash) this.c.setLineDash(dash);
    this.c.stroke();
    if (dash) this.c.setLineDash([]);
  }
  /** @param {string} color */
  fill(color) {
    this.c.fillStyle = color;
    this.c.fill();
  }
  /** @type {Painter["text"]} */
  text(text, x, y, size, color, how = {}) {
    const c = this.c,
      font = `${how.strong ? 600 : 400} ${Math.round(size * 4) / 4}px ${FONT}`;
    if (this.font !== font) c.font = this.font = font;
    c.textAlign = how.middle ? "center" : "left";
    if (how.halo) {
      c.strokeStyle = how.halo;
      c.lineWidth = 4;
      c.lineJoin = "round";
      c.strokeText(text, x, y);
    }
    c.fillStyle = color;
    c.fillText(text, x, y);
  }
}

/** @implements {Painter} */
export class SvgPainter {
  constructor() {
    /** @type {string[]} */
    this.parts = [];
    this.path = "";
    this.part = 1;
  }
  /** @param {number} part */
  alpha(part) {
    this.part = part;
  }
  #fade() {
    return this.part < 1 ? ` opacity="${this.part}"` : "";
  }
  /** @type {Painter["rect"]} */
  rect(x, y, w, h, r, fill, stroke, width, dash) {
    const edge = stroke
      ? ` stroke="${stroke}" stroke-width="${short(width)}"${dash ? ` stroke-dasharray="${dash.join(" ")}"` : ""}`
      : "";
    this.parts.push(
      `<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}" rx="${short(r)}" fill="${fill || "none"}"${edge}${this.#fade()}/>`,
    );
  }
  begin() {
    this.path = "";
  }
  /** @param {number} x @param {number} y */
  move(x, y) {
    this.path += `M${short(x)} ${short(y)}`;
  }
  /** @param {number} x @param {number} y */
  line(x, y) {
    this.path += `L${short(x)} ${short(y)}`;
  }
  /** @type {Painter["curve"]} */
  curve(a, b, c, d, x, y) {
    this.path += `C${[a, b, c, d, x, y].map(short).join(" ")}`;
  }
  /** @type {Painter["stroke"]} */
  stroke(color, width, dash) {
    if (!this.path) return;
    const dashes = dash ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.parts.push(
      `<path d="${this.path}" fill="none" stroke="${color}" stroke-width="${short(width)}"${dashes}${this.#fade()}/>`,
    );
  }
  /** @param {string} color */
  fill(color) {
    if (this.path) this.parts.push(`<path d="${this.path}" fill="${color}"${this.#fade()}/>`);
  }
  /** @type {Painter["text"]} */
  text(text, x, y, size, color, how = {}) {
    const look =
      (how.middle ? ' text-anchor="middle"' : "") + (how.strong ? ' font-weight="600"' : "");
    const halo = how.halo
      ? ` paint-order="stroke" stroke="${how.halo}" stroke-width="4" stroke-linejoin="round"`
      : "";
    this.parts.push(
      `<text x="${short(x)}" y="${short(y)}" font-size="${short(size)}" fill="${color}"${look}${halo}${this.#fade()}>${escaped(text)}</text>`,
    );
  }
  /** @param {number} w @param {number} h @param {string} background @param {string} title */
  document(w, h, background, title) {
    const size = `width="${Math.ceil(w)}" height="${Math.ceil(h)}" viewBox="0 0 ${Math.ceil(w)} ${Math.ceil(h)}"`;
    const font = escaped(FONT);
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${font}" role="img"><title>${escaped(title)}</title>` +
      `<rect width="100%" height="100%" fill="${background}"/>\n${this.parts.join("\n")}\n</svg>\n`
    );
  }
}

/** @param {number} v */
function short(v) {
  return String(Math.round(v * 10) / 10);
}

/** @param {string} text */
export function escaped(text) {
  return (
    text
      .replace(/&/g, "&amp;")
      .replace(/</g, "&lt;")
      .replace(/>/g, "&gt;")
      .replace(/"/g, "&quot;")
      // eslint-disable-next-line no-control-regex
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
  );
}
