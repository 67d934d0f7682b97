/** Lists at the side: rows with a bar, each goes to its boxes. */
import { el } from "./dom.js";

/** @typedef {{text: string, amount: string, part?: number, go: () => void}} Bar `part` of the widest bar, nothing for no bar */

const BARS = 25;

/** @param {string} title @param {Bar[]} bars @param {string} [kind] "path" where the end of a text tells most */
export function barList(title, bars, kind = "") {
  const rows = bars.slice(0, BARS).map(({ text, amount, part, go }) => {
    const bar = el("div", { class: "bar", hidden: part === undefined });
    bar.style.width = `${100 * (part || 0)}%`;
    return el(
      "li",
      {},
      el(
        "button",
        { onclick: go, title: text },
        el("span", { class: `what ${kind}` }, el("bdi", { text })),
        el("span", { text: amount }),
        bar,
      ),
    );
  });
  if (bars.length > BARS)
    rows.push(el("li", { class: "small", text: `+${bars.length - BARS} more` }));
  return bars.length ? [el("h2", { text: title }), el("ol", { class: "bars" }, ...rows)] : [];
}
