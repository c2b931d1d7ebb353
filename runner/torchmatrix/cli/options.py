"""The arguments and options that several verbs share, each defined once."""

from pathlib import Path
from typing import Annotated

import typer

from torchmatrix.cli import completing
from torchmatrix.engines.choose import NAMES, SLURM
from torchmatrix.ground.errors import BadInput


def a_file(path: Path | None) -> Path | None:
    """For what is written: others take "-" for standard output, and nobody wants a file of that name. Raises BadInput."""
    if path is not None and str(path) == "-":
        raise BadInput('"-" is not the name of a file', hint="name the file to write, such as out.txt")
    return path


MatrixOption = Annotated[Path, typer.Option("--matrix", help="The matrix file.")]
ResultsOption = Annotated[Path, typer.Option("--results", help="The folder of recorded results.")]
EngineOption = Annotated[
    str,
    typer.Option("--engine", help=f"{', '.join(NAMES[:-1])} or {NAMES[-1]}.", autocompletion=completing.one_of(*NAMES)),
]
RunEngineOption = Annotated[
    str,
    typer.Option("--engine", help=f"{', '.join(NAMES)} or {SLURM}.", autocompletion=completing.one_of(*NAMES, SLURM)),
]
GlobsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CELL]...",
        help="Cell ids, or globs that match them; default: all.",
        show_default=False,
        autocompletion=completing.cells,
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="KEY=VALUE", help="Only cells with this value (or glob); repeatable.", show_default=False),
]
MetricOption = Annotated[
    str,
    typer.Option("--metric", metavar="NAME", help="Which figure, such as latency_p50.", autocompletion=completing.metrics),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the result.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Also print commands and build logs.")]
OutputOption = Annotated[Path, typer.Option("--output", help="The HTML file to write.", callback=a_file)]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="steady, cold, aime or sustained; overrides the matrix.",
        autocompletion=completing.one_of("steady", "cold", "aime", "sustained"),
    ),
]
LaunchesOption = Annotated[
    int | None, typer.Option("--launches", min=1, max=1_000, help="Launches per cell; overrides the matrix.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", help="Repeat each cell until its interval is ± this, for example 1%.")
]
BudgetOption = Annotated[
    float | None,
    typer.Option("--budget", min=0, max=1_000_000, metavar="MINUTES", help="With --until: start no launch after this time."),
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
        autocompletion=completing.stacks,
    ),
]
ParallelOption = Annotated[
    bool,
    typer.Option(
        "--parallel",
        help="Measure cells on different devices at once, if a test shows that they don't disturb each other.",
    ),
]
NewOption = Annotated[bool, typer.Option("--new", help="Start a new run instead of continuing an interrupted one.")]
LockedOption = Annotated[bool, typer.Option("--locked", help="Fail if matrix.lock does not match the matrix exactly.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="DATE", help="Only runs since this date (UTC): 2026-01-31 or 2026-01-31T12:00."),
]
HostOption = Annotated[str | None, typer.Option("--host", help="Only runs of this host.")]
PricesOption = Annotated[
    Path | None, typer.Option("--prices", metavar="FILE", help="GPU prices (CSV or TOML); adds throughput per price.")
]
RedactOption = Annotated[
    bool, typer.Option("--redact", help="Replace hosts, users, serial numbers and private addresses with pseudonyms.")
]
ProfilesOption = Annotated[Path, typer.Option("--profiles", help="Where profiles are kept (never used as results).")]
StepsOption = Annotated[int, typer.Option("--steps", min=1, max=1_000, help="Steps to trace.")]
OperatorsOption = Annotated[
    bool, typer.Option("--operators", help="On a GPU: show the operators that launched the kernels, not the kernels.")
]
NameKernelsOption = Annotated[
    bool,
    typer.Option("--name-kernels", help="On a CPU: name the kernels that torch.compile makes; takes minutes longer."),
]
MATRIX = Path("matrix.toml")
RESULTS = Path("results")
REPORT = Path("reports/index.html")
HISTORY = Path("reports/history.html")
PROFILES = Path("profiles")
PROFILE = Path("reports/profile.html")
WHY = Path("reports/why.html")
