/** What is known of the selected box, line or edge, in words; every name is a link to its box. */
import { app, clearest, facts, layout, model, on, select, toggle, visit } from "./app.js";
import {
  alike,
  byId,
  bytesText,
  count,
  el,
  isNarrow,
  joined,
  limited,
  measured,
  onClick,
  pattern,
  plural,
  say,
  section,
  sum,
  table,
  times,
  together
} from "./dom.js";
import { copyFigure } from "./exports.js";
import { chainLine, formulaSections, numberSection } from "./formula.js";
import { OUTPUT } from "./model.js";
import { wayOut } from "./trace.js";

/** @import { Row } from "./dom.js" */

const MANY = 30; // rows of a list
const LINES = 6;
const SHARING = 6; // ops that hold one storage
const KIND_WORDS = ["backward function", "leaf", "leaf", "output", "input without gradient"];
const GROUP_WORDS = [
  "everything",
  "call of a module or function",
  "op, with ops that only change its shape",
  "what repeats",
  "one turn",
  "ops in a row",
  "statement, or call of torch"
];

/** What a cell is. @param {number} cell */
export const kindText = (cell) => KIND_WORDS[model.kind[cell]];

export function setUpPanel() {
  onClick("panel-close", () => select(null));
  on("select step", drawPanel);
  on("open", () => {
    const button = byId("panel-body").querySelector("[data-toggle]");
    if (button && app.selected !== null) button.textContent = toggleText(app.selected);
  });
}

export function drawPanel() {
  const panel = byId("panel");
  const { selected, line, edge } = app;
  panel.hidden = selected === null && !line && edge < 0;
  const narrow = isNarrow();
  app.covered = narrow ? 0 : panel.offsetWidth;
  app.coveredBelow = narrow ? panel.offsetHeight : 0;
  byId("stage").style.setProperty("--covered", `${app.covered}px`);
  if (panel.hidden) return;
  if (line) show(`line ${line.line}`, linePanel(line));
  else if (edge >= 0) show(facts.edgeTitle(edge), edgePanel(edge));
  else if (selected !== null) show(model.fullTitle(selected), itemPanel(selected));
}

/** @param {string} title @param {Node[]} parts */
function show(title, parts) {
  byId("panel-title").textContent = title;
  byId("panel-body").replaceChildren(...parts);
  byId("panel-body").scrollTop = 0;
}

/** @param {import("./facts.js").Line} line */
function linePanel({ file, text, nodes }) {
  const { bytes, norm } = facts.sumsOf(nodes);
  const ops = nodes.filter((node) => facts.isOp(node));
  ops.sort((a, b) => facts.cellOf[a] - facts.cellOf[b]);
  const rows = table([
    ["made", plural(ops.length, "op")],
    ["holds", bytes && bytesText(bytes)],
    ["gradient norm", measured(norm, "up to ")]
  ]);
  return [el("p.what", file), el("code", text), rows, opList("Its ops", ops)];
}

/** @param {number} edge */
function edgePanel(edge) {
  const carries = edge < facts.gradients ? "tensor, and on the way back its gradient" : "tensor";
  const rows = table([
    ["from", itemLink(facts.madeCell(edge))],
    ["to", itemLink(facts.usedCell(edge))],
    ["tensor", facts.tensorOn(edge)],
    ["gradient norm", measured(facts.normAlong(edge))]
  ]);
  return [el("p.what", facts.isCutEdge(edge) ? "cut off: no gradient passes" : carries), rows];
}

/** @param {number} item */
function itemPanel(item) {
  const parts = [...codeLines(item), el("p.what", whatIs(item)), actions(item)];
  const { other } = app;
  if (other !== null && item < 0 === other < 0) parts.push(sideBySide(item, other));
  return [...parts, ...(item < 0 ? groupParts(~item) : cellParts(item))];
}

/** @param {number} item */
function whatIs(item) {
  if (item < 0) return GROUP_WORDS[model.groupKind[~item]];
  const node = facts.nodeOf(item);
  const leaf = facts.leafOf.get(node);
  if (leaf) return `leaf: ${leaf.kind}`;
  return node < facts.nodes
    ? `backward function ${facts.word("op", node)}, ${stepText(node)}`
    : kindText(item);
}

