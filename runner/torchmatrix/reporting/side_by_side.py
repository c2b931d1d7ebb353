"""Relative tables (analysis.across) -> for each number of devices a table workload x GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchmatrix.analysis import across
from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.rows import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """The ratios on `count` devices. `lines`: one per workload and release of torch that two GPUs or more measured.

    `means`: for each GPU its geometric mean over its lines (as of across.relative_means) or None. `alone`: how many further
    workloads only one GPU measured.
    """

    count: int
    gpus: tuple[str, ...]
    means: tuple[Row | None, ...]
    lines: tuple["Line", ...]
    alone: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One workload on stacks of one release; `entries`: of each GPU a row of across.relative_table, or None."""

    workload: str
    stacks: str
    entries: tuple[Row | None, ...]


def grids(relative: Relative) -> list[Grid]:
    """One for each number of devices on which two GPUs have a figure, fewest devices first; GPUs in the order of the table."""
    rows = [row for row in relative.table if row["of_gpu"]]
    gpus = tuple(dict.fromkeys(row["gpu"] for row in rows))
    means = {(row["gpu"], row["count"]): row for row in across.relative_means(relative.table)}
    found = []
    for count in sorted({row["count"] for row in rows}):
        lines = _lines([row for row in rows if row["count"] == count], gpus)
        shared = tuple(line for line in lines if sum(entry is not None and entry["n"] > 0 for entry in line.entries) > 1)
        if shared:
            own = tuple(means.get((gpu, count)) for gpu in gpus)
            found.append(Grid(count=count, gpus=gpus, means=own, lines=shared, alone=len(lines) - len(shared)))
    return found


def _lines(rows: Sequence[Row], gpus: Sequence[str]) -> tuple[Line, ...]:
    by_job: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        own = by_job.setdefault((row["workload"], row["stack_class"]), {})
        if row["gpu"] not in own or (row["n"] and not own[row["gpu"]]["n"]):
            own[row["gpu"]] = row
    return tuple(
        Line(workload=workload, stacks=stacks, entries=tuple(own.get(gpu) for gpu in gpus))
        for (workload, stacks), own in by_job.items()
    )


def of_each_machine(relative: Relative) -> list[Row]:
    """The rows of single machines whose GPU several machines have."""
    return [row for row in relative.table if not row["of_gpu"]]
