"""pyperf: the JSON of `pyperf timeit -o` and of suites."""

from torchmatrix_plugins.foreign.document import Document, Fields
from torchmatrix_plugins.foreign.results import Case, Figure, ForeignFile

_SETUP = {"Python": "python_version", "CPU": "cpu_model_name", "platform": "platform"}
_UNITS = ("second", "")


def read(document: Document) -> ForeignFile | None:
    """Read a case for each benchmark. Each run is a fresh process; the runs that only calibrate have no values."""
    fields = document.object
    if not ("benchmarks" in fields and "version" in fields and "metadata" in fields) or "benchmark_info" in fields:
        return None
    parts = fields.parts("benchmarks")
    if not parts or not all("runs" in part for part in parts):
        return None
    version = fields.text("metadata", "perf_version")
    began = [run.text("metadata", "date") for part in parts for run in part.parts("runs")]
    return ForeignFile(
        path=document.path, tool="pyperf", cases=tuple(_case(part, fields) for part in parts), version=version, tried=("2",),
        began=min(filter(None, began), default=""),
    )  # fmt: skip


def _case(part: Fields, whole: Fields) -> Case:
    own = {**whole.part("metadata").data, **part.part("metadata").data}
    metadata = Fields(own, part.place)
    runs = [run.numbers("values") for run in part.parts("runs")]
    means = tuple(sum(values) / len(values) for values in runs if values and min(values) > 0)
    figures: tuple[Figure, ...] = ()
    if means and metadata.text("unit") in _UNITS:
        figures = (
            Figure(
                quantity="time", statistic="mean", value=sum(means) / len(means), definition="of one loop, over processes",
                runs=means,
            ),
        )  # fmt: skip
    setup = {word: metadata.text(key) for word, key in _SETUP.items()}
    return Case(name=metadata.text("name"), work={"benchmark": metadata.text("name") or None}, setup=setup, figures=figures)
