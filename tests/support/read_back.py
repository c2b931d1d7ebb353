"""What a report reads of launches that a test made in memory, and its exported tables as pandas has them."""

from collections.abc import Iterable

import pandas as pd

from torchmatrix.analysis import traces
from torchmatrix.analysis.time_split import Spent, spent_by
from torchmatrix.analysis.traces import Trace
from torchmatrix.facts.launch import Launch
from torchmatrix.reporting.exports import Tables
from torchmatrix.reporting.exports.formats import frame


def spent(launches: Iterable[Launch]) -> list[Spent]:
    """Of those that a report shows."""
    return [found for launch in launches if (found := spent_by(launch))]


def traces_of(launches: Iterable[Launch]) -> list[Trace]:
    """As they stand together on a page."""
    return traces.shortened(traces.whole_of(launches).values())


def frames(tables: Tables) -> dict[str, pd.DataFrame]:
    """By name: NaN or NA for what is unknown."""
    return {name: frame(name, table) for name, table in tables.values.items()}
