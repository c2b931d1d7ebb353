"""The figures of each cell: throughput, what it costs, latency, scatter, scaling; and which of them bars can show."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from torchmatrix.analysis import prices
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.intervals import moments
from torchmatrix.analysis.latency import latency_rows
from torchmatrix.analysis.metrics import BY_NAME, OF_REQUESTS, PERCENTILES
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.tables import records
from torchmatrix.ground.numbers import in_digits, is_known

Row = dict[str, Any]
"""A cell: for each dimension the index of its value, and its figures; None is unknown."""


def rounded(value: float | None, digits: int = 5) -> float | int | None:
    """A number to place a mark by; None for what is unknown."""
    return in_digits(value, digits) if value is not None and math.isfinite(value) else None


def key_of(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("machine", "")), str(row["cell"])


def figures(row: Row, held: PriceList) -> Row:
    energy, memory = row["energy_per_item"], row["peak_bytes"]
    return {
        "cell": row["cell"], "N": int(row["count"]), "n": int(row["n"]), "failed": int(row["failed"]),
        "outcome": "ok" if row["n"] else row["outcome"], "unit": row["unit"], "bs": row["batch"],
        "rate": row["throughput"], "low": row["low"], "high": row["high"],
        "per_joule": 1 / energy if is_known(energy) and energy else math.nan, "watts": row["power_watts"],
        "memory": memory / 2**30, "purchase": prices.cost(held, row, "purchase"), "hour": prices.cost(held, row, "per_hour"),
    }  # fmt: skip


def spread(launches: pd.DataFrame) -> dict[tuple[str, str], Row]:
    """Of each cell with two ok launches or more: the logarithm of its throughput, and its squared error."""
    samples: dict[tuple[str, str], list[float]] = {}
    machines = launches["machine"] if "machine" in launches else [""] * len(launches)
    statistics: dict[tuple[str, str], str] = {}
    columns = [launches[name] for name in ("cell", "outcome", "throughput", "statistic")]
    for machine, cell, outcome, rate, statistic in zip(machines, *columns, strict=True):
        if outcome == "ok":
            samples.setdefault((machine, cell), []).append(float(rate))
            statistics[machine, cell] = statistic
    several = {key: rates for key, rates in samples.items() if len(rates) > 1}
    return {
        key: dict(zip(("center", "error"), moments(rates, statistics[key])[:2], strict=True)) for key, rates in several.items()
    }


def served(launches: pd.DataFrame) -> dict[tuple[str, str], Row]:
    """Of each cell that served requests, by metric: its percentiles in seconds, with their limits."""
    with_requests = launches[launches["requests"].notna()] if len(launches) else launches
    rows = records(with_requests) if len(with_requests) else []
    found: dict[tuple[str, str], Row] = {}
    for kind, metrics in OF_REQUESTS.items():
        named = [(part, metric.name) for part, metric in zip(PERCENTILES, metrics, strict=True) if metric in REQUESTS]
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
    yield Metric(name="throughput", title="throughput", unit="{unit}/s", note="", column="rate", limits=_OF_RATE)
    for metric in (*_LATENCY, *_POWER, *_money(currency), _MEMORY):
        if any(row["n"] and row.get(metric.over or metric.column) is not None for row in rows):
            yield metric


_OF_RATE = ("low", "high")
REQUESTS = tuple(BY_NAME[name] for name in ("latency_p50", "latency_p99", "end_to_end_p50", "end_to_end_p99"))
"""Of the percentiles those that bars show; a table has all."""
_LATENCY = tuple(
    Metric(
        name=one.name, title=one.title, unit=one.shown_unit, note=DEFINITIONS[one.definition] if "p50" in one.name else "",
        column=one.name, times=one.times, limits=(f"{one.name}_low", f"{one.name}_high"),
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
    column="memory",
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
