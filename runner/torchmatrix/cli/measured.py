"""Carry out a run as a user sees it: the plan, progress, the report and a small table, even if the run is stopped."""

import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmatrix.cli import options
from torchmatrix.cli.console import preamble, say, say_unreadable, tell, width
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import ExitCode, NothingSelected, ToolError
from torchmatrix.core.formatting import count, printable

# The plan: a summary, what is skipped and why, and suggestions if a selection matches nothing.

if TYPE_CHECKING:
    from torchmatrix.analysis.compare import Comparison
    from torchmatrix.facts.store import RunFolder
    from torchmatrix.planning.plan import Cell
    from torchmatrix.reporting.overview import Answers
    from torchmatrix.reporting.terminal import CellSummary
    from torchmatrix.running.scheduler import Part, Scheduler
    from torchmatrix.running.session import Session


MUCH_LONGER = 1.5
"""From this ratio on the longest time is printed beside the usual one."""


def plan_in_one_line(s: "Session", launches: Sequence[tuple["Cell", int]], seconds: float) -> str:
    """Describe what runs, how long it may take, and how much disk space it needs."""
    from torchmatrix.engines import recipes
    from torchmatrix.planning import plan

    stacks = recipes.stacks_of(s.plan.cells)
    to_build = [stack for stack in stacks if stack.source != "interpreter" and stack.name not in s.prerequisites.stored]
    what = f"{count(len(s.plan.cells), 'cell')} on {count(len(stacks), 'stack')}"
    method = s.matrix.method
    more = " or more" if method.further else ""
    until = f", until {f'each interval is ± {100 * method.until:g} %' if method.until else 'decided'}" if more else ""
    skipped = f"; {count(len(s.plan.skips), 'cell')} skipped" if s.plan.skips else ""
    if not s.plan.cells:
        return f"nothing to run{skipped}"
    time = f"{count(len(launches), 'launch')}{more}{until}, about {plan.duration_in_words(seconds)}{more}"
    return f"{what}: {time}; {plan.disk_in_words(to_build)}{skipped}"


def tell_longest(s: "Session", launches: "list[tuple[Cell, int]]", seconds: float, volume: Volume = Volume.NORMAL) -> None:
    """Print how long launches may take where machines warm up slowly, if that is much longer than the estimate `seconds`."""
    from torchmatrix.planning import plan
    from torchmatrix.running import run

    longest = run.longest_seconds(s, launches) if launches and s.matrix.method.warms_up else 0.0
    if longest > MUCH_LONGER * seconds:
        say(f"up to {plan.duration_in_words(longest)} if step times drift: each launch then warms up longer", volume)


def tell_estimate(folder: "RunFolder", volume: Volume = Volume.NORMAL) -> None:
    """Print how good the time estimate of a complete run was."""
    from torchmatrix.planning import plan

    record = folder.read_record()
    if record.complete and record.estimated_seconds > 0:
        say(f"run {folder.id} {plan.held_against(record.estimated_seconds, record.seconds)}", volume)


def batches_in_words(s: "Session") -> Iterator[str]:
    """Yield a line for each workload whose batch comes from a table, with the key that gave it."""
    chosen = dict.fromkeys((cell.workload.id, cell.workload.batch, cell.workload.batch_key) for cell in s.plan.cells)
    for workload, batch, key in chosen:
        if key:
            yield f'{workload}: batch {batch}, by the key "{printable(key)}"'


def skips_in_words(s: "Session") -> Iterator[str]:
    """Yield a line for each stack and reason, with the number of cells."""
    counts = Counter((skip.cell.stack.name, skip.why.reason) for skip in s.plan.skips)
    for (stack, reason), number in counts.items():
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
    if not [*globs, *where]:
        usual = 'a workload is for GPUs unless it says device = "cpu", which needs a CPU stack, or your own Python and no GPU'
        empty = [note for note in s.matrix.notes if "is empty" in note or "stacks are none" in note]
        hint = "; ".join(empty[:2]) or usual
        raise NothingSelected("no workload of the matrix has devices here, and a stack that runs on them", hint=hint)
    nearest_ids = misses(s, globs, where)
    near = list(dict.fromkeys(cell_id for ids in nearest_ids.values() for cell_id in ids))
    message = "the selection matches no cell"
    if near:
        message = "\n  ".join((f"{message}; the nearest:", *near))
    hint = "torchmatrix plan lists the ids of all cells"
    raise NothingSelected(message, hint=hint if near else f"each condition matches cells, but no cell matches all; {hint}")


