"""What a report reads of launches that a test made in memory."""

from collections.abc import Iterable

from torchmatrix.analysis import traces
from torchmatrix.analysis.time_split import Spent, spent_by
from torchmatrix.analysis.traces import Trace
from torchmatrix.facts.launch import Launch


def spent(launches: Iterable[Launch]) -> list[Spent]:
    """Of those that a report shows."""
    return [found for launch in launches if (found := spent_by(launch))]


def traces_of(launches: Iterable[Launch]) -> list[Trace]:
    """As they stand together on a page."""
    return traces.shortened(traces.whole_of(launches).values())
