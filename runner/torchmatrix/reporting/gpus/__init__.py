"""GPUs compared: the default view of a page of several machines. Open first: answers.py, then the charts below."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchmatrix.analysis.intervals import geometric_mean
from torchmatrix.analysis.rows import Row
from torchmatrix.core.formatting import is_known
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import BarRow as Bar
from torchmatrix.reporting.charts import Chart, Panel, round_values, scale_of
from torchmatrix.reporting.gpus import answers
from torchmatrix.reporting.gpus.answers import Gpus
from torchmatrix.reporting.overview.answers import Answers
from torchmatrix.reporting.overview.cells import grouped, span

# The charts of a page of machines: relative throughput, each model, scaling, items per joule and price.

MOST_MODELS = 6
VENDORS = ("NVIDIA", "AMD", "other")
COLOURS = (("#2563a8", "#5a9fdc"), ("#d96f0d", "#f08a2c"), ("#17684c", "#4bc298"))
"""The vendors' colours, on white and on black."""


def _legend(gpus: Gpus) -> tuple[tuple[int, str], ...]:
    colours = sorted({gpus.colour(gpu) for gpu in gpus.names})
    return tuple((number, VENDORS[number]) for number in colours) if len(colours) > 1 else ()


def relative(gpus: Gpus) -> Chart | None:
    """Draw the means on the fewest and on the most devices of each; None where nothing is compared."""
    if not gpus.counts:
        return None
    ends = list(dict.fromkeys((gpus.counts[0], gpus.counts[-1])))
    rows = {count: tuple(_mean_bar(gpus, gpu, count) for gpu, _ in gpus.ranked(count)) for count in ends}
    every = [row for group in rows.values() for row in group]
    high = max(scale_of(every), *(stroke for row in every for stroke in row.strokes), 1.0) * 1.02
    ticks = tuple((value, f"{value:g}×") for value in round_values(0.0, high))
    return Chart(
        id="relative", nav=f"{gpus.noun.capitalize() if gpus.noun == 'machine' else gpus.noun} against {gpus.noun}", title=_relative_title(gpus),
        sub=f"Throughput over that of {gpus.relative.baseline} on as many devices, for the same workload and "
        f"{'batch' if gpus.relative.batch == 'same' else 'each at its own batch'}. Bar: the geometric mean over the workloads "
        "that both measured; strokes: the workloads.",
        panels=tuple((Panel(title=answers.of_each(gpus, count), unit=f"{gpus.relative.baseline} = 1×", rows=rows[count],
                            high=high, kind="rel", ticks=ticks),) for count in ends),
        legend=_legend(gpus),
    )  # fmt: skip


def _relative_title(gpus: Gpus) -> str:
    names = answers.first_two(gpus)
    assert names is not None
    top, other = names
    mean, verdict, _ = answers.compared(gpus, top, other) or (None, "", "")
    assert mean is not None
    effect = words.effect(mean.interval.value)
    is_faster = mean.verdict == "FASTER"
    return f"{top} is {verdict} than {other}: {effect}" if is_faster else f"{top} beside {other}: {effect}, {verdict}"


def _mean_bar(gpus: Gpus, gpu: str, count: int) -> Bar:
    rows = [row for row in gpus.rows if row["gpu"] == gpu and row["count"] == count]
    mean = gpus.mean(gpu, gpus.relative.baseline, count) if gpu != gpus.relative.baseline else None
    if mean is None:
        many = answers.workloads(sum(row["n"] > 0 for row in rows))
        return Bar(label=gpu, value=1.0, colour=gpus.colour(gpu), figures=("1×", "the baseline", many))
    value, missing = mean.interval, sum(bool(row["why"]) for row in rows)
    many = f"{mean.n} of {answers.workloads(mean.n + missing)}" if missing else answers.workloads(mean.n)
    low, high = (end if is_known(end) else None for end in (value.low, value.high))
    return Bar(
        label=gpu, value=value.value, low=low, high=high, colour=gpus.colour(gpu), strokes=tuple(gpus.ratios(gpu, count)),
        figures=(words.effect_with_interval(value), words.verdict(mean.verdict), many),
    )  # fmt: skip


