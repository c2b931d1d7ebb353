// The explorers of what is known of cells besides throughput, as reporting/explorers/losses.py, alone.py, phases.py, steps.py and watching.py make them for print.
const CAUSES = { E_hetero: "unequal devices", E_corun: "shared power, PCIe, CPU", E_ddp: "DDP overhead", E_comm: "waiting for all-reduce" };
const [LOSS, GAIN] = [PALETTE[5], PALETTE[0]];
const [MEASURE, MAXIMUM, FEW] = [PHASES.indexOf("measure"), "max", 100]; // fewer steps have no 99th percentile
const HEIGHTS = { first: QUANTILES.indexOf("p1"), middle: QUANTILES.indexOf("p50"), high: QUANTILES.indexOf("p99"), last: QUANTILES.indexOf(MAXIMUM) };

const partsOf = (data, name) => data.parts[name].map((part) => ({ ...data.rows[part.at], part }));

// Three significant digits without zeros at the end, or whole above 100.
const short = (value) => (value >= 100 && value < HUGE ? fixed(value, 0) : significant(value, 3).replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, ""));

// A label and a text above each row of marks, and the rows of the marks; a label that is too long has a row to itself.
function captions(labels, texts) {
  const [found, marks, fits] = [[], [], fitting(labels, texts.map(room))];
  labels.forEach((label, at) => {
    if (fits[at] === null) found.push({ row: found.length, label, short: "", words: "", whole: line(label) });
    marks.push(found.length);
    found.push({ row: found.length, label, short: fits[at] ?? "", words: texts[at], whole: "" });
  });
  return [found, marks];
}

function lossPanels({ dims }, question, choice) {
  return choice.rows.map((row) => ({ title: lossTitle(dims, row), ...lossRows(row.part) }));
}

function lossTitle(dims, row) {
  const start = `${doing(dims, row)} at E = ${times(row.part.E)}`;
  const causes = Object.keys(CAUSES).filter((name) => known(row.part[name]));
  if (!causes.length) return `${start}; the launches that would explain it are not ok`;
  const worst = causes.reduce((found, name) => (row.part[name] < row.part[found] ? name : found));
  if (row.part[worst] >= 1) return `${start}; no cause accounts for a loss`;
  const [low, high] = [row.part[`${worst}_low`], row.part[`${worst}_high`]];
  const factor = `${worst} = ${times(row.part[worst])} (${interval(low, high)})`;
  if (!known(high)) return `${start}; the lowest factor is not tested: ${factor}`;
  return high > 1 ? `${start}; no loss exceeds its interval, the largest: ${factor}` : `${start}; most is lost to ${CAUSES[worst]}: ${factor}`;
}

function lossRows(part) {
  const product = (level, factor) => (known(level) && known(factor) ? level * factor : null);
  const step = (name, start, label) => ({ label, factor: times(part[name]), low: product(start, part[`${name}_low`]), high: product(start, part[`${name}_high`]), interval: span(part[`${name}_low`], part[`${name}_high`]) });
  let level = 1;
  const rows = Object.entries(CAUSES).map(([name, cause]) => {
    const start = level;
    level = product(level, part[name]);
    return { ...step(name, start, `${name}: ${cause}`), colour: part[name] < 1 ? LOSS : GAIN, sign: "× ", from: start, to: level };
  });
  rows.push({ ...step("E", 1, "E"), sign: "= ", end: part.E });
  const ends = [1, ...rows.flatMap((row) => [row.from, row.to, row.end]).filter(known)];
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const space = 0.05 + (most - least) / 4;
  const drawn = rows.map((row, at) => ({ ...row, row: at, words: `${row.sign}${row.factor}` }));
  return { rows: { rows: drawn, one: [{ from: 1 }] }, params: { low: Math.max(0, least - space), high: most + space / 2 } };
}

function alonePanels({ dims }, question, choice) {
  const names = dims.map((dim) => dim.name).filter((name) => name !== "set");
  return grouped(choice.rows, names).map((rows) => {
    const found = rows.map((row) => aloneLine(dims, row));
    return { title: aloneTitle(dims, rows), ...placed(found, found.map((one) => one.words)) };
  });
}

