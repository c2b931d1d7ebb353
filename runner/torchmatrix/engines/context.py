"""What a Docker build is given: the files of its context and the arguments. Pure but for reading images/."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from torchmatrix import assets, packages, settings
from torchmatrix.engines import Recipe
from torchmatrix.lock import StackLock

Files = dict[str, bytes | Path]
"""Paths inside the context -> contents, or where they lie on this machine."""


def environment_files(recipe: Recipe, lock: StackLock) -> Files:
    """The context of the environment: its Dockerfile and, for wheels, what to install in each layer."""
    site, dockerfile = settings.load(), dockerfile_of(recipe)
    files: Files = {path.name: path.read_bytes() for path in assets.build_files(dockerfile)}
    if recipe.source != "wheels":
        return files
    by_layer = {"uv": [lock.installer], **packages.layers(lock.packages)}
    for layer, lines in by_layer.items():
        files[f"requirements/{layer}.txt"] = "".join(f"{line}\n" for line in lines).encode()
    if site.ca_bundle:
        files["site.crt"] = site.ca_bundle.read_bytes()
    if site.wheelhouse:
        files |= {f"wheelhouse/{wheel.name}": wheel for wheel in sorted(site.wheelhouse.glob("*.whl"))}
    return files


def dockerfile_of(recipe: Recipe) -> str:
    """A wheelhouse has a Dockerfile of its own, which leaves the wheels out of the image."""
    if recipe.source == "wheels" and settings.load().wheelhouse:
        return "wheelhouse.Dockerfile"
    return str(recipe.dockerfile)


def environment_arguments(recipe: Recipe, base: str) -> dict[str, str]:
    """The build arguments; `base`: the reference to build on, as it is pulled here."""
    arguments = {"BASE": base, **recipe.arguments}
    if recipe.index is None or settings.load().wheelhouse:
        return arguments
    options = packages.index_options(recipe.index, for_container=True)
    named = dict(zip(options[::2], options[1::2], strict=True))
    default = named["--default-index"]
    return arguments | {"INDEX_URL": named.get("--index", default), "DEFAULT_INDEX_URL": default}


def workload_files() -> Files:
    """The context of the workload's image."""
    paths = sorted(p for p in assets.WORKLOAD.rglob("*") if p.suffix in (".py", ".json"))
    dockerfile = "workload.Dockerfile"
    files: Files = {dockerfile: (assets.IMAGES / dockerfile).read_bytes()}
    return files | {str(path.relative_to(assets.IMAGES)): path for path in paths}


def write(files: Mapping[str, bytes | Path], folder: Path) -> None:
    """`files` as a folder, for a build by hand."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.read_bytes() if isinstance(content, Path) else content)


def archive(files: Mapping[str, bytes | Path]) -> io.BytesIO:
    """`files` as a tar archive with fixed times and owners, so that layers are found again."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            data = content.read_bytes() if isinstance(content, Path) else content
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    buffer.seek(0)
    return buffer
