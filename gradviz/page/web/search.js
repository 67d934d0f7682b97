/** Finds ops, modules, names and lines of code by a part of their text. Pure: the list of matches for a query. */
import { DATA, OUTPUT } from "./model.js";

/** @typedef {import("./facts.js").Facts} Facts */

/**
 * Items that match, names before types and these before lines of code, groups before what is in them. A module matches by its path, once for each call; an op by its names of either
 * kind, its variables, and its line of code; a leaf and an output by name.
 * @param {Facts} facts @param {string} query
 * @returns {number[]}
 */
export function search(facts, query) {
  const needle = query.trim().toLowerCase();
  if (!needle) return [];
  const model = facts.model;
  const has = (/** @type {string} */ text) => text.toLowerCase().includes(needle);
  /** How well a name matches: 4 whole, 3 from its start, 2 elsewhere. @param {string} text */
  const named = (text) => {
    const name = text.toLowerCase(),
      last = name.slice(name.lastIndexOf(".") + 1);
    return name === needle || last === needle
      ? 4
      : name.startsWith(needle) || last.startsWith(needle)
        ? 3
        : name.includes(needle)
          ? 2
          : 0;
  };
  const best = (/** @type {string[]} */ list) =>
    list.reduce((most, text) => Math.max(most, named(text)), 0);
  const texts = facts.texts.map(has),
    names = facts.names.map(best);
  const sources = facts.sources.map(
    ([file, line, name, text]) => has(`${file}:${line}`) || has(name) || has(text),
  );
  const scopes = facts.scopes.map(
    (/** @type {{path: string, type: string}} */ scope) =>
      named(scope.path) || (has(scope.type) ? 1.5 : 0),
  );
  const matchesCell = (/** @type {number} */ cell) => {
    const node = facts.nodeOf(cell);
    if (model.kind[cell] === OUTPUT) return named(facts.roots[node - facts.nodes].name);
    if (model.kind[cell] === DATA)
      return Math.max(
        ...facts.dataOf(node).map((data) => best(data.names)),
        named(model.title(cell)),
      );
    const leaf = facts.leafOf.get(node);
    if (leaf) return best(leaf.names);
    const c = facts.c,
      line = c.source[node],
      script = c.scriptLine[node];
    const own = Math.max(names[c.name[node]], named(model.title(cell)));
    return (
      own ||
      (texts[c.op[node]] || texts[c.forward[node]]
        ? 1.5
        : (line >= 0 && sources[line]) || (script >= 0 && sources[script])
          ? 1
          : 0)
    );
  };
  const matchesGroup = (/** @type {number} */ g) => {
    if (model.scope[g] >= 0) return scopes[model.scope[g]];
    return named(model.title(~g));
  };
  /** @type {[number, number][]} */
  const found = [];
  const waiting = [~0];
  while (waiting.length) {
    const item = /** @type {number} */ (waiting.pop());
    if (item >= 0) {
      const rank = matchesCell(item);
      if (rank) found.push([rank, item]);
      continue;
    }
    const g = ~item;
    const rank = g ? matchesGroup(g) : 0;
    if (rank) found.push([rank, item]);
    for (let i = model.shape(g).children - 1; i >= 0; i--) waiting.push(model.item(g, i));
  }
  return found.sort((a, b) => b[0] - a[0]).map(([, item]) => item);
}
