"""A run beside the last complete run of the same matrix on the same machine: which cells changed, and what else did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis import same_work
from torchmatrix.analysis.intervals import Interval, ratio
from torchmatrix.analysis.launch_row import Row
from torchmatrix.analysis.lookup import Known
from torchmatrix.analysis.tables import table_of
from torchmatrix.analysis.verdicts import UNTESTED, Chances, chances, judged


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """One cell that both runs measured: now over before, with the verdict corrected for the number of cells."""

    cell: str
    ratio: Interval
    verdict: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Since:
    """`run`, `started`: of the earlier one. `missing`: cells that one of the two has no figure of. `refused`: those whose work
    or batch is not the same. `machine`: what else changed, name: (before, now)."""

    run: str
    started: float
    cells: tuple[Changed, ...]
    missing: int
    refused: int
    machine: Mapping[str, tuple[str, str]]

    def count(self, verdict: str) -> int:
        """How many cells have this verdict."""
        return sum(one.verdict == verdict for one in self.cells)


def since(
    now: Sequence[Row], before: Sequence[Row], hosts: tuple[Mapping[str, Any], Mapping[str, Any]],
    run: str, started: float,
) -> Since:  # fmt: skip
    """`now`, `before`: rows of tables.launch_rows of two runs; `hosts`: what each says of its machine, now and before."""
    ours, theirs = (Known(table_of(rows)) for rows in (now, before))
    old = {row.cell: row for row in theirs.figures()}
    found: list[tuple[str, Interval, Chances]] = []
    missing = refused = 0
    for row in ours.figures():
        base = old.get(row.cell)
        own, other = ours.samples_of(row), theirs.samples_of(base)
        if base is None or not own or not other:
            missing += 1
        elif row.batch != base.batch or same_work.difference(*(same_work.of_row(r._asdict()) for r in (row, base))):
            refused += 1
        else:
            test = chances(own, other, statistic=row.statistic) if min(len(own), len(other)) > 1 else UNTESTED
            found.append((row.cell, ratio(own, other, row.statistic), test))
    told = judged([interval for _, interval, _ in found], [test for _, _, test in found])
    cells = tuple(Changed(cell=f[0], ratio=f[1], verdict=one.verdict) for f, one in zip(found, told, strict=True))
    return Since(run=run, started=started, cells=cells, missing=missing, refused=refused, machine=_machine(hosts[1], hosts[0]))


_OF_MACHINE = {"driver": "driver", "kernel": "kernel", "os": "system", "cpu": "CPU", "governor": "governor"}


def _machine(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """What both know and is not the same."""
    told = {title: (before.get(name), now.get(name)) for name, title in _OF_MACHINE.items()}
    return {title: (str(a), str(b)) for title, (a, b) in told.items() if a and b and a != b}
