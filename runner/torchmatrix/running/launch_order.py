"""In which order cells are launched, and how often: rounds, shuffled by a recorded seed, interleaved within a block.

Two cells measured one after the other on a warming device differ; interleaved over rounds they don't. A block is all cells on
the same devices, and those on sets that share a device with them.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchmatrix.matrix.method import ADAPTIVE_MAXIMUM, ADAPTIVE_MINIMUM, CONFIRMING, Method
from torchmatrix.planning.plan import Cell, GpuSet

# Which cells may be measured at the same time: those on devices that share nothing. Pure: knows no engine, process or clock.
#
# Nothing here shuffles, and nothing leaves its order: what is compared with one another shares devices, so it stays in one
# lane, at comparable times.

Launches = list[tuple[Cell, int]]
"""(cell, round), in order."""
Uses = Callable[[GpuSet], set[tuple[str | None, int]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """Cells of which no two may be measured at once; those of another lane may be. `devices`: all of theirs, such as gpu0+1."""

    devices: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """`together`: at least two lanes that may be measured at once, or none. `alone`: those after them, one by one.

    `why_alone`: why there are lanes that are measured alone; empty if there are none.
    """

    together: tuple[Lane, ...]
    alone: tuple[Lane, ...]
    why_alone: str


def blocks(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells whose device sets overlap: their ratios are what a scale factor is made of."""
    return _joined(cells, lambda gpus: {(gpus.vendor, index) for index in gpus.indices})


def allocate(cells: Iterable[Cell]) -> Allocation:
    """Each cell in one lane, in the order of `cells`.

    Slices and partitions of one GPU are never measured at once, since they share its power and its clock; nor is anything on
    the CPU beside GPUs, whose launches need the CPU, too. CPU slots on cores of their own may be, where there are no two lanes
    of GPUs.
    """
    numbers: dict[str, int] = {}

    def boards(gpus: GpuSet) -> set[tuple[str | None, int]]:
        cores = [core for slot in gpus.cpus for core in slot.split(",")]
        names = [gpu.slice_of or gpu.partition_of or gpu.uuid for gpu in gpus.gpus] or cores or [str(gpus.vendor)]
        return {(gpus.vendor, numbers.setdefault(name, len(numbers))) for name in names}

    lanes = [Lane(devices=_label(members), cells=tuple(members)) for members in _joined(cells, boards)]
    kinds = [[lane for lane in lanes if _is_on_gpus(lane) == on_gpus] for on_gpus in (True, False)]
    together = tuple(next((kind for kind in kinds if len(kind) > 1), ()))
    alone = tuple(lane for lane in lanes if lane not in together)
    return Allocation(together=together, alone=alone, why_alone="; ".join(_why_alone(alone)))


def split_by_lane(launches: Iterable[tuple[Cell, int]], lanes: Sequence[Lane]) -> list[Launches]:
    """The launches of each lane, in the order in which they stand in `launches`; those of other lanes are left out."""
    place = {cell.id: number for number, lane in enumerate(lanes) for cell in lane.cells}
    found: list[Launches] = [[] for _ in lanes]
    for cell, number in launches:
        if cell.id in place:
            found[place[cell.id]].append((cell, number))
    return found


def _is_on_gpus(lane: Lane) -> bool:
    return bool(lane.cells[0].gpus.gpus)


def _why_alone(alone: Sequence[Lane]) -> Iterable[str]:
    on_gpus, on_cpu = ([lane for lane in alone if _is_on_gpus(lane) == kind] for kind in (True, False))
    if on_gpus:
        yield f"no two cells on {on_gpus[0].devices} have GPUs of their own"
    if len(on_cpu) == 1:
        yield f"no two cells on {on_cpu[0].devices} have cores of their own"
    elif on_cpu:
        yield "cells on the CPU would disturb the launches on GPUs, which need it, too"


def _label(cells: Iterable[Cell]) -> str:
    members = list(cells)
    indices = sorted({index for cell in members for index in cell.gpus.indices})
    return members[0].gpus.label.rstrip("0123456789+") + "+".join(map(str, indices))