const deviceOf = (dims, row) => said([named(dims, "set")], row)[0];

function aloneLine(dims, row) {
  const { ratio, low, high, weak } = row.part;
  const words = low === 1 && high === 1 ? "the median device" : `${weak ? "weak: " : ""}${ratioWords(ratio, low, high)}`;
  return { label: deviceOf(dims, row), words, value: ratio, ...ends(row.part), counts: `${row.n} launches`, ...(weak ? { colour: "currentColor", mean: 1 } : { colour: colourOf(dims, row) }) };
}

function aloneTitle(dims, rows) {
  const of = `the median ${said([named(dims, "gpu")], rows[0])[0]} (${job(dims, rows[0])})`;
  const weak = rows.filter((row) => row.part.weak).sort((a, b) => a.part.ratio - b.part.ratio);
  if (weak.length) {
    const { ratio, low, high } = weak[0].part;
    const more = weak[1] ? `; also weak: ${weak.slice(1).map((row) => deviceOf(dims, row)).join(", ")}` : "";
    return `${deviceOf(dims, weak[0])} is weak: ${times(ratio)} × ${of}, ${interval(low, high)}${more}`;
  }
  const ratios = rows.map((row) => row.part.ratio);
  const run = `they run at ${times(Math.min(...ratios))} to ${times(Math.max(...ratios))} × ${of}`;
  return rows.some((row) => !known(row.part.low)) ? `Too few launches to tell whether a device is weak: ${run}` : `No device is weak beyond its interval: ${run}`;
}

// The cells of a panel in their order, and the settings that tell them apart.
function ordered(dims, question, rows) {
  const settings = telling(dims, rows, [...WHO, ...question.panels]);
  return [grouped(rows, [...settings, ...who(dims)].map((dim) => dim.name)).flat(), settings];
}

function phasePanels({ dims }, question, choice) {
  return grouped(choice.rows, question.panels).map((own) => {
    const [rows, settings] = ordered(dims, question, own);
    const names = rows.map((row) => nameOf(dims, row, settings) + (row.part.cache ? `, ${row.part.cache} cache` : ""));
    const [lines, marks] = captions(names, rows.map((row) => phaseLength(row.part)));
    const parts = rows.flatMap((row, at) => phaseParts(marks[at], row.part));
    return { title: phaseTitle(dims, rows), rows: { rows: lines, parts }, params: { most: parts.length ? Math.max(...parts.map((part) => part.stop)) : 1 } };
  });
}

function phaseLength({ total, seconds }) {
  if (!known(total)) return "n/a";
  return `${short(total)} s${known(seconds[MEASURE]) ? `, ${short((100 * seconds[MEASURE]) / total)} % timed` : ""}`;
}

function phaseParts(row, part) {
  let start = 0;
  return PHASES.flatMap((phase, at) => {
    const seconds = part.seconds[at];
    if (!(seconds > 0)) return [];
    start += seconds;
    return [{ row, phase, start: start - seconds, stop: start, said: `${short(seconds)} s` }];
  });
}

function phaseTitle(dims, rows) {
  const [model, mode] = said([named(dims, "model"), named(dims, "mode")], rows[0]);
  const parts = rows.map((row) => row.part);
  const sums = PHASES.map((_, at) => (at === MEASURE ? -1 : parts.reduce((sum, part) => sum + (part.seconds[at] ?? 0), 0)));
  const most = sums.indexOf(Math.max(...sums));
  const rest = most === PHASES.length - 1 ? "the engine, start, end and proofs" : PHASES[most];
  const what = `launch of ${model} (${mode})${context(dims, rows)}`;
  const timed = parts.filter((part) => known(part.total) && known(part.seconds[MEASURE]));
  if (!timed.length) return `Of a ${what}, most of the time outside the timed windows goes to ${rest}`;
  const length = fromTo(timed.map((part) => part.total), "s");
  const share = fromTo(timed.map((part) => (100 * part.seconds[MEASURE]) / part.total), "%");
  return `A ${what} takes ${length}, of which ${share} is timed; most of the rest goes to ${rest}`;
}

function fromTo(values, unit) {
  const [least, most] = [short(Math.min(...values)), short(Math.max(...values))];
  return least === most ? `${least} ${unit}` : `${least} to ${most} ${unit}`;
}

