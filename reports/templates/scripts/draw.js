// Names of cells, and rows of marks in per cent of a scale, as rows.html.j2 has them. Python writes all figures and verdicts.
const WHO = ["gpu", "machine", "stack"];
const RANKS = { model: 0, mode: 1, gpu: 3, machine: 4, devices: 5 }; // the place of a word in a title; others come third
const THIN = "\u202f";
const LOOSE = 1.5; // an interval is cut off if it ends further beyond all figures than this factor
const HEIGHTS = { thin: 2, mid: 7 };

const known = (value) => value !== null && value !== undefined;
const joined = (parts, between = " ") => parts.filter(Boolean).join(between);
const round = (value, digits) => value.toLocaleString("en", { minimumSignificantDigits: digits, maximumSignificantDigits: digits ?? 6 }).replaceAll(",", THIN);
const named = (dims, name) => dims.find((dim) => dim.name === name);
const cellName = (dims, row) => [...new Set(dims.map((dim) => dim.labels[row[dim.name]]))].filter((word) => word && word !== "n/a").join(", ");

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
  const place = dims.some(({ name, values }) => name !== "stack" && WHO.includes(name) && values.length > 1) ? () => 0 : (row) => row.stack;
  const rows = grouped(own, [...order, ...shown.free]).flat().map((row, at, all) => ({
    ...row,
    head: shown.heads && keyOf(row, order) !== keyOf(all[at - 1] ?? {}, order) ? cellName(names, row) : "",
    label: joined([shown.label(dims, row) ?? cellName(names, row), row.label], ", "),
    more: batches.length > 1 && row.n ? `batch ${row.bs}` : row.more,
    colour: row.colour ?? place(row),
    title: joined([row.title ?? `${row.n} launches`, row.failed && `${row.failed} failed`, row.source && `published: ${row.source}`], ", "),
  }));
  const title = titleOf(dims, own, shown.batch ? ["batch"] : besides);
  return { title: joined([joined([own[0].what, title], ": "), batches.length === 1 && `batch ${batches[0]}`], ", "), unit: metric.unit.replace("{unit}", own[0].unit), rows };
}

