// Names of cells, and rows of marks in per cent of a scale, as rows.html.j2 has them. Python writes all figures and verdicts.
const WHO = ["gpu", "machine", "stack"];
const RANKS = { model: 0, mode: 1, gpu: 3, machine: 4, devices: 5 }; // the place of a word in a title; others come third
const THIN = "\u202f";
const LOOSE = 1.5; // an interval is cut off if it ends further beyond all figures than this factor
const HEIGHTS = { thin: 2, mid: 7 };

const known = (value) => value !== null && value !== undefined;
const joined = (parts, between = " ") => parts.filter(Boolean).join(between);
function round(value, least = 1, most = 6) {
  return value.toLocaleString("en", { minimumSignificantDigits: least, maximumSignificantDigits: most }).replaceAll(",", THIN);
}
const named = (dims, name) => dims.find((dim) => dim.name === name);
const cellName = (dims, row) => [...new Set(dims.map((dim) => dim.labels[row[dim.name]]))].filter((word) => word && word !== "–").join(", ");

// What tells these cells apart: what they run on, and their settings; of a single one, or of like ones, what it runs on.
function naming(dims, rows, besides) {
  const several = dims.filter((dim) => WHO.includes(dim.name) && dim.values.length > 1);
  const found = [...varying(several, rows, besides), ...telling(dims, rows, [...WHO, ...besides])];
  return found.length ? found : several.length ? several : [named(dims, "stack")];
}

// What these cells share: "ResNet-50, AMP, torch.compile, 8 GPUs".
function titleOf(dims, rows, unsaid) {
  const shared = dims.filter(({ name, labels }) => name !== "set" && !unsaid.includes(name) && present(rows, name).length === 1
    && (labels.length > 1 || ["model", "precision", "devices"].includes(name)));
  const ordered = shared.toSorted((a, b) => (RANKS[a.name] ?? 2) - (RANKS[b.name] ?? 2));
  const which = present(rows, "set").length === 1 && shared.some(({ name }) => name === "devices") ? rows[0].which : "";
  return joined([cellName(ordered, rows[0]), which && `(${which})`]);
}

// The panels of a choice: rows with a label, in groups that share a title.
function panelsOf(shown, dims, metric, rows) {
  const by = shown.by(dims.map(({ name }) => name), metric);
  const besides = [...shown.free, metric.unsaid];
  const groups = grouped(rows, by).flatMap((some) => [...groupBy(some, (row) => row.what).values()]);
  const panels = groups.map((own) => panelOf(shown, dims, metric, own, naming(dims, own, [...by, ...besides]), besides));
  const whole = shown.apart || metric.unit.includes("{unit}") ? null : scaleOf(shown, panels.flatMap((panel) => panel.rows));
  return panels.map((panel) => ({ ...panel, scale: whole ?? scaleOf(shown, panel.rows) }));
}

function panelOf(shown, dims, metric, own, names, besides) {
  const order = [...names].sort((a, b) => WHO.includes(a.name) - WHO.includes(b.name)).map(({ name }) => name);
  const batches = shown.batch ? present(own.filter((row) => row.n), "bs") : [];
  const isOne = !dims.some(({ name, values }) => ["gpu", "machine"].includes(name) && values.length > 1);
  const rows = grouped(own, [...order, ...shown.free]).flat().map((row, place, all) => ({
    ...row,
    head: shown.heads && keyOf(row, order) !== keyOf(all[place - 1] ?? {}, order) ? cellName(names, row) : "",
    label: joined([shown.label(dims, row) ?? cellName(names, row), row.label], ", "),
    more: batches.length > 1 && row.n ? `batch ${row.bs}` : row.more,
    colour: row.colour ?? (isOne ? row.stack : 0),
    title: joined([row.title ?? `${row.n} launches`, row.failed && `${row.failed} failed`, row.source], ", "),
  }));
  const title = joined([own[0].what, titleOf(dims, own, shown.batch ? ["batch"] : besides)], ": ");
  const batch = batches.length === 1 && `batch ${batches[0]}`;
  return { title: joined([title, batch], ", "), unit: metric.unit.replace("{unit}", own[0].unit), rows };
}

// From 0, near the figures, or logarithmic around 1.
function scaleOf({ scale, axis }, rows) {
  const ends = ({ value, ideal, theirs, spans }) => [value, ideal, theirs, ...(spans ?? []).flatMap(([from, to]) => [from, to])];
  const values = rows.flatMap(ends).filter(known);
  const about = { zero: [0], log: [1 / 1.05, 1.05], near: values.length ? [] : [0, 1] }[scale];
  const [least, most] = [Math.min(...about, ...values), Math.max(...about, ...values) || 1];
  const all = (...names) => rows.flatMap((row) => names.map((name) => row[name])).filter(known);
  const low = Math.min(least, ...all("low").map((end) => Math.max(end, least / LOOSE)));
  const high = Math.max(most, ...all("high", "ring").map((end) => Math.min(end, most * LOOSE)));
  const room = (high - low) / 25 || high / 20;
  const [first, last] = { zero: [0, high], near: [Math.max(0, low - room), high + room], log: [low / 1.01, high * 1.01] }[scale];
  const ticks = scale === "zero" && !axis ? [] : ticksOf(first, last, scale === "log");
  return { low: first, high: last, isLog: scale === "log", isZero: scale === "zero", ticks };
}

