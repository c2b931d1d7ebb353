"""CSV files of published throughputs -> figures, and those fields that can't be read, each with the reason."""

import math
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from torchmatrix.analysis.gpu_specs import peak_flops
from torchmatrix.analysis.published import gpu_names, layouts
from torchmatrix.analysis.published.figures import Figure
from torchmatrix.analysis.published.layouts import Row
from torchmatrix.facts.launch import Unreadable
from torchmatrix.ground import inputs
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.formatting import clipped, printable
from torchmatrix.matrix import catalog
from torchmatrix.matrix.factors import PRECISIONS

OTHER_PRECISIONS = ("fp32-conv-tf32", "bf16", "fp16")
"""Words of published figures that no workload of ours computes in (reports/published/README.md), so they equal none of ours."""
_VALUES = {
    "mode": {"training": "train", "inference": "infer"},
    "compile": {"yes": "true", "no": "false"},
    "precision": {"amp fp16": "amp", "amp bf16": "amp-bf16", "amp_bf16": "amp-bf16"},
}
"""Other words for a value."""
_TEXTS = (
    "vendor", "framework", "mode", "memory_format", "data", "unit", "torch", "image", "driver", "date", "published_precision",
    "source", "notes",
)  # fmt: skip
_LAMBDAS_MACHINE = re.compile(r"\bresults(?:_v2)?/([^/]+)/PyTorch_")
"""Lambda's logs lie below a folder for each machine."""
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
_FLOPS_PER_GMAC = 2e9
"""A multiply-add is two operations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unparsed:
    """What could not be read. `row`: the header is row 1; `column`: "" if the whole row is meant; `text`: what stands there."""

    row: int
    column: str
    text: str
    why: str

    def __str__(self) -> str:
        place = f"row {self.row}, {printable(self.column)}" if self.column else f"row {self.row}"
        return f'{place}: "{clipped(printable(self.text))}" {self.why}' if self.text else f"{place}: {self.why}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The figures of one file or of launches, what is left out of it, and the files of launches that can't be read.

    `mixed`: cells of launches that have a number and no figure (figures.mixed).
    """

    figures: tuple[Figure, ...]
    unparsed: tuple[Unparsed, ...]
    unreadable: tuple[Unreadable, ...] = ()
    mixed: tuple[str, ...] = ()


class _Unreadable(Exception):
    """One figure can't be read; what is known of it is in `problem`."""

    def __init__(self, problem: Unparsed) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read(path: Path) -> tuple[Figure, ...]:
    """The figures of a CSV file. Raises BadInput where it can't be read, lacks a needed column, or a figure can't be read."""
    taken = take(path)
    if taken.unparsed:
        raise BadInput(f"{path}, {taken.unparsed[0]}", hint="leave out rows without a figure; write numbers without a unit")
    return taken.figures


def take(path: Path) -> Taken:
    """The figures of a CSV file that can be read, and the rest. Raises BadInput where it has no figure or no needed column."""
    header, rows, unparsed = _rows(path)
    figures = []
    for row in layouts.rows(path, header, rows):
        try:
            figures.append(_figure(path.stem, row))
        except _Unreadable as error:
            unparsed.append(error.problem)
    unparsed.sort(key=lambda one: one.row)
    if not figures:
        first = f"; the first: {unparsed[0]}" if unparsed else ""
        raise BadInput(f"{path} has no figure that can be read{first}", hint=layouts.HINT)
    return Taken(figures=tuple(figures), unparsed=tuple(unparsed))


def rows_of(path: Path) -> dict[int, dict[str, str]]:
    """The rows of a CSV file by number (the header is row 1), empty ones left out. Raises BadInput."""
    _, found, unparsed = _rows(path)
    if unparsed:
        raise BadInput(f"{path}, {unparsed[0]}", hint="quote fields that hold a comma")
    return found


def _rows(path: Path) -> tuple[list[str], dict[int, dict[str, str]], list[Unparsed]]:
    """The header, the rows by number and those that don't fit the header. Raises BadInput."""
    names, found = inputs.csv_of(path, hint="name a CSV file with a header, in UTF-8")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise BadInput(f'{path} has two columns "{clipped(printable(twice[0]))}"', hint="give each column a name of its own")
    if not found:
        raise BadInput(f"{path} has no rows", hint="name a CSV file with a header and a row for each figure")
    good = {number: dict(zip(names, row, strict=True)) for number, row in found.items() if len(row) == len(names)}
    why = "not as many fields as the header"
    bad = [Unparsed(row=number, column="", text="", why=why) for number, row in found.items() if len(row) != len(names)]
    return names, good, bad


