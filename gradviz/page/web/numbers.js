/** The numbers of small tensors, as coloured cells, and the profile of gradient norms from the loss to the inputs. */
import { byId, el } from "./dom.js";

/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {(number | string)[]} Values a word stands for what is not finite */
/** @typedef {{arrived: Values, value: Values, sent: Values[], spread: Values, freed: boolean}} Small spread: least, mean, largest */

/** @type {WeakMap<object, Map<number, Small>>} */
const tables = new WeakMap();

/** What is known of the numbers of a node. @param {Facts} facts @param {number} node @returns {Small | undefined} */
export function smallOf(facts, node) {
  let found = tables.get(facts);
  if (!found)
    tables.set(
      facts,
      (found = new Map(
        facts.head.small.map((/** @type {any[]} */ [id, arrived, value, sent, spread, freed]) => [
          id,
          { arrived, value, sent, spread, freed },
        ]),
      )),
    );
  return found.get(node);
}

/** @param {number | string} value */
export function short3(value) {
  if (typeof value === "string") return value;
  return value && Math.abs(value) < 1e-3
    ? value.toExponential(1)
    : String(Number(value.toPrecision(3)));
}

/** The value and the gradient of a single number, for its box. @param {Facts} facts @param {number} node */
export function scalarLine(facts, node) {
  const small = smallOf(facts, node);
  if (!small) return "";
  const words = [
    small.value.length === 1 ? `= ${short3(small.value[0])}` : "",
    small.arrived.length === 1 ? `grad ${short3(small.arrived[0])}` : "",
  ];
  return small.value.length > 1 ? "" : words.filter(Boolean).join(", ");
}

/** `3 + 2 = 5` where several gradients of single numbers meet. @param {Facts} facts @param {number} node */
export function sumLine(facts, node) {
  const parts = [],
    arrived = smallOf(facts, node)?.arrived || [];
  for (let i = facts.outStart[node]; i < facts.outStart[node + 1]; i++) {
    const edge = facts.outEdge[i],
      sent =
        facts.used[edge] < facts.nodes
          ? smallOf(facts, facts.used[edge])?.sent[facts.c.position[edge]]
          : undefined;
    if (sent?.length !== 1) return "";
    parts.push(short3(sent[0]));
  }
  return parts.length > 1 && arrived.length === 1
    ? `${parts.join(" + ").replaceAll("+ -", "− ")} = ${short3(arrived[0])}`
    : "";
}

/** By what the gradient is multiplied along an edge between two single numbers; null elsewhere. @param {Facts} facts @param {number} edge @returns {number | null} */
export function factorOn(facts, edge) {
  const user = facts.used[edge],
    small = user < facts.nodes ? smallOf(facts, user) : undefined,
    sent = small?.sent[facts.c.position[edge]],
    arrived = small?.arrived;
  if (
    sent?.length !== 1 ||
    arrived?.length !== 1 ||
    typeof sent[0] !== "number" ||
    typeof arrived[0] !== "number" ||
    !arrived[0]
  )
    return null;
  return sent[0] / arrived[0];
}

/** The chain rule between two boxes, path by path: `3 × 1 + 2 × 1 = 5`; "" where there are many, or more than single numbers. @param {Facts} facts @param {import("./trace.js").Trace} trace @param {number} from @param {number} to */
export function chainLine(facts, trace, from, to) {
  if (trace.count > 8n) return "";
  /** @type {number[][]} */
  const done = [],
    waiting = [{ node: from, factors: /** @type {number[]} */ ([]) }];
  while (waiting.length) {
    const { node, factors } = /** @type {typeof waiting[0]} */ (waiting.pop());
    if (node === to) done.push(factors);
    for (let i = facts.outStart[node]; node !== to && i < facts.outStart[node + 1]; i++) {
      const edge = facts.outEdge[i],
        user = facts.used[edge],
        factor = user < facts.nodes ? factorOn(facts, edge) : 1;
      if (!trace.isLit(edge)) continue;
      if (factor === null) return "";
      waiting.push({ node: user, factors: user < facts.nodes ? [factor, ...factors] : factors });
    }
  }
  if (!done.some((factors) => factors.length)) return "";
  const times = (/** @type {number} */ so, /** @type {number} */ factor) => so * factor,
    sum = done.reduce((so, factors) => so + factors.reduce(times, 1), 0);
  return `${done.map((factors) => factors.map((factor) => (factor < 0 ? `(${short3(factor)})` : short3(factor))).join(" × ")).join(" + ")} = ${short3(sum)}`;
}

/** Cells of one tensor, its last dimension across: warm above zero, cool below. @param {string} name @param {Values} values @param {string} tensor its shape */
function cells(name, values, tensor) {
  const sizes = (/\(([^)]*)\)/.exec(tensor)?.[1] || "")
      .split(",")
      .map(Number)
      .filter((size) => size > 0),
    across = sizes[sizes.length - 1] || 1;
  const most =
    values.reduce(
      (/** @type {number} */ so, value) =>
        typeof value === "number" ? Math.max(so, Math.abs(value)) : so,
      0,
    ) || 1;
  const grid = el("div", { class: "cells" });
  grid.style.gridTemplateColumns = `repeat(${values.length % across ? values.length : across}, max-content)`;
  for (const value of values) {
    const cell = el("span", { text: short3(value), title: String(value) }),
      part = typeof value === "number" ? Math.round((70 * Math.abs(value)) / most) : 100;
    const hue =
      typeof value === "string" ? "var(--removed)" : value < 0 ? "var(--leaf)" : "var(--heat5)";
    cell.style.background = `color-mix(in srgb, ${hue} ${part}%, transparent)`;
    grid.append(cell);
  }
  return el(
    "div",
    { class: "tensor", tabindex: 0, role: "group", "aria-label": `${name} ${tensor}` },
    el("p", { class: "small", text: `${name} ${tensor}` }),
    grid,
  );
}

