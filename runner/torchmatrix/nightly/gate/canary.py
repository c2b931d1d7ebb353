"""A canary is a cell whose software is never upgraded: if it moves as well, the machine is the cause."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from torchmatrix.facts.environments import is_of_the_machine
from torchmatrix.ground.errors import BadInput
from torchmatrix.nightly.gate.judged import Judged

_MOVES = {"suspected": "slower", "regression": "slower", "faster": "faster", "ok": "ok", "failed": "failed"}
"""Where a cell went, by its verdict; for all others it is unknown."""
_MEASURED = ("suspected", "regression", "faster", "ok")


def attributed(cells: Sequence[Judged], globs: Sequence[str]) -> tuple[Judged, ...]:
    """The cells, each that moved or failed with the machine or the software as the cause, by the canaries among them.

    Raises BadInput if there are globs and none of them matches a cell.
    """
    canaries = [one for one in cells if any(fnmatchcase(one.cell, glob) for glob in globs)]
    if globs and not canaries:
        known = ", ".join(sorted({one.stack for one in cells if one.stack})) or "none"
        raise BadInput(f"no cell matches the canary {' '.join(globs)}", hint=f"a glob on cell ids; stacks: {known}")
    return tuple(_attributed(one, canaries) for one in cells)


def _attributed(one: Judged, canaries: Sequence[Judged]) -> Judged:
    """By the canaries on the cell's own devices, where there are such, else by all of them."""
    moved = _MOVES.get(one.verdict)
    if not canaries or moved in (None, "ok"):
        return one
    if one in canaries:
        return _by_the_machine(one, one, "it is the canary")
    of_metric = [canary for canary in canaries if canary.metric == one.metric] or canaries
    near = [canary for canary in of_metric if set(canary.devices) & set(one.devices)] or of_metric
    for canary in near:
        if _MOVES.get(canary.verdict) == moved:
            return _by_the_machine(one, canary, f"canary {canary.cell} {_extent(canary)}, too")
    still = next((canary for canary in near if canary.verdict in _MEASURED), near[0])
    cause = "software" if still.verdict in _MEASURED else "unclear"
    return replace(one, cause=cause, cause_why=f"canary {still.cell} {_extent(still)}")


def _by_the_machine(one: Judged, canary: Judged, why: str) -> Judged:
    """Unless the canary's own software has changed: then it is none."""
    names = [name for name in canary.changes if not is_of_the_machine(name)]
    if names:
        return replace(one, cause="unclear", cause_why=f"{why}, but its own software has changed: {', '.join(names[:3])}")
    return replace(one, cause="machine", cause_why=why)


def _extent(one: Judged) -> str:
    percent = round(100 * (one.ratio - 1), 1) + 0.0  # no -0.0
    if one.verdict == "ok":
        return f"moved by {percent:+.1f} %, within its limits"
    if math.isnan(percent):
        return "failed" if one.verdict == "failed" else f"is {one.verdict}"
    return f"is {abs(percent):.1f} % {_MOVES[one.verdict]}"
