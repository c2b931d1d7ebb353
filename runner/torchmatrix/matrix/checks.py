"""Check a matrix as a whole: packages that its stacks lack for its workloads, and settings that have no effect."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchmatrix.core.toml_keys import Place, Problems, Table
from torchmatrix.facts.operations import MICRO
from torchmatrix.matrix import catalog, factors
from torchmatrix.matrix.catalog import Extra
from torchmatrix.matrix.factors import ALWAYS, BY_NAME, FACTORS, Factor
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import Workload

# Packages besides torch, torchvision and transformers: added to a stack only if a workload that may run on it needs them


def with_packages(stacks: Iterable[Stack], workloads: Sequence[Workload]) -> tuple[Stack, ...]:
    """Return `stacks`, each with the packages that its workloads need; an interpreter of this machine is left as it is."""
    return tuple(stack if stack.source == "interpreter" else _complete(stack, workloads) for stack in stacks)


def _complete(stack: Stack, workloads: Sequence[Workload]) -> Stack:
    """Add the packages that a stack's workloads need, but none that the user names: that version is the user's choice."""
    on_cpu = stack.accelerator == "cpu"
    run = (workload for workload in workloads if on_cpu == (workload.device == "cpu") and _is_selected(stack, workload))
    needed = dict.fromkeys(need for workload in run for need in extras_needed(workload))
    rows = [row for need in needed if (row := _row(stack, need))]
    added = dict.fromkeys(package for row in rows for package in row.packages if not _is_named(stack, package))
    oldest = max((row.python for row in rows), key=catalog.version_key, default="")
    python_range = f"{stack.python_range},>={oldest}" if stack.python_range and added else stack.python_range
    return replace(stack, packages=(*stack.packages, *added), python_range=python_range)


def extras_needed(workload: Workload) -> tuple[str, ...]:
    """Return what the catalog may list extras for: the libraries of the workload's model and of its runtime or precision."""
    if workload.mode == MICRO:
        return ()
    runtime = factors.RUNTIMES_BY_NAME.get(str(workload.factors["runtime"]))
    library = factors.IN_FLOAT8.get(workload.precision, runtime)
    packages = library and library.packages
    return (workload.library, packages) if packages else (workload.library,)


def without_packages(stack: Stack, workload: Workload) -> str | None:
    """Return the library or runtime of `workload` for which no packages are known that go with `stack`; None: it lacks nothing.

    The packages of an interpreter or a vendor's image are only known in the container.
    """
    listed = {row.needed_by for row in catalog.load().extras}
    needs = extras_needed(workload) if stack.source == "wheels" else ()
    return next((need for need in needs if need in listed and not _row(stack, need) and not _is_given(stack, need)), None)


def _row(stack: Stack, need: str) -> Extra | None:
    """Return the packages for the stack's torch and Python; where its torch isn't known, as in a vendor's image, the newest."""
    rows = catalog.extras_of(need, stack.accelerator)
    if stack.source == "image":
        rows = tuple(row for row in rows if row.in_images)
    if stack.torch is None:
        return rows[-1] if rows else None
    minor = catalog.version_key(stack.torch)[:2]
    python = catalog.version_key(stack.python or "4")
    return next((r for r in rows if r.oldest <= minor <= r.newest and python >= catalog.version_key(r.python)), None)


def _is_given(stack: Stack, need: str) -> bool:
    """Check whether the user names the first package of one of the rows of `need`."""
    return any(_is_named(stack, row.packages[0]) for row in catalog.load().extras if row.needed_by == need)


def _is_selected(stack: Stack, workload: Workload) -> bool:
    return any(fnmatchcase(stack.name, glob) for glob in workload.stacks)


def _is_named(stack: Stack, package: str) -> bool:
    name, *named = (canonicalize_name(Requirement(text).name) for text in (package, *stack.packages))
    return name in named


# Settings of a matrix that change nothing: they are reported, so that nobody takes a figure for one under that setting


def idle_workload_keys(table: Table, made: Sequence[Workload]) -> Iterator[tuple[str, str]]:
    """Yield the keys of a [[workload]] table that change nothing in any of the workloads `made` of it, and why."""
    for factor in FACTORS:
        if factor.name in table and (why := _why_idle(factor, table[factor.name], made)):
            yield factor.name, f"has no effect: {why}"
    if made[0].batch_for and made[0].device == "cpu":
        yield "batch", "only its default has an effect: this workload runs on CPUs"
    lists = [factor.name for factor in FACTORS if factor.axis and isinstance(table.get(factor.name), list)]
    pairs = [name for name in lists if len(table[name]) == 2]
    if table.get("fraction") == "1/2" and len(pairs) < 2:
        yield "fraction", f"leaves only the first value of {pairs[0]}" if pairs else "has no effect: no list has two values"
    if table.get("explain") and not any(workload.trains and workload.parallel == "ddp" for workload in made):
        yield "explain", "has no effect: only training by ddp is explained"
    if "counts" in table and table.get("explain") and table["counts"] == [1]:
        yield "explain", "has no effect: it needs more devices than one"
    if "request_seconds" in table and table.get("requests") == 0:
        yield "request_seconds", "has no effect: no request is timed"
    if table.get("requests") == 1 and "infer" in {workload.mode for workload in made}:
        yield "requests", "a single request has no median: its latency is neither compared nor judged"


