// The scaling explorer's panels, as reporting/explorers/lines.py makes them for print.
const [BAND, REACH, RIGHT, GREY] = [0.5, 1.3, 0.96, "#8c8c8c"];

function linePanels(data, question, choice, metric) {
  const dims = data.dims;
  return grouped(choice.rows, question.panels).filter((rows) => rows.some((row) => known(row.S))).map((rows) => {
    const settings = telling(dims, rows, [...WHO, ...question.panels, "devices", "set"]);
    const series = grouped(rows, [...settings, ...who(dims)].map((dim) => dim.name)).map((some) => some.toSorted((a, b) => a.N - b.N));
    return { title: lineTitle(dims, series, settings), ...lineRows(data, metric, series, settings) };
  });
}

function lineTitle(dims, series, settings) {
  const rows = series.flat().filter((row) => known(row.S));
  const most = Math.max(...rows.map((row) => row.N));
  const ranked = rows.filter((row) => row.N === most).sort((a, b) => a.S - b.S);
  const [model, mode] = said([named(dims, "model"), named(dims, "mode")], rows[0]);
  const efficiency = (row) => row.S / row.N;
  const worst = rows.filter((row) => row.impossible).sort((a, b) => efficiency(b) - efficiency(a))[0];
  const what = context(dims, rows);
  const devices = (row) => said([named(dims, "devices")], row)[0];
  const name = (row) => nameOf(dims, row, settings);
  if (worst) return `E = ${times(efficiency(worst))} of ${model}${what} on ${devices(worst)} with ${name(worst)} is impossible: above 1.02; look for a wrong baseline`;
  const [least, best] = [ranked[0], ranked.at(-1)];
  const [begin, end] = [`${devices(best)} ${verb(mode, true)} ${model}`, `as fast as one${what}`];
  const gain = (row) => `${times(row.S)}${known(row.S_low) ? ` [${span(row.S_low, row.S_high)}]` : ""} ×`;
  const factor = (row) => (row.S - 1) / (row.N - 1);
  const tested = ranked.every((row) => known(row.S_low)) ? "" : ", too few launches: not tested";
  const factors = `(E = ${span(efficiency(least), efficiency(best))}, s = ${span(factor(least), factor(best))})${tested}`;
  if (least === best) return `${begin} ${gain(best)} ${end}, ${name(best)} ${factors}`;
  if (known(least.S_high) && least.S_high >= best.S_low) return `${begin} ${span(least.S, best.S)} × ${end}, ${ranked.length} ${many(dims, settings)} alike within their intervals ${factors}`;
  return `${begin} ${gain(least)} (${name(least)}) to ${gain(best)} (${name(best)}) ${end} ${factors}`;
}

const many = (dims, settings) => ([...who(dims), ...settings].every((dim) => dim.name === "stack") ? "stacks" : "lines");

function scaled(metric, row) {
  if (metric === "throughput") return row.n ? [row.rate, row.low, row.high] : null;
  if (!known(row.S)) return null;
  const [a, b] = { S: [1, 0], E: [1 / row.N, 0], s: [1 / (row.N - 1), -1 / (row.N - 1)] }[metric];
  return [row.S, row.S_low, row.S_high].map((value) => (known(value) ? a * value + b : null));
}

function lineRows({ dims }, metric, series, settings) {
  const counts = [...new Set(series.flat().filter((row) => scaled(metric, row)).map((row) => row.N))].sort((a, b) => a - b);
  const linear = ["S", "throughput"].includes(metric);
  const side = (place) => BAND * ((place + 0.5) / series.length - 0.5);
  const x = (n, place) => (linear ? (n / counts.at(-1)) * RIGHT : (counts.indexOf(n) + 0.5 + side(place)) / counts.length);
  const points = series.flatMap((some, place) => some.filter((row) => scaled(metric, row)).map((row) => linePoint(dims, metric, row, place, x(row.N, place), nameOf(dims, row, settings))));
  const ideal = lineIdeal(metric, series, counts, linear);
  const [low, high] = lineDomain([...points, ...ideal].map((point) => point.value), points, linear);
  for (const point of points) for (const end of ["low", "high"]) if (end in point) point[end] = Math.min(Math.max(point[end], low), high);
  const ticks = counts.map((n, place) => ({ x: linear ? x(n, 0) : (place + 0.5) / counts.length, label: `${n}` }));
  const unit = metric === "throughput" ? `${series[0][0].unit}/s` : { E: "efficiency E", s: "scale factor s", S: "speed-up S" }[metric];
  return { rows: { rows: points, ideal, ticks, one: [{ unit }], legend: lineLegend(dims, series, settings) }, params: { low, high } };
}

function lineLegend(dims, series, settings) {
  const names = series.map(([first]) => nameOf(dims, first, settings));
  if (names.length < 2) return [];
  const columns = Math.max(...names.map((name) => name.length)) <= 24 ? 2 : 1;
  return names.map((name, at) => ({
    colour: colourOf(dims, series[at][0]), shape: SHAPES[at % SHAPES.length], label: line(name), px: (at % columns) * 160 - 20, py: 246 + 16 * Math.floor(at / columns),
  }));
}

function linePoint(dims, metric, row, place, x, name) {
  const [value, low, high] = scaled(metric, row);
  const write = metric === "throughput" ? figure : times;
  const within = known(low) && known(high);
  return {
    x, value, ...(within ? { low, high } : {}), series: name, colour: colourOf(dims, row), shape: SHAPES[place % SHAPES.length], N: row.N, said: write(value),
    interval: within ? `${write(low)} to ${write(high)}` : "n/a", bs: `${row.bs}`, wrong: row.impossible ? "impossible" : "",
  };
}

function lineIdeal(metric, series, counts, linear) {
  if (!linear) return [0, 1].map((x) => ({ x, value: 1, series: "", colour: GREY }));
  const ends = [RIGHT / counts.at(-1), RIGHT];
  const line = (one, name) => ends.map((x) => ({ x, value: (x / RIGHT) * counts.at(-1) * one, series: name, colour: GREY }));
  if (metric === "S") return line(1, "");
  return series.flatMap((some, place) => {
    const row = some.find((other) => other.S);
    return row ? line(row.rate / row.S, `${place}`) : [];
  });
}

function lineDomain(values, points, linear) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const highest = Math.max(...points.filter((point) => "high" in point).map((point) => point.high));
  if (linear) return [0, 1.02 * Math.max(most, Number.isFinite(highest) ? Math.min(highest, REACH * most) : most)];
  const room = 0.02 + (most - least) / 4;
  return [Math.max(0, least - room), Math.max(1.02, most + room / 2)];
}
