/**
 * The state of the page and everything that changes it: what is open, selected, coloured, which
 * step
 * runs, and the camera. Parts of the page listen for what changed; none calls another.
 */
import { clamp, isStill, joined, say } from "./dom.js";
import { Facts } from "./facts.js";
import { Layout, TITLE } from "./layout.js";
import { DATA, Model, OP } from "./model.js";
import { overlay } from "./overlay.js";
import { readColors, textWidth } from "./painter.js";
import { lightNodes, lightSteps, traceOf } from "./trace.js";

/** @import { Block } from "./model.js" */
/** @import { Camera, Lit } from "./draw.js" */
/** @import { Line } from "./facts.js" */
/** @import { Overlay } from "./overlay.js" */

const SHORT = 150; // ms
const LEGIBLE = 9 / 11; // letters of 9 px
const LARGE = 1.6; // of 18 px
const FIT_ABOVE = 28; // px around what is fitted; the legend stands below
const FIT_BELOW = 52;
const EDGE = 20; // px between a box and the end of what is free

/** @type {Model} */
export let model;
/** @type {Layout} */
export let layout;
/** Read when the first view is drawn; undefined before. @type {Facts} */
export let facts;

export const app = {
  /** @type {Camera} */
  camera: { x: 0, y: 0, k: 1 },
  /** @type {number | null} */
  selected: null,
  /** The other end of paths. @type {number | null} */
  other: null,
  /** Whether the next box is the other end. */
  picking: false,
  /** An edge of the graph, in place of a box; -1 for none. */
  edge: -1,
  /** A line of code, in place of a box. @type {Line | null} */
  line: null,
  /** @type {number | null} */
  hover: null,
  /** Of a difference: 0 shows both versions, 1 the first, 2 the second. */
  version: 0,
  inputs: true, // whether inputs without gradient are shown
  shapes: false, // whether shapes stand on all edges
  names: "variable", // what ops are titled by: "variable", "forward" or "backward"
  overlayId: "kind",
  /** @type {Overlay} */
  overlay: { fill: () => "", legend: [] },
  step: -1, // the last function that runs, and the first that runs with it
  stepFirst: -1,
  travel: 1, // how far the gradients of this step are on their way, from 0 to 1
  /**
   * What depends on the selected box, or lies between two.
   * @type {ReturnType<typeof traceOf> | null}
   */
  trace: null,
  /** @type {Lit | null} */
  light: null,
  colors: readColors(),
  width: 0,
  height: 0,
  covered: 0, // room that the panel covers: at the right, or below on a narrow screen
  coveredBelow: 0
};

/** @type {{[change: string]: (() => void)[]}} */
const listeners = {};

/**
 * Call a function after changes: open, select, overlay, step, view, camera, theme, lit, travel.
 * @param {string} changes
 * @param {() => void} listener
 */
export function on(changes, listener) {
  for (const change of changes.split(" ")) (listeners[change] ||= []).push(listener);
}

/** @param {string} changes */
export function changed(changes) {
  for (const change of changes.split(" "))
    for (const listener of listeners[change] || []) listener();
}

/** @param {Block} block */
export function readModel(block) {
  model = new Model(block);
  layout = new Layout(model);
  layout.setAll((g) => model.firstOpen[g]);
}

/** @param {Block} block */
export function readFacts(block) {
  facts = new Facts(block, model);
  app.names = facts.head.titles;
  app.overlayId = facts.c.diff ? "diff" : facts.head.color;
  app.overlay = overlay(app.overlayId, facts);
}

// -- what is open --------------------------------------------------------------------------------

/** @param {(g: number) => number | boolean} isOpen @param {string} words what to say of it */
function openAs(isOpen, words) {
  layout.setAll(isOpen);
  say(words);
  changed("open");
  fit();
}

export const firstView = () => openAs((g) => model.firstOpen[g], "as the page opened");
export const openAll = () => openAs(() => 1, "everything is open");
export const closeAll = () => openAs(() => 0, "everything is closed");

/**
 * Show or hide ops that only change a shape: open or close every group of an op with such.
 * @param {boolean} shown
 */