/** What takes the place of cells that are not there. @param {string} name @param {string} tensor its shape @param {Small} small */
function noCells(name, tensor, small) {
  const [least, mean, largest] = small.spread.map(short3);
  if (name === "value" && least)
    return el("p", {
      class: "small",
      text: `${name} ${tensor}: ${least} to ${largest}, mean ${mean}`,
    });
  if (name === "value" && small.freed)
    return el("p", {
      class: "small",
      text: `${name} ${tensor}: freed, no variable and no op holds it`,
    });
  const elements = (/\(([^)]*)\)/.exec(tensor)?.[1] || "")
    .split(",")
    .filter(Boolean)
    .reduce((so, size) => so * Number(size), 1);
  const why =
    elements > 64
      ? `${elements.toLocaleString("en")} elements; --values keeps up to 64`
      : name === "value"
        ? "not known: autograd did not save it, and no call of torch returned it"
        : "not known";
  return el("p", { class: "small", text: `${name} ${tensor}: ${why}` });
}

/** @param {Facts} facts @param {number} node @param {(node: number) => string} title @returns {HTMLElement[]} */
export function numberSection(facts, node, title) {
  const small = smallOf(facts, node),
    leaf = facts.leafOf.get(node);
  if (!small) return [];
  const shape = (/** @type {number} */ one) =>
    facts.brief(facts.leafOf.get(one)?.tensor || facts.outputs[facts.c.outs[one]][0] || "");
  const shown = (
    /** @type {string} */ name,
    /** @type {Values | undefined} */ values,
    /** @type {number} */ one,
  ) => (values?.length ? cells(name, values, shape(one)) : noCells(name, shape(one), small));
  const parts = [
    shown("value", small.value, node),
    shown(leaf ? ".grad receives" : "gradient that arrives", small.arrived, node),
  ];
  for (const e of facts.gradientEdges(node))
    parts.push(
      shown(`sent to ${title(facts.made[e])}`, small.sent[facts.c.position[e]], facts.made[e]),
    );
  return [el("section", {}, el("h3", { text: "In numbers" }), ...parts)];
}

/** A strip of all gradient norms in the order of backward, on a log scale; a click goes to the box. */
export class Profile {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.canvas = /** @type {HTMLCanvasElement} */ (byId("profile"));
    for (const change of /** @type {const} */ (["overlay", "theme", "facts", "select"]))
      app.on(change, () => this.draw());
    this.canvas.addEventListener("click", (event) => {
      const { facts } = app,
        n = facts?.c.stepNode.length || 0,
        at = Math.round(((event.offsetX - LEFT) / (this.canvas.clientWidth - LEFT - 8)) * (n - 1));
      if (facts && n) app.visit(facts.cellOf[facts.c.stepNode[Math.max(0, Math.min(n - 1, at))]]);
    });
  }

  draw() {
    const { app, canvas } = this,
      facts = app.facts;
    canvas.hidden = app.overlayId !== "grad" || !facts?.head.norms || app.width < 500;
    if (canvas.hidden || !facts) return;
    const norms = /** @type {(number | null)[]} */ (
      facts.head.norms.map((/** @type {any} */ norm) =>
        typeof norm === "number" && norm > 0 ? Math.log10(norm) : null,
      )
    );
    const known = norms.filter((norm) => norm !== null),
      low = Math.floor(Math.min(...known)),
      high = Math.ceil(Math.max(...known)) + (known.length ? 0 : 1);
    const ratio = devicePixelRatio || 1,
      w = canvas.clientWidth,
      h = canvas.clientHeight,
      { colors } = app;
    canvas.width = w * ratio;
    canvas.height = h * ratio;
    const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const px = (/** @type {number} */ i) =>
        LEFT + ((w - LEFT - 8) * i) / Math.max(1, norms.length - 1),
      py = (/** @type {number} */ v) => 20 + ((h - 38) * (high - v)) / Math.max(1, high - low);
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = colors.muted;
    c.fillText("gradient norms", LEFT, 12);
    c.fillText("loss", LEFT, h - 4);
    c.textAlign = "right";
    c.fillText("inputs", w - 8, h - 4);
    for (const v of new Set([low, high])) c.fillText(`1e${v}`, LEFT - 4, py(v) + 4);
    const [first, last] = this.#range(facts);
    c.fillStyle = colors.hover || colors["soft-line"];
    if (last >= first) c.fillRect(px(first) - 2, 18, Math.max(4, px(last) - px(first) + 4), h - 34);
    const largest = Math.max(...known);
    c.textAlign = "left";
    if (low < largest - 4) c.fillText("red: < 1/10,000 of the largest", LEFT + 90, 12);
    norms.forEach((norm, i) => {
      if (norm === null) return;
      c.fillStyle = norm < largest - 4 ? colors.warn : colors.accent;
      c.fillRect(px(i) - 1, py(norm) - 1, 3, 3);
    });
  }

  /** The first and last step of what is selected. @param {Facts} facts @returns {[number, number]} */
  #range(facts) {
    let first = Infinity,
      last = -1;
    if (this.app.selected !== null && this.app.selected !== ~0) {
      const chosen = new Set(facts.nodesOf(this.app.selected));
      facts.c.stepNode.forEach((node, i) => {
        if (chosen.has(node)) [first, last] = [Math.min(first, i), i];
      });
    }
    return [first, last];
  }
}

const LEFT = 40; // px
