"""The verb that brings results of other machines together: gather."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from torchmatrix.cli import exit_codes
from torchmatrix.cli.application import app
from torchmatrix.cli.console import complain, say
from torchmatrix.cli.options import RESULTS, JsonOption, ResultsOption
from torchmatrix.ground.errors import ExitCode, ToolError
from torchmatrix.ground.formatting import count, printable

if TYPE_CHECKING:
    from torchmatrix.facts.gathering import Brought

MOST_REFUSED = 20
"""How many refused files are named on stderr; --json names all."""


@app.command()
def gather(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="A folder, a .tar, .tar.gz or .zip, user@host:path, or a site's address."),
    ],
    results: ResultsOption = RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be copied; check nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy results of other machines into one folder.

    Copies what is new and lists files that are damaged. Run it again to continue.
    """
    from torchmatrix.facts.gathering import gather as bring
    from torchmatrix.facts.store import Results

    found: list[Brought] = []
    errors: list[ToolError] = []
    for source in sources:
        try:
            found.append(bring(Results(results), source, dry_run=dry_run, tell=say))
        except ToolError as error:
            complain(printable(str(error)), error.hint)
            errors.append(error)
            continue
        _name_refused(found[-1])
        if not as_json:
            print(_in_words(found[-1], dry_run))
    if as_json:
        failed = [{"error": str(error), "hint": error.hint} for error in errors]
        print(json.dumps({"dry_run": dry_run, "sources": [one.as_record() for one in found], "errors": failed}))
    refused = exit_codes.of_failures(sum(len(one.refused) for one in found))
    raise typer.Exit(max([*(error.exit_code for error in errors), refused], default=ExitCode.OK))


def _name_refused(brought: "Brought") -> None:
    for name, why in list(brought.refused.items())[:MOST_REFUSED]:
        say(f"refused  {printable(name)}: {printable(why)}")
    if len(brought.refused) > MOST_REFUSED:
        say(f"refused  {count(len(brought.refused) - MOST_REFUSED, 'further file')}; --json names all")


def _in_words(brought: "Brought", dry_run: bool) -> str:
    launches = [f"{brought.new} new", f"{brought.updated} updated"] if brought.updated else [f"{brought.new} new"]
    parts = [
        f"{count(len(brought.runs), 'run')} {'would come' if dry_run else 'came'}, {len(brought.runs_here)} already here",
        f"launches: {', '.join([*launches, f'{brought.here} already here'])}",
    ]
    parts += [f"{brought.unverified} unverified"] if brought.unverified else []
    parts += [f"{len(brought.refused)} refused"] if brought.refused else []
    parts += [f"{count(brought.others, 'other file')} left out"] if brought.others else []
    return f"{printable(brought.source)}: {'; '.join(parts)}"
