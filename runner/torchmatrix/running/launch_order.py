"""Order launches: rounds of all cells, shuffled by a recorded seed, interleaved within a block.

Two cells measured one after the other on a warming device differ; interleaved over rounds they don't. A block is all cells on
the same devices, and all cells on sets that share a device with them.
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from torchmatrix.matrix.method import ADAPTIVE_MINIMUM, CONFIRMING, Method
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


def in_rounds(launches: Iterable[tuple[Cell, int]]) -> Iterator[list[tuple[Cell, int]]]:
    """Yield the launches round by round, in their order."""
    for _, of_round in groupby(launches, key=lambda launch: launch[1]):
        yield list(of_round)


def next_round(
    cells: Sequence[Cell],
    method: Method,
    seed: int,
    wanted: Callable[[int], Collection[str]],
    is_done: Callable[[Cell, int], bool],
) -> list[tuple[Cell, int]]:
    """Return the launches of the next round after the first `method.launches` ones; empty if no more is needed or allowed.

    `wanted`: the ids of the cells that have a part in a round, by the launches of the rounds before it. `is_done`: was this
    round of the cell launched? A round that was begun is finished.
    """
    further = range(method.launches + 1, method.launches + method.further + 1)
    begun = [number for number in further if any(is_done(cell, number) for cell in cells)]
    newest = begun[-1] if begun else method.launches
    for number in (number for number in further if newest <= number <= newest + 1):
        ids = wanted(number)
        left = [cell for cell in cells if cell.id in ids and not is_done(cell, number)]
        if left:
            random.Random(seed + number).shuffle(left)
            return [(cell, number) for cell in left]
    return []


def too_wide(cells: Iterable[Cell], method: Method, rates: Mapping[str, Sequence[float]]) -> set[str]:
    """Return the ids of the measured cells that are compared with one whose interval is wider than `method.until`.

    Those are the cells of its model and mode in its block: a baseline gets as many rounds, at the same times, so that a drift
    of the machine falls out of the ratio. `rates`: the throughputs by cell id.
    """
    running = [[cell.id for cell in group if rates[cell.id]] for group in compared(cells)]
    return {id_ for ids in running if len(_narrow_cells({i: rates[i] for i in ids}, method)) < len(ids) for id_ in ids}


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
