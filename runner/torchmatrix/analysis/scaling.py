"""Launches -> tables of scale factors, where the loss comes from, each device alone."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from torchmatrix.analysis import verdicts
from torchmatrix.analysis.centers import median_of
from torchmatrix.analysis.intervals import UNKNOWN, Interval, ratio, ratio_to_sum
from torchmatrix.analysis.lookup import Known

IMPOSSIBLE_EFFICIENCY = 1.02
IMPOSSIBLE_UNTESTED = 1.10
"""Without an interval (one launch, a published figure) scatter, another day or card may explain less. Our own decision."""
WEAK_DEVICE = 0.97
"""A device is called weak if it is slower than this share of the median device of its model, beyond its interval."""
FACTORS = ("E_hetero", "E_corun", "E_ddp", "E_comm")


def scaling_table(launches: pd.DataFrame | Known) -> pd.DataFrame:
    """One row per DDP cell of N > 1 devices with S, E, s, E* and their limits; NaN where a baseline has no ok launch.

    `impossible`: as of is_impossible, corrected for the number of rows.
    """
    known = Known.of(launches)
    rows: list[dict[str, Any]] = []
    p_values: list[float] = []
    for row in known.figures():
        if row.count < 2:
            continue
        base = known.other(row, (row.device_list[0],))
        alone = [known.samples(row, (device,)) for device in row.device_list]
        own = known.samples_of(row)
        speedup = ratio(own, known.samples_of(base), row.statistic)
        star = ratio_to_sum(own, alone, row.statistic)
        p_values.append(verdicts.p_above(own, known.samples_of(base), row.statistic, row.count))
        rows.append({
            "cell": row.cell, "stack": row.stack, "workload": row.workload, "count": row.count, "devices": row.devices,
            "baseline": base.cell if base else None, **known.named(row),
            **_scale_factors(speedup, int(row.count)), **_limits("E_star", star),
        })  # fmt: skip
    _keep_surviving(rows, "impossible", p_values)
    return pd.DataFrame(rows, columns=[*_SCALING_COLUMNS, *known.fleet])


def _keep_surviving(rows: Sequence[dict[str, Any]], flag: str, p_values: Sequence[float]) -> None:
    """Take a flag away where it doesn't survive the correction for the number of rows."""
    for row, kept in zip(rows, verdicts.surviving([row[flag] for row in rows], p_values), strict=True):
        row[flag] = kept


def decomposition_table(launches: pd.DataFrame | Known) -> pd.DataFrame:
    """One row per DDP cell that was explained: E as the product of FACTORS, the exposed communication, the bus bandwidth."""
    known = Known.of(launches)
    rows = []
    for row in known.figures():
        others = [known.other(row, row.device_list, parallel) for parallel in ("independent", "no-sync")]
        if row.count < 2 or others == [None, None]:
            continue
        alone = [known.samples(row, (device,)) for device in row.device_list]
        own, independent, silent = (known.samples_of(one) for one in (row, *others))
        factors = _factors(own, independent, silent, alone, row.statistic)
        rows.append({
            "cell": row.cell, "stack": row.stack, "workload": row.workload, "count": row.count, "devices": row.devices,
            **_limits("E", _scaled(ratio(own, alone[0], row.statistic), 1 / row.count)),
            **{key: value for name in FACTORS for key, value in _limits(name, factors[name]).items()},
            "exposed_seconds": _exposed_seconds(own, silent, _items_per_step(row)),
            "step_seconds": _items_per_step(row) / _center(own),
            "bus_bytes_per_second": known.highest(row, "bus_bytes_per_second"),
            **known.named(row),
        })  # fmt: skip
    return pd.DataFrame(rows, columns=[*_DECOMPOSITION_COLUMNS, *known.fleet])


def nodes_table(launches: pd.DataFrame | Known) -> pd.DataFrame:
    """One row per DDP cell on several nodes: E as the product of the efficiencies inside a node and between nodes.

    `S_nodes`: its throughput over that of the same devices on one node; `E_between`: that by the number of nodes; `E_inside`:
    the efficiency of one node's devices. Each with its limits; NaN where a baseline has no ok launch.
    """
    known = Known.of(launches)
    rows = []
    for row in known.figures():
        if row.nodes < 2:
            continue
        own, each = known.samples_of(row), row.count // row.nodes
        on_one, alone = known.samples(row, row.device_list[:each]), known.samples(row, row.device_list[:1])
        speedup = ratio(own, on_one, row.statistic)
        rows.append({
            "cell": row.cell, "stack": row.stack, "workload": row.workload, "count": row.count, "devices": row.devices,
            "nodes": row.nodes, "per_node": each, **_limits("S_nodes", speedup),
            **_limits("E", _scaled(ratio(own, alone, row.statistic), 1 / row.count)),
            **_limits("E_inside", _scaled(ratio(on_one, alone, row.statistic), 1 / each)),
            **_limits("E_between", _scaled(speedup, 1 / row.nodes)),
            "bus_bytes_per_second": known.highest(row, "bus_bytes_per_second"), "transport": row.transport,
            **known.named(row),
        })  # fmt: skip
    return pd.DataFrame(rows, columns=[*_NODES_COLUMNS, *known.fleet])