// Round values at equal steps, or 1, 2, 5, 10 … over a wide logarithmic range.
function ticksOf(low, high, isLog, most = 6) {
  if (isLog && high >= 4 * low) {
    const found = Array.from({ length: 61 }, (_, at) => at - 30).flatMap((e) => [1, 2, 5].map((m) => m * 10 ** e)).filter((tick) => low <= tick && tick <= high);
    return found.length <= 8 ? found : found.filter((tick) => Number.isInteger(Math.log10(tick)));
  }
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => (high - low) / one <= most);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(6)));
}

function share({ low, high, isLog }, value) {
  const of = isLog ? Math.log : Number;
  return Math.min(1, Math.max(0, (of(value) - of(low)) / (of(high) - of(low))));
}
const at = (scale, value) => `${100 * share(scale, value)}%`;

function svg(name, fields, ...inner) {
  const one = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(fields)) one.setAttribute(key, value);
  one.append(...inner);
  return one;
}

function hint(title) {
  return title ? [svg("title", {}, title)] : [];
}

function marksOf(scale, { value, low, high, ideal, theirs, source, ring, spans }) {
  const x = (place) => at(scale, place);
  const line = (look, from, to, y1, y2) => svg("line", { class: look, x1: x(from), x2: x(to), y1, y2 });
  const bar = (from, to, look, title) => {
    const [height, width] = [HEIGHTS[look] ?? 14, Math.abs(share(scale, to) - share(scale, from))];
    return svg("rect", { class: look, x: x(Math.min(from, to)), y: 10 - height / 2, width: `${100 * width}%`, height }, ...hint(title));
  };
  const marks = scale.ticks.map((tick) => line(scale.isLog && tick === 1 ? "g one" : "g", tick, tick, 0, "100%"));
  if (known(value) && known(ideal) && value < ideal) marks.push(bar(value, ideal, "loss"));
  const isBar = scale.isZero && !spans;
  marks.push(...(spans ?? (isBar && known(value) ? [[0, value, ""]] : [])).map((span) => bar(...span)));
  if (known(low) && known(high)) {
    const ends = [low, high].filter((end) => scale.low <= end && end <= scale.high);
    marks.push(line("wh", low, high, 10, 10), line("w", low, high, 10, 10), ...ends.map((end) => line("w", end, end, 7, 13)));
  }
  if (known(ring)) marks.push(line("w", value, value, 1, 19), svg("circle", { class: "hollow", cx: x(ring), cy: 10, r: 3.5 }));
  else if (!isBar && known(value)) marks.push(svg("circle", { cx: x(value), cy: 10, r: 4.5 }));
  if (known(ideal)) marks.push(line("ideal", ideal, ideal, 1, 19));
  if (known(theirs)) {
    const diamond = svg("path", { class: "hollow", d: "M-5.5 0 0-5.5 5.5 0 0 5.5z" }, ...hint(source));
    marks.push(svg("svg", { x: x(theirs), y: 10, overflow: "visible" }, diamond));
  }
  return svg("svg", { class: "t", "aria-hidden": true }, ...marks);
}

const axisOf = (scale, ticks) => {
  const axis = make("div", { className: "ax" });
  axis.append(...ticks.map((tick) => make("span", { textContent: round(tick), style: `left:${at(scale, tick)}` })));
  return axis;
};

const keyOfColours = (names) => {
  const key = make("p", { className: "legend" });
  key.append(...names.map(([name, look]) => {
    const one = make("span", { className: `q${look}` });
    one.append(make("i", { className: "sw" }), name);
    return one;
  }));
  return key;
};

function framed({ title, unit }, ...inner) {
  const panel = make("div", { className: "panel" });
  const head = make("h3", { textContent: title });
  if (unit) head.append(" ", make("span", { textContent: unit }));
  panel.append(head, ...inner);
  return panel;
}

function rowOf(row, scale, columns) {
  const look = joined(["r", row.is_best && "best", `c${row.colour}`]);
  const one = make("div", { className: look, role: "row", title: row.title });
  const label = make("span", { className: "l", role: "rowheader", textContent: row.label });
  if (row.mark) label.append(" ", make("abbr", { className: "bad", textContent: row.mark }));
  const cell = (className, textContent) => make("span", { className, role: "cell", textContent });
  const cells = columns.map((name, place) => cell(`f${place}`, row[name] ?? ""));
  one.append(label, ...(row.problem ? [cell("fail", row.problem)] : [marksOf(scale, row), ...cells]));
  if (!row.head) return [one];
  const group = make("p", { className: "grp", role: "row" });
  group.append(make("span", { role: "rowheader", textContent: row.head }));
  return [group, one];
}

