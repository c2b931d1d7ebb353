"""Verbs that manage what is kept: lock, bundle, clean."""

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import complain, in_json, say, volume_of
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput, BuildFailed, ExitCode, NothingSelected, ToolError
from torchmatrix.core.formatting import count, printable
from torchmatrix.machine.vendors import VENDORS


@options.app.command()
def lock(
    stacks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STACK]...",
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


HERE = Path()
bundle_app = typer.Typer(
    cls=options.WholeSummaries,
    help="Carry a matrix to a machine without a network.\n\nOne archive holds images, lock, presets and wheels.",
)
options.app.add_typer(bundle_app, name="bundle")


@bundle_app.command("export")
def bundle_export(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write.", callback=options.a_file)],
    globs: options.GlobsArgument = None,
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    wheels: Annotated[
        bool, typer.Option("--wheels", help="Add the wheels, for virtualenvs and builds on the other machine.")
    ] = False,
    quiet: options.QuietOption = False,
) -> None:
    """Write the selected stacks, locked and built, into one archive."""
    from torchmatrix.running import bundle, session

    tell = partial(say, volume=volume_of(quiet, False))
    s = session.prepare(matrix, results, engine, globs or [], where or [], locked=True)
    bundle.export(s, matrix, archive, wheels, tell)
    tell(f"{archive.stat().st_size / 1e9:.2f} GB; on the other machine: torchmatrix bundle import {archive.name}")
    print(archive)


@bundle_app.command("import")
def bundle_import(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="An archive that bundle export wrote.")],
    into: Annotated[Path, typer.Option("--into", help="The folder to write matrix.toml and matrix.lock into.")] = HERE,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace an existing matrix, and move tags of images.")] = False,
    quiet: options.QuietOption = False,
) -> None:
    """Unpack an archive; its matrix then runs without a network.

    Changes nothing unless the archive is complete and undamaged.
    """
    from torchmatrix.engines.choose import choose
    from torchmatrix.facts.store import Results
    from torchmatrix.running import bundle

    loaded = bundle.load(archive, into, choose(engine, Results(results).owner).builder, force)
    volume = volume_of(quiet, False)
    for tag in loaded.images:
        say(f"image  {tag}", volume)
    if loaded.wheelhouse:
        say(f"wheels {loaded.wheelhouse}; to use them: export TORCHMATRIX_WHEELHOUSE={loaded.wheelhouse}", volume)
    say("next: torchmatrix run --locked", volume)
    print(into / "matrix.toml")


_VENDORS = [vendor.name for vendor in VENDORS.values() if vendor.pod_resource]
_IN_PODS = " or ".join(_VENDORS)


@bundle_app.command("kubernetes")
def bundle_kubernetes(
    globs: options.GlobsArgument = None,
    where: options.WhereOption = None,
    image: Annotated[str, typer.Option("--image", help="The tool's own image, in a registry that the nodes reach.")] = "",
    claim: Annotated[str, typer.Option("--claim", help="The PersistentVolumeClaim that takes the results.")] = "",
    gpus: Annotated[int, typer.Option("--gpus", min=0, max=64, help="GPUs of each node; 0: only CPUs.")] = 0,
    vendor: Annotated[
        str, typer.Option("--vendor", help=f"{_IN_PODS}.", autocompletion=options.complete_one_of(*_VENDORS))
    ] = "nvidia",
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=10_000, help="How many nodes measure, each on its own.")] = 1,
    name: Annotated[str, typer.Option("--name", help="The name of the Job and the ConfigMap.")] = "torchmatrix",
    matrix: options.MatrixOption = options.MATRIX,
) -> None:
    """Print manifests for Kubernetes: a Job that runs the matrix on each of several nodes.

    As JSON, for kubectl apply -f -. Nothing was tried on a real cluster.
    """
    from torchmatrix.running import kubernetes

    if not image or not claim:
        raise BadInput("--image and --claim are needed", hint="docs/kubernetes.md shows how to build the image")
    if vendor not in kubernetes.GPUS:
        raise BadInput(f"--vendor is {vendor}, not {_IN_PODS}", hint="--vendor nvidia")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", name):
        raise BadInput(f"--name {name} is no name for Kubernetes", hint="use up to 52 small letters, digits and -")
    words = (*(globs or ()), *(word for condition in where or () for word in ("--where", condition)))
    wanted = kubernetes.Wanted(name=name, image=image, claim=claim, gpus=gpus, vendor=vendor, nodes=nodes, words=words)
    print(in_json(kubernetes.manifests(matrix, wanted), indent=2))


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
        str | None, typer.Option("--host", help="With --runs: only those of this host; default: that of the newest run.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without this, only list them.")] = False,
) -> None:
    """List images, virtualenvs and caches no longer needed; with --runs, old runs.

    With --yes, remove them. Without --runs, results stay.
    """
    from torchmatrix.running import session

    limits = {"--keep": keep, "--disk-gb": disk_gb, "--pin": pin, "--host": host}
    if runs:
        return _clean_runs(results, keep, disk_gb, pin or [], host, yes)
    if given := [option for option, value in limits.items() if value is not None]:
        raise BadInput(f"{given[0]} is for runs", hint="torchmatrix clean --runs --keep 60")
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
    store = Results(results)
    newest = store.runs()[-1:]
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
    for run in stored:
        if run.stays:
            say(f"stays: {run.name}: {run.stays}")
    if choice.over_bytes:
        say(f"the results still exceed the limit by {choice.over_bytes / 1e9:.3f} GB: all others are new, pinned or not ours")
    say(f"{len(choice.remove)} of {count(len(stored), 'run')} {'removed' if yes else 'to remove; --yes removes'}")


if TYPE_CHECKING:
    from torchmatrix.facts.gathering import ImportResult

MOST_REFUSED = 20
"""How many refused files are named on stderr; --json names all."""


@options.app.command()
def gather(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="A folder, a .tar, .tar.gz or .zip, user@host:path, or a site's address."),
    ],
    results: options.ResultsOption = options.RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be copied; check nothing.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Copy results of other machines into one folder.

    Copies what is new and lists files that are damaged. Run it again to continue.
    """
    from torchmatrix.facts.gathering import gather as bring
    from torchmatrix.facts.store import Results

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
