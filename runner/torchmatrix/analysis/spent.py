"""A launch -> where its time went: its phases, its step times inside the timed windows. time_split.py makes tables of many."""

import math
from array import array
from dataclasses import dataclass
from itertools import chain

from torchmatrix.facts.launch import Launch, measured_seconds

TOLD = {"import": "import", "init": "init", "model": "model to device", "first-step": "first step"}
"""Phases: what the box calls them, and we."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """Of an ok launch. `cell`: what tells its row in a table from others, by column; `cache` is "" without compilation.

    `phases`: seconds by name, NaN if unknown. `steps`: seconds of all ranks' steps in the timed windows.
    """

    cell: dict[str, str]
    phases: dict[str, float]
    steps: "array[float]"


def spent_by(launch: Launch) -> Spent | None:
    """None if it isn't ok, or explains a scaling loss: that has its own table."""
    if not launch.makes_figures or not launch.is_ok:
        return None
    steps = chain.from_iterable(rank for window in launch.windows for rank in window.step_seconds)
    return Spent(cell=_cell_of(launch), phases=_seconds_of(launch), steps=array("d", steps))


def _cell_of(launch: Launch) -> dict[str, str]:
    workload = launch.workload
    return {
        "cell": launch.cell,
        "stack": launch.stack.name,
        "workload": workload.id,
        "model": workload.model,
        "mode": workload.mode,
        "devices": launch.devices.label,
        "cache": launch.compile_cache or "" if workload.compile else "",
    }


def _seconds_of(launch: Launch) -> dict[str, float]:
    found = {ours: launch.phases.get(theirs, math.nan) for theirs, ours in TOLD.items()}
    found |= {"warm-up": _warm_up(launch), "measure": measured_seconds(launch)}
    known = sum(seconds for seconds in found.values() if not math.isnan(seconds))
    return found | {"the rest": launch.seconds - known, "total": launch.seconds}


def _warm_up(launch: Launch) -> float:
    """NaN where the box told neither the sum nor the blocks."""
    if launch.warm_up and launch.warm_up.seconds is not None:
        return launch.warm_up.seconds
    return sum(block.slowest for block in launch.warm_up_blocks) if launch.warm_up_blocks else math.nan