export function showViews(shown) {
  layout.setAll(() => shown, model.withViews());
  say(`ops that only change a shape are ${shown ? "shown" : "hidden"}`);
  changed("open camera");
}

/**
 * What of two versions is shown, what ops are titled by, and whether inputs and shapes on edges are
 * shown.
 * @param {{version?: number, names?: string, inputs?: boolean, shapes?: boolean}} view
 */
export function setView(view) {
  const renamed = view.names !== undefined && view.names !== app.names;
  Object.assign(app, view);
  if (renamed) rename();
  changed("view lit");
}

/** Title ops by variable, by forward op, or by backward function. */
function rename() {
  const column = { forward: "forward", backward: "op" }[app.names];
  model.rename = () => "";
  if (column) {
    // of an op with others that only change its shape, the one that it is titled by
    const titled = new Map(
      model.withViews().map((g) => {
        const title = model.title(~g);
        return [~g, model.cellsOf(~g).find((cell) => model.title(cell) === title)];
      })
    );
    model.rename = (item) => {
      const cell = titled.get(item) ?? item;
      return model.kind[cell] === OP ? facts.word(column, model.record[cell]) : "";
    };
  }
  changed("select open");
}

/**
 * Open or close a group where it stands: its title stays where it is on the screen.
 * @param {number} g
 * @param {boolean} [open]
 * @param {() => void} [after]
 */
export function toggle(g, open = !layout.isOpen(g), after = () => {}) {
  finish();
  if (g === 0 || layout.isOpen(g) === open) return;
  if (layout.shown(~g) !== ~g) {
    layout.setOpen(g, open);
    return changed("open");
  }
  const [x, y] = titleOnScreen(g);
  const keep = () => {
    layout.forget(g);
    const [nx, ny] = titleOnScreen(g);
    app.camera.x += x - nx;
    app.camera.y += y - ny;
  };
  say(`${model.title(~g)} ${open ? "opened" : "closed"}`);
  layout.setOpen(g, true); // while it moves it counts as open
  animate(
    (part) => {
      layout.moving = { group: g, part: open ? part : 1 - part };
      keep();
    },
    () => {
      layout.moving = { group: -1, part: 1 };
      layout.setOpen(g, open);
      keep();
      changed("open camera");
      after();
    }
  );
}

/**
 * Where the middle of a group's title is: in a closed box its middle, in an open one at the left.
 * @param {number} g
 */
function titleOnScreen(g) {
  const { x, y, k } = app.camera;
  const r = layout.rect(~g);
  const closed = r.w / 2 + 7;
  const left = Math.min(22 + (textWidth(model.title(~g), true) * 11) / 2, r.w / 2);
  const part = layout.isOpen(g) ? layout.partOf(g) : 0;
  return [x + (r.x + closed + (left - closed) * part) * k, y + (r.y + TITLE / 2) * k];
}

/** Open what hides an item, select it and bring it into view. @param {number} item */
export function visit(item) {
  if (model.kind[item] === DATA) setView({ inputs: true });
  if (layout.openAround(item).length) changed("open");
  select(item);
  bringIntoView(item);
}

// -- what is selected ----------------------------------------------------------------------------

/** @param {number | null} item @param {boolean} [second] as the other end of paths */
export function select(item, second = app.picking) {
  const other = second && app.selected !== null && item !== app.selected;
  if (item !== null && item !== ~0) {
    say(joined([model.title(item), model.type(item), model.line(item)], ", "));
  }
  if (other) choose({ selected: app.selected, other: item });
  else choose({ selected: item });
}

/** @param {Partial<typeof app>} what */
function choose(what) {
  Object.assign(app, { selected: null, other: null, line: null, edge: -1, picking: false }, what);
  retrace();
  changed("select lit");
}

/** The nodes of the selected box. */
export const selectedNodes = () => (app.selected === null ? [] : facts.nodesOf(app.selected));

