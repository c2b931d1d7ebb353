"""Draw the overview: throughput, scaling, effects of settings, latency, energy, changes since the last run."""

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchmatrix.analysis.speedups import Changed, Since
from torchmatrix.core.formatting import is_known, number_or_nan
from torchmatrix.matrix.factors import CONTRASTED
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import BarRow as Bar
from torchmatrix.reporting.charts import BarRow as Dot
from torchmatrix.reporting.charts import Chart, Panel, round_values, scale_of
from torchmatrix.reporting.explorers.data import ShownCell, ShownPair
from torchmatrix.reporting.overview import answers
from torchmatrix.reporting.overview.cells import Cells, grouped, span

# Throughput: a row of panels per model, a panel per precision, a bar per stack, eager and compiled.

MOST_MODELS_OF_THROUGHPUT, MOST_BARS = 8, 40
"""The explorer and the table of all cells show the rest."""


def throughput_charts(cells: Cells) -> list[Chart]:
    """Return the chart of each model on the most devices that it was measured on, then on the fewest, of models with both."""
    counts = [sorted({row.N for row in job if row.n} or {row.N for row in job}) for job in cells.jobs]
    ends = [
        [[row for row in job if numbers[place] == row.N] for job, numbers in zip(cells.jobs, counts, strict=True)
         if place == -1 or len(numbers) > 1]
        for place in (-1, 0)
    ]  # fmt: skip
    return [_throughput_chart(cells, jobs, number) for number, jobs in enumerate(ends) if jobs]


def _throughput_chart(cells: Cells, jobs: Sequence[list[ShownCell]], number: int) -> Chart:
    """Draw each job on as many devices as its rows have."""
    panels, left = [], 0
    several = len({cells.place(row) for job in jobs for row in job}) > 1
    for job in jobs[:MOST_MODELS_OF_THROUGHPUT]:
        row_of_panels, missing = _throughput_panels(cells, job, several)
        panels.append(row_of_panels)
        left += missing
    shown = {row.stack: row for job in jobs for row in job}
    legend = tuple((stack, cells.who(row)) for stack, row in sorted(shown.items(), key=lambda item: cells.age(item[1])))
    modes = " and ".join(cells.dims["mode"].labels).capitalize()
    places = dict.fromkeys(cells.place(row) for job in jobs for row in job)
    more = words.more(len(jobs) - MOST_MODELS_OF_THROUGHPUT, "models"), words.more(left, "bars")
    return Chart(
        id="throughput" if not number else "throughput-one",
        nav="Throughput",
        instead_of="throughput" if number else "",
        choice="fewest devices" if number else "most devices",
        title=_throughput_title(cells, jobs),
        sub=f"{modes} throughput, items per second, on {words.enumerated(places)}. Bars start at zero; the panels of a "
        "model share a scale. bs: batch per device. Bold: the fastest, and all not shown to be slower.",
        panels=tuple(panels),
        legend=legend if len(legend) > 1 else (),
        more="; ".join(filter(None, more)),
    )  # fmt: skip


def _throughput_title(cells: Cells, jobs: Sequence[list[ShownCell]]) -> str:
    """Name the fastest stack for the headline's model, or for the first of these jobs."""
    chosen = {row.place for row in cells.chosen}
    job = next((job for job in jobs if job[0].place in chosen), jobs[0])
    top = cells.best(job)
    if top is None:
        return "No cell was measured"
    what = f"{cells.model(top)}: {cells.who(top)}"
    how = f"{what} with {words.enumerated(cells.settings(top).split(', '), 9)}"
    ranked = answers.ranking(cells, top)
    if len(ranked.candidates) == 1:
        return f"{how}: {words.with_unit(top.rate, top.unit + '/s')}"
    if ranked.is_fastest:
        return f"{how} is fastest"
    stacks = list(dict.fromkeys(cells.who(row) for row in ranked.equal if cells.who(row) != cells.who(top)))
    if stacks:
        return f"{what} is highest; no difference shown from {words.enumerated(stacks)}"
    why = "not tested against others" if cells.moments(top) else "one launch: not tested"
    return f"{how} is highest" + (f"; {why}" if ranked.untested else "")


