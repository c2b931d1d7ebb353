"""What the ratios are made from: the ok launches' throughputs by cell, and the cells by stack, workload and devices."""

import math
from typing import Any

import pandas as pd

from torchmatrix.analysis.tables import CellKey, told_by
from torchmatrix.matrix.factors import ONE_MODEL


class Known:
    """An index of a launches table (see tables.launches_table), of one machine or of several.

    Its rows are those of the table, one per cell, in the order in which the cells first appear. `fleet`: the columns that the
    table has because it is of several machines; cells are then looked up on the machine of the row that asks.
    """

    def __init__(self, launches: pd.DataFrame) -> None:
        self.fleet = told_by(launches.columns)
        self._key = [*(name for name in self.fleet if name == "machine"), "cell"]
        self._launches = launches
        self._rows = _row_per_cell(launches, self._key)
        self._samples: dict[CellKey, list[float]] = {}
        for outcome, rate, *key in zip(*(launches[name] for name in ("outcome", "throughput", *self._key)), strict=True):
            if outcome == "ok":
                self._samples.setdefault(tuple(key), []).append(float(rate))
        self._others = {(self.machine(r), r.stack, r.ddp_workload, r.parallel, r.device_list): r for r in self._rows}

    @classmethod
    def of(cls, launches: "pd.DataFrame | Known") -> "Known":
        """The index of a table, or itself: what makes several tables of ratios makes it once."""
        return launches if isinstance(launches, Known) else cls(launches)

    def figures(self) -> list[Any]:
        """One row per cell but those that only explain others, in the order in which the cells first appear."""
        return [row for row in self._rows if row.parallel in ONE_MODEL]

    def machine(self, row: Any) -> str:
        """Of a row; "" in a table of one machine."""
        return row.machine if "machine" in self.fleet else ""

    def named(self, row: Any) -> dict[str, Any]:
        """The machine and the GPU of a row, by column; nothing in a table of one machine."""
        return {name: getattr(row, name) for name in self.fleet}

    def other(self, row: Any, devices: tuple[str, ...], parallel: str = "") -> Any | None:
        """The cell of a row's machine, stack and workload on other devices or with another `parallel`, if there is one."""
        return self._others.get((self.machine(row), row.stack, row.ddp_workload, parallel or row.parallel, devices))

    def samples_of(self, row: Any | None) -> list[float]:
        """Items per second of each ok launch of a cell."""
        return [] if row is None else self._samples.get(self._key_of(row), [])

    def samples(self, row: Any, devices: tuple[str, ...]) -> list[float]:
        """The same of its cell on other devices."""
        return self.samples_of(self.other(row, devices))

    def highest(self, row: Any, column: str) -> float:
        """The highest value of a column among the cell's ok launches; NaN if there is none."""
        own = self._launches["outcome"] == "ok"
        for name, value in zip(self._key, self._key_of(row), strict=True):
            own &= self._launches[name] == value
        values = self._launches.loc[own, column].dropna()
        return float(values.max()) if len(values) else math.nan

    def _key_of(self, row: Any) -> CellKey:
        return tuple(getattr(row, name) for name in self._key)


def _row_per_cell(launches: pd.DataFrame, key: list[str]) -> list[Any]:
    """The cell's first ok launch, else its first: a launch that failed early knows less about itself."""
    first: dict[CellKey, int] = {}
    first_ok: dict[CellKey, int] = {}
    for place, (outcome, *names) in enumerate(zip(*(launches[name] for name in ("outcome", *key)), strict=True)):
        first.setdefault(tuple(names), place)
        if outcome == "ok":
            first_ok.setdefault(tuple(names), place)
    places = [first_ok.get(cell, place) for cell, place in first.items()]
    return list(launches.iloc[places].itertuples(index=False))
