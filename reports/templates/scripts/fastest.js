// Who is the fastest, as reporting/explorers/fastest.py and analysis/best.py say it for print.
const MOST_NAMED = 3;
const NOTEWORTHY = Math.log(1.01);

const rateOf = (row) => `${figure(row.rate)} ${row.unit}/s`;

function fastest(dims, ranked, level) {
  const [first, ...others] = ranked;
  if (!others.length) return `${doingAll(dims, ranked, 1)} at ${rateOf(first)} (${limitsOf(first, 1)})`;
  const left = mayBeBest(ranked, level.differs);
  if (left.length === 1) return alone(dims, ranked, overTheOthers(first, others, level.differs), level);
  if (!known(first.center) || !known(left[1].center)) return untold(dims, [first, left[1]]);
  return together(dims, left, ranked.length, level);
}

function alone(dims, ranked, found, level) {
  const two = ranked.slice(0, 2);
  const ahead = `${times(found.value)} × as fast as ${namesOf(dims, two)[1]} (${spanAt(found, level)})`;
  return `${doingAll(dims, two, 1)} fastest: ${rateOf(two[0])} (${limitsOf(two[0], ranked.length)}), ${ahead}`;
}

function untold(dims, two) {
  const ratio = `${times(two[0].rate / two[1].rate)} × ${namesOf(dims, two)[1]}`;
  return `${doingAll(dims, two, 1)} at ${rateOf(two[0])}, ${ratio}; too few launches to tell them apart`;
}

function together(dims, rows, candidates, level) {
  const rates = rows.map(rateOf);
  let told = `${rates[0]} to ${rates.at(-1)}`;
  if (rows.length === 2) {
    const found = overTheOthers(rows[0], [rows[1]], level.differs / (candidates - 1));
    told = `${rates.join(" and ")}, ${times(found.value)} × (${spanAt(found, level)})`;
  }
  const others = candidates - rows.length;
  const slower = others ? `; ${others} more ${others === 1 ? "is" : "are"} slower` : "";
  return `${doingAll(dims, rows, rows.length)} ${areSame(rows, level) ? "equally fast" : "and can't be told apart"}: ${told}${slower}`;
}

function doingAll(dims, rows, subjects) {
  const [model, mode] = said([named(dims, "model"), named(dims, "mode")], rows[0]);
  let names = namesOf(dims, rows).slice(0, subjects);
  if (names.length > MOST_NAMED) names = [...names.slice(0, MOST_NAMED - 1), `${names.length - MOST_NAMED + 1} more`];
  const who = names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names[0];
  return `${who} ${verb(mode, subjects > 1)} ${model}${context(dims, rows)} on ${sharedPlace(dims, rows)}`;
}

function namesOf(dims, rows) {
  const settings = telling(dims, rows, [...WHO, "model", "mode"]);
  return rows.map((row) => nameOf(dims, row, settings));
}

// Multiple comparisons with the best.
function mayBeBest(rows, level) {
  const least = level / Math.max(1, rows.length - 1);
  return rows.filter((own) => !rows.some((other) => pAbove(other, own) <= least));
}

function pAbove(better, own) {
  if (!known(better.center) || !known(own.center) || better.center - own.center <= NOTEWORTHY) return Infinity;
  return chances(...apart(better, own)).differs;
}

function overTheOthers(first, others, level) {
  if (![first, ...others].every((one) => known(one.center))) return { value: null, low: null, high: null };
  const found = others.map((other) => {
    const [center, error, freedom] = apart(first, other);
    const half = error === 0 ? 0 : student(freedom, level / others.length) * error;
    return [center, center - half, center + half].map(Math.exp);
  });
  const [value, low, high] = [0, 1, 2].map((place) => Math.min(...found.map((one) => one[place])));
  return { value, low, high };
}

function areSame(rows, level) {
  if (!rows.every((row) => known(row.center))) return false;
  const [first, ...others] = [...rows].sort((a, b) => b.center - a.center);
  return others.every((own) => chances(...apart(first, own)).same <= level.same);
}

// The interval of a figure that was picked covers whichever was picked.
function limitsOf(row, candidates) {
  if (!known(row.low) || !known(row.high)) return "one launch: no interval";
  const half = (row.high - row.rate) * student(row.n - 1, 0.05 / candidates) / student(row.n - 1);
  const low = candidates < 2 ? row.low : Math.max(0, row.rate - half);
  return `95 % interval ${figure(low)} to ${figure(row.rate + half)}${candidates > 1 ? `, for a pick of ${candidates}` : ""}`;
}

function spanAt({ low, high }, level) {
  if (!known(low)) return "too few launches for an interval";
  return `${level.confidence} interval ${span(low, high)}`;
}
