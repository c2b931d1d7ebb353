"""What the columns of requests mean: in the tables `latency` and `end_to_end`, which have the same, and in that of launches."""

from collections.abc import Iterable

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.metrics import OF_REQUESTS, PERCENTILES
from torchmatrix.reporting.exports.column import Column, a_number, a_whole, an_interval


def request_columns(definition: str) -> Iterable[Column]:
    """Behind what names a cell; `definition`: a key of the glossary."""
    yield a_whole("batch_per_request", "items of one request, per device", "batch")
    yield a_whole("device_count", "how many devices (N); all serve their own requests at once", "count")
    yield a_whole("launches_ok", "launches behind it", "n")
    yield a_whole("requests", "their requests together")
    for name in PERCENTILES:
        which = "the longest" if name == "max" else name
        yield from an_interval(name, f"{which}. {DEFINITIONS[definition]}", name, unit="_seconds")


def launch_columns() -> Iterable[Column]:
    """Of one launch."""
    for metric in (one for some in OF_REQUESTS.values() for one in some):
        yield a_number(f"{metric.name}_seconds", f"{metric.title} of this launch's requests", metric.name)
