/** Finds ops, modules, names and lines of code by a part of their text. Pure: the list of matches for a query. */
import { OUTPUT } from "./model.js";

/** @typedef {import("./facts.js").Facts} Facts */

/**
 * Items that match, groups before what is in them. A module matches by its path, once for each call; an op by its names of either
 * kind, its variables, and its line of code; a leaf and an output by name.
 * @param {Facts} facts @param {string} query
 * @returns {number[]}
 */
export function search(facts, query) {
  const needle = query.trim().toLowerCase();
  if (!needle) return [];
  const model = facts.model;
  const has = (/** @type {string} */ text) => text.toLowerCase().includes(needle);
  const texts = facts.texts.map(has), names = facts.names.map((list) => list.some(has));
  const sources = facts.sources.map(([file, line, name, text]) => has(`${file}:${line}`) || has(name) || has(text));
  const scopes = facts.scopes.map((/** @type {{path: string, type: string}} */ scope) => has(scope.path) || has(scope.type));
  const matchesCell = (/** @type {number} */ cell) => {
    const node = facts.nodeOf(cell);
    if (model.kind[cell] === OUTPUT) return has(facts.roots[node - facts.nodes].name);
    const leaf = facts.leafOf.get(node);
    if (leaf) return leaf.names.some(has);
    const c = facts.c, line = c.source[node], script = c.scriptLine[node];
    return texts[c.op[node]] || texts[c.forward[node]] || names[c.name[node]] || (line >= 0 && sources[line]) || (script >= 0 && sources[script]);
  };
  const matchesGroup = (/** @type {number} */ g) => {
    if (model.scope[g] >= 0) return scopes[model.scope[g]];
    return has(model.title(~g));
  };
  const found = [];
  const waiting = [~0];
  while (waiting.length) {
    const item = /** @type {number} */ (waiting.pop());
    if (item >= 0) {
      if (matchesCell(item)) found.push(item);
      continue;
    }
    const g = ~item;
    if (g && matchesGroup(g)) found.push(item);
    for (let i = model.shape(g).children - 1; i >= 0; i--) waiting.push(model.item(g, i));
  }
  return found;
}
