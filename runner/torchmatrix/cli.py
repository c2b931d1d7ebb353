"""The verbs of the command `torchmatrix`; the only module that prints or exits. Heavy imports stand inside the verbs."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from torchmatrix import __version__
from torchmatrix.errors import BadInput, ExitCode, NothingSelected, ToolError
from torchmatrix.options import (
    MATRIX,
    REPORT,
    RESULTS,
    BudgetOption,
    EngineOption,
    GlobsArgument,
    JsonOption,
    LaunchesOption,
    MatrixOption,
    NewOption,
    OutputOption,
    ProtocolOption,
    ResultsOption,
    UntilOption,
    WhereOption,
)

if TYPE_CHECKING:
    from torchmatrix.narrate import Narrator
    from torchmatrix.session import Session
    from torchmatrix.store import RunFolder

app = typer.Typer(
    name="torchmatrix",
    help="A reproducible benchmark matrix for PyTorch: versions x CUDA/ROCm/CPU x GPUs, one HTML report.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> NoReturn:
    """The entry point: every error becomes a message, a hint and an exit code, here and nowhere else.

    The command is invoked without its own `main`, which would end an interruption without a word.
    """
    _interrupt_on_signals()
    try:
        command = typer.main.get_command(app)
        with command.make_context("torchmatrix", sys.argv[1:]) as context:
            code = command.invoke(context)
    except ToolError as error:
        _complain(str(error), error.hint)
        code = error.exit_code
    except typer.Exit as request:
        code = request.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted", "the same command continues where it stopped")
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's errors are about the arguments
            raise
        _complain(str(error.format_message()), "see torchmatrix --help, or torchmatrix VERB --help")
        code = ExitCode.BAD_INPUT
    sys.exit(int(code or 0))


def _interrupt_on_signals() -> None:
    """SIGTERM, and SIGHUP unless nohup has it ignored, end a run as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)


def _complain(message: str, hint: str) -> None:
    print(f"error: {message}\n\nhint: {hint}", file=sys.stderr)


def _say(text: str = "") -> None:
    print(text, file=sys.stderr)


