"""The figures of each cell: throughput, what it costs, latency, scatter, scaling; and which of them bars can show."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis import prices
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.metrics import METRICS, OF_ALL_REQUESTS, OF_REQUESTS, PERCENTILES, THROUGHPUT
from torchmatrix.analysis.metrics import Metric as OfLaunch
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import Row
from torchmatrix.analysis.time_split import latency_rows
from torchmatrix.ground.formatting import in_digits


def rounded(value: float | None, digits: int = 5) -> float | int | None:
    """A number to place a mark by; None for what is unknown."""
    return in_digits(value, digits) if value is not None and math.isfinite(value) else None


def key_of(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("machine", "")), str(row["cell"])


def figures(row: Row, held: PriceList) -> Row:
    return {metric.name: row[metric.column] for metric in DRAWN if metric not in _APART} | {
        "cell": row["cell"], "N": int(row["count"]), "n": int(row["n"]), "failed": int(row["failed"]),
        "outcome": "ok" if row["n"] else row["outcome"], "unit": row["unit"], "bs": row["batch"],
        "rate": row["throughput"], "low": row["low"], "high": row["high"],
        "watts": row["power_watts"],
        "purchase": prices.cost(held, row, "purchase"), "hour": prices.cost(held, row, "per_hour"),
    }  # fmt: skip


def served(launches: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """Of each cell that served requests, by metric: its percentiles in seconds, with their limits."""
    rows = [row for row in launches if row["requests"]]
    found: dict[tuple[str, str], Row] = {}
    for kind, metrics in OF_REQUESTS.items():
        named = [(part, metric.name) for part, metric in zip(PERCENTILES, metrics, strict=True) if metric.drawn]
        for row in latency_rows(rows, kind):
            own = {f"{name}{end}": row[f"{part}{end}"] for part, name in named for end in ("", "_low", "_high")}
            found.setdefault(key_of(row), {}).update(own)
    return found


def scaled(row: Mapping[str, Any]) -> Row:
    known = {name: row.get(name, math.nan) for name in ("S", "S_low", "S_high")}
    return known | {"impossible": int(row.get("impossible", False))}


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """What bars can show: a column times `times`, over the column `over`. `unit`: {unit} is the items' name.

    `limits`: the columns of its interval, or () without one.
    """

    name: str
    title: str
    unit: str
    note: str
    column: str
    times: float = 1.0
    over: str | None = None
    limits: tuple[str, ...] = ()

    def of(self, row: Row) -> tuple[float | None, float | None, float | None]:
        """A cell's value with its limits, None where they are unknown."""
        per = row[self.over] if self.over else 1
        columns = (self.column, *(self.limits or ("", "")))
        known = [row.get(name) if row["n"] and per else None for name in columns]
        value, low, high = (None if one is None else one * self.times / per for one in known)
        return value, low, high


def metrics_of(rows: Sequence[Row], currency: str) -> Iterable[Metric]:
    """Throughput, and what else is known of some cell."""
    for metric in (*map(_bar, DRAWN), _PER_WATT, *_money(currency)):
        if any(row["n"] and row.get(metric.over or metric.column) is not None for row in rows):
            yield metric


_OF_RATE = ("low", "high")
DRAWN = tuple(metric for metric in METRICS if metric.drawn)
_APART = frozenset({THROUGHPUT}) | OF_ALL_REQUESTS
"""Those that have intervals, which are not of one row."""
_PER_WATT = Metric(
    name="per_watt", title="per watt", unit="{unit}/s per watt", note=DEFINITIONS["per_watt"], column="rate", over="watts"
)  # fmt: skip


def _bar(metric: OfLaunch) -> Metric:
    """As bars; the definition of percentiles stands at the first of them."""
    said = DEFINITIONS.get(metric.definition, f"{metric.title.capitalize()}: {metric.meaning}.")
    note = "" if metric is THROUGHPUT or "p99" in metric.name else said
    column, limits = (
        ("rate", _OF_RATE) if metric is THROUGHPUT else (metric.name, (f"{metric.name}_low", f"{metric.name}_high"))
    )
    return Metric(
        name=metric.name, title=metric.title, unit=metric.shown_unit, note=note, column=column, times=metric.times,
        limits=limits,
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
