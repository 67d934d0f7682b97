/** Modules that differ only in their number in the outermost list are said once: `blocks.0–11.mlp ×12`. */

/** @param {string} path */
export const pattern = (path) => path.replace(/(^|\.)\d+(?=\.|$)/, "$1#");

/** Paths of one pattern as one, with the range of their numbers. @param {string[]} paths */
export function together(paths) {
  const at = pattern(paths[0]).indexOf("#"), numbers = at < 0 ? [0] : paths.map((path) => parseInt(path.slice(at), 10)), first = String(numbers[0]);
  const low = numbers.reduce((a, b) => Math.min(a, b)), high = numbers.reduce((a, b) => Math.max(a, b));
  return low < high ? `${paths[0].slice(0, at)}${low}–${high}${paths[0].slice(at + first.length)}` : paths[0];
}

/** Lists of what has one key, in the order in which the keys come. @template T @param {Iterable<T>} all @param {(one: T) => string} key @returns {T[][]} */
export function alike(all, key) {
  const found = new Map();
  for (const one of all) {
    const here = found.get(key(one));
    if (here) here.push(one);
    else found.set(key(one), [one]);
  }
  return [...found.values()];
}

/** `×12` behind a text, nothing for one. @param {number} n */
export const times = (n) => (n > 1 ? ` ×${n.toLocaleString("en-US")}` : "");