/** Light what a line of code made, and bring the clearest of it into view. @param {Line} line */
export function chooseLine(line) {
  choose({ line });
  say(`line ${line.line} made ${line.nodes.length} ops`);
  bringIntoView(layout.shown(facts.cellOf[clearest(line.nodes)]));
}

/** Light an edge of the graph and what stands at its ends. @param {number} edge */
export function chooseEdge(edge) {
  choose({ edge });
  say(facts.edgeTitle(edge));
}

/**
 * Of several nodes the one that shows best: in no closed group, else in the innermost one; of equal
 * ones the first to run.
 * @param {number[]} nodes
 */
export function clearest(nodes) {
  const depth = (/** @type {number} */ node) => {
    const shown = layout.shown(facts.cellOf[node]);
    return shown >= 0 ? Infinity : model.depth[~shown];
  };
  return nodes.reduce((best, node) => {
    const [a, b] = [depth(best), depth(node)];
    return b > a || (b === a && facts.cellOf[node] < facts.cellOf[best]) ? node : best;
  });
}

/** What is lit: running functions, the ends of an edge, a line, or what depends on a box. */
function retrace() {
  const { selected, other, line, edge, step } = app;
  app.trace = selected !== null && step < 0 ? traceOf(facts, selected, other) : null;
  if (step >= 0) app.light = lightSteps(facts, app.stepFirst, step);
  else if (edge >= 0) app.light = lightNodes(facts, [facts.made[edge], facts.used[edge]]);
  else app.light = line ? lightNodes(facts, line.nodes) : app.trace;
}

/** @param {string} id */
export function setOverlay(id) {
  app.overlayId = id;
  app.overlay = overlay(id, facts);
  changed("overlay");
}

/**
 * @param {number} step the last function that runs, from 0; -1 for none
 * @param {number} [first] the first that runs with it
 */
export function setStep(step, first = step) {
  app.step = step;
  app.stepFirst = first;
  retrace();
  changed("step lit");
}

// -- the camera ----------------------------------------------------------------------------------

/** @param {number} width @param {number} height */
export function resize(width, height) {
  const hidden = !app.height; // as in a frame that a notebook has not opened yet
  if (app.width) app.camera.x += (width - app.width) / 2; // what was in the middle stays there
  app.width = width;
  app.height = height;
  if (hidden && height) fit(false, true);
  changed("camera");
}

/** The size of what no panel covers. */
const free = () => [Math.max(app.width - app.covered, 80), app.height - app.coveredBelow];

/** Where an item is on the screen. @param {number} item */
export function onScreen(item) {
  const { x, y, k } = app.camera;
  const r = layout.rect(item);
  return { x: x + r.x * k, y: y + r.y * k, w: r.w * k, h: r.h * k };
}

/**
 * Everything; where that would be too small to read, its top at a size that can be read.
 * @param {boolean} [whole] however small
 * @param {boolean} [atOnce]
 */
export function fit(whole = false, atOnce = false) {
  const { w, h } = layout.rect(~0);
  const [width] = free();
  const left = width > 500 ? 54 : 14; // left of it are buttons
  const room = width - left - 14;
  const tall = app.height - FIT_ABOVE - FIT_BELOW;
  const fits = Math.min(room / w, tall / h, LARGE);
  const k = whole || fits >= LEGIBLE ? fits : clamp(room / w, LEGIBLE, 1);
  const spare = room - w * k;
  const top = room / 2 - firstMiddle() * k;
  const x = left + (spare >= 0 ? spare / 2 : clamp(top, spare, 0));
  fly({ k, x, y: FIT_ABOVE + Math.max((tall - h * k) / 2, 0) }, atOnce);
}

/** The middle of what stands first, so that a wide page begins where there is something. */
function firstMiddle() {
  const boxes = layout.boxes(0);
  const top = Math.min(...boxes.map(({ y }) => y));
  const first = boxes.find(({ y }) => y === top);
  return first ? first.x + first.w / 2 : 0;
}

/**
 * Move as little as brings a box into what is free; of one that has no room there, its title.
 * @param {number} item
 */
