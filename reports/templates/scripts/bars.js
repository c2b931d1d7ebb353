// The throughput explorer's panels, as reporting/explorers/bars.py makes them for print.
const NOTHING = { head: "", short: "", words: "", cut: "" };
const ROOM = 1.5; // an interval is cut off if it ends further beyond the longest bar than this factor

const placeOf = (dims, row) => (named(dims, "gpu").values.length > 1 ? row.gpu : row.stack);
const colourOf = (dims, row) => PALETTE[placeOf(dims, row) % PALETTE.length];
const unitOf = (metric, row) => metric.unit.replace("{unit}", row.unit);

function measure(metric, row) {
  const per = metric.over ? row[metric.over] : 1;
  const scaled = (value) => (known(value) && per ? (value * metric.times) / per : null);
  const [low, high] = metric.limits.length ? metric.limits.map((name) => scaled(row[name])) : [null, null];
  return { value: row.n ? scaled(row[metric.column]) : null, low, high };
}

function barPanels(data, question, choice, name) {
  const metric = data.metrics.find((one) => one.name === name);
  const dims = data.dims;
  return grouped(choice.rows, question.panels).map((rows) => {
    const settings = telling(dims, rows, [...WHO, ...question.panels]);
    const ordered = grouped(rows, [...settings, ...who(dims)].map((dim) => dim.name)).flat();
    const drawn = barRows(dims, metric, ordered, settings);
    const ends = drawn.flatMap((one) => [one.value, one.high, one.theirs]).filter(Boolean);
    return { title: barTitle(dims, question, metric, ordered, data.significance), rows: { rows: drawn }, params: { most: ends.length ? Math.max(...ends) : 1 } };
  });
}

function barTitle(dims, question, metric, rows, level) {
  const [model] = said([named(dims, "model")], rows[0]);
  const sign = metric.least ? 1 : -1;
  const value = (row) => measure(metric, row).value;
  const ranked = rows.filter((row) => known(value(row))).sort((a, b) => sign * (value(a) - value(b)));
  if (!ranked.length) return `No figure for ${model}${context(dims, rows)}: ${counted(rows.map((row) => row.outcome))}`;
  if (metric.name === "throughput") return fastest(dims, ranked, level);
  const two = ranked.slice(0, 2);
  const settings = telling(dims, two, [...WHO, ...question.panels]);
  const names = two.map((row) => nameOf(dims, row, settings));
  const rates = two.map((row) => `${figure(value(row))} ${unitOf(metric, row)}`);
  const what = `${model}${context(dims, two)} on ${sharedPlace(dims, two)}`;
  const most = `The ${metric.least ? "lowest" : "highest"} ${metric.title} of ${what}: ${rates[0]}, ${names[0]}`;
  return most + (two[1] ? `; next ${names[1]}, ${rates[1]}: not tested` : "");
}

function barRows(dims, metric, rows, settings) {
  const longest = Math.max(0, ...rows.map((row) => measure(metric, row).value ?? 0));
  const names = rows.map((row) => said(who(dims), row).join(" · "));
  const texts = rows.map((row) => (row.n ? `${figure(measure(metric, row).value)} ${unitOf(metric, row)} · bs ${row.bs}` : `no number: ${row.outcome}`));
  const shorts = fitting(names, texts.map(room));
  const found = [];
  let before = null;
  rows.forEach((row, at) => {
    const head = said(settings, row).join(", ");
    if (head !== before && settings.length) found.push({ row: found.length, ...NOTHING, head: line(head) });
    if (shorts[at] === null) found.push({ row: found.length, ...NOTHING, short: line(names[at]), label: names[at] });
    before = head;
    const launches = `${row.n}${row.failed ? ` and ${row.failed} not ok` : ""}`;
    const theirs = metric.name === "throughput" && known(row.theirs) ? { theirs: row.theirs, source: row.source } : {};
    found.push({ row: found.length, ...NOTHING, short: shorts[at] ?? "", label: [names[at], head].filter(Boolean).join(", "), words: texts[at], colour: colourOf(dims, row), ...bar(measure(metric, row), ROOM * longest), ...theirs, launches });
  });
  return found;
}

function bar({ value, low, high }, most) {
  if (!known(low) || !known(high)) return { value, interval: "n/a" };
  const cut = high > most ? { cut: "»" } : {};
  return { value, low: Math.max(0, low), high: Math.min(high, most), interval: `${figure(low)} to ${figure(high)}`, ...cut };
}
