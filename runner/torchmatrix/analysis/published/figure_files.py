"""Read CSV files of published throughputs: figures, and the fields that can't be read, each with the reason."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.gpu_specs import peak_flops
from torchmatrix.analysis.published import Figure, units
from torchmatrix.analysis.rows import CellRow
from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import clipped, printable
from torchmatrix.facts.launch import Unreadable
from torchmatrix.matrix import catalog
from torchmatrix.matrix.factors import PRECISIONS

# Convert the layouts in which people publish throughputs to one row of text for each figure, under our column names.
#
# Supported: a table with a row for each figure, one with a column for each number of GPUs, Lambda's results (a column for each
# model) and timm's (files called benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv).

NEEDED = ("gpu", "model", "throughput")
ALIASES = {
    "gpus": ("n_gpus", "num_gpus", "num_gpu"),
    "batch_per_gpu": ("batch_size_per_gpu",),
    "global_batch": ("global_batch_size",),
    "steady_throughput": ("steady_state_throughput",),
    "torch": ("torch_version",),
    "image": ("container_image", "container"),
    "source": ("source_file",),
    "machine": ("host",),
}
"""Other names under which a column is read, where ours isn't there."""
HINT = "docs/audit.md lists the tables that audit reads"
_PER_COUNT = re.compile(r"(?:imgs|images|throughput)_(\d+) ?_?gpus?")
_TIMM = re.compile(r"(train|infer)_samples_per_sec")
_TIMM_FILE = {
    "precision": re.compile(r"(?<![a-z0-9])(amp[_-]bf16|amp|bf16|fp16|fp32)(?![a-z0-9])"),
    "memory_format": re.compile(r"(?<![a-z])(nchw|nhwc)(?![a-z])"),
    "torch": re.compile(r"-pt(\d{3})(?!\d)"),
    "cuda": re.compile(r"-(cu\d{3}|rocm\d+)(?!\d)"),
    "gpu": re.compile(r"(?:-cu\d{3}-|-cpu-|[-_](?:nchw|nhwc)[-_](?!pt\d))([^-]+?)(?:-dynamo)?$"),
}
"""Fields in the name of one of timm's files."""
_LAMBDA_NAME, _LAMBDA_NOT_MODELS = ("name_gpu", ""), ("num_gpu", "watt", "price")
_LAMBDA_PRECISION = {"fp16": "amp"}
_LAMBDA_MODELS = {
    "resnet50": {"model": "resnet50", "image_size": "224", "unit": "images/s"},
    "bert_base_squad": {"model": "bert-base-cased", "sequence_length": "384", "unit": "sequences/s"},
    "bert_large_squad": {"model": "bert-large-cased", "sequence_length": "384", "unit": "sequences/s"},
    "ssd": {"unit": "images/s"},
    "gnmt": {"unit": "tokens/s"},
    "transformerxlbase": {"unit": "tokens/s"},
    "transformerxllarge": {"unit": "tokens/s"},
}
"""Lambda's models and precisions, cleaned as in reports/published/README.md: its fp16 is AMP, and its NGC images use TF32.

The units of its other models are not stated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRow:
    """One figure as text, by our column names. `number`: its row in the file; `column`: where it is, "" for `throughput`."""

    number: int
    column: str
    values: Mapping[str, str]


def layout_rows(path: Path, header: Iterable[str], table: Mapping[int, Mapping[str, str]]) -> list[LayoutRow]:
    """Return one row for each figure. Raises BadInput where `header` is that of no table of throughputs."""
    names = list(header)
    if any(map(_TIMM.fullmatch, names)):
        _refuse_missing(path, ("model",), names)
        return list(_timm(path.stem, names, table))
    if any(map(_PER_COUNT.fullmatch, names)):
        _refuse_missing(path, ("gpu", "model"), names)
        return list(_per_count(names, table))
    if names[:1] and names[0] in _LAMBDA_NAME and _LAMBDA_MODELS.keys() & set(names):
        return list(_lambda(path, names, table))
    _refuse_missing(path, NEEDED, names)
    return [LayoutRow(number=number, column="", values=_renamed(row)) for number, row in table.items()]


def _refuse_missing(path: Path, needed: Iterable[str], names: Iterable[str]) -> None:
    missing = [name for name in needed if name not in names]
    if missing:
        raise BadInput(f"{path} has no column {', '.join(missing)}", hint=HINT)


def _renamed(row: Mapping[str, str]) -> dict[str, str]:
    """Add our column names to those of ALIASES."""
    renamed = {name: next((row[other] for other in others if other in row), "") for name, others in ALIASES.items()}
    return {**renamed, **row}


def _per_count(names: list[str], table: Mapping[int, Mapping[str, str]]) -> Iterator[LayoutRow]:
    """Yield rows of a table with a column for each number of GPUs; an empty field there is no figure."""
    counts = {name: match[1] for name in names if (match := _PER_COUNT.fullmatch(name))}
    for number, row in table.items():
        for column, count in counts.items():
            if row[column]:
                values = {"gpus": count, "throughput": row[column], "unit": "images/s"}
                yield LayoutRow(number=number, column=column, values=_renamed(row) | values)


def _timm(stem: str, names: list[str], table: Mapping[int, Mapping[str, str]]) -> Iterator[LayoutRow]:
    """Yield rows of timm's columns for training, inference or both; GMACs are those of the forward pass, per image."""
    file = {name: match[1] for name, pattern in _TIMM_FILE.items() if (match := pattern.search(stem))}
    cuda, on_cpu = file.pop("cuda", ""), "-cpu-" in stem
    if digits := file.get("torch", ""):  # pt113 is 1.13, pt240 is 2.4.0
        release = f"1.{digits[1:]}" if digits[0] == "1" else ".".join(digits)
        file["torch"] = f"{release}+{cuda}" if cuda else release
    common = {"vendor": "timm", "framework": "pytorch", "unit": "images/s", "data": "synthetic", "gpus": "0" if on_cpu else "1"}
    common |= {"compile": str(stem.endswith("-dynamo")).lower()} if stem.startswith("benchmark-") else {}
    common |= {"gpu": "", **file} | ({"gpu": f"CPU {file.get('gpu', '')}"} if on_cpu else {})
    for mode in ("train", "infer"):
        column = f"{mode}_samples_per_sec"
        for number, row in table.items() if column in names else ():
            values = {
                "mode": mode,
                "model": row["model"],
                "throughput": row[column],
                "rounding": "0.005",  # 3.9 is 3.90
                "batch_per_gpu": row.get(f"{mode}_batch_size", ""),
                "image_size": row.get(f"{mode}_img_size", ""),
                "gmacs": row.get(f"{mode}_gmacs", "") or row.get("gmacs", ""),
            }
            yield LayoutRow(number=number, column=column, values=common | values)


