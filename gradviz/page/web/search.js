/**
 * The search field: finds ops, modules, names, shapes and lines of code, counts what matches, and
 * visits one match after another.
 */
import { facts, model, visit } from "./app.js";
import {
  alike,
  byId,
  clamp,
  count,
  el,
  joined,
  onClick,
  pattern,
  say,
  times,
  together
} from "./dom.js";
import { absentRow, absentWith } from "./lists.js";
import { DATA, OUTPUT } from "./model.js";

/**
 * How well a name matches: 4 whole, 3 from its start, 2 elsewhere, 0 not at all.
 * @param {string} text
 * @param {string} needle
 */
function named(text, needle) {
  const name = text.toLowerCase();
  const last = name.slice(name.lastIndexOf(".") + 1);
  if (name === needle || last === needle) return 4;
  if (name.startsWith(needle) || last.startsWith(needle)) return 3;
  return name.includes(needle) ? 2 : 0;
}

/**
 * A shape as `64,768`, of `(64, 768)`, `[64, 768]`, `64x768` or `64 × 768`; "" of what is none.
 * @param {string} query
 */
function shapeOf(query) {
  const text = query.replace(/[()[\]\s]/g, "").replace(/[x×]/g, ",");
  return /^\d+(,\d*)+$/.test(text) ? text : "";
}

/**
 * Items that match, names before types and these before lines of code, groups before what is in
 * them. A module matches by its path, once for each call; an op by its names of either kind, its
 * variables, the shapes of what it made, and its line of code; a leaf and an output by name and
 * shape.
 * @param {string} query
 * @returns {number[]}
 */
export function search(query) {
  const needle = query.trim().toLowerCase();
  if (!needle) return [];
  const has = (/** @type {string} */ text) => text.toLowerCase().includes(needle);
  const best = (/** @type {string[]} */ texts) =>
    texts.reduce((most, text) => Math.max(most, named(text, needle)), 0);
  const shape = shapeOf(needle);
  const hasShape = (/** @type {number} */ node) =>
    facts.tensorsOf(node).some((tensor) => `${tensor.replaceAll(" ", "")}`.includes(`(${shape}`));
  const { c } = facts;
  const texts = facts.texts.map(has);
  const names = facts.names.map(best);
  const sources = facts.sources.map(([file, line, name, text]) =>
    [`${file}:${line}`, name, text].some(has)
  );
  const scopes = facts.scopes.map(({ path, type }) => best([path]) || (has(type) ? 1.5 : 0));

  /** @param {number} cell */
  function rankOfCell(cell) {
    const node = facts.nodeOf(cell);
    const leaf = facts.leafOf.get(node);
    if (shape && hasShape(node)) return 2;
    if (model.kind[cell] === OUTPUT) return best([facts.roots[node - facts.nodes].name]);
    if (model.kind[cell] === DATA)
      return best([model.title(cell), ...facts.dataOf(node).flatMap((data) => data.names)]);
    if (leaf) return best(leaf.names);
    const own = Math.max(names[c.name[node]], best([model.title(cell)]));
    if (own || texts[c.op[node]] || texts[c.forward[node]]) return own || 1.5;
    return facts.sourcesOf(node).some((source) => sources[source]) ? 1 : 0;
  }

  /** @type {[number, number][]} */
  const found = [];
  const waiting = [~0];
  while (waiting.length) {
    const item = /** @type {number} */ (waiting.pop());
    const scope = item < 0 ? model.scope[~item] : -1;
    let rank = 0;
    if (item >= 0) rank = rankOfCell(item);
    else if (item !== ~0) rank = scope >= 0 ? scopes[scope] : best([model.title(item)]);
    if (rank) found.push([rank, item]);
    if (item < 0) waiting.push(...model.itemsOf(~item).reverse());
  }
  return found.sort(([a], [b]) => b - a).map(([, item]) => item);
}

// -- the field -----------------------------------------------------------------------------------

const SHOWN = 10;

const field = /** @type {HTMLInputElement} */ (byId("search"));
/** Matches, alike ones in one row, and the one that is visited. */
export const finder = {
  /** @type {number[]} */
  found: [],
  /** @type {number[][]} */
  rows: [],
  place: -1
};

