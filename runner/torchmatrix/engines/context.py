"""The inputs of a Docker build: the files of its context and the arguments. Pure, except that it reads images/."""

import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from torchmatrix.engines import packages
from torchmatrix.engines.engine import Recipe
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.ground import assets, settings

Files = dict[str, bytes | Path]
"""Paths inside the context -> contents, or their paths on this machine."""


def environment_files(recipe: Recipe, lock: StackLock) -> Files:
    """The context of the environment: its Dockerfile and, for wheels, what to install in each layer."""
    site, dockerfile = settings.load(), dockerfile_of(recipe)
    files: Files = {path.name: path.read_bytes() for path in assets.build_files(dockerfile)}
    if recipe.source != "wheels":
        listed = "".join(f"{line}\n" for line in lock.packages)
        return files | ({"requirements/vendor.txt": listed.encode()} if listed else {})
    by_layer = {"uv": [lock.installer], **packages.layers(lock.packages)}
    for layer, lines in by_layer.items():
        files[f"requirements/{layer}.txt"] = "".join(f"{line}\n" for line in lines).encode()
    if site.ca_bundle:
        files["site.crt"] = site.ca_bundle.read_bytes()
    if site.wheelhouse:
        wanted = {packages.name_of(line) for line in [lock.installer, *lock.packages]}
        wheels = [wheel for wheel in sorted(site.wheelhouse.glob("*.whl")) if packages.name_of(wheel.name) in wanted]
        files |= {f"wheelhouse/{wheel.name}": wheel for wheel in wheels}
    return files


def dockerfile_of(recipe: Recipe) -> str:
    """A wheelhouse has its own Dockerfile, which leaves the wheels out of the image."""
    if recipe.source == "wheels" and settings.load().wheelhouse:
        return "wheelhouse.Dockerfile"
    return str(recipe.dockerfile)


def environment_arguments(recipe: Recipe, base: str) -> dict[str, str]:
    """The build arguments; `base`: the reference to build on, as this machine pulls it."""
    arguments = {"BASE": base, **recipe.arguments}
    if recipe.index is None or settings.load().wheelhouse:
        return arguments
    options = packages.index_options(recipe.index, for_container=True)
    named = dict(zip(options[::2], options[1::2], strict=True))
    default = named["--default-index"]
    return arguments | {"INDEX_URL": named.get("--index", default), "DEFAULT_INDEX_URL": default}


def workload_files() -> Files:
    """The context of the workload's image."""
    dockerfile = "workload.Dockerfile"
    files: Files = {dockerfile: (assets.IMAGES / dockerfile).read_bytes()}
    return files | {str(path.relative_to(assets.IMAGES)): path for path in assets.sources_in(assets.WORKLOAD)}


def write(files: Mapping[str, bytes | Path], folder: Path) -> None:
    """Write `files` as a folder, for a build by hand."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            path.write_bytes(content)


@contextmanager
def archive(files: Mapping[str, bytes | Path]) -> Iterator[IO[bytes]]:
    """`files` as a tar archive with fixed times and owners, so that the layer cache works; on disk, since wheels are large."""
    with tempfile.TemporaryFile() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, content in files.items():
                with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as source:
                    info = tarfile.TarInfo(name)
                    info.size, info.mode = source.seek(0, io.SEEK_END), 0o644
                    source.seek(0)
                    tar.addfile(info, source)
        buffer.seek(0)
        yield buffer
