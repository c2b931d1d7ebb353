"""Verbs that manage what is kept: lock, clean."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import list_runs, say, volume_of
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput, BuildFailed, NothingSelected
from torchmatrix.core.formatting import count


@options.app.command()
def lock(
    stacks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STACK",
            help="Stack names or globs on them; default: all.",
            show_default=False,
            autocompletion=options.complete_stacks,
        ),
    ] = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
) -> None:
    """Pin base images and packages in matrix.lock.

    Resolves base images to digests and packages to versions and hashes; writes matrix.lock beside the matrix.
    """
    from torchmatrix.engines import lockfile as locks
    from torchmatrix.engines import recipes
    from torchmatrix.running import session

    volume = volume_of(quiet, verbose)
    log = say if volume is Volume.VERBOSE else lambda line: None
    chosen, its_engine, unreachable = session.lockable(matrix, results, engine, stacks or [])
    if not chosen:
        _refuse_stacks(matrix, stacks or [])
    path, failed = recipes.lock_path(matrix), 0
    try:
        held = locks.read(path)
    except BadInput as error:
        if stacks:
            raise BadInput(str(error), hint="write it again: torchmatrix lock, without a stack") from None
        held = {}
        say(f"replaced: {error}")
    for name in [] if stacks else sorted(held.keys() - {stack.name for stack in chosen}):
        say(f"removed     {name}: no longer in the matrix", volume)
        del held[name]
    for stack, entry in recipes.resolve_stacks(chosen, its_engine, unreachable, session.marks_folder(), log):
        if isinstance(entry, BuildFailed):
            failed += 1
            say(f"not locked  {stack.name}: {entry}")
            continue
        changes = recipes.lock_changes(held.get(stack.name), entry)
        say(f"locked      {stack.name}: {count(len(entry.packages), 'package')}; {', '.join(changes) or 'no change'}", volume)
        if stack.source == "image" and not entry.packages:
            why = "none were added, or the stack was not built here yet (a build lists its packages)"
            say(f"            no packages: {why}", volume)
        held[stack.name] = entry
    locks.write(path, held.values())
    kept = f"; {failed} not resolved: the old entries stay" if failed else ""
    say(f"{count(len(held), 'stack')} in the lock{kept}", volume)
    print(path)
    raise typer.Exit(options.exit_code_of_failures(failed))


def _refuse_stacks(matrix: Path, globs: list[str]) -> NoReturn:
    """Raise NothingSelected: no stack of the matrix, or none of those requested, can be locked."""
    from torchmatrix.matrix import matrix_file
    from torchmatrix.planning.selection import nearest_words

    names = [stack.name for stack in matrix_file.load(matrix).stacks if stack.source != "interpreter"]
    if not names:
        hint = "a lock pins stacks of wheels and images; an interpreter is used as it is"
        raise NothingSelected(f"{matrix} has no stack that can be locked", hint=hint)
    mismatches = [
        f"{glob} matches no stack that can be locked; the nearest: {', '.join(nearest_words(glob, names))}" for glob in globs
    ]
    raise NothingSelected("; ".join(mismatches), hint="give the names of stacks, or globs that match them")


@options.app.command()
def clean(
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    everything: Annotated[bool, typer.Option("--all", help="Include what the matrix still needs.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="Old runs instead, beyond --keep or --disk-gb.")] = False,
    keep: options.KeepOption = None,
    disk_gb: options.DiskOption = None,
    pin: options.PinOption = None,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="With --runs: only those of this host; default: that of the newest run."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without this, only list them.")] = False,
) -> None:
    """List images, virtualenvs and caches no longer needed; with --runs, old runs.

    With --yes, remove them. Without --runs, results stay.
    """
    limits = {"--keep": keep, "--disk-gb": disk_gb, "--pin": pin, "--host": host}
    if runs:
        return _clean_runs(results, keep, disk_gb, pin or [], host, yes)
    if given := [option for option, value in limits.items() if value is not None]:
        raise BadInput(f"{given[0]} is for runs", hint="torchmatrix clean --runs --keep 60")
    from torchmatrix.running import session

    leftovers = session.leftovers(matrix, results, engine, everything)
    for _, leftover in leftovers:
        size = "" if leftover.bytes is None else f"  {leftover.bytes / 2**30:.2f} GiB"
        print(f"{leftover.kind:<10} {leftover.name}{size}")
    if not leftovers:
        say("nothing to remove")
        return
    total = sum(leftover.bytes or 0 for _, leftover in leftovers) / 2**30
    say(f"{len(leftovers)} to remove, {total:.1f} GiB (images share layers, so less may become free)")
    if not yes:
        say("nothing was removed; to remove these: torchmatrix clean --yes")
        return
    problems = [f"{kept.name}: {why}" for its_engine, kept in leftovers if (why := its_engine.remove(kept))]
    for problem in problems:
        say(f"kept {problem}")
    raise typer.Exit(options.exit_code_of_failures(problems))


def _clean_runs(results: Path, keep: int | None, disk_gb: float | None, pins: list[str], host: str | None, yes: bool) -> None:
    from torchmatrix.facts.store import Results
    from torchmatrix.nightly import keeping
    from torchmatrix.nightly.journal import Journal

    if keep is None and disk_gb is None:
        raise BadInput("no limit was given", hint="use --keep N, --disk-gb X, or both")
    if host == "":
        raise BadInput("--host is empty", hint="leave it out for the host of the newest run")
    store = Results(results)
    newest = list_runs(store)[-1:]
    stored = keeping.stored_runs(store, host or next((run.path.parent.name for run in newest), ""), pins)
    limit = None if disk_gb is None else round(disk_gb * 1e9)
    choice = keeping.choose(stored, keep, limit, keeping.bytes_on_disk(store.root))
    if yes:
        with store.hold():
            for line in keeping.remove_chosen(store, Journal(results), stored, choice):
                say(line)
    else:
        for run in choice.remove:
            print(f"{run.name}  {run.bytes / 1e9:.3f} GB")
        if logs := keeping.logs_without_runs(store, Journal(results), stored, choice.remove):
            say(f"and {count(len(logs), 'log')} of nights")
    for run in stored:
        if run.stays:
            say(f"stays: {run.name}: {run.stays}")
    if choice.over_bytes:
        say(f"the results still exceed the limit by {choice.over_bytes / 1e9:.3f} GB: all others are new, pinned or not ours")
    left = [run for run in choice.remove if yes and run.run.path.exists()]
    done = len(choice.remove) - len(left)
    say(f"{done} of {count(len(stored), 'run')} {'removed' if yes else 'to remove; --yes removes'}")
    raise typer.Exit(options.exit_code_of_failures(left))
