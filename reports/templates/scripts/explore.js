// The explorers: selectors, the view in the address, panels drawn when they are seen, two cells compared. They are made when their
// section is opened.
const METRIC = "metric";
const NARROW = 440;
const MARGINS = { scaling: 64, trace: 80 }; // pixels beside the drawing
const SIGNS = { circle: "●", square: "■", "triangle-up": "▲", diamond: "◆", cross: "✚", "triangle-down": "▼", "triangle-right": "▶", "triangle-left": "◀" };

class Explorer {
  constructor(told, data) {
    this.section = make("section", { id: `explore-${told.name}`, className: "explorer" });
    Object.assign(this, { free: [] }, SHOWN[told.name], told, { data, asked: {}, seen: false, drawing: 0 });
    this.form = make("form", { className: "selectors" });
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.views = make("div", { className: "shown" });
    this.beside = make("form", { className: "selectors compare" });
    const help = make("details");
    help.append(make("summary", { textContent: "How to read these charts" }), make("p", { className: "note", textContent: told.note }));
    this.section.append(make("h3", { textContent: told.title }), this.form, this.views, this.beside, help);
  }

  // The view that is asked for; `asked` by dimension, and the metric.
  show(asked) {
    this.asked = asked;
    this.metric = this.metrics.find(([name]) => name === asked[METRIC])?.[0] ?? this.metrics[0][0];
    this.choice = choose(this.data.dims, this, this.cells(this.data, this.metric), asked);
    this.refill(this.form, [...this.selectors(), ...(this.metrics.length > 1 ? [this.selector("show", METRIC, this.metrics.map((one) => [...one, true]), this.metric)] : [])]);
    if (this.name === "throughput") this.refill(this.beside, this.compared());
    if (this.seen) this.draw();
  }

  refill(form, fields) {
    const focused = form.contains(document.activeElement) ? document.activeElement.name : "";
    form.replaceChildren(...fields);
    if (focused) form.elements[focused]?.focus();
  }

  selectors() {
    const dims = this.data.dims.filter((dim) => (this.choice.offered[dim.name] ?? []).length > 1);
    return dims.map((dim) => this.selector(dim.title, dim.name, this.options(dim), this.choice.picked[dim.name]));
  }

  options(dim) {
    const [picked, offered] = [this.choice.picked[dim.name], this.choice.offered[dim.name]];
    const several = [[ALL, `all ${offered.length}`, true], ...(picked === OWN ? [[OWN, "each its own", true]] : [])];
    return [...several, ...dim.values.map((value, at) => [value, dim.labels[at], offered.includes(value)])];
  }

  selector(title, name, options, picked) {
    const label = make("label", { textContent: `${title} ` });
    const field = make("select", { name });
    field.append(...options.map(([value, textContent, enabled]) => make("option", { value, textContent, disabled: !enabled, selected: value === picked })));
    field.addEventListener("change", () => {
      this.show({ ...this.asked, [name]: field.value });
      remember(this);
    });
    label.append(field);
    return label;
  }

  // Two of the cells in view: their figures, and their ratio as far as it was tested.
  compared() {
    const { dims, metrics } = this.data;
    const rows = this.choice.rows.filter((row) => row.n);
    if (rows.length < 2) return [];
    const several = dims.filter((dim) => dim.values.length > 1);
    const keys = rows.map((row) => several.map((dim) => dim.values[row[dim.name]]).join(" "));
    const names = naming(dims, rows, []);
    const options = [["", "choose a cell", true], ...rows.map((row, at) => [keys[at], cellName(names, row), true])];
    const two = ["cell", "over"].map((name) => rows[keys.indexOf(this.asked[name])]);
    const fields = ["cell", "over"].map((name, at) => this.selector(["Compare", "with"][at], name, options, two[at] ? this.asked[name] : ""));
    if (!two[0] || !two[1] || two[0] === two[1]) return fields;
    const metric = metrics.find((one) => one.name === this.metric);
    const lines = [...two.map((row) => `${cellName(names, row)}: ${figureOf(metric, row)}`), quotient(this.data, metric, two)];
    const output = make("output");
    output.append(...lines.map((textContent) => make("p", { textContent })));
    return [...fields, output];
  }

  // All panels are drawn beside those that are shown, which they then replace.
  async draw() {
    this.drawing += 1;
    const turn = this.drawing;
    const shown = this.views.querySelector(".live");
    const live = make("div", { className: "charts live coming" });
    const panels = this.panels(this.data, this.choice, this.metric);
    const figures = panels.map((panel, at) => this.figure(panel, at));
    live.append(...figures);
    this.views.append(live);
    const drawn = await Promise.all(figures.map((figure, at) => embed(figure.lastChild, this.specification(panels[at], figure.lastChild.clientWidth), `${this.name}-${at + 1}`)));
    if (turn !== this.drawing || drawn.includes(null)) {
      live.remove();
      return;
    }
    shown?.remove();
    live.classList.remove("coming");
  }