def _throughput_panels(cells: Cells, job: Sequence[ShownCell], several: bool) -> tuple[tuple[Panel, ...], int]:
    """Return a panel for each precision, all on one scale, and the number of bars left out. `several`: the chart has models on
    other devices.
    """
    top = cells.best(job)
    rows = cells.like(job, top or job[0])
    bold = {row.place for row in answers.ranking(cells, top).equal} if top and cells.moments(top) else set()
    by_precision = sorted(grouped(rows, lambda row: row.precision), key=lambda group: group[0].precision)
    shown = [sorted(group, key=lambda row: (row.runtime, row.compile, cells.age(row)))[:MOST_BARS] for group in by_precision]
    bars = [
        [_throughput_bar(cells, row, before, bold) for before, row in zip([None, *group], group, strict=False)]
        for group in shown
    ]
    scale = scale_of(bar for group in bars for bar in group)
    unit = f"{top.unit}/s" if top else ""
    panels = tuple(
        Panel(title=f"{cells.model(group[0])}, {cells.precision(group[0])}{f' · {cells.place(group[0])}' if several else ''}",
              unit=unit, rows=tuple(rows), high=scale)
        for group, rows in zip(shown, bars, strict=True)
    )  # fmt: skip
    return panels, sum(map(len, by_precision)) - sum(map(len, shown))


def _throughput_bar(cells: Cells, row: ShownCell, before: ShownCell | None, bold: set[int]) -> Bar:
    engine = cells.engine(row)
    head = engine if before is None or cells.engine(before) != engine else ""
    batch = f"bs{words.SPACE}{row.bs}" if row.n else ""
    label = cells.who(row)
    note = f"{cells.value(row, 'stack')}: {cells.settings(row)}, {cells.place(row)} {cells.which(row)}".strip()
    if not row.n:
        return Bar(label=label, head=head, colour=row.stack, problem=words.failed(row.outcome), note=note)
    limits = words.rate_interval(row.rate, row.low, row.high)
    return Bar(
        label=label, head=head, colour=row.stack, value=row.rate, low=row.low, high=row.high,
        figures=(words.short(row.rate), limits or ("1 launch" if row.n == 1 else ""), batch),
        is_best=row.place in bold, marks=cells.marks.get(row.place, ()), note=note,
    )  # fmt: skip


# Scaling: the speed-up of several devices over one, per model, with the efficiency of every stack.

MOST_MODELS_OF_SCALING, MOST_SERIES = 6, 12


def scaling_chart(cells: Cells) -> Chart | None:
    """Draw the speed-ups; None without a cell on several devices that has one."""
    scaled = [row for row in cells.rows if row.S is not None]
    if not scaled:
        return None
    most = max(row.N for row in scaled)
    jobs = [job for job in cells.jobs if any(row.S is not None for row in job)]
    ends = [row for row in scaled if most == row.N]
    noun = f"{cells.device(ends[0])}s"
    low = min(0.9, *(row.S_low or row.S for row in ends)) if most > 1 else 0.9
    lowest = min([low / most if low > 1 else low, *(row.S / row.N for row in ends)])
    floor = max(0.0, int(lowest * 10 - 0.5) / 10)  # the axis of efficiencies begins at a multiple of 10 % below all of them
    drawn = jobs[:MOST_MODELS_OF_SCALING]
    models_left = words.more(len(jobs) - MOST_MODELS_OF_SCALING, "models")
    return Chart(
        id="scaling",
        nav="Scaling",
        title=_scaling_title(cells, ends, f"{most} {noun}"),
        sub=f"Beside each bar: throughput, multiple of one, and efficiency, the multiple over the number of {noun}. "
        f"Dashed: the ideal. Grey: what is missing from it. All {len(ends)} settings on {most}: "
        f"{span([row.S for row in ends], words.ratio)}.",
        panels=tuple(_scaling_panels(cells, job, most, floor) for job in drawn),
        more="; ".join(filter(None, (models_left, _lines_left(drawn, most)))),
    )  # fmt: skip