def _lambda(path: Path, names: list[str], table: Mapping[int, Mapping[str, str]]) -> Iterator[LayoutRow]:
    """Yield rows of Lambda's tables, which have a column for each model.

    The file's name has the precision, and a file beside it the batches of all GPUs together.
    """
    if "-bs-" in path.name:
        hint = f"audit {path.name.replace('-bs-', '-throughput-')}; the batches beside it are read with it"
        raise BadInput(f"{path} has batch sizes, no throughputs", hint=hint)
    batches = _lambdas_batches(path)
    written = next((word for word in ("fp16", "fp32") if word in path.stem), "")
    precision = {"precision": _LAMBDA_PRECISION.get(written, written), "published_precision": written, "fp32_is": "tf32"}
    for number, row in table.items():
        name = row[names[0]]
        named = gpu_specs.split_name(name)
        common = {
            "vendor": "Lambda", "framework": "pytorch", "mode": "train", "machine": named.rest,
            "gpu": named.gpu, "named_gpus": str(named.count or ""),
            "gpus": row.get("num_gpu", "") or ("" if named.is_unclear else str(named.count or 1)),
        }  # fmt: skip
        for column in names[1:]:
            if column not in _LAMBDA_NOT_MODELS:
                values = {
                    "published_model": column,
                    "throughput": row[column],
                    "rounding": "0.5",  # 607.0 is an integer that went through a column of floats
                    "global_batch": batches.get((name, column), ""),
                }
                yield LayoutRow(
                    number=number,
                    column=column,
                    values=precision | common | {"model": ""} | _LAMBDA_MODELS.get(column, {}) | values,
                )


def _lambdas_batches(path: Path) -> dict[tuple[str, str], str]:
    """Return batches by the row's name and the column; none if the file isn't there."""
    beside = path.with_name(path.name.replace("-throughput-", "-bs-"))
    if beside == path or not beside.is_file():
        return {}
    try:
        header, rows = inputs.csv_of(beside, hint=HINT, strict=False)
    except BadInput:
        return {}
    return {(row[0], column): field for row in rows.values() for column, field in zip(header, row, strict=False)}