def misses(s: "Session", globs: Iterable[str], where: Iterable[str]) -> dict[str, list[str]]:
    """Return each glob and condition that matches no cell of the matrix, run or skipped, with the nearest matches."""
    from torchmatrix.planning import selection
    from torchmatrix.planning.plan import make_plan

    everything = make_plan(s.matrix, s.host, s.prerequisites)
    return selection.misses([*everything.cells, *(skip.cell for skip in everything.skips)], globs, where)


def note_misses(s: "Session", globs: Sequence[str], where: Sequence[str], volume: Volume) -> None:
    """Print a note for each glob that matches nothing while others match: it is probably mistyped."""
    if len(globs) > 1:
        for word, near in misses(s, globs, where).items():
            say(f"note: {word} matches no cell; the nearest: {near[0]}", volume)


MOST_ROWS = 20
"""The most rows of the table; --verbose shows all."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The result of a run. `outcomes`: the number of launches by outcome; `stopped_by`: what ended it early, or None.

    `ab`: the two stacks of an A/B run; `comparison`: that of the two, None until both were launched. `answers`: what its
    report begins with.
    """

    folder: "RunFolder"
    report: Path
    outcomes: Mapping[str, int]
    cells: "list[CellSummary]"
    stopped_by: BaseException | None
    ab: tuple[str, str] | None = None
    comparison: "Comparison | None" = None
    answers: "Answers | None" = None

    @property
    def exit_code(self) -> ExitCode:
        if self.stopped_by is None:
            return options.exit_code_of_launches(self.outcomes)
        return self.stopped_by.exit_code if isinstance(self.stopped_by, ToolError) else ExitCode.INTERRUPTED

    def as_record(self) -> dict[str, Any]:
        """Return the record for `run --json`."""
        return {
            "run": self.folder.id,
            "folder": str(self.folder.path),
            "report": str(self.report),
            "exit_code": int(self.exit_code),
            "outcomes": dict(self.outcomes),
            "cells": [cell.as_record() for cell in self.cells],
            **(self.answers.as_record() if self.answers else {}),
            **({"ab": list(self.ab), "comparison": self.comparison and self.comparison.as_record()} if self.ab else {}),
        }

    def in_words(self) -> str:
        """Return the path of the report; above it the comparison of two stacks, if there is one."""
        from torchmatrix.reporting import terminal

        if self.ab is None or self.comparison is None:
            return str(self.report)
        return (
            f"A: {self.ab[0]}\nB: {self.ab[1]}\n{terminal.comparison_in_words(self.comparison, width=width())}\n\n{self.report}"
        )


def measure(
    scheduler: "Scheduler",
    output: Path,
    *,
    volume: Volume = Volume.NORMAL,
    globs: Sequence[str] = (),
    where: Sequence[str] = (),
    detach: bool = False,
) -> list[Measured]:
    """Run what is planned, and write a report of each of its runs whatever happens; none with `detach`.

    An error that stops the run, or Ctrl-C, is returned, not raised, so that the report comes first. `globs` and `where`: the
    requested selection, to suggest the nearest cells if it matches nothing.
    """
    with scheduler:
        parts = _announce(scheduler, globs, where, volume)
        scheduler.submit()
        if detach:
            say(scheduler.detached, volume)
            return []
        stopped_by: BaseException | None = None
        earlier = {cell: seconds for part in parts for cell, seconds in part.earlier.items()}
        todo = [launch for part in parts for launch in part.todo]
        node_of = {cell: node for part in parts for cell, node in part.node_of.items()}
        try:
            tell(scheduler.poll(), todo, earlier, volume, max(part.before for part in parts), node_of=node_of)
        except BaseException as error:  # anything at all: it is raised again after the report is written
            stopped_by = error
            say(f"\n{scheduler.stopping}", volume)
            scheduler.cancel()
        try:
            scheduler.collect()
        except ToolError as error:
            stopped_by = stopped_by or error
        several = len(parts) > 1
        try:
            return [_write_report(part, output, stopped_by, volume, several, scheduler.is_cluster) for part in parts]
        except (ImportError, AttributeError):  # a library whose import Ctrl-C interrupted can't be imported once more
            if isinstance(stopped_by, KeyboardInterrupt):
                raise stopped_by from None
            raise