/** @param {number} item */
const toggleText = (item) => (layout.isSheet(item) ? "Close" : "Open");

/** @param {number} item */
function actions(item) {
  const row = el("div.actions");
  const button = (/** @type {string} */ text, /** @type {() => void} */ onclick, more = {}) =>
    row.append(el("button", { onclick, ...more }, text));
  if (item < 0 && item !== ~0) {
    button(toggleText(item), () => toggle(~item), { "data-toggle": true });
    button("Copy picture", () => copyFigure(item), { title: "A PNG of this box alone" });
  }
  button("Show", () => visit(item), { title: "Bring the box into view" });
  const words = el("p.trace", app.trace ? traceText() : "");
  const pick = () => {
    app.picking = true;
    words.textContent = "Now click the other end, or search for it.";
    say(words.textContent);
    byId("search").select();
  };
  if (item !== ~0) button("Path to…", pick, { title: "Then choose the other box (Shift+click)" });
  row.append(words);
  return row;
}

/** What depends on the box, or which paths lead between two. */
function traceText() {
  const { selected, other } = app;
  const trace = /** @type {NonNullable<typeof app.trace>} */ (app.trace);
  const depends = trace.up ? `depends on ${plural(trace.up, "op")}; ` : "";
  const verb = trace.down === 1 ? "depends" : "depend";
  if (selected === null || other === null)
    return `${depends}${plural(trace.down, "op")} ${verb} on it`;
  const [from, to] = trace.turned ? [other, selected] : [selected, other];
  const names = `${model.title(from)} to ${model.title(to)}`;
  if (!trace.count) return `no path leads from one to the other (${names})`;
  const digits = String(trace.count);
  const rounded = `${digits.slice(0, 12)}… (${count(digits.length)} digits)`;
  const paths = digits.length > 24 ? rounded : count(trace.count);
  const chain = from >= 0 && to >= 0 ? chainLine(facts.nodeOf(from), facts.nodeOf(to)) : "";
  const words = `${paths} ${trace.count === 1n ? "path" : "paths"} from ${names}`;
  return chain ? `${words}; derivative ${chain}` : words;
}

/** Facts of two boxes beside each other; what differs is marked. @param {...number} items */
function sideBySide(...items) {
  const columns = items.map((item) => new Map(factRows(item)));
  const head = items.map((item) => el("th", itemLink(item)));
  const body = el("table", el("tr", el("th"), ...head));
  for (const name of new Set(columns.flatMap((rows) => [...rows.keys()]))) {
    const texts = columns.map((rows) => textOf(rows.get(name)));
    if (!texts.some(Boolean)) continue;
    const differs = new Set(texts).size > 1;
    const cells = texts.map((text) => el("td", text));
    body.append(el(differs ? "tr.differs" : "tr", el("th", name), ...cells));
  }
  return section("Side by side", body);
}

/** @param {Row[1]} value */
const textOf = (value) => (value instanceof Node ? value.textContent : value) || "";

/** @param {number} item @returns {Row[]} */
function factRows(item) {
  if (item < 0) return groupRows(~item);
  const node = facts.nodeOf(item);
  if (facts.leafOf.has(node)) return leafRows(node);
  return node < facts.nodes ? opRows(node) : [["tensor", facts.tensorsOf(node).join(", ")]];
}

// -- links ---------------------------------------------------------------------------------------

/** @param {number} item @param {string} [text] */
function itemLink(item, text = model.title(item)) {
  return el("button.link", { onclick: () => visit(item) }, text);
}

/** @param {number} node */
const nodeLink = (node) => itemLink(facts.cellOf[node]);

/** @param {string} title @param {string} kind @param {HTMLElement[]} rows */
const listSection = (title, kind, rows) => (rows.length ? [section(title, el(kind, ...rows))] : []);

/**
 * Ops with their lines and modules, those of alike modules in one row.
 * @param {string} title
 * @param {number[]} nodes
 */