OTHER_PRECISIONS = ("fp32-conv-tf32", "bf16", "fp16")
"""Precisions of published figures that no workload of ours has (reports/published/README.md), so they equal none of ours."""
_VALUES = {
    "mode": {"training": "train", "inference": "infer"},
    "compile": {"yes": "true", "no": "false"},
    "precision": {
        **dict.fromkeys(("amp fp16", "amp_fp16", "amp-fp16", "fp16-mixed", "16-mixed"), "amp"),
        **dict.fromkeys(("amp bf16", "amp_bf16", "bf16-mixed"), "amp-bf16"),
        **{"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"},
    },
}
"""Synonyms of values, by field."""
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
    """Something that could not be read. `row`: the header is row 1; `column`: "" if the whole row is meant; `text`: its
    content."""

    row: int
    column: str
    text: str
    why: str

    def __str__(self) -> str:
        place = f"row {self.row}, {printable(self.column)}" if self.column else f"row {self.row}"
        return f'{place}: "{clipped(printable(self.text))}" {self.why}' if self.text else f"{place}: {self.why}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The figures of one file or of launches, what is left out, and the files of launches that can't be read.

    `mixed`: cells of launches that have a number and no figure (figures.mixed). `cells`: all cells of launches
    (run_summary.cells_table).
    """

    figures: tuple[Figure, ...]
    unparsed: tuple[Unparsed, ...]
    unreadable: tuple[Unreadable, ...] = ()
    mixed: tuple[str, ...] = ()
    cells: "tuple[CellRow, ...]" = ()


class _Unreadable(Exception):
    """Raised for a figure that can't be read, with the `problem`."""

    def __init__(self, problem: Unparsed) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read(path: Path) -> tuple[Figure, ...]:
    """Return the figures of a CSV file. Raises BadInput where it can't be read, lacks a needed column, or a figure can't be
    read."""
    taken = take(path)
    if taken.unparsed:
        raise BadInput(f"{path}, {taken.unparsed[0]}", hint="leave out rows without a figure; write numbers without a unit")
    return taken.figures


def take(path: Path) -> Taken:
    """Return the readable figures of a CSV file, and the rest. Raises BadInput where it has no figure or no needed column."""
    header, rows, unparsed = _rows(path)
    figures = []
    for row in layout_rows(path, header, rows):
        try:
            figures.append(_figure(path.stem, row))
        except _Unreadable as error:
            unparsed.append(error.problem)
    unparsed.sort(key=lambda problem: problem.row)
    if not figures:
        first = f"; the first: {unparsed[0]}" if unparsed else ""
        raise BadInput(f"{path} has no figure that can be read{first}", hint=HINT)
    return Taken(figures=tuple(figures), unparsed=tuple(unparsed))


def rows_of(path: Path) -> dict[int, dict[str, str]]:
    """Return the rows of a CSV file by number (the header is row 1), without empty ones. Raises BadInput."""
    _, rows, unparsed = _rows(path)
    if unparsed:
        raise BadInput(f"{path}, {unparsed[0]}", hint="quote fields that hold a comma")
    return rows


def _rows(path: Path) -> tuple[list[str], dict[int, dict[str, str]], list[Unparsed]]:
    """Return the header, the rows by number and those that don't fit the header. Raises BadInput."""
    names, table = inputs.csv_of(path, hint="name a CSV file with a header, in UTF-8")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise BadInput(f'{path} has two columns "{clipped(printable(twice[0]))}"', hint="give each column a name of its own")
    if not table:
        raise BadInput(f"{path} has no rows", hint="name a CSV file with a header and a row for each figure")
    good = {number: dict(zip(names, row, strict=True)) for number, row in table.items() if len(row) == len(names)}
    why = "not as many fields as the header"
    bad = [Unparsed(row=number, column="", text="", why=why) for number, row in table.items() if len(row) != len(names)]
    return names, good, bad


