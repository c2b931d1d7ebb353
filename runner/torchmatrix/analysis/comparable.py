"""Which two launches did the same work, so that a ratio of their throughputs means something."""

from collections.abc import Mapping
from typing import Any

from torchmatrix.facts.launch import Launch
from torchmatrix.matrix import method

_WORKLOAD_FIELDS = (
    "model", "mode", "precision", "compile", "channels_last", "attention", "optimizer", "image_size", "sequence_length",
    "parallel", "steps", "seconds", "windows", "warmup_steps", "warmup_seconds", "warmup_cap",
)  # fmt: skip
"""What of a workload must be equal; its name and the stacks it is for don't matter."""


def work_of(launch: Launch) -> dict[str, Any]:
    """What was asked for and decides what a launch's number means, by name; what is None is left out."""
    fields = {"workload_hash": launch.workload_hash, "protocol": launch.wire_version, "batch_used": launch.batch_used}
    fields |= {name: launch.workload.factors.get(name) for name in _WORKLOAD_FIELDS}
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
