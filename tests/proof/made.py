"""Cells of launches that were never made: the rows that reading their files would give, with figures that were drawn."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from records import launch_lines
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.launch_row import row_of
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """Of one cell what a proof tells apart, and the figures of its launches."""

    rates: Sequence[float]
    job: int = 0
    stack: int = 0
    devices: tuple[int, ...] = (0,)
    parallel: str = "ddp"

    @property
    def name(self) -> tuple[int, int, tuple[int, ...], str]:
        return self.job, self.stack, self.devices, self.parallel


@cache
def _row(job: int, stack: int, devices: tuple[int, ...], parallel: str) -> Row:
    """Of a launch that was read."""
    workload = f"model{job}-train-fp32-b4" + (f"-{parallel}" if parallel != "ddp" else "")
    lines = launch_lines(stack=f"stack{stack}", workload=workload, model=f"model{job}", devices=devices, parallel=parallel)
    launch = launch_of(Path("round1-try1.jsonl"), lines)
    assert isinstance(launch, Launch)
    return row_of(launch)


def index(cells: Iterable[Made]) -> CellIndex:
    """Of one run, in which round by round each cell was launched."""
    return CellIndex(
        {**_row(*cell.name), "round": number, "throughput": rate} for cell in cells for number, rate in enumerate(cell.rates, 1)
    )
