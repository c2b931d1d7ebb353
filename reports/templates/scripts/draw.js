// What each explorer shows: which cells, and of a choice of them its panels, whose rows the explorer's specification draws.
const LOOSE = 1.5; // an interval is cut off if it ends further beyond all figures than this factor
const placeOf = (dims, row) => (named(dims, "gpu").values.length > 1 ? row.gpu : row.stack);
const colourOf = (dims, row) => PALETTE[placeOf(dims, row) % PALETTE.length];
const within = (value, low, high) => Math.min(Math.max(value, low), high);
const numbered = (rows) => rows.map((one, row) => ({ row, ...one }));
const partsOf = (name) => (data) => data.parts[name].map((part) => ({ ...data.rows[part.at], part }));

// The cells of a choice by their values in `by`, each group in order, with what names a cell in it and the group's title.
function groupsOf(dims, choice, by, besides = []) {
  return grouped(choice.rows, by).map((own) => {
    const names = naming(dims, own, [...by, ...besides]);
    const order = [...names].sort((a, b) => WHO.includes(a.name) - WHO.includes(b.name)).map(({ name }) => name);
    return { rows: grouped(own, order).flat(), order, nameOf: (row) => cellName(names, row), title: titleOf(dims, own, besides) };
  });
}

// A cell's figure in a metric, with its limits.
function measure(metric, row) {
  const per = metric.over ? row[metric.over] : 1;
  const scaled = (value) => (known(value) && per ? (value * metric.times) / per : null);
  const [low, high] = metric.limits.length ? metric.limits.map((name) => scaled(row[name])) : [null, null];
  return { value: row.n ? scaled(row[metric.column]) : null, low, high };
}

function figureOf(metric, row) {
  const { value, low, high } = measure(metric, row);
  return row.n ? joined([withUnit(value, metric.unit.replace("{unit}", row.unit)), rateInterval(value, low, high)]) : row.outcome;
}

function barPanels(data, choice, name) {
  const metric = data.metrics.find((one) => one.name === name);
  return groupsOf(data.dims, choice, ["model", "mode"]).map(({ rows, nameOf }) => {
    const most = LOOSE * Math.max(0, ...rows.map((row) => measure(metric, row).value ?? 0));
    const batches = present(rows.filter((row) => row.n), "bs");
    const drawn = rows.map((row) => {
      const { value, low, high } = measure(metric, row);
      const ends = known(low) && known(high) ? { low: Math.max(0, low), high: Math.min(high, most), cut: high > most ? "»" : "" } : {};
      const theirs = name === "throughput" && known(row.theirs) ? { theirs: row.theirs, source: row.source } : {};
      const text = joined([figureOf(metric, row), row.n && batches.length > 1 && `batch ${row.bs}`], " · ");
      return { label: nameOf(row), words: text, colour: colourOf(data.dims, row), value, ...ends, ...theirs, launches: joined([`${row.n}`, row.failed && `${row.failed} failed`], ", ") };
    });
    return { title: joined([titleOf(data.dims, rows, ["batch"]), batches.length === 1 && `batch ${batches[0]}`], ", "), rows: { rows: numbered(drawn) }, params: { most: Math.max(...drawn.flatMap((one) => [one.value, one.high, one.theirs]).filter(known), 0) || 1 } };
  });
}

// Efficiency E in per cent, scale factor s, speed-up S, or throughput.
function scaled(metric, row) {
  if (metric === "throughput") return row.n ? [row.rate, row.low, row.high] : null;
  if (!known(row.S)) return null;
  const [a, b] = { S: [1, 0], E: [100 / row.N, 0], s: [1 / (row.N - 1), -1 / (row.N - 1)] }[metric];
  return [row.S, row.S_low, row.S_high].map((value) => (known(value) ? a * value + b : null));
}
const UNITS = { E: "efficiency, %", s: "scale factor", S: "times one device" };
const IDEALS = { E: () => 100, s: () => 1, S: (n) => n, throughput: (n, { rate, S }) => (n * rate) / S };

