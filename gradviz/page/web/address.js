/**
 * The view in the address after `#`: what is open, selected and coloured, names, inputs and shapes, which step runs, where the camera is. A link reproduces it,
 * and back and forward go from view to view. In frames that may not change the address, the list of views is kept here alone.
 */

import { byId, say } from "./dom.js";

/** @typedef {import("./app.js").App} App */

/** Open groups as differences from a base, in numbers of base 36 with runs: "f" from the first view, "n" none, "a" all. @param {Uint8Array} open @param {import("./data.js").Column} first @returns {string} */
export function writeOpen(open, first) {
  const n = open.length;
  const bases = /** @type {[string, (g: number) => number][]} */ ([
    ["f", (g) => first[g]],
    ["n", () => 0],
    ["a", () => 1],
  ]);
  let best = "";
  for (const [name, base] of bases) {
    const parts = [];
    let before = 0;
    for (let g = 1; g < n; g++) {
      if (open[g] === base(g)) continue;
      let end = g;
      while (end + 1 < n && open[end + 1] !== base(end + 1)) end++;
      parts.push((g - before).toString(36) + (end > g ? `-${(end - g).toString(36)}` : ""));
      before = end;
      g = end;
    }
    const text = name + parts.join(".");
    if (!best || text.length < best.length) best = text;
  }
  return best;
}

/** @param {string} text @param {import("./data.js").Column} first @returns {Uint8Array | null} null when it is not such a text */
export function readOpen(text, first) {
  const n = first.length,
    open = new Uint8Array(n),
    base = text[0];
  if (!["f", "n", "a"].includes(base)) return null;
  for (let g = 0; g < n; g++) open[g] = base === "f" ? first[g] : base === "a" ? 1 : 0;
  let at = 0;
  for (const part of text.slice(1).split(".").filter(Boolean)) {
    const [step, run] = part.split("-"),
      from = at + parseInt(step, 36),
      to = from + (run ? parseInt(run, 36) : 0);
    if (!(from > at) || !(to < n)) return null;
    for (let g = from; g <= to; g++) open[g] = 1 - open[g];
    at = to;
  }
  open[0] = 1;
  return open;
}

/** @param {number | null} item */
const writeItem = (item) =>
  item === null ? "" : item < 0 ? `g${(~item).toString(36)}` : `c${item.toString(36)}`;

/** @param {string | null} text @param {App} app @returns {number | null} */
function readItem(text, app) {
  const match = /^([gc])([0-9a-z]+)$/.exec(text || "");
  if (!match) return null;
  const number = parseInt(match[2], 36);
  if (match[1] === "g") return number < app.model.groups ? ~number : null;
  return number < app.model.cells ? number : null;
}

