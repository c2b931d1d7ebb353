"""Verbs that measure: build, run, batch, explain, reproduce."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import in_json, preamble, say, tell, volume_of
from torchmatrix.cli.measured import (
    Measured,
    as_typed,
    compared,
    measure,
    measure_here,
    refuse_nothing,
    skips_in_words,
    tell_cells,
)  # fmt: skip
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput, ExitCode, NothingSelected
from torchmatrix.core.formatting import count

if TYPE_CHECKING:
    from torchmatrix.matrix.method import Request
    from torchmatrix.planning.selection import TwoStacks
    from torchmatrix.running.scheduler import Scheduler


@options.app.command()
def build(
    globs: options.GlobsArgument = None,
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    locked: options.LockedOption = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
) -> None:
    """Build the images or virtualenvs of the selected cells."""
    from torchmatrix.running import run as running
    from torchmatrix.running import session

    volume = volume_of(quiet, verbose)
    s = session.prepare(matrix, results, engine, globs or [], where or [], locked=locked)
    preamble(s, volume)
    refuse_nothing(s, globs or [], where or [])
    with running.open_job(s, measures=False) as job:
        failed = tell(running.build(s, job), [], {}, volume, name_ready=True)
    raise typer.Exit(options.exit_code_of_failures(failed))


@options.app.command()
def run(
    globs: options.GlobsArgument = None,
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.RunEngineOption = "auto",
    output: options.OutputOption = options.REPORT,
    method: options.MethodOption = None,
    launches: options.LaunchesOption = None,
    fast: Annotated[bool, typer.Option("--fast", help="One launch per cell; quick, but gives no intervals.")] = False,
    rigorous: Annotated[bool, typer.Option("--rigorous", help="Five launches per cell.")] = False,
    until: options.UntilOption = None,
    budget: options.BudgetOption = None,
    cold_compiles: options.ColdCompilesOption = None,
    ab: options.AbOption = None,
    new: options.NewOption = False,
    anyway: options.AnywayOption = False,
    locked: options.LockedOption = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="With --engine slurm: submit and return; run the same command again to collect results."),
    ] = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document at the end instead of the report's path.")
    ] = False,
) -> None:
    """Measure the selected cells and write the report.

    Continues an interrupted run of the same cells. With --ab, ends with the comparison of two stacks.
    """
    from torchmatrix.matrix.method import AB_LAUNCHES, Request

    volume = volume_of(quiet, verbose)
    request = Request(
        method=method, launches=launches, fast=fast, rigorous=rigorous, until=until, budget_minutes=budget,
        cold_compiles=cold_compiles, at_least=AB_LAUNCHES if ab else 1,
    )  # fmt: skip
    selection = {"globs": globs or [], "where": where or []}
    scheduler = _scheduler(
        engine, matrix, results, request, **selection, locked=locked, ab=ab, new=new, anyway=anyway, detach=detach,
        tell=partial(say, volume=volume),
    )  # fmt: skip
    done = measure(scheduler, output, volume=volume, detach=detach, **selection)
    if ab:
        done = [compared(measured, ab, volume, several=len(done) > 1) for measured in done]
    _end(done, as_json, is_list=scheduler.is_cluster)


def _scheduler(
    engine: str, path: Path, results: Path, request: "Request", globs: Sequence[str], where: Sequence[str],
    *, locked: bool, ab: "TwoStacks | None", new: bool, anyway: bool, detach: bool, tell: Callable[[str], None],
) -> "Scheduler":  # fmt: skip
    """Return the scheduler for `run --engine`: a cluster's, or else this machine with that engine. Raises ToolError."""
    from torchmatrix.core import plugins
    from torchmatrix.engines import choose
    from torchmatrix.running import session
    from torchmatrix.running.scheduler import Here, RunRequest, is_scheduler

    if engine in choose.schedulers():
        run_request = RunRequest(
            matrix=path, results=results, request=request, globs=globs, where=where, locked=locked, ab=ab, new=new,
            detach=detach, tell=tell,
        )  # fmt: skip
        scheduler: Scheduler = plugins.made(plugins.SCHEDULERS, engine, is_scheduler, run_request)
        return scheduler
    if detach:
        raise BadInput("--detach works only with --engine slurm", hint="in the background: nohup torchmatrix run &")
    s = session.prepare(path, results, engine, globs, where, request, locked=locked, ab=ab)
    return Here(s, new=new, beside=anyway)


@options.app.command()
def batch(
    globs: options.GlobsArgument = None,
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
) -> None:
    """Find the largest batch that fits.

    Searches for each stack and workload, each try in a fresh process. Measures nothing.
    """
    from torchmatrix.running import run as running
    from torchmatrix.running import session

    volume = volume_of(quiet, verbose)
    s = session.prepare(matrix, results, engine, globs or [], where or [])
    preamble(s, volume)
    refuse_nothing(s, globs or [], where or [])
    with running.open_job(s, new=True) as job:
        batches = tell(running.find_batches(s, job), [], {}, volume)
    raise typer.Exit(ExitCode.OK if batches and all(batches) else ExitCode.CELL_NOT_OK)


