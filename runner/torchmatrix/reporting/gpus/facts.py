"""What answers and charts of several machines are made of: figures of GPUs, and their means over a baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torchmatrix.analysis import across
from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import Row
from torchmatrix.analysis.verdicts import MeanRatio
from torchmatrix.reporting.overview.cells import Cells, grouped

_BEST = {"amp": 3, "amp-bf16": 2, "tf32": 1}
"""The setting that charts of one setting show: the mixed precision, compiled."""


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """`relative`: to the page's baseline; `each`: to every GPU. `worth`: measured cells with rows of fleet_tables.worth_table.
    `vendors`: of each GPU. `noun`: what stands side by side, GPU or machine."""

    cells: Cells
    relative: Relative
    each: tuple[Relative, ...]
    worth: Sequence[Row]
    vendors: dict[str, str]
    held: PriceList
    noun: str = "GPU"

    @cached_property
    def rows(self) -> list[Row]:
        """Of each GPU, workload, stack and number of devices the figure that stands for the GPU."""
        return [row for row in self.relative.table if row["of_gpu"]]

    @cached_property
    def names(self) -> list[str]:
        return list(dict.fromkeys(row["gpu"] for row in self.rows))

    @property
    def device(self) -> str:
        """What several of are measured at once."""
        return "GPU" if any(self.cells.value(row, "devices").isdigit() for row in self.cells.rows) else "device"

    def name(self, row: Row) -> str:
        """The GPU of a cell; its machine where those stand side by side."""
        return self.cells.value(row, "machine" if self.noun == "machine" else "gpu")

    def who(self, row: Row) -> str:
        """The GPU of a row of `worth`, and its machine where several have it."""
        several = len({one["machine"] for one in self.worth if one["gpu"] == row["gpu"]}) > 1
        return row["machine"] if self.noun == "machine" else f"{row['gpu']} · {row['machine']}" if several else row["gpu"]

    @cached_property
    def scaled(self) -> list[Row]:
        """Cells of several devices that have a speed-up over one."""
        return [row for row in self.cells.rows if row["S"] is not None and row["N"] > 1]

    @cached_property
    def counts(self) -> list[int]:
        """Numbers of devices on which another GPU has a mean over the baseline."""
        return sorted({pair.count for pair in self.relative.pairs})

    @property
    def least(self) -> int:
        return self.counts[0] if self.counts else min((row["count"] for row in self.rows), default=1)

    def mean(self, gpu: str, over: str, count: int) -> MeanRatio | None:
        """None where no workload is compared."""
        found = next(one for one in self.each if one.baseline == over)
        pairs = [pair for pair in found.pairs if pair.gpu == gpu and pair.count == count]
        return across.mean_over(pairs, self.cells.data.significance) if pairs else None

    def ratios(self, gpu: str, count: int) -> list[float]:
        """Over the baseline, one for each workload."""
        return [pair.ratio for pair in self.relative.pairs if pair.gpu == gpu and pair.count == count]

    def ranked(self, count: int) -> list[tuple[str, MeanRatio | None]]:
        """The baseline (None) and the GPUs with a mean over it, the highest first."""
        found = [(gpu, self.mean(gpu, self.relative.baseline, count)) for gpu in self.names if gpu != self.relative.baseline]
        known: list[tuple[str, MeanRatio | None]] = [(gpu, mean) for gpu, mean in found if mean]
        known.append((self.relative.baseline, None))
        return sorted(known, key=lambda one: -(one[1].interval.value if one[1] else 1.0))

    @cached_property
    def order(self) -> list[str]:
        """All GPUs, those with a result first, by it."""
        first = [gpu for gpu, _ in self.ranked(self.least)]
        return [*first, *(gpu for gpu in self.names if gpu not in first)]

    def colour(self, gpu: str) -> int:
        return {"NVIDIA": 0, "AMD": 1}.get(self.vendors.get(gpu, ""), 2)

    @cached_property
    def jobs(self) -> list[list[Row]]:
        """The rows on the fewest devices by mode and model."""
        return grouped((row for row in self.rows if row["count"] == self.least), lambda row: (row["mode"], row["model"]))

    def by_release(self, rows: Sequence[Row]) -> list[list[Row]]:
        """By workload and release of torch the rows of those that most GPUs measured, until each GPU is in."""
        groups = grouped((row for row in rows if row["n"]), lambda row: (row["workload"], row["stack_class"]))
        left, found = {row["gpu"] for own in groups for row in own}, []
        while left:
            found.append(max(groups, key=lambda own: len(left & {row["gpu"] for row in own})))
            left -= {row["gpu"] for row in found[-1]}
        return found

    def best(self, rows: Sequence[Row]) -> list[Row]:
        """Of each GPU a row of the workload that most GPUs measured, of these with the setting that is usually the fastest."""
        jobs = grouped((row for row in rows if row["n"]), lambda row: row["workload"])
        own = max(jobs, key=lambda own: (len({row["gpu"] for row in own}), _rank(own[0])), default=[])
        found: dict[str, Row] = {}
        for row in (row for release in self.by_release(own) for row in release):
            found.setdefault(row["gpu"], row)
        return list(found.values())


def _rank(row: Row) -> tuple[int, bool]:
    return _BEST.get(row["precision"], 0), bool(row["compile"])
