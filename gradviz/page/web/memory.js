/** Which modules and lines hold memory for backward, as bars: each goes to its boxes. */
import { byId, el } from "./dom.js";
import { bytesText } from "./overlay.js";
import { sumsOf } from "./code.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {{text: string, bytes: number, go: () => void}} Bar */

const BARS = 25;

/** Bytes of the ops that ran in a module itself, all its calls together. @param {App} app @param {Facts} facts @returns {Bar[]} */
export function byModule(app, facts) {
  /** @type {Map<string, {bytes: number, most: number, node: number}>} */
  const sums = new Map();
  for (let node = 0; node < facts.nodes; node++) {
    const held = Number(facts.c.held[node]), scope = facts.scopeOf(node), path = scope ? scope.path || scope.type : "outside every module";
    if (!held) continue;
    const here = sums.get(path) || { bytes: 0, most: 0, node };
    sums.set(path, { bytes: here.bytes + held, most: Math.max(here.most, held), node: held > here.most ? node : here.node });
  }
  return [...sums].map(([text, { bytes, node }]) => ({ text, bytes, go: () => app.visit(groupOf(app, facts, node)) }));
}

/** The module call around a node, or its own box where there is none. @param {App} app @param {Facts} facts @param {number} node */
function groupOf(app, facts, node) {
  const { model } = app, cell = facts.cellOf[node];
  for (let g = model.cellGroup[cell]; g > 0; g = model.parent[g]) if (model.scope[g] === facts.c.scope[node]) return ~g;
  return cell;
}

/** @param {App} app @param {Facts} facts @param {Iterable<import("./code.js").Line>} lines @returns {Bar[]} */
function byLine(app, facts, lines) {
  return [...lines].map((line) => ({ text: `${line.file}:${line.line}  ${line.text}`, bytes: sumsOf(facts, line).bytes, go: () => app.choose(line) }));
}

/** @param {string} title @param {Bar[]} bars @param {string} kind "path" where the end of a text tells most */
function list(title, bars, kind) {
  const sorted = bars.filter((bar) => bar.bytes).sort((a, b) => b.bytes - a.bytes), most = sorted[0]?.bytes || 1;
  const rows = sorted.slice(0, BARS).map(({ text, bytes, go }) => {
    const bar = el("div", { class: "bar" });
    bar.style.width = `${(100 * bytes) / most}%`;
    return el("li", {}, el("button", { onclick: go, title: text }, el("span", { class: `what ${kind}` }, el("bdi", { text })), el("span", { text: bytesText(bytes) }), bar));
  });
  if (sorted.length > BARS) rows.push(el("li", { text: `+${sorted.length - BARS} more` }));
  return sorted.length ? [el("h2", { text: title }), el("ol", {}, ...rows)] : [];
}

/** @param {App} app @param {import("./code.js").Code} code */
export function setUpMemory(app, code) {
  app.on("facts", () => {
    const facts = /** @type {Facts} */ (app.facts), bars = list("held for backward, by module", byModule(app, facts), "path");
    byId("memory").replaceChildren(...bars, ...list("by line of your code", byLine(app, facts, code.lines.values()), ""));
    byId("tab-memory").hidden = !bars.length;
  });
}
