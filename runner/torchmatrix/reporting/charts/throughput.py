"""Cells -> grouped bars: which stack is fastest, one chart for each model on each device set."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from torchmatrix.analysis import prices
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.matrix.factors import COLUMNS
from torchmatrix.reporting.charts import INK, Chart, Charts, words
from torchmatrix.reporting.charts.drawing import WIDTH, at, bottom, colour, finish, on, row, shorten

MOST_CHARTS = 8
MOST_BARS = 32
"""The most rows in one chart; settings that come later in the matrix appear in the tables only."""
_NAMES, _END = 148, 344
"""Pixels: where the stacks' names end, and where the bars end and their figures begin."""
_NAME_LETTERS, _HEAD_LETTERS = 24, 60
_STEP = 19
_ROOM = 1.5
"""An interval is cut off if it ends further beyond the longest bar than this factor."""
_CUT = "»"
_TIPS = {"stack": "stack", "settings": "settings", "words": "figure", "measure": "in", "interval": "95 % interval",
         "launches": "launches"}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measure:
    """What the bars can show. `of`: a cell's row -> the figure and its interval, if it has one."""

    name: str
    note: str
    of: Callable[[Any], Interval]


def charts(cells: pd.DataFrame, speedups: pd.DataFrame, stacks: Sequence[str], held: PriceList = NONE) -> Charts:
    """One chart for each model, mode and device set, smaller sets first.

    `cells` as of tables.cells_table, `speedups` as of ratios.speedup_table, `stacks` all stacks in their order. `held`:
    what GPUs cost. Of single devices of one model only the first is drawn: another chart compares them.
    If all cells failed there is no chart; `left_out` counts them too.
    """
    shown = cells[cells["parallel"] == "ddp"]
    found: list[Chart] = []
    left_out = 0
    for rows in _groups(shown):
        kept = _kept(rows)
        if len(found) == MOST_CHARTS or not (kept["n"] > 0).any():
            left_out += len(rows)
            continue
        found.append(_chart(len(found) + 1, kept, len(rows) - len(kept), speedups, stacks, held))
        left_out += len(rows) - len(kept)
    drawn = sum(len(rows) for rows in _groups(shown))
    return Charts(charts=tuple(found), left_out=left_out + len(shown) - drawn)


def _groups(cells: pd.DataFrame) -> list[pd.DataFrame]:
    """The cells of each model, mode and device set; of single devices of one model only the first."""
    if cells.empty:
        return []
    groups = [rows for _, rows in cells.groupby(["model", "mode", "devices"], sort=False)]
    seen: set[tuple[Any, ...]] = set()
    found = []
    for rows in sorted(groups, key=lambda rows: int(rows["count"].iloc[0])):
        first = rows.iloc[0]
        key = (first["model"], first["mode"], _device_name(rows))
        if first["count"] > 1 or key not in seen:
            found.append(rows)
        seen.add(key)
    return found


def _device_name(rows: pd.DataFrame) -> str | None:
    return next((name for name in rows["device_name"] if isinstance(name, str)), None)


def _kept(rows: pd.DataFrame) -> pd.DataFrame:
    """Whole groups of bars while there is room; of a group that is too large, the first bars."""
    sizes = rows.groupby("workload", sort=False).size().cumsum()
    fitting = sizes[sizes <= MOST_BARS].index
    return rows[rows["workload"].isin(fitting)] if len(fitting) else rows[rows["workload"] == sizes.index[0]].head(MOST_BARS)


def _chart(
    number: int, rows: pd.DataFrame, left_out: int, speedups: pd.DataFrame, stacks: Sequence[str], held: PriceList
) -> Chart:
    first, labels, measures = rows.iloc[0], _labels(rows), _measures(rows, held)
    places = _places(rows, labels, measures)
    note = [DEFINITIONS["throughput"], DEFINITIONS["interval"], *(measure.note for measure in measures[1:])]
    note += [f"{_CUT} The interval reaches further than the chart."] if any(bar["cut"] for bar in places.bars) else []
    note += [f"{left_out} more cells of these devices are in the tables."] if left_out else []
    return Chart(
        id=f"throughput-{number}-{words.slug(first['model'], first['mode'], first['devices'])}",
        section="throughput",
        title=_title(rows, labels, speedups),
        note=" ".join(note),
        spec=_spec(places, [measure.name for measure in measures], colour(stacks, rows["stack"])),
        table=_table(rows, labels, measures),
    )


