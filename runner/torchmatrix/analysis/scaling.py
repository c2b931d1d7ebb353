"""Tables of scale factors, of where the loss comes from, and of each device alone."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from torchmatrix.analysis import gpu_specs, verdicts
from torchmatrix.analysis.cells import Cell, CellIndex, samples_of
from torchmatrix.analysis.centers import median_of
from torchmatrix.analysis.intervals import UNKNOWN, Interval, geometric_mean
from torchmatrix.analysis.pairs import UNKNOWN_PAIR, Pair, pair, pair_over_sum
from torchmatrix.analysis.rows import LaunchRow, Row, group_by, is_ok
from torchmatrix.facts.launch import batches_per_step

IMPOSSIBLE_EFFICIENCY = 1.02
IMPOSSIBLE_UNTESTED = 1.10
"""The limit without an interval (one launch, a published figure): scatter, another day or card may explain less. Our own."""
WEAK_DEVICE = 0.97
"""A device is weak if it is slower than this share of the median device of its model, beyond its interval."""
FACTORS = ("E_hetero", "E_corun", "E_ddp", "E_comm")


def scaling_table(cells: CellIndex) -> list[Row]:
    """Return one row per DDP cell of N > 1 devices with S, E, s, E* and their limits; NaN where a baseline has no ok launch.

    `impossible`: see is_impossible, corrected for the number of rows.
    """
    rows: list[Row] = []
    p_values: list[float] = []
    for cell in cells.figures:
        count = cell.row.count
        if count < 2:
            continue
        base = cells.other(cell, cell.row.device_list[:1])
        speedup = _over(cell, base)
        p_values.append(speedup.p_above(count))
        baseline = {"baseline": base.row.cell if base else None}
        figures = baseline | _scale_factors(speedup.interval, count) | _over_sum(cell, _alone(cells, cell)).columns("E_star")
        rows.append(cell.names | figures)
    return _surviving(rows, "impossible", p_values)


def _over(cell: Cell | None, base: Cell | None) -> Pair:
    """Return the ratio of two cells that may not be there."""
    return cell.over(base) if cell and base else UNKNOWN_PAIR


def _over_sum(cell: Cell, alone: Sequence[Cell | None]) -> Interval:
    """Return a cell's throughput over the sum of its devices' alone; without limits where one has a single launch."""
    measured = [member for member in (cell, *alone) if member and member.samples]
    moments = [cell_moments for member in measured if (cell_moments := member.moments())]
    if len(measured) <= len(alone):
        return UNKNOWN
    if len(moments) < len(measured):
        together, *apart = (geometric_mean(member.samples).value for member in measured)
        return Interval(value=together / math.fsum(apart))
    return pair_over_sum(moments[0], moments[1:]).interval


def _alone(cells: CellIndex, cell: Cell) -> list[Cell | None]:
    """Return the cells of each of a cell's devices alone."""
    return [cells.other(cell, (device,)) for device in cell.row.device_list]


def _surviving(rows: Sequence[Row], flag: str, p_values: Sequence[float]) -> list[Row]:
    """Return the rows without a flag where it doesn't survive the correction for the number of rows."""
    kept = verdicts.surviving([row[flag] for row in rows], p_values)
    return [row | {flag: survives} for row, survives in zip(rows, kept, strict=True)]


def decomposition_table(cells: CellIndex) -> list[Row]:
    """Return one row per explained DDP cell: E as the product of FACTORS, exposed communication, bus bandwidth."""
    rows = []
    for cell in cells.figures:
        others = [cells.other(cell, cell.row.device_list, parallel) for parallel in ("independent", "no-sync")]
        if cell.row.count < 2 or others == [None, None]:
            continue
        alone, (independent, silent) = _alone(cells, cell), others
        factors, items = _factors(cell, independent, silent, alone), _items_per_step(cell)
        step_seconds = items / _center(cell.samples)
        rows.append(cell.names | {
            **_over(cell, alone[0]).interval.scaled(1 / cell.row.count).columns("E"),
            **{key: value for name in FACTORS for key, value in factors[name].columns(name).items()},
            "exposed_seconds": step_seconds - items / _center(samples_of(silent)),
            "step_seconds": step_seconds,
            "bus_bytes_per_second": cell.highest("bus_bytes_per_second"),
        })  # fmt: skip
    return rows


def nodes_table(cells: CellIndex) -> list[Row]:
    """Return one row per DDP cell on several nodes: E as the product of the efficiencies inside a node and between nodes.

    `S_nodes`: its throughput over that of the same devices on one node; `E_between`: that by the number of nodes; `E_inside`:
    the efficiency of one node's devices. Each with its limits; NaN where a baseline has no ok launch.
    """
    rows = []
    for cell in cells.figures:
        count, nodes = cell.row.count, cell.row.nodes
        if nodes < 2:
            continue
        per_node = count // nodes
        on_one, alone = (cells.other(cell, cell.row.device_list[:number]) for number in (per_node, 1))
        speedup = _over(cell, on_one).interval
        rows.append(cell.names | {
            "nodes": nodes, "per_node": per_node, **speedup.columns("S_nodes"),
            **_over(cell, alone).interval.scaled(1 / count).columns("E"),
            **_over(on_one, alone).interval.scaled(1 / per_node).columns("E_inside"),
            **speedup.scaled(1 / nodes).columns("E_between"),
            "bus_bytes_per_second": cell.highest("bus_bytes_per_second"), "transport": cell.row.value("transport"),
        })  # fmt: skip
    return rows