function opList(title, nodes) {
  const path = (/** @type {number} */ node) => facts.pathOf(facts.cellOf[node]);
  // there is one row of words for one title and line
  const key = (/** @type {number} */ node) =>
    `${model.row.cell[facts.cellOf[node]]} ${pattern(path(node))}`;
  const rows = limited(alike(nodes, key), MANY, (equal) => {
    const cell = facts.cellOf[equal[0]];
    const words = `${times(equal.length)} ${model.line(cell)}  ${together(equal.map(path))}`;
    const onclick = () => visit(facts.cellOf[clearest(equal)]);
    return el("li", el("button.link", { onclick }, model.title(cell)), words);
  });
  return section(title, el("ul.links", ...rows));
}

/** @param {number} node */
function neighbours(node) {
  const links = (/** @type {string} */ title, /** @type {number[]} */ nodes) =>
    listSection(
      title,
      "ul.links",
      limited(nodes, MANY, (one) => el("li", nodeLink(one)))
    );
  return [...links("Inputs from", facts.inputsOf(node)), ...links("Used by", facts.usersOf(node))];
}

// -- parts ---------------------------------------------------------------------------------------

/**
 * The ops whose lines of code an item shows: the main ones or all of a group, what uses a leaf,
 * what made an output.
 * @param {number} item
 * @returns {number[]}
 */
function opsBehind(item) {
  if (item < 0) {
    const mains = [...model.mains[~item]];
    return mains.length ? mains : facts.nodesOf(item).filter((node) => facts.isOp(node));
  }
  const node = facts.nodeOf(item);
  if (facts.isOp(node)) return [node];
  return model.kind[item] === OUTPUT ? facts.inputsOf(node) : facts.usersOf(node);
}

/**
 * The lines of code that made an item, in the order they ran, and from where the user's own code
 * led there.
 * @param {number} item
 */
function codeLines(item) {
  if (!facts.sources.length)
    return [
      el(
        "p.small",
        "Lines of code are known where gradviz render ran the script, " +
          "or gradviz.record() watched it."
      )
    ];
  const nodes = opsBehind(item);
  const columns = [facts.c.source, facts.c.scriptLine];
  const sources = columns.flatMap((column) => nodes.map((node) => column[node]));
  const lines = alike(
    sources.filter((source) => source >= 0),
    (source) => source
  );
  const rows = lines.map((equal) => {
    const [file, line, scope, text] = facts.sources[equal[0]];
    const inside = scope && scope !== "<module>" ? ` in ${scope}` : "";
    const part = lines.length > 1 && nodes.length > 1 ? `, ${plural(equal.length, "op")}` : "";
    return el("div", el("code", text), el("small", fileLink(file, line), inside + part));
  });
  if (rows.length > LINES)
    rows.splice(LINES, rows.length, el("small", `+${plural(rows.length - LINES, "line")}`));
  return rows.length ? [el("section.lines", ...rows)] : [];
}

/**
 * A link to the editor, where the page was written with `--links vscode`.
 * @param {string} file
 * @param {number} line
 */
function fileLink(file, line) {
  const path = new Map(facts.head.links).get(file);
  const text = `${file}:${line}`;
  return path
    ? el("a", { href: encodeURI(`vscode://file/${path.join("/")}:${line}`) }, text)
    : text;
}

/** @param {number} cell @returns {HTMLElement[]} */
function cellParts(cell) {
  const node = facts.nodeOf(cell);
  if (node >= facts.firstData) return dataParts(node);
  if (node >= facts.nodes) return [table(outputRows(facts.roots[node - facts.nodes]))];
  if (facts.leafOf.has(node))
    return [...numberSection(node), table(leafRows(node)), ...neighbours(node)];
  return opParts(node);
}

/** @param {any[] | null} base of a view */
const baseText = (base) => (base ? base.join(" ") : "");

/** @param {import("./facts.js").Root} root @returns {Row[]} */
const outputRows = ({ name, tensor, why, base, node, output }) => [
  ["name", name],
  ["tensor", tensor],
  ["no graph", why],
  ["base of the view", baseText(base)],
  ["made by", node >= 0 && nodeLink(node)],
  ["output", node >= 0 && output]
];

/** What ops were given that gets no gradient: equal tensors in one row. @param {number} node */
function dataParts(node) {
  const groups = alike(facts.dataOf(node), ({ names, tensor }) => `${names}\n${tensor}`);
  const rows = limited(groups, MANY, (equal) => {
    const [{ names, tensor, storage }] = equal;
    const known = table([
      ["tensor", tensor],
      ["storage", equal.length === 1 && storageText(storage)]
    ]);
    return section(`${names.join(", ") || "input"}${times(equal.length)}`, known);
  });
  return [...rows, opList("Taken by", facts.usersOf(node))];
}

