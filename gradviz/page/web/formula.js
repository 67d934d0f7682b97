/**
 * What an op computed, what its backward function sends to each input, and what it must keep for
 * that: as formulas, which `records.py` writes, and in the numbers of small tensors, on boxes, on
 * edges, along paths, and as coloured cells.
 */
import { app, facts } from "./app.js";
import { bytesText, count, el, measured, section, short3, sum } from "./dom.js";

/** @import { Small, Values } from "./facts.js" */

/**
 * @typedef {{op: string, code?: string, call?: string, gradients?: {[name: string]: string},
 *   terms?: {[name: string]: string}, mathml?: {[name: string]: string}, keeps?: {[name: string]:
 *   string[]}, mixes?: string, note?: string, source?: string}} Formula
 */

/** @param {number} node @returns {Formula | undefined} */
const formulaOf = (node) =>
  node < facts.nodes ? facts.head.formulas[facts.word("op", node)] : undefined;

/** In one line, for tooltips. @param {number} node */
export function formulaLine(node) {
  const { gradients = {}, note = "", source } = formulaOf(node) || {};
  if (source !== "gradviz") return note;
  const sent = Object.entries(gradients).map(([name, text]) => `to ${name}: ${text}`);
  return `sends ${sent.join("; ")}`;
}

/**
 * A formula with what stands before it, as MathML where there is any, which the browser draws and
 * speaks.
 * @param {string} name
 * @param {string} text
 * @param {string} [mathml] written by Python, never by the graph
 */
function formulaRow(name, text, mathml) {
  const row = el("div.sent", el("span", name));
  if (mathml) {
    const page = new DOMParser().parseFromString(mathml, "text/html");
    const math = /** @type {Element} */ (page.body.firstElementChild);
    math.setAttribute("display", "block");
    math.setAttribute("alttext", text);
    row.append(document.adoptNode(math));
  } else row.append(el("code", text));
  return row;
}

/** @param {number} node */
const shape = (node) => ` ${facts.brief(facts.tensorsOf(node)[0] || "")}`;

/**
 * What the letters of a formula stand for here.
 * @param {number} node
 * @param {Map<string, number>} edges
 * @param {(node: number) => Node} link
 */
function meanings(node, edges, link) {
  const norm = measured(facts.norm(node), " norm ");
  const words = el("p.small", `g is the gradient that arrives,${shape(node)}${norm}`);
  for (const [letter, edge] of edges) {
    const made = facts.made[edge];
    const receives = measured(facts.normAlong(edge), ", which receives norm ");
    words.append(`; ${letter} is `, link(made), shape(made), receives);
  }
  return words;
}

/**
 * Which tensors the gradients that are computed here need: `out, for the gradient of x`.
 * @param {Formula} formula
 * @param {string[]} sent
 */
function needs({ keeps = {} }, sent) {
  const found = Map.groupBy(Object.keys(keeps), (used) =>
    keeps[used].filter((name) => sent.includes(name)).join(" and ")
  );
  found.delete("");
  const words = [...found].map(([to, used]) => `${used.join(" and ")}, for the gradient of ${to}`);
  return words.length
    ? `needs ${words.join("; ")}`
    : "needs nothing of the forward pass, and keeps nothing";
}

/** Bytes of what a node saved, each storage once. @param {number} node */
function savedText(node) {
  const { slotBytes, slotStorage, held } = facts.c;
  const slots = facts.slotsOf(node).filter((slot) => slotBytes[slot] > 0);
  const sizes = new Map(
    slots.map((i) => [slotStorage[i] < 0 ? `s${i}` : slotStorage[i], slotBytes[i]])
  );
  const saved = sum(sizes.values());
  if (!saved) return "";
  if (held[node]) return `: that is why it holds ${bytesText(held[node])}`;
  return `: ${bytesText(saved)} saved, which another box or a parameter holds anyway`;
}

