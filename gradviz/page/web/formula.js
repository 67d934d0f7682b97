/** What an op computed, what its backward function sends to each input, and what it must keep for that: formulas of `records.py`. */
import { el } from "./dom.js";
import { bytesText } from "./overlay.js";

/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {{op: string, code?: string, call?: string, gradients: {[name: string]: string}, terms?: {[name: string]: string}, mathml?: {[name: string]: string}, needs?: string, mixes?: string, note?: string, source?: string}} Formula */

/** A formula as MathML, which the browser draws and speaks. @param {string} text written by Python, never by the graph @param {string} plain @returns {Element} */
function typeset(text, plain) {
  const math = /** @type {Element} */ (new DOMParser().parseFromString(text, "text/html").body.firstElementChild);
  math.setAttribute("display", "block");
  math.setAttribute("alttext", plain);
  return document.adoptNode(math);
}

/** @param {Facts} facts @param {number} node @returns {Formula | null} */
export function formulaOf(facts, node) { return (node < facts.nodes && facts.head.formulas[facts.word("op", node)]) || null; }

/** In one line, for tooltips. @param {Facts} facts @param {number} node */
export function formulaLine(facts, node) {
  const formula = formulaOf(facts, node);
  if (!formula) return "";
  const sent = Object.entries(formula.gradients || {}).map(([name, text]) => `to ${name}: ${text}`);
  return formula.source === "gradviz" ? `sends ${sent.join("; ")}` : formula.note || "";
}

/** What the letters of a formula stand for here. @param {Facts} facts @param {number} node @param {string[]} letters @param {(node: number) => Node} link */
function meanings(facts, node, letters, link) {
  const words = el("p", { class: "small" }, "g is the gradient that arrives");
  for (let e = facts.inStart[node]; e < facts.inStart[node + 1]; e++) {
    const letter = letters[facts.c.position[e]];
    if (letter) words.append(`, ${letter} is `, link(facts.made[e]));
  }
  return words;
}

/** Bytes of what a node saved, each storage once. @param {Facts} facts @param {number} first @param {number} end */
function savedBytes(facts, first, end) {
  const seen = new Map();
  for (let i = first; i < end; i++) if (facts.c.slotBytes[i] > 0) seen.set(facts.c.slotStorage[i] < 0 ? `s${i}` : facts.c.slotStorage[i], Number(facts.c.slotBytes[i]));
  return [...seen.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** @param {Facts} facts @param {number} node @param {{first: number, end: number}} slots @param {(node: number) => Node} link @returns {HTMLElement[]} */
export function formulaSections(facts, node, slots, link) {
  const formula = formulaOf(facts, node);
  if (!formula) return [];
  const heading = (/** @type {string} */ text) => el("h3", { text }), parts = [], note = formula.note ? el("p", { class: "small", text: `${formula.note}.` }) : null;
  if (!formula.gradients) return [el("section", {}, heading("What it sends back"), note)];
  const letters = Object.keys(formula.gradients);
  const sent = (/** @type {string} */ name) => {
    const math = formula.mathml?.[`gradient of ${name}`], text = formula.gradients[name];
    return el("div", { class: "sent" }, el("span", { text: `to ${name}` }), math ? typeset(math, text) : el("code", { text }));
  };
  if (formula.mathml) {
    const code = formula.code || "";
    parts.push(el("section", {}, heading("What it computed"), el("div", { class: "sent" }, el("span", { text: "out" }), typeset(formula.mathml.out, code)), el("p", { class: "small", text: `${formula.mixes}.` })));
  }
  const back = el("section", {}, heading("What it sends back"), ...letters.map(sent));
  for (const [name, text] of Object.entries(formula.terms || {})) back.append(el("div", { class: "sent" }, el("span", { text: `where ${name}` }), typeset(/** @type {string} */ (formula.mathml?.[name]), text)));
  if (formula.source === "torch") back.append(el("p", { class: "small", text: `torch's own text, of ${formula.call}; grad is the gradient that arrives.` }));
  else back.append(meanings(facts, node, letters, link));
  if (note) back.append(note);
  parts.push(back);
  if (formula.needs) {
    const saved = savedBytes(facts, slots.first, slots.end), held = Number(facts.c.held[node]);
    const why = formula.needs === "nothing" ? "needs nothing of the forward pass, and keeps nothing" : `needs ${formula.needs}`;
    const bytes = !saved ? "" : held ? `: that is why it holds ${bytesText(held)}` : `: ${bytesText(saved)} saved, which another box or a parameter holds anyway`;
    parts.push(el("p", { class: "needs", text: `${why}${bytes}.` }));
  }
  return parts;
}