// From 0, near the figures, or logarithmic around 1.
function scaleOf({ scale, axis }, rows) {
  const values = rows.flatMap(({ value, ideal, theirs, spans }) => [value, ideal, theirs, ...(spans ?? []).flatMap((span) => span.slice(0, 2))]).filter(known);
  const about = { zero: [0], log: [1 / 1.05, 1.05], near: values.length ? [] : [0, 1] }[scale];
  const [least, most] = [Math.min(...about, ...values), Math.max(...about, ...values) || 1];
  const low = Math.min(least, ...rows.map((row) => row.low).filter(known).map((end) => Math.max(end, least / LOOSE)));
  const high = Math.max(most, ...rows.flatMap((row) => [row.high, row.ring]).filter(known).map((end) => Math.min(end, most * LOOSE)));
  const room = (high - low) / 25 || high / 20;
  const found = { zero: { low: 0, high }, near: { low: Math.max(0, low - room), high: high + room }, log: { low: low / 1.01, high: high * 1.01 } }[scale];
  return { ...found, isLog: scale === "log", isZero: scale === "zero", ticks: scale === "zero" && !axis ? [] : ticksOf(found.low, found.high, scale === "log") };
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

function marksOf(scale, { value, low, high, ideal, theirs, source, ring, spans }) {
  const line = (className, from, to, y1, y2) => svg("line", { class: className, x1: at(scale, from), x2: at(scale, to), y1, y2 });
  const rect = (from, to, look, ...inner) => {
    const [start, height] = [Math.min(from, to), HEIGHTS[look] ?? 14];
    return svg("rect", { class: look, x: at(scale, start), y: 10 - height / 2, width: at({ ...scale, low: 0, high: 1, isLog: false }, Math.abs(share(scale, to) - share(scale, from))), height }, ...inner);
  };
  const isBar = scale.isZero && !spans;
  const bars = spans ?? (isBar && known(value) ? [[0, value, ""]] : []);
  const ends = known(low) && known(high) ? [line("wh", low, high, 10, 10), line("w", low, high, 10, 10), ...[low, high].filter((end) => scale.low <= end && end <= scale.high).map((end) => line("w", end, end, 7, 13))] : [];
  return svg("svg", { class: "t", "aria-hidden": true },
    ...scale.ticks.map((tick) => line(scale.isLog && tick === 1 ? "g one" : "g", tick, tick, 0, "100%")),
    ...(known(ideal) && value < ideal ? [rect(value, ideal, "loss")] : []),
    ...bars.map(([from, to, look, text]) => rect(from, to, look, ...(text ? [svg("title", {}, text)] : []))),
    ...ends,
    ...(isBar || !known(value) ? [] : [known(ring) ? line("w", value, value, 1, 19) : svg("circle", { cx: at(scale, value), cy: 10, r: 4.5 })]),
    ...(known(ring) ? [svg("circle", { class: "hollow", cx: at(scale, ring), cy: 10, r: 3.5 })] : []),
    ...(known(ideal) ? [line("ideal", ideal, ideal, 1, 19)] : []),
    ...(known(theirs) ? [svg("svg", { x: at(scale, theirs), y: 10, overflow: "visible" }, svg("path", { class: "hollow", d: "M-5.5 0 0-5.5 5.5 0 0 5.5z" }, svg("title", {}, source)))] : []));
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
  const [panel, head] = [make("div", { className: "panel", role: "table", ariaLabel: joined([title, unit], ", ") }), make("h3", { textContent: title })];
  if (unit) head.append(" ", make("span", { textContent: unit }));
  panel.append(head, ...inner);
  return panel;
}

function rowsPanel({ rows, scale, ...told }) {
  const columns = ["text", "interval", "more"].filter((name) => rows.some((row) => row[name]));
  const axis = make("div", { className: "r axis", ariaHidden: "true" });
  axis.append(make("span", { className: "l" }), axisOf(scale, scale.ticks));
  const drawn = rows.flatMap((row) => {
    const one = make("div", { className: joined(["r", row.is_best && "best", `c${row.colour}`]), role: "row", title: row.title });
    const label = make("span", { className: "l", role: "rowheader", textContent: row.label });
    if (row.mark) label.append(" ", make("abbr", { className: "bad", textContent: row.mark }));
    const cells = columns.map((name, place) => make("span", { className: `f${place}`, role: "cell", textContent: row[name] ?? "" }));
    one.append(label, ...(row.problem ? [make("span", { className: "fail", role: "cell", textContent: row.problem })] : [marksOf(scale, row), ...cells]));
    return row.head ? [make("p", { className: "grp", textContent: row.head }), one] : [one];
  });
  const panel = framed(told, ...(scale.ticks.length ? [axis] : []), ...drawn);
  panel.style.setProperty("--columns", columns.length || 1);
  return panel;
}

// Lines over time, one for each device, above each other for temperature, clock and power.
function plotsPanel({ rows: [row], title }) {
  const time = { low: 0, high: Math.max(...row.seconds.flat(), ...row.windows.map(([, stop]) => stop)) };
  const block = (look, [start, stop, reason]) => svg("rect", { class: look, x: 100 * share(time, start), width: 100 * (share(time, stop) - share(time, start)), y: 0, height: 100 }, ...(reason ? [svg("title", {}, reason)] : []));
  const plots = row.plots.map(([what, fromZero, lines]) => {
    const scale = scaleOf({ scale: fromZero ? "zero" : "near" }, lines.flat().map((value) => ({ value })));
    const y = (value) => 100 - 100 * share(scale, value);
    const ticks = ticksOf(scale.low, scale.high, false, 3);
    const paths = lines.map((values, device) => svg("path", { class: `ln q${device % 8}`, d: values.map((value, i) => (known(value) ? `${known(values[i - 1]) ? "L" : "M"}${100 * share(time, row.seconds[device][i])} ${y(value)}` : "")).join("") }));
    const drawing = svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": `${what} over time` },
      ...row.windows.map((window) => block("window", window)), ...row.slow.map((slow) => block("slow", slow)),
      ...ticks.map((tick) => svg("line", { class: "g", x1: 0, x2: 100, y1: y(tick), y2: y(tick) })), ...paths);
    const [plot, sides] = [make("div", { className: "plot" }), make("div", { className: "sides" })];
    sides.append(...ticks.map((tick) => make("span", { textContent: round(tick), style: `top:${y(tick)}%` })));
    plot.append(make("p", { textContent: what }), sides, drawing);
    return plot;
  });
  const below = make("div", { className: "plot" });
  below.append(axisOf(time, ticksOf(0, time.high)), make("p", { textContent: "seconds since the launch started" }));
  const notes = row.note ? [make("p", { className: "note", textContent: row.note })] : [];
  const panel = framed({ title }, ...notes, ...(row.names.length > 1 ? [keyOfColours(row.names.map((name, device) => [name, device % 8]))] : []), ...plots, below);
  panel.role = "group";
  return panel;
}

// Of each explorer: the dimensions that begin with all values if they have at most so many; those without a selector, because a panel
// shows all their values; what a panel is of; its scale; what its rows are called.
const EVERY = { gpu: 99, machine: 99, stack: 99 };
const FEW = { gpu: 6, machine: 6, stack: 6 };
const bare = { free: [], by: () => ["model", "mode"], scale: "zero", label: () => null, panel: rowsPanel };
const labelOf = (dims, row, name) => named(dims, name).labels[row[name]];
const SHOWN = {
  throughput: { ...bare, whole: { ...EVERY, model: 6, compile: 2 }, batch: true },
  scaling: { ...bare, whole: { ...EVERY, model: 6 }, free: ["devices", "set"], heads: true, label: (dims, row) => joined([labelOf(dims, row, "devices"), row.which && `(${row.which})`]) },
  speedup: { ...bare, whole: { ...FEW, model: 12, mode: 2, compile: 2 }, by: (_, metric) => WHO.filter((name) => name !== "stack" || metric.unsaid === "stack"), scale: "log" },
  loss: { ...bare, whole: FEW, by: (names) => names, scale: "near", label: () => "" },
  alone: { ...bare, whole: FEW, free: ["set"], by: (names) => names.filter((name) => name !== "set"), scale: "log", label: (dims, row) => labelOf(dims, row, "set") },
  phases: { ...bare, whole: { ...EVERY, model: 3, compile: 2 }, axis: true },
  steps: { ...bare, whole: { ...EVERY, model: 3, compile: 2 }, scale: "near", apart: true },
  trace: { ...bare, whole: { gpu: 3, machine: 3, stack: 3 }, by: (names) => names, panel: plotsPanel },
};
