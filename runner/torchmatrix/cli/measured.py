"""One run as a user sees it: what will happen, the news, the report and a small table, even if the run is stopped."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmatrix.cli import exit_codes
from torchmatrix.cli.console import Volume, preamble, say, say_unreadable, tell, width
from torchmatrix.cli.planned import in_one_line, note_misses, refuse_nothing, tell_estimate, tell_longest
from torchmatrix.ground.errors import ExitCode, ToolError
from torchmatrix.ground.formatting import count

if TYPE_CHECKING:
    from torchmatrix.analysis.comparison import Comparison
    from torchmatrix.facts.store import RunFolder
    from torchmatrix.planning.plan import Cell
    from torchmatrix.reporting.cell_summaries import CellSummary
    from torchmatrix.reporting.overview import Answers
    from torchmatrix.running.launch_cell import Job
    from torchmatrix.running.session import Session

MOST_ROWS = 20
"""The most rows of the table; --verbose shows all."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The result of a run. `outcomes`: the number of launches by outcome; `stopped_by`: what ended it early, or None.

    `ab`: the two stacks that it is about, if it is an A/B; `comparison`: of them, None until both were launched.
    `answers`: what its report begins with.
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
            return exit_codes.of_launches(self.outcomes)
        return self.stopped_by.exit_code if isinstance(self.stopped_by, ToolError) else ExitCode.INTERRUPTED

    def as_record(self) -> dict[str, Any]:
        """For `run --json`."""
        return {
            "run": self.folder.id,
            "folder": str(self.folder.path),
            "report": str(self.report),
            "exit_code": int(self.exit_code),
            "outcomes": dict(self.outcomes),
            "cells": [cell.as_record() for cell in self.cells],
            **(self.answers.as_record() if self.answers else {}),
            **self._compared(),
        }

    def _compared(self) -> dict[str, Any]:
        if self.ab is None:
            return {}
        record = self.comparison.as_record() if self.comparison else None
        return {"ab": list(self.ab), "comparison": record}

    def in_words(self) -> str:
        """The path of the report; above it what two stacks differ by."""
        from torchmatrix.reporting import terminal

        if self.ab is None or self.comparison is None:
            return str(self.report)
        return f"A: {self.ab[0]}\nB: {self.ab[1]}\n{terminal.comparison_in_words(self.comparison)}\n\n{self.report}"


def measure(
    s: "Session",
    output: Path,
    *,
    new: bool = False,
    volume: Volume = Volume.NORMAL,
    globs: list[str] | None = None,
    where: list[str] | None = None,
) -> Measured:
    """Run what is planned, and write the report whatever happens.

    What stops the run, such as Ctrl-C, is returned, not raised, so that the report comes first. `globs` and `where`: the
    requested selection, to suggest the nearest cells if it matches nothing.
    """
    from torchmatrix.reporting import report
    from torchmatrix.running import run as running
    from torchmatrix.running import time_needed

    preamble(s, volume)
    refuse_nothing(s, globs or [], where or [])
    note_misses(s, globs or [], where or [], volume)
    with running.opened(s, new=new, command=as_typed()) as job:
        todo, known, test = running.todo(s, job.folder), time_needed.known_seconds(s), job.folder.read_record().parallel
        before, lanes = time_needed.preparing_seconds(s, todo, known, test), time_needed.lanes_of(s, test)
        estimated = before + time_needed.measuring_seconds(todo, known, lanes)
        _announce(s, job, todo, estimated, volume)
        stopped_by: BaseException | None = None
        try:
            tell(running.measure(s, job, todo, estimated), todo, known, volume, before, lanes=lanes)
        except BaseException as error:  # anything at all: it is raised again after the report is written
            stopped_by = error
            say("\nstopped; writing a report of what was measured so far", volume)
        written, answers = report.write(job.folder, output)
        outcomes = running.outcomes(job.folder)
    cells = tell_cells(s, job.folder, outcomes, volume)
    tell_estimate(job.folder, volume)
    tell_answers(answers, volume)
    return Measured(folder=job.folder, report=written, outcomes=outcomes, cells=cells, stopped_by=stopped_by, answers=answers)


def compared(done: Measured, ab: tuple[str, str], volume: Volume, *, several: bool = False) -> Measured:
    """The same with the comparison of two stacks, and how to repeat it. `several`: hosts have a run of that id."""
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
    """Print a small table of what was measured and how the launches ended; returns its rows."""
    from torchmatrix.facts.reading import sorted_out
    from torchmatrix.reporting import cell_summaries

    launches, unreadable = sorted_out(folder.everything())
    say_unreadable(unreadable, volume)
    cells = cell_summaries.of_launches(launches, [cell.id for cell in s.plan.cells])
    table = cell_summaries.in_words(cells, width(), len(cells) if volume is Volume.VERBOSE else MOST_ROWS)
    said = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    say(f"\n{table}\n\nlaunches: {said or 'none'}", volume)
    return cells


def tell_answers(answers: "Answers", volume: Volume) -> None:
    """Print what the report begins with."""
    say(f"\n{answers.in_words(width())}\n", volume)


def as_typed() -> str:
    """The command line, for the record."""
    return shlex.join(["torchmatrix", *sys.argv[1:]])


def _announce(s: "Session", job: "Job", todo: "list[tuple[Cell, int]]", seconds: float, volume: Volume) -> None:
    """Print what will be done, how long it may take, and how to stop it."""
    from torchmatrix.engines import recipes

    before = len(s.launches) - len(todo)
    say(in_one_line(s, todo, seconds), volume)
    say(f"stacks: {', '.join(stack.name for stack in recipes.stacks_of(s.plan.cells))}", volume)
    done = f" ({before} done before)" if before else ""
    say(f"run {job.folder.id}: {count(len(todo), 'launch')} to do{done}", volume)
    tell_longest(s, todo, seconds, volume)
    for note in job.watch_notes:
        say(f"note: {note}", volume)
    say("Ctrl-C stops the run; the same command continues it\n", volume)
