/** The search field: counts what matches, and visits one match after another. */
import { alike, pattern, times, together } from "./alike.js";
import { absentRow, absentWith } from "./absent.js";
import { byId, count, el, say } from "./dom.js";
import { search } from "./search.js";

/** @typedef {import("./app.js").App} App */

const SHOWN = 10;

export class Finder {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.field = /** @type {HTMLInputElement} */ (byId("search"));
    /** @type {number[]} */
    this.found = [];
    /** @type {number[][]} the same, alike ones in one row */
    this.rows = [];
    this.at = -1;
    this.field.addEventListener("input", () => this.look());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        this.next(event.shiftKey ? -1 : 1);
        this.#list(false);
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp")
        this.#along(event.key === "ArrowUp" ? -1 : 1);
      else if (event.key === "Escape") {
        this.field.value = "";
        this.look();
        byId("canvas").focus();
      } else return;
      event.preventDefault();
    });
    this.field.addEventListener("blur", () => setTimeout(() => this.#list(false), 150));
    this.field.addEventListener("focus", () => this.#list(true));
    byId("search-next").addEventListener("click", () => this.next(1));
    byId("search-before").addEventListener("click", () => this.next(-1));
    app.on("facts", () => this.look());
  }

  look() {
    this.rows = alike(this.app.facts ? search(this.app.facts, this.field.value) : [], (item) =>
      this.#key(item),
    );
    this.found = this.rows.flat();
    this.at = -1;
    this.#tell();
  }

  /** The best matches, where the field is in use. @param {boolean} shown */
  #list(shown) {
    const { app, found, rows, at } = this,
      list = byId("found"),
      now = this.#row(),
      first = Math.max(0, Math.min(now - SHOWN + 1, rows.length - SHOWN));
    const absent = absentWith(app, this.field.value).slice(0, SHOWN);
    list.hidden = !shown || !(found.length + absent.length);
    this.field.setAttribute("aria-expanded", String(!list.hidden));
    if (list.hidden) return;
    list.replaceChildren(
      ...rows.slice(first, first + SHOWN).map((items, i) => {
        const { model } = app,
          title =
            items[0] < 0 ? together(items.map((item) => model.title(item))) : model.title(items[0]),
          path = together(items.map((item) => app.facts?.pathOf(item) || ""));
        const row = el(
          "li",
          { role: "option", id: `found-${first + i}`, "aria-selected": String(first + i === now) },
          el("strong", { text: title + times(items.length) }),
          el("span", {
            text: [path && `in ${path}`, model.type(items[0]), model.line(items[0])]
              .filter(Boolean)
              .join(" · "),
          }),
        );
        row.addEventListener("pointerdown", (event) => {
          event.preventDefault();
          this.#visit(found.indexOf(items[0]));
        });
        return row;
      }),
      ...absent.map((one) =>
        absentRow(one, { role: "option", "aria-selected": "false", "aria-disabled": "true" }),
      ),
    );
    if (at >= 0) this.field.setAttribute("aria-activedescendant", `found-${now}`);
    else this.field.removeAttribute("aria-activedescendant");
  }

  /** What a row has in common: matches that differ only in the number of their layer are one row. @param {number} item */
  #key(item) {
    const { model, facts } = this.app,
      title = model.title(item);
    return [
      item < 0 ? pattern(title) : title,
      model.type(item),
      model.line(item),
      pattern(facts?.pathOf(item) || ""),
    ].join("\n");
  }

  /** @param {number} by */
  next(by) {
    const n = this.found.length;
    if (!n) return this.#tell();
    this.#visit(this.at < 0 ? (by > 0 ? 0 : n - 1) : (this.at + by + n) % n);
  }

  /** The row of the match that is visited, -1 before one is. */
  #row() {
    return this.at < 0 ? -1 : this.rows.findIndex((items) => items.includes(this.found[this.at]));
  }

  /** To the first match of the next row. @param {number} by */
  #along(by) {
    const n = this.rows.length,
      row = this.#row();
    if (n)
      this.#visit(
        this.found.indexOf(this.rows[row < 0 ? (by > 0 ? 0 : n - 1) : (row + by + n) % n][0]),
      );
  }

  /** @param {number} at */
  #visit(at) {
    this.at = at;
    this.app.visit(this.found[at]);
    this.#tell();
    say(`match ${at + 1} of ${this.found.length}: ${this.app.model.title(this.found[at])}`);
  }

  #tell() {
    this.#list(document.activeElement === this.field);
    const n = this.found.length,
      empty = !this.field.value.trim();
    byId("search-count").textContent = empty
      ? ""
      : this.at < 0
        ? count(n)
        : `${count(this.at + 1)}/${count(n)}`;
    byId("search-count").classList.toggle("none", !empty && n === 0);
    for (const id of ["search-next", "search-before"]) byId(id).hidden = n === 0;
  }
}