/** @param {number} node @returns {Row[]} */
function leafRows(node) {
  const leaf = /** @type {import("./facts.js").Leaf} */ (facts.leafOf.get(node));
  return [
    ["names", leaf.names.join(", ")],
    ["tensor", leaf.tensor],
    ["elements", count(leaf.elements)],
    ["kind", leaf.kind],
    [".grad", leaf.has_grad ? "set" : "None"],
    ["hooks", leaf.hooks],
    ["storage", storageText(leaf.storage)],
    ["base of the view", baseText(leaf.base)],
    ["node", `#${node} AccumulateGrad`],
    ["backward", stepText(node)]
  ];
}

/** @param {number} node @returns {Row[]} */
function opRows(node) {
  const { c } = facts;
  const outputs = facts.outputs[c.outs[node]];
  const flags = facts.flags[c.flag[node]].map(([, words]) => words);
  const marks = facts.marks.filter((mark) => mark.nodes.includes(node));
  return [
    ["op", facts.word("forward", node)],
    ["custom function", facts.word("function", node)],
    ...outputs.map(
      (text, i) => /** @type {Row} */ ([outputs.length > 1 ? `output ${i}` : "output", text])
    ),
    ["names", facts.names[c.name[node]].join(", ")],
    ["flags", flags.join(", ")],
    ["module", moduleLink(node)],
    ["holds", c.held[node] && bytesText(c.held[node])],
    ["sequence", c.sequence[node] >= 0 && String(c.sequence[node])],
    ["no gradient", c.noneInputs[node] && plural(c.noneInputs[node], "input")],
    ["node", `#${node}`],
    ["finding", marks.map((mark) => `${mark.number}. ${mark.words}`).join("; ")],
    ["difference", differenceText(node)]
  ];
}

/** @param {number} node @param {HTMLElement[]} [box] of the box that it is the main op of */
function opParts(node, box = []) {
  const attributes = facts.head.attributes[facts.c.attribute[node]].map(
    (/** @type {[string, string]} */ [name, text]) =>
      /** @type {Row} */ ([name.replace(/^(\w+)_sym_(\w+)$/, "$2 of $1"), text])
  );
  const saved = facts.slotsOf(node).map((slot) => savedRow(node, slot));
  return [
    ...formulaSections(node, nodeLink),
    ...box,
    ...numberSection(node),
    way(node),
    section(box.length ? "Main op" : "Facts", table(opRows(node))),
    ...listSection("Saved for backward", "ul.saved", saved),
    ...neighbours(node),
    ...(attributes.length ? [section("Other saved values", table(attributes))] : [])
  ];
}

/**
 * Shapes, and norms where they were measured, on the shortest way to an output.
 * @param {number} node
 */
function way(node) {
  const nodes = wayOut(facts, node);
  const left = nodes.length - MANY;
  const shown = left > 0 ? [...nodes.slice(0, MANY / 2), -1, ...nodes.slice(-MANY / 2)] : nodes;
  const rows = shown.map((one) => {
    if (one < 0) return el("li", `… ${count(left)} more …`);
    const tensors = facts.brief(facts.tensorsOf(one).join(", "));
    const words = ` ${tensors}${measured(facts.norm(one), "  ‖gradient‖ ")}`;
    return el("li", nodeLink(one), el("span", words));
  });
  const what = facts.head.norms ? "Shapes and gradient norms" : "Shapes";
  return section(`${what} on the way to the output`, el("ol.way", ...rows));
}

/** @param {number} node */
function differenceText(node) {
  const kind = facts.c.diff?.[node] || 0;
  if (kind < 3) return ["", "only in the second graph", "only in the first graph"][kind];
  const change = facts.head.changes.find((/** @type {any[]} */ one) => one[0] === node);
  return change ? change[1].join("; ") : "changed";
}