function linePanels({ dims }, choice, metric) {
  const shown = groupsOf(dims, choice, ["model", "mode"], ["devices", "set"]).filter(({ rows }) => rows.some((row) => known(row.S)));
  return shown.map(({ rows, order, nameOf, title }) => {
    const series = grouped(rows, order).map((some) => some.toSorted((a, b) => a.N - b.N));
    const counts = [...new Set(rows.filter((row) => scaled(metric, row)).map((row) => row.N))].sort((a, b) => a - b);
    const x = (n, place) => (counts.indexOf(n) + 0.5 + 0.5 * ((place + 0.5) / series.length - 0.5)) / counts.length;
    const looks = series.map(([first], at) => ({ series: nameOf(first), colour: colourOf(dims, first), shape: SHAPES[at % SHAPES.length] }));
    const points = series.flatMap((some, at) => some.filter((row) => scaled(metric, row)).map((row) => linePoint(metric, row, x(row.N, at), looks[at])));
    const ideal = series.flatMap((some, at) => {
      const row = (at === 0 || metric === "throughput") && some.find((other) => other.S);
      return row ? counts.map((n) => ({ x: x(n, metric === "throughput" ? at : (series.length - 1) / 2), value: IDEALS[metric](n, row), series: `${at}` })) : [];
    });
    const [low, high] = lineDomain([...points, ...ideal].map((point) => point.value), points, ["S", "throughput"].includes(metric));
    for (const point of points) if ("low" in point) Object.assign(point, { low: within(point.low, low, high), high: within(point.high, low, high) });
    const ticks = counts.map((n, at) => ({ x: (at + 0.5) / counts.length, label: `${n}` }));
    return { title, key: looks, rows: { rows: points, ideal, ticks, one: [{ unit: UNITS[metric] ?? `${rows[0].unit}/s` }] }, params: { low, high } };
  });
}

function linePoint(metric, row, x, look) {
  const [value, low, high] = scaled(metric, row);
  const write = { E: (one) => percent(one / 100), throughput: short }[metric] ?? ratio;
  const limits = known(low) ? { low, high } : {};
  const interval = known(low) ? `${write(low)} to ${write(high)}` : "none";
  return { x, value, ...look, ...limits, N: row.N, said: write(value), interval, bs: `${row.bs}`, wrong: row.impossible ? "impossible" : "" };
}

function lineDomain(values, points, fromZero) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  if (fromZero) return [0, 1.02 * Math.max(most, Math.min(LOOSE * most, ...points.map((point) => point.high ?? most)))];
  const room = most / 50 + (most - least) / 4;
  return [Math.max(0, least - room), most + room / 2];
}

const pairsOf = (data, kind) => data.pairs.filter((pair) => pair.kind === kind).map((pair) => ({ ...data.rows[pair.at], pair, n: pair.n && pair.base_n }));
// A pair's ratio with its interval, and the words of its verdict, which Python has found.
const pairWords = ({ ratio: value, low, high, verdict, why }) => (known(value) ? joined([effectWords(value, low, high), VERDICTS[verdict || "n/a"]], ", ") : why);

function pairPanels({ dims, contrasts }, choice, kind) {
  const stacks = named(dims, "stack");
  const by = WHO.filter((name) => name !== "stack" || !contrasts[kind]);
  const unsaid = contrasts[kind] ? [contrasts[kind].factor] : ["stack"];
  return grouped(choice.rows, by).flatMap((some) => [...groupBy(some, (row) => row.pair.base)].flatMap(([base, rows]) => {
    const what = contrasts[kind]?.words ?? [stacks.labels[rows[0].stack], stacks.labels[stacks.values.indexOf(base)] ?? base];
    return groupsOf(dims, { rows }, by, unsaid).map((group) => ({
      title: joined([what.join(" over "), group.title], ": "),
      ...placed(group.rows.map((row) => ({ label: group.nameOf(row), words: pairWords(row.pair), ...dot(row.pair), counts: `${row.pair.n} and ${row.pair.base_n} launches`, colour: colourOf(dims, row) }))),
    }));
  }));
}

const dot = ({ ratio: value, low, high }) => (known(value) ? { value, ...(known(low) ? { low, high } : {}) } : {});

