"""nccl-tests: the JSON of -J. The environment that it holds is never read."""

from collections.abc import Iterator

from torchmatrix_plugins.foreign.document import Document, Fields
from torchmatrix_plugins.foreign.results import Case, Figure, ForeignFile

_QUANTITIES = {"time": "collective", "alg_bw": "algorithm bandwidth", "bus_bw": "bus bandwidth"}
_DEFINITIONS = {
    "time": "the mean of the iterations, of the slowest or the average process",
    "alg_bw": "bytes / time",
    "bus_bw": "nccl-tests' factor of the collective × bytes / time",
}


def read(document: Document) -> ForeignFile | None:
    """Read a case for each size, out of place and in place. `version` is that of the file's format."""
    fields = document.object
    if not all(key in fields for key in ("nccl_version", "ranks", "results", "args")):
        return None
    return ForeignFile(
        path=document.path, tool="nccl-tests", cases=tuple(_cases(fields)), version=fields.text("version"), tried=("3", "1"),
        began=fields.text("start_time"),
    )  # fmt: skip


def _cases(fields: Fields) -> Iterator[Case]:
    ranks, args = fields.parts("ranks"), fields.data.get("args")
    command = str(args[0]) if isinstance(args, list) and args else ""
    operation = command.rsplit("/", 1)[-1].partition("_perf")[0].replace("_", "-")  # a build may add a suffix
    names = {rank.text("device_info").split("] ")[-1].strip() for rank in ranks}
    device = names.pop() if len(names) == 1 else ""
    hosts = len({rank.text("hostname") for rank in ranks})
    setup = {"NCCL": fields.text("nccl_version"), "device": device}
    for row in fields.parts("results"):
        work = {"operation": operation or None, "bytes": row.positive("size"), "type": row.text("type") or None}
        work |= {"reduction": row.text("redop") or None, "ranks": len(ranks) or None, "hosts": hosts or None}
        for place in ("out_of_place", "in_place"):
            part = row.part(place)
            values = {key: part.positive(key) for key in _QUANTITIES}
            figures = tuple(
                Figure(quantity=_QUANTITIES[key], statistic="mean", value=value, definition=_DEFINITIONS[key])
                for key, value in values.items()
                if value
            )
            wrong = part.number("nwrong")
            problems = None if wrong is None else (f"{wrong:g} elements are wrong",) if wrong else ()
            if figures:
                yield Case(
                    name=f"{operation} {row.text('size')} B {place.replace('_', '-')}", work=work | {"buffers": place},
                    setup=setup, figures=figures, device=device if hosts == 1 else "", devices=len(ranks) or None,
                    problems=problems,
                )  # fmt: skip
