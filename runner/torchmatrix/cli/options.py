"""Declare the command's options and arguments, their completion, its exit codes, and the groups of verbs."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from torchmatrix.core.errors import BadInput, ExitCode, ToolError
from torchmatrix.core.files import resolve_links
from torchmatrix.engines import choose

# The Typer application that the verbs' modules add to, and the groups of verbs in its help.

GROUPS = {
    "Start": ("init", "presets", "doctor", "plan"),
    "Measure": ("build", "run", "batch", "explain", "reproduce"),
    "Read": ("report", "compare", "history", "export", "gate"),
    "Keep": ("lock", "clean"),
}
"""The core's verbs in the order of use; those of plugins follow, by name."""
LONGEST_SUMMARY = 1_000
"""Click cuts summaries to one line; they are wrapped here instead."""


class VerbsInGroups(TyperGroup):
    """Lists the verbs under their headings. Typer's own headings would load Rich, which takes longer than everything else."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = [verb for verbs in GROUPS.values() for verb in verbs]
        return [*own, *sorted(self.commands.keys() - set(own))]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, verbs in GROUPS.items():
            _write_section(formatter, heading, {verb: self.commands[verb] for verb in verbs})
        if more := self.list_commands(ctx)[sum(map(len, GROUPS.values())) :]:
            _write_section(formatter, "Plugins", {verb: self.commands[verb] for verb in more})


class WholeSummaries(TyperGroup):
    """Lists the commands below a verb."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        _write_section(formatter, "Commands", self.commands)


class Volume(IntEnum):
    """How much is printed on stderr: only errors; progress and results; also commands and build logs."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


def _write_section(formatter: Any, heading: str, commands: Mapping[str, Any]) -> None:
    with formatter.section(heading):
        rows = [(f"{name:<9}", command.get_short_help_str(LONGEST_SUMMARY)) for name, command in commands.items()]
        formatter.write_dl(rows)


app = typer.Typer(
    name="torchmatrix",
    cls=VerbsInGroups,
    help="A reproducible benchmark matrix for PyTorch: versions x CUDA/ROCm/CPU x GPUs, one HTML report.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


# Completion in a shell: cells, stacks, presets, runs. Empty if the matrix or the results can't be read.

MOST = 200
"""The most completions: nobody reads a longer list."""


def complete_cells(ctx: Any, incomplete: str) -> list[str]:
    """Complete ids of the matrix's cells, including those that this machine skips."""
    from torchmatrix.machine import host
    from torchmatrix.matrix import matrix_file
    from torchmatrix.planning.fit import Prerequisites
    from torchmatrix.planning.plan import make_plan

    def ids() -> list[str]:
        made = make_plan(matrix_file.load(_path(ctx, "matrix")), host.detect(), Prerequisites(containers=True))
        return [cell.id for cell in (*made.cells, *(skip.cell for skip in made.skips))]

    return _starting_with(incomplete, ids)


def complete_stacks(ctx: Any, incomplete: str) -> list[str]:
    from torchmatrix.matrix import matrix_file

    return _starting_with(incomplete, lambda: [stack.name for stack in matrix_file.load(_path(ctx, "matrix")).stacks])


def complete_presets(incomplete: str) -> list[str]:
    from torchmatrix.matrix import variants

    return _starting_with(incomplete, variants.preset_names)


def complete_runs(ctx: Any, incomplete: str) -> list[str]:
    """Complete `last` and `last~1`, then the runs, newest first."""
    from torchmatrix.facts.store import Results

    def words() -> list[str]:
        return ["last", "last~1", *(run.id for run in reversed(Results(_path(ctx, "results")).runs()))]

    return _starting_with(incomplete, words)


def complete_runs_and_machines(ctx: Any, incomplete: str) -> list[str]:
    """Complete machines by their labels, then runs."""
    from torchmatrix.analysis import machines
    from torchmatrix.facts.store import Results

    def labels() -> list[str]:
        return [machine.label for machine, _ in machines.grouped(Results(_path(ctx, "results")).runs())]

    return [*_starting_with(incomplete, labels), *complete_runs(ctx, incomplete)]


def complete_one_of(*words: str) -> Callable[[str], list[str]]:
    """Return a function that completes one of a few fixed words."""
    return lambda incomplete: _starting_with(incomplete, lambda: words)


def complete_metrics(incomplete: str) -> list[str]:
    from torchmatrix.analysis.metrics import BY_NAME

    return _starting_with(incomplete, lambda: BY_NAME)


def _path(ctx: Any, name: str) -> Path:
    """Return the path of an option that was typed before, or its default."""
    return Path(ctx.params.get(name) or {"matrix": MATRIX, "results": RESULTS}[name])


def _starting_with(incomplete: str, words: Callable[[], Iterable[str]]) -> list[str]:
    with suppress(ToolError):  # the verb reports a broken matrix; completion doesn't
        return [word for word in words() if word.startswith(incomplete)][:MOST]
    return []


def a_file(path: Path | None) -> Path | None:
    """Refuse "-" for a file to write: others take it for standard output, nobody wants a file of that name; and a name that
    facts, pseudonyms, locks, matrices or models have, itself or where a link leads: they would be lost. Raises BadInput.
    """
    return _a_file(path, ".toml", *_KEPT)


def a_matrix(path: Path | None) -> Path | None:
    """Refuse for a matrix to write what a_file refuses for others. Raises BadInput."""
    return _a_file(path, *_KEPT)


_KEPT = (".jsonl", ".lock", ".log", ".py")
"""Endings of files that can't be made again."""