def _scaling_title(cells: Cells, ends: Sequence[ShownCell], devices: str) -> str:
    """Say of the cell of the answer on devices what they do; `ends`: the cells on the most devices."""
    top = cells.best(cells.chosen)
    row = answers.headline_of(answers.scaled(cells, top), top) if top else ends[0]
    return f"{cells.model(row or ends[0])}: {devices} do {words.ratio((row or ends[0]).S)} the work of one"


def _lines_left(jobs: Sequence[Sequence[ShownCell]], most: int) -> str:
    """Count the cells on the most devices that stand only in the table of all scale factors."""
    lines = [sum(row.S is not None and most == row.N for row in job) for job in jobs]
    left = sum(max(0, count - MOST_SERIES) for count in lines)
    return words.more(left, "settings")


def _scaling_panels(cells: Cells, job: Sequence[ShownCell], most: int, floor: float) -> tuple[Panel, ...]:
    ends = [row for row in job if row.S is not None]
    here = max(row.N for row in ends)
    best = max((row for row in ends if here == row.N), key=lambda row: row.rate)
    compared = _compared_cells(cells, [row for row in ends if here == row.N], best)
    top = max(1.02, *((row.S_high or row.S) / row.N for row in compared))
    ticks = tuple((share, words.percent(share)) for share in (floor, 1.0))
    lines = [line_of(cells, job, end) for end in _ends_to_draw(ends, best)]
    return (
        *(Panel(title=f"{cells.model(line[0])}, {cells.settings(line[0])}", unit=f"{line[0].unit}/s, {cells.who(line[0])}",
                rows=tuple(scaling_bar(cells, row, row.stack) for row in line), high=float(most), kind="scale")
          for line in lines),
        Panel(title=f"{cells.model(best)}: efficiency on {cells.label(best, 'devices')}", unit="share of the ideal",
              rows=tuple(_scaling_dot(cells, row, compared) for row in compared), low=floor, high=min(top, 1.2), kind="eff",
              ticks=ticks),
    )  # fmt: skip


def _compared_cells(cells: Cells, rows: Sequence[ShownCell], best: ShownCell) -> list[ShownCell]:
    """Return the cells of all stacks with the settings of the best cell; for a single stack its other settings."""
    same = [row for row in rows if cells.settings(row) == cells.settings(best)]
    ranked = sorted(same, key=cells.age) if len(same) > 1 else sorted(rows, key=lambda row: -row.rate)
    return ranked[:MOST_SERIES]


def _ends_to_draw(ends: Sequence[ShownCell], best: ShownCell) -> list[ShownCell]:
    """Return the best cell of the first precision on as many devices, if that isn't the best one's, and the best cell."""
    same = [row for row in ends if row.N == best.N]
    first = min(row.precision for row in same)
    other = max((row for row in same if row.precision == first), key=lambda row: row.rate)
    return [other, best] if first != best.precision else [best]


def line_of(cells: Cells, job: Sequence[ShownCell], best: ShownCell) -> list[ShownCell]:
    """Return the cells of the best cell's line: one for each number of devices."""
    names = [name for name in cells.dims if name not in ("devices", "set")]
    same = [row for row in job if row.n and all(row.value(name) == best.value(name) for name in names)]
    return sorted((group[0] for group in grouped(same, lambda row: row.N)), key=lambda row: row.N)


def scaling_bar(cells: Cells, row: ShownCell, colour: int, rate_of_one: float = 1.0) -> Bar:
    """Draw the multiple of one device's throughput, in units of `rate_of_one`, with the ideal."""
    count = row.S if row.S is not None else 1.0 if row.N == 1 else None
    figures = (words.short(row.rate), words.ratio(count) if row.N > 1 else "1×")
    efficiency = words.percent(count / row.N) if count is not None and row.N > 1 else ""
    marks = (("impossible", "above 102 % of the ideal: look for a wrong baseline"),) if row.impossible else ()
    value, low, high = (None if times is None else times * rate_of_one for times in (count, row.S_low, row.S_high))
    return Bar(
        label=cells.label(row, "devices"), value=value, low=low, high=high, ideal=row.N * rate_of_one, colour=colour,
        figures=(*figures, efficiency), marks=(*marks, *cells.marks.get(row.place, ())),
    )  # fmt: skip