function rowsPanel({ rows, scale, ...told }) {
  const columns = ["text", "interval", "more"].filter((name) => rows.some((row) => row[name]));
  const axis = make("div", { className: "r axis", ariaHidden: "true" });
  axis.append(make("span", { className: "l" }), axisOf(scale, scale.ticks));
  const table = make("div", { className: "rows", role: "table", ariaLabel: joined([told.title, told.unit], ", ") });
  table.append(...(scale.ticks.length ? [axis] : []), ...rows.flatMap((row) => rowOf(row, scale, columns)));
  const panel = framed(told, table);
  panel.style.setProperty("--columns", columns.length || 1);
  return panel;
}

// Lines over time, one for each device, above each other for temperature, clock and power.
function plotsPanel({ rows: [row], title }) {
  const time = { low: 0, high: Math.max(...row.seconds.flat(), ...row.windows.map(([, stop]) => stop)) };
  const below = make("div", { className: "trace" });
  below.append(axisOf(time, ticksOf(0, time.high)), make("p", { textContent: "seconds since the launch started" }));
  const notes = row.note ? [make("p", { className: "note", textContent: row.note })] : [];
  const key = row.names.length > 1 ? [keyOfColours(row.names.map((name, device) => [name, device % 8]))] : [];
  const panel = framed({ title }, ...notes, ...key, ...row.plots.map((plot) => plotOf(plot, row, time)), below);
  panel.role = "group";
  return panel;
}

function plotOf([what, fromZero, lines], { seconds, windows, slow }, time) {
  const scale = scaleOf({ scale: fromZero ? "zero" : "near" }, lines.flat().map((value) => ({ value })));
  const [x, y] = [(value) => 100 * share(time, value), (value) => 100 - 100 * share(scale, value)];
  const block = (look, [start, stop, reason]) => {
    return svg("rect", { class: look, x: x(start), width: x(stop) - x(start), y: 0, height: 100 }, ...hint(reason));
  };
  const ticks = ticksOf(scale.low, scale.high, false, 3);
  const paths = lines.map((values, device) => {
    const points = values.map((value, i) => known(value) && `${known(values[i - 1]) ? "L" : "M"}${x(seconds[device][i])} ${y(value)}`);
    return svg("path", { class: `ln q${device % 8}`, d: joined(points) });
  });
  const drawing = svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": `${what} over time` },
    ...windows.map((window) => block("window", window)), ...slow.map((spell) => block("slow", spell)),
    ...ticks.map((tick) => svg("line", { class: "g", x1: 0, x2: 100, y1: y(tick), y2: y(tick) })), ...paths);
  const [plot, sides] = [make("div", { className: "trace" }), make("div", { className: "sides" })];
  sides.append(...ticks.map((tick) => make("span", { textContent: round(tick), style: `top:${y(tick)}%` })));
  plot.append(make("p", { textContent: what }), sides, drawing);
  return plot;
}

// Of each explorer: the dimensions that begin with all values if they have at most so many; those without a selector, because a panel
// shows all their values; what a panel is of; its scale; what its rows are called.
const EVERY = { gpu: 99, machine: 99, stack: 99 };
const FEW = { gpu: 6, machine: 6, stack: 6 };
const bare = { free: [], by: () => ["model", "mode"], scale: "zero", label: () => null, panel: rowsPanel };
const labelOf = (dims, row, name) => named(dims, name).labels[row[name]];
const devices = (dims, row) => joined([labelOf(dims, row, "devices"), row.which && `(${row.which})`]);
const ofStacks = (_, metric) => WHO.filter((name) => name !== "stack" || metric.unsaid === "stack");
const withoutSet = (names) => names.filter((name) => name !== "set");
const SHOWN = {
  throughput: { ...bare, whole: { ...EVERY, model: 6, compile: 2 }, batch: true },
  scaling: { ...bare, whole: { ...EVERY, model: 6 }, free: ["devices", "set"], heads: true, label: devices },
  speedup: { ...bare, whole: { ...FEW, model: 12, mode: 2, compile: 2 }, by: ofStacks, scale: "log" },
  loss: { ...bare, whole: FEW, by: (names) => names, scale: "near", label: () => "" },
  alone: { ...bare, whole: FEW, free: ["set"], by: withoutSet, scale: "log", label: (dims, row) => labelOf(dims, row, "set") },
  phases: { ...bare, whole: { ...EVERY, model: 3, compile: 2 }, axis: true },
  steps: { ...bare, whole: { ...EVERY, model: 3, compile: 2 }, scale: "near", apart: true },
  trace: { ...bare, whole: { gpu: 3, machine: 3, stack: 3 }, by: (names) => names, panel: plotsPanel },
};