/** The module of a node: a link to its group. @param {number} node */
function moduleLink(node) {
  const scope = facts.scopeOf(node);
  if (!scope) return "";
  const call = scope.call > 1 ? `, call ${scope.call}` : "";
  const type = scope.type ? ` (${scope.type})` : ""; // a function has none
  const text = (scope.path || scope.type) + type + call;
  const item = facts.callOf(node);
  return item < 0 ? itemLink(item, text) : text;
}

/** @param {number} node */
function stepText(node) {
  const step = facts.stepOf[node];
  if (step < 0) return "not called";
  const norm = measured(facts.norm(node), ", gradient norm ");
  return `step ${count(step + 1)} of ${count(facts.steps)}${norm}`;
}

/** @param {number} storage */
function storageText(storage) {
  if (storage < 0) return "";
  const { storageBytes, storageKind } = facts.c;
  const nbytes = storageBytes[storage];
  const size = nbytes < 0 ? "size unknown" : bytesText(nbytes);
  return `#${storage}, ${facts.head.storageKinds[storageKind[storage]]}, ${size}`;
}

/** @param {number} node @param {number} slot */
function savedRow(node, slot) {
  const { slotStorage, slotLeaf, slotBytes } = facts.c;
  const storage = slotStorage[slot];
  const leaf = slotLeaf[slot];
  const bytes = slotBytes[slot] >= 0 ? bytesText(slotBytes[slot]) : "";
  const held = storage >= 0 ? `storage ${storageText(storage)}` : "";
  const words = joined([facts.word("slotWords", slot), bytes, held], "; ");
  const name = el("strong", facts.word("slotName", slot));
  const row = el("li", name, ` ${facts.word("slotTensor", slot)}`, el("small", words));
  if (leaf >= 0 && facts.cellOf[leaf] >= 0) row.append(el("small", "is ", nodeLink(leaf)));
  const sharing = storage >= 0 ? facts.holders(storage).filter((one) => one !== node) : [];
  if (sharing.length) {
    const links = sharing.slice(0, SHARING).flatMap((one) => [nodeLink(one), " "]);
    const more = sharing.length > SHARING ? `+${sharing.length - SHARING} more` : "";
    row.append(el("small", "shared with ", ...links, more));
  }
  return row;
}

/** @param {number} g @returns {Row[]} */
function groupRows(g) {
  const scope = facts.scopes[model.scope[g]];
  const nodes = facts.nodesOf(~g).filter((node) => node < facts.nodes);
  const steps = new Set(nodes.map((node) => facts.stepOf[node]).filter((step) => step >= 0));
  const slots = sum(nodes.map((node) => facts.slotsOf(node).length));
  const { norm } = facts.sumsOf(nodes);
  const { ops, parameters, nbytes } = model.sums;
  const order = [...steps].sort((a, b) => a - b);
  const range = `steps ${count(order[0] + 1)} to ${count(order[order.length - 1] + 1)}`;
  return [
    ["path", scope?.path],
    ["class", scope?.type],
    ["call", scope?.call > 1 && scope.call],
    ["output", scope?.output],
    ["functions", count(ops[g])],
    ["parameters", parameters[g] && count(parameters[g])],
    ["holds", nbytes[g] && bytesText(nbytes[g])],
    ["gradient norm", measured(norm, "up to ")],
    ["saved tensors", slots && count(slots)],
    ["backward", steps.size && `${range}, ${plural(steps.size, "function")}`],
    ["inside", plural(model.shape(g).children, "box", "boxes")]
  ];
}

/** @param {number} g @returns {HTMLElement[]} */
function groupParts(g) {
  const rows = groupRows(g);
  if (g === 0)
    facts.head.about.forEach((/** @type {string} */ text, /** @type {number} */ i) =>
      rows.push([i ? "" : "about", text])
    );
  const mains = [...model.mains[g]];
  const beside = g
    ? facts.nodesOf(~g).filter((node) => facts.isOp(node) && !mains.includes(node))
    : [];
  const box = [section("Box", table(rows))];
  if (beside.length)
    box.push(opList(mains.length ? `+${plural(beside.length, "reshape")}` : "Its ops", beside));
  if (g && mains.length === 1) return opParts(mains[0], box);
  const works = g ? mains : [];
  const formulas = works.flatMap((node) => [
    el("p.main", nodeLink(node)),
    ...formulaSections(node, nodeLink)
  ]);
  return [...formulas, ...box];
}
