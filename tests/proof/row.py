"""A row of the proof's table."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """`what` was found out, in words; what was `found`, the `goal`, and whether it `holds`."""

    what: str
    found: str
    goal: str
    holds: bool


RowFunction = Callable[[], Row]


def at_least(what: str, share: float, goal: float) -> Row:
    """A share that must not be lower."""
    return Row(what=what, found=f"{100 * share:.1f} %", goal=f">= {100 * goal:g} %", holds=share >= goal)


def at_most(what: str, share: float, goal: float) -> Row:
    """A share that must not be higher."""
    return Row(what=what, found=f"{100 * share:.2g} %", goal=f"<= {100 * goal:g} %", holds=share <= goal)
