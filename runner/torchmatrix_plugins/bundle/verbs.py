"""The verbs of bundle: export, import, kubernetes."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import in_json, say, volume_of
from torchmatrix.core.errors import BadInput
from torchmatrix.machine.vendors import VENDORS

HERE = Path()
bundle_app = typer.Typer(
    cls=options.WholeSummaries,
    help="Carry a matrix to a machine without a network.\n\nOne archive holds images, lock, presets and wheels.",
)


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
    from torchmatrix.running import session
    from torchmatrix_plugins.bundle import archive as bundle

    tell = partial(say, volume=volume_of(quiet, False))
    s = session.prepare(matrix, results, engine, globs or [], where or [], locked=True)
    bundle.export(s, matrix, archive, wheels, tell)
    tell(f"{archive.stat().st_size / 1e9:.2f} GB; on the other machine: torchmatrix bundle import {archive.name}")
    print(archive)


@bundle_app.command("import")
def bundle_import(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="An archive that bundle export wrote.")],
    into: Annotated[
        Path, typer.Option("--into", metavar="FOLDER", help="The folder to write matrix.toml and matrix.lock into.")
    ] = HERE,
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
    from torchmatrix_plugins.bundle import archive as bundle

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
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="The tool's own image, in a registry that the nodes reach.")
    ] = "",
    claim: Annotated[
        str, typer.Option("--claim", metavar="NAME", help="The PersistentVolumeClaim that takes the results.")
    ] = "",
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", min=0, max=64, help="GPUs of each node; 0: only CPUs.")] = 0,
    vendor: Annotated[
        str, typer.Option("--vendor", metavar="NAME", help=f"{_IN_PODS}.", autocompletion=options.complete_one_of(*_VENDORS))
    ] = "nvidia",
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", min=1, max=10_000, help="How many nodes measure, each on its own.")
    ] = 1,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the Job and the ConfigMap.")] = "torchmatrix",
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
