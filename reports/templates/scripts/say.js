// Numbers, intervals and sentences of the explorers, as reporting/explorers/saying.py and charts/words.py make them for print.
const WHO = ["gpu", "machine", "stack"];
const [WIDTH, LETTER, BOLD] = [360, 6.8, 7.6];
// From here on not all digits of a number are written.
const HUGE = 1e15;
const VERBS = { train: ["trains", "train"], infer: ["runs inference of", "run inference of"] };

const exponent = (value) => (value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)) + 1e-12));
// A number by toFixed, toPrecision or toExponential, which are called nowhere else, but exact halves go to the even digit, as Python writes
// them: 1.125 is 1.12.
function written(value, how, digits) {
  const [text, exact] = [digits, digits + 40].map((count) => value[how](count));
  const bare = (number) => number.split("e")[0].replace(".", "");
  return /^50*$/.test(bare(exact).slice(-40)) ? text.replace(/^([-\d.]*)([13579])(?=e|$)/, (_, before, digit) => `${before}${digit - 1}`) : text;
}
const fixed = (value, digits) => written(value, "toFixed", digits);
const precise = (value, digits) => written(value, "toPrecision", digits);
const significant = (value, digits) => {
  const size = exponent(Number(precise(value, digits)));
  return size < -4 || size >= digits ? written(value, "toExponential", digits - 1).replace(/e([+-])(\d)$/, "e$10$2") : precise(value, digits);
};
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
// Four significant digits.
const figure = (value) => {
  const size = known(value) ? Number(precise(value, 4)) : NaN;
  return !known(value) ? "n/a" : exponent(size) >= 4 && Math.abs(size) < HUGE ? fixed(value, 0) : significant(value, 4);
};
// A ratio.
const times = (value) => (!known(value) ? "n/a" : value >= 0.995 && value < 100 ? fixed(value, 2) : significant(value, 3));

function span(low, high) {
  if (!known(low) || low === high) return times(low);
  return times(low) === times(high) && Math.abs(high) < HUGE ? `${fixed(low, 3)} to ${fixed(high, 3)}` : `${times(low)} to ${times(high)}`;
}

const interval = (low, high) => (known(low) ? `95 % interval ${span(low, high)}` : "too few launches for an interval");
const verb = (mode, many = false) => (VERBS[mode] ?? [`runs ${mode} of`, `run ${mode} of`])[Number(many)];

function counted(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([word, seen]) => `${seen} × ${word}`).join(", ");
}

// The logarithm of the gamma function (Lanczos) and the regularised incomplete beta function (Lentz's continued fraction):
// W. H. Press and others, Numerical Recipes, sections 6.1 and 6.4.
function logGamma(x) {
  const parts = [76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 0.1208650973866179e-2, -0.5395239384953e-5];
  const sum = parts.reduce((found, part, place) => found + part / (x + place + 1), 1.000000000190015);
  return (x + 0.5) * Math.log(x + 5.5) - x - 5.5 + Math.log((2.5066282746310005 * sum) / x);
}

function incompleteBeta(x, a, b) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(1 - x, b, a);
  const away = (value) => (Math.abs(value) < 1e-300 ? 1e-300 : value);
  let [c, d] = [1, 1 / away(1 - ((a + b) * x) / (a + 1))];
  let found = d;
  for (let m = 1; m < 300; m += 1) {
    for (const part of [(m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)), (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1))]) {
      d = 1 / away(1 + part * d);
      c = away(1 + part / c);
      found *= d * c;
    }
    if (Math.abs(d * c - 1) < 1e-14) break;
  }
  const front = logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log(1 - x);
  return (Math.exp(front) * found) / a;
}

// The chance that Student's t is at least this far from 0, to both sides.
const tail = (t, freedom) => incompleteBeta(freedom / (freedom + t * t), freedom / 2, 0.5);

// Student's t, beyond which it lies with this chance, to both sides; by bisection.
function student(freedom, chance = 0.05) {
  let [low, high] = [0, 1e6];
  for (let step = 0; step < 80; step += 1) {
    const middle = (low + high) / 2;
    tail(middle, freedom) > chance ? (low = middle) : (high = middle);
  }
  return (low + high) / 2;
}

// p-values: that there is no difference, and that a ratio is not within 1 ± 2 %; of its logarithm, standard error and degrees of freedom.
function chances(center, error, freedom) {
  const [low, high] = [center - Math.log(0.98), Math.log(1.02) - center];
  if (error === 0) return { differs: Number(center === 0), same: Number(Math.min(low, high) < 0) };
  const above = (distance) => (distance > 0 ? tail(distance / error, freedom) / 2 : 1 - tail(distance / error, freedom) / 2);
  return { differs: tail(center / error, freedom), same: Math.max(above(low), above(high)) };
}

