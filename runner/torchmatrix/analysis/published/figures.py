"""One throughput that somebody states, published or measured here, in one schema: read from CSV, or made from our tables."""

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.intervals import Interval
from torchmatrix.ground.errors import BadInput
from torchmatrix.matrix import catalog
from torchmatrix.matrix.factors import PRECISIONS

OTHER_PRECISIONS = ("fp32-conv-tf32", "bf16", "fp16")
"""Words of published figures that no workload of ours computes in (reports/published/README.md), so they equal none of ours."""
NEEDED = ("gpu", "gpus", "model", "throughput")
ALIASES = {
    "gpus": ("n_gpus", "num_gpus"),
    "batch_per_gpu": ("batch_size_per_gpu",),
    "steady_throughput": ("steady_state_throughput",),
    "torch": ("torch_version",),
    "image": ("container_image", "container"),
    "source": ("source_file",),
    "machine": ("host",),
}
"""Other names under which a column is read, where ours isn't there."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """The throughput of all GPUs together in items per second; the columns are those of reports/published/README.md.

    Unknown is "" in texts and None elsewhere. `row`: its number in `file`, where the header is row 1 (in a run: which of its
    cells). `cell`: the id, for a figure of ours. `rounding`: half a unit of the last digit written, in items per second.
    """

    file: str
    row: int
    cell: str
    vendor: str
    framework: str
    gpu: str
    gpus: int | None
    model: str
    mode: str
    precision: str
    memory_format: str
    compile: bool | None
    batch_per_gpu: int | None
    image_size: int | None
    sequence_length: int | None
    data: str
    throughput: float
    rounding: float
    unit: str
    steady_throughput: float | None
    torch: str
    image: str
    driver: str
    date: str
    machine: str
    published_gpu: str
    published_model: str
    published_precision: str
    source: str
    notes: str

    @property
    def is_vision(self) -> bool:
        """Does it process images, so that pixels and a memory format mean something?"""
        model = catalog.models().get(self.model)
        return (self.unit or (model.unit if model else "")).startswith("image")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A cell of ours: its figure, its interval, the throughputs of its ok launches, and what no published row says."""

    figure: Figure
    interval: Interval
    samples: tuple[float, ...]
    statistic: str
    stack: str
    workload: str
    devices: str
    attention: str


def read(path: Path) -> tuple[Figure, ...]:
    """The figures of a CSV file. Raises BadInput where it can't be read, lacks a needed column or has no number."""
    rows = rows_of(path)
    header = next(iter(rows.values()))
    columns = {name: _column(name, header) for name in (*NEEDED, *ALIASES)}
    missing = [name for name in NEEDED if columns[name] not in header]
    if missing:
        raise BadInput(f"{path} has no column {', '.join(missing)}", hint="reports/published/README.md describes the columns")
    named = {n: row | {name: row.get(column, "") for name, column in columns.items()} for n, row in rows.items()}
    return tuple(_figure(path, number, row) for number, row in named.items())


