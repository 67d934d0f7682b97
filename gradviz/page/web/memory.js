/** Which modules and lines hold memory for backward, as bars: each goes to its boxes. */
import { alike, pattern, times, together } from "./alike.js";
import { barList } from "./bars.js";
import { byId } from "./dom.js";
import { bytesText } from "./overlay.js";
import { sumsOf } from "./code.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {{text: string, bytes: number, go: () => void}} Held */

/** Bytes of the ops that ran in a module itself, all its calls together; equal ones of alike modules are one. @param {App} app @param {Facts} facts @returns {Held[]} */
export function byModule(app, facts) {
  /** @type {Map<string, {path: string, bytes: number, most: number, node: number}>} */
  const sums = new Map();
  for (let node = 0; node < facts.nodes; node++) {
    const held = Number(facts.c.held[node]),
      scope = facts.scopeOf(node),
      path = scope ? scope.path || scope.type : "outside every module";
    if (!held) continue;
    const here = sums.get(path) || { path, bytes: 0, most: 0, node };
    sums.set(path, {
      path,
      bytes: here.bytes + held,
      most: Math.max(here.most, held),
      node: held > here.most ? node : here.node,
    });
  }
  return alike(sums.values(), ({ path, bytes }) => `${pattern(path)} ${bytes}`).map((equal) => ({
    text: together(equal.map(({ path }) => path)) + times(equal.length),
    bytes: equal.reduce((sum, { bytes }) => sum + bytes, 0),
    go: () => app.visit(groupOf(app, facts, app.clearest(equal.map(({ node }) => node)))),
  }));
}

/** The module call around a node, or its own box where there is none. @param {App} app @param {Facts} facts @param {number} node */
function groupOf(app, facts, node) {
  const { model } = app,
    cell = facts.cellOf[node];
  for (let g = model.cellGroup[cell]; g > 0; g = model.parent[g])
    if (model.scope[g] === facts.c.scope[node]) return ~g;
  return cell;
}

/** @param {App} app @param {Facts} facts @returns {Held[]} */
function byLine(app, facts) {
  return [...app.lines.values()].map((line) => ({
    text: `${line.file}:${line.line}  ${line.text}`,
    bytes: sumsOf(facts, line).bytes,
    go: () => app.choose(line),
  }));
}

/** @param {string} title @param {Held[]} held @param {string} [kind] */
function list(title, held, kind) {
  const sorted = held.filter(({ bytes }) => bytes).sort((a, b) => b.bytes - a.bytes);
  return barList(
    title,
    sorted.map(({ text, bytes, go }) => ({
      text,
      amount: bytesText(bytes),
      part: bytes / sorted[0].bytes,
      go,
    })),
    kind,
  );
}

/** @param {App} app */
export function setUpMemory(app) {
  app.on("facts", () => {
    const facts = /** @type {Facts} */ (app.facts),
      bars = list("held for backward, by module", byModule(app, facts), "path");
    byId("memory").replaceChildren(...bars, ...list("by line of your code", byLine(app, facts)));
    byId("tab-memory").hidden = !bars.length;
  });
}
