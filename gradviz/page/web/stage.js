/**
 * The canvas: draws a frame when something changed, answers drag, wheel, pinch, click and keys, and
 * says what is under the pointer; and the small map in the corner.
 */
import {
  app,
  centre,
  chooseEdge,
  facts,
  finish,
  fit,
  layout,
  model,
  on,
  pan,
  resize,
  reveal,
  select,
  toggle,
  visit,
  zoom
} from "./app.js";
import { byId, canvasOf, el } from "./dom.js";
import { draw } from "./draw.js";
import { formulaLine } from "./formula.js";
import { hidden, lookOf } from "./look.js";
import { DATA } from "./model.js";
import { CanvasPainter } from "./painter.js";
import { kindText } from "./panel.js";

const NEAR = 6; // px from an edge
const STILL = 4; // px that a click may move

const canvas = /** @type {HTMLCanvasElement} */ (byId("canvas"));

/**
 * Calls a function with the next frame, once however often it is asked for.
 * @param {() => void} act
 */
function nextFrame(act) {
  let waiting = false;
  return () => {
    if (!waiting) requestAnimationFrame(() => ((waiting = false), act()));
    waiting = true;
  };
}

/** @returns {number} how many boxes and edges were drawn */
export function drawStage() {
  const { width: w, height: h, colors, camera } = app;
  const c = canvasOf(canvas, w, h);
  c.fillStyle = colors.bg;
  c.fillRect(0, 0, w, h);
  return draw(new CanvasPainter(c), layout, lookOf(), { x: 0, y: 0, w, h }, camera);
}

const requestStage = nextFrame(drawStage);

/** The first view. */
export function setUpStage() {
  const resized = () => {
    resize(canvas.clientWidth, canvas.clientHeight);
    drawStage(); // at once, or the canvas would be empty for a frame
  };
  on("open select overlay step camera theme lit travel", requestStage);
  new ResizeObserver(resized).observe(canvas);
  resized();
}

// -- the pointer ---------------------------------------------------------------------------------

/** What is at a point of the canvas. @param {{offsetX: number, offsetY: number}} event */
function hit({ offsetX, offsetY }) {
  const { x, y, k } = app.camera;
  const px = (offsetX - x) / k;
  const py = (offsetY - y) / k;
  const found = layout.hit(px, py);
  if (hidden()?.(found.item))
    Object.assign(found, { item: ~model.around(found.item), title: false });
  const g = ~found.item;
  const isInside = !found.title && (g === 0 || layout.isSheet(found.item));
  const place = isInside ? layout.edgeAt(g, px - found.x, py - found.y, NEAR / k) : -1;
  return { ...found, edge: place < 0 ? -1 : facts.edgesBehind(g)[place] };
}

export function setUpPointer() {
  /** @type {Map<number, PointerEvent>} */
  const down = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    finish();
    canvas.setPointerCapture(event.pointerId);
    if (!down.size) moved = 0;
    down.set(event.pointerId, event);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = down.get(event.pointerId);
    if (!before) return hover(event);
    const dx = event.clientX - before.clientX;
    const dy = event.clientY - before.clientY;
    moved += Math.abs(dx) + Math.abs(dy);
    const other = [...down.values()].find(({ pointerId }) => pointerId !== event.pointerId);
    if (other) {
      pinch(before, event, other);
      moved += STILL;
    } else if (moved > STILL) pan(dx, dy);
    down.set(event.pointerId, event);
    canvas.classList.toggle("dragging", moved > STILL);
  });
  const up = (/** @type {PointerEvent} */ event) => {
    down.delete(event.pointerId);
    canvas.classList.remove("dragging");
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  // a press that opens the panel ends on the canvas, never on what the panel has there
  canvas.addEventListener("click", (event) => moved <= STILL && click(event));
  canvas.addEventListener("pointerleave", () => setHover(null));
  for (const name of ["pointerleave", "pointerdown", "wheel"])
    canvas.addEventListener(name, () => showTip([], 0, 0), { passive: true });
  canvas.addEventListener("wheel", turn, { passive: false });
}

/**
 * @param {PointerEvent} before
 * @param {PointerEvent} now
 * @param {PointerEvent} other the finger that rests
 */
