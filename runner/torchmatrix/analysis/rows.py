"""Rows of launches and cells: which make figures, what a row's stack and work are, and which rows may be compared."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct, defstruct
from typing_extensions import TypeVar

from torchmatrix.facts.environments import Differences, Environment
from torchmatrix.facts.launch import OK, ONE_MODEL, UNLIKE, Launch
from torchmatrix.matrix import catalog, factors, method
from torchmatrix.matrix.factors import BY_NAME, FACTORS, Factor

Row: TypeAlias = dict[str, Any]
"""A row of a table, by the sources of its columns."""

# Launches and cells as rows. Unknown numbers are NaN, other unknowns None, sequences tuples. Meanings: launch_row.ENTRIES.


class NightRow(Struct, frozen=True, kw_only=True, array_like=True):
    """A launch as far as histories and the gate read it, with the columns that code names; launch_row.py adds the others."""

    run: str
    round: int
    cell: str
    stack: str
    workload: str
    device_list: tuple[str, ...]
    parallel: str
    ddp_workload: str
    unit: str
    batch: int | str
    method: str
    statistic: str
    outcome: str
    error: str | None
    left_out: str
    disturbed: bool | None
    further: int | None
    throughput: float
    parameters: int | None
    flops_per_item: float
    formula_flops_per_item: float
    flops_from: str | None
    recipe: str | None
    operations: str
    flops_counter: str
    work: str
    hardware: str
    path: str
    machine: str = ""
    gpu: str = ""

    def value(self, column: str) -> Any:
        """Return what stands in a column. Raises AttributeError for a column that wasn't read."""
        return getattr(self, column)

    @property
    def fleet(self) -> Row:
        """Return its machine and GPU in rows of several machines (machines.py), else nothing."""
        return {"machine": self.machine, "gpu": self.gpu} if self.machine else {}


class LaunchRow(NightRow, frozen=True, kw_only=True, array_like=True):
    """A launch as far as reports read it."""

    devices: str
    count: int
    nodes: int
    model: str
    mode: str
    precision: str
    effective: str | None
    runtime: str | None
    compile: bool | None
    optimizer: str | None
    batch_requested: int | str
    torch: str | None
    torch_build: str | None
    device_name: str | None
    device_memory_bytes: int | None
    device_multiprocessors: int | None
    accelerator: str | None
    gpu_names: tuple[str, ...]
    cpu: str | None
    mixed: bool
    seconds: float
    first_step_seconds: float
    compile_cache: str | None
    requests: int
    items_each: int
    power_watts: float
    energy_per_item: float
    ecc_errors: float
    throttled: bool
    waited: float
    others: float
    foreign: tuple[str, ...]
    rank_rates: tuple[str, ...]
    quota_seconds: float
    throttled_later: bool
    under_load_seconds: float
    other_settings: str
    command: str | None
    flops_key: tuple[Any, ...]
    flops_by_type: str
    collectives: str


class CellRow(Struct, frozen=True, kw_only=True):
    """A cell with all columns. `of`: the launch that represents it, whose columns are the cell's but for what is computed from
    all its launches: the figures, with which others are medians, and how many launches had each mark.
    """

    of: LaunchRow
    n: int
    failed: int
    left_out: int
    left_out_why: str
    throughput: float
    low: float
    high: float
    cv: float
    verdict: str
    detectable: float
    outliers: int
    levels: str
    per_device: float
    cost_per_item: float
    power_watts: float
    energy_per_item: float
    mfu: float
    drift: float
    not_flat: int
    stalled: int
    skipped_steps: int
    throttled: int
    throttled_later: int
    not_steady: int
    too_warm: int
    start_unknown: int
    clock_jumps: int
    warming: float
    clock_change: float
    power_change: float
    later_clock: float
    at_limit: float
    under_load_seconds: float
    quota_seconds: float
    ecc_errors: float
    disturbed: int
    waited: float
    others: float
    foreign: tuple[str, ...]
    impossible_readings: str | None
    remarks: str | None

    if not TYPE_CHECKING:

        def __getattr__(self, column: str) -> Any:
            """Return a column of the launch: for tables and templates, which name columns by texts."""
            return getattr(self.of, column)

    def value(self, column: str) -> Any:
        """Return what stands in a column."""
        return getattr(self, column)


