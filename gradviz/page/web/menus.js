/** Menus close on Escape, on a press elsewhere, and when something in them was chosen. */
import { byId } from "./dom.js";

const opened = () =>
  /** @type {HTMLDetailsElement[]} */ ([...document.querySelectorAll(".menu[open]")]);

/** @param {(menu: HTMLDetailsElement) => boolean} [which] */
function close(which = () => true) {
  for (const menu of opened().filter(which)) menu.open = false;
}

export function setUpMenus() {
  const tools = document.querySelector(".tools"); // belong to the menu before them where there is little room
  addEventListener(
    "pointerdown",
    ({ target }) => {
      const at = /** @type {Node} */ (target);
      close((menu) => !menu.contains(at) && !(menu.id === "more" && tools?.contains(at)));
    },
    true,
  );
  addEventListener(
    "keydown",
    (event) => {
      const first = opened()[0];
      if (event.key !== "Escape" || !first) return;
      event.stopPropagation();
      first.querySelector("summary")?.focus();
      close();
    },
    true,
  );
  byId("copy-link").addEventListener("blur", () => (byId("copy-link").textContent = "Copy link"));
  tools?.addEventListener("click", ({ target }) => {
    const button = /** @type {Element} */ (target).closest("button");
    if (button && button.id !== "copy-link") close();
  });
}
