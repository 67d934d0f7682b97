/** The list of findings: each goes to the box that bears its number. */
import { byId, el, plural } from "./dom.js";
import { cellsOf } from "./look.js";

/** @param {import("./app.js").App} app */
export function setUpFindings(app) {
  app.on("facts", () => {
    const facts = /** @type {import("./facts.js").Facts} */ (app.facts), list = byId("findings");
    byId("findings-box").hidden = !facts.marks.length;
    byId("findings-title").textContent = plural(facts.marks.length, "finding");
    list.replaceChildren(...facts.marks.map((mark) => {
      const cells = cellsOf(facts, mark);
      let at = -1;
      const button = el("button", {
        class: `finding ${mark.words.split(":")[0]}`, disabled: !cells.length, title: cells.length ? "Show the box" : "no box of this graph",
        onclick: () => {
          at = (at + 1) % cells.length;
          app.visit(cells[at]);
        },
      }, el("span", { class: "number", text: String(mark.number) }), el("span", { text: mark.words }));
      return el("li", {}, button);
    }));
  });
}
