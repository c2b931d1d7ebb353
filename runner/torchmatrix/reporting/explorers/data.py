"""Tables -> the cells that a page carries once, and the dimensions that they differ in (from the factor table)."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec import Struct

from torchmatrix.analysis import gpu_specs, prices
from torchmatrix.analysis.cells import NO_CELL, Cell, CellIndex
from torchmatrix.analysis.cells import key_of as key_of_cell
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.metrics import METRICS, OF_ALL_REQUESTS, OF_REQUESTS, PERCENTILES, THROUGHPUT
from torchmatrix.analysis.metrics import Metric as OfLaunch
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import CellRow, LaunchRow, Row, with_columns
from torchmatrix.analysis.speedups import Ratio, Ratios
from torchmatrix.analysis.time_split import PHASES, QUANTILES, latency_rows
from torchmatrix.analysis.traces import QUANTITIES, Trace
from torchmatrix.analysis.verdicts import Significance
from torchmatrix.core.formatting import UNKNOWN, in_digits, is_known
from torchmatrix.matrix.factors import BY_NAME, COLUMNS, Factor
from torchmatrix.reporting import words

# The figures of each cell (throughput, cost, latency, scatter, scaling) and which of them bars can show.


def rounded(value: float | None, digits: int = 5) -> float | int | None:
    """Round a number that places a mark; None for what is unknown."""
    return in_digits(value, digits) if value is not None and math.isfinite(value) else None


def key_of(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("machine", "")), str(row["cell"])


MaybeNumber: TypeAlias = Any
"""A number, or None where it is unknown: who reads it knows whether the cell was measured."""


class ShownCell(Struct, frozen=True, kw_only=True, array_like=True):
    """A cell as pages show it; None is unknown. `place`: among the cells. Then of each dimension (Dim) the place of its value.

    `N`: devices; `n`: ok launches; `bs`: the batch; `rate`, `low`, `high`: items per second; `S`: the speed-up over one device;
    `scales`: whether a line over the number of devices goes through it; `theirs`: a published throughput. The others:
    metrics by their names.
    """

    place: int
    gpu: int
    machine: int
    stack: int
    model: int
    mode: int
    precision: int
    runtime: int
    compile: int
    cell: str
    N: int
    n: int
    failed: int
    outcome: str
    unit: str
    bs: int | str
    which: str
    rate: MaybeNumber
    low: MaybeNumber
    high: MaybeNumber
    S: MaybeNumber
    S_low: MaybeNumber
    S_high: MaybeNumber
    impossible: int
    scales: bool
    flops: MaybeNumber
    watts: MaybeNumber
    theirs: MaybeNumber
    source: str | None
    mfu: MaybeNumber
    mfu_by_formula: MaybeNumber
    per_joule: MaybeNumber
    per_joule_low: MaybeNumber
    per_joule_high: MaybeNumber
    cost: MaybeNumber
    prefill_rate: MaybeNumber = None
    decode_of_roof: MaybeNumber = None
    decode_rate: MaybeNumber = None
    latency_p50: MaybeNumber = None
    latency_p99: MaybeNumber = None
    per_output_token_p50: MaybeNumber = None

    def value(self, name: str) -> Any:
        """Return a value by its name."""
        return getattr(self, name)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownPair:
    """A ratio of two cells. `kind`: of stacks, or the setting's name; `at`, `over`: their places, None if it isn't shown;
    `base`: the stack of reference; `n`, `base_n`: launches. `why`: why there is none.
    """

    kind: str
    at: MaybeNumber
    over: MaybeNumber
    base: str
    ratio: MaybeNumber
    low: MaybeNumber
    high: MaybeNumber
    n: int
    base_n: int
    why: str
    verdict: str


def figures(row: CellRow, price_list: PriceList) -> Row:
    drawn = {
        f"{metric.name}{end}": row.value(f"{metric.column}{end}")
        for metric in DRAWN if metric not in _APART
        for end in ("", "_low", "_high") if f"{metric.column}{end}" in row.__struct_fields__
    }  # fmt: skip
    spread = {"": 1.0, "_low": row.low / row.throughput, "_high": row.high / row.throughput}
    drawn |= {f"{name}{end}": row.value(name) * times for name in ("mfu", "mfu_by_formula") for end, times in spread.items()}
    drawn["flops"] = row.per_device * row.of.flops_per_item
    return drawn | {
        "cell": row.of.cell, "N": row.of.count, "n": row.n, "failed": row.failed,
        "outcome": "ok" if row.n else row.of.outcome, "unit": row.of.unit, "bs": row.of.batch,
        "rate": row.throughput, "low": row.low, "high": row.high,
        "watts": row.power_watts,
        "purchase": prices.purchase(price_list, row.of),
    }  # fmt: skip


def served_of(launches: Iterable[LaunchRow]) -> dict[tuple[str, str], Row]:
    """Return, for each cell that served requests, the percentiles of each metric in seconds, with their limits."""
    rows = [row for row in launches if row.requests]
    by_cell: dict[tuple[str, str], Row] = {}
    for kind, metrics in OF_REQUESTS.items():
        named = [(part, metric.name) for part, metric in zip(PERCENTILES, metrics, strict=True) if metric.drawn]
        for row in latency_rows(rows, kind):
            figures = {f"{name}{end}": row[f"{part}{end}"] for part, name in named for end in ("", "_low", "_high")}
            by_cell.setdefault(key_of(row), {}).update(figures)
    return by_cell


def scaled_by(row: Mapping[str, Any]) -> Row:
    speedup = {name: row.get(name, math.nan) for name in ("S", "S_low", "S_high")}
    return speedup | {"impossible": int(row.get("impossible", False))}


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A metric that bars can show: a column times `times`, over the column `over`. `unit`: {unit} is the items' name.
    `limits`: the columns of its interval, or () without one.
    """

    name: str
    title: str
    unit: str
    note: str
    column: str
    times: float = 1.0
    over: str | None = None
    limits: tuple[str, ...] = ()

    def of(self, row: ShownCell) -> tuple[float | None, float | None, float | None]:
        """Return a cell's value with its limits, None where they are unknown."""
        per = row.value(self.over) if self.over else 1
        columns = (self.column, *(self.limits or ("", "")))
        figures = [row.value(name) if name and row.n and per else None for name in columns]
        value, low, high = (None if figure is None else figure * self.times / per for figure in figures)
        return value, low, high


