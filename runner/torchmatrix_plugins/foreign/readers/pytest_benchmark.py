"""pytest-benchmark: the JSON of --benchmark-json, and of its storage."""

from torchmatrix_plugins.foreign.document import Document, Fields
from torchmatrix_plugins.foreign.results import Case, Figure, ForeignFile

_DEFINITION = "of one iteration, over rounds in one process"


def read(document: Document) -> ForeignFile | None:
    """Read a case for each test."""
    fields = document.object
    if not all(key in fields for key in ("machine_info", "commit_info", "benchmarks")):
        return None
    machine = {
        "Python": fields.text("machine_info", "python_version"), "CPU": fields.text("machine_info", "cpu", "brand_raw"),
        "commit": fields.text("commit_info", "id"),
    }  # fmt: skip
    return ForeignFile(
        path=document.path, tool="pytest-benchmark", cases=tuple(_case(part, machine) for part in fields.parts("benchmarks")),
        version=fields.text("version"), tried=("5", "4"), began=fields.text("datetime"),
    )  # fmt: skip


def _case(part: Fields, setup: dict[str, str]) -> Case:
    values = ((name, part.positive("stats", name)) for name in ("mean", "median"))
    figures = tuple(
        Figure(quantity="time", statistic=name, value=value, definition=_DEFINITION) for name, value in values if value
    )
    return Case(name=part.text("fullname"), work={"test": part.text("fullname") or None}, setup=setup, figures=figures)