def _joined(cells: Iterable[Cell], uses: Uses) -> list[list[Cell]]:
    """Cells that use the same, also by way of others."""
    by_label: dict[str, list[Cell]] = {}
    for cell in cells:
        by_label.setdefault(cell.gpus.label, []).append(cell)
    found: list[tuple[set[tuple[str | None, int]], list[Cell]]] = []
    for members in by_label.values():
        used = uses(members[0].gpus)
        touched = [one for one in found if one[0] & used]
        merged = (used.union(*(its for its, _ in touched)), [c for _, group in touched for c in group] + members)
        found = [one for one in found if one not in touched] + [merged]
    return [members for _, members in found]


def interleave(cells: Iterable[Cell], launches: int, seed: int) -> Iterator[tuple[Cell, int]]:
    """(cell, round) in the order to launch: blocks; in each, rounds of all its cells, shuffled by `seed`."""
    shuffle = random.Random(seed).shuffle
    for block in blocks(cells):
        for number in range(1, launches + 1):
            order = list(block)
            shuffle(order)
            yield from ((cell, number) for cell in order)


def unordered(cells: Sequence[Cell], launches: int) -> list[tuple[Cell, int]]:
    """What `interleave` gives, round by round: much faster, for those who only count."""
    return [(cell, number) for number in range(1, launches + 1) for cell in cells]


def adaptive(
    cells: Iterable[Cell], method: Method, seed: int, rates: Callable[[Cell], Sequence[float]], is_over: Callable[[], bool]
) -> Iterator[tuple[Cell, int]]:
    """As `interleave` at first; then more rounds of all cells that are compared, until the interval of each is narrow enough.

    A cell whose interval is wider than `method.until` takes those of its model and mode in its block along: a baseline gets as
    many rounds, at the same times, so that a drift of the machine falls out of the ratio. Once narrow, CONFIRMING rounds follow
    that had no part in the decision. `rates`: the throughputs of a cell's launches so far, asked anew in each round. `is_over`:
    is the budget spent? A round that was begun is finished.
    """
    assert method.until is not None
    every = list(cells)
    yield from interleave(every, method.launches, seed)
    shuffle = random.Random(seed + 1).shuffle
    narrow: set[str] = set()
    for number in range(method.launches + 1, ADAPTIVE_MAXIMUM + 1):
        for group in compared(every):
            running = [cell for cell in group if rates(cell)]
            narrow |= _were_narrow({cell.id: rates(cell) for cell in running}, method)
            if all(cell.id in narrow for cell in running):
                continue
            if is_over():
                return
            shuffle(running)
            yield from ((cell, number) for cell in running)


def next_round(
    group: Sequence[Cell], method: Method, seed: int, rates: Mapping[str, Sequence[float]], is_done: Callable[[Cell, int], bool]
) -> list[tuple[Cell, int]]:
    """What `adaptive` launches next of cells that are compared, once their first rounds are over; empty if it is enough.

    `rates`: by cell id. `is_done`: was this round of the cell launched? A round that was begun is finished.
    """
    running = [cell for cell in group if rates[cell.id]]
    for number in range(method.launches + 1, ADAPTIVE_MAXIMUM + 1):
        left = [cell for cell in running if not is_done(cell, number)]
        if not left:
            continue
        if len(left) == len(running) == len(_were_narrow({cell.id: rates[cell.id] for cell in running}, method)):
            return []
        random.Random(seed + number).shuffle(left)
        return [(cell, number) for cell in left]
    return []


def _were_narrow(rates: Mapping[str, Sequence[float]], method: Method) -> set[str]:
    """Whose interval was narrow enough CONFIRMING launches ago, of cells that are compared: together they tell the scatter."""
    from torchmatrix.analysis.intervals import learned_of, relative_half_width  # with numpy and scipy, which plan doesn't need

    assert method.until is not None
    decided = {cell: own[:-CONFIRMING] for cell, own in rates.items()}
    enough = {cell: own for cell, own in decided.items() if len(own) >= ADAPTIVE_MINIMUM}
    prior = learned_of(enough.values())
    return {cell for cell, own in enough.items() if relative_half_width(own, method.statistic, prior) <= method.until}


def compared(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Of each block the cells of one model and mode: stacks, settings and numbers of devices are compared among them."""
    found: list[list[Cell]] = []
    for block in blocks(cells):
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in block:
            groups.setdefault((cell.workload.model, cell.workload.mode), []).append(cell)
        found += groups.values()
    return found