// Ratios as rows, and the limits of their scale.
function placed(found) {
  const values = found.filter((one) => "value" in one).map((one) => one.value);
  const [least, most] = [Math.min(1 / 1.05, ...values), Math.max(1.05, ...values)];
  const lows = found.filter((one) => one.low >= least / LOOSE).map((one) => one.low);
  const highs = found.filter((one) => one.high <= most * LOOSE).map((one) => one.high);
  const [low, high] = [Math.min(least, ...lows) / 1.01, Math.max(most, ...highs) * 1.01];
  const drawn = found.map((one) => ({ one: 1, ...one, ...("low" in one ? { low: within(one.low, low, high), high: within(one.high, low, high) } : {}) }));
  return { rows: { rows: numbered(drawn) }, params: { low, high, ticks: ticksOf(low, high) } };
}

// Round values for a logarithmic scale: equal steps that include 1, or 1, 2, 5, 10 … over a wide range.
function ticksOf(low, high) {
  if (high < 4 * low) {
    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find((one) => high - low <= 7 * one) ?? high;
    return Array.from({ length: Math.floor(high / step) }, (_, at) => Number(fixed((at + 1) * step, 3))).filter((tick) => tick >= low);
  }
  const decades = Array.from({ length: 61 }, (_, at) => at - 30);
  const found = decades.flatMap((e) => [1, 2, 5].map((m) => m * 10 ** e)).filter((tick) => low <= tick && tick <= high);
  return found.length <= 8 ? found : found.filter((tick) => Number.isInteger(Math.log10(tick)));
}

const CAUSES = { E_hetero: "unequal devices", E_corun: "shared power, PCIe, CPU", E_ddp: "DDP overhead", E_comm: "waiting for all-reduce" };
const [LOSS, GAIN] = [PALETTE[5], PALETTE[0]];

// Each factor goes on with the product so far. After an unknown factor everything but E is unknown.
function lossPanels({ dims }, choice) {
  const product = (level, factor) => (known(level) && known(factor) ? level * factor : null);
  return choice.rows.map((row) => {
    const part = row.part;
    const step = (name, start, label) => ({
      label, words: effectWords(part[name], part[`${name}_low`], part[`${name}_high`]), low: product(start, part[`${name}_low`]), high: product(start, part[`${name}_high`]), one: 1,
    });
    let level = 1;
    const falls = Object.entries(CAUSES).map(([name, cause]) => {
      const start = level;
      level = product(level, part[name]);
      return { ...step(name, start, `${name}: ${cause}`), colour: part[name] < 1 ? LOSS : GAIN, from: start, to: level };
    });
    const rows = [...falls, { ...step("E", 1, "E: all of it"), end: part.E }];
    const ends = [1, ...rows.flatMap((one) => [one.from, one.to, one.end]).filter(known)];
    const [least, most] = [Math.min(...ends), Math.max(...ends)];
    const room = 0.05 + (most - least) / 4;
    return { title: titleOf(dims, [row]), rows: { rows: numbered(rows) }, params: { low: Math.max(0, least - room), high: most + room / 2 } };
  });
}

function alonePanels({ dims }, choice) {
  return groupsOf(dims, choice, dims.map(({ name }) => name).filter((name) => name !== "set")).map(({ rows, title }) => ({
    title,
    ...placed(rows.map((row) => {
      const { ratio: value, low, high, weak } = row.part;
      const text = low === 1 && high === 1 ? "the median device" : joined([effectWords(value, low, high), weak && "weak"], ", ");
      const look = weak ? { colour: "currentColor", weak } : { colour: colourOf(dims, row) };
      return { label: said([named(dims, "set")], row)[0], words: text, ...dot(row.part), counts: `${row.n} launches`, ...look };
    })),
  }));
}