def _a_file(path: Path | None, *kept: str) -> Path | None:
    if path is None:
        return None
    if str(path) == "-":
        raise BadInput('"-" is not the name of a file', hint="name the file to write, such as out.txt")
    from torchmatrix.reporting.redaction import identities

    meant = path
    with suppress(OSError):  # told where it is written
        meant = resolve_links(path)
    if not {name.casefold() for name in (path.suffix, path.name, meant.suffix, meant.name)}.isdisjoint(
        (*kept, identities.FILE)
    ):
        what = "recorded facts, pseudonyms, a lock, a matrix or a model"
        raise BadInput(f"{path} has the name of {what}, or leads to one: it isn't written over", hint="name another file")
    return path


MatrixOption = Annotated[Path, typer.Option("--matrix", metavar="FILE", help="The matrix file.")]
ResultsOption = Annotated[Path, typer.Option("--results", metavar="FOLDER", help="The folder of recorded results.")]


def refuse_messages(asked: bool, is_published: bool) -> None:
    """Raise BadInput for --with-messages where nothing is left out."""
    if asked and not is_published:
        raise BadInput(
            "--with-messages is about pages to be published", hint="add --redact, or leave it out: nothing is missing"
        )


def _engine_of(*names: str) -> Any:
    words = f"{', '.join(names[:-1])} or {names[-1]}."
    return typer.Option("--engine", metavar="NAME", help=words, autocompletion=complete_one_of(*names))


EngineOption = Annotated[str, _engine_of(*choose.names())]
RunEngineOption = Annotated[str, _engine_of(*choose.names(), *choose.schedulers())]
GlobsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CELL",
        help="Cells or stacks, or globs that match them; default: all.",
        show_default=False,
        autocompletion=complete_cells,
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="KEY=VALUE", help="Only cells with this value (or glob); repeatable.", show_default=False),
]
MetricOption = Annotated[
    str,
    typer.Option("--metric", metavar="NAME", help="Which figure, such as latency_p50.", autocompletion=complete_metrics),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the result.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Also print commands and build logs.")]
OutputOption = Annotated[Path, typer.Option("--output", metavar="FILE", help="The HTML file to write.", callback=a_file)]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help="steady, cold, aime or sustained; overrides the matrix.",
        autocompletion=complete_one_of("steady", "cold", "aime", "sustained"),
    ),
]
LaunchesOption = Annotated[
    int | None, typer.Option("--launches", metavar="N", min=1, max=1_000, help="Launches per cell; overrides the matrix.")
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="PERCENT", help="Repeat each cell until its interval is ± this, for example 1%, or until: decided."
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget", min=0, max=1_000_000, metavar="MINUTES", help="With --until: begin no further round after this time."
    ),
]
ColdCompilesOption = Annotated[
    int | None,
    typer.Option(
        "--cold-compiles",
        min=0,
        max=1_000,
        metavar="N",
        help="Launches per compiled cell that start with an empty compile cache.",
    ),
]
AbOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--ab",
        metavar="STACK STACK",
        help="Alternate two stacks and report how much faster or slower the first is.",
        show_default=False,
        autocompletion=complete_stacks,
    ),
]
AnywayOption = Annotated[
    bool, typer.Option("--anyway", help="Measure even beside another run on the same devices; both disturb each other.")
]
NewOption = Annotated[bool, typer.Option("--new", help="Start a new run instead of continuing an interrupted one.")]
LockedOption = Annotated[bool, typer.Option("--locked", help="Fail if matrix.lock does not match the matrix exactly.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="DATE", help="Only runs since this date (UTC): 2026-01-31 or 2026-01-31T12:00."),
]
HostOption = Annotated[str | None, typer.Option("--host", metavar="HOST", help="Only runs of this host.")]
PricesOption = Annotated[
    Path | None, typer.Option("--prices", metavar="FILE", help="Prices of devices (CSV or TOML): adds what items cost.")
]
RedactOption = Annotated[
    bool, typer.Option("--redact", help="Replace hosts, users, serial numbers and private addresses with pseudonyms.")
]
MessagesOption = Annotated[
    bool,
    typer.Option(
        "--with-messages",
        help="With --redact or --publish: also what failed workloads, libraries and builds said, and the matrix's comments.",
    ),
]
MATRIX = Path("matrix.toml")
RESULTS = Path("results")
REPORT = Path("reports/index.html")
HISTORY = Path("reports/history.html")


# Exit codes: from the facts or from the result of running, never from what was printed.


def exit_code_of_launches(outcomes: Mapping[str, int]) -> ExitCode:
    """Return the exit code of launches. `outcomes`: their number by outcome."""
    from torchmatrix.facts.launch import UNLIKE

    return ExitCode.OK if set(outcomes) <= {"ok", UNLIKE} else ExitCode.CELL_NOT_OK


def exit_code_of_failures(failed: Collection[object] | int) -> ExitCode:
    """Return the exit code. `failed`: the stacks that couldn't be built or locked, or the things that couldn't be removed."""
    return ExitCode.CELL_NOT_OK if failed else ExitCode.OK


KeepOption = Annotated[
    int | None, typer.Option("--keep", metavar="N", min=2, max=1_000_000, help="Keep this many complete runs; default: all.")
]
DiskOption = Annotated[
    float | None,
    typer.Option("--disk-gb", metavar="GB", min=0, max=1_000_000, help="Limit the results to this many GB; default: no limit."),
]
PinOption = Annotated[
    list[str] | None,
    typer.Option("--pin", metavar="RUN", help="Never remove this run; repeatable.", autocompletion=complete_runs),
]