def _figure(file: str, row: Row) -> Figure:
    values = {name: _known_value(name, row.values.get(name, "")) for name in (*_TEXTS, "compile")}
    throughput = _positive_number(row, "throughput")
    if throughput is None:
        raise _Unreadable(Unparsed(row=row.number, column=row.column, text="", why="no throughput"))
    named = gpu_names.split(row.values["gpu"])
    facts = gpu_names.find(named.gpu)
    count = _count(row, named.count)
    precision, memory_format = _precision(row.values.get("precision", ""))
    if precision == "fp32" and facts and peak_flops(facts, "tf32"):
        precision = row.values.get("fp32_is", precision)
    gmacs = _positive_number(row, "gmacs")
    model = row.values["model"]
    return Figure(
        **{name: values[name] for name in _TEXTS if name not in ("memory_format", "published_precision")},
        file=file, row=row.number, column=row.column, cell="", gpu=facts.name if facts else "", gpus=count,
        model=model if model in catalog.models() else "", precision=precision,
        memory_format=values["memory_format"] or memory_format,
        compile={"true": True, "false": False}.get(values["compile"].lower()),
        batch_per_gpu=_batch(row, count), image_size=_whole(row, "image_size"), sequence_length=_whole(row, "sequence_length"),
        throughput=throughput, rounding=_positive_number(row, "rounding") or _half_unit(row.values["throughput"]),
        steady_throughput=_positive_number(row, "steady_throughput"), half_interval=math.nan,
        forward_flops=gmacs * _FLOPS_PER_GMAC if gmacs else None,
        machine=row.values.get("machine") or _lambdas_machine(values["source"]) or named.rest,
        published_gpu=row.values.get("published_gpu") or named.gpu,
        published_model=row.values.get("published_model") or model,
        published_precision=values["published_precision"] or row.values.get("precision", ""),
    )  # fmt: skip


def _count(row: Row, named: int | None) -> int | None:
    """Of GPUs: as its column says, else as the name says ("8x A100"); both must agree."""
    counted = _whole(row, "gpus", least=0)
    also = named or _whole(row, "named_gpus")
    if counted is not None and also is not None and counted != also:
        raise _Unreadable(
            Unparsed(row=row.number, column="gpus", text=str(counted), why=f"contradicts the name, which says {also}")
        )
    return also if counted is None else counted


def _batch(row: Row, count: int | None) -> int | None:
    """Per GPU; where only that of all GPUs is given, its share."""
    own, every = _whole(row, "batch_per_gpu"), _whole(row, "global_batch")
    return own if own or not every or not count or every % count else every // count


def _known_value(name: str, value: str) -> str:
    return _VALUES.get(name, {}).get(value.lower(), value)


def _precision(text: str) -> tuple[str, str]:
    """Precision and memory format, where one field holds both ("amp nhwc"); "" for a word whose meaning isn't known."""
    words = text.lower().split()
    formats = [word for word in words if word in ("nchw", "nhwc")]
    precision = _known_value("precision", " ".join(word for word in words if word not in formats))
    return precision if precision in (*PRECISIONS, *OTHER_PRECISIONS) else "", "".join(formats[:1])


def _lambdas_machine(source: str) -> str:
    found = _LAMBDAS_MACHINE.search(source)
    return found.group(1) if found else ""


def _positive_number(row: Row, name: str) -> float | None:
    """A number above 0, or None for an empty field."""
    text = row.values.get(name, "")
    try:
        value = _number(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not (math.isfinite(value) and value > 0):
        column = row.column if name == "throughput" and row.column else name
        raise _Unreadable(Unparsed(row=row.number, column=column, text=text, why="is not a number above 0"))
    return value


def _whole(row: Row, name: str, least: int = 1) -> int | None:
    """A whole number, also spelled 1024.0; None for an empty field."""
    text = row.values.get(name, "")
    try:
        value = _number(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not (math.isfinite(value) and value.is_integer() and value >= least):
        raise _Unreadable(Unparsed(row=row.number, column=name, text=text, why=f"is not a whole number of at least {least}"))
    return None if value is None else int(value)


def _number(text: str) -> float:
    return float(text.replace(",", "") if _THOUSANDS.fullmatch(text) else text)


def _half_unit(text: str) -> float:
    """Half a unit of the last digit: 0.5 for "12", 0.05 for "12.3"."""
    try:
        exponent = Decimal(text.replace(",", "")).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0
