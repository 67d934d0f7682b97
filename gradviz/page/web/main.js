/** Puts the page together: first what is drawn, then, when that is on the screen, everything that explains it. */
import { readBlock } from "./data.js";
import { Model } from "./model.js";
import { Facts } from "./facts.js";
import { App } from "./app.js";
import { Stage } from "./canvas.js";
import { Outline } from "./outline.js";
import { Panel } from "./panel.js";
import { Player } from "./play.js";
import { Minimap } from "./minimap.js";
import { Address } from "./address.js";
import { Finder } from "./finder.js";
import { Tip } from "./tip.js";
import { Profile } from "./numbers.js";
import { pixelsOf, setUpExports, svgOf } from "./exports.js";
import { setUpFindings } from "./findings.js";
import { Code, setUpTabs } from "./code.js";
import { byModule, setUpMemory } from "./memory.js";
import { setUpGradients } from "./gradients.js";
import { setUpChanges } from "./changes.js";
import { available } from "./overlay.js";
import { byId, el } from "./dom.js";
import { readColors } from "./colors.js";
import { setUpMenus } from "./menus.js";
import { stretch } from "./sheet.js";
import { search } from "./search.js";
import { between, litEdges, reach } from "./trace.js";
import { readOpen, writeOpen } from "./address.js";
import { memory } from "./play.js";
import { setUpAbsent } from "./absent.js";
import { arrived, lookOf } from "./look.js";

async function main() {
  const model = new Model(await readBlock("view"));
  const app = new App(model, byId("stage"));
  const outlineTree = byId("outline");
  document.body.classList.toggle("embed", location.hash.startsWith("#embed")); // inside another page
  if (matchMedia("(max-width: 720px)").matches) document.body.classList.add("no-outline");
  const stage = new Stage(app, /** @type {HTMLCanvasElement} */ (byId("canvas")));
  app.fit(false, true);
  stage.draw();
  const drawnAt = performance.now();
  await new Promise((done) => setTimeout(done)); // the browser shows the first view before the rest is read
  const outline = new Outline(app, outlineTree),
    panel = new Panel(app),
    player = new Player(app),
    minimap = new Minimap(app),
    tip = new Tip(app, stage),
    profile = new Profile(app),
    finder = new Finder(app);
  setUpMenus();
  setUpExports(app);
  setUpFindings(app);
  setUpTabs(app);
  const code = new Code(app);
  setUpMemory(app);
  setUpGradients(app);
  setUpChanges(app);
  controls(app);
  keys(stage, player);
  themes(app);
  const facts = new Facts(await readBlock("facts"), model);
  app.overlayId = facts.c.diff ? "diff" : facts.head.color;
  app.setFacts(facts);
  setUpAbsent(app);
  overlays(app);
  const address = new Address(
    app,
    /** @type {HTMLButtonElement} */ (byId("back")),
    /** @type {HTMLButtonElement} */ (byId("forward")),
  );
  address.onStep = (step) => {
    if (step < 0) player.show(false);
    else {
      if (byId("player").hidden) player.show(true);
      player.reach(step);
    }
  };
  address.start();
  byId("copy-link").addEventListener("click", () => address.copy());
  const parts = {
    app,
    stage,
    outline,
    panel,
    player,
    minimap,
    tip,
    profile,
    finder,
    address,
    code,
    facts,
    drawnAt,
  };
  const functions = {
    stretch,
    search,
    between,
    reach,
    litEdges,
    readOpen,
    writeOpen,
    memory,
    svgOf,
    pixelsOf,
    arrived,
    byModule,
    lookOf,
  };
  Object.assign(window, { gradviz: { ...parts, ...functions } }); // for tests and for the console
  document.body.dataset.ready = "true";
}

/** @param {App} app */
function controls(app) {
  const click = (/** @type {string} */ id, /** @type {() => void} */ act) =>
    byId(id).addEventListener("click", act);
  click("open-all", () => app.openAll());
  click("close-all", () => app.closeAll());
  click("first-view", () => app.firstView());
  click("fit", () => app.fit(true));
  click("zoom-in", () => app.zoom(1.25));
  click("zoom-out", () => app.zoom(0.8));
  const views = /** @type {HTMLInputElement} */ (byId("views")),
    names = /** @type {HTMLSelectElement} */ (byId("names")),
    model = app.model;
  const groups = model.withViews();
  views.disabled = groups.length === 0;
  views.addEventListener("change", () => app.showViews(views.checked));
  app.on("open", () => (views.checked = groups.every((g) => app.layout.isOpen(g))));
  views.checked = groups.every((g) => app.layout.isOpen(g));
  const inputs = /** @type {HTMLInputElement} */ (byId("inputs")),
    shapes = /** @type {HTMLInputElement} */ (byId("shapes")),
    version = /** @type {HTMLSelectElement} */ (byId("version"));
  names.addEventListener("change", () => app.setView({ names: names.value }));
  inputs.disabled = !model.takers.length;
  inputs.addEventListener("change", () => app.setView({ inputs: inputs.checked }));
  shapes.addEventListener("change", () => app.setView({ shapes: shapes.checked }));
  version.addEventListener("change", () => app.setView({ version: Number(version.value) }));
  app.on("view", () => {
    names.value = app.names;
    inputs.checked = app.inputs;
    shapes.checked = app.shapes;
    version.value = String(app.version);
  });
  app.on("facts", () => (byId("versions").hidden = !app.facts?.c.diff));
  resizable(byId("side"), 1);
  resizable(byId("panel"), -1, () => app.changed("select"));
  app.on("facts", () => {
    names.value = app.names;
    names.disabled = app.names !== "variable"; // the file has no others
  });
  click("toggle-outline", () => {
    const gone = document.body.classList.toggle("no-outline");
    byId("toggle-outline").setAttribute("aria-expanded", String(!gone));
  });
  byId("toggle-outline").setAttribute(
    "aria-expanded",
    String(!document.body.classList.contains("no-outline")),
  );
}