export function reveal(item) {
  const { x, y, w, h } = onScreen(item);
  const [width, height] = free();
  const dx = moveInto(x, w, width, 160);
  const dy = moveInto(y, h, height, TITLE);
  const { camera } = app;
  if (dx || dy) fly({ k: camera.k, x: camera.x + dx, y: camera.y + dy });
}

/**
 * How far to move an interval so that it lies between 0 and an end.
 * @param {number} start
 * @param {number} size
 * @param {number} end
 * @param {number} least what must be there of a larger one
 */
function moveInto(start, size, end, least) {
  const needed = size > end - 2 * EDGE ? least : size;
  return Math.max(EDGE - start, Math.min(0, end - EDGE - start - needed));
}

/**
 * Move a box into the middle, at a size that can be read, where it is not in view.
 * @param {number} item
 * @param {number} [ms]
 */
export function bringIntoView(item, ms) {
  const r = layout.rect(item);
  const { x, y, w, h } = onScreen(item);
  const [width, height] = free();
  const { k } = app.camera;
  const isReadable = k >= 0.6 && k <= 2;
  const isInside = x > EDGE && y > EDGE && x + w < width - EDGE && y + h < height - EDGE;
  if (isReadable && isInside) return changed("camera");
  const size = isReadable ? k : clamp(Math.min(width / r.w, height / r.h), 0.6, 1);
  const down = Math.min(r.h / 2, (height / 2 - 40) / size); // of a tall box the top
  centre(r.x + r.w / 2, r.y + down, size, ms);
}

/**
 * Move a point of the page into the middle of what is free.
 * @param {number} x
 * @param {number} y
 * @param {number} [k]
 * @param {number} [ms]
 */
export function centre(x, y, k = app.camera.k, ms = SHORT) {
  const [width, height] = free();
  fly({ k, x: width / 2 - x * k, y: height / 2 - y * k }, !ms, ms);
}

/**
 * Zoom about a point of the screen.
 * @param {number} factor
 * @param {number} [px]
 * @param {number} [py]
 */
export function zoom(factor, px = free()[0] / 2, py = app.height / 2) {
  const { camera } = app;
  const k = clamp(camera.k * factor, 0.001, 8);
  camera.x = px - ((px - camera.x) * k) / camera.k;
  camera.y = py - ((py - camera.y) * k) / camera.k;
  camera.k = k;
  changed("camera");
}

/** @param {number} dx @param {number} dy */
export function pan(dx, dy) {
  app.camera.x += dx;
  app.camera.y += dy;
  changed("camera");
}

/** @param {Camera} to @param {boolean} [atOnce] @param {number} [ms] */
export function fly(to, atOnce = false, ms = SHORT) {
  const { camera } = app;
  const from = { ...camera };
  const end = () => {
    Object.assign(camera, to);
    changed("camera");
  };
  if (atOnce) return end();
  animate(
    (part) => {
      // about a fixed point of the page, so that nothing swings
      const k = from.k * (to.k / from.k) ** part;
      const t = Math.abs(to.k - from.k) < 1e-9 ? part : (k - from.k) / (to.k - from.k);
      Object.assign(camera, {
        k,
        x: from.x + (to.x - from.x) * t,
        y: from.y + (to.y - from.y) * t
      });
    },
    end,
    ms
  );
}

let frame = 0;
/** @type {(() => void) | undefined} */
let ending;

/**
 * Calls `place` with 0 to 1 over a short time, at once where motion is not wanted.
 * @param {(part: number) => void} place
 * @param {() => void} end
 * @param {number} [ms]
 */
function animate(place, end, ms = SHORT) {
  finish();
  if (isStill() || document.hidden) return end();
  const began = performance.now();
  const tick = (/** @type {number} */ now) => {
    const part = Math.max(0, (now - began) / ms);
    if (part >= 1) return finish();
    place(1 - (1 - part) ** 3);
    changed("camera");
    frame = requestAnimationFrame(tick);
  };
  ending = end;
  frame = requestAnimationFrame(tick);
}

/** Ends what is moving. */
export function finish() {
  cancelAnimationFrame(frame);
  const end = ending;
  ending = undefined;
  end?.();
}
