"""Vendors' specifications of their GPUs (reports/published/gpus.csv), and the share of them that a model used."""

import csv
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from torchmatrix.analysis.rows import CellRow, LaunchRow, Row, group_by, makes_figures
from torchmatrix.core import assets
from torchmatrix.machine.host_gpus import MEMORY_TOLERANCE, SILENT, memory_error, name_words
from torchmatrix.matrix.catalog import version_key
from torchmatrix.matrix.factors import BF16_MASTER, EAGER, IN_FLOAT8, RUNTIMES_BY_NAME, Float8

_MAKERS = ("nvidia", "tesla")
"""Drivers before 470 left "NVIDIA" out; "Tesla" came and went."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuFacts:
    """One row of gpus.csv; reports/published/README.md describes the columns. All numbers are per card, None if unknown.

    Peaks are in TFLOP/s (10^12 per second) of dense matrices, fp16, bf16 and fp8 with fp32 accumulation. `memory_gb` is in
    units of 2^30 bytes. `devices_per_card` is how many devices the driver shows for one card.
    """

    name: str
    vendor: str
    architecture: str
    compute_capability: str
    devices_per_card: int
    memory_gb: float
    memory_type: str
    bandwidth_gb_per_second: float | None
    link_gb_per_second: float | None
    power_watts: float | None
    launch_date: str
    fp32_tflops: float | None
    fp32_matrix_tflops: float | None
    tf32_tflops: float | None
    fp16_tflops: float | None
    bf16_tflops: float | None
    fp8_tflops: float | None
    status: str
    source: str
    driver_names: tuple[str, ...]


_TEXTS = ("name", "vendor", "architecture", "compute_capability", "memory_type", "launch_date", "status", "source")
_NUMBERS = (
    "memory_gb", "bandwidth_gb_per_second", "link_gb_per_second", "power_watts", "fp32_tflops", "fp32_matrix_tflops",
    "tf32_tflops", "fp16_tflops", "bf16_tflops", "fp8_tflops",
)  # fmt: skip


@cache
def load() -> tuple[GpuFacts, ...]:
    """Read gpus.csv once, in the order of the file."""
    with (assets.PUBLISHED / "gpus.csv").open(encoding="utf-8", newline="") as lines:
        return tuple(_facts(row) for row in csv.DictReader(lines))


@lru_cache(1024)
def find(name: str, memory_bytes: int | None) -> GpuFacts | None:
    """Find the GPU that the driver calls `name`, word by word, with or without "NVIDIA" or "Tesla", in any case; never a guess.

    `memory_bytes` is the memory of one device, None if unknown. A GPU is not the one in the table if its memory is more
    than 10 % off, though it bears the name: other sizes are other GPUs, and a slice of a partitioned GPU keeps the name.
    None if no row fits, or if several fit equally well.
    """
    return nearest(_by_driver().get(_bare_name(name), ()), memory_bytes)


def of_row(row: LaunchRow) -> GpuFacts | None:
    """Find the GPU of a launch."""
    return find(row.device_name, row.device_memory_bytes or None) if row.device_name else None


_FAMILIES = ("NVIDIA ", "GeForce ", "Instinct ", "AMD ")


def without_family(name: str) -> str:
    """Return a GPU's name without the words that the rest of it implies."""
    for family in _FAMILIES:
        name = name.removeprefix(family)
    return name


def nearest(named: Sequence[GpuFacts], memory_bytes: int | None) -> GpuFacts | None:
    """Return the GPU with this memory among those of one name (see `find`)."""
    if memory_bytes is None:
        return named[0] if len(named) == 1 else None
    errors = [memory_error(facts.memory_gb / facts.devices_per_card, memory_bytes) for facts in named]
    least = min([MEMORY_TOLERANCE, *errors])
    fitting = [facts for facts, error in zip(named, errors, strict=True) if error <= least]
    return fitting[0] if len(fitting) == 1 else None


PEAKED = ("fp32", "tf32", "amp", "amp-bf16", "fp8")
"""The precisions with a peak of their own."""