/** @param {App} app */
function overlays(app) {
  const choice = /** @type {HTMLSelectElement} */ (byId("overlay")),
    facts = /** @type {Facts} */ (app.facts);
  choice.replaceChildren(
    ...available(facts).map(([id, name, option]) =>
      el("option", {
        value: id,
        text: option ? `${name}: write the page with ${option}` : name,
        disabled: option !== "",
      }),
    ),
  );
  choice.addEventListener("change", () => app.setOverlay(choice.value));
  const show = () => {
    choice.value = app.overlayId;
    byId("legend").classList.toggle("kinds", app.overlayId === "kind");
    byId("legend").replaceChildren(
      ...app.overlay.legend.map((entry) => {
        const swatch = el("i", { "aria-hidden": "true" });
        if (entry.color) swatch.style.background = `var(--${entry.color})`;
        else swatch.hidden = true;
        return el("li", {}, swatch, el("span", { text: entry.text }));
      }),
      facts.head.legend ? el("li", { text: facts.head.legend }) : "",
    );
  };
  app.on("overlay", show);
  show();
}

/** Lets the border of a side be dragged, or moved with arrow keys. @param {HTMLElement} side @param {1 | -1} sign of its border @param {() => void} [after] */
function resizable(side, sign, after = () => {}) {
  const grip = /** @type {HTMLElement} */ (side.querySelector(".grip"));
  const widen = (/** @type {number} */ by) => {
    side.style.width = `${Math.max(160, Math.min(innerWidth * 0.7, side.offsetWidth + by * sign))}px`;
    grip.setAttribute("aria-valuenow", String(side.offsetWidth));
    after();
  };
  grip.addEventListener("pointerdown", (event) => grip.setPointerCapture(event.pointerId));
  grip.addEventListener(
    "pointermove",
    (event) => grip.hasPointerCapture(event.pointerId) && widen(event.movementX),
  );
  grip.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -20, ArrowRight: 20 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    widen(by);
  });
}

/** Keys that work wherever no text is typed. @param {Stage} stage @param {Player} player */
function keys(stage, player) {
  addEventListener("keydown", (event) => {
    const at = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (
      (at instanceof HTMLInputElement && !["checkbox", "range"].includes(at.type)) ||
      at instanceof HTMLSelectElement
    )
      return;
    if (
      at instanceof Element &&
      at.closest("button, summary, input") &&
      (event.key === "Enter" || event.key === " ")
    )
      return;
    if (event.key === "/") byId("search").focus();
    else if (event.key === "p") player.show(byId("player").hidden === true);
    else if (event.key === "?") byId("help").toggleAttribute("open");
    else if (!player.key(event.key) && !stage.key(event)) return;
    event.preventDefault();
  });
}

/** The notebook around the page tells its theme when the frame has loaded, which is before the page is ready. */
window.addEventListener("message", ({ data, source }) => {
  const root = document.documentElement;
  if (source === window.parent && !root.dataset.theme && ["light", "dark"].includes(data?.theme))
    root.dataset.theme = data.theme;
});

/** Light and dark follow the notebook, the reader, or the button. @param {App} app */
function themes(app) {
  const dark = matchMedia("(prefers-color-scheme: dark)"),
    root = document.documentElement;
  const changed = () => {
    app.colors = readColors();
    app.changed("theme");
  };
  dark.addEventListener("change", changed);
  new MutationObserver(changed).observe(root, { attributeFilter: ["data-theme"] });
  if (root.dataset.theme) changed();
  byId("theme").addEventListener("click", () => {
    const is = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = is === "dark" ? "light" : "dark";
  });
  matchMedia("(prefers-reduced-motion: reduce)").addEventListener(
    "change",
    (event) => (app.still = event.matches),
  );
}

main().catch((error) => {
  document.body.dataset.failed = "true";
  byId("said").textContent = `the page could not be read: ${error}`;
  byId("failure").hidden = false;
  byId("failure").textContent =
    `This page could not be read: ${error}. It needs a browser of 2023 or later.`;
  throw error;
});
