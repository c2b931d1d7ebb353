"""Which two launches did the same work, so that a ratio of their throughputs means something."""

from collections.abc import Mapping
from typing import Any

from torchmatrix.facts.launch import Launch
from torchmatrix.matrix import method
from torchmatrix.matrix.factors import FACTORS


def work_of(launch: Launch) -> dict[str, Any]:
    """What was asked for and decides what a launch's number means, by name; what is None is left out.

    A workload's name and the stacks it is for don't matter.
    """
    fields = {"workload_hash": launch.workload_hash, "protocol": launch.wire_version, "batch_used": launch.batch_used}
    fields |= {factor.name: factor.recorded_in(launch.workload.factors) for factor in FACTORS if factor.decides}
    fields |= {f"method.{name}": launch.method.facts.get(name) for name in method.DECIDES_THE_NUMBER}
    return {name: value for name, value in fields.items() if value is not None}


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """In which fields two works (of `work_of`) differ, in words; None: they are the same."""
    fields = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    if not fields:
        return None
    return "they differ in " + ", ".join(f"{name} ({_head(a.get(name))} and {_head(b.get(name))})" for name in fields)


def _head(value: Any) -> str:
    return str(value)[:12]