def metrics_of(rows: Sequence[ShownCell], currency: str) -> Iterable[Metric]:
    """Yield throughput and the other metrics that some cell has."""
    for metric in (*(_bar(metric.in_currency(currency)) for metric in DRAWN), _MFU, _PER_WATT, _per_price(currency)):
        if any(row.n and row.value(metric.over or metric.column) is not None for row in rows):
            yield metric


_OF_RATE = ("low", "high")
DRAWN = tuple(metric for metric in METRICS if metric.drawn)
_APART = frozenset({THROUGHPUT}) | OF_ALL_REQUESTS
"""Metrics with intervals, which don't come from one row."""
_PER_WATT = Metric(
    name="per_watt", title="per watt", unit="{unit}/s per watt", note=DEFINITIONS["per_watt"], column="rate", over="watts"
)  # fmt: skip


_MFU = Metric(
    name="mfu", title="share of the peak (MFU)", unit="%", note=DEFINITIONS["MFU"], column="mfu", times=100.0,
    limits=("mfu_low", "mfu_high"),
)  # fmt: skip


def _bar(metric: OfLaunch) -> Metric:
    """Return a launch's metric for bars; the definition of percentiles stands at the first of them."""
    definition = DEFINITIONS.get(metric.definition, f"{metric.title.capitalize()}: {metric.meaning}.")
    note = "" if metric is THROUGHPUT or "p99" in metric.name else definition
    column, limits = (
        ("rate", _OF_RATE) if metric is THROUGHPUT else (metric.name, (f"{metric.name}_low", f"{metric.name}_high"))
    )
    return Metric(
        name=metric.name, title=metric.title, unit=metric.shown_unit, note=note, column=column, times=metric.times,
        limits=limits,
    )  # fmt: skip


def _per_price(currency: str) -> Metric:
    return Metric(
        name="per_price", title=f"per 1000 {currency}", unit=f"{{unit}}/s per 1000 {currency}",
        note=DEFINITIONS["per_price"], column="rate", times=1000.0, over="purchase", limits=_OF_RATE,
    )  # fmt: skip


# The facts of a run about its cells besides throughput, as rows to draw.