def peak_flops(facts: GpuFacts, precision: str, runtime: object = None) -> float | None:
    """Return the peak of one device in FLOP/s (dense); `precision`: one of PEAKED, half (as amp), bf16-weights or bf16-master
    (as amp-bf16), or another of IN_FLOAT8 (as fp8).

    None where the hardware has no such mode or its peak is unknown, as that of a `runtime` that quantizes is. The fp32 peak of
    NVIDIA's GPUs is that of the CUDA cores, as their tensor cores have no fp32 mode; AMD's have one, which PyTorch's fp32
    products use, so its peak counts where the table has it. AMP computes a part of a model in fp32, so no model reaches the
    peak of fp16 or bf16. Before compute capability 8.0 NVIDIA's GPUs compute TF32 and bfloat16 on the CUDA cores, so that the
    peak of fp32 is theirs too (CUDA C++ Programming Guide, compute capabilities).
    """
    capability = facts.compute_capability if facts.vendor == "NVIDIA" else ""
    is_early = capability != "" and version_key(capability) < _WITH_TF32
    bf16 = facts.fp32_tflops if is_early else facts.bf16_tflops
    peaks = {
        "fp32": facts.fp32_matrix_tflops or facts.fp32_tflops,
        "tf32": facts.fp32_tflops if is_early else facts.tf32_tflops,
        "amp": facts.fp16_tflops,
        "half": facts.fp16_tflops,
        "amp-bf16": bf16,
        "bf16-weights": bf16,
        BF16_MASTER: bf16,
        **{name: facts.fp8_tflops for name, recipe in IN_FLOAT8.items() if _takes(facts, recipe)},
    }
    known = RUNTIMES_BY_NAME.get(str(runtime or EAGER))
    per_card = peaks.get(precision) if known and not known.quantized else None
    return None if per_card is None else per_card * 1e12 / facts.devices_per_card


_PER_CLOCK = {
    "7.0": {"fp32": 128, "half": 1024},
    "8.0": {"fp32": 128, "tf32": 1024, "half": 2048, "bf16-weights": 2048},
    "9.0": {"fp32": 256, "tf32": 2048, "half": 4096, "bf16-weights": 4096, "fp8": 8192},
}
"""Operations of dense products per clock and multiprocessor, by compute capability: those whose chips are all alike (NVIDIA's
architecture white papers: V100, A100, H100). Tensor cores, for fp32 the CUDA cores."""


def most_flops(capability: str | None, precision: str, multiprocessors: int | None, mhz: float | None) -> float | None:
    """Return the most FLOP/s of products that a device's units can do at its highest clock, which data sheets, with a lower
    one for tensor cores, don't state; None where the units of its kind aren't known, or it doesn't tell number and clock.
    """
    per_clock = _PER_CLOCK.get(capability or "", {}).get(precision)
    return per_clock * multiprocessors * mhz * 1e6 if per_clock and multiprocessors and mhz else None


_WITH_TF32 = (8, 0)
"""The compute capability of the first tensor cores that take TF32 and bfloat16."""


def _takes(facts: GpuFacts, recipe: Float8) -> bool:
    """Return whether a GPU is of the generation that a recipe of float8 needs; AMD's count as if they were."""
    return facts.vendor != "NVIDIA" or version_key(facts.compute_capability) >= version_key(recipe.capability)


_PEAKED_AS = {"float32": "fp32", "float16": "amp", "bfloat16": "amp-bf16", "float8": "fp8"}


def mixed_peak(facts: GpuFacts, precision: str, flops_by_type: Mapping[str, float]) -> float | None:
    """Return the peak of one device in FLOP/s for products of several types: all FLOPs over the time that they take at least.

    It is the harmonic mean of the types' peaks, weighted with the FLOPs of each. float32 counts as tf32 where that was asked
    for. None where the FLOPs, or the peak of one of the types, aren't known.
    """
    seconds = 0.0
    for name, flops in flops_by_type.items():
        word = "tf32" if (name, precision) == ("float32", "tf32") else _PEAKED_AS.get(name, "")
        peak = peak_flops(facts, word)
        if peak is None:
            return None
        seconds += flops / peak
    return sum(flops_by_type.values()) / seconds if seconds > 0 else None


