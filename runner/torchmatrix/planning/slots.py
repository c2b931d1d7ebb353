"""CPU slots: equal shares of a machine's cores, cut along its topology. Pure.

Of several slots each should be like the others, or a ratio of them compares unlike devices. So none begins in one socket or
NUMA node and ends in another, and all have cores of the same types. Where that takes smaller slots, cores are left over.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from torchmatrix.machine.cpu import CoreGroup

Slot = tuple[int, ...]
"""Logical CPUs, one of each core."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """`slots`: all of one size; none if there are fewer cores. `unlike`: in what they differ, in words; empty if in nothing."""

    slots: tuple[Slot, ...]
    unlike: str = ""

    @property
    def size(self) -> int:
        """How many cores a slot has; at least one."""
        return len(self.slots[0]) if self.slots else 1


def cut(cores: Sequence[int], groups: Sequence[CoreGroup], count: int) -> Cut:
    """`count` slots. Equal shares of all cores, if they go along the topology; else the largest that lie within groups of one
    type, the fastest that has enough cores; else equal shares that are not alike. `groups`: of the cores; none: all are alike.
    """
    groups = groups or (CoreGroup(cores=tuple(cores)),)
    shares = _pieces([core for group in groups for core in group.cores], max(1, len(cores) // count), count)
    if _are_along(shares, groups):
        return Cut(slots=shares)
    for kind in _kinds(groups):
        alike = [group.cores for group in groups if group.kind == kind]
        if size := _largest(list(map(len, alike)), count):
            pieces = [piece for members in alike for piece in _pieces(members, size, len(members) // size)]
            return Cut(slots=tuple(islice(pieces, count)))
    return Cut(slots=shares, unlike=_in_words(shares, groups))


def _pieces(cores: Sequence[int], size: int, count: int) -> tuple[Slot, ...]:
    """Up to `count` whole pieces, each in the order of its numbers."""
    places = range(0, len(cores) - size + 1, size)
    return tuple(tuple(sorted(cores[place : place + size])) for place in islice(places, count))


def _are_along(slots: Sequence[Slot], groups: Sequence[CoreGroup]) -> bool:
    """Whether each slot lies in one group or consists of whole ones, and all have as many cores of each type."""
    return len({frozenset(_types(slot, groups).items()) for slot in slots}) <= 1 and all(_is_along(s, groups) for s in slots)


def _is_along(slot: Slot, groups: Sequence[CoreGroup]) -> bool:
    touched = [group.cores for group in groups if not set(slot).isdisjoint(group.cores)]
    return len(touched) == 1 or sum(map(len, touched)) == len(slot)


def _largest(sizes: Sequence[int], count: int) -> int:
    """The largest size of which `count` pieces fit into groups of these sizes; 0 if there are too few cores."""
    return next((size for size in range(max(sizes), 0, -1) if sum(one // size for one in sizes) >= count), 0)


def _types(slot: Slot, groups: Sequence[CoreGroup]) -> Counter[int]:
    """How many cores of each type."""
    return sum((Counter({group.kind: len({*slot}.intersection(group.cores))}) for group in groups), Counter())


def _kinds(groups: Sequence[CoreGroup]) -> list[int]:
    return sorted({group.kind for group in groups})


def _in_words(slots: Sequence[Slot], groups: Sequence[CoreGroup]) -> str:
    """Slots of one type could be cut along the topology, so these are of several."""
    first = _types(slots[0], groups)
    others = [str(number) for number, slot in enumerate(slots) if _types(slot, groups) != first]
    return f"CPU slots are unlike devices: cores of other types than slot 0 has are in slot {', '.join(others)}"