def _why_idle(factor: Factor, given: Any, made: Sequence[Workload]) -> str:
    """Say why a factor changes nothing; empty if it may. A list of several values is no mistake: it is a negative control."""
    models, modes = ({getattr(workload, name) for workload in made} for name in ("model", "mode"))
    if modes == {MICRO} and _is_of_models_only(factor, given, models):
        return f"it means nothing to {', '.join(sorted(models))}"
    if all(workload.factors[factor.name] is None for workload in made):
        for name, allowed, used in (("device", factor.devices, {made[0].device}), ("mode", factor.modes, modes)):
            if allowed and not used & set(allowed):
                return f"it is for {name} = {' or '.join(allowed)}"
        return f"it means nothing to {', '.join(sorted(models))}"
    if factor.needs and all(workload.factors[factor.needs[0]] != factor.needs[1] for workload in made):
        return f"it needs {factor.needs[0]} = {str(factor.needs[1]).lower()}"
    for needed, is_idle in _ALSO_IDLE.get(factor.name, {}).items():
        if all(map(is_idle, made)):
            return needed
    if factor.acts_in and not modes & set(factor.acts_in):
        return f"it is for mode = {' or '.join(factor.acts_in)}"
    is_one = not isinstance(given, list) or len(given) == 1
    if is_one and all(any(fnmatchcase(model, glob) for glob in factor.idle_for) for model in models):
        return f"it can't change the speed of {', '.join(sorted(models))}"
    return ""


_ALSO_IDLE: Mapping[str, Mapping[str, Callable[[Workload], bool]]] = {
    "prefetch": {"no worker loads": lambda workload: workload.factors["workers"] == 0},
    "pin_memory": {"it is for device = gpu": lambda workload: workload.device == "cpu"},
    "decoder": {"only images are decoded": lambda workload: workload.unit != "images"},
}
"""Settings of data from disk that change nothing beside others, and then not in a list either: what two values share is one."""


def _is_of_models_only(factor: Factor, given: Any, operations: Collection[str]) -> bool:
    """Check whether a factor that every workload has means nothing to `operations`: they take it from themselves."""
    taken = {"model", *(name for operation in operations if (found := catalog.find(operation)) for name in found.takes)}
    return factor.name in ALWAYS and factor.name not in taken and given not in (MICRO, [MICRO])


def note_idle_tables(data: Table, stacks: Sequence[Stack], made: Sequence[Sequence[Workload]], problems: Problems) -> None:
    """Note the tables of a matrix of which nothing can ever run. `made`: the workloads of each [[workload]] table."""
    for number, of_table in enumerate(made):
        place = Place(header="[[workload]]", number=number)
        for key, why in idle_workload_keys(data["workload"][number], of_table):
            problems.note(place, key, why)
        if not any(_may_run_somewhere(stack, workload) for stack in stacks for workload in of_table):
            why = f"its device is {of_table[0].device}" if of_table[0].stacks else "its stacks are none"
            problems.note(place, None, f"no [[stack]] of this matrix runs it: {why}")
    workloads = [workload for of_table in made for workload in of_table]
    for number, stack in enumerate(stacks):
        if not any(_may_run_somewhere(stack, workload) for workload in workloads):
            place = Place(header="[[stack]]", number=number)
            problems.note(place, None, f"no [[workload]] of this matrix runs on {stack.name}")
    devices = {workload.device for workload in workloads}
    for device in ("gpu", "cpu"):
        table = data.get(f"{device}s", {})
        if table.get("counts") == [] and not (table.get("lists") or table.get("each")):
            problems.note(Place(header=f"[{device}s]"), "counts", "is empty: no set of devices is measured")
        if table and device not in devices:
            problems.note(Place(header=f"[{device}s]"), None, f"has no effect: no [[workload]] has device = {device}")


def _may_run_somewhere(stack: Stack, workload: Workload) -> bool:
    """Check whether a workload may run on a stack on some machine; see plan.make_plan for this one."""
    fits = stack.accelerator == "any" or (stack.accelerator == "cpu") == (workload.device == "cpu")
    return fits and _is_selected(stack, workload)


def too_short(timeout_seconds: float, workloads: Sequence[Workload]) -> Iterator[str]:
    """Yield a note if warm-up and windows of a workload take as long as a launch may."""
    longest = max((workload.least_seconds for workload in workloads), default=0.0)
    if longest >= timeout_seconds:
        asked = f"warm-up and windows take {longest:g} s and more, and [run] timeout_minutes ends a launch after"
        yield f"{asked} {timeout_seconds:g} s: no such launch can give a figure"


def idle_method_settings(chosen: Method, workloads: Sequence[Workload]) -> Iterator[str]:
    """Yield the settings that the `chosen` method ignores."""
    overridden = [
        *(("steps", "windows", "seconds") if chosen.steps else ()),
        *(("windows", "seconds", "warmup_seconds") if chosen.warm_seconds is not None else ()),
        *(() if chosen.warms_up else ("warmup_cap_seconds",)),
    ]
    if given := [name for name in overridden if any(w.factors[name] != BY_NAME[name].default for w in workloads)]:
        yield f"no effect of {', '.join(given)} in [[workload]]: the method {chosen.name} has its own"
    if chosen.cold_compiles and not any(workload.compile for workload in workloads):
        yield "no effect of cold_compiles: no workload compiles"
    if chosen.cool_down_seconds != Method().cool_down_seconds and chosen.start_below_celsius is None:
        yield f"no effect of cool_down_minutes: the method {chosen.name} waits for no temperature"
