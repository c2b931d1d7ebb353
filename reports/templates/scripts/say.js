// Names of cells, and numbers as reporting/words.py writes them; a test compares the two. No statistics here: verdicts are Python's.
const WHO = ["gpu", "machine", "stack"];
const RANKS = { model: 0, mode: 1, gpu: 3, machine: 4, devices: 5 }; // the place of a word in a title; others come third
const [THIN, MINUS] = ["\u202f", "\u2212"];
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const exponent = (value) => (value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)) + 1e-12));
// A number by toFixed, toPrecision or toExponential, which are called nowhere else, but exact halves go to the even digit, as Python writes
// them: 1.125 is 1.12.
function written(value, how, digits) {
  const [text, exact] = [digits, digits + 40].map((count) => value[how](count));
  const bare = (number) => number.split("e")[0].replace(".", "");
  return /^50*$/.test(bare(exact).slice(-40)) ? text.replace(/^([-\d.]*)([13579])(?=e|$)/, (_, before, digit) => `${before}${digit - 1}`) : text;
}
const fixed = (value, digits) => written(value, "toFixed", digits);
// As Python's format .3g.
function significant(value) {
  const text = written(value, "toPrecision", 3);
  const size = exponent(Number(text));
  const whole = size < -4 || size >= 3 ? written(value, "toExponential", 2).replace(/e([+-])(\d)$/, "e$10$2") : text;
  return whole.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");
}
const spaced = (value, digits) => fixed(value, digits).replace(/(?<!\.\d*)\B(?=(\d{3})+(?!\d))/g, THIN);

function short(value) {
  if (!known(value)) return NOT_KNOWN;
  if (value === 0 || Math.abs(value) >= HUGE || Math.abs(value) < 1e-4) return significant(value);
  const rounded = Number(written(value, "toPrecision", 3));
  return spaced(rounded, Math.max(0, 2 - exponent(rounded)));
}

const withUnit = (value, unit) => (known(value) ? `${short(value)}${THIN}${unit}` : NOT_KNOWN);
const percent = (value) => (known(value) ? `${fixed(100 * value, 0)}${THIN}%`.replace("-", MINUS) : NOT_KNOWN);

function decimals(value) {
  const size = Math.abs(value);
  if (size >= 100) return 0;
  return size >= 10 ? 1 : size >= 0.0995 ? 2 : 3;
}
const ratio = (value) => (known(value) ? `${fixed(value, decimals(value))}×` : NOT_KNOWN);
const isSmall = (value) => known(value) && 1 / SMALL < value && value < SMALL;

function change(value) {
  const part = 100 * (value - 1);
  const text = fixed(Math.abs(part), 1);
  return `${Number(text) ? (part > 0 ? "+" : MINUS) : ""}${text}${THIN}%`;
}
const effect = (value) => (isSmall(value) ? change(value) : ratio(value));

// ± where both sides are alike at the digits shown, else both ends; "" without an interval.
const half = (value, digits) => `±${THIN}${fixed(value, Number(fixed(value, digits)) ? digits : digits + 1)}`;
function around(value, low, high, digits) {
  const [up, down] = [high - value, value - low];
  if (fixed(up, digits) === fixed(down, digits)) return half((up + down) / 2, digits);
  return `(${[low, high].map((end) => fixed(end, digits).replace("-", MINUS)).join(" to ")})`;
}
function effectInterval(value, low, high) {
  if (!known(low) || !known(high)) return "";
  return isSmall(value) ? around(100 * (value - 1), 100 * (low - 1), 100 * (high - 1), 1) : around(value, low, high, decimals(value));
}
function rateInterval(value, low, high) {
  if (!known(low) || !known(high) || !value) return "";
  const [up, down] = [100 * (high / value - 1), 100 * (1 - low / value)];
  const digits = up < 10 ? 1 : 0;
  return fixed(up, digits) === fixed(down, digits) ? `${half(up, digits)}${THIN}%` : `(${short(low)} to ${short(high)})`;
}
const joined = (parts, between = " ") => parts.filter(Boolean).join(between);
const effectWords = (value, low, high) => joined([effect(value), effectInterval(value, low, high)]);

const said = (dims, row) => dims.map((dim) => dim.labels[row[dim.name]]);
const named = (dims, name) => dims.find((dim) => dim.name === name);
const cellName = (dims, row) => said(dims, row).filter((word) => word && word !== "n/a").join(", ");

// What tells these cells apart: what they run on, and their settings; of a single one, or of like ones, what it runs on.
function naming(dims, rows, besides) {
  const several = dims.filter((dim) => WHO.includes(dim.name) && dim.values.length > 1);
  const found = [...varying(several, rows, besides), ...telling(dims, rows, [...WHO, ...besides])];
  return found.length ? found : several.length ? several : [named(dims, "stack")];
}

// What these cells share: "ResNet-50, AMP, torch.compile, 8 GPUs".
function titleOf(dims, rows, unsaid = []) {
  const shared = dims.filter(({ name, labels }) => name !== "set" && !unsaid.includes(name) && present(rows, name).length === 1
    && (labels.length > 1 || ["model", "precision", "devices"].includes(name)));
  const ordered = shared.toSorted((a, b) => (RANKS[a.name] ?? 2) - (RANKS[b.name] ?? 2));
  const which = present(rows, "set").length === 1 && shared.some(({ name }) => name === "devices") ? rows[0].which : "";
  return joined([cellName(ordered, rows[0]), which && `(${which})`]);
}