function stepPanels({ dims }, question, choice) {
  return grouped(choice.rows, question.panels).map((own) => {
    const [rows, settings] = ordered(dims, question, own);
    const all = rows.map((row) => row.part.ms);
    const top = Math.min(Math.max(...all.map((ms) => ms[HEIGHTS.last])), 2 * Math.max(...all.map((ms) => ms[HEIGHTS.high])));
    const least = Math.min(...all.map((ms) => ms[HEIGHTS.first]));
    const [lines, marks] = captions(rows.map((row) => nameOf(dims, row, settings)), rows.map(({ part }) => `${figure(part.ms[HEIGHTS.middle])} ms · ${part.steps} steps`));
    rows.forEach((row, at) => {
      const longest = all[at][HEIGHTS.last];
      const marked = { last: Math.min(longest, top), cut: longest > top ? "›" : "", colour: colourOf(dims, row) };
      Object.assign(lines[marks[at]], Object.fromEntries(QUANTILES.map((name, place) => [name, all[at][place]])), marked);
    });
    return { title: stepTitle(dims, rows, settings), rows: { rows: lines }, params: { low: Math.max(0, least - (top - least) / 20), high: top } };
  });
}

function stepTitle(dims, rows, settings) {
  const few = Math.min(...rows.map((row) => row.part.steps)) < FEW;
  const slow = ({ part }) => part.ms[few ? HEIGHTS.last : HEIGHTS.high] / part.ms[HEIGHTS.middle];
  const ranked = rows.toSorted((a, b) => slow(a) - slow(b));
  const [even, uneven] = [ranked[0], ranked.at(-1)];
  const [model] = said([named(dims, "model")], even);
  const start = `${few ? "All" : "99 of 100"} steps of ${model}${context(dims, rows)} on ${places(dims, rows)} take at most ${times(slow(even))} × their median`;
  if (even === uneven) return `${start} of ${figure(even.part.ms[HEIGHTS.middle])} ms (${nameOf(dims, even, settings)})`;
  if (times(slow(even)) === times(slow(uneven))) return start;
  return `${start} (${nameOf(dims, even, settings)}) to ${times(slow(uneven))} × (${nameOf(dims, uneven, settings)})`;
}

function tracePanels({ dims }, question, choice) {
  return choice.rows.map((row) => ({ title: traceTitle(dims, row), ...traceRows(row.part) }));
}

const PICKED = { slowed: "drawn: one that was slowed down, of", hottest: "drawn: the hottest of", first: "drawn: the first of" };

function traceTitle(dims, row) {
  const { throttled, slow, hot, mhz, watts, steady, more, picked } = row.part;
  const shown = more ? ` (${PICKED[picked]} ${more + 1} devices)` : "";
  if (throttled) {
    const reasons = [...new Set(slow.map(([, , reason]) => reason))].sort().join(", ");
    return `${doing(dims, row)} and was throttled during the timed windows${reasons ? ": " : ""}${reasons}${shown}`;
  }
  const [begin, end] = hot.map((value) => (known(value) ? short(value) : null));
  const heat = begin === null || end === null ? [] : [begin === end ? `${end} °C` : `${begin} to ${end} °C`];
  const facts = [...heat, ...(known(mhz) ? [`clock ${short(mhz)} MHz`] : []), ...(known(watts) ? [`${short(watts)} W`] : [])];
  const state = { null: "", true: "steady, ", false: "not yet steady, " }[steady];
  return `${doing(dims, row)}; during the timed windows ${state}${facts.join(", ") || "monitored"}${shown}`;
}

function traceRows({ devices, windows, slow }) {
  const rows = devices.flatMap(({ device, seconds, ...values }) => seconds.map((time, at) => ({
    device, seconds: time, ...Object.fromEntries(Object.entries(values).map(([name, own]) => [name, own[at]])),
  })));
  const drawn = { rows, windows: windows.map(([start, stop]) => ({ start, stop })), slow: slow.map(([start, stop, reason]) => ({ start, stop, reason })) };
  return { rows: drawn, params: { last: Math.max(...rows.map((row) => row.seconds), ...windows.map(([, stop]) => stop)) } };
}