def _scaling_dot(cells: Cells, row: ShownCell, compared: Sequence[ShownCell]) -> Bar:
    n = row.N
    value, low, high = (None if row.value(name) is None else row.value(name) / n for name in ("S", "S_low", "S_high"))
    assert value is not None
    half = f"±{words.SPACE}{50 * (high - low):.1f}" if low is not None and high is not None else ""
    names = (cells.who, cells.settings)
    varied = [name(row) for name in names if len({name(other) for other in compared}) > 1] or [cells.settings(row)]
    return Bar(
        label=" · ".join(varied), value=value, low=low, high=high, shape="dot", colour=row.stack,
        figures=(f"{words.percent(value, 1)} {half}".strip(),), note=f"{cells.value(row, 'stack')}, {cells.settings(row)}",
    )  # fmt: skip


# Effects: one forest plot of every varied factor (precision, compilation, memory format, versions, runtimes, ...).

MOST_ROWS_OF_EFFECTS, MOST_ROWS_OF_STACKS, MOST_STROKES = 10, 24, 40
_IDLE = {pair.name: factor.idle_for for factor in CONTRASTED for pair in factor.contrasts}
_ORDER = [pair.name for factor in CONTRASTED for pair in factor.contrasts]
_LEAST = 1.1
"""The scale reaches at least this far to both sides of 1."""


def effects_chart(cells: Cells) -> Chart | None:
    """Draw the effects of settings; None where no pair of cells differs in one setting only."""
    measured = {pair.kind for pair in cells.data.pairs if pair.ratio is not None}
    kinds = sorted(measured, key=lambda kind: _ORDER.index(kind) if kind in _ORDER else len(_ORDER))
    if not kinds:
        return None
    rows = [row for kind in kinds for row in _effects_rows(cells, kind)]
    ends = [end for row in rows for end in (row.value, row.low, row.high, *row.strokes) if end]
    high = max(_LEAST, *(min(end, 100.0) for end in ends)) * 1.03
    low = min(1 / _LEAST, *(max(end, 0.01) for end in ends)) / 1.03
    ticks = tuple((value, "the same" if value == 1 else f"{value:g}×") for value in round_values(low, high, is_log=True))
    panel = Panel(title="", rows=tuple(rows), low=low, high=high, is_log=True, kind="forest", ticks=ticks)
    return Chart(
        id="settings", nav="Settings", title=_effects_title(cells, kinds),
        sub="Throughput with a setting over throughput without it, all else equal; logarithmic scale. A thin stroke is a pair "
        "of cells, the diamond their geometric mean with its interval over launches. Ratios are of geometric means of "
        "launches, bars of throughput are their medians.",
        panels=((panel,),),
        more=_models_without_row(cells, kinds),
    )  # fmt: skip


def _effects_title(cells: Cells, kinds: Sequence[str]) -> str:
    """Name the settings by what they bring."""
    real = {kind: pairs for kind in kinds if kind != "stack" and (pairs := _without_controls(cells, kind))}
    means = [(kind, answers.mean_of(cells, pairs)) for kind, pairs in real.items() if _agree(cells, pairs)]
    apart = [words.CONTRASTS[kind][0] for kind in real if kind not in dict(means)]
    if apart:
        return f"What {words.enumerated(apart)} {'brings' if len(apart) == 1 else 'bring'} differs by model"
    moved = [(kind, mean) for kind, mean in means if mean.verdict in ("FASTER", "SLOWER")]
    if means and all(mean.verdict == "n/a" for _, mean in means):
        named = [f"{words.CONTRASTS[kind][0]} {words.effect(mean.interval.value)}" for kind, mean in means[:3]]
        return f"{', '.join(named)}: too few launches, not tested"
    if not moved:
        stacks = _rows_of_stacks(cells, answers.pairs_of(cells, "stack"))
        ranked = sorted(stacks, key=lambda row: -abs(math.log(row.value or 1.0)))
        split = [(*row.label.partition(": "), words.effect(row.value)) for row in ranked if row.is_best or row.colour < 0]
        shown = [f"{who} {effect}" + (f" for {model}" if model else "") for who, _, model, effect in split]
        settings = words.enumerated(words.CONTRASTS[kind][0] for kind, _ in means)
        finding = f"{settings}: no difference shown" if means else ""
        brings = f"{'other stacks' if means else 'Other stacks'}: {', '.join(shown[:2])}" if shown else ""
        return "; ".join(filter(None, (finding, brings))) or "What another stack brings"
    moved.sort(key=lambda item: -abs(math.log(item[1].interval.value)))
    named = [f"{words.CONTRASTS[kind][0]} {words.effect(mean.interval.value)}" for kind, mean in moved[:3]]
    return f"Largest effect first: {', '.join(named)}"


