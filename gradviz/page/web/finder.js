/** The search field: counts what matches, and visits one match after another. */
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
    this.at = -1;
    this.field.addEventListener("input", () => this.look());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.next(event.key === "ArrowUp" ? -1 : 1);
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
    this.found = this.app.facts ? search(this.app.facts, this.field.value) : [];
    this.at = -1;
    this.#tell();
  }

  /** The best matches, where the field is in use. @param {boolean} shown */
  #list(shown) {
    const { app, found, at } = this, list = byId("found"), first = Math.max(0, Math.min(at - SHOWN + 1, found.length - SHOWN));
    const absent = absentWith(app, this.field.value).slice(0, SHOWN);
    list.hidden = !shown || !(found.length + absent.length);
    this.field.setAttribute("aria-expanded", String(!list.hidden));
    if (list.hidden) return;
    list.replaceChildren(...found.slice(first, first + SHOWN).map((item, i) => {
      const { model } = app, around = model.around(item);
      const row = el("li", { role: "option", id: `found-${first + i}`, "aria-selected": String(first + i === at) }, el("strong", { text: model.title(item) }), el("span", { text: [model.type(item), model.line(item), this.#around(item, around)].filter(Boolean).join("  ") }));
      row.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        this.at = first + i - 1;
        this.next(1);
      });
      return row;
    }), ...absent.map((one) => absentRow(one, { role: "option", "aria-selected": "false", "aria-disabled": "true" })));
    if (at >= 0) this.field.setAttribute("aria-activedescendant", `found-${at}`);
    else this.field.removeAttribute("aria-activedescendant");
  }

  /** Where a match is: the path of its module, or the group around it. @param {number} item @param {number} around */
  #around(item, around) {
    const { model, facts } = this.app, scope = item < 0 ? model.scope[~item] : -1;
    return scope >= 0 ? facts?.scopes[scope].path || "" : around > 0 ? `in ${model.title(~around)}` : "";
  }

  /** @param {number} by */
  next(by) {
    const n = this.found.length;
    if (!n) return this.#tell();
    this.at = this.at < 0 ? (by > 0 ? 0 : n - 1) : (this.at + by + n) % n;
    this.app.visit(this.found[this.at]);
    this.#tell();
    say(`match ${this.at + 1} of ${n}: ${this.app.model.title(this.found[this.at])}`);
  }

  #tell() {
    this.#list(document.activeElement === this.field);
    const n = this.found.length, empty = !this.field.value.trim();
    byId("search-count").textContent = empty ? "" : this.at < 0 ? count(n) : `${count(this.at + 1)}/${count(n)}`;
    byId("search-count").classList.toggle("none", !empty && n === 0);
    for (const id of ["search-next", "search-before"]) byId(id).hidden = n === 0;
  }
}
