"""Charts and explorers of cells that run at exactly known rates, made in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.read_back import spent, traces_of
from support.records import launch_lines
from torchmatrix.analysis import prices, scaling, speedups, time_split
from torchmatrix.analysis import run_summary as run_tables
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.prices import NONE, Price, PriceList
from torchmatrix.analysis.rows import Row
from torchmatrix.analysis.speedups import Ratios
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of
from torchmatrix.reporting.explorers import Explorers
from torchmatrix.reporting.explorers.data import RunTables, data_of

STEADY = (0.999, 1.0, 1.001)
WILD = (0.8, 1.0, 1.25)
_PRICE = Price(gpu="H200 SXM", per_hour=2.5, purchase=20_000.0, currency="EUR", source="us", date="2026-01-31")
PRICES = PriceList(prices={_PRICE.gpu: _PRICE})
HOSTILE = "<script>alert(1)</script>\"'&\n]]>\x1b[31m\x00\x0b\x1f\uffff"


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Data of which the charts are made."""

    index: CellIndex
    cells: list[Row]
    ratios: Ratios
    scales: list[Row]
    decomposition: list[Row]
    devices: list[Row]
    launches: list[Launch]

    def explorers(self, held: PriceList = NONE) -> Explorers:
        within = RunTables(
            decomposition=self.decomposition,
            devices=self.devices,
            phases=time_split.phases_table(spent(self.launches)),
            steps=time_split.steps_table(spent(self.launches)),
            traces=traces_of(self.launches),
        )
        rows = [row for cell in self.index.figures for row in cell.launches]
        index = CellIndex(prices.charged(rows, held))
        cells = run_tables.cells_table(index.figures)
        return Explorers(data=data_of(index, cells, self.scales, self.ratios, held, within=within))


def tables(*cells: dict[str, Any], factors: Sequence[float] = STEADY, baseline: str | None = None) -> Tables:
    """Return the tables of launches in which each cell runs once for each of `factors`, at so many times its `rate`."""
    launches = [launch(_faster(cell, factor), i) for cell in cells for i, factor in enumerate(factors)]
    index = CellIndex(run_tables.launch_rows(launches))
    return Tables(
        index=index,
        cells=run_tables.cells_table(index.every),
        ratios=speedups.ratios_of(index, baseline),
        scales=scaling.scaling_table(index),
        decomposition=scaling.decomposition_table(index),
        devices=scaling.devices_table(index),
        launches=launches,
    )


def _faster(cell: dict[str, Any], factor: float) -> dict[str, Any]:
    """Multiply a cell's rate. None stays: the window is then as long as its readings."""
    rate = cell.get("rate", 100.0)
    return {**cell, "rate": None if rate is None else rate * factor}


def launch(cell: dict[str, Any], number: int) -> Launch:
    phases = tuple({"event": "phase", "phase": name, "seconds": 2.0} for name in ("import", "init", "model", "first-step"))
    header, *events = launch_lines(**cell)
    result = launch_of(Path(f"{header['cell']}/round{number}-try1.jsonl"), [header | {"round": number}, *phases, *events])
    assert isinstance(result, Launch), result
    return result


def cell(
    stack: str = "a", rate: float | None = 100.0, precision: str = "fp32", compile: bool = False, **more: Any
) -> dict[str, Any]:
    name = f"resnet50-train-{precision}{'-compile' if compile else ''}-b4"
    return {"stack": stack, "rate": rate, "workload": name, "job": {"precision": precision, "compile": compile}, **more}


def readings(count: int = 1, **values: Any) -> list[tuple[float, dict[str, Any]]]:
    reading = {"temperature_celsius": 60, "sm_clock_mhz": 1980, "power_watts": 500.0, **values}
    return [(float(t), {"device": f"GPU-{i}", **reading}) for t in range(90, 131) for i in range(count)]


def everything() -> Tables:
    """Return a bit of all: three stacks, settings, several devices, explained loss, weak device, failure, readings, prices."""
    some = [
        cell(
            stack,
            100.0 * speed * gain * (1.9 if n == 2 else 1),
            precision,
            compiled,
            devices=tuple(range(n)),
            readings=readings(n),
        )
        for stack, speed in (("a", 1.0), ("b", 1.3), ("c", 1.2))
        for precision, gain in (("fp32", 1.0), ("amp", 2.0))
        for compiled in (False, True)
        for n in (1, 2)
    ]
    some += [cell("a", 80.0, devices=(2,)), cell("a", 101.0, devices=(1,)), cell("c", precision="tf32", outcome="oom")]
    parts = (("independent", 195.0), ("no-sync", 193.0))
    some += [cell("a", rate, devices=(0, 1), parallel=p) | {"workload": f"resnet50-train-fp32-b4-{p}"} for p, rate in parts]
    return tables(*some)