class FleetRow(Struct, frozen=True, kw_only=True):
    """What stands for a GPU, or for one of its machines, in a comparison of machines. `task`: see task_of. `stack_class`: equal
    for stacks that may stand for each other, "" in yields. `machine`: None for all `machines` of a GPU. `throughput`: NaN where
    `n`, its launches, is 0; `why` then says why.
    """

    gpu: str
    machine: str | None
    machines: int
    stack: str | None
    stack_class: str = ""
    workload: str
    task: Mapping[str, Any]
    model: str
    mode: str
    precision: str
    runtime: str | None
    compile: bool | None
    count: int
    devices: str | None
    batch: int | str
    unit: str
    n: int
    throughput: float
    low: float = math.nan
    high: float = math.nan
    why: str = ""

    def value(self, column: str) -> Any:
        """Return what stands in a column."""
        return getattr(self, column)


class CellNight(Struct, frozen=True, kw_only=True, array_like=True):
    """A cell that was planned, launched or skipped in a run. `started`: the run, in unix seconds. `value` of a metric, with the
    ends of its interval and `cv`: NaN where nothing was measured. `disturbed`: how many launches were, by other programs.
    `outcome`: ok; else that of the last launch, skipped, or not launched; `reason`: then why. `told`: its environment;
    `environment`: how that differs from that of the run before.
    """

    host: str
    cell: str
    run: str
    started: float
    workload: str | None
    unit: str | None
    outcome: str
    reason: str | None
    n: int
    failed: int
    left_out: int
    left_out_why: str
    disturbed: int
    value: float
    low: float
    high: float
    cv: float
    told: Environment
    environment: Differences = {}


_Struct = TypeVar("_Struct", bound=Struct)


def with_columns(name: str, base: type[_Struct], columns: Iterable[str], module: str) -> type[_Struct]:
    """Return `base` with these columns, too, of any type; None where they aren't given. `module`: where the class stands."""
    more: list[Any] = [(column, Any, None) for column in dict.fromkeys(columns) if column not in base.__struct_fields__]
    made = defstruct(name, more, bases=(base,), module=module, frozen=True, kw_only=True, array_like=True)
    return cast("type[_Struct]", made)


AnyRow = TypeVar("AnyRow", bound=NightRow, default=LaunchRow, covariant=True)
"""The rows of a class: of whole launches, or of what histories and the gate read."""
ThoseRows = TypeVar("ThoseRows", bound=NightRow)
"""The same of a function."""
CELLS, LAUNCHES = "cells", "launches"
_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


