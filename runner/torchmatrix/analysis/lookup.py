"""What the ratios are made from: the ok launches' throughputs by cell, and the cells by stack, workload and devices."""

import math
from typing import Any

import pandas as pd


class Known:
    """An index of a launches table (see tables.launches_table)."""

    def __init__(self, launches: pd.DataFrame) -> None:
        self._launches = launches
        self._rows = _row_per_cell(launches)
        self._samples: dict[str, list[float]] = {}
        for cell, outcome, rate in zip(launches["cell"], launches["outcome"], launches["throughput"], strict=True):
            if outcome == "ok":
                self._samples.setdefault(cell, []).append(float(rate))
        self._ids = {(row.stack, row.ddp_workload, row.parallel, row.device_list): row.cell for row in self._rows}

    def cells(self, parallel: str) -> list[Any]:
        """One row per cell of this kind, in the order in which the cells first appear."""
        return [row for row in self._rows if row.parallel == parallel]

    def cell(self, stack: str, workload: str, devices: tuple[str, ...], parallel: str = "ddp") -> str | None:
        """The id of such a cell, if there is one; `workload`: of the DDP cell, also where `parallel` is what explains it."""
        return self._ids.get((stack, workload, parallel, devices))

    def samples_of(self, cell: str | None) -> list[float]:
        """Items per second of each ok launch of a cell."""
        return self._samples.get(cell, []) if cell else []

    def samples(self, stack: str, workload: str, devices: tuple[str, ...]) -> list[float]:
        """The same of the cell that these three name."""
        return self.samples_of(self.cell(stack, workload, devices))

    def highest(self, cell: str, column: str) -> float:
        """The highest value of a column among the cell's ok launches; NaN if there is none."""
        own = (self._launches["cell"] == cell) & (self._launches["outcome"] == "ok")
        values = self._launches.loc[own, column].dropna()
        return float(values.max()) if len(values) else math.nan


def _row_per_cell(launches: pd.DataFrame) -> list[Any]:
    """The cell's first ok launch, else its first: a launch that failed early knows less about itself."""
    if launches.empty:
        return []
    plain = launches.reset_index(drop=True)
    ok_first = (plain["outcome"] != "ok").sort_values(kind="stable").index
    chosen = plain.loc[ok_first].drop_duplicates("cell").set_index("cell", drop=False)
    return list(chosen.loc[plain["cell"].drop_duplicates()].itertuples(index=False))