def link_peak(facts: GpuFacts | None) -> float | None:
    """Return the most bytes/s that one device's links to other devices carry in one direction; None if unknown."""
    gigabytes = facts and facts.link_gb_per_second
    return gigabytes * 1e9 / facts.devices_per_card if facts and gigabytes else None


def mfu(items_per_second_per_device: float | None, flops_per_item: float | None, peak: float | None) -> float:
    """Return the model FLOPs utilisation of one device as a fraction of 1: items/s × FLOPs per item ÷ `peak` in FLOP/s.

    After PaLM, appendix B (arXiv:2204.02311): the observed rate over the rate at which the device would do nothing but
    the model's own operations at its peak. `flops_per_item` therefore counts what the model needs (forward, and backward
    when it trains; a multiply-add is two), not what the implementation repeats, such as recomputed activations.
    NaN if any of the three is unknown.
    """
    if items_per_second_per_device is None or flops_per_item is None or not peak:
        return math.nan
    return items_per_second_per_device * flops_per_item / peak


def _facts(row: dict[str, str]) -> GpuFacts:
    facts: dict[str, Any] = {name: float(row[name]) if row[name] else None for name in _NUMBERS}
    facts |= {name: row[name] for name in _TEXTS}
    driver_names = tuple(filter(None, row["driver_names"].split(" | ")))
    return GpuFacts(**facts, devices_per_card=int(row["devices_per_card"]), driver_names=driver_names)


@cache
def _by_driver() -> dict[tuple[str, ...], list[GpuFacts]]:
    by_name: dict[tuple[str, ...], list[GpuFacts]] = {}
    for facts in load():
        for name in dict.fromkeys(map(_bare_name, facts.driver_names)):
            by_name.setdefault(name, []).append(facts)
    return by_name


def _bare_name(name: str) -> tuple[str, ...]:
    return tuple(word for word in name_words(name) if word not in _MAKERS)


# The GPUs that a run measured: their specifications, and the best share of their peaks that was reached here.

_FROM_CATALOG = (
    "vendor", "architecture", "compute_capability", "devices_per_card", "memory_gb", "memory_type",
    "bandwidth_gb_per_second", "power_watts", "launch_date", "status", "source",
)  # fmt: skip


def _column_part(word: str) -> str:
    """Return a precision as a part of a column's name."""
    return word.replace("-", "_")


def gpu_table(cells: Iterable[CellRow]) -> list[Row]:
    """Return one row per GPU model of cells_table, in the order in which they first appear; None and NaN are unknown.

    `gpu`: the name in gpus.csv. Memory, bandwidth and watts are per card. `peak_*_tflops`: of one device, as MFU uses it.
    `mfu_*`: the best of the run's cells in that precision. A GPU that gpus.csv doesn't list keeps its row.
    """
    on_gpus = [row for row in cells if row.of.device_list[0].startswith("gpu") and not row.of.mixed]
    named = [row for row in on_gpus if row.of.device_name]
    models = group_by(named, lambda row: (row.of.device_name or "", of_row(row.of)))
    return [_gpu_row(name, facts, rows) for (name, facts), rows in models.items()]


COLUMNS = [
    "device_name", "gpu", "device_memory_bytes", "multiprocessors", *_FROM_CATALOG,
    *(f"peak_{_column_part(word)}_tflops" for word in PEAKED), *(f"mfu_{_column_part(word)}" for word in PEAKED),
]  # fmt: skip


def _gpu_row(name: str, facts: GpuFacts | None, rows: list[CellRow]) -> Row:
    peaks = {word: peak_flops(facts, word) if facts else None for word in PEAKED}
    counted = [row.of.device_multiprocessors for row in rows]
    return {
        "device_name": name,
        "gpu": facts.name if facts else None,
        "device_memory_bytes": rows[0].of.device_memory_bytes or None,
        "multiprocessors": next(filter(None, counted), None),
        **{column: getattr(facts, column, None) for column in _FROM_CATALOG},
        **{f"peak_{_column_part(word)}_tflops": peak / 1e12 if peak else math.nan for word, peak in peaks.items()},
        **{f"mfu_{_column_part(word)}": _best_mfu(word, rows) for word in PEAKED},
    }


