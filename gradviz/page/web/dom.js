/** Small helpers for elements. All text goes through `textContent`: names from the user's program are data. */

/**
 * An element with properties, attributes (with a dash or in lower case as HTML writes them) and children.
 * @param {string} tag
 * @param {{[name: string]: any}} [given]
 * @param {...(Node | string | null)} children
 * @returns {HTMLElement}
 */
export function el(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/** A whole number with separators. @param {number | bigint} n */
export function count(n) {
  return n.toLocaleString("en-US");
}

/** @param {number} n @param {string} one @param {string} [many] */
export function plural(n, one, many) {
  return `${count(n)} ${n === 1 ? one : many || `${one}s`}`;
}

/** Says something to readers of screens. @param {string} text */
export function say(text) {
  byId("said").textContent = text;
}
