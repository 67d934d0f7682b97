/** What is said of the box or the edge under the pointer. */
import { byId, el } from "./dom.js";
import { kindWord } from "./draw.js";
import { formulaLine } from "./formula.js";
import { DATA } from "./model.js";
import { edgesBehind, tensorOn } from "./trace.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./facts.js").Facts} Facts */

const NEAR = 6; // px

export class Tip {
  /** @param {App} app @param {import("./canvas.js").Stage} stage */
  constructor(app, stage) {
    this.app = app;
    this.box = byId("tip");
    stage.canvas.addEventListener("pointermove", (event) =>
      this.show(
        event.buttons || event.pointerType === "touch" ? [] : this.lines(stage.hit(event)),
        event.offsetX,
        event.offsetY,
      ),
    );
    for (const name of /** @type {const} */ (["pointerleave", "pointerdown", "wheel"]))
      stage.canvas.addEventListener(name, () => this.show([], 0, 0), { passive: true });
  }

  /** @param {string[]} lines the first is the title @param {number} x @param {number} y */
  show(lines, x, y) {
    this.box.hidden = !lines.length;
    if (!lines.length) return;
    this.box.replaceChildren(...lines.map((text, i) => el(i ? "div" : "strong", { text })));
    const { app } = this,
      room = app.width - app.covered,
      left = x + 14 + this.box.offsetWidth > room ? x - 10 - this.box.offsetWidth : x + 14;
    this.box.style.left = `${Math.max(4, left)}px`;
    this.box.style.top = `${y + 18 + this.box.offsetHeight > app.height ? y - 10 - this.box.offsetHeight : y + 18}px`;
  }

  /** @param {{item: number, title: boolean, px: number, py: number, x: number, y: number}} hit @returns {string[]} */
  lines(hit) {
    const { app } = this,
      { model, facts } = app;
    if (!facts) return [];
    if (hit.item !== ~0 && hit.title)
      return hit.item < 0
        ? [
            [model.title(hit.item), model.type(hit.item)].filter(Boolean).join("  "),
            model.line(hit.item),
          ]
        : this.#cell(facts, hit.item);
    const g = hit.item < 0 ? ~hit.item : 0,
      at = app.layout.edgeAt(g, hit.px - hit.x, hit.py - hit.y, NEAR / app.camera.k),
      edge = at < 0 ? -1 : edgesBehind(facts, g)[at];
    if (edge < 0) return [];
    return [
      `${model.title(facts.madeCell(edge))} → ${model.title(facts.usedCell(edge))}`,
      tensorOn(facts, edge),
    ];
  }

  /** @param {Facts} facts @param {number} cell */
  #cell(facts, cell) {
    const { model } = this.app,
      node = facts.nodeOf(cell),
      leaf = facts.leafOf.get(node);
    if (leaf)
      return [
        model.title(cell),
        `${leaf.kind} ${leaf.tensor}`,
        leaf.hasGrad ? ".grad was set before this call" : ".grad was None before this call",
      ];
    if (node >= facts.firstData) return [model.title(cell), model.line(cell), kindWord(DATA)];
    if (node >= facts.nodes) return [model.title(cell), facts.roots[node - facts.nodes].tensor];
    const at = facts.c.scriptLine[node] >= 0 ? facts.c.scriptLine[node] : facts.c.source[node];
    const lines = [
      model.title(cell),
      `${facts.word("forward", node)} ${facts.outputs[facts.c.outs[node]].join(", ")}`,
      facts.word("op", node),
      formulaLine(facts, node),
    ];
    if (at >= 0)
      lines.push(`${facts.sources[at][0]}:${facts.sources[at][1]}  ${facts.sources[at][3]}`);
    return lines.filter(Boolean);
  }
}
