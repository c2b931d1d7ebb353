"""Scaling: what several devices do of the work of one, for each model; beside it the efficiency of every stack."""

from collections.abc import Sequence

from torchmatrix.analysis.rows import Row
from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import Chart, Panel
from torchmatrix.reporting.charts.rows import Row as Bar
from torchmatrix.reporting.charts.ticks import round_values
from torchmatrix.reporting.overview.cells import Cells, grouped, span

MOST_MODELS, MOST_SERIES = 6, 12


def chart(cells: Cells) -> Chart | None:
    """None without a cell on several devices that has a speed-up."""
    known = [row for row in cells.rows if row["S"] is not None]
    if not known:
        return None
    most = max(row["N"] for row in known)
    jobs = [job for job in cells.jobs if any(row["S"] is not None for row in job)]
    ends = [row for row in known if row["N"] == most]
    noun = f"{cells.device(ends[0])}s"
    low = min(0.9, *(row["S_low"] or row["S"] for row in ends)) if most > 1 else 0.9
    every = [row["S"] / row["N"] for row in ends]
    return Chart(
        id="scaling",
        title=f"{most} {noun} do {span([row['S'] for row in ends], words.ratio)} the work of one",
        sub=f"Beside each bar: throughput, multiple of one, and efficiency, the multiple over the number of {noun}. "
        "Dashed: the ideal. Grey: what is missing from it.",
        panels=tuple(_panels(cells, job, most, _floor([*every, low / most if low > 1 else low])) for job in jobs[:MOST_MODELS]),
        more="; ".join(filter(None, (_models_left(jobs), _lines_left(jobs[:MOST_MODELS], most)))),
    )  # fmt: skip


def _models_left(jobs: Sequence[Sequence[Row]]) -> str:
    return f"{len(jobs) - MOST_MODELS} more models" if len(jobs) > MOST_MODELS else ""


def _lines_left(jobs: Sequence[Sequence[Row]], most: int) -> str:
    """How many cells on the most devices stand only in the table of all scale factors."""
    lines = [sum(row["S"] is not None and row["N"] == most for row in job) for job in jobs]
    left = sum(max(0, count - MOST_SERIES) for count in lines)
    return f"{left} more settings" if left else ""


def _floor(values: Sequence[float]) -> float:
    """Where the axis of efficiencies begins: a multiple of 10 % below all of them."""
    return max(0.0, int(min(values) * 10 - 0.5) / 10)


def _panels(cells: Cells, job: Sequence[Row], most: int, floor: float) -> tuple[Panel, ...]:
    ends = [row for row in job if row["S"] is not None]
    here = max(row["N"] for row in ends)
    best = max((row for row in ends if row["N"] == here), key=lambda row: row["rate"])
    series = _series(cells, job, best)
    bars = tuple(_bar(cells, row, best) for row in series)
    of = _beside(cells, [row for row in ends if row["N"] == here], best)
    top = max(1.02, *((row["S_high"] or row["S"]) / row["N"] for row in of))
    ticks = tuple((share, words.percent(share)) for share in round_values(floor, 1.0, 4))
    return (
        Panel(title=f"{cells.model(best)}, {cells.settings(best)}", unit=f"{best['unit']}/s, {cells.who(best)}", rows=bars,
              high=float(most), kind="scale"),
        Panel(title=f"{cells.model(best)}: efficiency on {cells.label(best, 'devices')}", unit="share of the ideal",
              rows=tuple(_dot(cells, row, of) for row in of), low=floor, high=min(top, 1.2), kind="eff", ticks=ticks),
    )  # fmt: skip


def _beside(cells: Cells, rows: Sequence[Row], best: Row) -> list[Row]:
    """The other stacks with the settings of the best cell; of a single stack its other settings."""
    same = [row for row in rows if cells.settings(row) == cells.settings(best)]
    found = sorted(same, key=cells.age) if len(same) > 1 else sorted(rows, key=lambda row: -row["rate"])
    return found[:MOST_SERIES]


def _series(cells: Cells, job: Sequence[Row], best: Row) -> list[Row]:
    """The cells of the best one's line: one for each number of devices."""
    names = [name for name in cells.dims if name not in ("devices", "set")]
    same = [row for row in job if row["n"] and all(row[name] == best[name] for name in names)]
    first = [some[0] for some in grouped(same, lambda row: row["N"])]
    return sorted(first, key=lambda row: row["N"])


def _bar(cells: Cells, row: Row, best: Row) -> Bar:
    count = row["S"] if row["S"] is not None else 1.0 if row["N"] == 1 else None
    figures = (words.short(row["rate"]), words.ratio(count) if row["N"] > 1 else "1×")
    efficiency = words.percent(count / row["N"]) if count is not None and row["N"] > 1 else ""
    marks = (("impossible", "above 102 % of the ideal: look for a wrong baseline"),) if row["impossible"] else ()
    return Bar(
        label=cells.label(row, "devices"), value=count, low=row["S_low"], high=row["S_high"], ideal=float(row["N"]),
        figures=(*figures, efficiency), colour=best["stack"], marks=(*marks, *cells.marks.get(row["place"], ())),
    )  # fmt: skip


def _dot(cells: Cells, row: Row, beside: Sequence[Row]) -> Bar:
    n = row["N"]
    value, low, high = (None if row[name] is None else row[name] / n for name in ("S", "S_low", "S_high"))
    assert value is not None
    half = f"±{words.THIN}{50 * (high - low):.1f}" if low is not None and high is not None else ""
    names = (cells.who, cells.settings)
    varied = [name(row) for name in names if len({name(one) for one in beside}) > 1] or [cells.settings(row)]
    return Bar(
        label=" · ".join(varied), value=value, low=low, high=high, shape="dot", colour=row["stack"],
        figures=(f"{words.percent(value, 1)} {half}".strip(),), note=f"{cells.value(row, 'stack')}, {cells.settings(row)}",
    )  # fmt: skip