def devices_table(cells: CellIndex) -> list[Row]:
    """Return one row per device measured alone, where several were: its throughput over the median device's; is it weak?

    `weak` is corrected for the number of rows.
    """
    alone = [cell for cell in cells.figures if cell.row.count == 1 and cell.samples]
    groups = group_by(alone, lambda cell: (cell.row.stack, cell.row.workload, cell.row.device_name or "", cell.machine))
    rows: list[Row] = []
    p_values: list[float] = []
    for (stack, workload, name, _), members in groups.items():
        if len(members) < 2:
            continue
        ordered = sorted(members, key=lambda cell: _center(cell.samples))
        middle = ordered[len(ordered) // 2]
        for cell in members:
            over_middle = cell.over(middle)
            ratio = over_middle.interval
            weak = ratio.value < WEAK_DEVICE and ratio.high < 1
            p_values.append(middle.over(cell).p_above())
            rows.append({
                "cell": cell.row.cell, "stack": stack, "workload": workload, "device_name": name, "device": cell.row.devices,
                "unit": cell.row.unit, "throughput": _center(cell.samples), **ratio.columns("ratio"), "weak": weak,
                **cell.fleet,
            })  # fmt: skip
    return _surviving(rows, "weak", p_values)


def _factors(cell: Cell, independent: Cell | None, silent: Cell | None, alone: Sequence[Cell | None]) -> dict[str, Interval]:
    """Return the four factors; each is a ratio of two measured throughputs, so that their product is E exactly."""
    measured_factors = {"E_ddp": _over(silent, independent).interval, "E_comm": _over(cell, silent).interval}
    samples_alone = [samples_of(device) for device in alone]
    if not all(samples_alone):
        return {**dict.fromkeys(FACTORS, UNKNOWN), **measured_factors}
    weakest, prior = weakest_of(samples_alone), cell.family.prior("throughput")
    corun = pair(samples_of(independent), weakest, prior).interval
    return {
        "E_hetero": pair(weakest, samples_alone[0], prior).interval,
        "E_corun": corun.scaled(1 / len(samples_alone)),
        **measured_factors,
    }


def weakest_of(alone: Sequence[Sequence[float]]) -> list[float]:
    """Return launches of the weakest device, each picked by the device's other launches, so that the pick is unbiased.

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
    """Return the items of all devices per step; unknown where no batch was found."""
    batches = batches_per_step(cell.row.parallel, cell.row.count)
    return float(batches * cell.row.batch * cell.row.items_each) if isinstance(cell.row.batch, int) else math.nan


def _center(samples: list[float]) -> float:
    return median_of(samples) if samples else math.nan


def _scale_factors(speedup: Interval, count: int) -> dict[str, Any]:
    """Return S, E = S / N and s = (S - 1) / (N - 1), each with its limits (linear in S, so the limits map over)."""
    factors: dict[str, Any] = {}
    for suffix, value in (("", speedup.value), ("_low", speedup.low), ("_high", speedup.high)):
        factors |= {f"S{suffix}": value, f"E{suffix}": value / count, f"s{suffix}": (value - 1) / (count - 1)}
    return factors | {"impossible": is_impossible(factors["E"], factors["E_low"])}


def is_impossible(efficiency: float, low: float | None) -> bool:
    """Check whether an efficiency is above IMPOSSIBLE_EFFICIENCY and its interval above 1.

    `low`: the interval's lower end; NaN, None: there is none.
    """
    if low is None or math.isnan(low):
        return efficiency > IMPOSSIBLE_UNTESTED
    return efficiency > IMPOSSIBLE_EFFICIENCY and low > 1


# How fast the devices of each cell exchange data, operation by operation.

_CELL_COLUMNS = ("cell", "stack", "workload", "devices", "count", "nodes")


def collectives_table(launches: Iterable[LaunchRow]) -> list[Row]:
    """Return one row per cell, operation and size: the medians over the `n` ok launches that probed it.

    `launches`: rows of run_summary.launch_rows. Bus bandwidths as nccl-tests define them (glossary). `of_link`: over what the
    devices' links carry in one direction by their data sheets; NaN where that is unknown, or other links are used.
    """
    probes: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    cells: dict[str, LaunchRow] = {}
    links: dict[str, float] = {}
    for row in (row for row in launches if is_ok(row)):
        for operation, size, seconds, bus, linked in json.loads(row.collectives):
            probes.setdefault((row.cell, operation, size), []).append((seconds, bus))
            cells[row.cell], links[row.cell] = row, _peak(row) if linked else math.nan
    return [
        {
            **{name: cells[cell].value(name) for name in _CELL_COLUMNS},
            "operation": operation, "bytes": size, "n": len(measurements),
            "seconds": median_of([seconds for seconds, _ in measurements]),
            "bus_bytes_per_second": (bus := median_of([bus for _, bus in measurements])), "link_bytes_per_second": links[cell],
            "of_link": bus / links[cell],
        }
        for (cell, operation, size), measurements in probes.items()
    ]  # fmt: skip


def _peak(row: LaunchRow) -> float:
    """Return the peak of the links of the launch's devices; NaN if unknown."""
    peak = gpu_specs.link_peak(gpu_specs.of_row(row))
    return math.nan if peak is None else peak
