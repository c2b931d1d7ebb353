"""How long a session's launches, and what comes before them, may take on this machine."""

from collections.abc import Sequence
from statistics import fmean

from torchmatrix.engines import recipes
from torchmatrix.facts.run_record import ParallelTest
from torchmatrix.planning import plan
from torchmatrix.planning.plan import Cell
from torchmatrix.running import allocation, heating
from torchmatrix.running.allocation import Lane
from torchmatrix.running.session import Session


def known_seconds(s: Session) -> dict[str, float]:
    """How long a launch of each cell took on this machine before, on average, by id: some drift, and take far longer."""
    return {cell: fmean(taken) for cell, taken in _taken(s).items()}


def longest_seconds(s: Session, launches: list[tuple[Cell, int]]) -> float:
    """One after the other, if all take as long as the longest of their cell before; where none is known, if they warm up until
    the cap and are timed once more.
    """
    taken = _taken(s)
    longest = {cell.id: max(taken.get(cell.id, ()), default=0.0) for cell, _ in launches}
    return sum(longest[cell.id] or _drifting_seconds(cell, number) for cell, number in launches)


def _drifting_seconds(cell: Cell, number: int) -> float:
    factors = cell.workload.factors
    again = float(factors["warmup_cap_seconds"] + factors["windows"] * factors["seconds"])
    return plan.launch_seconds(cell, number, {}) + again


def _taken(s: Session) -> dict[str, list[float]]:
    return s.results.seconds_by_cell(s.results.home(s.host.name, s.host.machine), s.matrix.method.name)


def lanes_of(s: Session, test: ParallelTest | None = None) -> tuple[Lane, ...]:
    """The lanes that run at once, as far as is known; `test`: what was found already, if that is so."""
    if not s.parallel or (test and not test.shown):
        return ()
    return allocation.allocate(s.plan.cells).together


def measuring_seconds(launches: list[tuple[Cell, int]], known: dict[str, float], lanes: Sequence[Lane]) -> float:
    """For the launches: the longest of the lanes, and the others one after the other."""
    if not lanes:
        return plan.total_seconds(launches, [], known)
    own = allocation.split(launches, lanes)
    at_once = {cell.id for lane in lanes for cell in lane.cells}
    others = [(cell, number) for cell, number in launches if cell.id not in at_once]
    longest = max(plan.total_seconds(lane, [], known) for lane in own)
    return longest + plan.total_seconds(others, [], known)


def preparing_seconds(
    s: Session, launches: list[tuple[Cell, int]], known: dict[str, float], test: ParallelTest | None = None
) -> float:
    """For what comes before the launches: stacks that aren't built, heating, and the test of the lanes if there is none yet."""
    stacks = recipes.stacks_of(cell for cell, _ in launches)
    builds = [
        s.engine_for(stack).capabilities.build_seconds
        for stack in stacks
        if not recipes.ready_recipe(stack, s.engine_for(stack), s.locks.get(stack.name))
    ]
    lanes, before = (
        lanes_of(s, test),
        sum(builds) + (_heating_seconds(launches, known) if s.matrix.method.warm_seconds else 0.0),
    )
    if not lanes or test:
        return before
    from torchmatrix.running import parallel_test  # with numpy and scipy, which plan and build don't need

    return before + parallel_test.least_seconds(lanes, known)


def _heating_seconds(launches: list[tuple[Cell, int]], known: dict[str, float]) -> float:
    """At most as long as a launch of the same, which has windows too."""
    cells = [cell for cell, _ in launches]
    return plan.launch_seconds(heating.chosen_cell(cells), 2, known) if cells else 0.0


def estimate_seconds(
    s: Session, launches: list[tuple[Cell, int]], known: dict[str, float], test: ParallelTest | None = None
) -> float:
    """For the launches, and for what comes before them."""
    return preparing_seconds(s, launches, known, test) + measuring_seconds(launches, known, lanes_of(s, test))
