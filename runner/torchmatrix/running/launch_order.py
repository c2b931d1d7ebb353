"""In which order cells are launched, and how often: rounds, shuffled by a recorded seed, interleaved within a block.

Two cells measured one after the other on a warming device differ; interleaved over rounds they don't. A block is all cells on
the same devices, and those on sets that share a device with them.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from torchmatrix.matrix.method import ADAPTIVE_MAXIMUM, Method
from torchmatrix.planning.plan import Cell


def interleave(cells: Iterable[Cell], launches: int, seed: int) -> Iterator[tuple[Cell, int]]:
    """(cell, round) in the order to launch: blocks; in each, rounds of all its cells, shuffled by `seed`."""
    shuffle = random.Random(seed).shuffle
    for block in _blocks(cells):
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
    """As `interleave` at first; then more rounds of those cells whose interval is still wider than `method.until`.

    `rates`: the throughputs of a cell's launches so far, asked anew in each round. `is_over`: is the budget spent?
    """
    from torchmatrix.analysis.intervals import relative_half_width  # with numpy and scipy, which plan and build don't need

    assert method.until is not None
    every = list(cells)
    yield from interleave(every, method.launches, seed)
    shuffle = random.Random(seed + 1).shuffle
    for number in range(method.launches + 1, ADAPTIVE_MAXIMUM + 1):
        for block in _blocks(every):
            order = [
                cell for cell in block if (known := rates(cell)) and relative_half_width(known, method.statistic) > method.until
            ]
            shuffle(order)
            for cell in order:
                if is_over():
                    return
                yield cell, number


def _blocks(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells whose device sets overlap: their ratios are what a scale factor is made of."""
    by_label: dict[str, list[Cell]] = {}
    for cell in cells:
        by_label.setdefault(cell.gpus.label, []).append(cell)
    blocks: list[tuple[set[tuple[str | None, int]], list[Cell]]] = []
    for members in by_label.values():
        devices = {(members[0].gpus.vendor, index) for index in members[0].gpus.indices}
        touched = [block for block in blocks if block[0] & devices]
        merged = (devices.union(*(used for used, _ in touched)), [c for _, found in touched for c in found] + members)
        blocks = [block for block in blocks if block not in touched] + [merged]
    return [members for _, members in blocks]
