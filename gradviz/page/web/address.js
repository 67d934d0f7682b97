/**
 * The view in the address after `#`: what is open, selected and coloured, names, inputs and shapes,
 * which step runs, where the camera is. A link reproduces it, and back and forward go from view to
 * view. In frames that may not change the address, the list of views is kept here alone.
 */
import {
  app,
  changed,
  chooseEdge,
  chooseLine,
  facts,
  finish,
  fly,
  layout,
  model,
  on,
  select,
  setOverlay,
  setView
} from "./app.js";
import { byId, onClick, say } from "./dom.js";
import { player } from "./player.js";

/**
 * Groups that are open, or closed, unlike in the first view: how many are as they were, how many
 * are not, and so on, in numbers of base 36.
 */
function writeOpen() {
  /** @type {number[]} */
  const ends = []; // where one kind ends and the other begins
  let differs = false;
  layout.open.forEach((open, g) => {
    if (differs !== (open !== model.firstOpen[g])) ends.push(g);
    differs = open !== model.firstOpen[g];
  });
  return `r${ends.map((end, i) => (end - (ends[i - 1] || 0)).toString(36)).join(".")}`;
}

/**
 * @param {string} text
 * @returns {Set<number> | null} groups unlike in the first view; null when it is not such a text
 */
function readOpen(text) {
  if (text[0] !== "r") return null;
  const found = new Set();
  let place = 0;
  let differs = false;
  for (const part of text.slice(1).split(".").filter(Boolean)) {
    const end = place + parseInt(part, 36);
    if (!(end > place && end < model.groups)) return null;
    for (; place < end; place++) if (differs) found.add(place);
    differs = !differs;
  }
  for (; differs && place < model.groups; place++) found.add(place);
  return found;
}

/** @param {number} item */
const writeItem = (item) => (item < 0 ? `g${(~item).toString(36)}` : `c${item.toString(36)}`);

/** @param {string | null} text @returns {number | null} */
function readItem(text) {
  const [, kind, digits] = /^([gc])([0-9a-z]+)$/.exec(text || "") || [];
  const number = parseInt(digits, 36);
  if (kind === "g" && number < model.groups) return ~number;
  return kind === "c" && number < model.cells ? number : null;
}

let firstOverlay = "";
/** @type {string[]} */
const views = [];
let current = -1;
let isReading = false;
let hasAddress = false;
let resting = 0; // a timer

/** The view as text. */
export function writeView() {
  const { camera, selected, other, line, edge } = app;
  const x = Math.round((app.width / 2 - camera.x) / camera.k);
  const y = Math.round((app.height / 2 - camera.y) / camera.k);
  const parts = {
    o: writeOpen(),
    s: selected === null ? "" : writeItem(selected),
    t: other === null ? "" : writeItem(other),
    e: edge < 0 ? "" : edge,
    c: app.overlayId === firstOverlay ? "" : app.overlayId,
    p: app.step < 0 ? "" : app.step,
    l: line ? encodeURIComponent(`${line.file}:${line.line}`) : "",
    d: app.version || "",
    n: app.names === facts.head.titles ? "" : app.names,
    h: app.shapes ? 1 : "",
    i: app.inputs ? "" : 0,
    v: `${x},${y},${camera.k.toPrecision(3)}`
  };
  const written = Object.entries(parts).filter(([, value]) => value !== "");
  return written.map(([name, value]) => `${name}=${value}`).join("&");
}

/** Show the view of a text; what is not understood is left as it is. @param {string} text */
function readView(text) {
  const given = new URLSearchParams(text);
  const number = (/** @type {string} */ name) => parseInt(given.get(name) || "", 10);
  isReading = true;
  finish();
  const differing = readOpen(given.get("o") || "");
  if (differing) {
    layout.setAll((g) => Number(model.firstOpen[g]) ^ Number(differing.has(g)));
    changed("open");
  }
  select(readItem(given.get("s")), false);
  if (app.selected !== null && given.has("t")) select(readItem(given.get("t")), true);
  const line = facts.lines().get(given.get("l") || "");
  if (line) chooseLine(line);
  if (number("e") < facts.made.length) chooseEdge(number("e"));
  setOverlay(given.get("c") || firstOverlay);
  setView({
    version: number("d") || 0,
    names: given.get("n") || facts.head.titles,
    shapes: given.has("h"),
    inputs: !given.has("i")
  });
  const step = number("p");
  if (step >= 0) {
    if (byId("player").hidden) player.show(true);
    player.reach(step);
  } else player.show(false);
  const [x, y, k] = (given.get("v") || "").split(",").map(Number);
  if (k > 0) fly({ k, x: app.width / 2 - x * k, y: app.height / 2 - y * k }, true);
  isReading = false;
}

/** The first view, from the address when it has one. */
export function setUpAddress() {
  firstOverlay = app.overlayId;
  onClick("back", () => stepView(-1));
  onClick("forward", () => stepView(1));
  onClick("copy-link", copyLink);
  byId("copy-link").addEventListener("blur", () => (byId("copy-link").textContent = "Copy link"));
  const text = location.hash.slice(1);
  if (text.startsWith("o=")) readView(text);
  current = 0;
  keepView("replaceState");
  on("open select overlay step view", noteView);
  on("camera", () => {
    clearTimeout(resting); // it moves often: its place is written when it rests
    if (!isReading) resting = window.setTimeout(() => keepView("replaceState"), 300);
  });
  addEventListener("popstate", ({ state }) => views[state?.at] && showView(state.at));
  addEventListener("hashchange", () => {
    const hash = location.hash.slice(1);
    if (hash !== views[current]) readView(hash);
  });
}

/** A view to come back to. */
function noteView() {
  if (isReading) return;
  clearTimeout(resting);
  const last = views[current];
  const withoutCamera = (/** @type {string} */ view) => view.replace(/&?v=[^&]*/, "");
  const plays = app.step >= 0 && last.includes("&p=");
  const now = writeView();
  if (plays || withoutCamera(now) === withoutCamera(last)) return keepView("replaceState", now);
  views.length = ++current;
  keepView("pushState", now);
}

/** The current view is what is shown now. @param {"pushState" | "replaceState"} how */
function keepView(how, view = writeView()) {
  views[current] = view;
  try {
    history[how]({ at: current }, "", `#${views[current]}`);
    hasAddress = true;
  } catch {
    hasAddress = false; // a srcdoc frame has none of its own
  }
  setButtons();
}

/** @param {number} number */
function showView(number) {
  current = number;
  readView(views[number]);
  setButtons();
}

/** @param {number} by */
function stepView(by) {
  if (!views[current + by]) return;
  if (hasAddress)
    history.go(by); // comes back as popstate
  else showView(current + by);
}

/** The link to the clipboard, or shown where the browser refuses. */
async function copyLink() {
  const link = `${location.href.split("#")[0]}#${writeView()}`;
  try {
    await navigator.clipboard.writeText(link);
    byId("copy-link").textContent = "Link copied";
    say("link copied");
  } catch {
    prompt("Link to this view", link);
  }
}

function setButtons() {
  byId("back").disabled = current <= 0;
  byId("forward").disabled = current >= views.length - 1;
  byId("copy-link").disabled = !hasAddress;
}
