/**
 * Backward over its steps: the player, a slider over the engine's order with the memory that is
 * left as
 * a curve along it, and the profile of gradient norms from the loss to the inputs.
 */
import {
  app,
  bringIntoView,
  changed,
  facts,
  layout,
  model,
  on,
  resize,
  selectedNodes,
  setStep,
  visit
} from "./app.js";
import { byId, bytesText, canvasOf, clamp, count, el, isStill, onClick, say, sum } from "./dom.js";

/**
 * What one press of a key plays: functions from `first` to `last`, all in the box `item`.
 * @typedef {{item: number, first: number, last: number}} Stop
 */

const FRAME = 40; // ms
const TRAVEL = 500; // ms
const THUMB = 8; // px, half of the slider's: as far from its ends as the curve begins and ends
const AXIS = 72 + THUMB; // px, room for bytes at the left of the curve

const bar = byId("player");
const slider = byId("step");
const curve = byId("curve");
const into = byId("into");

export const player = { show: showPlayer, reach: reachStep, go };

let timer = 0;
let moving = 0;
let place = 0; // in `stops`
let pointed = -1; // the function under the pointer, on the curve
/** @type {Stop[]} */
let stops = [];
/** Groups that were opened to follow. @type {number[]} */
let opened = [];
/** @type {ReturnType<typeof memoryOf>} */
let memory;

export function setUpPlayer() {
  memory = memoryOf();
  byId("play-open").disabled = facts.steps === 0;
  onClick("play-open", () => showPlayer(bar.hidden));
  onClick("player-close", () => showPlayer(false));
  onClick("play", playOrPause);
  onClick("step-back", () => go(place - 1));
  onClick("step-on", () => go(place + 1));
  slider.addEventListener("input", () => reachStep(Number(slider.value)));
  into.addEventListener("change", again);
  const point = (/** @type {PointerEvent} */ event) =>
    alongChart(curve, AXIS).stepAt(event.offsetX);
  curve.addEventListener("pointermove", (/** @type {PointerEvent} */ event) =>
    sayAlive(point(event))
  );
  curve.addEventListener("pointerleave", () => sayAlive(-1));
  curve.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) =>
    reachStep(point(event))
  );
  on("step theme", drawPlayer);
  on("open", () => !bar.hidden && !into.checked && again());
  new ResizeObserver(drawPlayer).observe(curve);
  on("overlay theme select", drawProfile);
  byId("profile").addEventListener("click", chooseOnProfile);
  drawProfile();
}

/**
 * Memory after each step, as a running sum: saved tensors that are left, gradients on their way,
 * and what `.grad` took.
 */
function memoryOf() {
  const { stepFreed, stepWaiting, stepFilled } = facts.c;
  const saved = new Float64Array(facts.steps);
  const total = new Float64Array(facts.steps);
  let left = facts.head.heldAtFirst;
  let grads = 0;
  let peak = 0;
  for (let step = 0; step < facts.steps; step++) {
    grads += stepFilled[step];
    // while the function runs, what it saved is still there
    total[step] = left + stepWaiting[step] + grads;
    left -= stepFreed[step];
    saved[step] = left;
    if (total[step] > total[peak]) peak = step;
  }
  return { saved, total, peak };
}

/**
 * A step is what is visible: all that runs in one closed group is one, unless the player goes into
 * groups.
 */
function countStops() {
  stops = [];
  facts.c.stepNode.forEach((node, step) => {
    const cell = facts.cellOf[node];
    const item = into.checked ? cell : layout.shown(cell);
    const before = stops[stops.length - 1];
    if (before && item < 0 && before.item === item) before.last = step;
    else stops.push({ item, first: step, last: step });
  });
  slider.max = String(Math.max(0, facts.steps - 1)); // functions, as along the curve
}

/** Count the steps anew, and stay where backward is. */
function again() {
  const { step } = app;
  countStops();
  if (!into.checked) closeOpened(-1);
  if (step >= 0) reachStep(step);
}

/** @param {boolean} shown */
function showPlayer(shown) {
  const stage = byId("stage");
  bar.hidden = !shown;
  byId("play-open").setAttribute("aria-pressed", String(shown));
  // now, so that the first step is brought into what the bar leaves
  resize(stage.clientWidth, stage.clientHeight);
  if (shown) {
    countStops();
    go(0);
  } else {
    pause();
    closeOpened(-1);
    setStep(-1);
  }
}

/** The step in which a function runs. @param {number} step */
function reachStep(step) {
  go(stops.findIndex((stop) => stop.last >= step));
}

/** @param {number} to */
function go(to) {
  place = clamp(to, 0, Math.max(0, stops.length - 1));
  const stop = stops[place];
  if (!stop) return;
  if (into.checked) openAround(stop.item);
  const ease = timer ? Math.min(pace().wait * 0.8, 400) : 300;
  bringIntoView(stop.item, ease < 60 ? 0 : ease);
  setStep(stop.last, stop.first);
  if (place === stops.length - 1) pause();
  travel();
}

