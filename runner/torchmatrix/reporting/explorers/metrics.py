"""What the bars of the throughput explorer can show."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.reporting.explorers.choosing import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """What bars can show: a column times `times`, over the column `over`. `unit`: {unit} is the items' name.

    `interval`: whether the throughput's interval carries over. `least`: whether less is better.
    """

    name: str
    title: str
    unit: str
    note: str
    column: str
    times: float = 1.0
    over: str | None = None
    interval: bool = False
    least: bool = False


def metrics_of(rows: Sequence[Row], currency: str) -> Iterable[Metric]:
    """Throughput, and what else is known of some cell."""
    yield Metric(name="throughput", title="throughput", unit="{unit}/s", note="", column="rate", interval=True)
    for metric in (*_POWER, *_money(currency), _MEMORY):
        if any(row["n"] and row[metric.over or metric.column] is not None for row in rows):
            yield metric


_POWER = (
    Metric(name="per_joule", title="per joule", unit="{unit} per joule", note=DEFINITIONS["per_joule"], column="per_joule"),
    Metric(
        name="per_watt", title="per watt", unit="{unit}/s per watt", note=DEFINITIONS["per_watt"], column="rate", over="watts"
    ),
)
_MEMORY = Metric(
    name="memory", title="peak memory", unit="GiB", note="Peak memory: that of the largest process, after warm-up.",
    column="memory", least=True,
)  # fmt: skip


def _money(currency: str) -> tuple[Metric, ...]:
    return (
        Metric(
            name="per_price", title=f"per 1000 {currency}", unit=f"{{unit}}/s per 1000 {currency}",
            note=DEFINITIONS["per_price"], column="rate", times=1000.0, over="purchase", interval=True,
        ),
        Metric(
            name="per_rent", title=f"per {currency}", unit=f"{{unit}} per {currency}", note=DEFINITIONS["per_rent"],
            column="rate", times=3600.0, over="hour", interval=True,
        ),
    )  # fmt: skip


Measure: TypeAlias = Callable[[Row], tuple[float | None, float | None, float | None]]


def measure(metric: Metric) -> Measure:
    """A cell's row -> its figure with its limits."""

    def of(row: Row) -> tuple[float | None, float | None, float | None]:
        over = row[metric.over] if metric.over else 1.0

        def scaled(value: float | None) -> float | None:
            return value * metric.times / over if value is not None and over else None

        limits = (scaled(row["low"]), scaled(row["high"])) if metric.interval else (None, None)
        return scaled(row[metric.column]) if row["n"] else None, *limits

    return of
