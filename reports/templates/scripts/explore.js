// The explorers: selectors, the view in the address, panels drawn when they are seen, two cells compared. They are made when their
// section is opened.
const METRIC = "metric";

class Explorer {
  constructor(told, data) {
    this.section = make("section", { id: `explore-${told.name}`, className: "explorer" });
    Object.assign(this, { shown: SHOWN[told.name] }, told, { data, asked: {}, seen: false });
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
    this.metric = this.metrics.find(({ name }) => name === asked[METRIC]) ?? this.metrics[0];
    this.choice = choose(this.data.dims, this.shown, itemsOf(this.data, this.metric), asked);
    const shows = this.metrics.map(({ name, title }) => [name, title, true]);
    this.refill(this.form, [...this.selectors(), ...(shows.length > 1 ? [this.selector("show", METRIC, shows, this.metric.name)] : [])]);
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
    const { dims } = this.data;
    const rows = this.choice.rows.filter((row) => row.n);
    if (rows.length < 2) return [];
    const several = dims.filter((dim) => dim.values.length > 1);
    const keys = rows.map((row) => several.map((dim) => dim.values[row[dim.name]]).join(" "));
    const names = naming(dims, rows, []);
    const options = [["", "choose a cell", true], ...rows.map((row, at) => [keys[at], cellName(names, row), true])];
    const two = ["cell", "over"].map((name) => rows[keys.indexOf(this.asked[name])]);
    const fields = ["cell", "over"].map((name, at) => this.selector(["Compare", "with"][at], name, options, two[at] ? this.asked[name] : ""));
    if (!two[0] || !two[1] || two[0] === two[1]) return fields;
    const figure = (row) => joined([`${row.text}\u00a0${this.metric.unit.replace("{unit}", row.unit)}`, row.interval]);
    const lines = [...two.map((row) => `${cellName(names, row)}: ${figure(row)}`), quotient(this.data, this.metric, two)];
    const output = make("output");
    output.append(...lines.map((textContent) => make("p", { textContent })));
    return [...fields, output];
  }

  draw() {
    const panels = panelsOf(this.shown, this.data.dims, this.metric, this.choice.rows);
    this.views.replaceChildren(...(this.legend.length ? [keyOfColours(this.legend)] : []), ...panels.map(this.shown.panel));
  }
}

// The ratio of two cells as the report has tested it, in either direction, else the plain quotient.
function quotient(data, metric, two) {
  const names = varying(data.dims, two, []);
  const places = two.map((row) => row.at);
  const over = (rows, text) => `${rows.map((row) => cellName(names, row)).join(" over ")}: ${text}`;
  const pairs = metric.name === "throughput" ? data.explorers.find(({ name }) => name === "speedup")?.metrics ?? [] : [];
  const pair = pairs.flatMap((kind) => itemsOf(data, kind)).find((one) => places.includes(one.at) && places.includes(one.over));
  if (pair?.text) return over(pair.at === places[0] ? two : two.toReversed(), joined([joined([pair.text, pair.interval]), pair.more], ", "));
  const why = pair?.problem ?? (names.length > 1 ? "they differ in more than one thing" : "the report has no such pair");
  return over(two, joined([known(two[0].value) && two[1].value && `${round(two[0].value / two[1].value, 3, 3)}×`, `not tested: ${why}`], ", "));
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

function begin() {
  const held = document.getElementById("cells-data");
  if (!held || explorers.length) return;
  held.previousElementSibling.remove(); // what is said where there is no script
  const told = JSON.parse(held.textContent);
  const data = { ...told, cells: rowsOf(told.cells) };
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
