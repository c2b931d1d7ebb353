"""What a launch yields: every figure that is compared, judged and tabulated, by name. A new one is one entry in METRICS."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torchmatrix.facts.launch import Launch, throughput
from torchmatrix.facts.parts import END_TO_END, LATENCY
from torchmatrix.ground.errors import BadInput

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """`of`: its value for a launch, NaN if it has none; `column`: where a launch's row has it, "" if it is one of requests.

    `unit`: as stored ({unit}: the items' name); in tables as `shown_unit`, `times` as much. `more_is_better`: else less is.
    `gated`: whether `gate` judges it. `definition`: its key in the glossary.
    """

    name: str
    title: str
    unit: str
    shown_unit: str
    of: Callable[[Launch], float]
    definition: str
    column: str = ""
    times: float = 1.0
    more_is_better: bool = True
    gated: bool = False

    def speed(self, value: float) -> float:
        """What grows as the metric gets better: the value, or where less is better its inverse."""
        return value if self.more_is_better else 1 / value if value else math.nan

    def said(self, unit: str) -> str:
        """The unit of tables for a workload's items."""
        return self.shown_unit.format(unit=unit)


def served(launch: Launch, kind: str) -> list[float]:
    """Seconds of each request of one kind that an ok launch served, all ranks together, the shortest first."""
    if launch.outcome != "ok":
        return []
    return sorted(seconds for one in launch.requests if one.kind == kind for seconds in one.seconds)


def percentile(ordered: Sequence[float], share: int) -> float:
    """The nearest rank: the smallest value that `share` per cent of all don't exceed (ISO 3534-1 calls it a sample quantile).

    NaN for fewer values than show one beyond it: 2 for the median, 10 for the 90th, 100 for the 99th; 1 for the largest.
    """
    fewest = 100 / (100 - share) if share < 100 else 1
    return ordered[math.ceil(share * len(ordered) / 100) - 1] if len(ordered) >= fewest else math.nan


def _of_requests(kind: str, share: int, launch: Launch) -> float:
    return percentile(served(launch, kind), share)


def _requests(kind: str, definition: str, title: str) -> list[Metric]:
    words = {"max": "longest"}
    return [
        Metric(
            name=f"{definition}_{name}", title=f"{title} ({words.get(name, name)})", unit="seconds",
            shown_unit="ms", times=1000.0, of=partial(_of_requests, kind, share), more_is_better=False, gated=name == "p50",
            definition=definition,
        )
        for name, share in PERCENTILES.items()
    ]  # fmt: skip


THROUGHPUT = Metric(
    name="throughput", title="throughput", unit="{unit}/s", shown_unit="{unit}/s", of=throughput, definition="throughput",
    column="throughput", gated=True,
)  # fmt: skip
OF_REQUESTS = {
    LATENCY: tuple(_requests(LATENCY, "latency", "latency")),
    END_TO_END: tuple(_requests(END_TO_END, "end_to_end", "end-to-end latency")),
}
"""By the kind of request."""
METRICS = (THROUGHPUT, *OF_REQUESTS[LATENCY], *OF_REQUESTS[END_TO_END])
BY_NAME = {metric.name: metric for metric in METRICS}
GATED = tuple(metric for metric in METRICS if metric.gated)


def named(name: str) -> Metric:
    """Raises BadInput for a name that isn't one."""
    if name not in BY_NAME:
        raise BadInput(f'unknown metric "{name}"', hint=f"one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def requests_of(launch: Launch) -> dict[str, float] | None:
    """By name each metric of a launch's requests, in seconds, and under "requests" how many of each kind; None without any."""
    if launch.outcome != "ok" or not launch.requests:
        return None
    ordered = {kind: served(launch, kind) for kind in OF_REQUESTS}
    found = {"requests": float(min(map(len, ordered.values())))}
    for kind, metrics in OF_REQUESTS.items():
        for metric, share in zip(metrics, PERCENTILES.values(), strict=True):
            found[metric.name] = percentile(ordered[kind], share)
    return found


def value_in(row: Mapping[str, Any], metric: Metric) -> float:
    """Of a launch's row (launch_row.py); NaN if it has none."""
    found = row[metric.column] if metric.column else (row["requests"] or {}).get(metric.name)
    return math.nan if found is None else float(found)
