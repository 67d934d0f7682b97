/**
 * The lists at the side, each on a tab: code, memory and parameters, gradients, changes, findings,
 * and what gets no gradient.
 */
import { app, chooseLine, clearest, facts, model, on, selectedNodes, visit } from "./app.js";
import {
  alike,
  barList,
  byId,
  bytesText,
  count,
  el,
  joined,
  measured,
  pattern,
  plural,
  short3,
  times,
  together
} from "./dom.js";
import { OP } from "./model.js";
import { overlay } from "./overlay.js";

/** @import { Bar } from "./dom.js" */
/** @import { Line } from "./facts.js" */

const TABS = ["outline", "code", "memory", "gradients", "changes", "findings"];

/** @param {string} name */
const pane = (name) => byId(name === "findings" ? "findings-box" : name);
/** @param {string} name */
const tab = (name) => byId(`tab-${name}`);

export function setUpLists() {
  fillCode();
  byId("memory").append(...memoryLists());
  byId("gradients").append(...gradientLists());
  if (facts.c.diff) byId("changes").append(...changeLists());
  fillAbsent();
  fillFindings();
  for (const name of TABS) tab(name).addEventListener("click", () => showTab(name));
  byId("tabs").addEventListener("keydown", alongTabs);
  tab("code").hidden = !facts.head.code.length;
  tab("memory").hidden = !byId("memory").children.length;
  tab("changes").hidden = !facts.c.diff;
  tab("findings").hidden = !facts.marks.length;
  const first = facts.c.diff ? "changes" : "outline";
  showTab(facts.marks.length ? "findings" : first);
}

/** @param {string} name */
export function showTab(name) {
  for (const one of TABS) {
    tab(one).setAttribute("aria-selected", String(one === name));
    tab(one).tabIndex = one === name ? 0 : -1;
    pane(one).hidden = one !== name;
  }
  byId("side").dataset.tab = name;
  const code = byId("code");
  const first = code.querySelector("button.on") || code.querySelector("button");
  if (name === "code" && first && !code.scrollTop) first.scrollIntoView({ block: "center" });
}

/** @param {KeyboardEvent} event */
function alongTabs(event) {
  const shown = TABS.filter((name) => !tab(name).hidden);
  const place = shown.findIndex((name) => tab(name) === document.activeElement);
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (by === undefined || place < 0) return;
  event.stopPropagation();
  const next = shown[(place + by + shown.length) % shown.length];
  tab(next).focus();
  showTab(next);
}

// -- code: a line lights the boxes that it made, a box lights its lines --------------------------

/** @type {Map<string, HTMLElement>} */
const codeRows = new Map();

function fillCode() {
  const list = byId("code");
  for (const [file, numbers, texts, missing] of facts.head.code) {
    list.append(el("h2", file));
    if (missing) list.append(el("p.small", `Only lines that made ops: ${missing}.`));
    numbers.forEach((/** @type {number} */ number, /** @type {number} */ i) => {
      if (i && number > numbers[i - 1] + 1) list.append(el("div.line.gap", "⋯"));
      const words = [el("span.number", number), el("code", texts[i])];
      const line = facts.lines().get(`${file}:${number}`);
      list.append(line ? lineButton(line, words) : el("div.line", ...words));
    });
  }
  on("select", markLines);
}

/** @param {Line} line @param {Node[]} words */
function lineButton(line, words) {
  const { bytes, norm } = facts.sumsOf(line.nodes);
  const ops = plural(line.nodes.length, "op");
  const holds = bytes ? `holds ${bytesText(bytes)}` : "";
  const title = joined([ops, holds, measured(norm, "gradient norm up to ")], ", ");
  const onclick = () => chooseLine(line);
  const row = el("button.line", { title, onclick }, ...words, el("span.ops", ops));
  codeRows.set(`${line.file}:${line.line}`, row);
  return row;
}

/** Show which lines made what is selected. */
function markLines() {
  const { line } = app;
  const sources = selectedNodes()
    .flatMap((node) => facts.sourcesOf(node))
    .map((i) => facts.sources[i]);
  const lit = new Set(sources.map(([file, number]) => `${file}:${number}`));
  if (line) lit.add(`${line.file}:${line.line}`);
  for (const [key, row] of codeRows) row.classList.toggle("on", lit.has(key));
  if (!line) byId("code").querySelector(".on")?.scrollIntoView({ block: "center" });
}

// -- memory and parameters -----------------------------------------------------------------------

/** An amount, and where it is. @typedef {{text: string, amount: number, go: () => void}} Amount */

/**
 * @param {string} title
 * @param {Amount[]} amounts
 * @param {(amount: number) => string} text
 * @param {string} [kind]
 */
function amountList(title, amounts, text, kind) {
  const sorted = amounts.filter(({ amount }) => amount).sort((a, b) => b.amount - a.amount);
  const bars = sorted.map((one) => ({
    ...one,
    amount: text(one.amount),
    part: one.amount / sorted[0].amount
  }));
  return barList(title, bars, kind);
}

