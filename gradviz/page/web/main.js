/**
 * Puts the page together: first what is drawn, then, when that is on the screen, everything that
 * explains it.
 */
import { setUpAddress, writeView } from "./address.js";
import {
  app,
  changed,
  chooseEdge,
  clearest,
  closeAll,
  facts,
  firstView,
  fit,
  layout,
  model,
  on,
  openAll,
  pan,
  readFacts,
  readModel,
  select,
  setOverlay,
  setView,
  showViews,
  toggle,
  visit,
  zoom
} from "./app.js";
import { byId, el, isNarrow, onClick, say } from "./dom.js";
import { figureOf, fileName, pixelsOf, setUpExports, svgOf } from "./exports.js";
import { byModule, setUpLists } from "./lists.js";
import { lookOf } from "./look.js";
import { readBlock } from "./model.js";
import { setUpOutline } from "./outline.js";
import { overlays } from "./overlay.js";
import { readColors } from "./painter.js";
import { drawPanel, setUpPanel } from "./panel.js";
import { player, pressInPlayer, setUpPlayer } from "./player.js";
import { finder, search, setUpSearch } from "./search.js";
import { drawStage, pressOnStage, setUpMap, setUpPointer, setUpStage } from "./stage.js";
import { between } from "./trace.js";

async function main() {
  readModel(await readBlock("view"));
  const { classList } = document.body;
  classList.toggle("embed", location.hash.startsWith("#embed")); // inside another page
  classList.toggle("no-outline", isNarrow());
  setUpMotion();
  setUpStage();
  const drawnAt = performance.now();
  // the browser shows the first view before the rest is read
  await new Promise((done) => setTimeout(done));
  readFacts(await readBlock("facts"));
  for (const setUp of [
    setUpPointer,
    setUpMap,
    setUpPanel,
    setUpLists,
    setUpOutline,
    setUpSearch,
    setUpPlayer
  ])
    setUp();
  for (const setUp of [
    setUpExports,
    setUpMenus,
    setUpTools,
    setUpView,
    setUpLegend,
    setUpThemes,
    setUpAddress
  ])
    setUp();
  addEventListener("keydown", press);
  changed("overlay lit");
  expose(drawnAt);
  document.body.dataset.ready = "true";
}

/** For tests and for the console. @param {number} drawnAt */
function expose(drawnAt) {
  const actions = {
    firstView,
    zoom,
    select,
    visit,
    toggle,
    openAll,
    closeAll,
    setView,
    setOverlay,
    pan,
    fit,
    chooseEdge,
    clearest
  };
  const state = Object.assign(app, { model, layout, facts, lit: () => app.light }, actions);
  const functions = {
    search,
    between,
    svgOf,
    pixelsOf,
    figureOf,
    fileName,
    byModule,
    lookOf,
    drawStage,
    writeView
  };
  Object.assign(window, { gradviz: { app: state, facts, player, finder, drawnAt, ...functions } });
}

// -- the tools above -----------------------------------------------------------------------------

function setUpTools() {
  onClick("open-all", openAll);
  onClick("close-all", closeAll);
  onClick("first-view", firstView);
  onClick("fit", () => fit(true));
  onClick("zoom-in", () => zoom(1.25));
  onClick("zoom-out", () => zoom(0.8));
  resizable(byId("side"), 1);
  resizable(byId("panel"), -1);
  const shown = () => !document.body.classList.contains("no-outline");
  const button = byId("toggle-outline");
  const tell = () => button.setAttribute("aria-expanded", String(shown()));
  onClick("toggle-outline", () => {
    document.body.classList.toggle("no-outline");
    tell();
  });
  tell();
}

/** What is shown of the graph, and how. */
function setUpView() {
  const [views, names, inputs, shapes, version] = [
    "views",
    "names",
    "inputs",
    "shapes",
    "version"
  ].map(byId);
  const groups = model.withViews();
  views.disabled = !groups.length;
  inputs.disabled = !model.takers.length;
  names.disabled = app.names !== "variable"; // the file has no others
  byId("versions").hidden = !facts.c.diff;
  views.addEventListener("change", () => showViews(views.checked));
  names.addEventListener("change", () => setView({ names: names.value }));
  inputs.addEventListener("change", () => setView({ inputs: inputs.checked }));
  shapes.addEventListener("change", () => setView({ shapes: shapes.checked }));
  version.addEventListener("change", () => setView({ version: Number(version.value) }));
  const tell = () => {
    views.checked = groups.every((g) => layout.isOpen(g));
    names.value = app.names;
    inputs.checked = app.inputs;
    shapes.checked = app.shapes;
    version.value = String(app.version);
  };
  on("open view", tell);
  tell();
}