def rows_of(path: Path) -> dict[int, dict[str, str]]:
    """The rows of a CSV file by number (the header is row 1), empty ones left out. Raises BadInput."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header, *rows = list(csv.reader(lines, strict=True)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"can't read {path}: {error}", hint="name a CSV file with a header, in UTF-8") from None
    found = {number: row for number, row in enumerate(rows, start=2) if any(row)}
    if not found:
        raise BadInput(f"{path} has no rows", hint="name a CSV file with a header and a row for each figure")
    for number, row in found.items():
        if len(row) != len(header):
            raise BadInput(f"{path}, row {number}: not as many fields as the header", hint="quote fields that hold a comma")
    names = [name.strip() for name in header]
    return {number: dict(zip(names, map(str.strip, row), strict=True)) for number, row in found.items()}


def measured(cells: Iterable[Mapping[str, Any]], launches: Iterable[Mapping[str, Any]]) -> tuple[Measured, ...]:
    """The cells that have a number and are of one GPU model, from the rows of tables.cells_table and launches_table."""
    samples: dict[str, list[float]] = {}
    for launch in launches:
        if launch["outcome"] == "ok":
            samples.setdefault(launch["cell"], []).append(float(launch["throughput"]))
    shown = [row for row in cells if row["parallel"] == "ddp" and row["n"] and not row["mixed"]]
    return tuple(_measured(number, row, tuple(samples[row["cell"]])) for number, row in enumerate(shown, start=1))


def _measured(number: int, row: Mapping[str, Any], samples: tuple[float, ...]) -> Measured:
    return Measured(
        figure=_ours(number, row),
        interval=Interval(value=row["throughput"], low=row["low"], high=row["high"]),
        samples=samples,
        statistic=row["statistic"],
        stack=row["stack"],
        workload=row["workload"],
        devices=row["devices"],
        attention=_known_text(row["attention"]),
    )


def _ours(number: int, row: Mapping[str, Any]) -> Figure:
    """A row of tables.cells_table. What is the same for all cells of a run (driver, date) stays unknown."""
    model, mode, image_size, sequence_length = row["flops_key"]
    name, memory, vision = _known_text(row["device_name"]), row["device_memory_bytes"], image_size is not None
    facts = gpu_specs.find(name, int(memory) if isinstance(memory, (int, float)) and memory > 0 else None)
    return Figure(
        file="", row=number, cell=row["cell"], vendor="torchmatrix", framework="pytorch", gpu=facts.name if facts else "",
        gpus=int(row["count"]), model=model, mode=mode, precision=row["precision"],
        memory_format=("nhwc" if row["channels_last"] else "nchw") if vision else "", compile=bool(row["compile"]),
        batch_per_gpu=int(row["batch"]), image_size=image_size,
        sequence_length=sequence_length, data="synthetic", throughput=float(row["throughput"]), rounding=0.0,
        unit=f"{row['unit']}/s", steady_throughput=None, torch=_known_text(row["torch_build"]) or _known_text(row["torch"]),
        image=row["stack"], driver="", date="", machine="", published_gpu=name, published_model=model,
        published_precision=row["precision"], source="", notes="",
    )  # fmt: skip


def _known_text(value: Any) -> str:
    """Pandas makes NaN of an unknown text."""
    return value if isinstance(value, str) else ""


def _column(name: str, row: Mapping[str, str]) -> str:
    return next((known for known in (name, *ALIASES.get(name, ())) if known in row), name)


def _figure(path: Path, number: int, row: Mapping[str, str]) -> Figure:
    known = {name: _known_value(name, row.get(name, "")) for name in (*_TEXTS, "compile")}
    precision, memory_format = _precision(row.get("precision", ""))
    throughput = _positive_number(path, number, row, "throughput")
    gpu_count = _whole(path, number, row, "gpus", least=0)
    if throughput is None:
        raise BadInput(f"{path}, row {number}: no throughput", hint="leave out rows without a figure")
    return Figure(
        **{name: known[name] for name in _TEXTS if name not in ("memory_format", "published_precision")},
        file=path.stem, row=number, cell="", gpu=_gpu(row["gpu"]), gpus=gpu_count,
        model=row["model"] if row["model"] in catalog.models() else "", precision=precision,
        memory_format=known["memory_format"] or memory_format,
        compile={"true": True, "false": False}.get(known["compile"].lower()),
        batch_per_gpu=_whole(path, number, row, "batch_per_gpu"), image_size=_whole(path, number, row, "image_size"),
        sequence_length=_whole(path, number, row, "sequence_length"), throughput=throughput,
        rounding=_half_unit(row["throughput"]), steady_throughput=_positive_number(path, number, row, "steady_throughput"),
        machine=row["machine"] or _lambdas_machine(known["source"]), published_gpu=row.get("published_gpu") or row["gpu"],
        published_model=row.get("published_model") or row["model"],
        published_precision=known["published_precision"] or row.get("precision", ""),
    )  # fmt: skip


def _known_value(name: str, value: str) -> str:
    return _VALUES.get(name, {}).get(value.lower(), value)


def _precision(text: str) -> tuple[str, str]:
    """Precision and memory format, where one field holds both ("amp nhwc"); "" for a word whose meaning isn't known."""
    words = text.lower().split()
    formats = [word for word in words if word in ("nchw", "nhwc")]
    precision = _known_value("precision", " ".join(word for word in words if word not in formats))
    return precision if precision in (*PRECISIONS, *OTHER_PRECISIONS) else "", "".join(formats[:1])


def _gpu(name: str) -> str:
    """The name in gpus.csv of a GPU called so there or by drivers, "" if none surely fits."""
    if name in {facts.name for facts in gpu_specs.load()}:
        return name
    facts = gpu_specs.find(name, None)
    return facts.name if facts else ""


def _lambdas_machine(source: str) -> str:
    found = _LAMBDAS_MACHINE.search(source)
    return found.group(1) if found else ""


def _positive_number(path: Path, number: int, row: Mapping[str, str], name: str) -> float | None:
    """A number above 0, or None for an empty field."""
    text = row.get(name, "")
    try:
        value = float(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not (math.isfinite(value) and value > 0):
        raise BadInput(f'{path}, row {number}, {name}: "{text}" is not a number above 0', hint="write it without its unit")
    return value


def _whole(path: Path, number: int, row: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = row.get(name, "")
    if text and not (text.isdecimal() and int(text) >= least):
        raise BadInput(
            f'{path}, row {number}, {name}: "{text}" is not a whole number of at least {least}',
            hint="leave the field empty if it is unknown",
        )
    return int(text) if text else None


def _half_unit(text: str) -> float:
    """Half a unit of the last digit: 0.5 for "12", 0.05 for "12.3"."""
    try:
        exponent = Decimal(text).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0