Parts: TypeAlias = Mapping[str, tuple[Row, ...]]
"""The rows by explorer; `at`: the place of the cell."""
CAUSES = {
    "E_hetero": "unequal devices", "E_corun": "shared power, PCIe, CPU", "E_ddp": "DDP overhead",
    "E_comm": "waiting for all-reduce", "E": "all of it: the efficiency",
}  # fmt: skip
"""The causes of an efficiency, down to the efficiency itself."""
_LOOKS = (6, 3, 7, 5, 1, 0, 4)
"""The colour of each phase."""
_PICKED = {"slowed": "one that was slowed down", "hottest": "the hottest", "first": "the first"}


@dataclass(frozen=True, kw_only=True)
class RunTables:
    """The tables of one run: scaling.decomposition_table and devices_table, rows of time_split, traces."""

    decomposition: Sequence[Row] = ()
    devices: Sequence[Row] = ()
    phases: Sequence[Row] = ()
    steps: Sequence[Row] = ()
    traces: Sequence[Trace] = ()


def parts_of(within: RunTables, cells: Sequence[str]) -> Parts:
    """Return the rows of each explorer; `cells`: of one run, in the order of their places."""
    at = {cell: {"at": place} for place, cell in enumerate(cells)}

    def shown(rows: Sequence[Row]) -> list[Row]:  # launches of one cell may disagree on whether it makes figures
        return [row for row in rows if row["cell"] in at]

    return {
        "loss": tuple(at[row["cell"]] | cause for row in shown(within.decomposition) for cause in _loss(row)),
        "alone": tuple(at[row["cell"]] | _alone(row) for row in shown(within.devices)),
        "phases": tuple(at[row["cell"]] | _phases(row) for row in shown(within.phases)),
        "steps": tuple(at[row["cell"]] | _steps(row) for row in shown(within.steps)),
        "trace": tuple(at[trace.cell] | _trace(trace) for trace in within.traces if trace.cell in at),
    }


def _loss(row: Row) -> Iterator[Row]:
    """Yield the causes: each continues the product so far, down to the efficiency; after an unknown one all are unknown."""
    level = 1.0
    for name, label in CAUSES.items():
        start = 1.0 if name == "E" else level
        value, low, high = (rounded(start * row[f"{name}{end}"]) for end in ("", "_low", "_high"))
        spans = [] if name == "E" or value is None else [[rounded(start), value, ""]]
        placed = {"value": value if name == "E" else None, "low": low, "high": high, "spans": spans}
        yield {"label": label, "title": name} | _effect(row, name) | placed
        level *= row[name]


def _effect(row: Row, name: str) -> Row:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return {
        "value": rounded(value), "low": rounded(low), "high": rounded(high),
        "text": words.effect(value, low, high), "interval": words.effect_interval(value, low, high),
    }  # fmt: skip


def _alone(row: Row) -> Row:
    if row["ratio_low"] == row["ratio_high"] == 1:
        return {"value": 1, "text": "the median device"}
    return _effect(row, "ratio") | ({"more": "weak", "colour": "bad"} if row["weak"] else {})


def _phases(row: Row) -> Row:
    spent = [(phase, look, row[phase]) for phase, look in zip(PHASES, _LOOKS, strict=True) if row[phase] > 0]
    ends = [sum(seconds for *_, seconds in spent[:place]) for place in range(len(spent) + 1)]
    spans = [
        [rounded(begin, 4), rounded(end, 4), f"q{look}", f"{phase}: {words.with_unit(seconds, 's')}"]
        for (phase, look, seconds), begin, end in zip(spent, ends, ends[1:], strict=False)
    ]
    whole = ends[-1]  # of the phases' medians, as the bar: the median of whole launches is another one
    timed = f"{words.percent(row['measure'] / whole)} timed" if whole and is_known(row["measure"]) else ""
    cache = f"{row['cache']} cache" if row["cache"] else ""
    return {"label": cache, "text": words.with_unit(whole, "s"), "interval": timed, "spans": spans}


def legend() -> list[tuple[str, int]]:
    """Return the phases and their colours."""
    return list(zip(PHASES, _LOOKS, strict=True))


def _steps(row: Row) -> Row:
    ms = {name: 1e3 * row[name] for name in QUANTILES}
    looks = (("p1", "p99", "thin"), ("p5", "p95", "mid"), ("p25", "p75", ""))
    spans = [[rounded(ms[begin], 4), rounded(ms[end], 4), look] for begin, end, look in looks]
    tip = ", ".join(f"{name} {words.short(value)}" for name, value in ms.items())
    return {
        "value": rounded(ms["p50"], 4), "ring": rounded(ms["max"], 4), "spans": spans, "text": words.short(ms["p50"]),
        "interval": f"longest {words.short(ms['max'])}", "more": f"{words.spaced(row['steps'])} steps", "title": f"ms: {tip}",
    }  # fmt: skip


