/**
 * Elements of the page, and the words that all of them use for numbers and lists. All text goes
 * through `textContent`: names from the user's program are data.
 */

/** What stands in an element. @typedef {Node | string | number} Content */

/**
 * An element: `el("p.small", "text")`, `el("button", { onclick }, "text", ...more)`.
 * @param {string} kind a tag, and classes behind dots
 * @param {...(Content | null | {[name: string]: any})} parts what stands in it, attributes and
 *   listeners
 * @returns {HTMLElement}
 */
export function el(kind, ...parts) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const part of parts) {
    if (part instanceof Node) element.append(part);
    else if (typeof part === "object") setAttributes(element, part || {});
    else element.append(String(part));
  }
  return element;
}

/** @param {HTMLElement} element @param {{[name: string]: any}} attributes */
function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
}

/** An element of page.html. @param {string} id @returns {any} of the class that it has there */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/** @param {string} id @param {() => void} act */
export const onClick = (id, act) => byId(id).addEventListener("click", act);

/** Says something to readers of screens. @param {string} text */
export const say = (text) => (byId("said").textContent = text);

/** Whether the screen is that of a phone: the sides lie over the graph. */
export const isNarrow = () => matchMedia("(max-width: 720px)").matches;

/** Whether the reader wants no motion. */
export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A canvas of this size in CSS pixels, sharp on every screen, and empty. */
export function canvasOf(/** @type {HTMLCanvasElement} */ canvas, width = 0, height = 0) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// -- words ---------------------------------------------------------------------------------------

/** A number, or the end of the range that is next to it. */
export const clamp = (
  /** @type {number} */ n,
  /** @type {number} */ low,
  /** @type {number} */ high
) => Math.max(low, Math.min(high, n));

/** @param {Iterable<number>} numbers */
export const sum = (numbers) => Array.from(numbers).reduce((a, b) => a + b, 0);

/** A whole number with separators. @param {number | bigint} n */
export const count = (n) => n.toLocaleString("en-US");

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/**
 * A measured value behind these words, "" for null.
 * @param {number | string | null} value
 */
export const measured = (value, words = "") => (value === null ? "" : `${words}${value}`);

/**
 * Parts that are not empty, with this between them.
 * @param {string[]} parts
 * @param {string} mark
 */
export const joined = (parts, mark) => parts.filter(Boolean).join(mark);

/** @param {number} bytes */
export function bytesText(bytes) {
  if (Math.abs(bytes) < 1024) return `${bytes} B`;
  let size = bytes;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    size /= 1024;
    if (Math.abs(size) < 1023.95) return `${size.toFixed(1)} ${unit}`;
  }
  return `${(size / 1024).toFixed(1)} PiB`;
}

/**
 * A number in three digits; a word stands for what is not finite.
 * @param {number | string} value
 */
export function short3(value) {
  if (typeof value === "string") return value;
  if (value && Math.abs(value) < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

// -- what is alike is said once: `blocks.0–11.mlp ×12` -------------------------------------------

/** A path without its number in the outermost list. @param {string} path */
export const pattern = (path) => path.replace(/(^|\.)\d+(?=[.\s]|$)/, "$1#");

/** Paths of one pattern as one: `blocks.0–11.mlp`, or `net.1, 4`. @param {string[]} paths */
export function together(paths) {
  const start = pattern(paths[0]).indexOf("#");
  if (start < 0) return paths[0];
  const found = new Set(paths.map((path) => parseInt(path.slice(start), 10)));
  const numbers = [...found].sort((a, b) => a - b);
  const first = numbers[0];
  const last = numbers[numbers.length - 1];
  let words = numbers.join(", ");
  if (numbers.length > 2 && last - first === numbers.length - 1) words = `${first}–${last}`;
  else if (numbers.length > 4) words = `${first} … ${last}`;
  return paths[0].slice(0, start) + words + paths[0].slice(start).replace(/^\d+/, "");
}

/**
 * Lists of what has one key, in the order in which the keys come.
 * @template T
 * @param {Iterable<T>} all
 * @param {(one: T) => string | number} key
 */
export const alike = (all, key) => [...Map.groupBy(all, key).values()];

/** `×12` behind a text, nothing for one. @param {number} n */
export const times = (n) => (n > 1 ? ` ×${count(n)}` : "");

// -- parts of the panel and of the lists at the side ---------------------------------------------

/** @param {string} title @param {...Node} content */
export const section = (title, ...content) => el("section", el("h3", title), ...content);

/** A name and its value. @typedef {[string, Content | false | undefined]} Row */

/** Names and values; rows without a value are left out. @param {Row[]} rows */
export function table(rows) {
  const list = el("dl");
  for (const [name, value] of rows) if (value) list.append(el("dt", name), el("dd", value));
  return list;
}

/**
 * A row with a bar, as a part of the widest one.
 * @typedef {{text: string, amount: string, part?: number, go: () => void}} Bar
 */

/**
 * Rows of the first of some, and how many more there are.
 * @template T
 * @param {T[]} all
 * @param {number} most
 * @param {(one: T) => HTMLElement} row
 */
export function limited(all, most, row) {
  const rows = all.slice(0, most).map(row);
  if (all.length > most) rows.push(el("li.small", `+${count(all.length - most)} more`));
  return rows;
}

const BARS = 25;

/**
 * Rows with bars, each goes to its boxes.
 * @param {string} title
 * @param {Bar[]} bars
 * @param {string} [kind] "path" where the end of a text tells most
 */
export function barList(title, bars, kind = "") {
  if (!bars.length) return [];
  const rows = limited(bars, BARS, ({ text, amount, part, go }) => {
    const bar = el("div.bar", { hidden: part === undefined });
    bar.style.width = `${100 * (part || 0)}%`;
    const what = el("span", { class: `what ${kind}` }, el("bdi", text));
    return el("li", el("button", { onclick: go, title: text }, what, el("span", amount), bar));
  });
  return [el("h2", title), el("ol.bars", ...rows)];
}
