"""Relative tables (analysis.across) -> what a page shows: for each number of devices a table workload x GPU, and sentences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis import across
from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.tables import records
from torchmatrix.reporting.charts import Chart, gpu_bars
from torchmatrix.reporting.charts.gpu_bars import Bar
from torchmatrix.reporting.report.filters import ratio

Row = dict[str, Any]


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
    rows = records(relative.table[relative.table["of_gpu"].astype(bool)])
    gpus = tuple(dict.fromkeys(row["gpu"] for row in rows))
    means = {(row["gpu"], row["count"]): row for row in records(across.relative_means(relative.table))}
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
    return records(relative.table[~relative.table["of_gpu"].astype(bool)])


def in_short(relative: Relative) -> list[str]:
    """A sentence for the fewest and one for the most devices: the geometric mean of each GPU over the baseline GPU."""
    return [_sentence(grid, relative.baseline) for grid in _ends(relative)]


def _sentence(grid: Grid, baseline: str) -> str:
    told = [f"{gpu} {_mean(mean)}" for gpu, mean in _others(grid, baseline)]
    devices = "one device" if grid.count == 1 else f"{grid.count} devices"
    return f"Relative to {baseline}, on {devices} each, geometric mean over cells, not tested: {'; '.join(told)}."


def _mean(mean: Row) -> str:
    """Such as "×1.573 (n = 4)"."""
    cells = "one cell" if mean["n"] == 1 else f"n = {mean['n']}"
    return f"×{ratio(mean['ratio'])} ({cells})"


def charts(relative: Relative) -> list[Chart]:
    """One for the fewest and one for the most devices: a bar for each GPU that has a ratio, and the baseline's."""
    return [_chart(grid, relative.baseline) for grid in _ends(relative)]


def _ends(relative: Relative) -> list[Grid]:
    """Of the grids with a ratio of a GPU other than the baseline the first and the last."""
    found = [grid for grid in grids(relative) if _others(grid, relative.baseline)]
    return found if len(found) < 2 else [found[0], found[-1]]


def _others(grid: Grid, baseline: str) -> list[tuple[str, Row]]:
    """The GPUs besides the baseline that have a mean, the largest first."""
    pairs = [(gpu, mean) for gpu, mean in zip(grid.gpus, grid.means, strict=True) if gpu != baseline and mean and mean["n"]]
    return sorted(pairs, key=lambda pair: -float(pair[1]["ratio"]))


def _chart(grid: Grid, baseline: str) -> Chart:
    bars = [_bar(grid, place) for place, mean in enumerate(grid.means) if mean and mean["n"]]
    bars.sort(key=lambda bar: -bar.mean)
    return gpu_bars.chart(bars, baseline, grid.count, _title(grid, bars, baseline), DEFINITIONS["geometric_mean"])


def _title(grid: Grid, bars: Sequence[Bar], baseline: str) -> str:
    best, count = bars[0], grid.count
    if best.gpu == baseline:
        return f"On {count} of each, {baseline} has the highest geometric mean over cells, which is not tested"
    times = f"{ratio(best.mean)} over {count} × {baseline}"
    return f"{count} × {best.gpu}: {times}, the geometric mean over {len(best.cells)} cells, which is not tested"


def _bar(grid: Grid, place: int) -> Bar:
    own = [(line, line.entries[place]) for line in grid.lines]
    cells = tuple(
        (f"{line.workload}, {line.stacks}", float(entry["ratio"]))
        for line, entry in own
        if entry and not math.isnan(entry["ratio"])
    )
    mean = grid.means[place]
    assert mean is not None
    return Bar(place=place, gpu=grid.gpus[place], mean=float(mean["ratio"]), cells=cells, missing=int(mean["missing"]))
