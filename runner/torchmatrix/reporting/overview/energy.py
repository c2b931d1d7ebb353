"""Energy and cost: items per joule, and what a million items cost, for each model at three settings."""

from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import Row
from torchmatrix.ground.formatting import is_known
from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import Chart, Panel, scale_of
from torchmatrix.reporting.charts.rows import Row as Bar
from torchmatrix.reporting.overview import answers
from torchmatrix.reporting.overview.cells import Cells, grouped

MOST_MODELS = 6


def chart(cells: Cells, held: PriceList) -> Chart | None:
    """None where neither energy nor a price is known."""
    known = [row for row in cells.rows if row["n"] and (is_known(row["per_joule"]) or answers.cost_of_million(row) is not None)]
    if not known:
        return None
    jobs = grouped(known, lambda row: (row["mode"], row["model"]))
    panels = [_panel(cells, job, held) for job in jobs[:MOST_MODELS]]
    joules = any(is_known(row["per_joule"]) for row in known)
    price = f" Cost at {held.currency} per device and hour from the price list." if held.currency else ""
    return Chart(
        id="energy", title=_title(cells, jobs[0], joules),
        sub="Power: the mean of the devices in the timed windows, without the rest of the server. Columns: throughput, power, "
        f"items per joule{', price of a million items' if held.currency else ''}.{price}",
        panels=tuple((panel,) for panel in panels),
        more=f"{len(jobs) - MOST_MODELS} more models" if len(jobs) > MOST_MODELS else "",
    )  # fmt: skip


def _title(cells: Cells, job: list[Row], joules: bool) -> str:
    """The least and the most energy per item of the first model."""
    if not joules:
        return "What a million items cost"
    rows = [row for row in _rows(cells, job) if is_known(row["per_joule"])]
    if len(rows) < 2:
        return "Items per joule"
    first, best = rows[0], max(rows, key=lambda row: row["per_joule"])
    share = words.percent(first["per_joule"] / best["per_joule"])
    if best is first:
        return f"{cells.model(first)}: {cells.settings(first)} takes the least energy"
    return f"{cells.model(first)}: {cells.settings(best)} takes {share} of the energy of {cells.settings(first)}"


def _rows(cells: Cells, job: list[Row]) -> list[Row]:
    """Of the best cell's stack and devices one cell for each precision and engine."""
    best = cells.best(job)
    assert best is not None
    same = [row for row in job if all(row[name] == best[name] for name in ("gpu", "machine", "stack", "devices", "set"))]
    return sorted(cells.like(same, best), key=lambda row: (row["precision"], row["runtime"], row["compile"]))


def _panel(cells: Cells, job: list[Row], held: PriceList) -> Panel:
    rows = _rows(cells, job)
    bars = tuple(_bar(cells, row, held) for row in rows)
    unit = rows[0]["unit"]
    what = f"{cells.who(rows[0])}, {cells.place(rows[0])}"
    return Panel(title=cells.model(rows[0]), unit=f"{unit} per joule, {what}", rows=bars, high=scale_of(bars), kind="energy")


def _bar(cells: Cells, row: Row, held: PriceList) -> Bar:
    cost = answers.cost_of_million(row)
    figures = [
        words.with_unit(row["rate"], f"{row['unit']}/s"),
        words.with_unit(row["watts"], "W") if is_known(row["watts"]) else "",
        words.short(row["per_joule"]) if is_known(row["per_joule"]) else "",
    ]
    figures += [words.money(cost, held.currency) if cost is not None else ""] if held.currency else []
    value = row["per_joule"] if is_known(row["per_joule"]) else None
    return Bar(
        label=cells.settings(row), value=value, figures=tuple(figures), colour=row["stack"],
        marks=cells.marks.get(row["place"], ()),
    )  # fmt: skip