def throughput(gpus: Gpus) -> Chart | None:
    """Draw for each model a panel of each precision, in it a bar for each GPU, eager and compiled."""
    panels = tuple(_panels(gpus, job) for job in gpus.jobs[:MOST_MODELS])
    if not panels:
        return None
    name, means = answers.setting_means(gpus)
    values = [mean.interval.value for mean in means.values()]
    bring = "bring" if "+" in name else "brings"
    where = f" on {'these' if len(values) > 1 else 'this'} {gpus.noun}{'s' * (len(values) > 1)}"
    return Chart(
        id="throughput", nav="Throughput", title=f"{name} {bring} {span(values, words.effect)}{where}" if means else "Throughput of each model",
        sub=f"Items per second, {answers.of_each(gpus, gpus.least)}; the panels of a model share a scale. "
        f"{gpus.noun.capitalize() if gpus.noun == 'machine' else gpus.noun}s in the order of the chart above. "
        "bs: batch per device.",
        panels=panels, legend=_legend(gpus), more=words.more(len(gpus.jobs) - MOST_MODELS, "models"),
    )  # fmt: skip


def _panels(gpus: Gpus, job: Sequence[Row]) -> tuple[Panel, ...]:
    by_precision = grouped(job, lambda row: row["precision"])
    bars = [_bars(gpus, rows) for rows in by_precision]
    high = scale_of(bar for panel in bars for bar in panel)
    mode = f", {words.mode(job[0]['mode'])}" if len({row["mode"] for row in gpus.rows}) > 1 else ""
    return tuple(
        Panel(title=f"{words.model(rows[0]['model'])}{mode}, {words.precision(rows[0]['precision'])}",
              unit=f"{rows[0]['unit']}/s", rows=panel, high=high, kind="bars gpu")
        for rows, panel in zip(by_precision, bars, strict=True)
    )  # fmt: skip


def _bars(gpus: Gpus, rows: Sequence[Row]) -> tuple[Bar, ...]:
    bars: list[Bar] = []
    for group in sorted(grouped(rows, lambda row: row["compile"]), key=lambda group: bool(group[0]["compile"])):
        engine, releases = "torch.compile" if group[0]["compile"] else "eager", gpus.by_release(group)
        measured = {row["gpu"] for release in releases for row in release}
        failed = {row["gpu"]: row for row in group if not row["n"]}
        for number, release in enumerate(releases):
            chosen = {row["gpu"]: row for row in release}
            shown = [gpu for gpu in gpus.order if gpu in chosen or (not number and gpu not in measured)]
            heads = [f"{engine}, {release[0]['stack_class']}", *[""] * len(shown)]
            bars += [_bar(gpus, gpu, chosen.get(gpu, failed.get(gpu)), head) for gpu, head in zip(shown, heads, strict=False)]
    return tuple(bars)


def _bar(gpus: Gpus, gpu: str, row: Row | None, head: str) -> Bar:
    if row is None or not row["n"]:
        why = row["why"] if row and row["why"] in words.OUTCOMES else ""
        return Bar(label=gpu, head=head, colour=gpus.colour(gpu), problem=words.failed(why))
    low, high = (row[name] if is_known(row[name]) else None for name in ("low", "high"))
    limits = words.rate_interval(row["throughput"], low, high) or ("1 launch" if row["n"] == 1 else "")
    return Bar(
        label=gpu, head=head, value=row["throughput"], low=low, high=high, colour=gpus.colour(gpu),
        figures=(words.short(row["throughput"]), limits, f"bs{words.SPACE}{row['batch']}"),
        note=f"{row['workload']}, {row['stack']}",
    )  # fmt: skip