  figure({ title, note, key = [] }) {
    const figure = make("figure");
    figure.append(make("figcaption", { textContent: title }));
    if (note) figure.append(make("p", { className: "note", textContent: note }));
    if (key.length > 1) {
      const legend = make("p", { className: "key" });
      legend.append(...key.flatMap(({ series, colour, shape }) => {
        const sign = make("span", { textContent: SIGNS[shape] });
        sign.style.color = colour;
        const one = make("span");
        one.append(sign, ` ${series}`);
        return [one, " "];
      }));
      figure.append(legend);
    }
    figure.append(make("div"));
    return figure;
  }

  specification(panel, width) {
    const spec = JSON.parse(JSON.stringify(this.skeleton).replaceAll(INK, "currentColor"));
    const lift = width < NARROW ? 8 : 0;
    for (const one of spec.params) one.value = { ...panel.params, lift }[one.name] ?? one.value;
    if (spec.height?.step) spec.height.step += 2 * lift;
    for (const plot of spec.vconcat ?? [spec]) plot.width = width - (MARGINS[this.name] ?? 16);
    return { ...spec, datasets: panel.rows };
  }
}

// The ratio of two cells as the report has tested it, in either direction, else the plain quotient.
function quotient(data, metric, two) {
  const names = varying(data.dims, two, []);
  const places = two.map((row) => data.rows.indexOf(row));
  const over = (rows, text) => `${rows.map((row) => cellName(names, row)).join(" over ")}: ${text}`;
  const pair = metric.name === "throughput" && data.pairs.find(({ at, over: base }) => places.includes(at) && places.includes(base));
  if (pair && known(pair.ratio)) return over(pair.at === places[0] ? two : two.toReversed(), pairWords(pair));
  const [own, other] = two.map((row) => measure(metric, row).value);
  const why = pair ? pair.why : names.length > 1 ? "they differ in more than one thing" : "the report has no such pair";
  return over(two, known(own) && other ? `${ratio(own / other)}, ${VERDICTS["n/a"]}: ${why}` : NOT_KNOWN);
}

// #throughput:model=resnet50&precision=amp/scaling:metric=s
function views() {
  const parts = location.hash.slice(1).split("/").filter((part) => part.includes(":"));
  return new Map(parts.map((part) => [part.split(":")[0], Object.fromEntries(new URLSearchParams(part.slice(part.indexOf(":") + 1)))]));
}

let explorers = [];

// The view that was just chosen comes first in the address.
function remember(chosen) {
  const chosenFirst = [chosen, ...explorers.filter((one) => one !== chosen)].filter((one) => Object.keys(one.asked).length);
  history.pushState(null, "", `#${chosenFirst.map((one) => `${one.name}:${new URLSearchParams(one.asked)}`).join("/")}`);
}

function recall() {
  const found = views();
  if (!found.size && location.hash) return; // a link to a section leaves the views as they are
  for (const one of explorers) one.show(found.get(one.name) ?? {});
}

// A large page can be used sooner if what no reader has asked for yet isn't made.
function onFirstUse(holder, name, make) {
  let made = null;
  Object.defineProperty(holder, name, { enumerable: true, get: () => (made ??= make()) });
}

function begin() {
  const held = document.getElementById("cells-data");
  if (!held || explorers.length) return;
  held.previousElementSibling.remove(); // what is said where there is no script
  const told = JSON.parse(held.textContent);
  const data = { ...told, rows: rowsOf(told.rows), parts: {} };
  onFirstUse(data, "pairs", () => rowsOf(told.pairs));
  for (const [name, columns] of Object.entries(told.parts)) onFirstUse(data.parts, name, () => rowsOf(columns));
  explorers = told.explorers.map((one) => new Explorer(one, data));
  held.parentNode.append(...explorers.map((one) => one.section));
  const found = views();
  for (const one of explorers) one.asked = found.get(one.name) ?? {};
  whenSeen(explorers.map((one) => one.section), (seen) => {
    const one = explorers.find((other) => other.section === seen);
    one.seen = true;
    one.choice ? one.draw() : one.show(one.asked);
  });
  window.addEventListener("popstate", recall);
  window.addEventListener("hashchange", recall);
}

function explore() {
  const fold = document.getElementById("cells-data")?.closest("details");
  fold?.addEventListener("toggle", () => { if (fold.open) begin(); });
}
