"""Launches -> tables of scale factors, where the loss comes from, each device alone."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from torchmatrix.analysis import gpu_specs, verdicts
from torchmatrix.analysis.cells import Cell, CellIndex, samples_of
from torchmatrix.analysis.intervals import UNKNOWN, Interval, Prior, geometric_mean, median_of
from torchmatrix.analysis.pairs import UNKNOWN_PAIR, Pair, pair, pair_over_sum
from torchmatrix.analysis.rows import Row, is_ok
from torchmatrix.core.formatting import is_known

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
        count = cell["count"]
        if count < 2:
            continue
        base = cells.other(cell, cell["device_list"][:1])
        speedup = _over(cell, base)
        p_values.append(speedup.p_above(count))
        baseline = {"baseline": base["cell"] if base else None}
        found = baseline | _scale_factors(speedup.interval, count) | _limits("E_star", _over_sum(cell, _alone(cells, cell)))
        rows.append(cell.names | found)
    _keep_surviving(rows, "impossible", p_values)
    return rows


def _over(cell: Cell | None, base: Cell | None) -> Pair:
    """Of two cells that may not be there."""
    return cell.over(base) if cell and base else UNKNOWN_PAIR


def _over_sum(cell: Cell, alone: Sequence[Cell | None]) -> Interval:
    """Its throughput over the sum of those of its devices alone; without limits where one has a single launch."""
    every = [one for one in (cell, *alone) if one and one.samples]
    known = [found for one in every if (found := one.moments())]
    if len(every) <= len(alone):
        return UNKNOWN
    if len(known) < len(every):
        own, *others = (geometric_mean(one.samples).value for one in every)
        return Interval(value=own / math.fsum(others), low=math.nan, high=math.nan)
    return pair_over_sum(known[0], known[1:]).interval


def _alone(cells: CellIndex, cell: Cell) -> list[Cell | None]:
    """Each of its devices alone."""
    return [cells.other(cell, (device,)) for device in cell["device_list"]]


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
        alone, (independent, silent) = _alone(cells, cell), others
        factors = _factors(cell, independent, silent, alone)
        rows.append(cell.names | {
            **_limits("E", _scaled(_over(cell, alone[0]).interval, 1 / cell["count"])),
            **{key: value for name in FACTORS for key, value in _limits(name, factors[name]).items()},
            "exposed_seconds": _exposed_seconds(cell.samples, samples_of(silent), _items_per_step(cell)),
            "step_seconds": _items_per_step(cell) / _center(cell.samples),
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
        count, nodes = cell["count"], cell["nodes"]
        if nodes < 2:
            continue
        each = count // nodes
        on_one, alone = (cells.other(cell, cell["device_list"][:number]) for number in (each, 1))
        speedup = _over(cell, on_one).interval
        rows.append(cell.names | {
            "nodes": nodes, "per_node": each, **_limits("S_nodes", speedup),
            **_limits("E", _scaled(_over(cell, alone).interval, 1 / count)),
            **_limits("E_inside", _scaled(_over(on_one, alone).interval, 1 / each)),
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
        middle = ordered[len(ordered) // 2]
        for cell in members:
            over_middle = cell.over(middle)
            found = over_middle.interval
            weak = found.value < WEAK_DEVICE and found.high < 1
            p_values.append(middle.over(cell).p_above())
            rows.append({
                "cell": cell["cell"], "stack": stack, "workload": workload, "device_name": name, "device": cell["devices"],
                "unit": cell["unit"], "throughput": _center(cell.samples), **_limits("ratio", found), "weak": weak,
                **cell.fleet,
            })  # fmt: skip
    _keep_surviving(rows, "weak", p_values)
    return rows


def _factors(cell: Cell, independent: Cell | None, silent: Cell | None, alone: Sequence[Cell | None]) -> dict[str, Interval]:
    """The four factors; each is a ratio of two measured throughputs, so that their product is E exactly."""
    known = {"E_ddp": _over(silent, independent).interval, "E_comm": _over(cell, silent).interval}
    each = [samples_of(one) for one in alone]
    if not all(each):
        return {**dict.fromkeys(FACTORS, UNKNOWN), **known}
    weakest, prior = weakest_of(each), cell.family.prior("throughput")
    corun = _ratio(samples_of(independent), weakest, prior)
    return {"E_hetero": _ratio(weakest, each[0], prior), "E_corun": _scaled(corun, 1 / len(each)), **known}


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


def _ratio(above: Sequence[float], below: Sequence[float], prior: Prior) -> Interval:
    return pair(above, below, prior).interval


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


# Launches -> how fast the devices of each cell exchange data, operation by operation.

_OF_CELL = ("cell", "stack", "workload", "devices", "count", "nodes")


def collectives_table(launches: Iterable[Row]) -> list[Row]:
    """One row per cell, operation and size: the medians over the ok launches that probed it, whose number is `n`.

    `launches`: as of tables.launch_rows. Bus bandwidths as nccl-tests define them (glossary). `of_link`: over what the
    devices' links carry in one direction by their data sheets; NaN where that is unknown, or other links are used.
    """
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    cells: dict[str, Row] = {}
    links: dict[str, float] = {}
    for row in (row for row in launches if is_ok(row)):
        for operation, size, seconds, bus, linked in json.loads(row["collectives"]):
            found.setdefault((row["cell"], operation, size), []).append((seconds, bus))
            cells[row["cell"]], links[row["cell"]] = row, _peak(row) if linked else math.nan
    return [
        {
            **{name: cells[cell][name] for name in _OF_CELL},
            "operation": operation, "bytes": size, "n": len(told), "seconds": median_of([seconds for seconds, _ in told]),
            "bus_bytes_per_second": (bus := median_of([bus for _, bus in told])), "link_bytes_per_second": links[cell],
            "of_link": bus / links[cell],
        }
        for (cell, operation, size), told in found.items()
    ]  # fmt: skip


def _peak(row: Row) -> float:
    """Of the links of the launch's devices; NaN if unknown."""
    memory = int(row["device_memory_bytes"]) if is_known(row["device_memory_bytes"]) else None
    found = gpu_specs.link_peak(gpu_specs.find(row["device_name"], memory)) if row["device_name"] else None
    return math.nan if found is None else found
