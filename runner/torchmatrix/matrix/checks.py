"""Check a matrix as a whole: packages that its stacks lack for its workloads, and settings that have no effect."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchmatrix.core.toml_keys import Place, Problems, Table
from torchmatrix.matrix import catalog, factors
from torchmatrix.matrix.catalog import Extra
from torchmatrix.matrix.factors import BY_NAME, FACTORS, Factor
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import Workload

# What stacks need besides torch, torchvision and transformers: only where a workload that may run on them asks for it.


def with_packages(stacks: Iterable[Stack], workloads: Sequence[Workload]) -> tuple[Stack, ...]:
    """`stacks`, each with the packages that its workloads need; an interpreter of this machine is left as it is."""
    return tuple(stack if stack.source == "interpreter" else _completed(stack, workloads) for stack in stacks)


def _completed(stack: Stack, workloads: Sequence[Workload]) -> Stack:
    """A package that the user names is the user's choice."""
    needed = dict.fromkeys(need for workload in workloads if _may_run(workload, stack) for need in extras_needed(workload))
    rows = [row for need in needed if (row := _row(stack, need))]
    added = dict.fromkeys(package for row in rows for package in row.packages if not _is_named(stack, package))
    oldest = max((row.python for row in rows), key=catalog.version_key, default="")
    python_range = f"{stack.python_range},>={oldest}" if stack.python_range and added else stack.python_range
    return replace(stack, packages=(*stack.packages, *added), python_range=python_range)


def extras_needed(workload: Workload) -> tuple[str, ...]:
    """What the catalog's extras may be needed by: the library of the workload's model, and what runs it."""
    runtime = factors.RUNTIMES_BY_NAME.get(str(workload.factors["runtime"]))
    return (workload.library, runtime.packages) if runtime and runtime.packages else (workload.library,)


def without_packages(stack: Stack, workload: Workload) -> str | None:
    """The library or runtime of `workload` for which no packages are known that go with `stack`; None: it lacks nothing.

    What an interpreter and a vendor's image hold, only the box can tell.
    """
    known = {row.needed_by for row in catalog.load().extras}
    asked = extras_needed(workload) if stack.source == "wheels" else ()
    return next((need for need in asked if need in known and not _row(stack, need) and not _is_given(stack, need)), None)


def _row(stack: Stack, need: str) -> Extra | None:
    """The packages for the stack's torch and Python; where its torch isn't known, as in a vendor's image, the newest."""
    rows = catalog.extras_of(need, stack.accelerator)
    if stack.source == "image":
        rows = tuple(row for row in rows if row.in_images)
    if stack.torch is None:
        return rows[-1] if rows else None
    minor = catalog.version_key(stack.torch)[:2]
    python = catalog.version_key(stack.python or "4")
    return next((r for r in rows if r.oldest <= minor <= r.newest and python >= catalog.version_key(r.python)), None)


def _is_given(stack: Stack, need: str) -> bool:
    """Does the user name the first package of one of its rows?"""
    return any(_is_named(stack, row.packages[0]) for row in catalog.load().extras if row.needed_by == need)


def _may_run(workload: Workload, stack: Stack) -> bool:
    on_cpu = stack.accelerator == "cpu"
    return on_cpu == (workload.device == "cpu") and any(fnmatchcase(stack.name, glob) for glob in workload.stacks)


def _is_named(stack: Stack, package: str) -> bool:
    return _name(package) in set(map(_name, stack.packages))


def _name(package: str) -> str:
    return canonicalize_name(Requirement(package).name)


# What a matrix sets although it changes nothing: it is told, so that nobody takes a figure for one under that setting.


