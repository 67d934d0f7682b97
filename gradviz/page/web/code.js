/** The user's own code beside the graph: a line lights the boxes that it made, a box lights its lines. */
import { byId, count, el, plural } from "./dom.js";
import { bytesText } from "./overlay.js";
import { stepOf } from "./look.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {{file: string, line: number, text: string, nodes: number[]}} Line */

/** Lines that made nodes, by "file:line". @param {Facts} facts @returns {Map<string, Line>} */
export function linesOf(facts) {
  const own = new Set(facts.head.code.map((/** @type {[string]} */ [file]) => file)),
    found = new Map();
  for (let node = 0; node < facts.nodes; node++) {
    for (const at of new Set([facts.c.source[node], facts.c.scriptLine[node]])) {
      const [file, line, , text] = at < 0 ? ["", 0, "", ""] : facts.sources[at],
        key = `${file}:${line}`;
      if (!own.has(file)) continue;
      const here = found.get(key);
      if (here) here.nodes.push(node);
      else found.set(key, { file, line, text, nodes: [node] });
    }
  }
  return found;
}

/** What the ops of a line hold, and the largest gradient that arrives at one. @param {Facts} facts @param {Line} line @returns {{bytes: number, norm: number | null}} */
export function sumsOf(facts, line) {
  let bytes = 0,
    norm = null;
  for (const node of line.nodes) {
    bytes += Number(facts.c.held[node]);
    const at = stepOf(facts, node),
      one = facts.head.norms && at >= 0 ? facts.head.norms[at] : null;
    if (one !== null && (norm === null || one > norm)) norm = one;
  }
  return { bytes, norm };
}

export class Code {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.list = byId("code");
    /** @type {Map<string, HTMLElement>} */
    this.rows = new Map();
    app.on("facts", () => this.#fill());
    app.on("select", () => this.mark());
  }

  #fill() {
    const facts = /** @type {Facts} */ (this.app.facts),
      files = facts.head.code;
    this.app.lines = linesOf(facts);
    this.list.replaceChildren();
    for (const [file, numbers, texts, missing] of files) {
      this.list.append(
        el("h2", { text: file }),
        missing ? el("p", { class: "small", text: `Only lines that made ops: ${missing}.` }) : "",
      );
      texts.forEach((/** @type {string} */ text, /** @type {number} */ i) => {
        const line = this.app.lines.get(`${file}:${numbers[i]}`),
          words = [el("span", { class: "number", text: String(numbers[i]) }), el("code", { text })];
        if (i && numbers[i] > numbers[i - 1] + 1)
          this.list.append(el("div", { class: "line gap", text: "⋯" }));
        if (!line) return this.list.append(el("div", { class: "line" }, ...words));
        const row = el(
          "button",
          { class: "line", title: this.words(line), onclick: () => this.app.choose(line) },
          ...words,
          el("span", { class: "ops", text: plural(line.nodes.length, "op") }),
        );
        this.rows.set(`${file}:${numbers[i]}`, row);
        this.list.append(row);
      });
    }
    byId("tab-code").hidden = files.length === 0;
  }

  /** @param {Line} line */
  words(line) {
    const facts = /** @type {Facts} */ (this.app.facts),
      { bytes, norm } = sumsOf(facts, line);
    return [
      plural(line.nodes.length, "op"),
      bytes ? `holds ${bytesText(bytes)}` : "",
      norm === null ? "" : `gradient norm up to ${norm}`,
    ]
      .filter(Boolean)
      .join(", ");
  }

  /** Show which lines made what is selected. */
  mark() {
    const { app } = this,
      facts = app.facts,
      item = app.selected;
    if (!facts) return;
    const lit = new Set(app.line ? [`${app.line.file}:${app.line.line}`] : []);
    if (item !== null && item !== ~0)
      for (const node of facts.nodesOf(item)) {
        if (node >= facts.nodes) continue;
        for (const at of [facts.c.source[node], facts.c.scriptLine[node]])
          if (at >= 0) lit.add(`${facts.sources[at][0]}:${facts.sources[at][1]}`);
      }
    for (const [key, row] of this.rows) row.classList.toggle("on", lit.has(key));
    if (!app.line) this.list.querySelector(".on")?.scrollIntoView({ block: "center" });
  }
}

/** The tabs at the side: one is shown. @param {App} app */
export function setUpTabs(app) {
  const names = ["outline", "code", "memory", "gradients", "changes", "findings"],
    pane = (/** @type {string} */ name) => byId(name === "findings" ? "findings-box" : name);
  const show = (/** @type {string} */ name) => {
    for (const one of names) {
      byId(`tab-${one}`).setAttribute("aria-selected", String(one === name));
      byId(`tab-${one}`).tabIndex = one === name ? 0 : -1;
      pane(one).hidden = one !== name;
    }
    byId("side").classList.toggle("wide", name === "code" || name === "changes");
    byId("side").dataset.tab = name;
    const first = byId("code").querySelector("button.on") || byId("code").querySelector("button");
    if (name === "code" && first && !byId("code").scrollTop)
      first.scrollIntoView({ block: "center" });
  };
  for (const name of names) byId(`tab-${name}`).addEventListener("click", () => show(name));
  byId("tabs").addEventListener("keydown", (event) => {
    const shown = names.filter((name) => !byId(`tab-${name}`).hidden),
      at = shown.findIndex((name) => byId(`tab-${name}`) === document.activeElement);
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined || at < 0) return;
    event.stopPropagation();
    const next = shown[(at + by + shown.length) % shown.length];
    byId(`tab-${next}`).focus();
    show(next);
  });
  app.on("facts", () => {
    const facts = /** @type {Facts} */ (app.facts),
      any = facts.marks.length > 0;
    byId("tab-findings").hidden = !any;
    byId("tab-findings").textContent = facts.marks.length
      ? `Findings ${count(facts.marks.length)}`
      : "Ranks";
    show(any ? "findings" : facts.c.diff ? "changes" : "outline");
  });
  show("outline");
}