export function setUpSearch() {
  field.addEventListener("input", look);
  field.addEventListener("keydown", (event) => {
    const keys = {
      Enter: () => next(event.shiftKey ? -1 : 1),
      ArrowDown: () => nextRow(1),
      ArrowUp: () => nextRow(-1),
      Escape: () => {
        field.value = "";
        look();
        byId("canvas").focus();
      }
    }[event.key];
    if (!keys) return;
    event.preventDefault();
    keys();
    if (event.key === "Enter") list(false);
  });
  field.addEventListener("blur", () => setTimeout(() => list(false), 150));
  field.addEventListener("focus", () => list(true));
  onClick("search-next", () => next(1));
  onClick("search-before", () => next(-1));
  look();
}

/**
 * What a row has in common: matches that differ only in the number of their layer are one row.
 * @param {number} item
 */
function keyOf(item) {
  const title = model.title(item);
  const words = [item < 0 ? pattern(title) : title, model.type(item), model.line(item)];
  return [...words, pattern(facts.pathOf(item))].join("\n");
}

function look() {
  finder.rows = alike(search(field.value), keyOf);
  finder.found = finder.rows.flat();
  finder.place = -1;
  tell();
}

/** The row of the match that is visited, -1 before one is. */
const currentRow = () =>
  finder.rows.findIndex((items) => items.includes(finder.found[finder.place]));

/** The best matches, where the field is in use. @param {boolean} shown */
function list(shown) {
  const { rows } = finder;
  const box = byId("found");
  const now = currentRow();
  const first = clamp(now - SHOWN + 1, 0, Math.max(0, rows.length - SHOWN));
  const absent = field.value.trim() ? absentWith(field.value).slice(0, SHOWN) : [];
  box.hidden = !shown || !(rows.length + absent.length);
  field.setAttribute("aria-expanded", String(!box.hidden));
  const matches = rows
    .slice(first, first + SHOWN)
    .map((items, i) => matchRow(items, first + i, now));
  const others = { role: "option", "aria-selected": "false", "aria-disabled": "true" };
  box.replaceChildren(...matches, ...absent.map((equal) => absentRow(equal, others)));
  field.setAttribute("aria-activedescendant", now < 0 ? "" : `found-${now}`);
}

/** @param {number[]} items @param {number} row @param {number} now */
function matchRow(items, row, now) {
  const title =
    items[0] < 0 ? together(items.map((item) => model.title(item))) : model.title(items[0]);
  const path = together(items.map((item) => facts.pathOf(item)));
  const words = [path && `in ${path}`, model.type(items[0]), model.line(items[0])];
  const attributes = {
    role: "option",
    id: `found-${row}`,
    "aria-selected": String(row === now),
    onpointerdown: (/** @type {Event} */ event) => {
      event.preventDefault();
      visitMatch(finder.found.indexOf(items[0]));
    }
  };
  return el(
    "li",
    attributes,
    el("strong", title + times(items.length)),
    el("span", joined(words, " · "))
  );
}

/**
 * Along a list of this length, from a place or from outside.
 * @param {number} place
 * @param {number} by
 * @param {number} length
 */
function along(place, by, length) {
  if (place < 0) return by > 0 ? 0 : length - 1;
  return (place + by + length) % length;
}

/** @param {number} by */
function next(by) {
  if (finder.found.length) visitMatch(along(finder.place, by, finder.found.length));
}

/** To the first match of the next row. @param {number} by */
function nextRow(by) {
  const { rows, found } = finder;
  if (rows.length) visitMatch(found.indexOf(rows[along(currentRow(), by, rows.length)][0]));
}

/** @param {number} place */
function visitMatch(place) {
  const { found } = finder;
  finder.place = place;
  visit(found[place]);
  tell();
  say(`match ${place + 1} of ${found.length}: ${model.title(found[place])}`);
}

function tell() {
  list(document.activeElement === field);
  const n = finder.found.length;
  const isEmpty = !field.value.trim();
  const words = finder.place < 0 ? count(n) : `${count(finder.place + 1)}/${count(n)}`;
  byId("search-count").textContent = isEmpty ? "" : words;
  byId("search-count").classList.toggle("none", !isEmpty && n === 0);
  for (const id of ["search-next", "search-before"]) byId(id).hidden = n === 0;
}
