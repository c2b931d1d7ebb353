"""Verbs that measure: build, run, batch, explain, reproduce."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from torchmatrix.cli import completing, exit_codes
from torchmatrix.cli.application import app
from torchmatrix.cli.console import preamble, refuse_nothing, say, skips_in_words, tell
from torchmatrix.cli.options import (
    MATRIX,
    REPORT,
    RESULTS,
    BudgetOption,
    EngineOption,
    GlobsArgument,
    JsonOption,
    LaunchesOption,
    LockedOption,
    MatrixOption,
    MethodOption,
    NewOption,
    OutputOption,
    ResultsOption,
    UntilOption,
    WhereOption,
)
from torchmatrix.ground.errors import NothingSelected

if TYPE_CHECKING:
    from torchmatrix.facts.store import RunFolder
    from torchmatrix.running.session import Session


@app.command()
def build(
    globs: GlobsArgument = None,
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    locked: LockedOption = False,
) -> None:
    """Build the images or virtualenvs of the selected cells."""
    from torchmatrix.running import run as running
    from torchmatrix.running import session

    s = session.prepare(matrix, results, engine, globs or [], where or [], locked=locked)
    preamble(s)
    refuse_nothing(s)
    with running.opened(s) as job:
        failed = tell(running.build(s, job), [], {}, name_ready=True)
    raise typer.Exit(exit_codes.of_failures(failed))


@app.command()
def run(
    globs: GlobsArgument = None,
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    output: OutputOption = REPORT,
    method: MethodOption = None,
    launches: LaunchesOption = None,
    fast: Annotated[bool, typer.Option("--fast", help="One launch per cell; gives no intervals.")] = False,
    rigorous: Annotated[bool, typer.Option("--rigorous", help="Five launches per cell.")] = False,
    until: UntilOption = None,
    budget: BudgetOption = None,
    new: NewOption = False,
    locked: LockedOption = False,
) -> None:
    """Measure the selected cells and write the report.

    Continues an interrupted run of the same cells.
    """
    from torchmatrix.matrix.method import Request
    from torchmatrix.running import session

    request = Request(method=method, launches=launches, fast=fast, rigorous=rigorous, until=until, budget_minutes=budget)
    s = session.prepare(matrix, results, engine, globs or [], where or [], request, locked=locked)
    _measure_and_exit(s, output, new)


@app.command()
def batch(
    globs: GlobsArgument = None,
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
) -> None:
    """Find the largest batch that fits.

    Searches per stack and workload, each try in a fresh process. Measures nothing.
    """
    from torchmatrix.running import run as running
    from torchmatrix.running import session

    s = session.prepare(matrix, results, engine, globs or [], where or [])
    preamble(s)
    refuse_nothing(s)
    with running.opened(s, new=True) as job:
        found = tell(running.find_batches(s, job), [], {})
    raise typer.Exit(exit_codes.of_batches(found))


@app.command()
def explain(
    globs: Annotated[
        list[str],
        typer.Argument(metavar="CELL...", help="Cells on several devices: ids or globs.", autocompletion=completing.cells),
    ],
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    output: OutputOption = REPORT,
    method: MethodOption = None,
    launches: LaunchesOption = None,
    new: NewOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show where the scaling loss of a cell comes from.

    Measures each device alone, all devices at once, and DDP without and with all-reduce.
    """
    from torchmatrix.matrix.method import Request
    from torchmatrix.reporting import terminal
    from torchmatrix.running import session

    request = Request(method=method, launches=launches)
    s = session.prepare(matrix, results, engine, globs, where or [], request, explain=True)
    if s.plan.cells and not any(cell.workload.parallel != "ddp" for cell in s.plan.cells):
        raise NothingSelected(
            "no selected cell trains on more than one device",
            hint="torchmatrix plan lists all ids; choose one that ends in gpu0+1 or more",
        )
    _, folder, counts = _measure(s, output, new)
    rows = terminal.decomposition(folder)
    print(json.dumps(rows) if as_json else terminal.decomposition_in_words(rows))
    raise typer.Exit(exit_codes.of_launches(counts))