def _labels(rows: pd.DataFrame) -> dict[str, str]:
    """The settings of each workload in words; its id if the words don't distinguish two of them."""
    found = {}
    for workload, group in rows.groupby("workload", sort=False):
        first = group.iloc[0]
        batches = {batch for batch, n in zip(group["batch"], group["n"], strict=True) if n} or set(group["batch"])
        said = [first["precision"], *(factor.label_for(first[factor.name]) for factor in COLUMNS)]
        said += [f"batch {batch}" for batch in batches if len(batches) == 1]
        found[str(workload)] = ", ".join(word for word in said if word)
    labels = list(found.values())
    return {workload: label if labels.count(label) == 1 else workload for workload, label in found.items()}


def _measures(rows: pd.DataFrame, held: PriceList) -> list[_Measure]:
    """Throughput; items per joule and per price if known for some cell."""
    unit, ok = rows["unit"].iloc[0], rows[rows["n"] > 0]
    found = [_Measure(name=f"{unit}/s", note="", of=lambda r: Interval(value=r.throughput, low=r.low, high=r.high))]
    if len(ok) and ok["energy_per_item"].notna().all():
        found.append(
            _Measure(name=f"{unit} per joule", note=DEFINITIONS["per_joule"], of=lambda r: _alone(1 / r.energy_per_item))
        )
    elif ok["power_watts"].notna().any():
        found.append(
            _Measure(name=f"{unit}/s per watt", note=DEFINITIONS["per_watt"], of=lambda r: _alone(r.throughput / r.power_watts))
        )
    priced = [
        _Measure(name=f"{unit}/s per 1000 {held.currency}", note=DEFINITIONS["per_price"],
                 of=lambda r: _over(r, prices.cost(held, r._asdict(), "purchase") / 1000)),
        _Measure(name=f"{unit} per {held.currency}", note=DEFINITIONS["per_rent"],
                 of=lambda r: _over(r, prices.cost(held, r._asdict(), "per_hour") / 3600)),
    ]  # fmt: skip
    return found + [m for m in priced if any(not math.isnan(m.of(row).value) for row in words.rows_of(ok))]


def _alone(value: float) -> Interval:
    return Interval(value=value, low=math.nan, high=math.nan)


def _over(cell: Any, cost: float) -> Interval:
    """A price has no interval, so the interval of the throughput carries over."""
    return Interval(value=cell.throughput / cost, low=cell.low / cost, high=cell.high / cost)


def _title(rows: pd.DataFrame, labels: Mapping[str, str], speedups: pd.DataFrame) -> str:
    """The answer for the settings that most stacks ran; among these, the settings with the highest throughput."""
    ok = rows[rows["n"] > 0]
    counts = ok.groupby("workload", sort=False).agg(stacks=("stack", "nunique"), best=("throughput", "max"))
    workload = max(counts.itertuples(), key=lambda c: (c.stacks, c.best)).Index
    ranked = sorted(words.rows_of(ok[ok["workload"] == workload]), key=lambda r: -r.throughput)
    best, what = ranked[0], f"{ranked[0].model} with {labels[str(workload)]}"
    if len(ranked) == 1:
        limits = (
            "one launch: no interval" if best.n == 1 else f"95 % interval {words.figure(best.low)} to {words.figure(best.high)}"
        )
        rate = f"{words.figure(best.throughput)} {best.unit}/s"
        return f"{best.stack} {words.verb(best.mode)} {what} at {rate} on {words.where(best)} ({limits})"
    return _ratio_title(best, ranked[1], what, speedups)


