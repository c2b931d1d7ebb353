"""What the bars of the throughput explorer can show."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchmatrix.analysis import metrics
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.reporting.explorers.nouns import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """What bars can show: a column times `times`, over the column `over`. `unit`: {unit} is the items' name.

    `limits`: the columns of its interval, or () without one. `least`: whether less is better.
    """

    name: str
    title: str
    unit: str
    note: str
    column: str
    times: float = 1.0
    over: str | None = None
    limits: tuple[str, ...] = ()
    least: bool = False


def metrics_of(rows: Sequence[Row], currency: str) -> Iterable[Metric]:
    """Throughput, and what else is known of some cell."""
    yield Metric(name="throughput", title="throughput", unit="{unit}/s", note="", column="rate", limits=_OF_RATE)
    for metric in (*_LATENCY, *_POWER, *_money(currency), _MEMORY):
        if any(row["n"] and row.get(metric.over or metric.column) is not None for row in rows):
            yield metric


_OF_RATE = ("low", "high")
REQUESTS = tuple(metrics.BY_NAME[name] for name in ("latency_p50", "latency_p99", "end_to_end_p50", "end_to_end_p99"))
"""Of the percentiles those that bars show; a table has all."""
_LATENCY = tuple(
    Metric(
        name=one.name, title=one.title, unit=one.shown_unit, note=DEFINITIONS[one.definition] if "p50" in one.name else "",
        column=one.name, times=one.times, limits=(f"{one.name}_low", f"{one.name}_high"), least=True,
    )
    for one in REQUESTS
)  # fmt: skip
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
            note=DEFINITIONS["per_price"], column="rate", times=1000.0, over="purchase", limits=_OF_RATE,
        ),
        Metric(
            name="per_rent", title=f"per {currency}", unit=f"{{unit}} per {currency}", note=DEFINITIONS["per_rent"],
            column="rate", times=3600.0, over="hour", limits=_OF_RATE,
        ),
    )  # fmt: skip