/** @param {number} node @param {(node: number) => Node} link @returns {HTMLElement[]} */
export function formulaSections(node, link) {
  const formula = formulaOf(node);
  const back = section("What it sends back");
  const add = (/** @type {string} */ text) => back.append(el("p.small", text));
  if (!formula?.gradients) {
    const custom =
      facts.word("function", node) && "What the backward() of the custom function returns.";
    add(formula?.note ? `${formula.note}.` : custom || "No formula is known for this op.");
    return [back];
  }
  const { gradients, terms = {}, mathml = {}, note, mixes, code = "", source, call } = formula;
  const letters = Object.keys(gradients);
  const edges = new Map();
  for (const edge of facts.gradientEdges(node)) {
    const letter = letters[facts.c.position[edge]];
    if (letter) edges.set(letter, edge);
  }
  const sent = edges.size ? letters.filter((letter) => edges.has(letter)) : letters;
  const rest = letters.filter((letter) => !sent.includes(letter)).join(" and ");
  for (const name of sent)
    back.append(formulaRow(`to ${name}`, gradients[name], mathml[`gradient of ${name}`]));
  for (const [name, text] of Object.entries(terms))
    back.append(formulaRow(`where ${name}`, text, mathml[name]));
  if (source === "torch") add(`torch's own text, of ${call}; grad is the gradient that arrives.`);
  else back.append(meanings(node, edges, link));
  if (rest) add(`${rest}: a plain number, or a tensor that needs no gradient; nothing is sent.`);
  if (note) add(`${note}.`);
  const parts = [back];
  if (mathml.out) {
    const computed = formulaRow("out", code, mathml.out);
    parts.unshift(section("What it computed", computed, el("p.small", `${mixes}.`)));
  }
  if (formula.keeps) parts.push(el("p.needs", `${needs(formula, sent)}${savedText(node)}.`));
  return parts;
}

// -- numbers -------------------------------------------------------------------------------------

/** The only number of some, where it is one and finite; null elsewhere. @param {Values} [values] */
const single = (values) =>
  values?.length === 1 && typeof values[0] === "number" ? values[0] : null;

/** What a function sent along an edge. @param {number} edge */
const sentAlong = (edge) => facts.smallOf.get(facts.used[edge])?.sent[facts.c.position[edge]];

/** The value and the gradient of a single number, for its box. @param {number} item */
export function scalarLine(item) {
  const small = item < 0 ? undefined : facts.smallOf.get(facts.nodeOf(item));
  if (!small || small.value.length > 1) return "";
  const words = small.value.map((value) => `= ${short3(value)}`);
  if (small.arrived.length === 1) words.push(`grad ${short3(small.arrived[0])}`);
  return words.join(", ");
}

/** `3 + 2 = 5` where several gradients of single numbers meet. @param {number} node */
export function sumLine(node) {
  const arrived = facts.smallOf.get(node)?.arrived || [];
  const sent = Array.from(facts.edgesFrom(node), sentAlong);
  const parts = sent.map((values) => (values?.length === 1 ? short3(values[0]) : ""));
  if (parts.length < 2 || parts.includes("") || arrived.length !== 1) return "";
  return `${parts.join(" + ").replaceAll("+ -", "− ")} = ${short3(arrived[0])}`;
}

/**
 * By what the gradient is multiplied along an edge between two single numbers; null elsewhere.
 * @param {number} edge
 */
export function factorOn(edge) {
  const sent = single(sentAlong(edge));
  const arrived = single(facts.smallOf.get(facts.used[edge])?.arrived);
  return sent === null || !arrived ? null : sent / arrived;
}

/**
 * The chain rule between two nodes, path by path: `3 × 1 + 2 × 1 = 5`; "" where there are many, or
 * more than single numbers.
 * @param {number} from
 * @param {number} to
 */