def _best_mfu(precision: str, rows: list[CellRow]) -> float:
    values = [row.mfu for row in rows if row.of.precision == precision and makes_figures(row.of)]
    return max((mfu for mfu in values if not math.isnan(mfu)), default=math.nan)


# Parse GPUs as people write them in tables ("LambdaCloud 8x A100 80GB SXM4", "2xRTX3090"): number, model, machine.

_BRANDS = "nvidia|geforce|quadro|tesla|titan|rtx|gtx|amd|instinct|radeon|pro|ada"
_MODELS = r"(?:gh|gb|mi|[abhltv])\d{1,4}[xs]?|\d{4}"
_NAME = rf"(?<!\w)(?:(?:{_BRANDS})\s?){{0,6}}(?P<model>{_MODELS})"
_FORMS = r"ti|super|ada|pcie|sxm\d?|nvl|gen\d|xtx?|blackwell|workstation|(?:hbm|gddr)\w+|\d+ ?gb"
_COUNTS_BEFORE = (r"N\s?x", r"x\s?N", r"N (?:gpus?|cards?):?", "^N")
_COUNTS_AFTER = (r"x\s?N", r"N\s?x", "N (?:gpus?|cards?)")
"""How people write the number N of GPUs beside a name."""
_NO_LANES = r"(?<!gen\d)(?<!gen \d)(?<!\d\.0)(?!(?<=pcie) ?x ?16\b)"
"""A number after the generation of a link is the link's width."""
_PRODUCTS = re.compile(
    r"laptop|notebook|mobile|maxq|maxp|ti|super|d|mig|ada|nvl|pcie|vgpu|grid|gcds?|xcds?|[cdtq]px|partitions?|slices?|half"
    r"|quarter|\d+g\.\d+gb|\d{1,2}[qc]"
)
"""Words that name another GPU, or a part of one, wherever they stand."""
_SHARE = re.compile(r"(?<![\w/])\d{1,2}/\d{1,2}(?![\w/])")


def _row() -> re.Pattern[str]:
    """Return a pattern that splits a row's name.

    Words right after a GPU's belong to it: an unknown word may name another GPU.
    """
    numbers = itertools.count()

    def any_of(counts: Iterable[str]) -> str:
        return "|".join(count.replace("N", rf"(?P<count{next(numbers)}>\d{{1,4}})") for count in counts)

    gpu = rf"{_NAME}(?:\s?(?:{_FORMS})(?![a-z]))*(?!\w)"
    tail = r"(?: (?!x ?\d|\d{1,4} ?x(?!\w)|\d+ (?:gpus?|cards?)\b|\d+ ?w\b|(?:on|in|at|with)\b)[\w.]+)*"
    before = rf"(?P<before>.*?)(?:(?<![\w.])(?<!\d[,/])(?:{any_of(_COUNTS_BEFORE)})\)?\s?\(?)?"
    after = rf"(?:{_NO_LANES}\s?[(,]?\s?(?:{any_of(_COUNTS_AFTER)})\)?(?!\w)(?P<more>{tail}))?(?P<after>.*)"
    return re.compile(f"{before}(?P<gpu>{gpu}{tail}){after}", re.IGNORECASE | re.DOTALL)