function pinch(before, now, other) {
  const distance = (/** @type {PointerEvent} */ one) =>
    Math.hypot(one.offsetX - other.offsetX, one.offsetY - other.offsetY);
  pan((now.offsetX - before.offsetX) / 2, (now.offsetY - before.offsetY) / 2);
  const x = (now.offsetX + other.offsetX) / 2;
  const y = (now.offsetY + other.offsetY) / 2;
  if (distance(before)) zoom(distance(now) / distance(before), x, y);
}

/** @param {WheelEvent} event */
function turn(event) {
  event.preventDefault();
  finish();
  const unit = event.deltaMode === 1 ? 20 : 1;
  if (event.shiftKey) return pan(-(event.deltaY + event.deltaX) * unit, 0);
  const factor = Math.exp((-event.deltaY * unit) / (event.ctrlKey ? 120 : 420));
  zoom(factor, event.offsetX, event.offsetY);
}

/**
 * A click on a title opens or closes, on a box or an edge selects; with Shift it chooses the other
 * end of paths.
 * @param {MouseEvent} event
 */
function click(event) {
  const { item, title, edge } = hit(event);
  if (item === ~0 || !title) return edge < 0 ? select(null) : chooseEdge(edge);
  if ((event.shiftKey || app.picking) && app.selected !== null) return select(item, true);
  select(item);
  if (item < 0) toggle(~item, undefined, () => reveal(item));
  else reveal(item);
}

/** @param {PointerEvent} event */
function hover(event) {
  if (event.pointerType === "touch") return;
  const found = hit(event);
  setHover(found.item !== ~0 && found.title ? found.item : null);
  canvas.style.cursor = app.hover === null && found.edge < 0 ? "" : "pointer";
  showTip(tipLines(found), event.offsetX, event.offsetY);
}

/** @param {number | null} item */
function setHover(item) {
  if (item === app.hover) return;
  app.hover = item;
  requestStage();
}

// -- what is said of the box or the edge under the pointer ---------------------------------------

