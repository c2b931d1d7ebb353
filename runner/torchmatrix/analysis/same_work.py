"""Did two cells of one name do the same work? By the parameters and the operations per item that their launches counted."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torchmatrix.facts.launch import Launch

TOLERANCE = 0.02
"""Operations per item that differ by more are other work: a detector's follow its boxes, by 1 % (measured on a CPU)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """What launches counted themselves: `parameters`, and operations per item (`flops`); unknown counts aren't there."""

    parameters: tuple[int, ...]
    flops: tuple[float, ...]


def counted(launches: Iterable[Launch]) -> Counted:
    told = [(launch.parameters, launch.reference.flops_per_item if launch.reference else math.nan) for launch in launches]
    return counted_as(told)


def of_row(row: Mapping[str, Any]) -> Counted:
    """Of a row of tables.launches_table; what was borrowed from another stack isn't the launch's own."""
    return counted_as([(row["parameters"], math.nan if row["flops_from"] else row["flops_per_item"])])


def counted_as(told: Iterable[tuple[int | None, float]]) -> Counted:
    """Of pairs of parameters and operations, either of which may be unknown."""
    pairs = list(told)
    return Counted(
        parameters=tuple(count for count, _ in pairs if count is not None),
        flops=tuple(flops for _, flops in pairs if not math.isnan(flops)),
    )


def together(several: Iterable[Counted]) -> Counted:
    """What cells of one side counted."""
    known = list(several)
    return Counted(
        parameters=tuple(count for one in known for count in one.parameters),
        flops=tuple(flops for one in known for flops in one.flops),
    )


def difference(a: Counted, b: Counted) -> str | None:
    """In what two sides did other work, in words; None: in nothing that both know."""
    if a.parameters and b.parameters and len(found := {*a.parameters, *b.parameters}) > 1:
        return f"not the same model: {min(found):,} and {max(found):,} parameters"
    if a.flops and b.flops and max(every := (*a.flops, *b.flops)) > (1 + TOLERANCE) * min(every):
        return f"not the same work: {min(every) / 1e9:.4g} and {max(every) / 1e9:.4g} GFLOP per item"
    return None


def is_checked(a: Counted, b: Counted) -> bool:
    """Do both sides know what they did?"""
    return bool(a.parameters and b.parameters and a.flops and b.flops)
