"""Throughput: a row of panels for each model, one for each precision, a bar for each stack, eager and compiled."""

from collections.abc import Sequence

from torchmatrix.analysis.rows import Row
from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import Chart, Panel, scale_of
from torchmatrix.reporting.charts.rows import Row as Bar
from torchmatrix.reporting.overview import answers
from torchmatrix.reporting.overview.cells import Cells, grouped

MOST_MODELS, MOST_BARS = 8, 40
"""More are in the explorer and in the table of all cells."""


def charts(cells: Cells) -> list[Chart]:
    """On the most devices that were measured, then on one."""
    counts = sorted({row["N"] for row in cells.rows if row["n"]} or {row["N"] for row in cells.rows})
    return [_chart(cells, count, number) for number, count in enumerate(dict.fromkeys((counts[-1], counts[0])))]


def _chart(cells: Cells, count: int, number: int) -> Chart:
    jobs = [[row for row in job if row["N"] == count] for job in cells.jobs]
    jobs = [job for job in jobs if job]
    panels, left = [], 0
    for job in jobs[:MOST_MODELS]:
        made, missing = _panels(cells, job)
        panels.append(made)
        left += missing
    shown = {row["stack"]: row for job in jobs for row in job}
    legend = tuple((stack, cells.who(row)) for stack, row in sorted(shown.items(), key=lambda one: cells.age(one[1])))
    more = [f"{len(jobs) - MOST_MODELS} more models" if len(jobs) > MOST_MODELS else "", f"{left} more bars" if left else ""]
    return Chart(
        id="throughput" if not number else "throughput-one",
        title=_title(cells, count),
        sub=f"{_doing(cells)} throughput, items per second, on {_places(cells, jobs)}. Bars start at zero; the panels of a "
        "model share a scale. bs: batch per device. Bold: the fastest, and all not shown to be slower.",
        panels=tuple(panels),
        legend=legend if len(legend) > 1 else (),
        more="; ".join(filter(None, more)),
    )  # fmt: skip


def _doing(cells: Cells) -> str:
    modes = cells.dims["mode"].labels
    return " and ".join(modes).capitalize()


def _places(cells: Cells, jobs: Sequence[Sequence[Row]]) -> str:
    return words.enumerated(dict.fromkeys(cells.place(row) for job in jobs for row in job))


def _title(cells: Cells, count: int) -> str:
    """Who is the fastest at the headline's model, on so many devices."""
    of = [row for row in cells.chosen if row["N"] == count and row["n"]]
    top = max(of, key=lambda row: row["rate"], default=None)
    if top is None:
        return "No cell was measured"
    equal = answers.fastest(cells, top)
    stacks = list(dict.fromkeys(cells.who(row) for row in equal))
    if len(stacks) == 1:
        return f"{cells.model(top)}: {stacks[0]} with {words.enumerated(cells.settings(top).split(', '), 9)} is fastest"
    return f"{cells.model(top)}: {stacks[0]} is highest; no difference shown from {words.enumerated(stacks[1:])}"


def _panels(cells: Cells, job: Sequence[Row]) -> tuple[tuple[Panel, ...], int]:
    """One for each precision, on one scale; how many bars are left out."""
    top = cells.best(job)
    rows = cells.like(job, top or job[0])
    equal = answers.fastest(cells, top) if top else []
    bold = {row["place"] for row in equal} if top and cells.moments(top) else set()
    by_precision = sorted(grouped(rows, lambda row: row["precision"]), key=lambda some: some[0]["precision"])
    shown = [
        sorted(some, key=lambda row: (row["runtime"], row["compile"], cells.age(row)))[:MOST_BARS] for some in by_precision
    ]
    bars = [[_bar(cells, row, before, bold) for before, row in zip([None, *some], some, strict=False)] for some in shown]
    scale = scale_of(bar for some in bars for bar in some)
    unit = f"{top['unit']}/s" if top else ""
    made = tuple(
        Panel(title=f"{cells.model(some[0])}, {cells.precision(some[0])}", unit=unit, rows=tuple(own), high=scale)
        for some, own in zip(shown, bars, strict=True)
    )
    return made, sum(map(len, by_precision)) - sum(map(len, shown))


def _bar(cells: Cells, row: Row, before: Row | None, bold: set[int]) -> Bar:
    engine = cells.engine(row)
    head = engine if before is None or cells.engine(before) != engine else ""
    batch = f"bs{words.THIN}{row['bs']}" if row["n"] else ""
    label = cells.who(row)
    note = f"{cells.value(row, 'stack')}: {cells.settings(row)}, {cells.place(row)} {cells.which(row)}".strip()
    if not row["n"]:
        return Bar(label=label, head=head, colour=row["stack"], problem=words.failed(row["outcome"]), note=note)
    limits = words.rate_interval(row["rate"], row["low"], row["high"])
    return Bar(
        label=label, head=head, colour=row["stack"], value=row["rate"], low=row["low"], high=row["high"],
        figures=(words.short(row["rate"]), limits or ("1 launch" if row["n"] == 1 else ""), batch),
        is_best=row["place"] in bold, marks=cells.marks.get(row["place"], ()), note=note,
    )  # fmt: skip