export function chainLine(from, to) {
  const { trace } = app;
  if (!trace || trace.count > 8n) return "";
  /** @type {number[][]} */
  const paths = [];
  const waiting = [{ node: from, factors: /** @type {number[]} */ ([]) }];
  for (const { node, factors } of waiting) {
    if (node === to) paths.push(factors);
    for (const edge of node === to ? [] : facts.edgesFrom(node)) {
      const user = facts.used[edge];
      const factor = user < facts.nodes ? factorOn(edge) : 1;
      if (!trace.isLit(edge)) continue;
      if (factor === null) return "";
      waiting.push({ node: user, factors: user < facts.nodes ? [factor, ...factors] : factors });
    }
  }
  if (!paths.some((factors) => factors.length)) return "";
  const products = paths.map((factors) => factors.reduce((a, b) => a * b, 1));
  const words = paths.map((factors) =>
    factors.map((n) => (n < 0 ? `(${short3(n)})` : short3(n))).join(" × ")
  );
  return `${words.join(" + ")} = ${short3(sum(products))}`;
}

/** The sizes of a tensor. @param {string} tensor in words */
const sizes = (tensor) =>
  (/\(([^)]*)\)/.exec(tensor)?.[1] || "")
    .split(",")
    .map(Number)
    .filter((size) => size > 0);

/**
 * Cells of one tensor, its last dimension across: warm above zero, cool below.
 * @param {string} name
 * @param {Values} values
 * @param {string} tensor
 */
function cells(name, values, tensor) {
  const across = sizes(tensor).pop() || 1;
  const magnitudes = values.map((value) => (typeof value === "number" ? Math.abs(value) : 0));
  const most = Math.max(...magnitudes) || 1;
  const grid = el("div.cells");
  const columns = values.length % across ? values.length : across;
  grid.style.gridTemplateColumns = `repeat(${columns}, max-content)`;
  values.forEach((value, i) => {
    const cell = el("span", { title: value }, short3(value));
    const isFinite = typeof value === "number";
    const hue = !isFinite ? "removed" : value < 0 ? "leaf" : "heat5";
    const part = isFinite ? Math.round((70 * magnitudes[i]) / most) : 100;
    cell.style.background = `color-mix(in srgb, var(--${hue}) ${part}%, transparent)`;
    grid.append(cell);
  });
  const label = `${name} ${tensor}`;
  const attributes = { tabindex: 0, role: "group", "aria-label": label };
  return el("div.tensor", attributes, el("p.small", label), grid);
}

/**
 * What takes the place of cells that are not there.
 * @param {string} name
 * @param {Small} small
 * @param {string} tensor
 */
function noCells(name, { spread, freed }, tensor) {
  const [least, mean, largest] = spread.map(short3);
  const elements = sizes(tensor).reduce((a, b) => a * b, 1);
  const isValue = name === "value";
  if (isValue && least) return `${least} to ${largest}, mean ${mean}`;
  if (isValue && freed) return "freed, no variable and no op holds it";
  if (elements > 64) return `${count(elements)} elements; --values keeps up to 64`;
  if (!isValue) return "not known";
  return "not known: autograd did not save it, and no call of torch returned it";
}

/**
 * The value, what arrives, and what is sent to each input.
 * @param {number} node
 * @returns {HTMLElement[]}
 */
export function numberSection(node) {
  const small = facts.smallOf.get(node);
  if (!small) return [];
  const shown = (
    /** @type {string} */ name,
    /** @type {Values} */ values,
    /** @type {number} */ one
  ) => {
    const tensor = facts.brief(facts.tensorsOf(one)[0] || "");
    if (values?.length) return cells(name, values, tensor);
    return el("p.small", `${name} ${tensor}: ${noCells(name, small, tensor)}`);
  };
  const receives = facts.leafOf.has(node) ? ".grad receives" : "gradient that arrives";
  const sent = Array.from(facts.gradientEdges(node), (edge) => {
    const made = facts.made[edge];
    const title = facts.model.title(facts.cellOf[made]);
    return shown(`sent to ${title}`, small.sent[facts.c.position[edge]], made);
  });
  const own = [shown("value", small.value, node), shown(receives, small.arrived, node)];
  return [section("In numbers", ...own, ...sent)];
}
