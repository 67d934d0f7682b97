/**
 * The tree at the side: an ARIA tree that shares its state with the sheet. Rows are made for what
 * is
 * in view only, so that a hundred thousand open rows cost no more than thirty.
 */
import { app, facts, layout, model, on, toggle, visit } from "./app.js";
import { byId, el } from "./dom.js";

const ROW = 24;

const tree = byId("outline");
const spacer = el("div.spacer", { role: "presentation" });
let active = 0;
/** How many rows the inside of each group takes. @type {Int32Array} */
let counts;

export function setUpOutline() {
  active = model.item(0, 0);
  tree.addEventListener("scroll", drawOutline);
  tree.addEventListener("keydown", pressInOutline);
  tree.addEventListener("click", clickRow);
  tree.addEventListener("focus", drawOutline);
  new ResizeObserver(drawOutline).observe(tree);
  on("open", countRows);
  on("select", follow);
  countRows();
}

function countRows() {
  counts = new Int32Array(model.groups);
  for (let g = model.groups - 1; g >= 0; g--) {
    counts[g] += model.shape(g).children;
    if (g && layout.isOpen(g)) counts[model.parent[g]] += counts[g];
  }
  drawOutline();
}

/** Rows of an item with what is open in it. @param {number} item */
const rowsOf = (item) => 1 + (layout.isSheet(item) ? counts[~item] : 0);

/** The item of a row. @param {number} row @returns {number} */
function itemOf(row) {
  let items = model.itemsOf(0);
  for (;;) {
    let item = ~0;
    for (item of items) {
      if (row < rowsOf(item)) break;
      row -= rowsOf(item);
    }
    if (row-- === 0) return item;
    items = model.itemsOf(~item);
  }
}

/**
 * The row of an item, -1 while something around it is closed.
 * @param {number} item
 * @returns {number}
 */
function rowOf(item) {
  let row = -1;
  for (let inner = item; inner !== ~0; inner = ~model.around(inner)) {
    const g = model.around(inner);
    if (!layout.isOpen(g)) return -1;
    const before = model.itemsOf(g).slice(0, model.local(inner));
    row = before.reduce((sum, other) => sum + rowsOf(other), row + 1);
  }
  return row;
}

function follow() {
  const { selected } = app;
  if (selected !== null && selected !== ~0) active = selected;
  const row = rowOf(active);
  if (selected !== null && row >= 0) scrollToRow(row);
  drawOutline();
}

/** @param {number} row */
function scrollToRow(row) {
  const top = row * ROW;
  const { scrollTop, clientHeight } = tree;
  if (top < scrollTop || top + ROW > scrollTop + clientHeight)
    tree.scrollTop = Math.max(0, top - clientHeight / 3);
}

function drawOutline() {
  const first = Math.max(0, Math.floor(tree.scrollTop / ROW) - 4);
  const last = Math.min(counts[0], first + Math.ceil((tree.clientHeight || 400) / ROW) + 8);
  spacer.style.height = `${counts[0] * ROW}px`;
  if (rowOf(active) < 0) active = counts[0] ? itemOf(0) : ~0;
  const rows = [];
  for (let row = first; row < last; row++) rows.push(rowElement(itemOf(row), row));
  tree.replaceChildren(spacer, ...rows);
  tree.setAttribute("aria-activedescendant", tree.querySelector(".active")?.id ?? "");
}

/** @param {number} item @param {number} row */
function rowElement(item, row) {
  const g = model.around(item);
  const depth = model.depth[g] + 1;
  const isGroup = item < 0;
  const title = model.title(item);
  const more = (isGroup && model.type(item)) || model.line(item);
  const attributes = {
    role: "treeitem",
    id: `row-${isGroup ? `g${~item}` : item}`,
    "data-item": item,
    title: `${title} ${more}`,
    "aria-level": depth,
    "aria-setsize": model.shape(g).children,
    "aria-posinset": model.local(item) + 1,
    "aria-expanded": isGroup ? String(layout.isSheet(item)) : null,
    "aria-selected": String(item === app.selected)
  };
  const mark = el("span.mark", { "aria-hidden": "true" });
  const name = el("span.name", title);
  const words = el("span.more", isGroup ? model.type(item) : more);
  const element = el(`div.row.${model.kindWord(item)}`, attributes, mark, name, words);
  element.style.top = `${row * ROW}px`;
  element.style.paddingLeft = `${6 + Math.min(depth - 1, 12) * 12}px`;
  element.classList.toggle("cut", facts.isCut(item));
  element.classList.toggle("active", item === active);
  return element;
}

/** @param {MouseEvent} event */
function clickRow({ target }) {
  const at = /** @type {Element} */ (target);
  const row = at.closest(".row");
  if (!(row instanceof HTMLElement)) return;
  active = Number(row.dataset.item);
  if (active < 0 && at.classList.contains("mark")) toggle(~active);
  else visit(active);
  tree.focus();
}

/** @param {KeyboardEvent} event */
function pressInOutline(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const item = active;
  const row = rowOf(item);
  const isOpen = layout.isSheet(item);
  const page = Math.max(1, Math.floor(tree.clientHeight / ROW) - 1);
  const last = counts[0] - 1;
  /** @type {{[key: string]: () => void}} */
  const keys = {
    ArrowDown: () => goTo(row + 1),
    ArrowUp: () => goTo(row - 1),
    PageDown: () => goTo(Math.min(row + page, last)),
    PageUp: () => goTo(Math.max(row - page, 0)),
    Home: () => goTo(0),
    End: () => goTo(last),
    ArrowRight: () => (isOpen ? goTo(row + 1) : item < 0 && toggle(~item, true)),
    ArrowLeft: () => (isOpen ? toggle(~item, false) : goTo(rowOf(~model.around(item)))),
    Enter: () => (item < 0 && app.selected === item ? toggle(~item) : visit(item)),
    " ": () => visit(item)
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  keys[event.key]();
}

/** @param {number} row */
function goTo(row) {
  if (row < 0 || row >= counts[0]) return;
  active = itemOf(row);
  scrollToRow(row);
  drawOutline();
}