_ROW, _MODEL = _row(), re.compile(rf"{_NAME}(?!\w)", re.IGNORECASE)
_COUNTED = re.compile(r"(?P<count>\d{1,4}) ?x (?P<gpu>.+)", re.IGNORECASE)
_HOSTS = r"(?:nodes?|servers?|machines?|hosts?)"
_ANOTHER_COUNT = re.compile(
    rf"(?<!\w)(?:\d+ ?x|x ?\d{{1,4}}|per {_HOSTS}|0*(?:[2-9]|[1-9]\d{{1,3}}) {_HOSTS})(?!\w)", re.IGNORECASE
)
"""Patterns of another count: with several nodes it is unclear whether a number is of each or of all together."""
_IN_WORDS = re.compile(
    r"(?<!\w)(?:dual|two|three|four|quad|five|six|seven|eight|sixteen|pair|multi)(?!\w)"
    r"|\(\d{1,4}\)|\[\d{1,4}\]|[:#] ?\d{1,4}(?!\w)",
    re.IGNORECASE,
)
"""Counts that may be of GPUs."""
_GLUED = ((r"[×✕*]", "x"), (r"(?<![\w.])(\d{1,4}x(?=[a-z])|\d{1,3}x(?=\d))", r"\1 "), (r"(?<=[\dsx])x(?=\d{1,4}(?!\w))", " x"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """A parsed name. `gpu`: as written, without the words around it. `count`: None if missing or ambiguous (`is_unclear`).

    `rest`: the words around it, "" if none.
    """

    gpu: str
    count: int | None
    rest: str
    is_unclear: bool = False


def split_name(text: str) -> Named:
    """Split a row's name into number, GPU and rest; a text with no recognisable GPU, or two, is the GPU as a whole."""
    if find_published(text):
        return Named(gpu=text, count=None, rest="")
    plain = _plain(text)
    if counted := None if (row := _ROW.fullmatch(plain)) else _COUNTED.fullmatch(plain):
        return Named(gpu=counted["gpu"], count=int(counted["count"]), rest="")
    if row is None or _is_another(rest := f"{row['before']} {row['after']}", row["model"]):
        return Named(gpu=text, count=None, rest="")
    counts = {int(digits) for name, digits in row.groupdict().items() if name.startswith("count") and digits}
    is_unclear = len(counts) > 1 or bool(_ANOTHER_COUNT.search(rest)) or (not counts and bool(_IN_WORDS.search(rest)))
    others = [*filter(_PRODUCTS.fullmatch, name_words(rest)), *_SHARE.findall(rest)]
    return Named(
        gpu=_spaced(" ".join((row["gpu"] + (row["more"] or ""), *others))),
        count=counts.pop() if counts and not is_unclear else None,
        rest=_spaced(rest),
        is_unclear=is_unclear,
    )


def _plain(text: str) -> str:
    """Separate words: by a tab for an underscore, after which a note may follow as well as a part of the name."""
    plain = _spaced(text.replace("-", " ")).replace("_", "\t")
    for pattern, instead in _GLUED:
        plain = re.sub(pattern, instead, plain, flags=re.IGNORECASE)
    return plain


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _is_another(rest: str, model: str) -> bool:
    """Check whether the rest of a name holds another GPU. Short words (v2, a1) are none, bare numbers only in 3090/4090."""
    others = [match for match in _MODEL.finditer(rest) if len(match["model"]) > 2]
    others = [
        other for other in others if not other.group().isdigit() or rest[: other.start()].rstrip().endswith(("/", "+", "&"))
    ]
    return any(match["model"].casefold() != model.casefold() for match in others)


def find_published(text: str) -> GpuFacts | None:
    """Find the GPU of gpus.csv that is called `text` there, by drivers, or in other words; None if several fit.

    In other words: the same words in any order, with or without those that are SILENT, the kind of memory and, where only one
    card has the others, its size and its form (SXM, whatever its number, OAM, PCIe).
    """
    exact = next((facts for facts in load() if facts.name == text), None)
    by_name = exact or find(text, None)
    if by_name:
        return by_name
    fitting = _by_words().get(_identifying_words(text), ())
    return fitting[0] if len(fitting) == 1 else None


@cache
def _by_words() -> dict[frozenset[str], list[GpuFacts]]:
    by_words: dict[frozenset[str], list[GpuFacts]] = {}
    for facts in load():
        words, size, kind = _identifying_words(facts.name), f"{facts.memory_gb:g}gb", facts.memory_type.casefold()
        forms = {words, frozenset(re.sub(r"^sxm\d$", "sxm", word) for word in words)}
        sizes = {chosen for form in forms for chosen in (form, form | {size}, form - {size})}
        written = {*sizes, *(words | {kind} for words in sizes), *(words - _SLOTS for words in sizes)}
        for key in {*written, *map(_identifying_words, facts.driver_names)}:
            by_words.setdefault(key, []).append(facts)
    return by_words


_SLOTS = frozenset(("sxm", "sxm2", "sxm3", "sxm4", "sxm5", "pcie"))


def _identifying_words(text: str) -> frozenset[str]:
    return frozenset(name_words(text)) - SILENT - {"oam"}
