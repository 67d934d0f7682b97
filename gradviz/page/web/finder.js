/** The search field: counts what matches, and visits one match after another. */
import { byId, count, say } from "./dom.js";
import { search } from "./search.js";

/** @typedef {import("./app.js").App} App */

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
      else if (event.key === "Escape") {
        this.field.value = "";
        this.look();
        byId("canvas").focus();
      } else return;
      event.preventDefault();
    });
    byId("search-next").addEventListener("click", () => this.next(1));
    byId("search-before").addEventListener("click", () => this.next(-1));
    app.on("facts", () => this.look());
  }

  look() {
    this.found = this.app.facts ? search(this.app.facts, this.field.value) : [];
    this.at = -1;
    this.#tell();
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
    const n = this.found.length, empty = !this.field.value.trim();
    byId("search-count").textContent = empty ? "" : this.at < 0 ? count(n) : `${count(this.at + 1)}/${count(n)}`;
    byId("search-count").classList.toggle("none", !empty && n === 0);
    for (const id of ["search-next", "search-before"]) byId(id).hidden = n === 0;
  }
}
