"""Tables -> the cells that a page carries once, and the dimensions that they differ in (from the factor table)."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.intervals import Moments
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import Row, makes_figures
from torchmatrix.analysis.speedups import Ratios
from torchmatrix.analysis.verdicts import Significance
from torchmatrix.ground.formatting import UNKNOWN, is_known
from torchmatrix.matrix.factors import COLUMNS, Factor
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers import figures
from torchmatrix.reporting.explorers.figures import Metric, key_of
from torchmatrix.reporting.explorers.parts import Parts, Within, parts_of

Keys: TypeAlias = dict[str, tuple[str, str]]
"""For each dimension a value as it stands in an address, and as a reader sees it."""
Published: TypeAlias = Mapping[tuple[str, str, str, str], tuple[float, str]]
"""By machine, stack, workload and devices a published throughput that is comparable, and whose it is."""
NONE_PUBLISHED: Published = {}
NOTHING = Within()
_FIRST = ("model", "mode")
_LATER = tuple(factor.name for factor in COLUMNS if factor.name not in _FIRST)
_DIGITS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Dim:
    """What cells differ in. `values`: as they stand in an address, in order; `labels`: for readers.

    `own`: each group of cells may have a value of its own (a batch, a set of devices); the others are chosen for all.
    """

    name: str
    title: str
    values: tuple[str, ...]
    labels: tuple[str, ...]
    own: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """`rows`: the cells; `moments`: of the throughput of each, None of one launch; `dims`: from the first that is chosen to the
    last; `pairs`: ratios of cells, by what is compared.

    `parts`: what else is known of cells, by explorer. `significance`: the p-values up to which sentences tell anything. `jump`:
    how far apart levels of the launches may lie that cells don't show (two_levels.py).
    """

    dims: tuple[Dim, ...]
    rows: tuple[Row, ...]
    moments: tuple[Moments | None, ...]
    metrics: tuple[Metric, ...]
    pairs: tuple[Row, ...]
    parts: Parts
    significance: Significance
    jump: float


def data_of(
    index: CellIndex, cells: Sequence[Row], scaling: Sequence[Row], ratios: Ratios, held: PriceList,
    published: Published = NONE_PUBLISHED, within: Within = NOTHING,
) -> Data:  # fmt: skip
    """The cells of DDP or one device of tables as of the module tables, with what scaling and ratios say of them.

    The columns `machine` and `gpu` tell several machines apart; without them there is one.
    """
    told = [_plain(row) for row in cells if makes_figures(row)]
    gpus = _gpus(told)
    measured = {key_of(cell.row): cell.moments() for cell in index.every}
    scaled = {key_of(row): row for row in scaling}
    served = figures.served(row for cell in index.every for row in cell.launches)
    keyed = _with_variants([_keys(row, gpu) for row, gpu in zip(told, gpus, strict=True)])
    dims = tuple(_dims(keyed))
    places = {dim.name: {value: place for place, value in enumerate(dim.values)} for dim in dims}
    sets = _sets(keyed)
    rows = []
    for row, keys in zip(told, keyed, strict=True):
        which = keys["set"][1] if len(sets[keys["machine"][0], keys["devices"][0]]) > 1 else ""
        key = key_of(row)
        found = figures.figures(row, held) | served.get(key, {}) | figures.scaled(scaled.get(key, {}))
        theirs, source = published.get(_place(row), (math.nan, None))
        found |= {"which": which, "theirs": theirs, "source": source}
        rows.append({name: places[name][key] for name, (key, _) in keys.items()} | {k: _short(v) for k, v in found.items()})
    _mark_scaling(rows, dims)
    return Data(
        dims=dims,
        rows=tuple(rows),
        moments=tuple(measured.get(key_of(row)) for row in told),
        metrics=tuple(figures.metrics_of(rows, held.currency)),
        pairs=tuple(_pairs(told, ratios)),
        parts=parts_of(within, [row["cell"] for row in told]),
        significance=ratios.significance,
        jump=max((found.jump for found in measured.values() if found), default=0.0),
    )


def _mark_scaling(rows: Sequence[Row], dims: Sequence[Dim]) -> None:
    """`scales`: does a line over the number of devices go through this cell?"""
    names = [dim.name for dim in dims if dim.name not in ("devices", "set")]
    lines = {tuple(row[name] for name in names) for row in rows if row["S"] is not None}
    for row in rows:
        row["scales"] = int(tuple(row[name] for name in names) in lines)


def _plain(row: Mapping[str, Any]) -> Row:
    """Every row has a machine."""
    return {"machine": "", **row}


def _place(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return str(row["machine"]), str(row["stack"]), str(row["workload"]), str(row["devices"])


def _gpus(rows: Sequence[Row]) -> list[str]:
    """The short name of each row's device; what a failed cell doesn't say, its machine's other cells do."""
    own = [row.get("gpu") or _gpu(row) for row in rows]
    known: dict[tuple[str, str], str] = {}
    for row, name in zip(rows, own, strict=True):
        if name:
            known.setdefault((row["machine"], _kind(row)), name)
    return [name or known.get((row["machine"], _kind(row)), _kind(row)) for row, name in zip(rows, own, strict=True)]


def _gpu(row: Row) -> str | None:
    if _kind(row) == "CPU":
        return "CPU"
    name, memory = row["device_name"], row["device_memory_bytes"]
    if not isinstance(name, str) or row["mixed"]:
        return "mixed GPUs" if row["mixed"] else None
    facts = gpu_specs.find(name, int(memory) if is_known(memory) else None)
    return facts.name if facts else name


def _kind(row: Row) -> str:
    return "GPU" if str(row["device_list"][0]).startswith("gpu") else "CPU"


