"""Readings that a report makes of launches that a test made in memory, and its exported tables as pandas has them."""

from collections.abc import Iterable

import pandas as pd

from torchmatrix.analysis import traces
from torchmatrix.analysis.time_split import Spent, spent_by
from torchmatrix.analysis.traces import Trace
from torchmatrix.facts.launch import Launch
from torchmatrix.reporting.exports import Tables
from torchmatrix.reporting.exports.formats import frame


def spent(launches: Iterable[Launch]) -> list[Spent]:
    """Return the time spent by those launches that a report shows."""
    return [times for launch in launches if (times := spent_by(launch))]


def traces_of(launches: Iterable[Launch]) -> list[Trace]:
    """Return the traces as they stand together on a page."""
    return traces.shortened(traces.whole_of(launches).values())


def frames(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the tables by name: NaN or NA for what is unknown."""
    return {name: frame(name, table) for name, table in tables.values.items()}