@options.app.command()
def explain(
    globs: Annotated[
        list[str],
        typer.Argument(metavar="CELL", help="Cells on several devices: ids or globs.", autocompletion=options.complete_cells),
    ],
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    output: options.OutputOption = options.REPORT,
    method: options.MethodOption = None,
    launches: options.LaunchesOption = None,
    new: options.NewOption = False,
    anyway: options.AnywayOption = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show where the scaling loss of a cell comes from.

    Measures each device alone, all devices at once, and DDP without and with all-reduce.
    """
    from torchmatrix.matrix.method import Request
    from torchmatrix.reporting import terminal
    from torchmatrix.running import session

    volume = volume_of(quiet, verbose)
    request = Request(method=method, launches=launches)
    s = session.prepare(matrix, results, engine, globs, where or [], request, explain=True)
    if s.plan.cells and not any(not cell.workload.makes_figures for cell in s.plan.cells):
        raise NothingSelected(
            "no selected cell trains on more than one device",
            hint="torchmatrix plan lists all ids; choose one that ends in gpu0+1 or more",
        )
    done = measure_here(s, output, new=new, beside=anyway, volume=volume, globs=globs, where=where or [])
    say(f"report: {done.report}\n", volume)
    if done.stopped_by:
        raise done.stopped_by
    rows = terminal.decomposition(done.folder)
    print(in_json(rows) if as_json else terminal.decomposition_in_words(rows))
    raise typer.Exit(done.exit_code)


@options.app.command()
def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|LAUNCH-FILE|CELL",
            help="What to repeat; torchmatrix presets lists the presets.",
            autocompletion=options.complete_presets,
        ),
    ],
    globs: options.GlobsArgument = None,
    where: options.WhereOption = None,
    launches: options.LaunchesOption = None,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    output: options.OutputOption = options.REPORT,
    anyway: options.AnywayOption = False,
    only_print: Annotated[bool, typer.Option("--print", help="Show the plan or the commands; run nothing.")] = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
) -> None:
    """Repeat a published benchmark or a recorded launch.

    A launch is repeated with its exact command, on an image with the same packages.
    """
    from torchmatrix.matrix import variants

    volume = volume_of(quiet, verbose)
    if target in variants.preset_names():
        page = None if only_print else output
        _reproduce_preset(target, globs or [], where or [], launches, results, engine, page, anyway, volume)
    elif launches:
        raise BadInput("--launches is for presets", hint="a recorded launch is repeated once; run the command again")
    else:
        _reproduce_launch(target, results, engine, only_print, anyway, volume)


def _reproduce_preset(
    name: str, globs: list[str], where: list[str], launches: int | None, results: Path, engine: str, output: Path | None,
    anyway: bool, volume: Volume,
) -> None:  # fmt: skip
    """Plan, build, run and report a preset; only plan it if `output` is None."""
    from torchmatrix.matrix import matrix_file, variants
    from torchmatrix.matrix.method import Request
    from torchmatrix.running import session

    matrix = matrix_file.under(variants.load_preset(name), Request(launches=launches))
    s = session.without_locks(session.assemble(matrix, {}, results, engine, globs, where))
    if matrix.preset:
        say("\n".join((matrix.preset.title, *(f"differs: {sentence}" for sentence in matrix.preset.deviations), "")), volume)
    if output is None:
        if not s.plan.skips:
            refuse_nothing(s, globs, where)
        preamble(s, volume)
        say(f"{count(len(s.plan.cells), 'cell')}: {count(len(s.launches), 'launch')}", volume)
        print("\n".join(f"* {cell.id}" for cell in s.plan.cells))
        for line in skips_in_words(s):
            say(f"skipped: {line}", volume)
        return
    _end([measure_here(s, output, beside=anyway, volume=volume, globs=globs, where=where)])


def _reproduce_launch(target: str, results: Path, engine: str, only_print: bool, anyway: bool, volume: Volume) -> None:
    from torchmatrix.running import reproduce as reproducing
    from torchmatrix.running import run as running

    again = reproducing.prepare(reproducing.find(results, target), results, engine)
    s = again.session
    preamble(s, volume)
    refuse_nothing(s)
    if only_print:
        print("\n".join(reproducing.commands(again, Path(gettempdir()) / f"torchmatrix-{token_hex(8)}")), flush=True)
        return
    with running.open_job(s, new=True, command=as_typed(), beside=anyway) as job:
        print("\n".join(reproducing.commands(again, job.folder.path / "contexts")), flush=True)
        tell(reproducing.run(again, job), s.launches, {}, volume)
    outcomes = running.outcomes(job.folder)
    tell_cells(s, job.folder, outcomes, volume)
    say(reproducing.outcome_in_words(again, job.folder), volume)
    raise typer.Exit(options.exit_code_of_launches(outcomes))


def _end(done: list[Measured], as_json: bool = False, *, is_list: bool = False) -> NoReturn:
    """Print the results of all runs on stdout, then exit, or raise what stopped one. `is_list`: print JSON as a list."""
    if as_json:
        records = [measured.as_record() for measured in done]
        print(in_json(records if is_list else records[0]), flush=True)
    else:
        print("\n".join(measured.in_words() for measured in done), flush=True)
    stopped = next((measured.stopped_by for measured in done if measured.stopped_by), None)
    if stopped:
        raise stopped
    raise typer.Exit(max((measured.exit_code for measured in done), default=ExitCode.OK))