def measure_here(
    s: "Session",
    output: Path,
    *,
    new: bool = False,
    beside: bool | None = None,
    volume: Volume = Volume.NORMAL,
    globs: Sequence[str] = (),
    where: Sequence[str] = (),
) -> Measured:
    """Run what is planned on this machine, as `measure` does. `beside`: as in run.alone."""
    from torchmatrix.running.scheduler import Here

    return measure(Here(s, new=new, beside=beside), output, volume=volume, globs=globs, where=where)[0]


def _announce(scheduler: "Scheduler", globs: Sequence[str], where: Sequence[str], volume: Volume) -> "list[Part]":
    """Open the runs and print what will be done, how long it may take, and how to stop it. Raises NothingSelected."""
    parts: list[Part] = []
    sessions = scheduler.sessions()
    is_any = any(s.plan.cells for s in sessions)
    for s in sessions:
        preamble(s, volume)
        if not is_any:
            refuse_nothing(s, globs, where)
        if not scheduler.is_cluster:
            note_misses(s, globs, where, volume)
        parts.append(part := scheduler.open(s, as_typed()))
        say(plan_in_one_line(s, part.todo, part.seconds), volume)
        say(part.places, volume)
    done = sum(part.done for part in parts)
    number = count(sum(len(part.todo) for part in parts), "launch")
    say(f"run {parts[0].folder.id}: {number} to do{f' ({done} done before)' if done else ''}", volume)
    for note in (note for part in parts for note in part.notes):
        say(f"note: {note}", volume)
    say(f"{scheduler.how_to_stop}\n", volume)
    return parts


def _write_report(
    part: "Part", output: Path, stopped_by: BaseException | None, volume: Volume, several: bool, is_cluster: bool
) -> Measured:
    from torchmatrix.cli.render import brand_in
    from torchmatrix.facts.store import host_of
    from torchmatrix.reporting import report
    from torchmatrix.running import run as running

    folder, outcomes = part.folder, running.outcomes(part.folder)
    named = output.with_name(f"{output.stem}-{host_of(folder)}{output.suffix}") if several else output
    written, answers = report.write(folder, named, brand_in(part.session.matrix.text))
    cells = tell_cells(part.session, folder, outcomes, volume)
    if not is_cluster:
        tell_estimate(folder, volume)
    tell_answers(answers, volume)
    return Measured(folder=folder, report=written, outcomes=outcomes, cells=cells, stopped_by=stopped_by, answers=answers)


def compared(done: Measured, ab: tuple[str, str], volume: Volume, *, several: bool = False) -> Measured:
    """Add the comparison of two stacks, and print how to repeat it. `several`: several hosts have a run of that id."""
    from torchmatrix.analysis import compare
    from torchmatrix.facts.alike import counting
    from torchmatrix.facts.reading import sorted_out
    from torchmatrix.facts.store import host_of

    launches = counting(sorted_out(done.folder.everything())[0])
    a, b = ([launch for launch in launches if launch.stack.name == name] for name in ab)
    if not a or not b:
        return replace(done, ab=ab)
    run = f"{host_of(done.folder)}/{done.folder.id}" if several else done.folder.id
    say(f"again: torchmatrix compare {run}:{ab[0]} {run}:{ab[1]}\n", volume)
    return replace(done, ab=ab, comparison=compare.compare(a, b))


def tell_cells(s: "Session", folder: "RunFolder", outcomes: Mapping[str, int], volume: Volume) -> "list[CellSummary]":
    """Print a small table of what was measured and how the launches ended; return its rows."""
    from torchmatrix.facts.reading import sorted_out
    from torchmatrix.reporting import terminal

    launches, unreadable = sorted_out(folder.everything())
    say_unreadable(unreadable, volume)
    cells = terminal.summaries_of(launches, [cell.id for cell in s.plan.cells])
    table = terminal.summaries_in_words(cells, width(), len(cells) if volume is Volume.VERBOSE else MOST_ROWS)
    counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    say(f"\n{table}\n\nlaunches: {counts or 'none'}", volume)
    return cells


def tell_answers(answers: "Answers", volume: Volume) -> None:
    """Print the answers that the report begins with."""
    say(f"\n{answers.in_words(width())}\n", volume)


def as_typed() -> str:
    """Return the command line, for the record."""
    return shlex.join(["torchmatrix", *sys.argv[1:]])
