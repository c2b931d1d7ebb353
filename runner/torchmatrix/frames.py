"""Read recorded results into pandas, for notebooks and own plots: `torchmatrix.read("results")`. Measures and writes nothing
but the cache of what was read.
"""

import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pandas as pd

from torchmatrix.analysis import facts_cache
from torchmatrix.analysis.cells import Cell
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import count, is_known
from torchmatrix.core.toml_keys import nearest, shown
from torchmatrix.facts.store import Results, RunFolder, host_of, select, select_one
from torchmatrix.reporting import exports
from torchmatrix.reporting.exports.columns import TABLES
from torchmatrix.reporting.exports.formats import frame
from torchmatrix.reporting.exports.table_set import View, make_view

_FIRST = ("host", "run", "started")


class Run:
    """A recorded run. Its tables are those of `torchmatrix export`, with units in the columns' names and both ends of each
    95 % interval in NAME_low and NAME_high; unknown is NaN or NA. `frame.attrs["meanings"]` says what each column is.
    """

    def __init__(self, results: Results, folder: RunFolder) -> None:
        self.id, self.host, self.path = folder.id, host_of(folder), folder.path
        self._results, self._folder = results, folder

    def __repr__(self) -> str:
        return f"<run {self.host}/{self.id}>"

    @property
    def started(self) -> pd.Timestamp:
        """Return when it began (UTC); NaT if that is unknown."""
        known = is_known(self._folder.started)
        return pd.Timestamp(self._folder.started, unit="s", tz="UTC") if known else pd.NaT

    @cached_property
    def _view(self) -> View:
        if not self.path.is_dir():
            raise BadInput(f"the run {self.host}/{self.id} is gone", hint="is its disk mounted?")
        return make_view(self.id, self._folder.read_record(), facts_cache.whole(self._results, self._folder))

    @cached_property
    def _tables(self) -> exports.Tables:
        return exports.of(self._view)

    @property
    def complete(self) -> bool:
        """Check whether it was measured to its end."""
        return self._view.summary.complete

    @property
    def unreadable(self) -> dict[str, str]:
        """Return the files that can't be read, and why: what stands in them is in no table."""
        return {str(file.path): file.reason for file in self._view.summary.unreadable}

    def table(self, name: str) -> pd.DataFrame:
        """Return one of TABLES, such as scaling: a new frame each time. Raises BadInput for an unknown name."""
        if name not in TABLES:
            raise BadInput(f"there is no table {shown(name)}", hint=nearest(name, TABLES))
        made = frame(name, self._tables.values[name])
        made.attrs.update(run=self.id, meanings={column.name: column.meaning for column in TABLES[name]})
        return made

    @property
    def cells(self) -> pd.DataFrame:
        """Return a row per cell: its figure over all launches, with its interval."""
        return self.table("cells")

    @property
    def launches(self) -> pd.DataFrame:
        """Return a row per launch, the last try of each."""
        return self.table("launches")

    def cell(self, cell: str) -> Cell:
        """Return a cell by its id: `samples` are its launches' items per second, `estimate()` its figure with the interval,
        `over(other)` the ratio to another cell. Raises BadInput for an unknown id.
        """
        if cell not in self._view.index.named:
            raise BadInput(f"run {self.id} has no cell {shown(cell)}", hint=nearest(cell, self._view.index.named))
        return self._view.index.named[cell]


class Runs:
    """The runs in a results folder, oldest first."""

    def __init__(self, folder: "str | Path" = "results") -> None:
        if not Path(folder).is_dir():
            raise BadInput(f"there is no folder {folder}", hint="name the folder of results, such as results")
        self._results = Results(Path(folder))
        if left_out := self.left_out:
            warnings.warn(f"{count(len(left_out), 'folder')} of {folder} left out: see left_out", stacklevel=3)

    @property
    def left_out(self) -> dict[str, str]:
        """Return the folders that are no run here, and why: copies, names that aren't UTF-8, what can't be read."""
        return self._results.listed().left_out

    def __iter__(self) -> Iterator[Run]:
        return (Run(self._results, run) for run in self._results.runs())

    def __len__(self) -> int:
        return len(self._results.runs())

    def run(self, word: str = "last") -> Run:
        """Return a run: last, last~1, or its id. Raises BadInput for none, or several."""
        return Run(self._results, select_one(self._results, word))

    def table(self, name: str, word: str = "all") -> pd.DataFrame:
        """Return one of TABLES of several runs as one frame, with the columns host, run and started before the others.

        `word`: all, last-30d, last, an id. Raises BadInput for an unknown name, or if no run is named.
        """
        frames = []
        for run in (Run(self._results, folder) for folder in select(self._results, word)):
            one = run.table(name)
            one = one[[column for column in one.columns if column not in _FIRST]]
            for place, column in enumerate(_FIRST):
                one.insert(place, column, {"host": run.host, "run": run.id, "started": run.started}[column])
            frames.append(one)
        joined = pd.concat(frames, ignore_index=True)
        joined["started"] = pd.to_datetime(joined["started"], utc=True)
        joined.attrs["meanings"] = frames[-1].attrs["meanings"]
        return joined