def _trace(trace: Trace) -> Row:
    """Return a trace's row. `plots`: title, whether its axis begins at 0, values of each device; `slow`: begin, end, reason."""
    reasons = ", ".join(sorted({reason for *_, reason in trace.slowdowns}))
    notes = [
        ": ".join(filter(None, ("throttled in the timed windows", reasons))) if trace.seen.throttled else "",
        f"drawn: {_PICKED[trace.picked]} of {trace.more_devices + 1} devices" if trace.more_devices else "",
    ]
    return {
        "note": "; ".join(filter(None, notes)),
        "names": [device.device for device in trace.readings],
        "seconds": [[_brief(time) for time in device.seconds] for device in trace.readings],
        "plots": [
            [
                title,
                int(name in ("power_watts", "busy_cpus")),
                [[_brief(value) for value in device.values.get(name, ())] for device in trace.readings],
            ]
            for name, title in QUANTITIES.items()
            if any(name in device.values for device in trace.readings)
        ],
        "windows": [[round(time, 1) for time in window] for window in trace.windows],
        "slow": [[round(start, 1), round(stop, 1), reason] for start, stop, reason in trace.slowdowns],
    }  # fmt: skip


def _brief(value: float | None) -> float | int | None:
    """Round to two decimals, to none from 100 on."""
    if value is None or not math.isfinite(value):
        return None
    short = round(value) if abs(value) >= 100 else round(value, 2)
    return int(short) if short == int(short) else short


Keys: TypeAlias = dict[str, tuple[str, str]]
"""For each dimension its value in an address and its label for a reader."""
Published: TypeAlias = Mapping[tuple[str, str, str, str], tuple[float, str]]
"""A comparable published throughput and its source, by machine, stack, workload and devices."""
NONE_PUBLISHED: Published = {}
NOTHING = RunTables()
_FIRST = ("model", "mode")
_LATER = (*(factor.name for factor in COLUMNS if factor.name not in _FIRST), "parallel")
_DIGITS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Dim:
    """A dimension in which cells differ. `values`: as they stand in an address, in order; `labels`: for readers.
    `own`: each group of cells may have a value of its own (a batch, a set of devices); the others are chosen for all.
    """

    name: str
    title: str
    values: tuple[str, ...]
    labels: tuple[str, ...]
    own: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """The cells of a page. `rows`: the cells; `cells`: their launches; `dims`: from the first
    that is chosen to the last; `pairs`: ratios of cells, by what is compared.
    `parts`: what else is known of cells, by explorer. `significance`: the p-values up to which sentences tell anything. `jump`:
    how far apart levels of the launches may lie that cells don't show (analysis/levels.py). `resemble`: successive launches of
    cells do (analysis/successive.py).
    """

    dims: tuple[Dim, ...]
    rows: tuple[ShownCell, ...]
    cells: tuple[Cell[LaunchRow], ...]
    metrics: tuple[Metric, ...]
    pairs: tuple[ShownPair, ...]
    parts: Parts
    significance: Significance
    jump: float
    resemble: bool


