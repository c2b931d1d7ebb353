"""The verbs of nightly: run, unit."""

import codecs
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import say, volume_of
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput

if TYPE_CHECKING:
    from torchmatrix_plugins.nights.night import NightOptions

nightly_app = typer.Typer(
    cls=options.WholeSummaries,
    help="Measure every night, judge the run and publish the pages.\n\nA timer of yours starts the nights.",
)

REPORTS = Path("reports")
ReportsOption = Annotated[
    Path, typer.Option("--reports", metavar="FOLDER", help="The folder for the pages, gate.xml and gate.md.")
]
RunWithOption = Annotated[
    str, typer.Option("--run-with", metavar="WORDS", help="More arguments for run, quoted: '--locked --launches 5'.")
]
GateWithOption = Annotated[
    str, typer.Option("--gate-with", metavar="WORDS", help="More arguments for gate, quoted: '--strict --nights 14'.")
]
FreeOption = Annotated[
    float,
    typer.Option(
        "--free-gb", metavar="GB", min=0, max=1_000_000, help="Start no night with less free space (GB) for the results."
    ),
]


@nightly_app.command("run")
def nightly_run(
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    reports: ReportsOption = REPORTS,
    engine: options.EngineOption = "auto",
    run_with: RunWithOption = "",
    gate_with: GateWithOption = "",
    keep: options.KeepOption = None,
    disk_gb: options.DiskOption = None,
    free_gb: FreeOption = 1.0,
    pin: options.PinOption = None,
    if_missed: Annotated[
        str | None,
        typer.Option("--if-missed", metavar="HH:MM", help="Run only if the last night at HH:MM was missed or cut short."),
    ] = None,
    quiet: options.QuietOption = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the steps print even without a terminal.")
    ] = False,
) -> None:
    """Run a whole night now: measure, gate, report, history, remove old runs.

    Continues a night that was cut short less than 12 hours ago.
    """
    from torchmatrix_plugins.nights import night

    volume = volume_of(quiet, verbose)
    settings = _night_options(matrix, results, reports, engine, run_with, gate_with, keep, disk_gb, free_gb, pin)
    shows = volume is Volume.VERBOSE or (sys.stderr.isatty() and volume is Volume.NORMAL)
    end = night.run_night(settings, partial(say, volume=volume), _shown() if shows else _hide, if_missed)
    print(end.summary)
    raise typer.Exit(end.exit_code)


@nightly_app.command("unit")
def nightly_unit(
    at: Annotated[str, typer.Option("--at", metavar="HH:MM", help="When to start, in this machine's local time.")] = "02:30",
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    reports: ReportsOption = REPORTS,
    engine: options.EngineOption = "auto",
    run_with: RunWithOption = "",
    gate_with: GateWithOption = "",
    keep: options.KeepOption = None,
    disk_gb: options.DiskOption = None,
    free_gb: FreeOption = 1.0,
    pin: options.PinOption = None,
    cron: Annotated[bool, typer.Option("--cron", help="Print lines for a crontab instead.")] = False,
) -> None:
    """Print what starts a night every day; install nothing.

    Prints a shell script that writes a systemd timer, for the machine as root, else for this user.
    """
    from torchmatrix.engines import choose
    from torchmatrix.matrix import matrix_file as matrices
    from torchmatrix_plugins.nights import timers

    settings = _night_options(matrix, results, reports, engine, run_with, gate_with, keep, disk_gb, free_gb, pin)
    if engine not in (choices := (*choose.names(), *choose.schedulers())):
        raise BadInput(f'unknown engine "{engine}"', hint=f"engines: {', '.join(choices)}")
    matrices.load(matrix)
    table, is_root = timers.timetable(settings.matrix, at, settings.words(), os.environ), os.geteuid() == 0
    print(timers.cron_lines(table) if cron else timers.systemd_script(table, is_root), end="")
    if table.withheld:
        say(f"not printed, since they may hold secrets or can't be written there: {', '.join(table.withheld)}")
        say("hint: if nights need them, put them into a file of your own (chmod 600) and name it: EnvironmentFile=FILE")
    if is_root:
        say("hint: nights run as root, and so does all that they start; for an ordinary user: User=NAME below [Service]")
    elif not cron:
        say("hint: nights start only while you are logged in; to change that: loginctl enable-linger")
    say(f"nothing was written; {'to the end of your crontab: crontab -e' if cron else 'to write it: … | sh'}")


def _night_options(
    matrix: Path,
    results: Path,
    reports: Path,
    engine: str,
    run_with: str,
    gate_with: str,
    keep: int | None,
    disk_gb: float | None,
    free_gb: float,
    pin: list[str] | None,
) -> "NightOptions":
    """Return the options of a night, checked as far as possible in advance."""
    from torchmatrix.facts.store import RunFolder
    from torchmatrix_plugins.nights.night import NightOptions, gate_arguments

    run_words, gate_words = _split_words("--run-with", run_with), _split_words("--gate-with", gate_with)
    settings = NightOptions(
        matrix=matrix.absolute(),
        results=results.absolute(),
        reports=reports.absolute(),
        engine=engine,
        run_words=run_words,
        gate_words=gate_words,
        keep=keep,
        disk_gb=disk_gb,
        free_gb=free_gb,
        pins=tuple(pin or ()),
    )
    _parse_parameters("run", run_words, ("matrix", "results", "engine", "output", "new", "detach"))
    _parse_parameters("gate", gate_words, ("run", "host", "results", "junit", "markdown"))
    baseline = _parse_parameters("gate", gate_arguments(settings, RunFolder(Path("HOST/RUN")))).get("baseline")
    return replace(settings, pins=tuple(dict.fromkeys((*settings.pins, baseline)))) if baseline else settings


def _split_words(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(f"{option}: {error}: {text}", hint="quote it as you would in a shell") from None


def _parse_parameters(verb: str, words: Sequence[str], of_the_night: Sequence[str] = ()) -> dict[str, Any]:
    """Parse `words` as the verb does and return its parameters; checked now rather than at night. Raises BadInput, also for
    parameters that a night sets itself.
    """
    command = typer.main.get_command(options.app).commands[verb]  # type: ignore[attr-defined]
    if "--help" in words:
        raise BadInput(f"--{verb}-with asks for help, which a night can't give", hint=f"torchmatrix {verb} --help")
    try:
        context = command.make_context(verb, list(words))
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise BadInput(f"--{verb}-with: {error.format_message()}", hint=f"see torchmatrix {verb} --help") from None
    for name in of_the_night:
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE":
            what = "a run" if name == "run" else f"--{name}"
            raise BadInput(f"--{verb}-with names {what}, which a night sets itself", hint="see torchmatrix nightly run --help")
    return dict(context.params)


def _shown() -> Callable[[bytes], None]:
    """Return what shows the output of the steps on stderr, wherever a piece of it begins and ends."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(data: bytes) -> None:
        print(decoder.decode(data), end="", file=sys.stderr, flush=True)

    return show


def _hide(data: bytes) -> None:
    """Drop what the steps print with --quiet, or if nobody watches: it is in the log, and cron would mail it."""