// The logarithm of the ratio of two cells, its standard error and Welch's degrees of freedom.
function apart(a, b) {
  const total = a.error + b.error;
  return [a.center - b.center, Math.sqrt(total), total ** 2 / (a.error ** 2 / (a.n - 1) + b.error ** 2 / (b.n - 1))];
}

// The n-th root of a product. A mean over cells has no interval: they share their run and their machine.
function geometricMean(ratios) {
  if (!ratios.length) return { ratio: null, low: null, high: null };
  return { ratio: Math.exp(ratios.map(Math.log).reduce((sum, log) => sum + log, 0) / ratios.length), low: null, high: null };
}

// What may be said of two by the verdict on their ratio.
const COMPARED = {
  FASTER: (own, other, ratio) => `${own} is ${ratio} × as fast as ${other}`,
  SLOWER: (own, other, ratio) => `${own} is ${ratio} × as fast as ${other}`,
  SAME: (own, other, ratio) => `${own} and ${other} are equally fast, ${ratio} ×,`,
  AMBIGUOUS: (own, other, ratio) => `Unclear whether ${own} is faster than ${other}, ${ratio} ×,`,
  "n/a": (own, other, ratio, why) => `${own} over ${other}: ${ratio} ×, ${why},`,
};
const compared = (own, other, ratio, verdict, why) => COMPARED[verdict](own, other, times(ratio), why);
const untested = (...launches) => (launches.every((count) => count === 1) ? "one launch each: not tested" : "too few launches: not tested");

// What tells bars or lines of one setting apart.
function who(dims) {
  const several = dims.filter((dim) => WHO.includes(dim.name) && dim.values.length > 1);
  return several.length ? several : [named(dims, "stack")];
}

const nameOf = (dims, row, settings) => [said(who(dims), row).join(" · "), ...said(settings, row)].join(", ");

function context(dims, rows, besides = []) {
  const unsaid = [...WHO, "model", "mode", "devices", "set", "variant", ...besides, ...varying(dims, rows, []).map((dim) => dim.name)];
  const shared = dims.filter((dim) => !unsaid.includes(dim.name) && (dim.name === "precision" || dim.values.filter((value) => value !== "none").length > 1));
  const found = said(shared, rows[0]).filter((word) => word !== "n/a");
  return found.length ? ` with ${found.join(", ")}` : "";
}

function where(dims, row) {
  const [gpu, count] = said([named(dims, "gpu"), named(dims, "devices")], row);
  const found = gpu.startsWith("CPU") ? count : row.N === 1 ? gpu : `${row.N} × ${gpu}`;
  return row.which ? `${found} (${row.which})` : found;
}

// The devices of rows that are compared on equal numbers of them; only their number, if the rows differ in which.
function sharedPlace(dims, rows) {
  const found = [...new Set(rows.map((row) => where(dims, row)))];
  return found.length === 1 ? found[0] : said([named(dims, "devices")], rows[0])[0];
}

function places(dims, rows) {
  const found = [...new Set(rows.map((row) => where(dims, row)))];
  return found.length === 1 ? found[0] : `${found.length} sets of devices`;
}

const ofMachine = (dims, row) => (named(dims, "machine").values.length > 1 ? ` of ${said([named(dims, "machine")], row)[0]}` : "");

// Such as "a trains resnet50 with amp on 8 × H200 SXM".
function job(dims, row) {
  const [model, mode, variant] = said(["model", "mode", "variant"].map((name) => named(dims, name)), row);
  return `${said(who(dims), row).join(" · ")} ${verb(mode)} ${model}${context(dims, [row])}${variant ? ` (${variant})` : ""}`;
}

const doing = (dims, row) => `${job(dims, row)} on ${where(dims, row)}`;

function common(texts) {
  if (texts.length < 2) return 0;
  const [first, ...others] = texts;
  let found = 0;
  while (found < first.length && others.every((text) => text[found] === first[found])) found += 1;
  return found;
}

// Each label in its room, shortened only where all labels agree; null where it doesn't fit even so.
function fitting(labels, rooms) {
  const distinct = [...new Set(labels)];
  const [start, end] = [common(distinct), common(distinct.map((label) => [...label].reverse().join("")))];
  return labels.map((label, at) => {
    let short = label;
    if (short.length > rooms[at] && start > 3) short = `${short.slice(0, Math.max(2, start - 1 - (short.length - rooms[at])))}…${short.slice(start)}`;
    if (short.length > rooms[at] && end > 3) short = `${short.slice(0, -end)}…${short.slice(-Math.max(2, end - 1 - (short.length - rooms[at])))}`;
    return short.length <= rooms[at] ? short : null;
  });
}

const room = (text) => Math.floor((WIDTH - BOLD * text.length - 10) / LETTER);

function line(label) {
  const letters = Math.floor(WIDTH / LETTER);
  if (label.length <= letters) return label;
  const kept = letters - 1;
  const end = Math.floor(kept / 3);
  return `${label.slice(0, kept - end)}…${label.slice(label.length - end)}`;
}