function memoryLists() {
  const lines = [...facts.lines().values()].map((line) => ({
    text: `${line.file}:${line.line}  ${line.text}`,
    amount: facts.sumsOf(line.nodes).bytes,
    go: () => chooseLine(line)
  }));
  return [
    ...amountList("held for backward, by module", byModule(), bytesText, "path"),
    ...amountList("by line of your code", lines, bytesText),
    ...amountList("parameters, by module", parametersByModule(), count, "path")
  ];
}

/**
 * Bytes of the ops that ran in a module itself, all its calls together; equal ones of alike modules
 * are one.
 * @returns {Amount[]}
 */
export function byModule() {
  const { held } = facts.c;
  const holding = [...held.keys()].filter((node) => held[node]);
  const path = (/** @type {number} */ node) => {
    const scope = facts.scopeOf(node);
    return scope ? scope.path || scope.type : "outside every module";
  };
  const modules = alike(holding, path).map((nodes) => ({
    path: path(nodes[0]),
    bytes: facts.sumsOf(nodes).bytes,
    node: nodes.reduce((most, node) => (held[node] > held[most] ? node : most))
  }));
  return alike(modules, (module) => `${pattern(module.path)} ${module.bytes}`).map((equal) => ({
    text: together(equal.map((module) => module.path)) + times(equal.length),
    amount: equal.length * equal[0].bytes,
    go: () => visit(facts.callOf(clearest(equal.map(({ node }) => node))))
  }));
}

/** Parameters of modules with what is in them; alike modules are one. @returns {Amount[]} */
function parametersByModule() {
  const { scope, sums } = model;
  const groups = [...scope.keys()].filter((g) => scope[g] >= 0 && facts.scopes[scope[g]].path);
  const path = (/** @type {number} */ g) => facts.scopes[scope[g]].path;
  const modules = alike(groups, path).map(([g]) => g); // the first call of each
  return alike(modules, (g) => `${pattern(path(g))} ${sums.parameters[g]}`).map((equal) => ({
    text: together(equal.map(path)) + times(equal.length),
    amount: equal.length * sums.parameters[equal[0]],
    go: cycle(equal.map((g) => ~g))
  }));
}

/** Goes to one item after another. @param {number[]} items */
function cycle(items) {
  let next = 0;
  return () => visit(items[next++ % items.length]);
}

// -- gradients of leaves, ranked -----------------------------------------------------------------

const ENDS = 12;

