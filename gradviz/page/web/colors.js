/** Colours for the canvas, read from the style sheet, so that there is one place for both themes. */

const NAMES = [
  "bg",
  "sheet",
  "sheet-2",
  "text",
  "muted",
  "line",
  "soft-line",
  "border",
  "accent",
  "accent-2",
  "warn",
  "halo",
  ...[
    "op",
    "leaf",
    "output",
    "input",
    "group",
    "layer",
    "attention",
    "norm",
    "activation",
    "shape",
    "loss",
    "saved",
    "added",
    "removed",
    "changed",
  ].flatMap((kind) => [kind, `${kind}-line`, `${kind}-dim`]),
  ...[1, 2, 3, 4, 5].map((i) => `heat${i}`),
  ...[1, 2, 3, 4, 5, 6, 7, 8].map((i) => `class-${i}`),
];

/** @typedef {{[name: string]: string}} Colors */

/** @returns {Colors} */
export function readColors() {
  const style = getComputedStyle(document.documentElement);
  /** @type {Colors} */
  const colors = {};
  for (const name of NAMES) colors[name] = style.getPropertyValue(`--${name}`).trim();
  return colors;
}
