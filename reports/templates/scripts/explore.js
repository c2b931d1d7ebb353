// The explorers: selectors, the view in the address, panels drawn when they are seen.
const PANELS = { throughput: barPanels, scaling: linePanels, speedup: pairPanels, loss: lossPanels, alone: alonePanels, phases: phasePanels, steps: stepPanels, trace: tracePanels };
const METRIC = "metric";

class Explorer {
  constructor(section, data) {
    const told = JSON.parse(section.querySelector(":scope > script").textContent.replaceAll(INK, "currentColor"));
    Object.assign(this, told, { section, data, name: told.question.name, asked: {}, seen: false, drawing: 0 });
    this.form = make("form", { className: "selectors" });
    this.form.addEventListener("submit", (event) => event.preventDefault());
    section.querySelector(".views").before(this.form);
  }

  // The view that is asked for; `asked` by dimension, and the metric.
  show(asked) {
    this.asked = asked;
    this.metric = this.metrics.find(([name]) => name === asked[METRIC])?.[0] ?? this.metrics[0][0];
    this.choice = choose(this.data.dims, this.question, this.rows(), asked);
    this.select();
    if (this.seen) this.draw();
  }

  // The cells that this question is about.
  rows() {
    if (this.name === "speedup") return pairsOf(this.data, this.metric);
    if (this.name in this.data.parts) return partsOf(this.data, this.name);
    return this.name === "scaling" ? this.data.rows.filter((row) => row.scales) : this.data.rows;
  }

  select() {
    const focused = this.form.contains(document.activeElement) ? document.activeElement.name : "";
    const dims = this.data.dims.filter((dim) => (this.choice.offered[dim.name] ?? []).length > 1);
    const fields = dims.map((dim) => this.selector(dim.title, dim.name, this.options(dim), this.choice.picked[dim.name]));
    if (this.metrics.length > 1) fields.push(this.selector("show", METRIC, this.metrics.map(([name, title]) => [name, title, true]), this.metric));
    this.form.replaceChildren(...fields);
    if (focused) this.form.elements[focused]?.focus();
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

  panels() { return PANELS[this.name](this.data, this.question, this.choice, this.metric); }

  // All panels are drawn beside those that are shown, which they then replace.
  async draw() {
    this.drawing += 1;
    const turn = this.drawing;
    const [views, shown] = [this.section.querySelector(".views"), this.section.querySelector(".live")];
    const live = make("div", { className: "charts live coming" });
    const figures = this.panels().map((panel, at) => this.figure(panel, at));
    live.append(...figures.map(([figure]) => figure));
    views.append(live);
    const drawn = await Promise.all(figures.map(([figure, spec]) => embed(figure.lastChild, spec, `${this.name}-${figure.dataset.place}`)));
    if (turn !== this.drawing || drawn.includes(null)) {
      live.remove();
      return;
    }
    shown?.remove();
    live.classList.remove("coming");
    views.classList.add("drawn");
    views.classList.toggle("chosen", Object.keys(this.asked).length > 0);
  }

  figure(panel, at) {
    const figure = make("figure");
    figure.dataset.place = at + 1;
    figure.append(make("figcaption", { textContent: panel.title }), make("div"));
    const params = (this.skeleton.params ?? []).map((one) => ({ ...one, value: panel.params[one.name] ?? one.value }));
    return [figure, { ...this.skeleton, datasets: panel.rows, ...(params.length ? { params } : {}) }];
  }
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

function explore() {
  const held = document.getElementById("cells-data");
  if (!held || !window.vegaEmbed) return;
  const told = JSON.parse(held.textContent);
  const data = { ...told, rows: rowsOf(told.rows), parts: {} };
  onFirstUse(data, "pairs", () => rowsOf(told.pairs));
  for (const [name, columns] of Object.entries(told.parts)) onFirstUse(data.parts, name, () => rowsOf(columns));
  explorers = [...document.querySelectorAll("section.explorer:has(> script)")].map((section) => new Explorer(section, data));
  const found = views();
  for (const one of explorers.filter(({ name, section }) => found.has(name) || !section.closest("details.fold"))) one.show(found.get(one.name) ?? {});
  whenSeen(explorers.map((one) => one.section), (section) => {
    const one = explorers.find((other) => other.section === section);
    one.seen = true;
    one.choice ? one.draw() : one.show(one.asked);
  });
  window.addEventListener("popstate", recall);
  window.addEventListener("hashchange", recall);
  const first = [...found.keys()][0];
  const target = first && document.getElementById(first);
  if (target) keepInView(target);
}
