"use strict";
(async () => {
  const byId = (id) => document.getElementById(id);

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  function element(name, words, parent, attributes = {}) {
    const svg = parent instanceof SVGElement || name === "svg";
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    if (words) made.textContent = words;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  const run = JSON.parse(await unpacked(byId("data").textContent));
  const value = (cell) => (cell === null || cell === undefined ? null : Number(cell === "inf" ? "Infinity" : cell === "-inf" ? "-Infinity" : cell));
  const read = (row) => ({ step: row[0], optimizer: row[1], calls: row[2], skipped: row[3], loss: value(row[4]), norm: value(row[5]), norms: row.slice(6).map(value) });
  const steps = run.steps.map(read), before = run.before.map(read);
  const optimizers = [...new Set(steps.map((step) => step.optimizer))];
  const short = (number) => (number && (Math.abs(number) >= 1e6 || Math.abs(number) < 1e-4) ? number.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e") : String(Number(number.toPrecision(4))));
  const digits = (number) => (number === null ? "–" : Number.isFinite(number) ? short(number) : String(number).toLowerCase().replace("infinity", "inf"));
  const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const found = new Set(run.looks.flatMap((look) => look.findings.map((finding) => finding[1] + finding[5]))).size;
  byId("counts").textContent = `${plural(run.count, "step")}, ${plural(run.looks.length, "look")}, ${plural(found, "finding")}${run.ended ? `, ${run.ended}` : ", running"}`;
  for (const note of run.notes) element("li", note, byId("notes"));

  // -- which steps are shown ------------------------------------------------------------------------------------------------

  const ranges = [["All steps", steps]];
  if (steps.length > 250) ranges.push(["Last 200", steps.slice(-200)]);
  if (run.broken) ranges.push(["Before the first NaN or Inf", before]);
  let shown = steps, cursor = -1;
  for (const [name, rows] of ranges) {
    element("button", name, byId("ranges"), { "aria-pressed": String(rows === shown) }).addEventListener("click", () => show(rows));
  }

  function show(rows) {
    shown = rows;
    cursor = -1;
    [...byId("ranges").children].forEach((button, i) => button.setAttribute("aria-pressed", String(ranges[i][1] === rows)));
    draw();
  }

  // -- curves ---------------------------------------------------------------------------------------------------------------

  const LEFT = 58, BOTTOM = 30, TOP = 8;
  const bounds = () => [shown.length ? shown[0].step : 0, shown.length ? Math.max(shown[shown.length - 1].step, shown[0].step + 1) : 1];

  function ticks(low, high, log) {
    if (log) {
      const every = Math.max(1, Math.ceil((high - low) / 5)), marks = [];
      for (let power = Math.ceil(low); power <= high; power += every) marks.push(power);
      return marks.length > 1 ? marks : [low, high];
    }
    const raw = (high - low) / 4, size = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((n) => n * size).find((n) => n >= raw);
    const marks = [];
    for (let mark = Math.ceil(low / step) * step; mark <= high + step * 1e-6; mark += step) marks.push(Math.abs(mark) < step * 1e-6 ? 0 : mark);
    return marks;
  }

  function curves(id, key) {
    const box = byId(id), width = box.clientWidth, height = box.clientHeight;
    box.replaceChildren();
    const svg = element("svg", "", box, { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const known = shown.map((step) => step[key]).filter((number) => number !== null && Number.isFinite(number));
    const positive = known.filter((number) => number > 0);
    const log = positive.length > 0 && positive.length === known.length && Math.max(...positive) / Math.min(...positive) > 50;
    const scaled = log ? positive.map(Math.log10) : known;
    let low = scaled.length ? Math.min(...scaled) : 0, high = scaled.length ? Math.max(...scaled) : 1;
    if (high - low < 1e-12) [low, high] = [low - Math.max(Math.abs(low) * 0.1, 1e-6), high + Math.max(Math.abs(high) * 0.1, 1e-6)];
    const [from, to] = bounds();
    const x = (step) => LEFT + ((step - from) / (to - from)) * (width - LEFT - 8);
    const y = (number) => height - BOTTOM - (((log ? Math.log10(number) : number) - low) / (high - low)) * (height - BOTTOM - TOP);
    for (const mark of ticks(low, high, log)) {
      const number = log ? 10 ** mark : mark, at = y(number);
      element("line", "", svg, { class: "grid", x1: LEFT, x2: width - 8, y1: at, y2: at });
      element("text", digits(number), svg, { x: LEFT - 6, y: at + 4, "text-anchor": "end" });
    }
    for (const mark of ticks(from, to, false).filter(Number.isInteger)) {
      element("text", mark.toLocaleString("en"), svg, { x: x(mark), y: height - 4, "text-anchor": mark - from < (to - from) / 20 ? "start" : to - mark < (to - from) / 20 ? "end" : "middle" });
    }
    optimizers.forEach((optimizer, i) => {
      let path = "", pen = false;
      for (const step of shown) {
        if (step.optimizer !== optimizer) continue;
        const number = step[key];
        if (number === null) continue;
        if (!Number.isFinite(number)) {
          pen = false;
          element("rect", "", svg, { class: "bad", x: x(step.step) - 1, y: TOP, width: 2, height: 7 });
          continue;
        }
        path += `${pen ? "L" : "M"}${x(step.step).toFixed(1)} ${y(number).toFixed(1)}`;
        pen = true;
      }
      element("path", "", svg, { class: `curve curve${i % 3}`, d: path });
    });
    for (const look of run.looks.filter((one) => one.step >= from && one.step <= to)) {
      const at = x(look.step), foot = height - BOTTOM + 3;
      const mark = element("path", "", svg, { class: look.findings.some((one) => one[0] !== "note") ? "look found" : "look", d: `M${at} ${foot}l5 9h-10z` });
      element("title", `look at step ${look.step}`, mark);
      mark.addEventListener("click", (event) => { event.stopPropagation(); open(look); });
    }
    if (cursor >= 0) element("line", "", svg, { class: "cursor", x1: x(shown[cursor].step), x2: x(shown[cursor].step), y1: TOP, y2: height - BOTTOM });
  }

  function nearest(step) {
    let low = 0, high = shown.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (shown[middle].step < step) low = middle + 1;
      else high = middle;
    }
    return low > 0 && step - shown[low - 1].step < shown[low].step - step ? low - 1 : low;
  }

  function point(place, module = -1) {
    if (!shown.length) return;
    cursor = Math.min(Math.max(place, 0), shown.length - 1);
    const step = shown[cursor];
    const words = [`step ${step.step.toLocaleString("en")}`, `loss ${digits(step.loss)}`, `gradient norm ${step.norms.length ? digits(step.norm) : "not measured"}`];
    if (optimizers.length > 1) words.splice(1, 0, step.optimizer);
    if (step.skipped) words.push("skipped by the GradScaler");
    if (module >= 0) words.push(`${run.modules[module]} ${digits(step.norms[module] ?? null)}`);
    byId("reading").textContent = words.join(" · ");
    for (const id of ["loss", "norm"]) curves(id, id);
  }

  for (const id of ["loss", "norm"]) {
    const box = byId(id);
    box.addEventListener("pointermove", (event) => {
      const area = box.getBoundingClientRect(), [from, to] = bounds();
      point(nearest(from + ((event.clientX - area.left - LEFT) / (area.width - LEFT - 8)) * (to - from)));
    });
    box.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, Home: -shown.length, End: shown.length }[event.key];
      if (!move) return;
      event.preventDefault();
      point(cursor < 0 ? shown.length - 1 : cursor + move);
    });
  }

  // -- modules --------------------------------------------------------------------------------------------------------------

  const ROW = 16;

  /** Steps of several optimizers as one row each. */
  function together(rows) {
    const byStep = new Map();
    for (const row of rows) {
      const known = byStep.get(row.step);
      byStep.set(row.step, known ? { ...row, norms: row.norms.map((norm, i) => norm ?? known.norms[i]) } : row);
    }
    return [...byStep.values()];
  }

  const used = run.modules.map((name, i) => i).filter((i) => [...steps, ...before].some((step) => (step.norms[i] ?? null) !== null));
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  function modules() {
    const box = byId("modules");
    byId("modules-box").hidden = !used.length;
    box.replaceChildren();
    const names = element("ol", "", box);
    for (const i of used) element("li", run.modules[i], names, { title: run.modules[i] });
    const canvas = element("canvas", "", box), ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = used.length * ROW;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d"), measured = together(shown.filter((step) => step.norms.length));
    if (!measured.length) names.replaceChildren(element("li", "not measured in these steps", names));
    pen.scale(ratio, ratio);
    const all = measured.flatMap((step) => used.map((i) => step.norms[i])).filter((number) => number > 0 && Number.isFinite(number)).map(Math.log10);
    if (!all.length) return;
    const low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b));
    const [dark, light, bad, none] = [parts(color("--high")), parts(color("--low")), color("--broken"), color("--bg")];
    const each = Math.max(1, Math.ceil(measured.length / width));
    const columns = Math.ceil(measured.length / each), wide = width / columns;
    for (let column = 0; column < columns; column++) {
      const rows = measured.slice(column * each, (column + 1) * each);
      used.forEach((i, row) => {
        const numbers = rows.map((step) => step.norms[i] ?? null).filter((number) => number !== null);
        const most = numbers.length ? numbers.reduce((a, b) => (Number.isFinite(a) ? (Number.isFinite(b) ? Math.max(a, b) : b) : a)) : null;
        const part = most ? (high - low < 1e-9 ? 0.5 : (Math.log10(most) - low) / (high - low)) : 0;
        pen.fillStyle = most === null ? none : Number.isFinite(most) ? `rgb(${light.map((from, k) => Math.round(from + (dark[k] - from) * part))})` : bad;
        pen.fillRect(column * wide, row * ROW, wide + 0.5, ROW - 1);
      });
    }
    byId("scale").textContent = `Darker in light mode, lighter in dark mode: larger. From ${digits(10 ** low)} to ${digits(10 ** high)}, in powers of ten. Red: NaN or Inf.`;
    canvas.addEventListener("pointermove", (event) => {
      const area = canvas.getBoundingClientRect();
      const step = measured[Math.min(measured.length - 1, Math.floor(((event.clientX - area.left) / area.width) * columns) * each)];
      if (step) point(nearest(step.step), used[Math.min(used.length - 1, Math.floor((event.clientY - area.top) / ROW))]);
    });
  }

  if (optimizers.length > 1) {
    for (const id of ["loss-title", "norm-title"]) optimizers.forEach((optimizer, i) => element("span", optimizer, byId(id), { class: `name name${i % 3}` }));
  }

  function draw() {
    for (const id of ["loss", "norm"]) curves(id, id);
    modules();
  }

  // -- looks ----------------------------------------------------------------------------------------------------------------

  function heads(table, words) {
    const row = element("tr", "", element("thead", "", table));
    for (const [word, number] of words) element("th", word, row, { scope: "col", class: number ? "number" : "" });
    return element("tbody", "", table);
  }

  const looks = heads(byId("looks"), [["Step", true], ["Nodes", true], ["Saved", true], ["Differs from step 1", false], ["Findings", false]]);
  run.looks.forEach((look, i) => {
    const row = element("tr", "", looks);
    const button = element("button", look.step.toLocaleString("en"), element("td", "", row, { class: "number" }), { title: "Open the graph" });
    button.addEventListener("click", () => open(look));
    element("td", look.nodes.toLocaleString("en"), row, { class: "number" });
    element("td", look.saved, row, { class: "number" });
    element("td", look.changes || (i ? "no difference" : "the first look"), row);
    const cell = element("td", look.findings.length ? "" : "none", row);
    for (const [severity, summary] of look.findings.slice(0, 3)) element("div", `${severity}: ${summary}`, cell, { class: severity });
    if (look.findings.length > 3) element("div", `+${look.findings.length - 3} more`, cell);
  });

  if (run.broken) {
    byId("broken").hidden = false;
    byId("broken").firstElementChild.textContent = run.broken;
    byId("show-before").addEventListener("click", () => { show(before); byId("loss").scrollIntoView({ block: "center" }); });
    byId("before-box").hidden = false;
    const rows = heads(byId("before"), [["Step", true], ["Optimizer", false], ["Loss", true], ["Gradient norm", true], ["Largest in", false]]);
    for (const step of before.slice(-10)) {
      const row = element("tr", "", rows);
      element("td", step.step.toLocaleString("en"), row, { class: "number" });
      element("td", step.optimizer, row);
      for (const number of [step.loss, step.norm]) element("td", digits(number), row, { class: `number${number !== null && !Number.isFinite(number) ? " broken" : ""}` });
      const most = used.reduce((best, i) => ((step.norms[i] ?? -1) > (best < 0 ? -1 : step.norms[best] ?? -1) || Number.isNaN(step.norms[i]) && best < 0 ? i : best), -1);
      element("td", most < 0 ? "–" : `${run.modules[most]} ${digits(step.norms[most])}`, row);
    }
  }

  const graphs = JSON.parse(byId("graphs").textContent);
  const [sheet, code] = JSON.parse(await unpacked(byId("viewer").textContent));

  async function open(look) {
    byId("graph-title").textContent = `Step ${look.step.toLocaleString("en")}: ${plural(look.nodes, "node")}, ${look.saved} saved for backward${look.changes ? `; ${look.changes}` : ""}`;
    byId("frame").replaceChildren();
    const packed = graphs[look.graph];
    if (packed) {
      const page = (await unpacked(packed)).replace("\x02", () => sheet).replace("\x03", () => code);
      const frame = element("iframe", "", byId("frame"), { title: `Graph of step ${look.graph}`, sandbox: "allow-scripts allow-downloads" });
      frame.srcdoc = page;
    } else {
      element("p", "The graph of this look is not in the page: it holds that of step 1 and the last ones that differ.", byId("frame"), { class: "bar" });
      for (const [severity, summary, where, why, fix] of look.findings) {
        element("h2", `${severity}: ${summary}`, byId("frame"), { class: severity });
        for (const [name, words] of [["", where], ["why: ", why], ["fix: ", fix]]) if (words) element("p", name + words, byId("frame"));
      }
    }
    byId("graph").showModal();
  }
  byId("close").addEventListener("click", () => byId("graph").close());
  byId("graph").addEventListener("close", () => byId("frame").replaceChildren());

  draw();
  document.body.dataset.ready = "";
  new ResizeObserver(draw).observe(document.querySelector("main"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