def devices_table(launches: pd.DataFrame | Known) -> pd.DataFrame:
    """One row per device measured alone, where several were: its throughput over the median device's; is it weak?

    `weak` is corrected for the number of rows.
    """
    known = Known.of(launches)
    groups: dict[tuple[str, str, str, str], list[Any]] = {}
    for row in known.figures():
        if row.count == 1 and known.samples_of(row):
            groups.setdefault((row.stack, row.workload, row.device_name or "", known.machine(row)), []).append(row)
    rows: list[dict[str, Any]] = []
    p_values: list[float] = []
    for (stack, workload, name, _), members in groups.items():
        if len(members) < 2:
            continue
        ordered = sorted(members, key=lambda row: _center(known.samples_of(row)))
        middle = known.samples_of(ordered[len(ordered) // 2])
        for row in members:
            found = ratio(known.samples_of(row), middle, row.statistic)
            weak = found.value < WEAK_DEVICE and found.high < 1
            p_values.append(verdicts.p_above(middle, known.samples_of(row), row.statistic))
            rows.append({
                "cell": row.cell, "stack": stack, "workload": workload, "device_name": name, "device": row.devices,
                "unit": row.unit, "throughput": _center(known.samples_of(row)), **_limits("ratio", found), "weak": weak,
                **known.named(row),
            })  # fmt: skip
    _keep_surviving(rows, "weak", p_values)
    return pd.DataFrame(rows, columns=[*_DEVICES_COLUMNS, *known.fleet])


_SCALING_COLUMNS = [
    "cell", "stack", "workload", "count", "devices", "baseline", "S", "S_low", "S_high", "E", "E_low", "E_high", "s", "s_low",
    "s_high", "E_star", "E_star_low", "E_star_high", "impossible",
]  # fmt: skip
_DECOMPOSITION_COLUMNS = [
    "cell", "stack", "workload", "count", "devices",
    *(f"{name}{suffix}" for name in ("E", *FACTORS) for suffix in ("", "_low", "_high")),
    "exposed_seconds", "step_seconds", "bus_bytes_per_second",
]  # fmt: skip
_NODES_COLUMNS = [
    "cell", "stack", "workload", "count", "devices", "nodes", "per_node",
    *(f"{name}{suffix}" for name in ("S_nodes", "E", "E_inside", "E_between") for suffix in ("", "_low", "_high")),
    "bus_bytes_per_second", "transport",
]  # fmt: skip
_DEVICES_COLUMNS = [
    "cell", "stack", "workload", "device_name", "device", "unit", "throughput", "ratio", "ratio_low", "ratio_high", "weak",
]  # fmt: skip


def _factors(
    own: list[float], independent: list[float], silent: list[float], alone: list[list[float]], statistic: str
) -> dict[str, Interval]:
    """The four factors; each is a ratio of two measured throughputs, so that their product is E exactly."""
    if not all(alone):
        known = {"E_ddp": ratio(silent, independent, statistic), "E_comm": ratio(own, silent, statistic)}
        return {**dict.fromkeys(FACTORS, UNKNOWN), **known}
    weakest = weakest_of(alone)
    return {
        "E_hetero": ratio(weakest, alone[0], statistic),
        "E_corun": _scaled(ratio(independent, weakest, statistic), 1 / len(alone)),
        "E_ddp": ratio(silent, independent, statistic),
        "E_comm": ratio(own, silent, statistic),
    }


def weakest_of(alone: Sequence[Sequence[float]]) -> list[float]:
    """Launches of the weakest device, each picked by the device's other launches, so that the pick does not bias its figure.

    The smallest of several noisy figures is too small: of 8 equal devices by 1.4 standard errors. Of a launch that took no part
    in the pick that is not so (cross-validation: M. Stone, J. R. Statist. Soc. B 36 (1974), 111-147). Per round one launch;
    with one launch per device that launch, biased as it is.
    """
    rounds = min(map(len, alone))
    if rounds < 2:
        return list(alone[int(np.argmin([median_of(device) for device in alone]))])

    def others(device: Sequence[float], number: int) -> float:
        return median_of([rate for place, rate in enumerate(device) if place != number])

    return [min(alone, key=lambda device: others(device, number))[number] for number in range(rounds)]


def _items_per_step(row: Any) -> float:
    """Of all devices; unknown where no batch was found."""
    return float(row.count * row.batch) if isinstance(row.batch, int) else math.nan


def _exposed_seconds(own: list[float], silent: list[float], items: float) -> float:
    """Seconds per step that communication adds: the step with all-reduce less the step without."""
    return items / _center(own) - items / _center(silent)


def _center(samples: list[float]) -> float:
    return median_of(samples) if samples else math.nan


def _scaled(found: Interval, factor: float) -> Interval:
    return Interval(value=found.value * factor, low=found.low * factor, high=found.high * factor)


def _limits(name: str, found: Interval) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _scale_factors(speedup: Interval, count: int) -> dict[str, Any]:
    """S, E = S / N and s = (S - 1) / (N - 1), each with its limits (linear in S, so the limits map over)."""
    found: dict[str, Any] = {}
    for suffix, value in (("", speedup.value), ("_low", speedup.low), ("_high", speedup.high)):
        found |= {f"S{suffix}": value, f"E{suffix}": value / count, f"s{suffix}": (value - 1) / (count - 1)}
    return found | {"impossible": is_impossible(found["E"], found["E_low"])}


def is_impossible(efficiency: float, low: float | None) -> bool:
    """Is an efficiency above IMPOSSIBLE_EFFICIENCY, and 1 beyond its interval (from `low`; NaN, None: there is none)?"""
    if low is None or math.isnan(low):
        return efficiency > IMPOSSIBLE_UNTESTED
    return efficiency > IMPOSSIBLE_EFFICIENCY and low > 1
