"""The nouns of the explorers."""

from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
"""A cell: for each dimension the index of its value, and its figures; None is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dim:
    """What cells differ in. `values`: as they stand in an address, in order; `labels`: for readers.

    `own`: each group of cells may have a value of its own (a batch, a set of devices); the others are chosen for all.
    """

    name: str
    title: str
    values: tuple[str, ...]
    labels: tuple[str, ...]
    own: bool = False
