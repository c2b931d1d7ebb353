"""The figures that a page carries of each cell: throughput, what it costs, latency, scatter, scaling."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from torchmatrix.analysis import prices
from torchmatrix.analysis.intervals import moments
from torchmatrix.analysis.latency import latency_rows
from torchmatrix.analysis.metrics import OF_REQUESTS, PERCENTILES
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.tables import records
from torchmatrix.ground.numbers import is_known
from torchmatrix.reporting.explorers.metrics import REQUESTS
from torchmatrix.reporting.explorers.nouns import Row


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
