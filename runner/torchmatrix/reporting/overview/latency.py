"""Inference: the percentiles of requests as dots on one axis, throughput beside them."""

import math

from torchmatrix.analysis.rows import Row
from torchmatrix.ground.formatting import is_known, number_or_nan
from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import Chart, Panel, scale_of
from torchmatrix.reporting.charts.rows import Row as Dot
from torchmatrix.reporting.charts.ticks import round_values
from torchmatrix.reporting.overview.cells import Cells, grouped

MOST_ROWS = 24


def chart(cells: Cells) -> Chart | None:
    """None without a cell that served requests."""
    known = [row for row in cells.rows if row["n"] and is_known(row.get("latency_p50"))]
    if not known:
        return None
    jobs = grouped(known, lambda row: row["model"])
    ends = [1e3 * row[name] for row in known for name in ("latency_p50", "latency_p99") if is_known(row.get(name))]
    low, high = min(ends) / 1.15, max(ends) * 1.15
    fastest = min(known, key=lambda row: row["latency_p50"])
    return Chart(
        id="latency",
        title=_title(cells, fastest),
        sub="Time of single requests on the device, one after the other; logarithmic scale. Dot: the median request; "
        "line: to the 99th percentile. Beside it the throughput of the same cells.",
        panels=tuple(_panels(cells, job, low, high) for job in jobs),
        more=f"{more} more cells" if (more := sum(max(0, len(job) - MOST_ROWS) for job in jobs)) else "",
    )  # fmt: skip


def _title(cells: Cells, row: Row) -> str:
    """The median request of the cell whose median is lowest, and its 99th percentile, which takes 100 requests."""
    said = f"{cells.model(row)}: half of the requests within {words.with_unit(1e3 * row['latency_p50'], 'ms')}"
    p99 = number_or_nan(row.get("latency_p99"))
    return said if math.isnan(p99) else f"{said}, 99 of 100 within {words.with_unit(1e3 * p99, 'ms')}"


def _panels(cells: Cells, job: list[Row], low: float, high: float) -> tuple[Panel, Panel]:
    """Latency, and in the same order throughput."""
    rows = sorted(job, key=lambda row: row["latency_p50"])[:MOST_ROWS]
    bars = tuple(_bar(cells, row) for row in rows)
    ticks = tuple((value, f"{value:g}{words.THIN}ms") for value in round_values(low, high, is_log=True))
    top = scale_of(bars)
    rates = tuple((value, f"{value:g}") for value in round_values(0.0, top, 3))
    name = cells.label(job[0], "model")
    return (
        Panel(title=f"{name}: latency", unit="milliseconds", rows=tuple(_dot(cells, row) for row in rows), low=low, high=high,
              is_log=True, kind="latency", ticks=ticks),
        Panel(title=f"{name}: throughput", unit=f"{rows[0]['unit']}/s", rows=bars, high=top, kind="latency",
              ticks=rates),
    )  # fmt: skip


def _dot(cells: Cells, row: Row) -> Dot:
    p50, p99 = (1e3 * row[name] if is_known(row.get(name)) else math.nan for name in ("latency_p50", "latency_p99"))
    figures = (words.with_unit(p50, "ms"), "" if math.isnan(p99) else words.with_unit(p99, "ms"))
    return Dot(label=_label(cells, row), value=p50, low=p50,
               high=None if math.isnan(p99) else p99, shape="dot", colour=row["stack"], figures=figures,
               marks=cells.marks.get(row["place"], ()))  # fmt: skip


def _bar(cells: Cells, row: Row) -> Dot:
    limits = words.rate_interval(row["rate"], row["low"], row["high"])
    return Dot(label=_label(cells, row), value=row["rate"], low=row["low"], high=row["high"], colour=row["stack"],
               figures=(words.short(row["rate"]), limits))  # fmt: skip


def _label(cells: Cells, row: Row) -> str:
    return f"{cells.who(row)}, {cells.settings(row)}, bs{words.THIN}{row['bs']}"
