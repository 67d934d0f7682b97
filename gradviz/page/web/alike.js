/** Modules that differ only in their number in the outermost list are said once: `blocks.0–11.mlp ×12`. */

/** @param {string} path */
export const pattern = (path) => path.replace(/(^|\.)\d+(?=\.|$)/, "$1#");

/** Paths of one pattern as one: `blocks.0–11.mlp`, or `net.1, 4` where numbers are left out. @param {string[]} paths */
export function together(paths) {
  const at = pattern(paths[0]).indexOf("#");
  if (at < 0) return paths[0];
  const numbers = [...new Set(paths.map((path) => parseInt(path.slice(at), 10)))].sort(
      (a, b) => a - b,
    ),
    n = numbers.length,
    last = numbers[n - 1];
  const words =
    n > 2 && last - numbers[0] === n - 1
      ? `${numbers[0]}–${last}`
      : n > 4
        ? `${numbers[0]} … ${last}`
        : numbers.join(", ");
  return paths[0].slice(0, at) + words + paths[0].slice(at).replace(/^\d+/, "");
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
