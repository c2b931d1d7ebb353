"""Launches -> tables of scale factors, where the loss comes from, each device alone."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchmatrix.analysis import verdicts
from torchmatrix.analysis.cells import Cell, CellIndex, samples_of
from torchmatrix.analysis.centers import median_of
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.intervals import UNKNOWN, Interval
from torchmatrix.analysis.pairs import pair, pair_over_sum

IMPOSSIBLE_EFFICIENCY = 1.02
IMPOSSIBLE_UNTESTED = 1.10
"""Without an interval (one launch, a published figure) scatter, another day or card may explain less. Our own decision."""
WEAK_DEVICE = 0.97
"""A device is called weak if it is slower than this share of the median device of its model, beyond its interval."""
FACTORS = ("E_hetero", "E_corun", "E_ddp", "E_comm")


def scaling_table(cells: CellIndex) -> list[Row]:
    """One row per DDP cell of N > 1 devices with S, E, s, E* and their limits; NaN where a baseline has no ok launch.

    `impossible`: as of is_impossible, corrected for the number of rows.
    """
    rows: list[Row] = []
    p_values: list[float] = []
    for cell in cells.figures:
        count, statistic = cell["count"], cell["statistic"]
        if count < 2:
            continue
        base = cells.other(cell, cell["device_list"][:1])
        speedup = pair(cell.samples, samples_of(base), statistic)
        star = pair_over_sum(cell.samples, _alone(cells, cell), statistic)
        p_values.append(speedup.p_above(count))
        baseline = {"baseline": base["cell"] if base else None}
        found = baseline | _scale_factors(speedup.interval, count) | _limits("E_star", star.interval)
        rows.append(cell.names | found)
    _keep_surviving(rows, "impossible", p_values)
    return rows


def _alone(cells: CellIndex, cell: Cell) -> list[list[float]]:
    """What each of its devices reached alone."""
    return [cells.samples(cell, (device,)) for device in cell["device_list"]]


def _keep_surviving(rows: Sequence[Row], flag: str, p_values: Sequence[float]) -> None:
    """Take a flag away where it doesn't survive the correction for the number of rows."""
    for row, kept in zip(rows, verdicts.surviving([row[flag] for row in rows], p_values), strict=True):
        row[flag] = kept


def decomposition_table(cells: CellIndex) -> list[Row]:
    """One row per DDP cell that was explained: E as the product of FACTORS, the exposed communication, the bus bandwidth."""
    rows = []
    for cell in cells.figures:
        others = [cells.other(cell, cell["device_list"], parallel) for parallel in ("independent", "no-sync")]
        if cell["count"] < 2 or others == [None, None]:
            continue
        alone = _alone(cells, cell)
        own, independent, silent = (samples_of(one) for one in (cell, *others))
        factors = _factors(own, independent, silent, alone, cell["statistic"])
        rows.append(cell.names | {
            **_limits("E", _scaled(_ratio(own, alone[0], cell["statistic"]), 1 / cell["count"])),
            **{key: value for name in FACTORS for key, value in _limits(name, factors[name]).items()},
            "exposed_seconds": _exposed_seconds(own, silent, _items_per_step(cell)),
            "step_seconds": _items_per_step(cell) / _center(own),
            "bus_bytes_per_second": cell.highest("bus_bytes_per_second"),
        })  # fmt: skip
    return rows


def nodes_table(cells: CellIndex) -> list[Row]:
    """One row per DDP cell on several nodes: E as the product of the efficiencies inside a node and between nodes.

    `S_nodes`: its throughput over that of the same devices on one node; `E_between`: that by the number of nodes; `E_inside`:
    the efficiency of one node's devices. Each with its limits; NaN where a baseline has no ok launch.
    """
    rows = []
    for cell in cells.figures:
        count, nodes, statistic = cell["count"], cell["nodes"], cell["statistic"]
        if nodes < 2:
            continue
        each = count // nodes
        on_one, alone = cells.samples(cell, cell["device_list"][:each]), cells.samples(cell, cell["device_list"][:1])
        speedup = _ratio(cell.samples, on_one, statistic)
        rows.append(cell.names | {
            "nodes": nodes, "per_node": each, **_limits("S_nodes", speedup),
            **_limits("E", _scaled(_ratio(cell.samples, alone, statistic), 1 / count)),
            **_limits("E_inside", _scaled(_ratio(on_one, alone, statistic), 1 / each)),
            **_limits("E_between", _scaled(speedup, 1 / nodes)),
            "bus_bytes_per_second": cell.highest("bus_bytes_per_second"), "transport": cell["transport"],
        })  # fmt: skip
    return rows


def devices_table(cells: CellIndex) -> list[Row]:
    """One row per device measured alone, where several were: its throughput over the median device's; is it weak?

    `weak` is corrected for the number of rows.
    """
    groups: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in cells.figures:
        if cell["count"] == 1 and cell.samples:
            groups.setdefault((cell["stack"], cell["workload"], cell["device_name"] or "", cell.machine), []).append(cell)
    rows: list[Row] = []
    p_values: list[float] = []
    for (stack, workload, name, _), members in groups.items():
        if len(members) < 2:
            continue
        ordered = sorted(members, key=lambda cell: _center(cell.samples))
        middle = ordered[len(ordered) // 2].samples
        for cell in members:
            over_middle = pair(cell.samples, middle, cell["statistic"])
            found = over_middle.interval
            weak = found.value < WEAK_DEVICE and found.high < 1
            p_values.append(pair(middle, cell.samples, cell["statistic"]).p_above())
            rows.append({
                "cell": cell["cell"], "stack": stack, "workload": workload, "device_name": name, "device": cell["devices"],
                "unit": cell["unit"], "throughput": _center(cell.samples), **_limits("ratio", found), "weak": weak,
                **cell.fleet,
            })  # fmt: skip
    _keep_surviving(rows, "weak", p_values)
    return rows


def _factors(
    own: list[float], independent: list[float], silent: list[float], alone: list[list[float]], statistic: str
) -> dict[str, Interval]:
    """The four factors; each is a ratio of two measured throughputs, so that their product is E exactly."""
    if not all(alone):
        known = {"E_ddp": _ratio(silent, independent, statistic), "E_comm": _ratio(own, silent, statistic)}
        return {**dict.fromkeys(FACTORS, UNKNOWN), **known}
    weakest = weakest_of(alone)
    return {
        "E_hetero": _ratio(weakest, alone[0], statistic),
        "E_corun": _scaled(_ratio(independent, weakest, statistic), 1 / len(alone)),
        "E_ddp": _ratio(silent, independent, statistic),
        "E_comm": _ratio(own, silent, statistic),
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


def _items_per_step(cell: Cell) -> float:
    """Of all devices; unknown where no batch was found."""
    return float(cell["count"] * cell["batch"]) if isinstance(cell["batch"], int) else math.nan


def _exposed_seconds(own: list[float], silent: list[float], items: float) -> float:
    """Seconds per step that communication adds: the step with all-reduce less the step without."""
    return items / _center(own) - items / _center(silent)


def _center(samples: list[float]) -> float:
    return median_of(samples) if samples else math.nan


def _ratio(above: Sequence[float], below: Sequence[float], statistic: str) -> Interval:
    return pair(above, below, statistic).interval


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
