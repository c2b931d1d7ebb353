"""Verbs about what is kept: lock, bundle, clean."""

from pathlib import Path
from typing import Annotated

import typer

from torchmatrix.cli.application import app
from torchmatrix.cli.console import say
from torchmatrix.cli.options import MATRIX, RESULTS, EngineOption, GlobsArgument, MatrixOption, ResultsOption, WhereOption
from torchmatrix.ground.errors import BadInput, BuildFailed, ExitCode, NothingSelected


@app.command()
def lock(
    stacks: Annotated[list[str] | None, typer.Argument(help="Globs on stack names; none: all.", show_default=False)] = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
) -> None:
    """Resolve the stacks: base images to digests, packages to versions and hashes, into matrix.lock beside the matrix."""
    from torchmatrix.engines import locked_stacks
    from torchmatrix.engines import lockfile as locks
    from torchmatrix.running import housekeeping

    chosen, its_engine, unreachable = housekeeping.lockable(matrix, results, engine, stacks or [])
    if not chosen:
        raise NothingSelected(
            "no stack to lock is selected", hint="a stack of wheels or an image; name it by its name or a glob"
        )
    path, failed = locked_stacks.path_beside(matrix), 0
    try:
        held = locks.read(path)
    except BadInput as error:
        if stacks:
            raise BadInput(str(error), hint="make all of it again: torchmatrix lock, without a glob") from None
        held = {}
        say(f"made anew: {error}")
    for name in [] if stacks else sorted(held.keys() - {stack.name for stack in chosen}):
        say(f"removed     {name}: no longer in the matrix")
        del held[name]
    for stack, found in locked_stacks.resolve(chosen, its_engine, unreachable, housekeeping.marks_folder(), lambda line: None):
        if isinstance(found, BuildFailed):
            failed += 1
            say(f"not locked  {stack.name}: {found}")
            continue
        changes = locked_stacks.changes(held.get(stack.name), found)
        say(f"locked      {stack.name}: {len(found.packages)} packages; {', '.join(changes) or 'no change'}")
        if stack.source == "image" and not found.packages:
            say("            nothing was added to it, or it was not built here yet: its packages are locked after a build")
        held[stack.name] = found
    locks.write(path, held.values())
    say(f"{len(held)} stacks in the lock" + (f"; {failed} could not be resolved, their old entries stay" if failed else ""))
    print(path)
    raise typer.Exit(ExitCode.CELL_NOT_OK if failed else ExitCode.OK)


HERE = Path()
bundle_app = typer.Typer(help="Carry a matrix to a machine without network: images, lock, presets, wheels in one archive.")
app.add_typer(bundle_app, name="bundle")


@bundle_app.command("export")
def bundle_export(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write.")],
    globs: GlobsArgument = None,
    where: WhereOption = None,
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    wheels: Annotated[bool, typer.Option("--wheels", help="Also the wheels, for virtualenvs and builds over there.")] = False,
) -> None:
    """Write the selected stacks, locked and built, into one archive."""
    from torchmatrix.running import bundle, session

    s = session.prepare(matrix, results, engine, globs or [], where or [], locked=True)
    bundle.export(s, matrix, archive, wheels, say)
    say(f"{archive.stat().st_size / 1e9:.2f} GB; over there: torchmatrix bundle import {archive.name}")
    print(archive)


@bundle_app.command("import")
def bundle_import(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="The archive that `bundle export` wrote.")],
    into: Annotated[Path, typer.Option("--into", help="The folder for matrix.toml and matrix.lock.")] = HERE,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace a matrix that is there.")] = False,
) -> None:
    """Bring in an archive, after all of it was read and found whole; the matrix then runs without a network."""
    from torchmatrix.engines.choose import choose
    from torchmatrix.facts.store import Results
    from torchmatrix.running import bundle

    found = bundle.load(archive, into, choose(engine, Results(results).owner).builder, force)
    for tag in found.images:
        say(f"image  {tag}")
    if found.wheelhouse:
        say(f"wheels {found.wheelhouse}; to use them: export TORCHMATRIX_WHEELHOUSE={found.wheelhouse}")
    say("next: torchmatrix run --locked")
    print(into / "matrix.toml")


@app.command()
def clean(
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    everything: Annotated[bool, typer.Option("--all", help="Also what this matrix's stacks need.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without, only list it.")] = False,
) -> None:
    """List (and with --yes remove) images, virtualenvs and compile caches that the matrix no longer needs. Results stay."""
    from torchmatrix.running import housekeeping

    found = housekeeping.leftovers(matrix, results, engine, everything)
    for _, leftover in found:
        size = "" if leftover.bytes is None else f"  {leftover.bytes / 2**30:.2f} GiB"
        print(f"{leftover.kind:<10} {leftover.name}{size}")
    total = sum(leftover.bytes or 0 for _, leftover in found) / 2**30
    say(f"{len(found)} to remove, {total:.1f} GiB (images share layers, so that less may become free)" if found else "nothing")
    if not yes:
        say("nothing was removed; to remove it: torchmatrix clean --yes" if found else "")
        return
    problems = [f"{kept.name}: {why}" for its_engine, kept in found if (why := its_engine.remove(kept))]
    for problem in problems:
        say(f"kept {problem}")
    raise typer.Exit(ExitCode.CELL_NOT_OK if problems else ExitCode.OK)