def _without_controls(cells: Cells, kind: str) -> list[ShownPair]:
    return [pair for pair in answers.pairs_of(cells, kind) if not _is_control(cells, kind, pair)]


def _is_control(cells: Cells, kind: str, pair: ShownPair) -> bool:
    model = cells.value(cells.rows[pair.at], "model")
    return any(fnmatch.fnmatchcase(model, glob) for glob in _IDLE.get(kind, ()))


def _effects_rows(cells: Cells, kind: str) -> list[Dot]:
    """Return a head, a row for each model (for stacks: each stack), and one for all of them."""
    pairs = answers.pairs_of(cells, kind)
    if kind == "stack":
        return _rows_of_stacks(cells, pairs)
    setting, baseline = words.CONTRASTS[kind]
    models = answers.by_model(cells, pairs)
    rows = [_effects_row(cells, group, _model_label(cells, kind, group)) for group in models[:MOST_ROWS_OF_EFFECTS]]
    if len(models) > 1 and (real := _without_controls(cells, kind)) and _agree(cells, real):
        label = f"all {len(models)} models" if len(real) == len(pairs) else "all but the control"
        rows.append(_effects_row(cells, real, label))
    return _with_head(rows, f"{setting} instead of {baseline}")


def _agree(cells: Cells, pairs: Sequence[ShownPair]) -> bool:
    return answers.models_agree([answers.mean_of(cells, group) for group in answers.by_model(cells, pairs)])


def _models_without_row(cells: Cells, kinds: Sequence[str]) -> str:
    """Count the models without a row; their pairs are among those of all models."""
    models = [{cells.rows[pair.at].model for pair in answers.pairs_of(cells, kind)} for kind in kinds if kind != "stack"]
    most = max(map(len, models), default=0) - MOST_ROWS_OF_EFFECTS
    return f"rows of {most} more models, whose pairs are counted" if most > 0 else ""


def _with_head(rows: list[Dot], head: str) -> list[Dot]:
    return [replace(rows[0], head=head), *rows[1:]]


def _model_label(cells: Cells, kind: str, pairs: Sequence[ShownPair]) -> str:
    control = " (control: no convolutions)" if _is_control(cells, kind, pairs[0]) else ""
    return f"{cells.model(cells.rows[pairs[0].at])}{control}"


def _rows_of_stacks(cells: Cells, pairs: Sequence[ShownPair]) -> list[Dot]:
    every: list[Dot] = []
    for group in grouped(pairs, lambda pair: cells.rows[pair.over].stack):
        base = cells.stack(cells.rows[group[0].over])
        stacks = grouped(group, lambda pair: tuple(cells.rows[pair.at].value(name) for name in ("gpu", "machine", "stack")))
        rows = [row for stack in stacks for row in _rows_of_stack(cells, stack)]
        every += _with_head(rows[:MOST_ROWS_OF_STACKS], f"another stack instead of {base}")
    return every


def _rows_of_stack(cells: Cells, pairs: Sequence[ShownPair]) -> list[Dot]:
    """Return a row for each model, and one for all of them where they agree."""
    who, models = cells.who(cells.rows[pairs[0].at]), answers.by_model(cells, pairs)
    if len(models) == 1:
        return [_effects_row(cells, pairs, f"{who}{_only_setting(cells, pairs)}")]
    rows = [_effects_row(cells, group, f"{who}: {cells.model(cells.rows[group[0].at])}") for group in models]
    return [*rows, *([_effects_row(cells, pairs, f"{who}: all {len(models)} models")] if _agree(cells, pairs) else [])]


