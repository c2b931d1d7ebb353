"""Order launches: rounds of all cells, shuffled by a recorded seed, interleaved within a block.

Two cells measured one after the other on a warming device differ; interleaved over rounds they don't. A block is all cells on
the same devices, and all cells on sets that share a device with them.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from torchmatrix.matrix.method import ADAPTIVE_MAXIMUM, ADAPTIVE_MINIMUM, CONFIRMING, Method
from torchmatrix.planning.plan import Cell


def blocks(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Group the cells whose device sets overlap, directly or by way of others; a scale factor is made of their ratios."""
    by_label: dict[str, list[Cell]] = {}
    for cell in cells:
        by_label.setdefault(cell.gpus.label, []).append(cell)
    groups: list[tuple[set[tuple[str | None, int]], list[Cell]]] = []
    for members in by_label.values():
        gpus = members[0].gpus
        used = {(gpus.vendor, index) for index in gpus.indices}
        touched = [group for group in groups if group[0] & used]
        merged = (used.union(*(devices for devices, _ in touched)), [cell for _, group in touched for cell in group] + members)
        groups = [group for group in groups if group not in touched] + [merged]
    return [members for _, members in groups]


def interleave(cells: Iterable[Cell], launches: int, seed: int) -> Iterator[tuple[Cell, int]]:
    """Yield (cell, round) in the order to launch: block by block, rounds of all cells of the block, shuffled by `seed`."""
    shuffle = random.Random(seed).shuffle
    for block in blocks(cells):
        for number in range(1, launches + 1):
            order = list(block)
            shuffle(order)
            yield from ((cell, number) for cell in order)


def unordered(cells: Sequence[Cell], launches: int) -> list[tuple[Cell, int]]:
    """Return the launches of `interleave`, round by round: much faster, for callers who only count."""
    return [(cell, number) for number in range(1, launches + 1) for cell in cells]


def adaptive(
    cells: Iterable[Cell], method: Method, seed: int, rates: Callable[[Cell], Sequence[float]], is_over: Callable[[], bool]
) -> Iterator[tuple[Cell, int]]:
    """Yield rounds as `interleave` does, then more rounds of compared cells until the interval of each is narrow enough.

    A cell whose interval is wider than `method.until` takes the cells of its model and mode in its block along: a baseline gets
    as many rounds, at the same times, so that a drift of the machine falls out of the ratio. Once narrow, CONFIRMING rounds
    follow that had no part in the decision. `rates`: the throughputs of a cell's launches so far, read anew in each round.
    `is_over`: is the budget spent? A round that was begun is finished.
    """
    assert method.until is not None
    members = list(cells)
    yield from interleave(members, method.launches, seed)
    shuffle = random.Random(seed + 1).shuffle
    narrow: set[str] = set()
    for number in range(method.launches + 1, ADAPTIVE_MAXIMUM + 1):
        for group in compared(members):
            running = [cell for cell in group if rates(cell)]
            narrow |= _narrow_cells({cell.id: rates(cell) for cell in running}, method)
            if all(cell.id in narrow for cell in running):
                continue
            if is_over():
                return
            shuffle(running)
            yield from ((cell, number) for cell in running)


def next_round(
    group: Sequence[Cell], method: Method, seed: int, rates: Mapping[str, Sequence[float]], is_done: Callable[[Cell, int], bool]
) -> list[tuple[Cell, int]]:
    """Return the launches that `adaptive` makes next of compared cells after their first rounds; empty if there are enough.

    `rates`: by cell id. `is_done`: was this round of the cell launched? A round that was begun is finished.
    """
    running = [cell for cell in group if rates[cell.id]]
    for number in range(method.launches + 1, ADAPTIVE_MAXIMUM + 1):
        left = [cell for cell in running if not is_done(cell, number)]
        if not left:
            continue
        if len(left) == len(running) == len(_narrow_cells({cell.id: rates[cell.id] for cell in running}, method)):
            return []
        random.Random(seed + number).shuffle(left)
        return [(cell, number) for cell in left]
    return []


def _narrow_cells(rates: Mapping[str, Sequence[float]], method: Method) -> set[str]:
    """Return the compared cells whose interval was narrow enough CONFIRMING launches ago; the scatter is estimated jointly."""
    from torchmatrix.analysis.intervals import learned_of, relative_half_width  # with numpy and scipy, which plan doesn't need

    assert method.until is not None
    decided = {cell: values[:-CONFIRMING] for cell, values in rates.items() if len(values) >= ADAPTIVE_MINIMUM + CONFIRMING}
    prior = learned_of(decided.values())
    return {cell for cell, values in decided.items() if relative_half_width(values, method.statistic, prior) <= method.until}


def compared(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return for each block the cells of one model and mode, among which stacks, settings and device counts are compared."""
    compared_groups: list[list[Cell]] = []
    for block in blocks(cells):
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in block:
            groups.setdefault((cell.workload.model, cell.workload.mode), []).append(cell)
        compared_groups += groups.values()
    return compared_groups