/** Open what hides a box, and close what was opened for the one before. @param {number} item */
function openAround(item) {
  closeOpened(item);
  opened.push(...layout.openAround(item));
  changed("open");
}

/**
 * Close all that the player opened and that is not around a box.
 * @param {number} item -1 for none
 */
function closeOpened(item) {
  const left = opened.filter((g) => !model.holds(g, item));
  opened = opened.filter((g) => model.holds(g, item));
  for (const g of left) layout.setOpen(g, false);
  if (left.length) changed("open");
}

/**
 * Milliseconds for a step, and how many steps go at once: all of them take the seconds that were
 * chosen.
 */
function pace() {
  const wait = (1000 * Number(byId("speed").value)) / Math.max(1, stops.length);
  return {
    wait: clamp(wait, FRAME, 1500),
    jump: Math.max(1, Math.round(FRAME / wait))
  };
}

/** The gradients go along their edges. */
function travel() {
  cancelAnimationFrame(moving);
  const ms = timer ? Math.min(TRAVEL, pace().wait * 0.8) : TRAVEL;
  const began = performance.now();
  app.travel = 1;
  if (isStill() || ms < 100) return;
  const tick = (/** @type {number} */ now) => {
    app.travel = clamp((now - began) / ms, 0, 1);
    changed("travel");
    if (app.travel < 1) moving = requestAnimationFrame(tick);
  };
  tick(began);
}

/**
 * Keys while the player is open.
 * @param {string} key
 * @returns {boolean} whether it was one of them
 */
export function pressInPlayer(key) {
  const act = {
    " ": playOrPause,
    ArrowRight: () => go(place + 1),
    ArrowLeft: () => go(place - 1),
    Escape: () => showPlayer(false)
  }[key];
  if (bar.hidden || !act) return false;
  act();
  return true;
}

function playOrPause() {
  if (timer) return pause();
  if (place >= stops.length - 1) go(0);
  const tick = () => {
    const { wait, jump } = pace();
    go(place + jump);
    if (timer) timer = window.setTimeout(tick, wait);
  };
  timer = window.setTimeout(tick, 0);
  byId("play").textContent = "Pause";
}

function pause() {
  clearTimeout(timer);
  timer = 0;
  byId("play").textContent = "Play";
}

function drawPlayer() {
  const { step, stepFirst } = app;
  if (bar.hidden || step < 0) return;
  const name = runningName();
  const words = `step ${place + 1} of ${stops.length}: ${name}`;
  const functions = step - stepFirst + 1;
  const freed = sum(facts.c.stepFreed.subarray(stepFirst, step + 1));
  const held = facts.head.heldAtFirst;
  const norm = functions === 1 ? facts.norm(facts.c.stepNode[step]) : null;
  slider.value = String(step);
  slider.setAttribute("aria-valuetext", words);
  if (!timer) say(words);
  const number = el("strong", `${count(place + 1)} / ${count(stops.length)}`);
  const parts = [];
  if (functions > 1) parts.push(` · ${count(functions)} functions, ${bytesText(freed)} freed`);
  if (norm !== null) parts.push(` · gradient norm ${norm}`);
  parts.push(
    ` · ${bytesText(held - memory.saved[step])} freed of ${bytesText(held)} held for backward`
  );
  byId("step-words").replaceChildren(number, " ", el("span.running", name), ...parts);
  drawCurve();
}

/** What runs, in words. */
function runningName() {
  const { item, last } = stops[place];
  const leaf = facts.leafOf.get(facts.c.stepNode[last]);
  return leaf && item >= 0 ? `${leaf.names[0] || "leaf"}.grad is filled` : model.title(item);
}

/**
 * Where steps are along a chart, which begins at its left margin and ends before its right one.
 * @param {HTMLCanvasElement} chart
 * @param {number} left px
 */
function alongChart(chart, left) {
  const last = Math.max(1, facts.steps - 1);
  const every = Math.max(1, chart.clientWidth - left - THUMB) / last;
  return {
    px: (/** @type {number} */ step) => left + step * every,
    stepAt: (/** @type {number} */ x) =>
      clamp(Math.round((x - left) / every), 0, Math.max(0, facts.steps - 1))
  };
}

/** Say what is alive at a place of the curve. @param {number} step */
function sayAlive(step) {
  pointed = step;
  drawPlayer();
  const saved = bytesText(memory.saved[step]);
  const gradients = bytesText(memory.total[step] - memory.saved[step]);
  byId("alive").textContent =
    step < 0
      ? ""
      : `function ${count(step + 1)}: ${saved} held for backward, about ${gradients} of gradients`;
}

