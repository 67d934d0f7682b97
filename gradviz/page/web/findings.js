/** The list of findings, or of what differs by rank: each goes to the box that bears its number. */
import { byId, el, plural } from "./dom.js";
import { cellsOf } from "./look.js";

/** @param {import("./app.js").App} app */
export function setUpFindings(app) {
  app.on("facts", () => {
    const facts = /** @type {import("./facts.js").Facts} */ (app.facts),
      list = byId("findings");
    byId("findings-title").textContent = plural(
      facts.marks.length,
      facts.head.ofRanks ? "difference by rank" : "finding",
      facts.head.ofRanks ? "differences by rank" : "findings",
    );
    list.replaceChildren(
      ...facts.marks.map((mark) => {
        const cells = cellsOf(facts, mark);
        let at = -1;
        const button = el(
          "button",
          {
            class: `finding ${mark.words.split(":")[0]}`,
            "aria-disabled": cells.length ? null : "true",
            title: cells.length ? "Show the box" : "no box of this graph",
            onclick: () => {
              at = (at + 1) % Math.max(1, cells.length);
              if (cells.length) app.visit(cells[at]);
            },
          },
          el("span", { class: "number", text: String(mark.number) }),
          el("span", { text: mark.words }),
        );
        return el("li", {}, button, reasons(facts, mark.number));
      }),
    );
  });
}

/** Why a finding is one, and what to do: known on a page of `check`. @param {import("./facts.js").Facts} facts @param {number} number */
function reasons(facts, number) {
  const row = (facts.head.findings || []).find((/** @type {any[]} */ one) => one[0] === number);
  if (!row) return null;
  const [, , , , names, where, why, fix, so, code] = row,
    list = el("dl");
  for (const [word, text] of [
    ["names", names],
    ["where", where],
    ["code", code],
    ["why", why],
    ["so", so],
    ["do", fix],
  ])
    if (text)
      list.append(
        el("dt", { text: word }),
        el("dd", { class: word === "code" ? "code" : "", text }),
      );
  return el("details", { class: "why" }, el("summary", { text: "why, and what to do" }), list);
}
