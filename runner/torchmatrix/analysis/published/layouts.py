"""The layouts in which people publish throughputs -> one row of text for each figure, under our column names.

Read are a table with a row for each figure, one with a column for each number of GPUs, Lambda's results (a column for each
model) and timm's (files called benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.analysis.published import gpu_names
from torchmatrix.ground import inputs
from torchmatrix.ground.errors import BadInput

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
"""What a file of timm says by its name."""
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
class Row:
    """One figure as text, by our column names. `number`: its row in the file; `column`: where it is, "" for `throughput`."""

    number: int
    column: str
    values: Mapping[str, str]


def rows(path: Path, header: Iterable[str], table: Mapping[int, Mapping[str, str]]) -> list[Row]:
    """One for each figure. Raises BadInput where `header` is that of no table of throughputs."""
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
    return [Row(number=number, column="", values=_renamed(row)) for number, row in table.items()]


def _refuse_missing(path: Path, needed: Iterable[str], names: Iterable[str]) -> None:
    missing = [name for name in needed if name not in names]
    if missing:
        raise BadInput(f"{path} has no column {', '.join(missing)}", hint=HINT)


def _renamed(row: Mapping[str, str]) -> dict[str, str]:
    """With our names beside those of ALIASES."""
    known = {name: next((row[other] for other in others if other in row), "") for name, others in ALIASES.items()}
    return {**known, **row}


def _per_count(names: list[str], table: Mapping[int, Mapping[str, str]]) -> Iterator[Row]:
    """A column for each number of GPUs; a field that is empty there is no figure."""
    counts = {name: found[1] for name in names if (found := _PER_COUNT.fullmatch(name))}
    for number, row in table.items():
        for column, count in counts.items():
            if row[column]:
                values = {"gpus": count, "throughput": row[column], "unit": "images/s"}
                yield Row(number=number, column=column, values=_renamed(row) | values)


def _timm(stem: str, names: list[str], table: Mapping[int, Mapping[str, str]]) -> Iterator[Row]:
    """Columns for training, inference or both; GMACs are those of the forward pass, per image."""
    file = {name: found[1] for name, pattern in _TIMM_FILE.items() if (found := pattern.search(stem))}
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
            yield Row(number=number, column=column, values=common | values)


def _lambda(path: Path, names: list[str], table: Mapping[int, Mapping[str, str]]) -> Iterator[Row]:
    """A column for each model; the file's name has the precision, and a file beside it the batches of all GPUs together."""
    if "-bs-" in path.name:
        hint = f"audit {path.name.replace('-bs-', '-throughput-')}; the batches beside it are read with it"
        raise BadInput(f"{path} has batch sizes, no throughputs", hint=hint)
    batches = _lambdas_batches(path)
    written = next((word for word in ("fp16", "fp32") if word in path.stem), "")
    precision = {"precision": _LAMBDA_PRECISION.get(written, written), "published_precision": written, "fp32_is": "tf32"}
    for number, row in table.items():
        name = row[names[0]]
        named = gpu_names.split(name)
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
                yield Row(
                    number=number,
                    column=column,
                    values=precision | common | {"model": ""} | _LAMBDA_MODELS.get(column, {}) | values,
                )


def _lambdas_batches(path: Path) -> dict[tuple[str, str], str]:
    """By the row's name and the column; none if the file isn't there."""
    beside = path.with_name(path.name.replace("-throughput-", "-bs-"))
    if beside == path or not beside.is_file():
        return {}
    try:
        header, rows = inputs.csv_of(beside, hint=HINT, strict=False)
    except BadInput:
        return {}
    return {(row[0], column): field for row in rows.values() for column, field in zip(header, row, strict=False)}
