"""Draw what a result takes: energy and cost of items, and the share of the devices' peak that they reach."""

import math

from torchmatrix.analysis.prices import PriceList
from torchmatrix.core.formatting import is_known
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import BarRow as Bar
from torchmatrix.reporting.charts import Chart, Panel, scale_of
from torchmatrix.reporting.explorers.data import ShownCell
from torchmatrix.reporting.overview import answers
from torchmatrix.reporting.overview.cells import Cells, grouped

# Energy and cost: items per joule and the cost of a million items, per model at three settings.

MOST_MODELS_OF_ENERGY = 6


def energy_chart(cells: Cells, price_list: PriceList) -> Chart | None:
    """Draw energy and cost; None where neither energy nor a price is known."""
    rows = [row for row in cells.rows if row.n and (is_known(row.per_joule) or answers.cost_of_million(row) is not None)]
    if not rows:
        return None
    jobs = grouped(rows, lambda row: (row.mode, row.model))
    joules = any(is_known(row.per_joule) for row in rows)
    costs = any(answers.cost_of_million(row) is not None for row in rows)
    subs = [
        "Power: the mean of the devices in the timed windows, without the rest of the server. Columns: throughput, power, "
        "items per joule." if joules else "",
        _cost_formula(cells, price_list) if costs else "",
    ]  # fmt: skip
    panels = [panel for job in jobs[:MOST_MODELS_OF_ENERGY] for panel in _energy_panels(cells, job, price_list.currency)]
    return Chart(
        id="energy", nav="Energy and cost", title=_energy_title(cells, jobs[0], joules), sub=" ".join(filter(None, subs)),
        panels=tuple((panel,) for panel in panels), more=words.more(len(jobs) - MOST_MODELS_OF_ENERGY, "models"),
    )  # fmt: skip


def _cost_formula(cells: Cells, price_list: PriceList) -> str:
    """Write how a cost follows from what was measured and from the list."""
    priced = price_list.formulas(cells.dims["gpu"].labels)
    power = any(not math.isnan(price.electricity) for price in price_list.prices.values())
    energy = " + energy per item × price of electricity" if power else ""
    return f"Cost = devices × price per hour / items per hour{energy}. {'; '.join(priced)}."


def _energy_title(cells: Cells, job: list[ShownCell], joules: bool) -> str:
    """Compare the least and the most energy per item of the first model."""
    if not joules:
        return "What a million items cost"
    rows = [row for row in _economical(cells, job) if is_known(row.per_joule)]
    if len(rows) < 2:
        return "Items per joule"
    first, best = rows[0], max(rows, key=lambda row: row.per_joule)
    share = words.percent(first.per_joule / best.per_joule)
    if best is first:
        return f"{cells.model(first)}: {cells.settings(first)} takes the least energy"
    return f"{cells.model(first)}: {cells.settings(best)} takes {share} of the energy of {cells.settings(first)}"


def _economical(cells: Cells, job: list[ShownCell]) -> list[ShownCell]:
    """Return the rows to draw on the stack and devices on which a joule yields most, or items cost least: the answer's."""
    return _rows_to_draw(cells, job, answers.most_economical(job) or cells.best(job))


def _rows_to_draw(cells: Cells, job: list[ShownCell], best: ShownCell | None) -> list[ShownCell]:
    """Return a cell for each precision and engine on the stack and devices of `best`; of generation for each batch, too."""
    assert best is not None
    same = [
        row for row in job if all(row.value(name) == best.value(name) for name in ("gpu", "machine", "stack", "devices", "set"))
    ]
    chosen = same if cells.is_generation(best) else cells.like(same, best)
    return sorted(chosen, key=lambda row: (row.precision, row.runtime, row.compile, row.bs))


def _label(cells: Cells, row: ShownCell) -> str:
    return f"{cells.settings(row)}, bs{words.SPACE}{row.bs}" if cells.is_generation(row) else cells.settings(row)


