/** What an op computed, what its backward function sends to each input, and what it must keep for that: formulas of `records.py`. */
import { el } from "./dom.js";
import { stepOf } from "./look.js";
import { bytesText } from "./overlay.js";

/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {{op: string, code?: string, call?: string, gradients: {[name: string]: string}, terms?: {[name: string]: string}, mathml?: {[name: string]: string}, keeps?: {[name: string]: string[]}, mixes?: string, note?: string, source?: string}} Formula */

/** A formula as MathML, which the browser draws and speaks. @param {string} text written by Python, never by the graph @param {string} plain @returns {Element} */
function typeset(text, plain) {
  const math = /** @type {Element} */ (
    new DOMParser().parseFromString(text, "text/html").body.firstElementChild
  );
  math.setAttribute("display", "block");
  math.setAttribute("alttext", plain);
  return document.adoptNode(math);
}

/** @param {Facts} facts @param {number} node @returns {Formula | null} */
export function formulaOf(facts, node) {
  return (node < facts.nodes && facts.head.formulas[facts.word("op", node)]) || null;
}

/** In one line, for tooltips. @param {Facts} facts @param {number} node */
export function formulaLine(facts, node) {
  const formula = formulaOf(facts, node);
  if (!formula) return "";
  const sent = Object.entries(formula.gradients || {}).map(([name, text]) => `to ${name}: ${text}`);
  return formula.source === "gradviz" ? `sends ${sent.join("; ")}` : formula.note || "";
}

/** What the letters of a formula stand for here. @param {Facts} facts @param {number} node @param {Map<string, number>} edges @param {(node: number) => Node} link */
function meanings(facts, node, edges, link) {
  const shape = (/** @type {number} */ one) =>
      ` ${facts.brief(facts.leafOf.get(one)?.tensor || facts.outputs[facts.c.outs[one]][0] || "")}`,
    norm = normOf(facts, node);
  const words = el("p", { class: "small" }, `g is the gradient that arrives,${shape(node)}${norm}`);
  for (const [letter, e] of edges) {
    const made = facts.made[e],
      alone = facts.outStart[made + 1] - facts.outStart[made] === 1;
    words.append(
      `; ${letter} is `,
      link(made),
      shape(made),
      alone && normOf(facts, made) ? `, which receives${normOf(facts, made)}` : "",
    );
  }
  return words;
}

/** @param {Facts} facts @param {number} node */
function normOf(facts, node) {
  const at = stepOf(facts, node),
    norm = facts.head.norms && at >= 0 ? facts.head.norms[at] : null;
  return norm === null ? "" : ` norm ${norm}`;
}

/** Which tensors the gradients that are computed here need: `out, for the gradient of x`. @param {Formula} formula @param {Set<string>} sent */
function needs(formula, sent) {
  /** @type {Map<string, string[]>} */
  const found = new Map();
  for (const [used, inputs] of Object.entries(formula.keeps || {})) {
    const those = inputs.filter((name) => sent.has(name)).join(" and ");
    if (those) found.set(those, [...(found.get(those) || []), used]);
  }
  return [...found]
    .map(([inputs, used]) => `${used.join(" and ")}, for the gradient of ${inputs}`)
    .join("; ");
}

/** Bytes of what a node saved, each storage once. @param {Facts} facts @param {number} first @param {number} end */
function savedBytes(facts, first, end) {
  const seen = new Map();
  for (let i = first; i < end; i++)
    if (facts.c.slotBytes[i] > 0)
      seen.set(
        facts.c.slotStorage[i] < 0 ? `s${i}` : facts.c.slotStorage[i],
        Number(facts.c.slotBytes[i]),
      );
  return [...seen.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** @param {Facts} facts @param {number} node @param {{first: number, end: number}} slots @param {(node: number) => Node} link @returns {HTMLElement[]} */
export function formulaSections(facts, node, slots, link) {
  const formula = formulaOf(facts, node),
    parts = [],
    back = el("section", {}, el("h3", { text: "What it sends back" }));
  const say = (/** @type {string} */ text) => back.append(el("p", { class: "small", text }));
  if (!formula?.gradients) {
    say(
      formula?.note
        ? `${formula.note}.`
        : facts.word("function", node)
          ? "What the backward() of the custom function returns."
          : "No formula is known for this op.",
    );
    return [back];
  }
  const letters = Object.keys(formula.gradients),
    edges = new Map();
  for (const e of facts.gradientEdges(node))
    if (letters[facts.c.position[e]]) edges.set(letters[facts.c.position[e]], e);
  const sent = edges.size ? letters.filter((letter) => edges.has(letter)) : letters,
    rest = letters.filter((letter) => !sent.includes(letter));
  if (formula.mathml) {
    const out = el(
      "div",
      { class: "sent" },
      el("span", { text: "out" }),
      typeset(formula.mathml.out, formula.code || ""),
    );
    parts.push(
      el(
        "section",
        {},
        el("h3", { text: "What it computed" }),
        out,
        el("p", { class: "small", text: `${formula.mixes}.` }),
      ),
    );
  }
  for (const name of sent) {
    const math = formula.mathml?.[`gradient of ${name}`],
      text = formula.gradients[name];
    back.append(
      el(
        "div",
        { class: "sent" },
        el("span", { text: `to ${name}` }),
        math ? typeset(math, text) : el("code", { text }),
      ),
    );
  }
  for (const [name, text] of Object.entries(formula.terms || {}))
    back.append(
      el(
        "div",
        { class: "sent" },
        el("span", { text: `where ${name}` }),
        typeset(/** @type {string} */ (formula.mathml?.[name]), text),
      ),
    );
  if (formula.source === "torch")
    say(`torch's own text, of ${formula.call}; grad is the gradient that arrives.`);
  else back.append(meanings(facts, node, edges, link));
  if (rest.length)
    say(
      `${rest.join(" and ")}: a plain number, or a tensor that needs no gradient; nothing is sent.`,
    );
  if (formula.note) say(`${formula.note}.`);
  parts.push(back);
  if (formula.keeps) {
    const saved = savedBytes(facts, slots.first, slots.end),
      held = Number(facts.c.held[node]),
      needed = needs(formula, new Set(sent));
    const bytes = !saved
      ? ""
      : held
        ? `: that is why it holds ${bytesText(held)}`
        : `: ${bytesText(saved)} saved, which another box or a parameter holds anyway`;
    parts.push(
      el("p", {
        class: "needs",
        text: `${needed ? `needs ${needed}` : "needs nothing of the forward pass, and keeps nothing"}${bytes}.`,
      }),
    );
  }
  return parts;
}
