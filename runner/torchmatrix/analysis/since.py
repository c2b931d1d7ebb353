"""A run beside the last complete run of the same matrix on the same machine: which cells changed, and what else did."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.column import Row, is_ok
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.pairs import Pair
from torchmatrix.analysis.ratios import compared as compared_cells
from torchmatrix.analysis.verdicts import judged
from torchmatrix.facts.environments import Compared, Differences, Environment, compared, differing, environment_of, values_of
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import read_launch


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """One cell that both runs measured: now over before, with the verdict corrected for the number of cells."""

    cell: str
    ratio: Interval
    verdict: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Since:
    """`run`, `started`: of the earlier one. `missing`: cells that one of the two has no figure of. `refused`: those whose work
    or batch is not the same. `environment`: what else changed, name: (before, now); `compared`: of how many conditions. Both of
    one launch of each stack and run, of the same cell."""

    run: str
    started: float
    cells: tuple[Changed, ...]
    missing: int
    refused: int
    environment: Differences
    compared: Compared

    def count(self, verdict: str) -> int:
        """How many cells have this verdict."""
        return sum(one.verdict == verdict for one in self.cells)


def since(now: Sequence[Row], before: Sequence[Row], run: str, started: float) -> Since:
    """`now`, `before`: rows of tables.launch_rows of two runs, of which `run` is the earlier one."""
    old = {cell["cell"]: cell for cell in CellIndex(before).figures}
    found: dict[str, Pair] = {}
    missing = refused = 0
    for cell in CellIndex(now).figures:
        base = old.get(cell["cell"])
        if base is None or not cell.samples or not base.samples:
            missing += 1
            continue
        pair = compared_cells(cell, base)
        if pair.why_not:
            refused += 1
        else:
            found[cell["cell"]] = pair
    told = judged(list(found.values()))
    cells = tuple(
        Changed(cell=cell, ratio=pair.interval, verdict=one.verdict)
        for (cell, pair), one in zip(found.items(), told, strict=True)
    )
    sides = [values_of(environments) for environments in zip(*_environments(before, now), strict=True)] or [{}, {}]
    return Since(
        run=run, started=started, cells=cells, missing=missing, refused=refused,
        environment=differing(*sides), compared=compared(*sides),
    )  # fmt: skip


def _environments(before: Sequence[Row], now: Sequence[Row]) -> list[tuple[Environment, Environment]]:
    """Of each stack that both measured, then and now: those of one launch, of the first cell that both have."""
    then = {row["cell"]: row["path"] for row in before if is_ok(row)}
    paths: dict[str, tuple[str, str]] = {}
    for row in now:
        if is_ok(row) and row["cell"] in then:
            paths.setdefault(row["stack"], (then[row["cell"]], row["path"]))
    return [(_environment(old), _environment(new)) for old, new in paths.values()]


def _environment(path: str) -> Environment:
    found = read_launch(Path(path))
    return environment_of(found) if isinstance(found, Launch) else {}