function setUpLegend() {
  const choice = byId("overlay");
  for (const [value, name, option] of overlays(facts)) {
    const text = option ? `${name}: write the page with ${option}` : name;
    choice.append(el("option", { value, text, disabled: option !== "" }));
  }
  choice.addEventListener("change", () => setOverlay(choice.value));
  on("overlay", () => {
    choice.value = app.overlayId;
    const entries = app.overlay.legend.map(({ color, text }) => {
      const swatch = el("i", { "aria-hidden": "true", hidden: !color });
      swatch.style.background = `var(--${color})`;
      return el("li", {}, swatch, el("span", text));
    });
    if (facts.head.legend) entries.push(el("li", facts.head.legend));
    byId("legend").classList.toggle("kinds", app.overlayId === "kind");
    byId("legend").replaceChildren(...entries);
  });
}

/**
 * Lets the border of a side be dragged, or moved with arrow keys.
 * @param {HTMLElement} side
 * @param {1 | -1} sign of its border
 */
function resizable(side, sign) {
  const grip = /** @type {HTMLElement} */ (side.querySelector(".grip"));
  const widen = (/** @type {number} */ by) => {
    const width = Math.max(160, Math.min(innerWidth * 0.7, side.offsetWidth + by * sign));
    side.style.width = `${width}px`;
    grip.setAttribute("aria-valuenow", String(side.offsetWidth));
    drawPanel(); // it covers more now, or less
  };
  grip.addEventListener("pointerdown", (event) => grip.setPointerCapture(event.pointerId));
  grip.addEventListener("pointermove", (event) => event.buttons && widen(event.movementX));
  grip.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -20, ArrowRight: 20 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    widen(by);
  });
}

/** Menus close on Escape, on a press elsewhere, and when something in them was chosen. */
function setUpMenus() {
  // they belong to the menu before them where there is little room
  const tools = /** @type {Element} */ (document.querySelector(".tools"));
  /** @returns {HTMLDetailsElement[]} */
  const opened = () => [
    .../** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll(".menu[open]"))
  ];
  const close = () => opened().forEach((menu) => (menu.open = false));
  const pressed = (/** @type {Event} */ { target }) => {
    const place = /** @type {Node} */ (target);
    for (const menu of opened())
      if (!menu.contains(place) && !(menu.id === "more" && tools.contains(place)))
        menu.open = false;
  };
  addEventListener("pointerdown", pressed, true);
  addEventListener(
    "keydown",
    (event) => {
      const [first] = opened();
      if (event.key !== "Escape" || !first) return;
      event.stopPropagation();
      first.querySelector("summary")?.focus();
      close();
    },
    true
  );
  tools.addEventListener("click", ({ target }) => {
    const button = /** @type {Element} */ (target).closest("button");
    if (button && button.id !== "copy-link") close();
  });
}

/** Keys that work wherever no text is typed. @param {KeyboardEvent} event */
function press(event) {
  const target = /** @type {Element} */ (event.target);
  const { key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches?.("select, input:not([type=checkbox], [type=range])")) return;
  if (target.closest?.("button, summary, input, a") && (key === "Enter" || key === " ")) return;
  if (key === "/") byId("search").focus();
  else if (key === "p") player.show(byId("player").hidden);
  else if (key === "?") byId("help").toggleAttribute("open");
  else if (!pressInPlayer(key) && !pressOnStage(event)) return;
  event.preventDefault();
}

// -- what the reader prefers ---------------------------------------------------------------------

function setUpMotion() {
  const less = matchMedia("(prefers-reduced-motion: reduce)");
  app.still = less.matches;
  less.addEventListener("change", () => (app.still = less.matches));
}

/**
 * The notebook around the page tells its theme when the frame has loaded, which is before the page
 * is ready.
 */
addEventListener("message", ({ data, source }) => {
  const { dataset } = document.documentElement;
  if (source === window.parent && !dataset.theme && ["light", "dark"].includes(data?.theme))
    dataset.theme = data.theme;
});

/** Light and dark follow the notebook, the reader, or the button. */
function setUpThemes() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const read = () => {
    app.colors = readColors();
    changed("theme");
  };
  dark.addEventListener("change", read);
  new MutationObserver(read).observe(root, { attributeFilter: ["data-theme"] });
  if (root.dataset.theme) read();
  onClick("theme", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });
}

main().catch((error) => {
  const words = `This page could not be read: ${error}`;
  document.body.dataset.failed = "true";
  say(words);
  byId("failure").hidden = false;
  byId("failure").textContent = `${words}. It needs a browser of 2023 or later.`;
  throw error;
});
