/** What differs between two graphs, alike changes in one row: each click goes to the next of its boxes. */
import { alike, pattern, times, together } from "./alike.js";
import { barList } from "./bars.js";
import { byId, plural } from "./dom.js";
import { OP } from "./model.js";
import { overlay } from "./overlay.js";

/** @param {import("./app.js").App} app */
export function setUpChanges(app) {
  app.on("facts", () => {
    const facts = /** @type {import("./facts.js").Facts} */ (app.facts),
      { diff } = facts.c;
    byId("tab-changes").hidden = !diff;
    if (!diff) return;
    const { model } = app,
      said = new Map(facts.head.changes),
      { fill } = overlay("diff", facts),
      items = changed(app, fill);
    const words = (/** @type {number} */ item) => {
      if (item < 0)
        return [model.title(item), model.type(item), model.line(item)].filter(Boolean).join("  ");
      const node = facts.nodeOf(item);
      return `${model.title(item)}  ${(said.get(node) || [facts.brief(facts.outputs[facts.c.outs[node]].join(", "))]).join("; ")}`;
    };
    for (const kind of ["added", "removed", "changed"]) {
      const mine = items.filter((item) => fill(item) === kind);
      const rows = alike(
        mine,
        (item) => `${item < 0 ? pattern(words(item)) : words(item)} ${pattern(facts.pathOf(item))}`,
      ).map((equal) => {
        const where = together(equal.map((item) => facts.pathOf(item)));
        let at = -1;
        return {
          text: `${words(equal[0])}${where ? `  in ${where}` : ""}`,
          amount: times(equal.length).trim(),
          go: () => app.visit(equal[(at = (at + 1) % equal.length)]),
        };
      });
      byId("changes").append(...barList(`${kind}: ${plural(mine.length, "box", "boxes")}`, rows));
    }
  });
}

/** Ops that differ; of a module that came or went as a whole, its box alone. @param {import("./app.js").App} app @param {(item: number) => string} fill @returns {number[]} */
function changed({ model }, fill) {
  const found = [],
    waiting = [~0];
  while (waiting.length) {
    const item = /** @type {number} */ (waiting.pop()),
      kind = fill(item);
    if (item >= 0 ? kind && model.kind[item] === OP : kind === "added" || kind === "removed")
      found.push(item);
    else if (item < 0 && kind)
      for (let i = model.shape(~item).children - 1; i >= 0; i--) waiting.push(model.item(~item, i));
  }
  return found;
}