def data_of(
    index: CellIndex, cells: Sequence[CellRow], scaling: Sequence[Row], ratios: Ratios, price_list: PriceList = prices.NONE,
    published: Published = NONE_PUBLISHED, within: RunTables = NOTHING,
) -> Data:  # fmt: skip
    """Build the cells of DDP or one device of tables as of the module tables, with their scaling and ratios.
    The columns `machine` and `gpu` tell several machines apart; without them there is one.
    """
    gpus = _gpus(cells)
    measured = {key_of_cell(cell.row): cell for cell in index.every}
    scaled = {key_of(row): row for row in scaling}
    served = served_of(row for cell in index.every for row in cell.launches)
    keyed = _with_variants([_keys(row, gpu) for row, gpu in zip(cells, gpus, strict=True)])
    dims = tuple(_dims(keyed))
    places = {dim.name: {value: place for place, value in enumerate(dim.values)} for dim in dims}
    sets = _sets(keyed)
    placed = [{name: places[name][key] for name, (key, _) in keys.items()} for keys in keyed]
    scales = [scaled_by(scaled.get(key_of_cell(row.of), {})) for row in cells]
    lines = {_line_of(at) for at, scale in zip(placed, scales, strict=True) if is_known(scale["S"])}
    rows = []
    for place, (row, keys, at, scale) in enumerate(zip(cells, keyed, placed, scales, strict=True)):
        which = keys["set"][1] if len(sets[keys["machine"][0], keys["devices"][0]]) > 1 else ""
        theirs, source = published.get(_place_of(row.of), (math.nan, ""))
        content = figures(row, price_list) | served.get(key_of_cell(row.of), {}) | scale
        content |= {"which": which, "theirs": theirs, "source": source or None, "scales": _line_of(at) in lines}
        values: dict[str, Any] = at | {name: _short(value) for name, value in content.items()}
        rows.append(_Shown(place=place, **values))
    return Data(
        dims=dims,
        rows=tuple(rows),
        cells=tuple(measured.get(key_of_cell(row.of), NO_CELL) for row in cells),
        metrics=tuple(metrics_of(rows, price_list.currency)),
        pairs=tuple(_pairs(cells, ratios)),
        parts=parts_of(within, [row.of.cell for row in cells]),
        significance=ratios.significance,
        jump=max((moments.jump for cell in index.every if (moments := cell.moments())), default=0.0),
        resemble=any(family.resemble for family in {id(cell.family): cell.family for cell in index.every}.values()),
    )


def _line_of(at: Mapping[str, int]) -> tuple[int, ...]:
    """Return what the cells on a line over the number of devices have in common."""
    return tuple(place for name, place in at.items() if name not in ("devices", "set"))


def _place_of(row: LaunchRow) -> tuple[str, str, str, str]:
    return row.machine, row.stack, row.workload, row.devices


def _gpus(rows: Sequence[CellRow]) -> list[str]:
    """Return the short name of each row's device; a failed cell without one gets that of its machine's other cells."""
    names = [row.of.gpu or _gpu(row) for row in rows]
    by_machine: dict[tuple[str, str], str] = {}
    for row, name in zip(rows, names, strict=True):
        if name:
            by_machine.setdefault((row.of.machine, _kind(row)), name)
    return [name or by_machine.get((row.of.machine, _kind(row)), _kind(row)) for row, name in zip(rows, names, strict=True)]


def _gpu(row: CellRow) -> str | None:
    if _kind(row) == "CPU":
        return "CPU"
    name = row.of.device_name
    if not isinstance(name, str) or row.of.mixed:
        return "mixed GPUs" if row.of.mixed else None
    facts = gpu_specs.of_row(row.of)
    return facts.name if facts else name


def _kind(row: CellRow) -> str:
    return "GPU" if row.of.device_list[0].startswith("gpu") else "CPU"


def _keys(row: CellRow, gpu: str) -> Keys:
    """Return for each dimension, in order, the row's value for an address and for a reader."""
    _, _, image_size, sequence_length = row.of.flops_key
    count, kind, indices = row.of.count, _kind(row), [name[3:] for name in row.of.device_list if "@" not in name]
    nodes = row.of.nodes
    place, each = (f" on {nodes} nodes", f" on each of {nodes} nodes") if nodes > 1 else ("", "")
    noun = "core group" if kind == "CPU" else "GPU"
    devices = f"{count} {noun}{'s' * (count > 1)}{place}"
    named = f"{noun}{'s' * (len(indices) > 1)} {', '.join(indices)}{each}"
    keys = {"model": (row.of.model, words.model(row.of.model)), "mode": (row.of.mode, words.mode(row.of.mode))}
    short = (f"{count}" if kind == "GPU" else f"{count}-cpu") + (f"-{nodes}nodes" if nodes > 1 else "")
    keys |= {"devices": (short, devices)}
    keys |= {name: (_word(row.value(name)), _label(_FACTORS[name], row.value(name))) for name in _LATER}
    keys |= {"image_size": _sized(image_size, "pixels"), "sequence_length": _sized(sequence_length, "tokens")}
    keys |= {"batch": (_word(row.of.batch_requested), f"batch {row.of.batch_requested}")}
    keys |= {"gpu": (gpu, gpu), "machine": (row.of.machine,) * 2, "stack": (row.of.stack,) * 2}
    return keys | {"set": (row.of.devices, named), "variant": (row.of.workload,) * 2}


