"""The verbs of nightly: run, install, status, remove, keep."""

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
from torchmatrix.cli.console import in_json, say, volume_of
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import count

if TYPE_CHECKING:
    from torchmatrix.nightly.night import NightOptions

nightly_app = typer.Typer(
    cls=options.WholeSummaries,
    help="Measure every night, judge the run and publish the pages.\n\nA timer starts the nights. Old runs can be removed.",
)
options.app.add_typer(nightly_app, name="nightly")

REPORTS = Path("reports")
ReportsOption = Annotated[Path, typer.Option("--reports", help="The folder for the pages, gate.xml and gate.md.")]
RunWithOption = Annotated[
    str, typer.Option("--run-with", metavar="WORDS", help="More arguments for run, quoted: '--locked --launches 5'.")
]
GateWithOption = Annotated[
    str, typer.Option("--gate-with", metavar="WORDS", help="More arguments for gate, quoted: '--strict --nights 14'.")
]
KeepOption = Annotated[
    int | None, typer.Option("--keep", min=2, max=1_000_000, help="Keep this many complete runs; default: all.")
]
DiskOption = Annotated[
    float | None, typer.Option("--disk-gb", min=0, max=1_000_000, help="Limit the results to this many GB; default: no limit.")
]
FreeOption = Annotated[
    float, typer.Option("--free-gb", min=0, max=1_000_000, help="Start no night with less free space (GB) for the results.")
]
PinOption = Annotated[
    list[str] | None,
    typer.Option("--pin", metavar="RUN", help="Never remove this run; repeatable.", autocompletion=options.complete_runs),
]


@nightly_app.command("run")
def nightly_run(
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    reports: ReportsOption = REPORTS,
    engine: options.EngineOption = "auto",
    run_with: RunWithOption = "",
    gate_with: GateWithOption = "",
    keep: KeepOption = None,
    disk_gb: DiskOption = None,
    free_gb: FreeOption = 1.0,
    pin: PinOption = None,
    if_missed: Annotated[
        str | None,
        typer.Option("--if-missed", metavar="HH:MM", help="Run only if the last night at HH:MM was missed or cut short."),
    ] = None,
    quiet: options.QuietOption = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the steps print even without a terminal.")
    ] = False,
) -> None:
    """Run a whole night now: measure, gate, report, history, keep.

    Continues a night that was cut short less than 12 hours ago.
    """
    from torchmatrix.nightly import night

    volume = volume_of(quiet, verbose)
    settings = _night_options(matrix, results, reports, engine, run_with, gate_with, keep, disk_gb, free_gb, pin)
    shows = volume is Volume.VERBOSE or (sys.stderr.isatty() and volume is Volume.NORMAL)
    end = night.run_night(settings, partial(say, volume=volume), _shown() if shows else _hide, if_missed)
    print(end.summary)
    raise typer.Exit(end.exit_code)


@nightly_app.command("install")
def nightly_install(
    at: Annotated[str, typer.Option("--at", metavar="HH:MM", help="When to start, in this machine's local time.")] = "02:30",
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    reports: ReportsOption = REPORTS,
    engine: options.EngineOption = "auto",
    run_with: RunWithOption = "",
    gate_with: GateWithOption = "",
    keep: KeepOption = None,
    disk_gb: DiskOption = None,
    free_gb: FreeOption = 1.0,
    pin: PinOption = None,
    system: Annotated[
        bool | None,
        typer.Option(
            "--system/--user", help="Install for the machine or for this user; default: the machine for root, else this user."
        ),
    ] = None,
    run_as: Annotated[
        str | None, typer.Option("--run-as", metavar="NAME", help="With --system: run the nights as this ordinary user.")
    ] = None,
    backend: Annotated[str, typer.Option("--backend", help="systemd, or cron: print lines for crontab -e.")] = "systemd",
    only_print: Annotated[bool, typer.Option("--print", help="Show what would be written; write nothing.")] = False,
) -> None:
    """Set up a systemd timer that starts a night every day.

    Replaces an earlier installation for this matrix. For cron, prints lines that you paste.
    """
    from torchmatrix.matrix import matrix_file as matrices
    from torchmatrix.nightly import timers
    from torchmatrix.nightly.journal import environment_of, timetable

    settings = _night_options(matrix, results, reports, engine, run_with, gate_with, keep, disk_gb, free_gb, pin)
    matrices.load(matrix)
    for_machine = timers.for_machine(backend, system, run_as)
    if backend == "systemd" and not only_print:
        timers.check_systemd(for_machine, say)
    here = environment_of(run_as, os.environ) if run_as else os.environ
    table = timetable(settings.matrix, settings.results, at, settings.words(), is_system=for_machine, run_as=run_as)
    if only_print:
        print("\n".join(f"# {path}\n{text}" for path, text in timers.texts(table, backend).items()), end="")
        return
    done = timers.install(table, backend, here, say)
    if backend == "cron":
        say("no night starts before these lines are in your crontab: paste them with crontab -e, instead of older ones")
        print(timers.cron_lines(table), end="")
    else:
        say(f"systemd of {'the machine' if for_machine else 'this user'}: every night at {table.at}")
        print("\n".join(map(str, done.files)))
    say(f"environment variables stored, readable only by you: {', '.join(sorted(done.variables))}")
    for hint in done.hints:
        say(f"hint: {hint}")
    say("to try it now: torchmatrix nightly run; to check: torchmatrix nightly status")