function phasePanels({ dims }, choice) {
  const measured = PHASES.indexOf("measure");
  const key = PHASES.map((series, at) => ({ series, colour: PALETTE[[6, 3, 7, 5, 1, 0, 4][at]], shape: "square" }));
  return groupsOf(dims, choice, ["model", "mode"]).map(({ rows, nameOf, title }) => {
    const lines = rows.map((row) => {
      const { total, seconds, cache } = row.part;
      const timed = known(total) && known(seconds[measured]) ? `${percent(seconds[measured] / total)} timed` : "";
      return { label: joined([nameOf(row), cache && `${cache} cache`], ", "), words: joined([withUnit(total, "s"), timed], ", ") };
    });
    const parts = rows.flatMap(({ part }, row) => {
      let start = 0;
      return PHASES.map((phase, at) => ({ row, phase, colour: key[at].colour, seconds: part.seconds[at] })).filter(({ seconds }) => seconds > 0).map((one) => {
        start += one.seconds;
        return { ...one, start: start - one.seconds, stop: start, said: withUnit(one.seconds, "s") };
      });
    });
    return { title, key, rows: { rows: numbered(lines), parts }, params: { most: Math.max(...parts.map((part) => part.stop)) } };
  });
}

function stepPanels({ dims }, choice) {
  return groupsOf(dims, choice, ["model", "mode"]).map(({ rows, nameOf, title }) => {
    const all = rows.map(({ part }) => Object.fromEntries(QUANTILES.map((name, at) => [name, part.ms[at]])));
    const top = Math.min(Math.max(...all.map((ms) => ms.max)), 2 * Math.max(...all.map((ms) => ms.p99)));
    const least = Math.min(...all.map((ms) => ms.p1));
    const drawn = rows.map((row, at) => ({
      label: nameOf(row), words: `${withUnit(all[at].p50, "ms")}, ${row.part.steps} steps`, ...all[at], last: Math.min(all[at].max, top), cut: all[at].max > top ? "›" : "", colour: colourOf(dims, row),
    }));
    return { title, rows: { rows: numbered(drawn) }, params: { low: Math.max(0, least - (top - least) / 20), high: top } };
  });
}

const PICKED = { slowed: "drawn: one that was slowed down", hottest: "drawn: the hottest", first: "drawn: the first" };

function tracePanels({ dims }, choice) {
  return choice.rows.map((row) => {
    const { devices, windows, slow, throttled, picked, more } = row.part;
    const rows = devices.flatMap(({ device, seconds, ...values }) => seconds.map((time, at) => ({
      device, seconds: time, ...Object.fromEntries(Object.entries(values).map(([name, own]) => [name, own[at]])),
    })));
    const reasons = [...new Set(slow.map(([, , reason]) => reason))].sort().join(", ");
    const notes = [throttled && joined(["throttled in the timed windows", reasons], ": "), more && `${PICKED[picked]} of ${more + 1} devices`];
    const drawn = { rows, windows: windows.map(([start, stop]) => ({ start, stop })), slow: slow.map(([start, stop, reason]) => ({ start, stop, reason })) };
    return { title: titleOf(dims, [row]), note: joined(notes, "; "), rows: drawn, params: { last: Math.max(...rows.map((one) => one.seconds), ...windows.map(([, stop]) => stop)) } };
  });
}

// Of each explorer its cells, its panels, the dimensions that begin with all values if they have at most so many, and those without a
// selector, because a chart shows all their values.
const EVERY = { gpu: 99, machine: 99, stack: 99 };
const FEW = { gpu: 6, machine: 6, stack: 6 };
const SHOWN = {
  throughput: { cells: (data) => data.rows, panels: barPanels, whole: { ...EVERY, model: 6, compile: 2 } },
  scaling: { cells: (data) => data.rows.filter((row) => row.scales), panels: linePanels, whole: { ...EVERY, model: 6 }, free: ["devices", "set"] },
  speedup: { cells: pairsOf, panels: pairPanels, whole: { ...FEW, model: 12, mode: 2, compile: 2 } },
  loss: { cells: partsOf("loss"), panels: lossPanels, whole: FEW },
  alone: { cells: partsOf("alone"), panels: alonePanels, whole: FEW, free: ["set"] },
  phases: { cells: partsOf("phases"), panels: phasePanels, whole: { ...EVERY, model: 3, compile: 2 } },
  steps: { cells: partsOf("steps"), panels: stepPanels, whole: { ...EVERY, model: 3, compile: 2 } },
  trace: { cells: partsOf("trace"), panels: tracePanels, whole: { gpu: 3, machine: 3, stack: 3 } },
};
