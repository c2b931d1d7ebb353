"""What the verbs print about a plan: a summary, what is skipped and why, and suggestions if a selection matches nothing."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from torchmatrix.cli.console import Volume, say
from torchmatrix.ground.errors import NothingSelected
from torchmatrix.ground.formatting import count, printable

if TYPE_CHECKING:
    from torchmatrix.facts.store import RunFolder
    from torchmatrix.planning.plan import Cell
    from torchmatrix.running.session import Session


MUCH_LONGER = 1.5
"""From this ratio on the longest time is told beside the usual one."""


def in_one_line(s: "Session", launches: Sequence[tuple["Cell", int]], seconds: float) -> str:
    """What runs, how long it may take, and how much disk space it needs."""
    from torchmatrix.engines import recipes
    from torchmatrix.planning import plan

    stacks = recipes.stacks_of(s.plan.cells)
    to_build = [stack for stack in stacks if stack.source != "interpreter" and stack.name not in s.supplies.stored]
    what = f"{count(len(s.plan.cells), 'cell')} on {count(len(stacks), 'stack')}"
    more = " or more" if s.matrix.method.until else ""
    skipped = f"; {count(len(s.plan.skips), 'cell')} skipped" if s.plan.skips else ""
    if not s.plan.cells:
        return f"nothing to run{skipped}"
    time = f"{count(len(launches), 'launch')}{more}, about {plan.duration_in_words(seconds)}{more}"
    return f"{what}: {time}; {plan.disk_in_words(to_build)}{skipped}"


def tell_longest(s: "Session", launches: "list[tuple[Cell, int]]", seconds: float, volume: Volume = Volume.NORMAL) -> None:
    """Print how long it may take where machines get warm slowly, if that is much longer than the `seconds` estimated."""
    from torchmatrix.planning import plan
    from torchmatrix.running import time_needed

    longest = time_needed.longest_seconds(s, launches) if launches and s.matrix.method.warms_up else 0.0
    if longest > MUCH_LONGER * seconds:
        say(f"up to {plan.duration_in_words(longest)} if step times drift: each launch then warms up longer", volume)


def tell_estimate(folder: "RunFolder", volume: Volume = Volume.NORMAL) -> None:
    """Print how good the estimate of a complete run was."""
    from torchmatrix.planning import plan

    record = folder.read_record()
    if record.complete and record.estimated_seconds > 0:
        say(f"run {folder.id} {plan.held_against(record.estimated_seconds, record.seconds)}", volume)


def tell_lanes(s: "Session", launches: "list[tuple[Cell, int]]", known: dict[str, float]) -> None:
    """With --parallel: print what may run at once, or why nothing can, and how long it takes without."""
    from torchmatrix.planning import plan
    from torchmatrix.running import allocation, time_needed

    if not s.parallel:
        return
    found = allocation.allocate(s.plan.cells)
    if not found.together:
        say(f"nothing can run at once: {found.why_alone}")
        return
    names = ", ".join(lane.devices for lane in found.together)
    test = plan.duration_in_words(time_needed.preparing_seconds(s, [], known))
    apart = plan.duration_in_words(time_needed.measuring_seconds(launches, known, ()))
    say(f"{names}: at once, if a test of about {test} shows that they don't disturb each other; else one by one: {apart}")


def batches_in_words(s: "Session") -> Iterator[str]:
    """One line for each workload whose batch comes from a table, with the key that gave it."""
    chosen = dict.fromkeys((cell.workload.id, cell.workload.batch, cell.workload.batch_key) for cell in s.plan.cells)
    for workload, batch, key in chosen:
        if key:
            yield f'{workload}: batch {batch}, by the key "{printable(key)}"'


def skips_in_words(s: "Session") -> Iterator[str]:
    """One line for each stack and reason, with the number of cells."""
    counted: dict[tuple[str, str], int] = {}
    for skip in s.plan.skips:
        key = (skip.cell.stack.name, skip.why.reason)
        counted[key] = counted.get(key, 0) + 1
    for (stack, reason), number in counted.items():
        yield f"{stack} ({count(number, 'cell')}): {reason}"


def refuse_nothing(s: "Session", globs: Iterable[str] = (), where: Iterable[str] = ()) -> None:
    """Raise NothingSelected if there is no cell to run; the message suggests the nearest ids."""
    if s.plan.cells:
        return
    if s.plan.skips:
        first = s.plan.skips[0]
        number = len(s.plan.skips)
        which = f"all {number} selected cells are" if number > 1 else "the selected cell is"
        raise NothingSelected(
            f"{which} skipped here{'; the first' if number > 1 else ''}: {first.cell.id}: {first.why.reason}",
            hint=f"{first.why.fix}; torchmatrix plan --skipped lists {'all' if number > 1 else 'it'}",
        )
    found = misses(s, globs, where)
    near = list(dict.fromkeys(one for ones in found.values() for one in ones))
    message = "the selection matches no cell"
    if near:
        message = "\n  ".join((f"{message}; the nearest:", *near))
    hint = "torchmatrix plan lists the ids of all cells"
    raise NothingSelected(message, hint=hint if near else f"each condition matches cells, but no cell matches all; {hint}")


def misses(s: "Session", globs: Iterable[str], where: Iterable[str]) -> dict[str, list[str]]:
    """Each glob and condition that matches no cell of the matrix, run or skipped, with the nearest matches."""
    from torchmatrix.planning import selection
    from torchmatrix.planning.plan import make_plan

    everything = make_plan(s.matrix, s.host, s.supplies)
    return selection.misses([*everything.cells, *(skip.cell for skip in everything.skips)], globs, where)


def note_misses(s: "Session", globs: Sequence[str], where: Sequence[str], volume: Volume) -> None:
    """Print a note for each glob that matches nothing while others match: it is probably mistyped."""
    if len(globs) > 1:
        for asked, near in misses(s, globs, where).items():
            say(f"note: {asked} matches no cell; the nearest: {near[0]}", volume)