def group_by(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Return the items by their key, in the order in which the keys first appear."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def is_ok(row: NightRow) -> bool:
    """Check whether a launch has a figure."""
    return row.outcome == OK


def has_failed(row: NightRow) -> bool:
    """Check whether a launch failed. A launch that is left out of its cell's figure has not."""
    return row.outcome not in (OK, UNLIKE)


def makes_figures(row: NightRow) -> bool:
    """Check whether a launch or cell is of a model that its devices run together. All others explain the loss of such a one."""
    return row.parallel in ONE_MODEL


# Columns of tables, and short ways to declare them.


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of tables. `name`: in files, with its unit. `kind`: text; number; whole; flag (true or false); list (of texts).
    `source`: its key in rows.

    For columns of cells or launches (launch_row.py): `of`: its value for a launch as read; `cell`: for a cell, None: that of
    its representative launch. `tables`: where it is exported; `each`: its meaning for a single launch, if that differs.
    """

    name: str
    kind: str
    meaning: str
    source: str
    of: Callable[[Any], Any] | None = None
    cell: Callable[[Any], Any] | None = None
    tables: tuple[str, ...] = (CELLS, LAUNCHES)
    each: str = ""


def _column(kind: str, name: str, meaning: str, source: str = "", **more: Any) -> Column:
    return Column(name=name, kind=kind, meaning=meaning, source=source or name, **more)


a_text, a_number, a_whole, a_flag, a_list = (partial(_column, kind) for kind in ("text", "number", "whole", "flag", "list"))


def an_interval(name: str, meaning: str, source: str = "", unit: str = "", **more: Any) -> Iterable[Column]:
    """Yield the columns of a figure and both ends of its 95 % interval."""
    yield a_number(name + unit, meaning, source, **more)
    for end in ("low", "high"):
        meaning_of_end = f"{end}er end of its 95 % interval; unknown with one launch"
        yield a_number(f"{name}_{end}{unit}", meaning_of_end, f"{source}_{end}", **more)


# Comparability: two launches must share the work and the stack so that a ratio of their throughputs means something.
#
# The work: the workload's settings, the batch, the code of the workload, the method. Stacks are equal (one name, one recipe) or
# equivalent (the same torch release in another build, such as CUDA 12.4 and ROCm 6.2).

Work = Mapping[str, Any]
Difference = tuple[str, str, str]
"""A field in which two works differ, and its two values."""

BATCH = "batch_used"
MOST_DIFFERENCES = 2
"""Works that differ in more fields are unrelated."""
EQUAL, EQUIVALENT = "equal", "equivalent"
_IF_MISSING = {"method.parallel": False, "method.fork": False, "nodes": 1}
"""Values of fields that only some launches have, where they are missing."""
_SETTINGS = tuple(factor for factor in FACTORS if factor.decides and factor.part)
"""The settings that identify a workload; how long and how often its steps are timed does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """Two sides that are not compared: the `field` in which they differ, its pairs of `values`, in how many `rows`."""

    a: str
    b: str
    field: str
    values: tuple[tuple[str, str], ...]
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StackUsed:
    """A stack as far as it matters to a comparison; `release`: of torch, such as 2.5.1; None: unknown."""

    name: str
    release: str | None
    recipe: str | None


def work_of(launch: Launch) -> dict[str, Any]:
    """Return the requested fields that decide the meaning of a launch's number, by name, without those that are None.

    A workload's name and the stacks it is for don't matter.
    """
    fields = {"workload_hash": launch.workload_hash, "protocol": launch.wire_version, BATCH: launch.batch_used}
    fields |= {factor.name: _requested(factor, launch.workload.factors) for factor in FACTORS if factor.decides}
    fields |= {f"method.{name}": launch.method.facts.get(name) for name in method.DECIDES_THE_NUMBER}
    fields["nodes"] = launch.devices.nodes if launch.devices.nodes > 1 else None
    return {name: value for name, value in fields.items() if value is not None}


def settings_of(work: Work) -> tuple[Any, ...]:
    """Return the settings that two workloads share if they differ only in their batch and in how they are timed.

    A setting that means nothing to this kind of device counts as left at its default.
    """
    return tuple(_value(factor.name, work) for factor in _SETTINGS)


def task_of(work: Work) -> Work:
    """Return the settings that two workloads share if they differ only in the batch and in ways to do the same work."""
    return {factor.name: _value(factor.name, work) for factor in _SETTINGS if factor.name not in factors.TUNED}


def name_of(work: Work, batch: Any = None) -> str:
    """Return a workload's name by its settings, such as resnet50-train-amp-224px, and by the batch, if given."""
    values = {factor.name: work.get(factor.name) for factor in _SETTINGS}
    if values["optimizer"] == catalog.usual_optimizer(str(values["model"])):  # omitted, as in a workload's id
        values["optimizer"] = None
    return factors.id_of({**values, "batch": batch})


def work_differences(a: Work, b: Work, batch: str = "same") -> list[Difference]:
    """Return the fields in which two works differ. `batch`: "same", or "own" where each may have its own."""
    differing = []
    for name in {**a, **b}:
        ours, theirs = (_value(name, work) for work in (a, b))
        if ours != theirs and not (name == BATCH and batch == "own"):
            differing.append((name, _head(ours), _head(theirs)))
    return differing


def work_difference(a: Work, b: Work) -> str | None:
    """Describe in which fields two works (of `work_of`) differ; None: they are the same."""
    return refusal_in_words(work_differences(a, b))


def refusal_in_words(differing: Sequence[Difference]) -> str | None:
    """Return a text such as "they differ in precision (amp and fp32)"; None for no difference."""
    return "they differ in " + ", ".join(f"{name} ({a} and {b})" for name, a, b in differing) if differing else None


def refusals(a: str, b: str, rows: Iterable[Sequence[Difference]]) -> list[Refused]:
    """Return the differences between the rows of two sides, field by field."""
    by_field = group_by((difference for row in rows for difference in row), lambda difference: difference[0])
    return [
        Refused(a=a, b=b, field=field, values=tuple(dict.fromkeys((ours, theirs) for _, ours, theirs in each)), rows=len(each))
        for field, each in by_field.items()
    ]


def release_of(requested: str | None, built: str | None) -> str | None:
    """Return the release of torch: the requested one, else the one that the workload reported, without a build's name."""
    version = requested or built
    return version.partition("+")[0] if version else None


def stack_of(row: LaunchRow) -> StackUsed:
    """Return the stack of a launch's row."""
    return StackUsed(name=row.stack, release=release_of(row.torch, row.torch_build), recipe=row.recipe)


def stack_match(a: StackUsed, b: StackUsed) -> str | None:
    """Return EQUAL, EQUIVALENT or None. An unknown recipe equals no other, so that only the releases are compared."""
    if a is b or (a.name == b.name and a.recipe is not None and a.recipe == b.recipe):
        return EQUAL
    return EQUIVALENT if a.release is not None and a.release == b.release else None


def nearest_stack(stack: StackUsed, others: Iterable[StackUsed]) -> tuple[StackUsed, str] | None:
    """Return the stack to compare with, and how they match: an equal one, else one of that name, else a newest build."""
    matches = [(other, match) for other in others if (match := stack_match(stack, other))]
    if not matches:
        return None
    return max(matches, key=lambda pair: (pair[1] == EQUAL, pair[0].name == stack.name, _numbers_in(pair[0].name)))


def _value(name: str, work: Work) -> Any:
    """Return a field's value; the default of a setting that means nothing to this kind of device, or that was left out."""
    value, factor = work.get(name, _IF_MISSING.get(name)), BY_NAME.get(name)
    return factor.default if value is None and factor and (factor.devices or factor.needs) else value


def _requested(factor: Factor, workload: Mapping[str, Any]) -> Any:
    """Return the requested value.

    None for the usual value of a setting that belongs to another factor, as in launches from before there was a choice.
    """
    value = factor.recorded_in(workload)
    return None if factor.needs and value == factor.default else value


def _numbers_in(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"[0-9]+", name)]


