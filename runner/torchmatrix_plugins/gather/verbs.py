"""The verb gather."""

from typing import TYPE_CHECKING, Annotated

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import complain, in_json, say
from torchmatrix.core.errors import ExitCode, ToolError
from torchmatrix.core.formatting import count, printable

if TYPE_CHECKING:
    from torchmatrix_plugins.gather import ImportResult

MOST_REFUSED = 20
"""How many refused files are named on stderr; --json names all."""


def gather(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="A folder, a .tar or .tar.gz, or user@host:path."),
    ],
    results: options.ResultsOption = options.RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be copied; check nothing.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Copy results of other machines into one folder.

    Copies what is new and lists files that are damaged. Run it again to continue.
    """
    from torchmatrix.facts.store import Results
    from torchmatrix_plugins.gather import gather as bring

    copied: list[ImportResult] = []
    errors: list[ToolError] = []
    for source in sources:
        try:
            copied.append(bring(Results(results), source, dry_run=dry_run, tell=say))
        except ToolError as error:
            complain(printable(str(error)), error.hint)
            errors.append(error)
            continue
        refusals = list(copied[-1].refused.items())
        for name, why in refusals[:MOST_REFUSED]:
            say(f"refused  {printable(name)}: {printable(why)}")
        if len(refusals) > MOST_REFUSED:
            say(f"refused  {count(len(refusals) - MOST_REFUSED, 'further file')}; --json names all")
        if not as_json:
            print(_summary(copied[-1], dry_run))
    if as_json:
        failed = [{"error": str(error), "hint": error.hint} for error in errors]
        print(in_json({"dry_run": dry_run, "sources": [result.as_record() for result in copied], "errors": failed}))
    refused = options.exit_code_of_failures(sum(len(result.refused) for result in copied))
    raise typer.Exit(max([*(error.exit_code for error in errors), refused], default=ExitCode.OK))


def _summary(copied: "ImportResult", dry_run: bool) -> str:
    launches = [f"{copied.new} new", f"{copied.updated} updated"] if copied.updated else [f"{copied.new} new"]
    parts = [
        f"{count(len(copied.runs), 'run')} {'would come' if dry_run else 'came'}, {len(copied.runs_here)} already here",
        f"launches: {', '.join([*launches, f'{copied.here} already here'])}",
    ]
    parts += [f"{copied.unverified} unverified"] if copied.unverified else []
    parts += [f"{len(copied.refused)} refused"] if copied.refused else []
    parts += [f"{count(copied.others, 'other file')} left out"] if copied.others else []
    return f"{printable(copied.source)}: {'; '.join(parts)}"
