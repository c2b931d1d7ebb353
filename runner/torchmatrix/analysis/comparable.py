"""What two launches must share so that a ratio of their throughputs means something: the work, and the stack.

The work: the workload's settings, the batch, the code of the workload, the method. Stacks are equal (one name, one recipe) or
equivalent (the same torch release in another build, such as CUDA 12.4 and ROCm 6.2).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.facts.launch import Launch
from torchmatrix.matrix import catalog, factors, method
from torchmatrix.matrix.factors import BY_NAME, FACTORS, Factor

Work = Mapping[str, Any]
Difference = tuple[str, str, str]
"""A field in which two works differ, and its two values."""

BATCH = "batch_used"
MOST_DIFFERENCES = 2
"""Works that differ in more fields have nothing to do with each other."""
EQUAL, EQUIVALENT = "equal", "equivalent"
_LEFT_OUT = {"method.parallel": False, "method.fork": False, "nodes": 1}
"""What fields mean that only some launches have."""
_SETTINGS = tuple(factor for factor in FACTORS if factor.decides and factor.part)
"""What names a workload; how long and how often its steps are timed does not."""


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
    """What was asked for and decides what a launch's number means, by name; what is None is left out.

    A workload's name and the stacks it is for don't matter.
    """
    fields = {"workload_hash": launch.workload_hash, "protocol": launch.wire_version, BATCH: launch.batch_used}
    fields |= {factor.name: _decided(factor, launch.workload.factors) for factor in FACTORS if factor.decides}
    fields |= {f"method.{name}": launch.method.facts.get(name) for name in method.DECIDES_THE_NUMBER}
    fields["nodes"] = launch.devices.nodes if launch.devices.nodes > 1 else None
    return {name: value for name, value in fields.items() if value is not None}


def settings_of(work: Work) -> tuple[Any, ...]:
    """What makes two workloads the same but for their batch and for how they are timed.

    A setting that means nothing to this kind of device counts as left at its default.
    """
    return tuple(_value(factor.name, work) for factor in _SETTINGS)


def name_of(work: Work, batch: Any = None) -> str:
    """The name of a workload by its settings, such as resnet50-train-amp-224px; with a batch that, too."""
    values = {factor.name: work.get(factor.name) for factor in _SETTINGS}
    if values["optimizer"] == catalog.usual_optimizer(str(values["model"])):  # it isn't said, as in a workload's id
        values["optimizer"] = None
    return factors.id_of({**values, "batch": batch})


def differences(a: Work, b: Work, batch: str = "same") -> list[Difference]:
    """The fields in which two works differ. `batch`: "same", or "own" where each may have its own."""
    found = []
    for name in {**a, **b}:
        ours, theirs = (_value(name, work) for work in (a, b))
        if ours != theirs and not (name == BATCH and batch == "own"):
            found.append((name, _head(ours), _head(theirs)))
    return found


def difference(a: Work, b: Work) -> str | None:
    """In which fields two works (of `work_of`) differ, in words; None: they are the same."""
    return in_words(differences(a, b))


def in_words(found: Sequence[Difference]) -> str | None:
    """Such as "they differ in precision (amp and fp32)"; None for no difference."""
    return "they differ in " + ", ".join(f"{name} ({a} and {b})" for name, a, b in found) if found else None


def refusals(a: str, b: str, rows: Iterable[Sequence[Difference]]) -> list[Refused]:
    """The differences of the rows of two sides, field by field."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for field, *values in row:
            found.setdefault(field, []).append((values[0], values[1]))
    return [
        Refused(a=a, b=b, field=field, values=tuple(dict.fromkeys(pairs)), rows=len(pairs)) for field, pairs in found.items()
    ]


def release_of(asked: str | None, built: str | None) -> str | None:
    """The release of torch: the requested one, else what the box reported, without the name of its build."""
    found = asked or built
    return found.partition("+")[0] if found else None


def stack_of(row: Mapping[str, Any]) -> StackUsed:
    """The stack of a row of tables.launch_rows."""
    release = release_of(row["torch"], row["torch_build"])
    return StackUsed(name=row["stack"], release=release, recipe=row["recipe"])


def stack_match(a: StackUsed, b: StackUsed) -> str | None:
    """EQUAL, EQUIVALENT or None. An unknown recipe is like no other, so that only the releases are compared."""
    if a is b or (a.name == b.name and a.recipe is not None and a.recipe == b.recipe):
        return EQUAL
    return EQUIVALENT if a.release is not None and a.release == b.release else None


def nearest_stack(own: StackUsed, others: Iterable[StackUsed]) -> tuple[StackUsed, str] | None:
    """The stack to compare `own` with, and how they match: an equal one, else of the same name, else of the newest build."""
    found = [(other, match) for other in others if (match := stack_match(own, other))]
    if not found:
        return None
    return max(found, key=lambda pair: (pair[1] == EQUAL, pair[0].name == own.name, _numbers(pair[0].name)))


def _value(name: str, work: Work) -> Any:
    """Of a field; its default where it is a setting that means nothing to this kind of device, or that was left out."""
    value, factor = work.get(name, _LEFT_OUT.get(name)), BY_NAME.get(name)
    return factor.default if value is None and factor and (factor.devices or factor.needs) else value


def _decided(factor: Factor, workload: Mapping[str, Any]) -> Any:
    """What was asked for; None for the usual value of what belongs to another factor, as before there was a choice."""
    value = factor.recorded_in(workload)
    return None if factor.needs and value == factor.default else value


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"[0-9]+", name)]


def _head(value: Any) -> str:
    return str(value)[:12]
