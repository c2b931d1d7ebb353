"""What a comparison finds (compare.py): its rows, their means, and what they are about."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from torchmatrix.analysis import verdicts
from torchmatrix.analysis.between_runs import BetweenRuns
from torchmatrix.analysis.comparable import Difference, Refused
from torchmatrix.analysis.metrics import THROUGHPUT, Metric
from torchmatrix.facts.environments import Compared
from torchmatrix.ground.formatting import none_for_nan

ONE_RUN, TWO_RUNS, RUNS = "launches", "launches of two runs", "runs"
"""What the intervals are over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One workload on as many devices, A over B (where less is better, B over A).

    `refused`: why they can't be compared (the ratio is NaN then). `verdict`: FASTER, SLOWER, SAME, AMBIGUOUS, or n/a where one
    side has fewer than two launches; corrected for the number of comparisons; `reason`: the rule that decided it
    (verdicts.REASONS; refused). `settle`: about so many launches on each side would end an AMBIGUOUS. `paired`: the ratio is
    the geometric mean over the rounds that both have. `count`: of devices. `stacks`, `batches`: of A and of B. `stack_match`:
    equal, equivalent or other. `differs`: the fields for which it is refused, each with both values. `p_value`: of the test
    for a difference; `adjusted_p_value`: corrected; `detectable`: the smallest difference from 1 that would have been told
    with a chance of 4 in 5; NaN where there is no interval. `cells`: their ids. `left_out`: which launches of each side, and
    why. `conditions`: of one machine, which are not the same on both sides (differences.py). `work_checked`: whether both
    sides counted the model's parameters and the operations per item, which must agree.
    """

    label: str
    ratio: float
    low: float
    high: float
    launches: tuple[int, int]
    failed: tuple[int, int]
    verdict: str
    settle: int | None
    reason: str = ""
    refused: str | None
    paired: bool = False
    count: int
    stacks: tuple[str, str]
    stack_match: str
    batches: tuple[int | str, int | str]
    differs: tuple[Difference, ...]
    p_value: float = math.nan
    adjusted_p_value: float = math.nan
    detectable: float = math.nan
    cells: tuple[str, str] = ("", "")
    left_out: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    work_checked: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    """The geometric mean of `n` ratios on `count` devices (None: on any number); `missing` cells have no ratio.

    `low`, `high`, `verdict`: of this mean alone. Within one run they are over its launches. Of two runs they hold how runs
    differ, once for all cells, since these share their run; where that is unknown they are NaN (null in --json) and n/a.
    """

    count: int | None
    ratio: float
    n: int
    missing: int
    low: float = math.nan
    high: float = math.nan
    verdict: str = "n/a"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All rows that A and B share, those that only one has, and the fields in which their environments differ.

    `refused`: why rows are not compared, field by field. `means`: by number of devices if there are several, then of all.
    `verdicts`: how many ratios have each. `comparisons`: how many were tested, which is what the verdicts are corrected for.
    `batch`: same, or own for each side its own. `empty`: a sentence if one side has no launch that is ok, else None.
    `compared`: how much of the list of conditions both sides recorded. `one_machine`: whether both sides were measured on the
    same machine, as far as is known. `level`: what the intervals are over: launches of one run; of these two runs, which say
    nothing of others; or runs, whose variance `between` is. `metric`: what the ratios are of.
    """

    rows: tuple[Row, ...]
    only_one: tuple[str, ...]
    environment: dict[str, tuple[str, str]]
    refused: tuple[Refused, ...]
    means: tuple[Mean, ...]
    verdicts: dict[str, int]
    comparisons: int
    batch: str
    empty: str | None
    one_machine: bool
    compared: Compared
    level: str = ONE_RUN
    between: BetweenRuns | None = None
    metric: Metric = THROUGHPUT

    def as_record(self) -> dict[str, Any]:
        """For --json; NaN becomes null."""
        return {
            "rows": [none_for_nan(asdict(row)) for row in self.rows],
            "only_one": self.only_one,
            "environment": self.environment,
            "compared_conditions": asdict(self.compared),
            "refused": [asdict(one) for one in self.refused],
            "means": [none_for_nan(asdict(mean)) for mean in self.means],
            "verdicts": self.verdicts,
            "comparisons": self.comparisons,
            "correction": f"{verdicts.CORRECTION}, FDR {verdicts.FALSE_DISCOVERIES:.0%}",
            "level": self.level,
            "between_runs": self.between.as_record() if self.between else None,
            "batch": self.batch,
            "empty": self.empty,
            "one_machine": self.one_machine,
            "metric": self.metric.name,
        }