function drawCurve() {
  const { clientWidth: w, clientHeight: h } = curve;
  if (!w || !h) return;
  const c = canvasOf(curve, w, h);
  const { colors, step } = app;
  const { total, saved, peak } = memory;
  const last = facts.steps - 1;
  const top = total[peak] || 1;
  const foot = h - 14;
  const { px } = alongChart(curve, AXIS);
  const py = (/** @type {number} */ v) => foot - ((foot - 8) * v) / top;
  const area = (/** @type {Float64Array} */ values, /** @type {string} */ color) => {
    c.beginPath();
    c.moveTo(px(0), foot);
    const every = Math.max(1, Math.floor(facts.steps / w));
    for (let i = 0; i < last; i += every) c.lineTo(px(i), py(values[i]));
    c.lineTo(px(last), py(values[last]));
    c.lineTo(px(last), foot);
    c.fillStyle = color;
    c.fill();
  };
  area(total, colors["soft-line"]);
  area(saved, colors.saved);
  const label = labels(c);
  for (const part of [0, 0.5, 1]) {
    const y = py(top * part);
    label(bytesText(Math.round(top * part)), AXIS - 6, y + 4, "right");
    c.fillStyle = colors.border;
    c.fillRect(AXIS, y, w - THUMB - AXIS, 1);
  }
  label(`function ${count(facts.steps)}`, w - THUMB, h - 2, "right");
  label("1: from the loss", AXIS, h - 2);
  const isRight = px(peak) > w - 80;
  const side = isRight ? -6 : 6;
  const align = isRight ? "right" : "left";
  label(
    `● peak, about ${bytesText(top)}`,
    px(peak) + side,
    py(total[peak]) + 9,
    align,
    colors.warn
  );
  c.fillStyle = colors.accent;
  c.fillRect(px(step) - 1, 0, 2, foot);
  if (pointed >= 0) c.fillRect(px(pointed), 0, 1, foot);
}

/** Writes on a chart. @param {CanvasRenderingContext2D} c */
function labels(c) {
  c.font = "11px system-ui, sans-serif";
  return (
    /** @type {string} */ text,
    /** @type {number} */ x,
    /** @type {number} */ y,
    /** @type {CanvasTextAlign} */ align = "left",
    color = app.colors.muted
  ) => {
    c.fillStyle = color;
    c.textAlign = align;
    c.fillText(text, x, y);
  };
}

// -- the profile: all gradient norms in the order of backward, on a log scale --------------------

const LEFT = 40; // px
const VANISHING = 4; // powers of ten below the largest

/** A click goes to the box. @param {MouseEvent} event */
function chooseOnProfile({ offsetX }) {
  const step = alongChart(byId("profile"), LEFT).stepAt(offsetX);
  visit(facts.cellOf[facts.c.stepNode[step]]);
}

function drawProfile() {
  const canvas = byId("profile");
  canvas.hidden = app.overlayId !== "grad" || !facts.head.norms || app.width < 500;
  if (canvas.hidden) return;
  const { clientWidth: w, clientHeight: h } = canvas;
  const c = canvasOf(canvas, w, h);
  const { colors } = app;
  const label = labels(c);
  const tens = Array.from(facts.c.stepNode, (node) => Math.log10(Number(facts.norm(node)) || 0));
  const known = tens.filter((ten) => Number.isFinite(ten));
  const largest = known.length ? Math.max(...known) : 0;
  const low = Math.floor(known.length ? Math.min(...known) : 0);
  const high = Math.max(Math.ceil(largest), low + 1);
  const { px } = alongChart(canvas, LEFT);
  const py = (/** @type {number} */ v) => 20 + ((h - 38) * (high - v)) / (high - low);
  const isVanishing = (/** @type {number} */ ten) => ten < largest - VANISHING;
  const note = known.some(isVanishing) ? "; red: < 1/10,000 of the largest" : "";
  label(`gradient norms${note}`, LEFT, 12);
  label("loss", LEFT, h - 4);
  label("inputs", w - THUMB, h - 4, "right");
  for (const ten of [low, high]) label(`1e${ten}`, LEFT - 4, py(ten) + 4, "right");
  const steps = selectedNodes()
    .map((node) => facts.stepOf[node])
    .filter((step) => step >= 0);
  const first = px(Math.min(...steps));
  c.fillStyle = colors.hover;
  if (steps.length)
    c.fillRect(first - 2, 18, Math.max(4, px(Math.max(...steps)) - first + 4), h - 34);
  tens.forEach((ten, i) => {
    if (!Number.isFinite(ten)) return;
    c.fillStyle = isVanishing(ten) ? colors.warn : colors.accent;
    c.fillRect(px(i) - 1, py(ten) - 1, 3, 3);
  });
}