def _only_setting(cells: Cells, pairs: Sequence[ShownPair]) -> str:
    """Name the setting that all pairs of a model have, if other cells of the model have others."""
    model = cells.rows[pairs[0].at].model
    of_pairs = {cells.settings(cells.rows[pair.at]) for pair in pairs}
    every = {cells.settings(row) for row in cells.rows if row.n and row.model == model}
    return f" ({next(iter(of_pairs))})" if len(of_pairs) == 1 and len(every) > 1 else ""


def _effects_row(cells: Cells, pairs: Sequence[ShownPair], label: str) -> Dot:
    mean = answers.mean_of(cells, pairs)
    value = mean.interval
    spread = f"{mean.n} pairs, {span([mean.lowest, mean.highest], words.effect)}" if mean.n > 1 else "1 pair"
    has_limits = not math.isnan(value.low)
    return Dot(
        label=label, value=value.value, low=value.low if has_limits else None, high=value.high if has_limits else None,
        strokes=tuple(pair.ratio for pair in pairs[:MOST_STROKES]) if mean.n > 1 else (), shape="diamond",
        figures=(words.effect_with_interval(value), words.verdict_of(mean), spread),
        is_best=mean.verdict == "FASTER", colour=-1 if mean.verdict == "SLOWER" else 0,
    )  # fmt: skip


# Inference: latency percentiles as dots on one axis, with throughput.

MOST_ROWS_OF_LATENCY = 24


def latency_chart(cells: Cells) -> Chart | None:
    """Draw latency and throughput; None without a cell that served requests."""
    served = [row for row in cells.rows if row.n and is_known(row.latency_p50)]
    if not served:
        return None
    jobs = grouped(served, lambda row: row.model)
    ends = [1e3 * row.value(name) for row in served for name in ("latency_p50", "latency_p99") if is_known(row.value(name))]
    low, high = min(ends) / 1.15, max(ends) * 1.15
    fastest = min(served, key=lambda row: row.latency_p50)
    return Chart(
        id="latency",
        nav="Latency",
        title=_latency_title(cells, fastest),
        sub="Time of single requests on the device, one after the other; logarithmic scale. Dot: the median request; "
        "line: to the 99th percentile. Beside it the throughput of the same cells.",
        panels=tuple(_latency_panels(cells, job, low, high) for job in jobs),
        more=words.more(sum(max(0, len(job) - MOST_ROWS_OF_LATENCY) for job in jobs), "cells"),
    )  # fmt: skip


def _latency_title(cells: Cells, row: ShownCell) -> str:
    """Return the median request of the cell whose median is lowest, and its 99th percentile, which takes 100 requests."""
    median = f"{cells.model(row)}: half of the requests within {words.with_unit(1e3 * row.latency_p50, 'ms')}"
    p99 = number_or_nan(row.latency_p99)
    return median if math.isnan(p99) else f"{median}, 99 of 100 within {words.with_unit(1e3 * p99, 'ms')}"


def _latency_panels(cells: Cells, job: list[ShownCell], low: float, high: float) -> tuple[Panel, Panel]:
    """Return a panel of latency and one of throughput in the same order."""
    rows = sorted(job, key=lambda row: row.latency_p50)[:MOST_ROWS_OF_LATENCY]
    bars = tuple(_latency_bar(cells, row) for row in rows)
    ticks = tuple((value, f"{value:g}{words.SPACE}ms") for value in round_values(low, high, is_log=True))
    top = scale_of(bars)
    rates = tuple((value, f"{value:g}") for value in round_values(0.0, top, 3))
    name = cells.label(job[0], "model")
    return (
        Panel(title=f"{name}: latency", unit="milliseconds", rows=tuple(_latency_dot(cells, row) for row in rows), low=low,
              high=high, is_log=True, kind="latency", ticks=ticks),
        Panel(title=f"{name}: throughput", unit=f"{rows[0].unit}/s", rows=bars, high=top, kind="latency",
              ticks=rates),
    )  # fmt: skip


