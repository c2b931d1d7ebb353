"""Rounds of an adaptive method on cells whose launches take no time: the real schedule, with invented throughputs."""

from collections.abc import Callable, Collection, Mapping, Sequence

from torchmatrix.matrix.method import Method
from torchmatrix.planning.plan import Cell
from torchmatrix.running import launch_order

Launches = dict[str, list[tuple[int, float]]]
"""Round and throughput of each launch, by cell id."""


def simulated(
    cells: Sequence[Cell],
    method: Method,
    rate: Callable[[Cell, int], float],
    rule: Callable[[Mapping[str, Sequence[tuple[int, float]]]], Collection[str]] | None = None,
) -> Launches:
    """Return what the launches measured. `rate`: of a cell in a round; `rule`: who goes on, else as --until says."""
    done: Launches = {cell.id: [] for cell in cells}

    def launch(launches: Sequence[tuple[Cell, int]]) -> None:
        for cell, number in launches:
            done[cell.id].append((number, rate(cell, number)))

    def wanted(number: int) -> Collection[str]:
        before = {name: [each for each in launches if each[0] < number] for name, launches in done.items()}
        if rule:
            return rule(before)
        return launch_order.too_wide(cells, method, {name: [one for _, one in each] for name, each in before.items()})

    def is_done(cell: Cell, number: int) -> bool:
        return any(number == each for each, _ in done[cell.id])

    launch(list(launch_order.interleave(cells, method.launches, 0)))
    while launches := launch_order.next_round(cells, method, 0, wanted, is_done):
        launch(launches)
    return done
