/** What is known of the selected box, in words; every id is a link to its box. */
import { alike, pattern, times, together } from "./alike.js";
import { byId, count, el, plural } from "./dom.js";
import { COPY, DATA, LEAF, OUTPUT } from "./model.js";
import { bytesText } from "./overlay.js";
import { kindWord } from "./draw.js";
import { stepOf } from "./look.js";
import { formulaSections } from "./formula.js";
import { sumsOf } from "./code.js";
import { chainLine, numberSection } from "./numbers.js";
import { wayOut } from "./trace.js";

/** @typedef {import("./app.js").App} App */
/** @typedef {import("./facts.js").Facts} Facts */

const MANY = 30;

export class Panel {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.element = byId("panel");
    this.body = byId("panel-body");
    byId("panel-close").addEventListener("click", () => app.select(null));
    for (const change of /** @type {const} */ (["select", "facts", "step"]))
      app.on(change, () => this.draw());
    app.on("open", () => this.#buttons());
  }

  draw() {
    const { app } = this,
      item = app.selected;
    this.element.hidden = item === null && !app.line;
    const narrow = matchMedia("(max-width: 720px)").matches;
    app.covered = this.element.hidden || narrow ? 0 : this.element.offsetWidth;
    app.coveredBelow = this.element.hidden || !narrow ? 0 : this.element.offsetHeight;
    app.stage.style.setProperty("--covered", `${app.covered}px`);
    if (app.line) return this.#line(app.line);
    if (item === null) return;
    const model = app.model;
    byId("panel-title").textContent = [model.title(item), model.type(item)]
      .filter(Boolean)
      .join("  ");
    const parts = [el("p", { class: "what", text: this.#what(item) }), this.#actions(item)];
    if (app.facts) parts.unshift(...codeLines(app.facts, this.#made(app.facts, item)));
    if (app.facts)
      parts.push(...(item < 0 ? this.#group(app.facts, ~item) : this.#cell(app.facts, item)));
    this.body.replaceChildren(...parts);
    this.body.scrollTop = 0;
  }

  /** What a line of code made. @param {import("./code.js").Line} line */
  #line(line) {
    const facts = /** @type {Facts} */ (this.app.facts),
      { bytes, norm } = sumsOf(facts, line),
      ops = line.nodes
        .filter((node) => facts.isOp(node))
        .sort((a, b) => facts.cellOf[a] - facts.cellOf[b]);
    byId("panel-title").textContent = `line ${line.line}`;
    this.body.replaceChildren(
      el("p", { class: "what", text: line.file }),
      el("code", { text: line.text }),
      table([
        ["made", plural(ops.length, "op")],
        ["holds", bytes ? bytesText(bytes) : ""],
        ["gradient norm", norm === null ? "" : `up to ${norm}`],
      ]),
      section("Its ops", this.#links(ops, true)),
    );
    this.body.scrollTop = 0;
  }

  /** The ops whose lines of code an item shows: the main ones or all of a group, what uses a leaf, what made an output. @param {Facts} facts @param {number} item @returns {number[]} */
  #made(facts, item) {
    const mains = item < 0 ? this.app.model.mainOps(~item) : [],
      node = facts.nodeOf(item);
    if (item < 0)
      return mains.length ? mains : facts.nodesOf(item).filter((one) => facts.isOp(one));
    if (facts.isOp(node)) return [node];
    return this.app.model.kind[item] === OUTPUT ? facts.inputsOf(node) : facts.usersOf(node);
  }

  #buttons() {
    const button = this.body.querySelector("[data-toggle]");
    if (button && this.app.selected !== null && this.app.selected < 0)
      button.textContent = this.app.layout.isOpen(~this.app.selected) ? "Close" : "Open";
  }

  /** @param {number} item */
  #what(item) {
    const { app } = this,
      facts = app.facts;
    if (item < 0)
      return [
        "everything",
        "call of a module or function",
        "op, with ops that only change its shape",
        "what repeats",
        "one turn",
        "ops in a row",
      ][app.model.groupKind[~item]];
    if (!facts) return kindWord(app.model.kind[item]);
    const node = facts.nodeOf(item),
      leaf = facts.leafOf.get(node);
    if (leaf || node >= facts.nodes)
      return leaf ? `leaf: ${leaf.kind}` : kindWord(app.model.kind[item]);
    return `backward function ${facts.word("op", node)}, ${this.#step(facts, node)}`;
  }

  /** @param {number} item */
  #actions(item) {
    const { app } = this,
      row = el("div", { class: "actions" });
    if (item < 0 && item !== ~0)
      row.append(
        el("button", {
          "data-toggle": true,
          text: app.layout.isOpen(~item) ? "Close" : "Open",
          onclick: () => app.toggle(~item),
        }),
      );
    row.append(
      el("button", {
        text: "Show",
        title: "Bring the box into view",
        onclick: () => app.visit(item),
      }),
    );
    if (item !== ~0)
      row.append(
        el("button", {
          text: "Path to…",
          title: "Then choose the other box (Shift+click)",
          onclick: () => {
            app.picking = true;
            byId("said").textContent = "choose the other box";
            /** @type {HTMLElement} */ (row.querySelector(".trace")).textContent =
              "Now click the other end.";
          },
        }),
      );
    if (app.trace) row.append(el("p", { class: "trace", text: this.#traced() }));
    return row;
  }

  #traced() {
    const { app } = this,
      trace = /** @type {import("./trace.js").Trace} */ (app.trace),
      model = app.model;
    if (app.other === null)
      return `depends on ${count(trace.upstream)} ops; ${count(trace.downstream)} depend on it`;
    const [from, to] = (trace.turned ? [app.other, app.selected] : [app.selected, app.other]).map(
      Number,
    );
    const names = `${model.title(from)} to ${model.title(to)}`;
    if (trace.what === "apart") return `no path leads from one to the other (${names})`;
    const digits = trace.count.toString();
    const exact =
      digits.length > 24
        ? `${digits.slice(0, 12)}… (${count(digits.length)} digits)`
        : count(trace.count);
    const words = el("span", { text: exact, title: digits.slice(0, 4000) }).textContent;
    const facts = app.facts,
      chain =
        facts && from >= 0 && to >= 0
          ? chainLine(facts, trace, facts.nodeOf(from), facts.nodeOf(to))
          : "";
    return `${words} ${trace.count === 1n ? "path" : "paths"} from ${names}${chain ? `; derivative ${chain}` : ""}`;
  }

  /** @param {number} node */
  #link(node) {
    const { app } = this,
      facts = /** @type {Facts} */ (app.facts),
      cell = facts.cellOf[node];
    return this.#to(() => cell, app.model.title(cell));
  }

  /** @param {() => number} item @param {string} text */
  #to(item, text) {
    return el("button", { class: "link", text, onclick: () => this.app.visit(item()) });
  }

  /** @param {Facts} facts @param {number} cell @returns {HTMLElement[]} */
  #cell(facts, cell) {
    const node = facts.nodeOf(cell),
      kind = this.app.model.kind[cell];
    if (kind === OUTPUT) return this.#output(facts, facts.roots[node - facts.nodes]);
    if (kind === LEAF || kind === COPY) return this.#leaf(facts, node);
    if (kind === DATA) return this.#data(facts, node);
    return this.#op(facts, node);
  }

  /** @param {Facts} facts @param {import("./facts.js").Root} root */
  #output(facts, root) {
    return [
      table([
        ["name", root.name],
        ["tensor", root.tensor],
        ["no graph", root.why],
        ["base of the view", root.base ? `${root.base[1]} ${root.base[2]}` : ""],
        ["made by", root.node >= 0 ? this.#link(root.node) : ""],
        ["output", root.node >= 0 && root.output ? String(root.output) : ""],
      ]),
    ];
  }

  /** What ops were given that gets no gradient: equal tensors in one row. @param {Facts} facts @param {number} node */
  #data(facts, node) {
    const groups = alike(facts.dataOf(node), (data) => `${data.names}\n${data.tensor}`),
      rows = groups.slice(0, MANY).map((equal) => {
        const [{ names, tensor, storage }] = equal;
        return section(
          `${names.join(", ") || "input"}${times(equal.length)}`,
          table([
            ["tensor", tensor],
            ["storage", equal.length === 1 && storage >= 0 ? this.#storage(facts, storage) : ""],
          ]),
        );
      });
    if (groups.length > MANY)
      rows.push(el("p", { class: "small", text: `+${count(groups.length - MANY)} more` }));
    return [...rows, section("Taken by", this.#links(facts.usersOf(node), true))];
  }

  /** @param {Facts} facts @param {number} node */
  #leaf(facts, node) {
    const leaf = /** @type {import("./facts.js").Leaf} */ (facts.leafOf.get(node));
    return [
      ...numberSection(facts, node, () => ""),
      table([
        ["names", leaf.names.join(", ")],
        ["tensor", leaf.tensor],
        ["elements", count(leaf.elements)],
        ["kind", leaf.kind],
        [".grad", leaf.hasGrad ? "set" : "None"],
        ["hooks", leaf.hooks ? String(leaf.hooks) : ""],
        ["storage", leaf.storage >= 0 ? this.#storage(facts, leaf.storage) : ""],
        ["base of the view", leaf.base ? `${leaf.base[1]} ${leaf.base[2]}` : ""],
        ["node", `#${node} AccumulateGrad`],
        ["backward", this.#step(facts, node)],
      ]),
      ...this.#neighbours(facts, node),
    ];
  }

  /** @param {Facts} facts @param {number} node */
  #formulas(facts, node) {
    return formulaSections(facts, node, slotsOf(facts, node), (one) => this.#link(one));
  }

  /** @param {Facts} facts @param {number} node @param {HTMLElement[]} [box] of the box that it is the main op of */
  #op(facts, node, box = []) {
    const c = facts.c,
      outputs = facts.outputs[c.outs[node]],
      scope = facts.scopeOf(node),
      forward = facts.word("forward", node);
    /** @type {[string, Node | string][]} */
    const rows = [
      ["op", forward],
      ["custom function", facts.word("function", node)],
      ...outputs.map(
        (text, i) =>
          /** @type {[string, string]} */ ([outputs.length > 1 ? `output ${i}` : "output", text]),
      ),
      ["names", facts.names[c.name[node]].join(", ")],
      ["flags", facts.flags[c.flag[node]].map(([, words]) => words).join(", ")],
      ["module", scope ? this.#module(facts, node) : ""],
      ["holds", c.held[node] ? bytesText(Number(c.held[node])) : ""],
      ["sequence", c.sequence[node] >= 0 ? String(c.sequence[node]) : ""],
      ["no gradient", c.noneInputs[node] ? plural(c.noneInputs[node], "input") : ""],
      ["node", `#${node}`],
      ["finding", this.#findings(facts, node)],
      ["difference", this.#difference(facts, node)],
    ];
    const parts = [
        ...this.#formulas(facts, node),
        ...box,
        ...numberSection(facts, node, (one) => this.app.model.title(facts.cellOf[one])),
        this.#way(facts, node),
        section(box.length ? "Main op" : "Facts", table(rows)),
      ],
      attributes = facts.attributes[c.attribute[node]];
    const saved = this.#saved(facts, node);
    if (saved) parts.push(section("Saved for backward", saved));
    parts.push(...this.#neighbours(facts, node));
    if (attributes.length)
      parts.push(
        section(
          "Other saved values",
          table(
            attributes.map(([name, text]) => [name.replace(/^(\w+)_sym_(\w+)$/, "$2 of $1"), text]),
          ),
        ),
      );
    return parts;
  }

  /** Shapes, and norms where they were measured, on the shortest way to an output. @param {Facts} facts @param {number} node */
  #way(facts, node) {
    const way = wayOut(facts, node),
      list = el("ol", { class: "way" }),
      norms = facts.head.norms;
    const shown =
      way.length > MANY ? [...way.slice(0, MANY / 2), -1, ...way.slice(-MANY / 2)] : way;
    for (const one of shown) {
      if (one < 0) list.append(el("li", { text: `… ${count(way.length - MANY)} more …` }));
      else {
        const at = stepOf(facts, one),
          tensor =
            one < facts.nodes
              ? facts.outputs[facts.c.outs[one]].join(", ")
              : facts.roots[one - facts.nodes].tensor;
        const norm = norms && at >= 0 && norms[at] !== null ? `  ‖gradient‖ ${norms[at]}` : "";
        list.append(
          el("li", {}, this.#link(one), el("span", { text: ` ${facts.brief(tensor)}${norm}` })),
        );
      }
    }
    return section(
      norms
        ? "Shapes and gradient norms on the way to the output"
        : "Shapes on the way to the output",
      list,
    );
  }

  /** @param {Facts} facts @param {number} node */
  #findings(facts, node) {
    return facts.marks
      .filter((mark) => mark.nodes.includes(node))
      .map((mark) => `${mark.number}. ${mark.words}`)
      .join("; ");
  }

  /** @param {Facts} facts @param {number} node */
  #difference(facts, node) {
    const kind = facts.c.diff ? facts.c.diff[node] : 0;
    if (kind < 3) return ["", "only in the second graph", "only in the first graph"][kind];
    const found = facts.head.changes.find(
      (/** @type {[number, string[]]} */ one) => one[0] === node,
    );
    return found ? found[1].join("; ") : "changed";
  }

  /** The module of a node: a link to its group. @param {Facts} facts @param {number} node */
  #module(facts, node) {
    const model = this.app.model,
      scope = /** @type {import("./facts.js").Scope} */ (facts.scopeOf(node));
    let g = model.cellGroup[facts.cellOf[node]];
    while (g > 0 && model.scope[g] !== facts.c.scope[node]) g = model.parent[g];
    const text = `${scope.path || scope.type} (${scope.type})${scope.call > 1 ? `, call ${scope.call}` : ""}`;
    return g > 0 ? this.#to(() => ~g, text) : text;
  }

  /** @param {Facts} facts @param {number} node */
  #step(facts, node) {
    const at = stepOf(facts, node);
    if (at < 0) return "not called";
    const norms = facts.head.norms,
      words = `step ${count(at + 1)} of ${count(facts.c.stepNode.length)}`;
    return norms && norms[at] !== null ? `${words}, gradient norm ${norms[at]}` : words;
  }

  /** @param {Facts} facts @param {number} storage */
  #storage(facts, storage) {
    const nbytes = Number(facts.c.storageBytes[storage]),
      kind = facts.head.storageKinds[facts.c.storageKind[storage]];
    return `#${storage}, ${kind}, ${nbytes < 0 ? "size unknown" : bytesText(nbytes)}`;
  }

  /** @param {Facts} facts @param {number} node */
  #saved(facts, node) {
    const { first, end } = slotsOf(facts, node);
    if (first === end) return null;
    const list = el("ul", { class: "saved" });
    for (let i = first; i < end; i++) {
      const c = facts.c,
        storage = c.slotStorage[i],
        leaf = c.slotLeaf[i];
      const line = el(
        "li",
        {},
        el("strong", { text: facts.word("slotName", i) }),
        ` ${facts.word("slotTensor", i)}`,
      );
      const words = [
        facts.word("slotWords", i),
        c.slotBytes[i] >= 0 ? bytesText(Number(c.slotBytes[i])) : "",
        storage >= 0 ? `storage ${this.#storage(facts, storage)}` : "",
      ];
      line.append(el("small", { text: words.filter(Boolean).join("; ") }));
      if (leaf >= 0 && facts.cellOf[leaf] >= 0)
        line.append(el("small", {}, "is ", this.#link(leaf)));
      const sharing = storage >= 0 ? holders(facts, storage).filter((one) => one !== node) : [];
      if (sharing.length)
        line.append(
          el(
            "small",
            {},
            "shared with ",
            ...sharing.slice(0, 6).flatMap((one) => [this.#link(one), " "]),
            sharing.length > 6 ? `+${sharing.length - 6} more` : "",
          ),
        );
      list.append(line);
    }
    return list;
  }

  /** @param {Facts} facts @param {number} node */
  #neighbours(facts, node) {
    const inputs = facts.inputsOf(node),
      users = facts.usersOf(node);
    return [
      ["Inputs from", inputs],
      ["Used by", users],
    ]
      .filter(([, nodes]) => nodes.length)
      .map(([title, nodes]) =>
        section(String(title), this.#links(/** @type {number[]} */ (nodes))),
      );
  }

  /** @param {number[]} nodes @param {boolean} [whole] with the module, the op and its shape, those of alike modules in one row */
  #links(nodes, whole = false) {
    const { app } = this,
      { model } = app,
      facts = /** @type {Facts} */ (app.facts),
      path = (/** @type {number} */ node) => facts.pathOf(facts.cellOf[node]);
    const rows = whole
      ? alike(nodes, (node) => `${model.text.cell[facts.cellOf[node]]} ${pattern(path(node))}`)
      : nodes.map((node) => [node]); // one number for one title and line
    const words = (/** @type {number[]} */ equal) =>
      `${times(equal.length)} ${model.line(facts.cellOf[equal[0]])}  ${together(equal.map(path))}`;
    const list = el(
      "ul",
      { class: "links" },
      ...rows.slice(0, MANY).map((equal) =>
        el(
          "li",
          {},
          this.#to(() => facts.cellOf[app.clearest(equal)], model.title(facts.cellOf[equal[0]])),
          whole ? words(equal) : "",
        ),
      ),
    );
    if (rows.length > MANY) list.append(el("li", { text: `+${count(rows.length - MANY)} more` }));
    return list;
  }

  /** @param {Facts} facts @param {number} g @returns {HTMLElement[]} */
  #group(facts, g) {
    const { model } = this.app,
      scope = model.scope[g] >= 0 ? facts.scopes[model.scope[g]] : null;
    let saved = 0,
      steps = 0,
      first = Infinity,
      last = -1;
    for (let cell = model.first[g]; cell < model.end[g]; cell++) {
      const node = facts.nodeOf(cell),
        at = model.kind[cell] === COPY ? -1 : stepOf(facts, node);
      if (node < facts.nodes) saved += facts.c.slots[node];
      if (at < 0) continue;
      steps++;
      first = Math.min(first, at);
      last = Math.max(last, at);
    }
    /** @type {[string, Node | string][]} */
    const rows = [
      ["path", scope ? scope.path : ""],
      ["class", scope ? scope.type : ""],
      ["call", scope && scope.call > 1 ? String(scope.call) : ""],
      ["output", scope ? scope.output : ""],
      ["functions", count(Number(model.sums.ops[g]))],
      ["parameters", model.sums.parameters[g] ? count(Number(model.sums.parameters[g])) : ""],
      ["holds", Number(model.sums.nbytes[g]) ? bytesText(Number(model.sums.nbytes[g])) : ""],
      ["saved tensors", saved ? count(saved) : ""],
      [
        "backward",
        steps
          ? `steps ${count(first + 1)} to ${count(last + 1)}, ${plural(steps, "function")}`
          : "",
      ],
      ["inside", plural(model.shape(g).children, "box", "boxes")],
    ];
    if (g === 0)
      rows.push(
        ...facts.head.about.map((/** @type {string} */ text, /** @type {number} */ i) => [
          i ? "" : "about",
          text,
        ]),
      );
    const mains = g ? model.mainOps(g) : [],
      beside = g
        ? facts.nodesOf(~g).filter((node) => facts.isOp(node) && !mains.includes(node))
        : [];
    const box = [
      section("Box", table(rows)),
      ...(beside.length
        ? [
            section(
              mains.length ? `+${plural(beside.length, "reshape")}` : "Its ops",
              this.#links(beside, true),
            ),
          ]
        : []),
    ];
    if (mains.length === 1) return this.#op(facts, mains[0], box);
    return [
      ...mains.flatMap((node) => [
        el("p", { class: "main" }, this.#link(node)),
        ...this.#formulas(facts, node),
      ]),
      ...box,
    ];
  }
}

const LINES = 6;

/** The lines of code that made some ops, in the order they ran, and from where the user's own code led there. @param {Facts} facts @param {number[]} nodes */
function codeLines(facts, nodes) {
  /** @type {Map<number, number>} */
  const ops = new Map();
  for (const column of ["source", "scriptLine"])
    for (const node of nodes) {
      const at = facts.c[column][node];
      if (at >= 0) ops.set(at, (ops.get(at) || 0) + 1);
    }
  if (!facts.sources.length)
    return [
      el("p", {
        class: "small",
        text: "Lines of code are known where gradviz render ran the script, or gradviz.record() watched it.",
      }),
    ];
  const rows = [...ops].map(([at, n]) => {
    const [file, line, within, text] = facts.sources[at];
    return el(
      "div",
      {},
      el("code", { text }),
      el("small", {
        text: `${file}:${line}${within && within !== "<module>" ? ` in ${within}` : ""}${nodes.length > 1 && ops.size > 1 ? `, ${plural(n, "op")}` : ""}`,
      }),
    );
  });
  if (rows.length > LINES)
    rows.splice(
      LINES,
      rows.length,
      el("small", { text: `+${plural(rows.length - LINES, "line")}` }),
    );
  return rows.length ? [el("section", { class: "lines" }, ...rows)] : [];
}

/** @type {WeakMap<object, {start: Int32Array, of: Map<number, number[]>}>} */
const slots = new WeakMap();

/** @param {Facts} facts */
function slotTable(facts) {
  let found = slots.get(facts);
  if (!found) {
    const start = new Int32Array(facts.nodes + 1),
      of = new Map();
    for (let node = 0, i = 0; node < facts.nodes; node++) {
      for (let k = 0; k < facts.c.slots[node]; k++, i++) {
        const storage = facts.c.slotStorage[i],
          here = of.get(storage);
        if (here) {
          if (here[here.length - 1] !== node) here.push(node);
        } else of.set(storage, [node]);
      }
      start[node + 1] = i;
    }
    slots.set(facts, (found = { start, of }));
  }
  return found;
}

/** Where the saved slots of a node are. @param {Facts} facts @param {number} node */
function slotsOf(facts, node) {
  const { start } = slotTable(facts);
  return { first: start[node], end: start[node + 1] };
}

/** Nodes that hold a storage. @param {Facts} facts @param {number} storage @returns {number[]} */
export function holders(facts, storage) {
  return slotTable(facts).of.get(storage) || [];
}

/** @param {[string, Node | string][]} rows */
function table(rows) {
  const list = el("dl");
  for (const [name, value] of rows)
    if (value !== "" && value !== undefined)
      list.append(el("dt", { text: name }), el("dd", {}, value));
  return list;
}

/** @param {string} title @param {Node} content */
function section(title, content) {
  return el("section", {}, el("h3", { text: title }), content);
}
