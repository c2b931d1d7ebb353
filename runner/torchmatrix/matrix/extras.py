"""What stacks need besides torch, torchvision and transformers: only where a workload that may run on them asks for it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from torchmatrix.matrix import catalog, runtimes
from torchmatrix.matrix.catalog import Extra
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import Workload


def completed(stacks: Iterable[Stack], workloads: Sequence[Workload]) -> tuple[Stack, ...]:
    """`stacks`, each with the packages that its workloads need; an interpreter of this machine is left as it is."""
    return tuple(stack if stack.source == "interpreter" else _completed(stack, workloads) for stack in stacks)


def _completed(stack: Stack, workloads: Sequence[Workload]) -> Stack:
    """A package that the user names is the user's choice."""
    needed = dict.fromkeys(need for workload in workloads if _may_run(workload, stack) for need in needs(workload))
    rows = [row for need in needed if (row := _row(stack, need))]
    added = dict.fromkeys(package for row in rows for package in row.packages if not _is_named(stack, package))
    oldest = max((row.python for row in rows), key=catalog.version_key, default="")
    python_range = f"{stack.python_range},>={oldest}" if stack.python_range and added else stack.python_range
    return replace(stack, packages=(*stack.packages, *added), python_range=python_range)


def needs(workload: Workload) -> tuple[str, ...]:
    """What the catalog's extras may be needed by: the library of the workload's model, and what runs it."""
    runtime = runtimes.BY_NAME.get(str(workload.factors["runtime"]))
    return (workload.library, runtime.packages) if runtime and runtime.packages else (workload.library,)


def lacking(stack: Stack, workload: Workload) -> str | None:
    """The library or runtime of `workload` for which no packages are known that go with `stack`; None: it lacks nothing.

    What an interpreter and a vendor's image hold, only the box can tell.
    """
    known = {row.needed_by for row in catalog.load().extras}
    asked = needs(workload) if stack.source == "wheels" else ()
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
