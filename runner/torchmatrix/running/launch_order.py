"""In which order cells are launched, and how often: rounds, shuffled by a recorded seed, interleaved within a block.

Two cells measured one after the other on a warming device differ; interleaved over rounds they don't. A block is all cells on
the same devices, and those on sets that share a device with them.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from torchmatrix.matrix.method import ADAPTIVE_MAXIMUM, ADAPTIVE_MINIMUM, CONFIRMING, Method
from torchmatrix.planning.plan import Cell
from torchmatrix.running import allocation


def interleave(cells: Iterable[Cell], launches: int, seed: int) -> Iterator[tuple[Cell, int]]:
    """(cell, round) in the order to launch: blocks; in each, rounds of all its cells, shuffled by `seed`."""
    shuffle = random.Random(seed).shuffle
    for block in allocation.blocks(cells):
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
    for block in allocation.blocks(cells):
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in block:
            groups.setdefault((cell.workload.model, cell.workload.mode), []).append(cell)
        found += groups.values()
    return found