def scaling(gpus: Gpus) -> Chart | None:
    """Draw the speed-up of several devices over one: efficiency by their number, and whole machines."""
    if not gpus.scaled:
        return None
    counts = sorted({row["N"] for row in gpus.scaled})
    shares = [row["S"] / row["N"] for row in gpus.scaled]
    low, high = max(0.0, int(min(shares) * 10 - 0.5) / 10), max(1.02, min(1.2, max(shares)))
    ticks = tuple((share, words.percent(share)) for share in round_values(low, 1.0, 4))
    panels = [
        Panel(title=f"{count} {gpus.device}s", unit="efficiency", rows=_efficiencies(gpus, count), low=low, high=high,
              kind="eff sc", ticks=ticks)
        for count in counts[-3:]
    ]  # fmt: skip
    whole = tuple(panel for job in gpus.jobs[:3] if (panel := _whole_machines(gpus, job)))
    return Chart(
        id="scaling", nav="Scaling", title=_scaling_title(gpus),
        sub=f"Efficiency: what several {gpus.device}s do of the work of one, over their number; 100{words.THIN}% is ideal. "
        "Dot: geometric mean over all workloads; strokes: the workloads. Below: whole machines, with the multiple of one.",
        panels=(tuple(panels), *([whole] if whole else [])), legend=_legend(gpus),
    )  # fmt: skip


def _scaling_title(gpus: Gpus) -> str:
    ranked = sorted(answers.ends(gpus), key=lambda end: -end[2] / end[1])
    best, worst = ranked[0], ranked[-1]
    title = f"{best[1]} × {best[0]} reach {words.percent(best[2] / best[1])} of the ideal"
    return title if best is worst else f"{title}, {worst[1]} × {worst[0]} {words.percent(worst[2] / worst[1])}"


def _efficiencies(gpus: Gpus, count: int) -> tuple[Bar, ...]:
    bars = []
    for gpu in gpus.order:
        shares = [row["S"] / row["N"] for row in gpus.scaled if row["N"] == count and gpus.name(row) == gpu]
        if shares:
            value = geometric_mean(shares).value
            figures = (f"{words.ratio(value * count)}  {words.percent(value)}",)
            strokes = tuple(shares) if len(shares) > 1 else ()
            bars.append(Bar(label=gpu, value=value, shape="dot", strokes=strokes, figures=figures, colour=gpus.colour(gpu),
                            note=answers.workloads(len(shares))))  # fmt: skip
    return tuple(bars)


def _whole_machines(gpus: Gpus, job: Sequence[Row]) -> Panel | None:
    """Draw each machine on its most devices, in the setting of charts that show a single setting."""
    best = gpus.best([row for row in job if row["n"]])
    stacks = {row["stack"] for row in best}
    bars = []
    for gpu in gpus.order:
        rows = [row for row in gpus.scaled if gpus.name(row) == gpu and _is_like(gpus, row, best, stacks)]
        if rows:
            row = max(rows, key=lambda row: (row["N"], row["rate"]))
            bars.append(Bar(
                label=f"{row['N']} × {gpu}", value=row["rate"], low=row["low"], high=row["high"], colour=gpus.colour(gpu),
                figures=(words.short(row["rate"]), words.ratio(row["S"]), f"bs{words.SPACE}{row['bs']}"),
            ))  # fmt: skip
    if not bars:
        return None
    title = f"{words.model(best[0]['model'])}, {answers.setting(best[0])}"
    return Panel(title=title, unit=f"{best[0]['unit']}/s", rows=tuple(bars), high=scale_of(bars), kind="bars gpu")


def _is_like(gpus: Gpus, row: Row, best: Sequence[Row], stacks: set[str]) -> bool:
    cells, first = gpus.cells, best[0]
    return (
        all(cells.value(row, name) == first[name] for name in ("model", "mode", "precision"))
        and cells.value(row, "stack") in stacks
        and (cells.value(row, "compile") == "true") == bool(first["compile"])
        and row["bs"] in {other["batch"] for other in best}
    )