def _keys(row: Row, gpu: str) -> Keys:
    """For each dimension in order the row's value, as in an address and for a reader."""
    _, _, image_size, sequence_length = row["flops_key"]
    count, kind, indices = int(row["count"]), _kind(row), [name[3:] for name in row["device_list"] if "@" not in name]
    nodes = int(row["nodes"])
    place, each = (f" on {nodes} nodes", f" on each of {nodes} nodes") if nodes > 1 else ("", "")
    noun = "core group" if kind == "CPU" else "GPU"
    devices = f"{count} {noun}{'s' * (count > 1)}{place}"
    named = f"{noun}{'s' * (len(indices) > 1)} {', '.join(indices)}{each}"
    found = {"model": (str(row["model"]), words.model(row["model"])), "mode": (str(row["mode"]), words.mode(row["mode"]))}
    short = (f"{count}" if kind == "GPU" else f"{count}-cpu") + (f"-{nodes}nodes" if nodes > 1 else "")
    found |= {"devices": (short, devices)}
    found |= {name: (_word(row[name]), _label(_FACTORS[name], row[name])) for name in _LATER}
    found |= {"image_size": _sized(image_size, "pixels"), "sequence_length": _sized(sequence_length, "tokens")}
    found |= {"batch": (_word(row["batch_requested"]), f"batch {row['batch_requested']}")}
    found |= {"gpu": (gpu, gpu), "machine": (row["machine"],) * 2, "stack": (row["stack"],) * 2}
    return found | {"set": (row["devices"], named), "variant": (row["workload"],) * 2}


_FACTORS = {factor.name: factor for factor in COLUMNS}
_ORDER = ("gpu", "machine", "stack", *_FIRST, "devices", *_LATER, "image_size", "sequence_length", "batch", "set", "variant")
_SORTED = frozenset({"devices", "batch", "image_size", "sequence_length"})
_FOR_ALL = ("precision", "runtime", "compile")
"""Settings that are chosen for all models at once; of the others each model may have its own, as of its batch."""
_OWN = frozenset(
    {"image_size", "sequence_length", "batch", "set", "variant", *(name for name in _LATER if name not in _FOR_ALL)}
)
_TITLES = {"gpu": "GPU", "set": "which", "batch": "batch per device"}


def _with_variants(keyed: Sequence[Keys]) -> list[Keys]:
    """The variant is the workload's name where two cells differ in nothing else, such as their number of steps; else ""."""
    others = [tuple(key for name, (key, _) in keys.items() if name != "variant") for keys in keyed]
    seen = Counter(others)
    return [keys if seen[other] > 1 else {**keys, "variant": ("", "")} for keys, other in zip(keyed, others, strict=True)]


def _sets(keyed: Sequence[Keys]) -> dict[tuple[str, str], set[str]]:
    """The sets of devices by machine and number of devices."""
    found: dict[tuple[str, str], set[str]] = {}
    for keys in keyed:
        found.setdefault((keys["machine"][0], keys["devices"][0]), set()).add(keys["set"][0])
    return found


def _dims(keyed: Sequence[Keys]) -> Iterable[Dim]:
    for name in _ORDER:
        labels = {keys[name][0]: keys[name][1] for keys in keyed}
        values = sorted(labels, key=_number) if name in _SORTED else list(labels)
        labels |= words.stacks(values) if name == "stack" else {}
        title = _TITLES.get(name, name.replace("_", " "))
        yield Dim(name=name, title=title, values=tuple(values), labels=tuple(labels[v] for v in values), own=name in _OWN)


def _number(key: str) -> tuple[bool, float, str]:
    """CPU slots before GPUs, then by size."""
    digits = key.removesuffix("-cpu")
    return not key.endswith("-cpu"), float(digits) if digits.isdigit() else math.inf, key


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)


def _sized(value: int | None, unit: str) -> tuple[str, str]:
    return _word(value), UNKNOWN if value is None else f"{value} {unit}"


def _label(factor: Factor, value: Any) -> str:
    """As pages write it, by the words of the factor's contrasts where it has any."""
    told = {value: text for pair in factor.contrasts for value, text in zip((pair.value, pair.over), pair.words, strict=True)}
    if value is None or factor.name == "precision":
        return UNKNOWN if value is None else words.precision(value)
    return told.get(value, str(value) if isinstance(value, bool) else (factor.label or "{}").format(value))


def _short(value: Any) -> Any:
    """Numbers with eight digits, None for what is unknown."""
    return figures.rounded(value, _DIGITS) if isinstance(value, float) else value


Places: TypeAlias = dict[tuple[str, str, str, str], int]
"""Of each cell its place by machine, stack, workload and devices."""


def _pairs(cells: Sequence[Row], ratios: Ratios) -> list[Row]:
    """Stacks over their baselines, settings over what they replace; `at`, `over`: the cells, as their places among `cells`."""
    places: Places = {_place(row): place for place, row in enumerate(cells)}
    others = [row for row in ratios.speedups if row["stack"] != row["baseline"]]
    return [
        *(_pair("stack", row, {"stack": row["baseline"]}, places) for row in others),
        *(_pair(row["setting"], row, {"workload": row["over"]}, places) for row in ratios.settings),
    ]


def _pair(kind: str, row: Mapping[str, Any], base: Mapping[str, Any], places: Places) -> Row:
    at, over = (places.get(_place({"machine": "", **row, **changes})) for changes in ({}, base))
    figures = {name: _short(row[name]) for name in ("ratio", "low", "high")}
    known = {"n": row["n"], "base_n": row["baseline_n"], "why": row["why"], "verdict": row["verdict"]}
    return {"kind": kind, "at": at, "over": over, "base": base.get("stack", ""), **figures, **known}
