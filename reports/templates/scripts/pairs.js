// The speed-ups explorer's panels, as reporting/explorers/pairs.py makes them for print.
const [LEAST, BEYOND, STEPS, MOST_TICKS] = [1.05, 1.5, [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], 7];

const pairsOf = (data, kind) => data.pairs.filter((pair) => pair.kind === kind).map((pair) => ({ ...data.rows[pair.at], pair, n: pair.n && pair.base_n }));

function pairPanels(data, question, choice, kind) {
  return grouped(choice.rows, question.panels).flatMap((rows) => [...groupBy(rows, (row) => row.pair.base)].map(([base, own]) => ({
    title: pairTitle(data, question, kind, base, own), ...pairRows(data.dims, question, own),
  })));
}

function pairTitle({ dims, contrasts }, question, kind, base, rows) {
  const [stack] = said([named(dims, "stack")], rows[0]);
  const [own, other] = contrasts[kind]?.words ?? [stack, base];
  const pairs = rows.map((row) => row.pair);
  const ratios = pairs.filter((pair) => known(pair.ratio));
  const end = ` on ${places(dims, rows)}${ofMachine(dims, rows[0])}${context(dims, rows, contrasts[kind] ? [contrasts[kind].factor] : [])}${contrasts[kind] ? ` (${stack})` : ""}`;
  if (!ratios.length) return `No ratio of ${own} over ${other}${end}: ${counted(pairs.map((pair) => pair.why))}`;
  const failed = pairs.length > ratios.length ? `; ${pairs.length - ratios.length} more without a ratio` : "";
  const found = pairMean(ratios);
  const within = known(found.low) ? `, 95 % interval ${span(found.low, found.high)}` : "";
  const count = ratios.length > 1 ? `geometric mean of ${ratios.length} cells` : "one cell";
  const [verdict, why] = ratios.length > 1 ? ["n/a", "a mean over cells is not tested"] : [found.verdict || "n/a", untested(found.n, found.base_n)];
  return `${compared(own, other, found.ratio, verdict, why)}${end} (${count}${within}${failed})`;
}

const pairMean = (pairs) => (pairs.length === 1 ? pairs[0] : geometricMean(pairs.map((pair) => pair.ratio)));
const ends = ({ low, high }) => (known(low) ? { low, high } : {});

function pairRows(dims, question, rows) {
  const ratios = rows.filter((row) => known(row.pair.ratio));
  const differing = telling(dims, rows, question.panels);
  const settings = differing.length ? differing : [named(dims, "model")];
  const found = [];
  if (ratios.length > 1) {
    const mean = pairMean(ratios.map((row) => row.pair));
    found.push({ label: "geometric mean", value: mean.ratio, ...ends(mean), counts: `${ratios.length} cells`, mean: 1 });
  }
  for (const row of ratios) {
    const counts = `${row.pair.n} and ${row.pair.base_n} launches`;
    found.push({ label: said(settings, row).join(", "), value: row.pair.ratio, ...ends(row.pair), counts, colour: colourOf(dims, row) });
  }
  const failed = rows.filter((row) => !known(row.pair.ratio)).map((row) => row.pair.why);
  if (failed.length) found.push({ label: `without a ratio: ${failed.length}`, words: counted(failed), counts: "" });
  return placed(found, found.map((one) => one.words ?? ratioWords(one.value, one.low, one.high)));
}

const ratioWords = (value, low, high) => times(value) + (known(low) ? ` (${span(low, high)})` : "");

// Ratios with their texts as rows, and the limits of their scale.
function placed(found, texts) {
  const shorts = fitting(found.map((one) => one.label), texts.map(room));
  const [low, high] = pairDomain(found);
  const within = (value) => Math.min(Math.max(value, low), high);
  const drawn = found.map((one, row) => ({
    ...one, row, one: 1, words: texts[row], short: shorts[row] ?? line(one.label), colour: one.colour ?? "currentColor", ...("low" in one ? { low: within(one.low), high: within(one.high) } : {}),
  }));
  return { rows: { rows: drawn }, params: { low, high, ticks: ticksOf(low, high) } };
}

function pairDomain(found) {
  const values = found.filter((one) => "value" in one).map((one) => one.value);
  const [least, most] = [Math.min(1 / LEAST, ...values), Math.max(LEAST, ...values)];
  const lows = found.filter((one) => one.low >= least / BEYOND).map((one) => one.low);
  const highs = found.filter((one) => one.high <= most * BEYOND).map((one) => one.high);
  return [Math.min(least, ...lows) / 1.01, Math.max(most, ...highs) * 1.01];
}

function ticksOf(low, high) {
  if (high < 4 * low) {
    const step = STEPS.find((one) => high - low <= MOST_TICKS * one);
    const found = [];
    for (let k = Math.ceil(low / step); k <= Math.floor(high / step); k += 1) found.push(Number(fixed(k * step, 3)));
    return found;
  }
  const decades = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e += 1) decades.push(e);
  const found = decades.flatMap((e) => [1, 2, 5].map((m) => m * 10 ** e)).filter((tick) => low <= tick && tick <= high);
  return found.length <= MOST_TICKS + 1 ? found : decades.map((e) => 10 ** e).filter((tick) => low <= tick && tick <= high);
}
