"""The launches of profiled cells -> their step times as a run measured them, to stand beside those of profiled steps."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchmatrix.facts.alike import counting
from torchmatrix.facts.launch import Launch, measured_seconds
from torchmatrix.facts.store import Results


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The median step of a cell's ok launches in one run, in seconds; NaN, 0 and "" if no run tells."""

    seconds: float = math.nan
    launches: int = 0
    run: str = ""


NOT_MEASURED = Measured()


def recorded(store: Results, machine: str | None, cell: str) -> Iterator[tuple[str, Launch]]:
    """The ok launches of a cell on a machine, with the id of their run; those of the newest run first."""
    for folder in reversed(store.runs()):
        for launch in counting(folder.of_cell(cell)):
            if launch.is_ok and launch.machine == machine:
                yield folder.id, launch


def measured(store: Results, machine: str | None, batches: Mapping[str, int]) -> list[Measured]:
    """Of each cell with its batch, what the newest run says that measured all of them; its launches took turns."""
    runs: list[dict[str, list[Launch]]] = []
    for cell, batch in batches.items():
        of_cell: dict[str, list[Launch]] = {}
        for run, launch in recorded(store, machine, cell):
            if launch.batch == batch:
                of_cell.setdefault(run, []).append(launch)
        runs.append(of_cell)
    common = next((run for run in runs[0] if all(run in of_cell for of_cell in runs)), None)
    return [NOT_MEASURED if common is None else _median(of_cell[common], common) for of_cell in runs]


def _median(launches: Sequence[Launch], run: str) -> Measured:
    steps = [measured_seconds(launch) / sum(window.steps for window in launch.windows) for launch in launches]
    return Measured(seconds=statistics.median(steps), launches=len(launches), run=run)