def _ratio_title(best: Any, second: Any, what: str, speedups: pd.DataFrame) -> str:
    """The fastest relative to the baseline; if the fastest is the baseline, the next one relative to it."""
    same = speedups[(speedups["workload"] == best.workload) & (speedups["devices"] == best.devices)].set_index("stack")
    baseline = str(same["baseline"].get(best.stack))
    what = f"{what} on {words.where(best)}"
    own = second.stack if best.stack == baseline else best.stack
    found = same.loc[own]
    if math.isnan(found["ratio"]):
        rate = f"{words.figure(best.throughput)} {best.unit}/s"
        return f"{best.stack} {words.verb(best.mode)} {what} fastest, at {rate}; no ratio over {baseline} ({found['why']})"
    return words.compared(own, baseline, best.mode, what, Interval(value=found["ratio"], low=found["low"], high=found["high"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Places:
    """From top to bottom: the settings as a headline, then a row for each stack with its bars, one for each measure."""

    heads: list[dict[str, Any]]
    names: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    bars: list[dict[str, Any]]


def _places(rows: pd.DataFrame, labels: Mapping[str, str], measures: Sequence[_Measure]) -> _Places:
    found = _Places(heads=[], names=[], failed=[], bars=[])
    longest = {m.name: max((m.of(r).value for r in words.rows_of(rows) if r.n), default=0.0) for m in measures}
    for workload, group in rows.groupby("workload", sort=False):
        label = labels[str(workload)]
        found.heads.append({"row": len(found.heads) + len(found.names), "head": shorten(label, _HEAD_LETTERS)})
        for cell in words.rows_of(group):
            place = {"row": len(found.heads) + len(found.names), "stack": cell.stack}
            found.names.append(place | {"short": shorten(cell.stack, _NAME_LETTERS)})
            found.failed.extend([] if cell.n else [place | {"why": f"no number: {cell.outcome}"}])
            found.bars.extend(place | _bar(cell, label, m, _ROOM * longest[m.name]) for m in measures if cell.n)
    return found


def _bar(cell: Any, label: str, measure: _Measure, most: float) -> dict[str, Any]:
    """One bar: its figure, its limits as far as the chart reaches, and the texts beside it and on hover."""
    found = measure.of(cell)
    is_known, has_limits = not math.isnan(found.value), not math.isnan(found.low)
    high = min(most, found.high) if has_limits else math.nan
    cut = has_limits and found.high > most
    batch = "" if f"batch {cell.batch}" in label else f" (batch {cell.batch})"
    return {
        "measure": measure.name,
        "value": found.value,
        "low": max(found.low, 0.0) if has_limits else math.nan,
        "high": high,
        "cut": cut,
        "end": (max(found.value, high) if has_limits else found.value) if is_known else 0.0,
        "words": (f"{_CUT} " if cut else "") + words.figure(found.value) + batch,
        "settings": label + batch,
        "interval": f"{words.figure(found.low)} to {words.figure(found.high)}" if has_limits else "n/a",
        "launches": f"{cell.n}" + (f" and {cell.failed} not ok" if cell.failed else ""),
    }


def _spec(places: _Places, measures: Sequence[str], colours: alt.Scale) -> dict[str, Any]:
    y = row(len(places.heads) + len(places.names))
    scale = alt.Scale(range=[_NAMES + 6, _END], nice=False, zero=True)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title=None, axis=alt.Axis(tickCount=4))

    tips = [alt.Tooltip(f"{name}:N", title=title) for name, title in _TIPS.items()]
    heads, names = on("heads").encode(y=y), on("names").encode(y=y)
    bars = on("bars").transform_filter("datum.measure == show").encode(y=y, tooltip=tips)
    layers = [
        heads.mark_text(align="left", fontWeight="bold", dy=3).encode(x=at(0), text=alt.Text("head:N")),
        names.mark_text(align="right").encode(x=at(_NAMES), text=alt.Text("short:N"), tooltip=alt.Tooltip("stack:N")),
        on("failed").mark_text(align="left").encode(y=y, x=at(_NAMES + 8), text=alt.Text("why:N")),
        bars.mark_bar(height=_STEP - 6).encode(x=x("value"), color=alt.Color("stack:N", legend=None, scale=colours)),
        bars.mark_rule(strokeWidth=1.5, color=INK).encode(x=x("low"), x2=alt.X2("high:Q")),
        *(bars.mark_tick(thickness=1.5, size=8, color=INK).encode(x=x(end)) for end in ("low", "high")),
        bars.mark_text(align="left", dx=5).encode(x=x("end"), text=alt.Text("words:N")),
        on("one").mark_text(text=alt.ExprRef("show"), dy=30, fontSize=11).encode(x=at(_END), y=bottom()),
    ]
    switch = alt.binding_radio(options=list(measures), name="Show ") if len(measures) > 1 else alt.Undefined
    show = alt.param(name="show", value=measures[0], bind=switch)
    chart = alt.layer(*layers, width=WIDTH, height=alt.Step(_STEP)).add_params(show)
    return finish(chart, heads=places.heads, names=places.names, failed=places.failed, bars=places.bars, one=[{}])


def _table(rows: pd.DataFrame, labels: Mapping[str, str], measures: Sequence[_Measure]) -> pd.DataFrame:
    found = []
    for cell in words.rows_of(rows):
        figures = {m.name: m.of(cell).value if cell.n else math.nan for m in measures}
        limits = {"95 % from": cell.low, "95 % to": cell.high}
        known = {"settings": labels[cell.workload], "stack": cell.stack, "batch": cell.batch}
        counts = {"launches": cell.n, "not ok": cell.failed, "outcome": "ok" if cell.n else cell.outcome}
        found.append(known | figures | limits | counts)
    return pd.DataFrame(found)
