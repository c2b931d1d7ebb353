"""Cells of launches that were never made: the rows that reading their files would give, with figures that were drawn."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import structs

from support.records import launch_lines
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.launch_row import row_of
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A cell: what a proof tells apart of it, and the figures of its launches."""

    rates: Sequence[float]
    job: int = 0
    stack: int = 0
    devices: tuple[int, ...] = (0,)
    parallel: str = "ddp"
    machine: str = ""


def index(cells: Iterable[Made]) -> CellIndex:
    """Return the index of one run (of each machine); cells were launched round by round.

    A machine's GPU is its name's first word.
    """
    return CellIndex(
        structs.replace(
            _row_of(cell.job, cell.stack, cell.devices, cell.parallel), round=number, throughput=rate, **_of_fleet(cell)
        )
        for cell in cells
        for number, rate in enumerate(cell.rates, 1)
    )


def run(name: str, cells: Iterable[Made]) -> list[Launch]:
    """Return the launches of a run."""
    return [
        _launch(cell.job, cell.stack, cell.devices, cell.parallel, run=name, rate=rate, round=number)
        for cell in cells
        for number, rate in enumerate(cell.rates, 1)
    ]


def _of_fleet(cell: Made) -> dict[str, str]:
    return {"machine": cell.machine, "gpu": cell.machine.split()[0]} if cell.machine else {}


def row(cell: Made) -> LaunchRow:
    """Return the row of one of its launches."""
    return _row_of(cell.job, cell.stack, cell.devices, cell.parallel)


@cache
def _row_of(job: int, stack: int, devices: tuple[int, ...], parallel: str) -> LaunchRow:
    return row_of(_launch(job, stack, devices, parallel))


def _launch(job: int, stack: int, devices: tuple[int, ...], parallel: str, **more: Any) -> Launch:
    """Return a launch as it is read from its file."""
    workload = f"model{job}-train-fp32-b4" + (f"-{parallel}" if parallel != "ddp" else "")
    more |= {"stack": f"stack{stack}", "model": f"model{job}", "devices": devices, "parallel": parallel}
    path = Path(f"stack{stack}/{workload}/round{more.get('round', 1)}-try1.jsonl")
    launch = launch_of(path, launch_lines(workload=workload, **more))
    assert isinstance(launch, Launch)
    return launch
