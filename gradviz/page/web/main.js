/**
 * Puts the page together: first what is drawn, then, when that is on the screen, everything that
 * explains it.
 */
import { setUpAddress, writeView } from "./address.js";
import {
  app,
  changed,
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
import { byId, clamp, el, isNarrow, onClick, say } from "./dom.js";
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
  setUpStage();
  const drawnAt = performance.now();
  // the browser shows the first view before the rest is read
  await new Promise((done) => setTimeout(done));
  readFacts(await readBlock("facts"));
  setUpPointer();
  setUpMap();
  setUpPanel();
  setUpLists();
  setUpOutline();
  setUpSearch();
  setUpPlayer();
  setUpExports();
  setUpMenus();
  setUpTools();
  setUpView();
  setUpLegend();
  setUpThemes();
  setUpAddress();
  addEventListener("keydown", press);
  changed("overlay lit");
  expose(drawnAt);
  document.body.dataset.ready = "true";
}

/** For tests and for the console. @param {number} drawnAt */
function expose(drawnAt) {
  const camera = { pan, zoom, visit };
  const open = { firstView, toggle, openAll, closeAll };
  Object.assign(app, { model, layout, select, clearest, setView, setOverlay, ...camera, ...open });
  const files = { svgOf, pixelsOf, figureOf, fileName, writeView };
  const parts = { app, facts, player, finder, drawnAt, search, between, byModule, lookOf };
  Object.assign(window, { gradviz: { ...parts, ...files, drawStage } });
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
  const { classList } = document.body;
  const tell = (/** @type {boolean} */ hidden) =>
    byId("toggle-outline").setAttribute("aria-expanded", !hidden);
  onClick("toggle-outline", () => tell(classList.toggle("no-outline")));
  tell(classList.contains("no-outline"));
}

/** What is shown of the graph, and how. */
function setUpView() {
  const views = byId("views");
  const groups = model.withViews();
  views.disabled = !groups.length;
  byId("inputs").disabled = !model.takers.length;
  byId("names").disabled = app.names !== "variable"; // the file has no others
  byId("versions").hidden = !facts.c.diff;
  views.addEventListener("change", () => showViews(views.checked));
  on("open view", () => (views.checked = groups.every((g) => layout.isOpen(g))));
  /** What of each control is the part of the view that has its name. */
  const controls = {
    names: "value",
    inputs: "checked",
    shapes: "checked",
    version: "selectedIndex"
  };
  for (const [name, property] of Object.entries(controls)) {
    const control = byId(name);
    control.addEventListener("change", () => setView({ [name]: control[property] }));
    on("open view", () => (control[property] = /** @type {any} */ (app)[name]));
  }
  changed("view");
}

function setUpLegend() {
  const choice = byId("overlay");
  for (const [value, name, option] of overlays(facts)) {
    const text = option ? `${name}: write the page with ${option}` : name;
    choice.append(el("option", { value, disabled: option !== "" }, text));
  }
  choice.addEventListener("change", () => setOverlay(choice.value));
  on("overlay", () => {
    choice.value = app.overlayId;
    const entries = app.overlay.legend.map(({ color, text }) => {
      const swatch = el("i", { "aria-hidden": "true", hidden: !color });
      swatch.style.background = `var(--${color})`;
      return el("li", swatch, el("span", text));
    });
    if (facts.head.legend) entries.push(el("li", facts.head.legend));
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
    const width = clamp(side.offsetWidth + by * sign, 160, innerWidth * 0.7);
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

/** Closes open menus, but those around a place. @param {Element | null} place */
function closeMenus(place = null) {
  for (const menu of document.querySelectorAll(".menu[open]"))
    // the tools belong to the menu before them where there is little room
    if (!menu.contains(place) && !(menu.id === "more" && place?.closest(".tools")))
      menu.removeAttribute("open");
}

/** Menus close on Escape, on a press elsewhere, and when something in them was chosen. */
function setUpMenus() {
  addEventListener("pointerdown", ({ target }) => closeMenus(/** @type {any} */ (target)), true);
  addEventListener(
    "keydown",
    (event) => {
      const first = document.querySelector(".menu[open]");
      if (event.key !== "Escape" || !first) return;
      event.stopPropagation();
      first.querySelector("summary")?.focus();
      closeMenus();
    },
    true
  );
  addEventListener("click", ({ target }) => {
    if (/** @type {Element} */ (target).closest(".tools button:not(#copy-link)")) closeMenus();
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
  byId("failure").textContent = `${words}. It needs a browser of 2024 or later.`;
  throw error;
});
