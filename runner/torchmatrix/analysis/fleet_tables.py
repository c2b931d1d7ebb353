"""What a buyer asks besides throughput: which GPUs these machines have, and throughput per watt, per price and per GB."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from torchmatrix.analysis import gpu_table, prices
from torchmatrix.analysis.column import Row, makes_figures
from torchmatrix.analysis.machines import Machine
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.facts.environments import unlike

_CATALOG = [name for name in gpu_table.COLUMNS if name != "gpu"]
_OF_CELL = ("machine", "gpu", "stack", "workload", "count", "devices", "batch", "unit", "throughput")


def fleet_gpu_table(machines: Sequence[Machine], cells: Sequence[Row]) -> list[Row]:
    """One row per GPU model of a fleet's tables.cells_table; None and NaN are unknown. CPUs have a row without specifications.

    `machines` that have it (labels), with how many each (`counts`), their `drivers`; the limits of power that the drivers
    report, lowest and highest; in which conditions the machines are `unlike`. `catalog_name`: in gpus.csv; from there on the
    columns of gpu_table.gpu_table.
    """
    groups: dict[str, list[Row]] = {}
    for cell in cells:
        groups.setdefault(cell["gpu"], []).append(cell)
    rows = []
    for gpu, own in groups.items():
        labels = {cell["machine"] for cell in own}
        having = [machine for machine in machines if machine.label in labels]
        told = next(iter(gpu_table.gpu_table(own)), dict.fromkeys(gpu_table.COLUMNS))
        limits = _power_limits(having, {name for cell in own for name in cell["gpu_names"]})
        rows.append({
            "gpu": gpu,
            "machines": tuple(machine.label for machine in having),
            "counts": tuple(machine.gpu_count for machine in having),
            "drivers": tuple(dict.fromkeys(machine.driver for machine in having if machine.driver)),
            "power_limit_low_watts": min(limits, default=math.nan),
            "power_limit_high_watts": max(limits, default=math.nan),
            "unlike": unlike([machine.conditions for machine in having]),
            "catalog_name": told["gpu"],
            **{name: told[name] for name in _CATALOG},
        })  # fmt: skip
    return rows


def worth_table(cells: Iterable[Row], held: PriceList = NONE) -> list[Row]:
    """One row per DDP cell of a fleet's tables.cells_table that has a throughput; NaN is unknown.

    Items per second and watt of the devices; items per joule; items per second and GB (2^30 bytes) of the devices' memory;
    items per second for each 1000 of the currency that the devices cost; items for each unit of it that they cost to rent.
    """
    return [_worth(row, held) for row in cells if makes_figures(row) and row["n"]]


def _worth(row: Row, held: PriceList) -> Row:
    rate, memory = row["throughput"], row["device_memory_bytes"]
    gigabytes = memory * row["count"] / 2**30 if isinstance(memory, (int, float)) else math.nan
    return {
        **{name: row[name] for name in _OF_CELL},
        "per_watt": _over(rate, row["power_watts"]),
        "per_joule": _over(1.0, row["energy_per_item"]),
        "per_gb": _over(rate, gigabytes),
        "per_price": _over(1000 * rate, prices.cost(held, row, "purchase")),
        "per_rent": _over(3600 * rate, prices.cost(held, row, "per_hour")),
    }


def _over(amount: float, base: float) -> float:
    return amount / base if base > 0 else math.nan


def _power_limits(machines: Iterable[Machine], names: set[str]) -> list[float]:
    """As the drivers report them, of the GPUs of these names."""
    found: list[Any] = [gpu.get("power_limit_watts") for one in machines for gpu in one.gpus if gpu.get("name") in names]
    return [float(limit) for limit in found if isinstance(limit, (int, float))]