export class Address {
  /** @param {App} app @param {HTMLButtonElement} back @param {HTMLButtonElement} forward */
  constructor(app, back, forward) {
    this.app = app;
    this.back = back;
    this.forward = forward;
    /** @type {string[]} */
    this.views = [];
    this.at = -1;
    this.reading = false;
    this.timer = 0;
    this.firstOverlay = app.overlayId;
    back.addEventListener("click", () => this.go(-1));
    forward.addEventListener("click", () => this.go(1));
    for (const change of /** @type {const} */ (["open", "select", "overlay", "step", "view"]))
      app.on(change, () => this.note());
    app.on("camera", () => this.#later());
    addEventListener("popstate", (event) => this.#popped(event));
    addEventListener("hashchange", () => {
      if (location.hash.slice(1) !== this.views[this.at]) this.read(location.hash.slice(1));
    });
  }

  /** The view as text. */
  write() {
    const { app } = this,
      { x, y, k } = app.camera;
    const parts = [`o=${writeOpen(app.layout.open, app.model.firstOpen)}`];
    if (app.selected !== null) parts.push(`s=${writeItem(app.selected)}`);
    if (app.other !== null) parts.push(`t=${writeItem(app.other)}`);
    if (app.overlayId !== this.firstOverlay) parts.push(`c=${app.overlayId}`);
    if (app.step >= 0) parts.push(`p=${app.step}`);
    const middle = [(app.width / 2 - x) / k, (app.height / 2 - y) / k].map((v) => Math.round(v));
    if (app.line) parts.push(`l=${encodeURIComponent(`${app.line.file}:${app.line.line}`)}`);
    if (app.version) parts.push(`d=${app.version}`);
    if (app.names !== app.facts?.head.titles) parts.push(`n=${app.names}`);
    if (app.shapes) parts.push("h=1");
    if (!app.inputs) parts.push("i=0");
    parts.push(`v=${middle.join(",")},${k.toPrecision(3)}`);
    return parts.join("&");
  }

  /** Show the view of a text; what is not understood is left as it is. @param {string} text */
  read(text) {
    const { app } = this,
      given = new URLSearchParams(text);
    this.reading = true;
    app.finish();
    const open = readOpen(given.get("o") || "", app.model.firstOpen);
    if (open) {
      app.layout.open.set(open);
      app.layout.forgetAll();
      app.changed("open");
    }
    app.select(readItem(given.get("s"), app));
    if (app.selected !== null && given.has("t")) app.select(readItem(given.get("t"), app), true);
    const line = app.lines.get(given.get("l") || "");
    if (line) app.choose(line);
    app.setOverlay(given.get("c") || this.firstOverlay);
    app.setView({
      version: Number(given.get("d")) || 0,
      names: given.get("n") || app.facts?.head.titles,
      shapes: given.has("h"),
      inputs: !given.has("i"),
    });
    const step = parseInt(given.get("p") || "", 10);
    this.onStep?.(Number.isNaN(step) ? -1 : step);
    const [x, y, k] = (given.get("v") || "").split(",").map(Number);
    if (k > 0) app.fly({ k, x: app.width / 2 - x * k, y: app.height / 2 - y * k }, true);
    this.reading = false;
  }

  /** @type {((step: number) => void) | undefined} */
  onStep;

  /** A view to come back to. */
  note() {
    if (this.reading || this.at < 0) return;
    clearTimeout(this.timer);
    const text = this.write(),
      playing = this.app.step >= 0 && (this.views[this.at] || "").includes("&p=");
    const strip = (/** @type {string} */ view) => view.replace(/&?v=[^&]*/, "");
    if (strip(text) === strip(this.views[this.at] || "") || playing) this.#replace(text);
    else this.#push(text);
  }

  /** The first view, from the address when it has one. */
  start() {
    const text = location.hash.slice(1);
    if (text.startsWith("o=")) this.read(text);
    this.views = [this.write()];
    this.at = 0;
    this.#address("replaceState", this.views[0]);
    this.#buttons();
  }

  /** The camera moves often: its place is written when it rests. */
  #later() {
    if (this.reading || this.at < 0) return;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.#replace(this.write()), 300);
  }

  /** @param {string} text */
  #push(text) {
    this.views = [...this.views.slice(0, this.at + 1), text];
    this.at = this.views.length - 1;
    this.#address("pushState", text);
    this.#buttons();
  }

  /** @param {string} text */
  #replace(text) {
    this.views[this.at] = text;
    this.#address("replaceState", text);
  }

  /** @param {"pushState" | "replaceState"} how @param {string} text */
  #address(how, text) {
    try {
      history[how]({ at: this.at }, "", `#${text}`);
      this.hasAddress = true;
    } catch {
      this.hasAddress = false; // a srcdoc frame has none of its own
    }
  }

  /** @param {PopStateEvent} event */
  #popped(event) {
    const at = event.state?.at;
    if (typeof at !== "number" || !this.views[at]) return;
    this.at = at;
    this.read(this.views[at]);
    this.#buttons();
  }

  /** @param {number} by */
  go(by) {
    const at = this.at + by;
    if (!this.views[at]) return;
    if (this.hasAddress) return history.go(by); // comes back as popstate
    this.at = at;
    this.read(this.views[at]);
    this.#buttons();
  }

  hasAddress = false;

  /** The link to the clipboard, or shown where the browser refuses. */
  async copy() {
    const link = `${location.href.split("#")[0]}#${this.write()}`;
    try {
      await navigator.clipboard.writeText(link);
      byId("copy-link").textContent = "Link copied";
      say("link copied");
    } catch {
      prompt("Link to this view", link);
    }
  }

  #buttons() {
    this.back.disabled = this.at <= 0;
    this.forward.disabled = this.at >= this.views.length - 1;
    /** @type {HTMLButtonElement} */ (byId("copy-link")).disabled = !this.hasAddress;
  }
}