_FACTORS = {name: BY_NAME[name] for name in _LATER}
_ORDER = ("gpu", "machine", "stack", *_FIRST, "devices", *_LATER, "image_size", "sequence_length", "batch", "set", "variant")
_SORTED = frozenset({"devices", "batch", "image_size", "sequence_length"})
_FOR_ALL = ("precision", "runtime", "compile")
"""Settings that are chosen for all models at once; each model may have its own value of the others, as of its batch."""
_OWN = frozenset(
    {"image_size", "sequence_length", "batch", "set", "variant", *(name for name in _LATER if name not in _FOR_ALL)}
)
_Shown = with_columns(
    "_Shown", ShownCell,
    [*_ORDER, "purchase", "mfu_low", "mfu_high", "mfu_by_formula_low", "mfu_by_formula_high",
     *(f"{metric.name}{end}" for metric in DRAWN for end in ("", "_low", "_high"))], __name__,
)  # fmt: skip
_TITLES = {"gpu": "GPU", "set": "which", "batch": "batch per device"}


def _with_variants(keyed: Sequence[Keys]) -> list[Keys]:
    """Set the variant to the workload's name where two cells differ in nothing else, such as their number of steps; else ""."""
    others = [tuple(key for name, (key, _) in keys.items() if name != "variant") for keys in keyed]
    counts = Counter(others)
    return [keys if counts[other] > 1 else {**keys, "variant": ("", "")} for keys, other in zip(keyed, others, strict=True)]


def _sets(keyed: Sequence[Keys]) -> dict[tuple[str, str], set[str]]:
    """Return the sets of devices by machine and number of devices."""
    sets: dict[tuple[str, str], set[str]] = {}
    for keys in keyed:
        sets.setdefault((keys["machine"][0], keys["devices"][0]), set()).add(keys["set"][0])
    return sets


def _dims(keyed: Sequence[Keys]) -> Iterable[Dim]:
    for name in _ORDER:
        labels = {keys[name][0]: keys[name][1] for keys in keyed}
        values = sorted(labels, key=_number) if name in _SORTED else list(labels)
        labels |= words.stacks(values) if name == "stack" else {}
        title = _TITLES.get(name, name.replace("_", " "))
        yield Dim(name=name, title=title, values=tuple(values), labels=tuple(labels[v] for v in values), own=name in _OWN)


def _number(key: str) -> tuple[bool, float, str]:
    """Return a sort key: CPU slots before GPUs, then by size."""
    digits = key.removesuffix("-cpu")
    return not key.endswith("-cpu"), float(digits) if digits.isdigit() else math.inf, key


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)


def _sized(value: int | None, unit: str) -> tuple[str, str]:
    return _word(value), UNKNOWN if value is None else f"{value} {unit}"


def _label(factor: Factor, value: Any) -> str:
    """Write a value as pages do, in the words of the factor's contrasts where it has any."""
    texts = {value: text for pair in factor.contrasts for value, text in zip((pair.value, pair.over), pair.words, strict=True)}
    if value is None or factor.name == "precision":
        return UNKNOWN if value is None else words.precision(value)
    return texts.get(value, str(value) if isinstance(value, bool) else (factor.label or "{}").format(_SPELT.get(value, value)))


_SPELT = {"tp": "tensor parallelism"}
"""Abbreviations among values that no contrast names."""


def _short(value: Any) -> Any:
    """Round numbers to eight digits; None for what is unknown."""
    return rounded(value, _DIGITS) if isinstance(value, float) else value


Places: TypeAlias = dict[tuple[str, str, str, str], int]
"""The place of each cell, by machine, stack, workload and devices."""


def _pairs(cells: Sequence[CellRow], ratios: Ratios) -> list[ShownPair]:
    """Pair stacks with their baselines, settings with what they replace; `at`, `over`: the cells' places among `cells`."""
    places: Places = {_place_of(row.of): place for place, row in enumerate(cells)}
    others = [ratio for ratio in ratios.speedups if not ratio.is_of_itself]
    return [_pair(ratio, places) for ratio in (*others, *ratios.settings)]


def _pair(ratio: Ratio, places: Places) -> ShownPair:
    at, over = (places.get(_place_of(cell.row)) if cell else None for cell in (ratio.cell, ratio.base))
    limits = ratio.pair.interval
    return ShownPair(
        kind=ratio.setting or "stack", at=at, over=over, base=ratio.baseline or "", ratio=_short(limits.value),
        low=_short(limits.low), high=_short(limits.high), n=ratio.n, base_n=ratio.baseline_n, why=ratio.pair.why_not,
        verdict=ratio.verdict,
    )  # fmt: skip
