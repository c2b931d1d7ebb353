"""The arguments and options that several verbs share, each said once."""

from pathlib import Path
from typing import Annotated

import typer

MatrixOption = Annotated[Path, typer.Option("--matrix", help="The matrix file.")]
ResultsOption = Annotated[Path, typer.Option("--results", help="The folder of facts.")]
EngineOption = Annotated[str, typer.Option("--engine", help="auto, docker or local.")]
GlobsArgument = Annotated[list[str] | None, typer.Argument(help="Globs on cell ids; none: all cells.", show_default=False)]
WhereOption = Annotated[
    list[str] | None, typer.Option("--where", help="KEY=VALUE on a cell's fields; may be repeated.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OutputOption = Annotated[Path, typer.Option("--output", help="The HTML file.")]
MethodOption = Annotated[str | None, typer.Option("--method", help="steady, cold or aime, instead of the matrix's.")]
LaunchesOption = Annotated[int | None, typer.Option("--launches", min=1, help="Launches per cell, instead of the matrix's.")]
UntilOption = Annotated[
    str | None, typer.Option("--until", help="As many launches as narrow each interval to this half-width, such as 1%.")
]
BudgetOption = Annotated[
    float | None, typer.Option("--budget", min=0, help="With --until: no further launches after so many minutes.")
]
NewOption = Annotated[bool, typer.Option("--new", help="Start a new run even if one was interrupted.")]
LockedOption = Annotated[
    bool, typer.Option("--locked", help="Fail where matrix.lock does not hold exactly what the matrix asks for.")
]
SinceOption = Annotated[
    str | None, typer.Option("--since", help="Only runs begun on this day or later: 2026-01-31, or 2026-01-31T12:00 (UTC).")
]
HostOption = Annotated[str | None, typer.Option("--host", help="Only runs of this host.")]
PricesOption = Annotated[
    Path | None, typer.Option("--prices", help="What GPUs cost (CSV or TOML): adds figures per unit of the currency.")
]
RedactOption = Annotated[
    bool, typer.Option("--redact", help="Pseudonyms instead of hosts, users, serial numbers and private addresses.")
]
MATRIX = Path("matrix.toml")
RESULTS = Path("results")
REPORT = Path("reports/index.html")
HISTORY = Path("reports/history.html")