def _figure(file: str, row: LayoutRow) -> Figure:
    values = {name: _canonical(name, row.values.get(name, "")) for name in (*_TEXTS, "compile")}
    throughput = _positive_number(row, "throughput")
    if throughput is None:
        raise _Unreadable(Unparsed(row=row.number, column=row.column, text="", why="no throughput"))
    named = gpu_specs.split_name(row.values["gpu"])
    facts = gpu_specs.find_published(named.gpu)
    count = _count(row, named.count)
    precision, memory_format = _precision(row.values.get("precision", ""))
    if precision == "fp32" and facts and peak_flops(facts, "tf32"):
        precision = row.values.get("fp32_is", precision)
    gmacs = _positive_number(row, "gmacs")
    each = (count or 1) if units.meaning(values["unit"]).of_each else 1
    model = row.values["model"]
    return Figure(
        **{name: values[name] for name in _TEXTS if name not in ("memory_format", "published_precision")},
        file=file, row=row.number, column=row.column, cell="", gpu=facts.name if facts else "", gpus=count,
        model=model if model in catalog.models() else "", precision=precision,
        memory_format=values["memory_format"] or memory_format,
        compile={"true": True, "false": False}.get(values["compile"].lower()),
        batch_per_gpu=_batch(row, count), image_size=_whole(row, "image_size"), sequence_length=_whole(row, "sequence_length"),
        throughput=each * throughput,
        rounding=each * (_positive_number(row, "rounding") or _half_unit(row.values["throughput"])),
        steady_throughput=_times(each, _positive_number(row, "steady_throughput")), half_interval=math.nan,
        forward_flops=gmacs * _FLOPS_PER_GMAC if gmacs else None,
        machine=row.values.get("machine") or _lambdas_machine(values["source"]) or named.rest,
        published_gpu=row.values.get("published_gpu") or named.gpu,
        published_model=row.values.get("published_model") or model,
        published_precision=values["published_precision"] or row.values.get("precision", ""),
    )  # fmt: skip


def _count(row: LayoutRow, named: int | None) -> int | None:
    """Return the number of GPUs, as its column says, else as the name says ("8x A100"); both must agree."""
    from_column = _whole(row, "gpus", least=0)
    from_name = named or _whole(row, "named_gpus")
    if from_column is not None and from_name is not None and from_column != from_name:
        raise _Unreadable(
            Unparsed(row=row.number, column="gpus", text=str(from_column), why=f"contradicts the name, which says {from_name}")
        )
    return from_name if from_column is None else from_column


def _batch(row: LayoutRow, count: int | None) -> int | None:
    """Return the batch per GPU; where only that of all GPUs is given, its share."""
    per_gpu, of_all = _whole(row, "batch_per_gpu"), _whole(row, "global_batch")
    return per_gpu if per_gpu or not of_all or not count or of_all % count else of_all // count


def _canonical(name: str, value: str) -> str:
    return _VALUES.get(name, {}).get(value.lower(), value)


def _precision(text: str) -> tuple[str, str]:
    """Return precision and memory format, where one field holds both ("amp nhwc"); "" for a word of unknown meaning."""
    words = text.lower().split()
    formats = [word for word in words if word in ("nchw", "nhwc")]
    precision = _canonical("precision", " ".join(word for word in words if word not in formats))
    return precision if precision in (*PRECISIONS, *OTHER_PRECISIONS) else "", "".join(formats[:1])


def _lambdas_machine(source: str) -> str:
    match = _LAMBDAS_MACHINE.search(source)
    return match.group(1) if match else ""


def _positive_number(row: LayoutRow, name: str) -> float | None:
    """Return a number above 0, or None for an empty field."""
    text = row.values.get(name, "")
    value = _number(text)
    if value is not None and not (math.isfinite(value) and value > 0):
        column = row.column if name == "throughput" and row.column else name
        raise _Unreadable(Unparsed(row=row.number, column=column, text=text, why="is not a number above 0"))
    return value


def _whole(row: LayoutRow, name: str, least: int = 1) -> int | None:
    """Return a whole number, also if written as 1024.0; None for an empty field."""
    text = row.values.get(name, "")
    value = _number(text)
    if value is not None and not (math.isfinite(value) and value.is_integer() and value >= least):
        raise _Unreadable(Unparsed(row=row.number, column=name, text=text, why=f"is not a whole number of at least {least}"))
    return None if value is None else int(value)


def _number(text: str) -> float | None:
    """Return the number in a field; None for an empty field, NaN for a text that is no number."""
    try:
        return float(text.replace(",", "") if _THOUSANDS.fullmatch(text) else text) if text else None
    except ValueError:
        return math.nan


def _times(factor: int, number: float | None) -> float | None:
    return None if number is None else factor * number


def _half_unit(text: str) -> float:
    """Return half a unit of the last digit: 0.5 for "12", 0.05 for "12.3"."""
    try:
        exponent = Decimal(text.replace(",", "")).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0