def _latency_dot(cells: Cells, row: ShownCell) -> Dot:
    p50, p99 = (1e3 * row.value(name) if is_known(row.value(name)) else math.nan for name in ("latency_p50", "latency_p99"))
    figures = (words.with_unit(p50, "ms"), "" if math.isnan(p99) else words.with_unit(p99, "ms"))
    return Dot(label=_label(cells, row), value=p50, low=p50,
               high=None if math.isnan(p99) else p99, shape="dot", colour=row.stack, figures=figures,
               marks=cells.marks.get(row.place, ()))  # fmt: skip


def _latency_bar(cells: Cells, row: ShownCell) -> Dot:
    limits = words.rate_interval(row.rate, row.low, row.high)
    return Dot(label=_label(cells, row), value=row.rate, low=row.low, high=row.high, colour=row.stack,
               figures=(words.short(row.rate), limits))  # fmt: skip


# Generation: the time per output token over the batch, with the roof, and what decode and prefill do.


def generation_chart(cells: Cells) -> Chart | None:
    """Draw the time per output token against the least that the measured bandwidth allows; None without a generation."""
    rows = [row for row in cells.rows if row.n and is_known(row.per_output_token_p50)]
    if not rows:
        return None
    jobs = grouped(rows, lambda row: row.model)
    names = ("per_output_token_p50", "per_output_token_p99", "least_token_seconds")
    ends = [1e3 * row.value(name) for row in rows for name in names if is_known(row.value(name))]
    low, high = min(ends) / 1.15, max(ends) * 1.15
    return Chart(
        id="generation",
        nav="Generation",
        title=_generation_title(cells, rows),
        sub="Time per output token; logarithmic scale. Dot: the median request; line: to the 99th percentile. Dashed: the "
        "least that the bandwidth measured in the same launch allows. Beside it tokens per second of decode, and of prefill.",
        panels=tuple(_generation_panels(cells, job, low, high) for job in jobs[:MOST_MODELS_OF_GENERATION]),
        more=words.more(sum(max(0, len(job) - MOST_ROWS_OF_LATENCY) for job in jobs), "cells"),
    )  # fmt: skip


MOST_MODELS_OF_GENERATION = 6


def _generation_title(cells: Cells, rows: list[ShownCell]) -> str:
    """Return the shortest median time per output token, and how near the measured bandwidth that cell's decode comes."""
    fastest = min(rows, key=lambda row: row.per_output_token_p50)
    median = f"{cells.model(fastest)}: a token every {words.with_unit(1e3 * fastest.per_output_token_p50, 'ms')}"
    if not is_known(fastest.decode_of_roof):
        return median
    return f"{median}; decode reads at {_share(fastest)} of the measured bandwidth"


def _generation_panels(cells: Cells, job: list[ShownCell], low: float, high: float) -> tuple[Panel, Panel]:
    """Return a panel of times and one of rates in the same order: by stack and settings, then by batch."""
    rows = sorted(job, key=lambda row: (cells.age(row), cells.settings(row), row.bs))[:MOST_ROWS_OF_LATENCY]
    ticks = tuple((value, f"{value:g}{words.SPACE}ms") for value in round_values(low, high, is_log=True))
    bars = tuple(_generation_bar(cells, row) for row in rows)
    top, name = scale_of(bars), cells.label(job[0], "model")
    rates = tuple((value, f"{value:g}") for value in round_values(0.0, top, 3))
    return (
        Panel(title=f"{name}: time per output token", unit="milliseconds", low=low, high=high, is_log=True, kind="latency",
              rows=tuple(_generation_dot(cells, row) for row in rows), ticks=ticks),
        Panel(title=f"{name}: decode", unit="tokens/s", rows=bars, high=top, kind="latency", ticks=rates),
    )  # fmt: skip


def _generation_dot(cells: Cells, row: ShownCell) -> Dot:
    names = ("per_output_token_p50", "per_output_token_p99", "least_token_seconds")
    p50, p99, least = (1e3 * row.value(name) if is_known(row.value(name)) else None for name in names)
    assert p50 is not None
    share = f"{_share(row)} of bandwidth" if is_known(row.decode_of_roof) else ""
    return Dot(label=_label(cells, row), value=p50, low=p50, high=p99, ideal=least, shape="dot", colour=row.stack,
               figures=(words.with_unit(p50, "ms"), share), marks=cells.marks.get(row.place, ()))  # fmt: skip


