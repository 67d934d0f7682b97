/** Gradients of leaves, ranked: the largest, the smallest, and those that are zero. Where nobody measured them, which command does. */
import { barList } from "./bars.js";
import { byId, el, plural } from "./dom.js";
import { stepOf } from "./look.js";
import { short3 } from "./numbers.js";

/** @typedef {import("./app.js").App} App */

const ENDS = 12;

/** @param {App} app */
export function setUpGradients(app) {
  app.on("facts", () => byId("gradients").replaceChildren(...ranked(app)));
}

/** @param {App} app @returns {Node[]} */
function ranked(app) {
  const facts = /** @type {import("./facts.js").Facts} */ (app.facts),
    { norms } = facts.head;
  if (!norms) {
    const { title } = document,
      script = /^[\w./-]+\.(py|ipynb)\b/.exec(title)?.[0],
      page = script?.replace(/.*\//, "").replace(/\.\w+$/, ".html");
    const command = script
      ? `gradviz render ${script} --color grad -o ${page}`
      : `gradviz.flow(${/^\w+$/.test(title) ? title : "loss"}).graph.save("page.html", color="grad")`;
    return [
      el(
        "p",
        { class: "small" },
        "No gradient was measured: ",
        el("code", { text: command }),
        " measures them all.",
      ),
    ];
  }
  const all = facts.leaves.map((leaf) => ({
    leaf,
    norm: stepOf(facts, leaf.node) < 0 ? null : norms[stepOf(facts, leaf.node)],
  }));
  const bars = (/** @type {typeof all} */ list, /** @type {(norm: number) => number} */ part) =>
    list.map(({ leaf, norm }) => ({
      text: leaf.names[0] || `unnamed ${leaf.kind}`,
      amount: norm === "inf" ? "not finite" : short3(norm),
      part: typeof norm === "number" ? part(norm) : undefined,
      go: () => app.visit(facts.cellOf[leaf.node]),
    }));
  const sorted = all
      .filter(({ norm }) => typeof norm === "number" && norm > 0)
      .sort((a, b) => b.norm - a.norm),
    n = sorted.length,
    whole = n <= 2 * ENDS;
  const low = n ? Math.log10(sorted[n - 1].norm) - 0.5 : 0,
    high = n ? Math.log10(sorted[0].norm) : 1,
    part = (/** @type {number} */ norm) => (Math.log10(norm) - low) / (high - low);
  const infinite = all.filter(({ norm }) => norm === "inf"),
    zero = all.filter(({ norm }) => norm === 0),
    unknown = all.filter(({ norm }) => norm === null).length;
  return [
    ...barList("not finite", bars(infinite, part), "path"),
    ...barList(
      whole
        ? "norms of gradients, the largest first"
        : `the largest of ${n.toLocaleString("en-US")} norms`,
      bars(whole ? sorted : sorted.slice(0, ENDS), part),
      "path",
    ),
    ...(whole ? [] : barList("the smallest", bars(sorted.slice(-ENDS).reverse(), part), "path")),
    ...barList(`zero: ${plural(zero.length, "tensor")}`, bars(zero, part), "path"),
    el("p", {
      class: "small",
      text: `${n > 1 ? "Bars are on a log scale." : ""}${unknown ? ` Not measured: ${plural(unknown, "tensor")}.` : ""}`,
    }),
  ];
}