/** @param {string[]} lines the first is the title @param {number} x @param {number} y */
function showTip(lines, x, y) {
  const tip = byId("tip");
  tip.hidden = !lines.length;
  if (tip.hidden) return;
  tip.replaceChildren(...lines.map((text, i) => el(i ? "div" : "strong", text)));
  const { offsetWidth: w, offsetHeight: h } = tip;
  const left = x + 14 + w > app.width - app.covered ? x - 10 - w : x + 14;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${y + 18 + h > app.height ? y - 10 - h : y + 18}px`;
}

/** @param {ReturnType<typeof hit>} found @returns {string[]} */
function tipLines({ item, title, edge }) {
  if (item !== ~0 && title)
    return item < 0 ? [model.fullTitle(item), model.line(item)] : cellLines(item);
  return edge < 0 ? [] : [facts.edgeTitle(edge), facts.tensorOn(edge)];
}

/** @param {number} cell */
function cellLines(cell) {
  const node = facts.nodeOf(cell);
  const title = model.title(cell);
  const tensors = facts.tensorsOf(node).join(", ");
  const leaf = facts.leafOf.get(node);
  if (leaf) {
    const state = leaf.has_grad ? "set" : "None";
    return [title, `${leaf.kind} ${tensors}`, `.grad was ${state} before this call`];
  }
  if (model.kind[cell] === DATA) return [title, model.line(cell), kindText(cell)];
  if (node >= facts.nodes) return [title, tensors];
  const [file, number, , text] = facts.sources[facts.sourcesOf(node).pop() ?? -1] || [];
  const op = `${facts.word("forward", node)} ${tensors}`;
  const lines = [title, op, facts.word("op", node), formulaLine(node)];
  if (file) lines.push(`${file}:${number}  ${text}`);
  return lines.filter(Boolean);
}

// -- keys ----------------------------------------------------------------------------------------

const FAR = 60; // px

/**
 * Moves and chooses by keys.
 * @param {KeyboardEvent} event
 * @returns {boolean} whether the key means something here
 */
export function pressOnStage({ key, shiftKey }) {
  const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[
    key
  ];
  /** @type {{[key: string]: () => void}} */
  const keys = {
    PageUp: () => pan(0, app.height * 0.8),
    PageDown: () => pan(0, -app.height * 0.8),
    "+": () => zoom(1.25),
    "=": () => zoom(1.25),
    "-": () => zoom(0.8),
    f: () => fit(true),
    0: () => fit(true),
    Enter: enter,
    " ": enter,
    Escape: () => select(null)
  };
  if (arrow && shiftKey) step(arrow[0], arrow[1]);
  else if (arrow) pan(-FAR * arrow[0], -FAR * arrow[1]);
  else if (keys[key]) keys[key]();
  else return false;
  return true;
}

function enter() {
  const { selected } = app;
  if (selected === null) visit(model.item(0, 0));
  else if (selected < 0) toggle(~selected, undefined, () => reveal(selected));
}

/** Select the nearest visible box in a direction. @param {number} dx @param {number} dy */
function step(dx, dy) {
  const { selected } = app;
  if (selected === null) return enter();
  const goesIn = dx + dy > 0 && layout.isSheet(selected);
  if (goesIn) return visit(model.item(~selected, 0));
  const from = layout.rect(selected);
  const g = model.around(selected);
  let best = g > 0 ? ~g : null;
  let least = Infinity;
  for (const item of model.itemsOf(g)) {
    const r = layout.rect(item);
    const x = r.x + r.w / 2 - from.x - from.w / 2;
    const y = r.y + r.h / 2 - from.y - from.h / 2;
    const forward = x * dx + y * dy;
    const distance = forward + 2 * (Math.abs(x * dy) + Math.abs(y * dx));
    if (forward > 1 && distance < least) [least, best] = [distance, item];
  }
  if (best !== null) visit(best);
}

// -- the small map of the whole, and the window in it; a click or a drag goes there --------------

const LEAST = 480; // px of the sheet; in less, the legend would cover it
const MARGIN = 6;

const map = byId("map");
/** The picture of the whole, drawn anew only when what is shown changed. */
const whole = document.createElement("canvas");
const mapped = { stale: true, k: 1, x: 0, y: 0 };

export function setUpMap() {
  const request = nextFrame(drawMap);
  on("open lit overlay theme", () => (mapped.stale = true));
  on("open lit overlay theme camera", request);
  const goThere = (/** @type {PointerEvent} */ event) => {
    const { k, x, y } = mapped;
    centre((event.offsetX - x) / k, (event.offsetY - y) / k, app.camera.k, 0);
  };
  map.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    map.setPointerCapture(event.pointerId);
    goThere(event);
  });
  map.addEventListener(
    "pointermove",
    (/** @type {PointerEvent} */ event) => event.buttons && goThere(event)
  );
}

function drawMap() {
  const { camera, height, colors } = app;
  const width = app.width - app.covered;
  const stage = byId("stage").style;
  const r = layout.rect(~0);
  const left = camera.x;
  const top = camera.y;
  const right = left + r.w * camera.k;
  const bottom = top + r.h * camera.k;
  map.hidden = width < LEAST || (left > -1 && top > -1 && right < width + 1 && bottom < height + 1);
  if (map.hidden) return stage.removeProperty("--map");
  const k = Math.min(
    (Math.min(170, app.width / 3) - 12) / r.w,
    (Math.min(190, height / 3) - 12) / r.h
  );
  const w = Math.max(r.w * k + 2 * MARGIN, 40);
  const h = Math.max(r.h * k + 2 * MARGIN, 40);
  if (mapped.stale || mapped.k !== k) {
    Object.assign(mapped, { stale: false, k, x: (w - r.w * k) / 2, y: (h - r.h * k) / 2 });
    drawWhole(w, h);
  }
  const c = canvasOf(map, w, h);
  c.drawImage(whole, 0, 0, w, h);
  map.style.width = `${w}px`;
  map.style.height = `${h}px`;
  stage.setProperty("--map", `${w + 12}px`); // the legend leaves its place free
  c.strokeStyle = colors.accent;
  c.lineWidth = 1.5;
  const scale = k / camera.k;
  const x = Math.max(1, mapped.x - left * scale);
  const y = Math.max(1, mapped.y - top * scale);
  const x1 = Math.min(w - 1, mapped.x + (width - left) * scale);
  const y1 = Math.min(h - 1, mapped.y + (height - top) * scale);
  c.strokeRect(x, y, Math.max(x1 - x, 3), Math.max(y1 - y, 3));
}

/** @param {number} w @param {number} h */
function drawWhole(w, h) {
  const c = canvasOf(whole, w, h);
  c.fillStyle = app.colors.sheet;
  c.fillRect(0, 0, w, h);
  const look = { ...lookOf(true), marks: undefined, badge: undefined };
  draw(new CanvasPainter(c), layout, look, { x: 0, y: 0, w, h }, mapped, true);
}
