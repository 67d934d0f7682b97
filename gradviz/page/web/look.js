/**
 * How everything looks now: colours, what is lit, numbers of findings, badges. The same for the
 * screen and for export.
 */
import { app, facts, layout, model } from "./app.js";
import { short3 } from "./dom.js";
import { DATA } from "./model.js";
import { factorOn, scalarLine, sumLine } from "./formula.js";

/** @import { Look } from "./draw.js" */

/** @param {boolean} [plain] without what the pointer is on @returns {Look} */
export function lookOf(plain = false) {
  const { colors, overlay, step } = app;
  const look = {
    colors,
    lit: app.light,
    selected: app.selected,
    other: app.other,
    hover: plain ? null : app.hover,
    kind: (/** @type {number} */ item) => model.color(item),
    line: (/** @type {number} */ item) => model.line(item),
    travel: 1,
    backward: step >= 0
  };
  if (!facts) return look; // the first view
  return {
    ...look,
    selected: step >= 0 ? running() : app.selected,
    // few colours beside those of an overlay
    kind: app.overlayId === "kind" ? look.kind : (item) => model.kindWord(item),
    fill: (item) => colors[overlay.fill(item)] || "",
    line: (item) => overlay.line?.(item) || scalarLine(item) || model.line(item),
    marks: (item) => (layout.isSheet(item) ? [] : facts.marksOf(item)),
    badge,
    absent: hidden(),
    edgeText,
    travel: step >= 0 ? app.travel : 1,
    edgeKinds: facts.edgeKinds,
    cut: (item) => facts.isCut(item),
    cutEdge: (g, e) => facts.anyCut && facts.isCutEdge(facts.edgesBehind(g)[e])
  };
}

/** The item that stands for the running function: its cell, or the closed group that hides it. */
const running = () => layout.shown(facts.cellOf[facts.c.stepNode[app.step]]);

/**
 * Whether an item is not shown: of another version, or an input without gradient.
 * @returns {((item: number) => boolean) | null}
 */
export function hidden() {
  const shown = app.version ? facts.versions()[app.version - 1] : null;
  if (app.inputs && !shown) return null;
  return (item) => shown?.(item) === 0 || (!app.inputs && model.kind[item] === DATA);
}

/**
 * What stands on the edges of a sheet: by what a single number multiplies its gradient, and shapes
 * on those that are lit, or on all.
 * @param {number} g
 * @param {boolean} lit
 */
function edgeText(g, lit) {
  const shapes = app.shapes || (lit && app.step < 0);
  if (!shapes && !facts.smallOf.size) return null;
  const behind = facts.edgesBehind(g);
  return (/** @type {number} */ e) => {
    if (behind[e] < 0) return "";
    const factor = factorOn(behind[e]);
    if (factor !== null) return `× ${short3(factor)}`;
    return shapes ? facts.tensorOn(behind[e]) : "";
  };
}

/** @param {number} item */
function badge(item) {
  if (item < 0) return "";
  const node = facts.nodeOf(item);
  if (app.step >= 0) return stepBadge(node);
  if (node >= facts.nodes) return "";
  const flags = facts.flags[facts.c.flag[node]].map(([flag]) => flag);
  const known = facts.head.allFreed ? ["cut", "freed"] : ["cut"];
  return flags.filter((flag) => !known.includes(flag)).join(" ");
}

/**
 * Of a function that ran, that runs, or that waits for more gradients before it runs.
 * @param {number} node
 */
function stepBadge(node) {
  const step = facts.stepOf[node];
  if (step < 0) return "";
  if (step > app.step) {
    const [there, all] = facts.arrived(node, app.step);
    return there && there < all ? `${there} of ${all}` : "";
  }
  const ran = step >= app.stepFirst ? `#${step + 1}` : "✓";
  return sumLine(node) || (facts.leafOf.has(node) ? "✓ .grad" : ran);
}