def _energy_panels(cells: Cells, job: list[ShownCell], currency: str) -> tuple[Panel, ...]:
    """Return a panel of items per joule and one of costs, as far as they are known, of the same cells."""
    rows = _economical(cells, job)
    where = f"{cells.who(rows[0])}, {cells.place(rows[0])}"
    panels = (
        (f"{rows[0].unit} per joule, {where}", "energy", tuple(_energy_bar(cells, row) for row in rows)),
        (f"{currency} per million {rows[0].unit}, {where}", "cost", tuple(_cost_bar(cells, row, currency) for row in rows)),
    )
    return tuple(
        Panel(title=cells.model(rows[0]), unit=unit, rows=bars, high=scale_of(bars), kind=kind)
        for unit, kind, bars in panels
        if any(bar.value is not None for bar in bars)
    )


def _energy_bar(cells: Cells, row: ShownCell) -> Bar:
    figures = (
        words.with_unit(row.rate, f"{row.unit}/s"),
        words.with_unit(row.watts, "W"),
        words.short(row.per_joule),
        words.rate_interval(row.per_joule, row.per_joule_low, row.per_joule_high),
    )
    return Bar(
        label=_label(cells, row), value=row.per_joule, low=row.per_joule_low, high=row.per_joule_high,
        figures=figures, colour=row.stack, marks=cells.marks.get(row.place, ()),
    )  # fmt: skip


def _cost_bar(cells: Cells, row: ShownCell, currency: str) -> Bar:
    cost, (low, high) = answers.cost_of_million(row), answers.ends_of_million(row)
    rate, limits = words.with_unit(row.rate, f"{row.unit}/s"), words.rate_interval(cost or math.nan, low, high)
    return Bar(
        label=_label(cells, row), value=cost, low=low, high=high, figures=(rate, words.money(cost, currency), limits),
        colour=row.stack, marks=cells.marks.get(row.place, ()),
    )  # fmt: skip


# The share of the peak (MFU), per model at the best cell's stack and devices.

MOST_MODELS_OF_UTILIZATION = 6


def utilization_chart(cells: Cells) -> Chart | None:
    """Draw the model FLOPs over the devices' peaks; None where no cell has both."""
    rows = [row for row in cells.rows if row.n and is_known(_share(row))]
    if not rows:
        return None
    jobs = grouped(rows, lambda row: (row.mode, row.model))
    best = cells.best(jobs[0])
    assert best is not None
    formula = "MFU by PaLM's formula, " if any(is_known(row.mfu_by_formula) for row in rows) else ""
    share = words.percent(_share(best), 0 if _share(best) >= 0.1 else 1)
    return Chart(
        id="utilization",
        nav="Share of the peak",
        title=f"{cells.model(best)}: {cells.settings(best)} reaches {share} of its peak",
        sub="MFU: FLOPs that the model needs over what the devices could do meanwhile by their data sheet, in the precision "
        f"that ran; weighted where several did. Columns: FLOP/s of each device, {formula}MFU by counted FLOPs.",
        panels=tuple((_utilization_panel(cells, job),) for job in jobs[:MOST_MODELS_OF_UTILIZATION]),
        more=words.more(len(jobs) - MOST_MODELS_OF_UTILIZATION, "models"),
    )  # fmt: skip


def _share(row: ShownCell) -> float:
    """Return the MFU by counted FLOPs, else by the formula."""
    return float(row.mfu if is_known(row.mfu) else row.mfu_by_formula or math.nan)


def _utilization_panel(cells: Cells, job: list[ShownCell]) -> Panel:
    rows = _rows_to_draw(cells, job, cells.best(job))
    bars = tuple(_utilization_bar(cells, row) for row in rows)
    unit = f"share of the peak, {cells.who(rows[0])}, {cells.place(rows[0])}"
    return Panel(title=cells.model(rows[0]), unit=unit, rows=bars, high=scale_of(bars), kind="energy")


def _utilization_bar(cells: Cells, row: ShownCell) -> Bar:
    by = "mfu" if is_known(row.mfu) else "mfu_by_formula"
    value, low, high = (row.value(f"{by}{end}") for end in ("", "_low", "_high"))
    formula = words.percent(row.mfu_by_formula, 1) if is_known(row.mfu_by_formula) else ""
    flops = words.with_unit(row.flops / 1e12, "TFLOP/s") if is_known(row.flops) else ""
    shown = words.percent(row.mfu, 1) if is_known(row.mfu) else ""
    return Bar(
        label=_label(cells, row), value=value, low=low, high=high, colour=row.stack,
        figures=(flops, formula, shown, words.share_interval(low, high)), marks=cells.marks.get(row.place, ()),
    )  # fmt: skip
