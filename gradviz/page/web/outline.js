/**
 * The tree at the side: an ARIA tree that shares its state with the sheet. Rows are made for what is in view only, so that a hundred
 * thousand open rows cost no more than thirty.
 */
import { el } from "./dom.js";
import { isCut } from "./look.js";

/** @typedef {import("./app.js").App} App */

const ROW = 24;

/** How many rows the inside of each group takes, kept until something opens. */
export class Rows {
  /** @param {import("./sheet.js").Layout} layout */
  constructor(layout) {
    this.layout = layout;
    this.model = layout.model;
    this.counts = new Int32Array(this.model.groups);
    this.refresh();
  }

  refresh() {
    const { model, counts } = this;
    counts.fill(0);
    for (let g = model.groups - 1; g >= 0; g--) {
      counts[g] += model.shape(g).children;
      if (g && this.layout.isOpen(g)) counts[model.parent[g]] += counts[g];
    }
  }

  /** Rows in all. */
  get size() {
    return this.counts[0];
  }

  /** The item of a row. @param {number} row @returns {number} */
  item(row) {
    const { model } = this;
    let g = 0;
    for (;;) {
      const n = model.shape(g).children;
      let inner = -1;
      for (let i = 0; i < n; i++) {
        const item = model.item(g, i),
          size = 1 + (item < 0 && this.layout.isOpen(~item) ? this.counts[~item] : 0);
        if (row === 0) return item;
        if (row < size) {
          inner = ~item;
          row -= 1;
          break;
        }
        row -= size;
      }
      if (inner < 0) return ~0;
      g = inner;
    }
  }

  /** The row of an item, -1 while something around it is closed. @param {number} item @returns {number} */
  row(item) {
    const { model } = this;
    let row = -1;
    for (let at = item; at !== ~0; at = ~model.around(at)) {
      const g = model.around(at);
      if (g > 0 && !this.layout.isOpen(g)) return -1;
      const local = model.local(at);
      row += 1;
      for (let i = 0; i < local; i++) {
        const before = model.item(g, i);
        row += 1 + (before < 0 && this.layout.isOpen(~before) ? this.counts[~before] : 0);
      }
    }
    return row;
  }
}

export class Outline {
  /** @param {App} app @param {HTMLElement} tree */
  constructor(app, tree) {
    this.app = app;
    this.tree = tree;
    this.rows = new Rows(app.layout);
    this.active = app.model.item(0, 0);
    this.spacer = el("div", { class: "spacer", role: "presentation" });
    tree.append(this.spacer);
    tree.addEventListener("scroll", () => this.draw());
    tree.addEventListener("keydown", (event) => this.#key(event));
    tree.addEventListener("click", (event) => this.#click(event));
    tree.addEventListener("focus", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(tree);
    app.on("open", () => {
      this.rows.refresh();
      this.draw();
    });
    app.on("select", () => this.#follow());
    app.on("facts", () => this.draw());
    this.draw();
  }

  #follow() {
    const item = this.app.selected;
    if (item !== null && item !== ~0) this.active = item;
    const row = this.rows.row(this.active);
    if (item !== null && row >= 0) this.#show(row);
    this.draw();
  }

  /** @param {number} row */
  #show(row) {
    const { tree } = this,
      top = row * ROW;
    if (top < tree.scrollTop || top + ROW > tree.scrollTop + tree.clientHeight)
      tree.scrollTop = Math.max(0, top - tree.clientHeight / 3);
  }

  draw() {
    const { tree, rows } = this,
      first = Math.max(0, Math.floor(tree.scrollTop / ROW) - 4);
    const last = Math.min(rows.size, first + Math.ceil((tree.clientHeight || 400) / ROW) + 8);
    this.spacer.style.height = `${rows.size * ROW}px`;
    const made = [this.spacer];
    if (rows.row(this.active) < 0) this.active = rows.size ? rows.item(0) : ~0;
    let active = "";
    for (let row = first; row < last; row++) {
      const element = this.#row(rows.item(row), row);
      if (element.dataset.item === String(this.active)) active = element.id;
      made.push(element);
    }
    tree.replaceChildren(...made);
    if (active) tree.setAttribute("aria-activedescendant", active);
    else tree.removeAttribute("aria-activedescendant");
  }

  /** @param {number} item @param {number} row */
  #row(item, row) {
    const { app } = this,
      model = app.model,
      g = model.around(item),
      depth = model.depth[g] + 1,
      isGroup = item < 0;
    const kind = model.kindWord(item);
    const type = model.type(item);
    const element = el(
      "div",
      {
        class: `row ${kind}`,
        role: "treeitem",
        id: `row-${item < 0 ? `g${~item}` : item}`,
        "data-item": item,
        title: `${model.title(item)} ${type || model.line(item)}`,
        "aria-level": depth,
        "aria-setsize": model.shape(g).children,
        "aria-posinset": model.local(item) + 1,
        "aria-expanded": isGroup ? String(app.layout.isOpen(~item)) : null,
        "aria-selected": String(item === app.selected),
      },
      el("span", { class: "mark", "aria-hidden": "true" }),
      el("span", { class: "name", text: model.title(item) }),
      el("span", { class: "more", text: isGroup ? type : model.line(item) }),
    );
    element.style.top = `${row * ROW}px`;
    element.style.paddingLeft = `${6 + Math.min(depth - 1, 12) * 12}px`;
    element.classList.toggle("cut", isCut(app, item));
    if (item === this.active) element.classList.add("active");
    return element;
  }

  /** @param {Event} event */
  #click(event) {
    const row = event.target instanceof Element ? event.target.closest(".row") : null;
    if (!(row instanceof HTMLElement)) return;
    const item = Number(row.dataset.item),
      app = this.app;
    this.active = item;
    if (item < 0 && event.target instanceof Element && event.target.classList.contains("mark"))
      app.toggle(~item);
    else app.visit(item);
    this.tree.focus();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { app, rows } = this,
      item = this.active,
      row = rows.row(item),
      isGroup = item < 0,
      isOpen = isGroup && app.layout.isOpen(~item);
    const page = Math.max(1, Math.floor(this.tree.clientHeight / ROW) - 1);
    /** @type {{[key: string]: () => void}} */
    const keys = {
      ArrowDown: () => this.#go(row + 1),
      ArrowUp: () => this.#go(row - 1),
      PageDown: () => this.#go(Math.min(row + page, rows.size - 1)),
      PageUp: () => this.#go(Math.max(row - page, 0)),
      Home: () => this.#go(0),
      End: () => this.#go(rows.size - 1),
      ArrowRight: () =>
        isGroup && !isOpen ? app.toggle(~item, true) : isOpen ? this.#go(row + 1) : undefined,
      ArrowLeft: () =>
        isOpen ? app.toggle(~item, false) : this.#go(rows.row(~app.model.around(item))),
      Enter: () => (isGroup && app.selected === item ? app.toggle(~item) : app.visit(item)),
      " ": () => app.visit(item),
    };
    const key = keys[event.key];
    if (!key) return;
    event.preventDefault();
    event.stopPropagation();
    key();
  }

  /** @param {number} row */
  #go(row) {
    if (row < 0 || row >= this.rows.size) return;
    this.active = this.rows.item(row);
    this.#show(row);
    this.draw();
  }
}