/** Where nobody measured them, which command does. */
function gradientCommand() {
  const { title } = document;
  const script = /^[\w./-]+\.(py|ipynb)\b/.exec(title)?.[0];
  const page = script?.replace(/.*\//, "").replace(/\.\w+$/, ".html");
  const loss = /^\w+$/.test(title) ? title : "loss";
  return script
    ? `gradviz render ${script} --color grad -o ${page}`
    : `gradviz.flow(${loss}).graph.save("page.html", color="grad")`;
}

/** @returns {Node[]} */
function gradientLists() {
  if (!facts.head.norms) {
    const command = el("code", gradientCommand());
    return [el("p.small", "No gradient was measured: ", command, " measures them all.")];
  }
  const all = facts.leaves.map((leaf) => ({ leaf, norm: facts.norm(leaf.node) }));
  const sorted = all
    .filter(({ norm }) => Number(norm) > 0)
    .sort((a, b) => Number(b.norm) - Number(a.norm));
  const high = Math.log10(Number(sorted[0]?.norm || 1));
  const low = Math.log10(Number(sorted[sorted.length - 1]?.norm || 1)) - 0.5;
  const bars = (/** @type {typeof all} */ list) =>
    list.map(({ leaf, norm }) => ({
      text: leaf.names[0] || `unnamed ${leaf.kind}`,
      amount: norm === "inf" ? "not finite" : short3(norm || 0),
      part: Number(norm) > 0 ? (Math.log10(Number(norm)) - low) / (high - low) : undefined,
      go: () => visit(facts.cellOf[leaf.node])
    }));
  const parts = (/** @type {string} */ title, list = all) => barList(title, bars(list), "path");
  const zero = all.filter(({ norm }) => norm === 0);
  const unknown = all.filter(({ norm }) => norm === null).length;
  const ranked =
    sorted.length > 2 * ENDS
      ? [
          ...parts(`the largest of ${count(sorted.length)} norms`, sorted.slice(0, ENDS)),
          ...parts("the smallest", sorted.slice(-ENDS).reverse())
        ]
      : parts("norms of gradients, the largest first", sorted);
  const notes = [
    sorted.length > 1 ? "Bars are on a log scale." : "",
    unknown ? `Not measured: ${plural(unknown, "tensor")}.` : ""
  ];
  return [
    ...parts(
      "not finite",
      all.filter(({ norm }) => norm === "inf")
    ),
    ...ranked,
    ...parts(`zero: ${plural(zero.length, "tensor")}`, zero),
    el("p.small", joined(notes, " "))
  ];
}

// -- what differs between two graphs, alike changes in one row -----------------------------------

function changeLists() {
  const changes = new Map(facts.head.changes);
  const { fill } = overlay("diff", facts);
  const words = (/** @type {number} */ item) => {
    if (item < 0) return joined([model.fullTitle(item), model.line(item)], "  ");
    const node = facts.nodeOf(item);
    const tensors = [facts.brief(facts.tensorsOf(node).join(", "))];
    return `${model.title(item)}  ${(changes.get(node) || tensors).join("; ")}`;
  };
  const key = (/** @type {number} */ item) =>
    `${item < 0 ? pattern(words(item)) : words(item)} ${pattern(facts.pathOf(item))}`;
  const items = changedItems(fill);
  return ["added", "removed", "changed"].flatMap((kind) => {
    const mine = items.filter((item) => fill(item) === kind);
    const rows = alike(mine, key).map((equal) => {
      const where = together(equal.map((item) => facts.pathOf(item)));
      const text = where ? `${words(equal[0])}  in ${where}` : words(equal[0]);
      return { text, amount: times(equal.length).trim(), go: cycle(equal) };
    });
    return barList(`${kind}: ${plural(mine.length, "box", "boxes")}`, rows);
  });
}

/**
 * Ops that differ; of a module that came or went as a whole, its box alone.
 * @param {(item: number) => string} fill
 * @returns {number[]}
 */
function changedItems(fill, items = [~0]) {
  return items.flatMap((item) => {
    const kind = fill(item);
    if (item >= 0) return kind && model.kind[item] === OP ? [item] : [];
    if (kind === "added" || kind === "removed") return [item];
    return kind ? changedItems(fill, model.itemsOf(~item)) : [];
  });
}

// -- findings, or what differs by rank -----------------------------------------------------------

function fillFindings() {
  const { marks, head } = facts;
  byId("findings-title").textContent = head.ofRanks
    ? `${plural(marks.length, "difference")} by rank`
    : plural(marks.length, "finding");
  tab("findings").textContent = `Findings ${count(marks.length)}`;
  byId("findings").append(...marks.map(findingRow));
}

/**
 * A finding goes to the boxes that bear its number, or to what gets no gradient.
 * @param {import("./facts.js").Mark} mark
 */
function findingRow({ number, words, ...rest }) {
  const cells = facts.cellsOf({ number, words, ...rest });
  const rows = facts.namesOf(number).flatMap((name) => absentRows.get(name) || []);
  const goes = cells.length || rows.length;
  const attributes = {
    class: `finding ${words.split(":")[0]}`,
    title: cells.length
      ? "Show the box"
      : rows.length
        ? "Show its tensors"
        : "no box of this graph",
    "aria-disabled": goes ? null : "true",
    onclick: cells.length ? cycle(cells) : () => rows.length && showAbsent(rows)
  };
  const text = [el("span.number", number), el("span", words)];
  return el("li", el("button", attributes, ...text), reasons(number));
}

/** Why a finding is one, and what to do. @param {number} number */
function reasons(number) {
  const words = facts.reasonsOf(number);
  if (!words.why && !words.do) return null;
  const list = el("dl");
  for (const [word, text] of Object.entries(words))
    if (text) list.append(el("dt", word), el(word === "code" ? "dd.code" : "dd", text));
  return el("details.why", el("summary", "why, and what to do"), list);
}

// -- what gets no gradient: grey below the outline, and in search --------------------------------

/** Name, tensor, and why it gets no gradient. @typedef {[string, string, string]} Absent */

/** Rows of the list by the names of their tensors. @type {Map<string, HTMLElement>} */
const absentRows = new Map();

/**
 * Those whose name or reason has this text, alike ones together.
 * @param {string} [text]
 * @returns {Absent[][]}
 */
export function absentWith(text = "") {
  const needle = text.trim().toLowerCase();
  const found = facts.absent.filter(([name, , why]) =>
    `${name} ${why}`.toLowerCase().includes(needle)
  );
  return alike(found, ([name, tensor, why]) => `${pattern(name)} ${tensor} ${pattern(why)}`);
}

/**
 * Tensors that are alike, in one row.
 * @param {Absent[]} equal
 * @param {{[name: string]: any}} [given]
 */
export function absentRow(equal, given = {}) {
  const name = together(equal.map(([one]) => one)) + times(equal.length);
  const why = together(equal.map(([, , one]) => one));
  const [, tensor] = equal[0];
  const attributes = { title: `${name} ${tensor}: ${why}`, ...given };
  return el("li.absent", attributes, el("strong", name), el("span", why));
}

function fillAbsent() {
  const box = byId("absent");
  const list = el("ul");
  box.hidden = !facts.absent.length;
  for (const equal of absentWith()) {
    const row = absentRow(equal);
    for (const [name] of equal) absentRows.set(name, row);
    list.append(row);
  }
  box.append(el("summary", `No gradient: ${plural(facts.absent.length, "tensor")}`), list);
}

/** @param {HTMLElement[]} rows */
function showAbsent(rows) {
  showTab("outline");
  byId("absent").open = true;
  for (const row of absentRows.values()) row.classList.toggle("on", rows.includes(row));
  rows[0].scrollIntoView({ block: "center" });
}