@app.callback(invoke_without_command=True)
def _about(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version or context.invoked_subcommand is None:
        print(__version__ if version else context.get_help())
        raise typer.Exit()


@app.command()
def init(
    output: Annotated[Path, typer.Option("--output", help="The file to write.")] = MATRIX,
    python: Annotated[str | None, typer.Option("--python", help="An interpreter that already holds PyTorch.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a matrix file for this machine."""
    from torchmatrix import host, session, starter

    if output.exists() and not force:
        raise BadInput(f"{output} exists already", hint="replace it with --force, or write elsewhere with --output")
    if python and not Path(python).is_file():
        raise BadInput(f"no interpreter at {python}", hint="name a Python that can import torch")
    text = starter.starter_matrix(host.detect(), session.docker_answers(), str(Path(python).absolute()) if python else None)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)
    except OSError as error:
        raise BadInput(f"can't write {output}: {error.strerror}", hint="write elsewhere with --output") from None
    _say("look at it, then: torchmatrix plan, torchmatrix run")
    print(output)


@app.command()
def plan(
    globs: GlobsArgument = None,
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show every cell: * would run, - is skipped and why. Runs nothing."""
    from torchmatrix import narrate, session

    s = session.prepare(matrix, results, engine, globs or [], where or [])
    _preamble(s)
    if not s.plan.skips:
        _refuse_nothing(s)
    if as_json:
        print(json.dumps(_plan_as_json(s)))
        return
    lines = [f"- {skip.cell.id}  {skip.why.reason}" for skip in s.plan.skips] + [f"* {cell.id}" for cell in s.plan.cells]
    print("\n".join(lines))
    _say(f"\n{len(s.plan.cells)} to run, {len(s.plan.skips)} skipped" + (":" if s.plan.skips else ""))
    for line in narrate.skips_in_words((skip.cell.stack.name, skip.why.reason) for skip in s.plan.skips):
        _say(f"  {line}")


def _plan_as_json(s: "Session") -> dict[str, Any]:
    def fields(cell: Any) -> dict[str, Any]:
        return {"id": cell.id, "stack": cell.stack.name, "workload": cell.workload.id, "gpus": cell.gpus.label}

    return {
        "cells": [fields(cell) for cell in s.plan.cells],
        "skips": [{**fields(skip.cell), "reason": skip.why.reason, "fix": skip.why.fix} for skip in s.plan.skips],
    }


@app.command()
def build(
    globs: GlobsArgument = None,
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
) -> None:
    """Build the images (or virtualenvs) of the selected cells, and nothing else."""
    from torchmatrix import session

    s = session.prepare(matrix, results, engine, globs or [], where or [])
    _preamble(s)
    _refuse_nothing(s)
    with session.hold(s) as job:
        narrator = _narrate(session.build(s, job), [], {})
    raise typer.Exit(ExitCode.CELL_NOT_OK if narrator.outcomes.get("build-failed") else ExitCode.OK)


@app.command()
def run(
    globs: GlobsArgument = None,
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    output: OutputOption = REPORT,
    protocol: ProtocolOption = None,
    launches: LaunchesOption = None,
    fast: Annotated[bool, typer.Option("--fast", help="One launch per cell: no intervals.")] = False,
    rigorous: Annotated[bool, typer.Option("--rigorous", help="Five launches per cell.")] = False,
    until: UntilOption = None,
    budget: BudgetOption = None,
    new: NewOption = False,
) -> None:
    """Measure the selected cells and write the report; continues a run that was interrupted."""
    from torchmatrix import session
    from torchmatrix.method import Request

    request = Request(protocol=protocol, launches=launches, fast=fast, rigorous=rigorous, until=until, budget_minutes=budget)
    s = session.prepare(matrix, results, engine, globs or [], where or [], request)
    written, _, counts = _measure(s, output, new)
    print(written)
    raise typer.Exit(ExitCode.OK if set(counts) <= {"ok"} else ExitCode.CELL_NOT_OK)


@app.command()
def explain(
    globs: Annotated[list[str], typer.Argument(help="Globs on the ids of cells with several devices.")],
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    output: OutputOption = REPORT,
    protocol: ProtocolOption = None,
    launches: LaunchesOption = None,
    new: NewOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say where the scaling loss of cells comes from: each device alone, all at once, DDP without and with all-reduce."""
    from torchmatrix import session, tables
    from torchmatrix.method import Request

    request = Request(protocol=protocol, launches=launches)
    s = session.prepare(matrix, results, engine, globs, where or [], request, explain=True)
    if s.plan.cells and not any(cell.workload.parallel != "ddp" for cell in s.plan.cells):
        raise NothingSelected(
            "no selected cell trains on more than one device", hint="torchmatrix plan lists all ids; choose one with gpu0+1"
        )
    _, folder, counts = _measure(s, output, new)
    rows = tables.decomposition(folder)
    print(json.dumps(rows) if as_json else tables.decomposition_in_words(rows))
    raise typer.Exit(ExitCode.OK if set(counts) <= {"ok"} else ExitCode.CELL_NOT_OK)


@app.command()
def batch(
    globs: GlobsArgument = None,
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
) -> None:
    """Find the largest batch that fits, per stack and workload, each try in a fresh process. Measures nothing."""
    from torchmatrix import session

    s = session.prepare(matrix, results, engine, globs or [], where or [])
    _preamble(s)
    _refuse_nothing(s)
    with session.hold(s, new=True) as job:
        narrator = _narrate(session.find_batches(s, job), [], {})
    raise typer.Exit(ExitCode.OK if narrator.batches and all(narrator.batches) else ExitCode.CELL_NOT_OK)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A run, last, last~1, a file or folder, a stack, or RUN:STACK.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same; ratios are A over B.")],
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Compare two sets of launches: ratio, interval, verdict, and how their environments differ."""
    from torchmatrix import compare as comparing
    from torchmatrix import tables
    from torchmatrix.store import Results

    store = Results(results)
    found = comparing.compare(comparing.choose(store, a), comparing.choose(store, b))
    print(json.dumps(found.as_record()) if as_json else tables.comparison_in_words(found))
    refused = all(row.refused for row in found.rows)
    raise typer.Exit(ExitCode.BAD_INPUT if refused else ExitCode.OK)


def _measure(s: "Session", output: Path, new: bool) -> "tuple[Path, RunFolder, dict[str, int]]":
    """Run what is planned and write the report, whatever happens; the report, the run, and how many launches ended how."""
    from torchmatrix import estimate, images, report, session

    _preamble(s)
    _refuse_nothing(s)
    with session.hold(s, new=new, command=shlex.join(["torchmatrix", *sys.argv[1:]])) as job:
        todo, known = session.todo(s, job), session.known_seconds(s)
        done = f" ({len(s.launches) - len(todo)} were done before)" if len(todo) < len(s.launches) else ""
        stacks = [stack.name for stack in images.stacks_of(s.plan.cells)]
        _say(f"{len(s.plan.cells)} cells on {len(stacks)} stacks: {', '.join(stacks)}; {len(s.plan.skips)} cells skipped")
        _say(f"run {job.folder.id}: {len(todo)} launches to do{done}")
        _say(f"this may take about {estimate.in_words(session.estimate_seconds(s, todo, known))}")
        for note in job.watch_notes:
            _say(f"note: {note}")
        _say("Ctrl-C stops; the same command continues\n")
        try:
            _narrate(session.run(s, job, todo), todo, known)
        finally:
            written = report.write(s.results, output, job.folder.id)
        counts = session.final_outcomes(job)
    _say("\n" + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    return written, job.folder, counts


@app.command()
def report(
    results: ResultsOption = RESULTS,
    output: OutputOption = REPORT,
    run_id: Annotated[str | None, typer.Option("--run", help="The run to show; default: the newest.")] = None,
) -> None:
    """Render the facts of a run into one HTML file; needs no engine."""
    from torchmatrix import report as pages
    from torchmatrix.store import Results

    print(pages.write(Results(results), output, run_id))


@app.command()
def clean(
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    everything: Annotated[bool, typer.Option("--all", help="Also what this matrix's stacks need.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without, only list it.")] = False,
) -> None:
    """List (and with --yes remove) images, virtualenvs and compile caches that the matrix no longer needs. Results stay."""
    from torchmatrix import session

    found = session.leftovers(matrix, results, engine, everything)
    for _, leftover in found:
        size = "" if leftover.bytes is None else f"  {leftover.bytes / 2**30:.2f} GiB"
        print(f"{leftover.kind:<10} {leftover.name}{size}")
    total = sum(leftover.bytes or 0 for _, leftover in found) / 2**30
    _say(f"{len(found)} to remove, {total:.1f} GiB (images share layers, so that less may become free)" if found else "nothing")
    if not yes:
        _say("nothing was removed; to remove it: torchmatrix clean --yes" if found else "")
        return
    problems = [f"{kept.name}: {why}" for its_engine, kept in found if (why := its_engine.remove(kept))]
    for problem in problems:
        _say(f"kept {problem}")
    raise typer.Exit(ExitCode.CELL_NOT_OK if problems else ExitCode.OK)


@app.command()
def doctor(
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Check engine, GPUs, driver, disk and indexes; say what would be skipped, why, and the fix."""
    from torchmatrix import checkup

    checks = checkup.examine(matrix, results, engine)
    if as_json:
        print(json.dumps([check.as_record() for check in checks]))
    else:
        for check in checks:
            print(f"{check.mark:<5} {check.subject}: {check.finding}")
            if check.fix:
                print(f"      fix: {check.fix}")
    raise typer.Exit(max(check.exit_code for check in checks))


def _preamble(s: "Session") -> None:
    """What this machine is and what will be used, before anything slow."""
    host = s.host
    gpus = f"{len(host.gpus)} x {host.gpus[0].name}, driver {host.driver}" if host.gpus else "no GPU"
    _say(f"torchmatrix {__version__} on {host.name}: {host.cpu}, {len(host.cores)} cores; {gpus}")
    _say(f"engine: {s.engine_choice}")
    for note in host.notes:
        _say(f"note: {note}")


def _refuse_nothing(s: "Session") -> None:
    if s.plan.cells:
        return
    if s.plan.skips:
        first = s.plan.skips[0]
        raise NothingSelected(
            f"all {len(s.plan.skips)} selected cells are skipped here; the first: {first.cell.id}: {first.why.reason}",
            hint=f"{first.why.fix}; torchmatrix doctor lists the rest",
        )
    raise NothingSelected("the selection matches no cell", hint="torchmatrix plan lists the ids of all cells")


def _narrate(news: Any, todo: list[Any], known: dict[str, float]) -> "Narrator":
    """Tell the news as they come; the narrator knows how many launches (or builds) ended how."""
    from contextlib import closing

    from rich.console import Console

    from torchmatrix.narrate import Narrator

    console = Console(stderr=True, highlight=False)
    with Narrator(console, todo, known) as narrator, closing(news):
        for item in news:
            narrator.tell(item)
    return narrator