def _head(value: Any) -> str:
    return str(value)[:12]


# Counted work: did two cells do the same work, by the parameters and the operations per item that their launches counted?

TOLERANCE = 0.02
"""Operations per item that differ by more are other work: a detector's follow its boxes, by 1 % (measured on a CPU)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """Counts of launches: `parameters`, and operations per item by who counted (`flops`); unknown counts are left out."""

    parameters: tuple[int, ...]
    flops: tuple[tuple[str, float], ...]


TORCHS = "torch "
"""What the names of torch's own counters begin with."""


def counter_of(launch: Launch) -> str:
    """Return who counted a launch's operations: the workload, or torch, whose releases count different ones."""
    by_workload = launch.reference.flops_counter if launch.reference else None
    return by_workload or f"{TORCHS}{(launch.reported and launch.reported.torch) or launch.stack.torch}"


def counted_work(launches: Iterable[Launch]) -> Counted:
    """Return the counts of these launches."""
    return counted_as(
        (launch.parameters, counter_of(launch), launch.reference.flops_per_item if launch.reference else math.nan)
        for launch in launches
    )


def counted_of_row(row: NightRow) -> Counted:
    """Return the counts of a launch's row; what was borrowed from another stack isn't the launch's own."""
    return counted_as([(row.parameters, row.flops_counter, math.nan if row.flops_from else row.flops_per_item)])


def counted_as(counts: Iterable[tuple[int | None, str, float]]) -> Counted:
    """Make counts of parameters, a counter and what it counted; parameters and operations may be unknown."""
    every = list(counts)
    return Counted(
        parameters=tuple(number for number, _, _ in every if number is not None),
        flops=tuple((counter, flops) for _, counter, flops in every if not math.isnan(flops)),
    )


def counted_together(several: Iterable[Counted]) -> Counted:
    """Combine the counts of the cells of one side."""
    parts = list(several)
    return Counted(
        parameters=tuple(count for part in parts for count in part.parameters),
        flops=tuple(flops for part in parts for flops in part.flops),
    )


def counted_difference(a: Counted, b: Counted) -> str | None:
    """Describe in what two sides did other work; None: in nothing that both know.

    Counts of two counters that differ say nothing: `is_work_checked` is false then.
    """
    if a.parameters and b.parameters and len(parameters := {*a.parameters, *b.parameters}) > 1:
        return f"not the same model: {min(parameters):,} and {max(parameters):,} parameters"
    for counter in {counter for counter, _ in a.flops} & {counter for counter, _ in b.flops}:
        flops = [count for by, count in (*a.flops, *b.flops) if by == counter]
        if not are_equal_counts(flops):
            return f"not the same work: {min(flops) / 1e9:.4g} and {max(flops) / 1e9:.4g} GFLOP per item"
    return None


def is_work_checked(a: Counted, b: Counted) -> bool:
    """Check whether both sides counted their work, in the same way or to the same result."""
    if not (a.parameters and b.parameters and a.flops and b.flops):
        return False
    shared = {counter for counter, _ in a.flops} & {counter for counter, _ in b.flops}
    return bool(shared) or are_equal_counts([count for _, count in (*a.flops, *b.flops)])


def are_equal_counts(flops: Sequence[float]) -> bool:
    """Check whether these counts of an item's operations are of the same work."""
    return max(flops) <= (1 + TOLERANCE) * min(flops)