def _share(row: ShownCell) -> str:
    return words.percent(row.decode_of_roof, 0 if row.decode_of_roof >= 0.1 else 1)


def _generation_bar(cells: Cells, row: ShownCell) -> Dot:
    rate, low, high = (row.value(f"decode_rate{end}") for end in ("", "_low", "_high"))
    prefill = f"prefill {words.short(row.prefill_rate)}" if is_known(row.prefill_rate) else ""
    return Dot(label=_label(cells, row), value=rate, low=low, high=high, colour=row.stack,
               figures=("" if rate is None else words.short(rate), prefill))  # fmt: skip


def _label(cells: Cells, row: ShownCell) -> str:
    who = [cells.who(row)] if len({cells.who(other) for other in cells.rows}) > 1 else []
    return ", ".join([*who, cells.settings(row), f"bs{words.SPACE}{row.bs}"])


# Since the last run: a dot per cell, and a row per cell that changed.

MOST_ROWS_OF_CHANGES = 12


def changes_chart(cells: Cells, since: Since | None) -> Chart | None:
    """Draw the changes since the last run; None without an earlier run that shares a cell."""
    if since is None or not since.cells:
        return None
    ratios = [cell.ratio.value for cell in since.cells]
    changed = sorted((cell for cell in since.cells if cell.verdict in ("SLOWER", "FASTER")), key=lambda cell: cell.ratio.value)
    reach = max(0.02, *(abs(ratio - 1) for ratio in ratios), *(abs(end - 1) for cell in changed for end in _ends(cell))) * 1.05
    names = {row.cell: row for row in cells.rows}
    every = Dot(label=f"all {len(ratios)} cells", strokes=tuple(ratios), value=None, figures=("", ""), shape="dot")
    rows = [every, *(_changes_row(cells, names, cell) for cell in changed[:MOST_ROWS_OF_CHANGES])]
    more = [words.more(len(changed) - MOST_ROWS_OF_CHANGES, "changed")]
    more += [f"{since.missing} cells without a figure in one of the two" if since.missing else ""]
    more += [f"{since.refused} cells did other work" if since.refused else ""]
    ticks = tuple((value, words.change(value)) for value in round_values(1 - reach, 1 + reach, 5))
    return Chart(
        id="since",
        nav="Since the last run",
        title=_changes_title(since),
        sub=f"Each stroke is a cell: its throughput over that in run {since.run}. Verdicts allow for {len(ratios)} "
        "comparisons. They are about these two runs; runs of one machine may differ, too. "
        f"{answers.what_else(since)}",
        panels=((Panel(title="", rows=tuple(rows), low=1 - reach, high=1 + reach, kind="forest since", ticks=ticks),),),
        more="; ".join(filter(None, more)),
    )  # fmt: skip


def _changes_title(since: Since) -> str:
    slower, faster = since.count("SLOWER"), since.count("FASTER")
    parts = [f"{slower} slower" if slower else "", f"{faster} faster" if faster else "", *answers.unchanged(since)]
    return f"Since the last run: {', '.join(part for part in parts if part)}"


def _ends(cell: Changed) -> tuple[float, ...]:
    return tuple(end for end in (cell.ratio.low, cell.ratio.high) if not math.isnan(end))


def _changes_row(cells: Cells, names: Mapping[str, ShownCell], cell: Changed) -> Dot:
    row = names.get(cell.cell)
    label = f"{cells.model(row)}, {cells.settings(row)}, {cells.who(row)}, {cells.label(row, 'devices')}" if row else cell.cell
    ends = _ends(cell) or (None, None)
    return Dot(
        label=label, value=cell.ratio.value, low=ends[0], high=ends[-1], shape="dot",
        colour=-1 if cell.verdict == "SLOWER" else -2,
        figures=(words.effect_with_interval(cell.ratio), words.verdict(cell.verdict)), note=cell.cell,
    )  # fmt: skip
