/** Parameters and tensors that get no gradient: grey below the outline, and in search, each with the reason. */
import { byId, el, plural } from "./dom.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {[string, string, string]} Absent name, tensor, and why it gets no gradient */

/** Those whose name or reason has this text. @param {App} app @param {string} text @returns {Absent[]} */
export function absentWith(app, text) {
  const needle = text.trim().toLowerCase();
  return needle && app.facts
    ? app.facts.absent.filter((one) => `${one[0]} ${one[2]}`.toLowerCase().includes(needle))
    : [];
}

/** One of them. @param {Absent} absent @param {{[name: string]: any}} given */
export function absentRow([name, tensor, why], given) {
  return el(
    "li",
    { class: "absent", title: `${name} ${tensor}: ${why}`, ...given },
    el("strong", { text: name }),
    el("span", { text: why }),
  );
}

/** @param {App} app */
export function setUpAbsent(app) {
  const box = byId("absent"),
    absent = app.facts ? app.facts.absent : [];
  box.hidden = !absent.length;
  box.replaceChildren(
    el("summary", { text: `No gradient: ${plural(absent.length, "tensor")}` }),
    el("ul", {}, ...absent.map((one) => absentRow(one, {}))),
  );
}
