// Which cells a view shows: selectors that depend on those before them, so that no choice leads to an empty chart.
const [ALL, OWN] = ["all", "own"];
const FAVOURED = { precision: ["amp", "amp-bf16"] };

// Columns -> rows; of a column with words, each row has its word; of one that is the same in all rows, that; of places, its own.
function rowsOf(columns) {
  const names = Object.keys(columns);
  const column = (held) => (Array.isArray(held) ? held : "same" in held ? Array(held.count).fill(held.same) : "places" in held ? [...Array(held.places).keys()] : held.at.map((place) => held.words[place]));
  const held = names.map((name) => column(columns[name]));
  return Array.from({ length: held.length ? held[0].length : 0 }, (_, at) => Object.fromEntries(names.map((name, i) => [name, held[i][at]])));
}

// What a metric draws of each cell, with the cell's dimensions.
const itemsOf = (data, metric) => (metric.items ??= rowsOf(metric.rows).map((item) => ({ ...data.cells[item.at], ...item })));

const present = (rows, name) => [...new Set(rows.map((row) => row[name]))].sort((a, b) => a - b);

function choose(dims, question, rows, asked) {
  const found = { picked: {}, offered: {}, rows };
  for (const dim of dims.filter((one) => !question.free.includes(one.name))) {
    const [wanted, name] = [asked[dim.name], dim.name];
    const offered = present(found.rows, name).map((place) => dim.values[place]);
    found.offered[name] = offered;
    const several = offered.length > 1;
    const whole = !dim.own && !offered.includes(wanted) && offered.length <= (question.whole[name] ?? 0);
    if (several && (wanted === ALL || whole)) found.picked[name] = ALL;
    else if (dim.own) pickOwn(dims, dim, question, found, wanted);
    else {
      const place = offered.includes(wanted) ? dim.values.indexOf(wanted) : byDefault(dim, found.rows);
      found.picked[name] = offered.length ? dim.values[place] : "";
      found.rows = found.rows.filter((row) => row[name] === place);
    }
  }
  return found;
}

// What was asked for, or of each group of cells (which differ in stack and own dimensions only) its default.
function pickOwn(dims, dim, question, found, wanted) {
  const name = dim.name;
  if (found.offered[name].includes(wanted)) {
    found.picked[name] = wanted;
    found.rows = found.rows.filter((row) => dim.values[row[name]] === wanted);
    return;
  }
  if (found.offered[name].length === 1) {
    found.picked[name] = found.offered[name][0];
    found.offered[name] = [];
    return;
  }
  const besides = dims.filter((one) => one.own || one.name === "stack" || (question.free.includes(one.name) && name !== "set")).map((one) => one.name);
  const apart = varying(dims, found.rows, besides).map((one) => one.name);
  const groups = groupBy(found.rows, (row) => keyOf(row, apart));
  const defaults = new Map([...groups].map(([key, rows]) => [key, byDefault(dim, rows)]));
  const several = new Set(defaults.values()).size > 1;
  found.picked[name] = several ? OWN : dim.values[[...defaults.values()][0] ?? 0];
  found.rows = found.rows.filter((row) => row[name] === defaults.get(keyOf(row, apart)));
  if (![...groups.values()].some((rows) => present(rows, name).length > 1)) found.offered[name] = []; // there is nothing to choose
}

const keyOf = (row, names) => names.map((name) => row[name]).join(" ");

function groupBy(rows, key) {
  const groups = new Map();
  for (const row of rows) groups.has(key(row)) ? groups.get(key(row)).push(row) : groups.set(key(row), [row]);
  return groups;
}

// The most devices, AMP, otherwise the value that most stacks measured; never the fastest.
function byDefault(dim, rows) {
  const stacks = new Map(present(rows, dim.name).map((place) => [place, new Set()]));
  if (stacks.size === 1) return [...stacks.keys()][0];
  for (const row of rows) if (row.n) stacks.get(row[dim.name]).add(keyOf(row, ["gpu", "machine", "stack"]));
  const measured = [...stacks.keys()].filter((place) => stacks.get(place).size);
  if (dim.name === "devices" && measured.length) return measured.at(-1);
  for (const value of FAVOURED[dim.name] ?? []) if (measured.includes(dim.values.indexOf(value))) return dim.values.indexOf(value);
  let best = [...stacks.keys()][0] ?? 0;
  for (const [place, own] of stacks) if (own.size > stacks.get(best).size) best = place;
  return best;
}

// The rows by their values in these dimensions, in the dimensions' order.
function grouped(rows, names) {
  const first = (a, b) => names.map((name) => a[name] - b[name]).find((sign) => sign) ?? 0;
  return [...groupBy(rows, (row) => keyOf(row, names)).values()].sort(([a], [b]) => first(a, b));
}

const varying = (dims, rows, besides) => dims.filter((dim) => !besides.includes(dim.name) && present(rows, dim.name).length > 1);

// As few of the dimensions in which these rows differ as tell them apart as well as all do.
function telling(dims, rows, besides) {
  const groups = (some) => new Set(rows.map((row) => keyOf(row, some.map((dim) => dim.name)))).size;
  return varying(dims, rows, besides).reduce((found, dim) => (groups([...found, dim]) > groups(found) ? [...found, dim] : found), []);
}