def idle_workload_keys(table: Table, made: Sequence[Workload]) -> Iterator[tuple[str, str]]:
    """The keys of a [[workload]] table that change nothing in any of the workloads `made` of it, and why."""
    for factor in FACTORS:
        if factor.name in table and (why := _why_idle(factor, table[factor.name], made)):
            yield factor.name, f"has no effect: {why}"
    if made[0].batch_for and made[0].device == "cpu":
        yield "batch", "only its default has an effect: this workload runs on CPUs"
    pairs = [one.name for one in FACTORS if one.axis and isinstance(table.get(one.name), list) and len(table[one.name]) == 2]
    if table.get("fraction") == "1/2" and len(pairs) < 2:
        yield "fraction", f"leaves only the first value of {pairs[0]}" if pairs else "has no effect: no list has two values"
    if table.get("explain") and not any(one.mode == "train" and one.parallel == "ddp" for one in made):
        yield "explain", "has no effect: only training by ddp is explained"
    if table.get("requests") == 1 and "infer" in {one.mode for one in made}:
        yield "requests", "a single request has no median: its latency is neither compared nor judged"


def _why_idle(factor: Factor, given: Any, made: Sequence[Workload]) -> str:
    """Empty if it may change something. A list of several values asks whether they differ: a negative control."""
    models, modes = ({getattr(one, name) for one in made} for name in ("model", "mode"))
    if all(one.factors[factor.name] is None for one in made):
        for name, allowed, there in (("device", factor.devices, {made[0].device}), ("mode", factor.modes, modes)):
            if allowed and not there & set(allowed):
                return f"it is for {name} = {' or '.join(allowed)}"
        return f"it means nothing to {', '.join(sorted(models))}"
    if factor.needs and all(one.factors[factor.needs[0]] != factor.needs[1] for one in made):
        return f"it needs {factor.needs[0]} = {str(factor.needs[1]).lower()}"
    if factor.acts_in and not modes & set(factor.acts_in):
        return f"it is for mode = {' or '.join(factor.acts_in)}"
    is_one = not isinstance(given, list) or len(given) == 1
    if is_one and all(any(fnmatchcase(model, glob) for glob in factor.idle_for) for model in models):
        return f"it can't change the speed of {', '.join(sorted(models))}"
    return ""


def note_idle_tables(data: Table, stacks: Sequence[Stack], made: Sequence[Sequence[Workload]], problems: Problems) -> None:
    """Note the tables of a matrix of which nothing can ever run. `made`: the workloads of each [[workload]] table."""
    for number, some in enumerate(made):
        for key, why in idle_workload_keys(data["workload"][number], some):
            problems.note(Place(header="[[workload]]", number=number), key, why)
        if not any(_may_meet(stack, one) for stack in stacks for one in some):
            why = f"no [[stack]] of this matrix runs it: its device is {some[0].device}"
            problems.note(Place(header="[[workload]]", number=number), None, why)
    for number, stack in enumerate(stacks):
        if not any(_may_meet(stack, one) for some in made for one in some):
            problems.note(
                Place(header="[[stack]]", number=number), None, f"no [[workload]] of this matrix runs on {stack.name}"
            )
    devices = {one.device for some in made for one in some}
    for device in ("gpu", "cpu"):
        if data.get(f"{device}s") and device not in devices:
            problems.note(Place(header=f"[{device}s]"), None, f"has no effect: no [[workload]] has device = {device}")


def _may_meet(stack: Stack, workload: Workload) -> bool:
    """On some machine; see plan.make_plan for this one."""
    fits = stack.accelerator == "any" or (stack.accelerator == "cpu") == (workload.device == "cpu")
    return fits and any(fnmatchcase(stack.name, glob) for glob in workload.stacks)


def idle_method_settings(chosen: Method, workloads: Sequence[Workload]) -> Iterator[str]:
    """What is set although the method that is `chosen` takes no notice of it."""
    own = [
        *(("steps", "windows", "seconds") if chosen.steps else ()),
        *(("windows", "seconds", "warmup_seconds") if chosen.warm_seconds is not None else ()),
        *(() if chosen.warms_up else ("warmup_cap_seconds",)),
    ]
    if given := [name for name in own if any(one.factors[name] != BY_NAME[name].default for one in workloads)]:
        yield f"no effect of {', '.join(given)} in [[workload]]: the method {chosen.name} has its own"
    if chosen.cold_compiles and not any(one.compile for one in workloads):
        yield "no effect of cold_compiles: no workload compiles"
    if chosen.cool_down_seconds != Method().cool_down_seconds and chosen.start_below_celsius is None:
        yield f"no effect of cool_down_minutes: the method {chosen.name} waits for no temperature"