@app.command()
def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|LAUNCH-FILE|CELL",
            help="What to repeat; torchmatrix presets lists the presets.",
            autocompletion=completing.presets,
        ),
    ],
    globs: GlobsArgument = None,
    where: WhereOption = None,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    output: OutputOption = REPORT,
    only_print: Annotated[bool, typer.Option("--print", help="Show the plan or the commands; run nothing.")] = False,
) -> None:
    """Repeat a published benchmark or a recorded launch.

    A launch is repeated with its exact command on an image of the same packages.
    """
    from torchmatrix.matrix import presets

    if target in presets.names():
        _reproduce_preset(target, globs or [], where or [], results, engine, None if only_print else output)
    else:
        _reproduce_launch(target, results, engine, only_print)


def _reproduce_preset(name: str, globs: list[str], where: list[str], results: Path, engine: str, output: Path | None) -> None:
    """Plan, build, run, report; without `output` only the plan."""
    from torchmatrix.matrix import presets
    from torchmatrix.running import session

    asked = presets.load(name)
    s = session.without_locks(session.assemble(asked, {}, results, engine, globs, where))
    if asked.preset:
        say("\n".join((asked.preset.title, *(f"differs: {sentence}" for sentence in asked.preset.deviations), "")))
    if output is None:
        preamble(s)
        print("\n".join(f"* {cell.id}" for cell in s.plan.cells))
        for line in skips_in_words((skip.cell.stack.name, skip.why.reason) for skip in s.plan.skips):
            say(f"skipped: {line}")
        return
    _measure_and_exit(s, output, new=False)


def _reproduce_launch(target: str, results: Path, engine: str, only_print: bool) -> None:
    from torchmatrix.running import reproduce as reproducing
    from torchmatrix.running import run as running

    again = reproducing.prepare(reproducing.find(results, target), results, engine)
    s = again.session
    preamble(s)
    refuse_nothing(s)
    with running.opened(s, new=True, command=_as_typed()) as job:
        print("\n".join(reproducing.commands(again, job.folder.path / "contexts")), flush=True)
        if only_print:
            return
        tell(reproducing.run(again, job), s.launches, {})
    say(reproducing.outcome_in_words(again, job.folder))
    raise typer.Exit(exit_codes.of_launches(running.outcomes(job)))


def _measure_and_exit(s: "Session", output: Path, new: bool) -> NoReturn:
    written, _, counts = _measure(s, output, new)
    print(written)
    raise typer.Exit(exit_codes.of_launches(counts))


def _as_typed() -> str:
    return shlex.join(["torchmatrix", *sys.argv[1:]])


def _measure(s: "Session", output: Path, new: bool) -> "tuple[Path, RunFolder, dict[str, int]]":
    """Run what is planned and write the report, whatever happens; the report, the run, and how many launches ended how."""
    from torchmatrix.engines import recipes
    from torchmatrix.planning import estimate
    from torchmatrix.reporting import report
    from torchmatrix.running import run as running

    preamble(s)
    refuse_nothing(s)
    with running.opened(s, new=new, command=_as_typed()) as job:
        todo, known = running.todo(s, job), running.known_seconds(s)
        done = f" ({len(s.launches) - len(todo)} were done before)" if len(todo) < len(s.launches) else ""
        stacks = [stack.name for stack in recipes.stacks_of(s.plan.cells)]
        say(f"{len(s.plan.cells)} cells on {len(stacks)} stacks: {', '.join(stacks)}; {len(s.plan.skips)} cells skipped")
        say(f"run {job.folder.id}: {len(todo)} launches to do{done}")
        say(f"this may take about {estimate.in_words(running.estimate_seconds(s, todo, known))}")
        for note in job.watch_notes:
            say(f"note: {note}")
        say("Ctrl-C stops; the same command continues\n")
        try:
            tell(running.measure(s, job, todo), todo, known)
        finally:
            written = report.write(job.folder, output)
        counts = running.outcomes(job)
    say("\n" + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    return written, job.folder, counts