@nightly_app.command("status")
def nightly_status(
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    as_json: options.JsonOption = False,
) -> None:
    """Show what is installed, the next night, and how the last one ended."""
    from torchmatrix.nightly import timers

    status = timers.status(matrix, results, say)
    print(in_json(status) if as_json else "\n".join(f"{name:<11} {text}" for name, text in _status_in_words(status)))


def _status_in_words(status: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("matrix", status["matrix"]), ("results", status["results"])]
    if status["installed"]:
        whose = "of the machine" if status["system"] else "of this user"
        lines.append(("installed", f"{status['backend']} {whose}, every night at {status['at']}: {status['name']}"))
        lines.append(("next", status["next"] or "none: the timer is gone or stopped; torchmatrix nightly install sets it up"))
    elif status["backend"] == "cron":
        lines.append(("installed", f"lines for cron were printed; the crontab is not looked at: {status['name']}"))
    else:
        lines.append(("installed", "no; torchmatrix nightly install"))
    last = status["last"]
    if last is None:
        lines.append(("last night", "none yet"))
    else:
        ended = "under way" if status["held_by"] else "cut short: its end was not recorded"
        lines.append(("last night", last["summary"] if last["exit_code"] is not None else f"night {last['id']}: {ended}"))
        lines.append(("log", last["log"]))
    return [*lines, ("under way", status["held_by"] or "no night")]


@nightly_app.command("remove")
def nightly_remove(matrix: options.MatrixOption = options.MATRIX) -> None:
    """Remove what install set up for this matrix.

    Results, logs and pages stay, and lines that you pasted into a crontab.
    """
    from torchmatrix.nightly import timers

    gone = timers.remove(matrix, say)
    say("removed:" if gone else f"nothing is installed for {matrix.absolute()}")
    if gone:
        print("\n".join(gone))
    if any(path.endswith(".sh") for path in gone):
        say(f"hint: {timers.CRON_LINES_STAY}")


@nightly_app.command("keep")
def nightly_keep(
    results: options.ResultsOption = options.RESULTS,
    keep: KeepOption = None,
    disk_gb: DiskOption = None,
    pin: PinOption = None,
    host: Annotated[str | None, typer.Option("--host", help="Only runs of this host; default: that of the newest run.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without this, only list them.")] = False,
) -> None:
    """List old runs, and remove them with --yes.

    Keeps the newest --keep runs, or fewer if the results take more than --disk-gb.
    """
    from torchmatrix.facts.store import Results
    from torchmatrix.nightly import keeping
    from torchmatrix.nightly.journal import Journal

    if keep is None and disk_gb is None:
        raise BadInput("no limit was given", hint="use --keep N, --disk-gb X, or both")
    store = Results(results)
    newest = store.runs()[-1:]
    stored = keeping.stored_runs(store, host or next((run.path.parent.name for run in newest), ""), pin or [])
    limit = None if disk_gb is None else round(disk_gb * 1e9)
    choice = keeping.choose(stored, keep, limit, keeping.bytes_on_disk(store.root))
    if yes:
        with store.hold():
            for line in keeping.remove_chosen(store, Journal(results), stored, choice):
                say(line)
    else:
        for run in choice.remove:
            print(f"{run.name}  {run.bytes / 1e9:.3f} GB")
    for run in stored:
        if run.stays:
            say(f"stays: {run.name}: {run.stays}")
    if choice.over_bytes:
        say(f"the results still exceed the limit by {choice.over_bytes / 1e9:.3f} GB: all others are new, pinned or not ours")
    say(f"{len(choice.remove)} of {count(len(stored), 'run')} {'removed' if yes else 'to remove; --yes removes'}")


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
    from torchmatrix.nightly.night import NightOptions, gate_arguments

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
    _parse_parameters("run", run_words)
    baseline = _parse_parameters("gate", gate_arguments(settings, RunFolder(Path("HOST/RUN")))).get("baseline")
    return replace(settings, pins=tuple(dict.fromkeys((*settings.pins, baseline)))) if baseline else settings


def _split_words(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise BadInput(f"{option}: {error}: {text}", hint="quote it as you would in a shell") from None


def _parse_parameters(verb: str, words: Sequence[str]) -> dict[str, Any]:
    """Parse `words` as the verb does and return its parameters; checked now rather than at night. Raises BadInput."""
    command = typer.main.get_command(options.app).commands[verb]  # type: ignore[attr-defined]
    try:
        return dict(command.make_context(verb, list(words)).params)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise BadInput(f"--{verb}-with: {error.format_message()}", hint=f"see torchmatrix {verb} --help") from None


def _shown() -> Callable[[bytes], None]:
    """Return what shows the output of the steps on stderr, wherever a piece of it begins and ends."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(data: bytes) -> None:
        print(decoder.decode(data), end="", file=sys.stderr, flush=True)

    return show


def _hide(data: bytes) -> None:
    """Drop what the steps print with --quiet, or if nobody watches: it is in the log, and cron would mail it."""