def worth(gpus: Gpus) -> Chart | None:
    """Draw items per joule, and cost and throughput per price where a list gives them; one device of each machine."""
    names = [name for name in WORTH if any(is_known(row[name]) for row in gpus.worth)]
    groups = [tuple(panel for job in gpus.jobs[:3] if (panel := _worth_panel(gpus, job, name))) for name in names]
    panels = tuple(group for group in groups if group)
    if not panels:
        return None
    tops = [(name, answers.worth_rows(gpus, gpus.jobs[0], name)) for name in names]
    currency = gpus.price_list.currency
    units = {"per_joule": "most per joule", "per_price": f"most per {currency}", "cost": "least cost"}
    title = words.enumerated(f"{units[name]} from {gpus.who(rows[0])}" for name, rows in tops if rows)
    return Chart(
        id="worth", nav="Per joule and price", title=f"{words.model(gpus.jobs[0][0]['model'])}: {title}, not tested" if title else "What a joule gives",
        sub=" ".join(["Power and purchase price of the GPU alone, without the server around it.", *_formula(gpus)]),
        panels=panels, legend=_legend(gpus),
    )  # fmt: skip


WORTH = ("per_joule", "cost", "per_price")


def _formula(gpus: Gpus) -> list[str]:
    priced = gpus.price_list.formulas(gpus.cells.dims["gpu"].labels)
    return [f"Cost: {'; '.join(priced)}."] if priced else []


def _worth_panel(gpus: Gpus, job: list[Row], name: str) -> Panel | None:
    rows = answers.worth_rows(gpus, job, name)
    if not rows:
        return None
    bars = tuple(
        Bar(label=gpus.who(row), value=row[name], figures=(words.short(row[name]), words.stacks([row["stack"]])[row["stack"]]),
            colour=gpus.colour(row["machine"] if gpus.noun == "machine" else row["gpu"]))
        for row in rows
    )  # fmt: skip
    why = "energy not read" if name == "per_joule" else "no price"
    bars += tuple(Bar(label=gpu, problem=why, colour=gpus.colour(gpu)) for gpu in answers.without_worth(gpus, job, rows))
    items, currency = rows[0]["unit"], gpus.price_list.currency
    unit = {
        "per_joule": f"{items} per joule", "cost": f"{currency} per million {items}",
        "per_price": f"{items}/s per 1000 {currency}",
    }[name]  # fmt: skip
    title = f"{words.model(rows[0]['model'])}, {answers.setting(rows[0])}"
    return Panel(title=title, unit=unit, rows=bars, high=scale_of(bars), kind="per")


__all__ = ["ComparedGpus", "Gpus", "shown"]


MOST = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """A table of GPUs over GPUs. `cells`: by row, for each column ratio, interval, verdict in words and colour."""

    gpus: tuple[str, ...]
    cells: tuple[tuple[tuple[str, str, str, str], ...], ...]
    left_out: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedGpus:
    """The default view of machines. `charts`: in the page's order; `pairs`: every pair of GPUs, None for a single one."""

    answers: Answers
    charts: tuple[Chart, ...]
    pairs: Pairs | None


def shown(gpus: Gpus) -> ComparedGpus:
    """Build the default view of a page of machines."""
    charts = relative(gpus), throughput(gpus), scaling(gpus), worth(gpus)
    return ComparedGpus(answers=answers.answers(gpus), charts=tuple(chart for chart in charts if chart), pairs=pairs(gpus))


def pairs(gpus: Gpus) -> Pairs | None:
    """Compare every pair on the fewest devices; None for fewer than two GPUs with a figure."""
    names = gpus.order[:MOST]
    if len(names) < 2 or not gpus.counts:
        return None
    cells = tuple(tuple(_cell(gpus, gpu, over) for over in names) for gpu in names)
    return Pairs(gpus=tuple(names), cells=cells, left_out=len(gpus.order) - len(names))


def _cell(gpus: Gpus, gpu: str, over: str) -> tuple[str, str, str, str]:
    if gpu == over:
        return "1×", "", "", ""
    mean = gpus.mean(gpu, over, gpus.least)
    if mean is None:
        return "–", "", "not compared", ""
    value = mean.interval
    limits = words.effect_interval(value.value, value.low, value.high)
    colour = {"FASTER": "good", "SLOWER": "bad"}.get(mean.verdict, "")
    return words.effect(value.value, value.low, value.high), limits, words.verdict(mean.verdict), colour
