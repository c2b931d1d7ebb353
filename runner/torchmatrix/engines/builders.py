"""Run a `docker build` in one of two ways: buildx, which keeps downloaded packages between builds, or else the docker SDK."""

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import docker

from torchmatrix.core import assets, settings
from torchmatrix.core.errors import BuildFailed
from torchmatrix.engines import containment, packages
from torchmatrix.engines.endpoints import Endpoint
from torchmatrix.engines.engine import Log, Recipe
from torchmatrix.engines.lockfile import StackLock

# The inputs of a Docker build: the files of its context and the arguments. Pure, except that it reads images/.

Files = dict[str, bytes | Path]
"""Paths inside the context -> contents, or their paths on this machine."""


def environment_files(recipe: Recipe, lock: StackLock) -> Files:
    """Return the build context of the environment: its Dockerfile and, for wheels, what to install in each layer."""
    site, dockerfile = settings.load(), dockerfile_of(recipe)
    files: Files = {path.name: path.read_bytes() for path in assets.build_files(dockerfile)}
    if recipe.source != "wheels":
        requirements = "".join(f"{line}\n" for line in lock.packages)
        return files | ({"requirements/vendor.txt": requirements.encode()} if requirements else {})
    by_layer = {"uv": [lock.installer], **packages.layers(lock.packages)}
    for layer, lines in by_layer.items():
        files[f"requirements/{layer}.txt"] = "".join(f"{line}\n" for line in lines).encode()
    if site.ca_bundle:
        files["site.crt"] = site.ca_bundle.read_bytes()
    if site.wheelhouse:
        names = {packages.name_of(line) for line in [lock.installer, *lock.packages]}
        wheels = [wheel for wheel in sorted(site.wheelhouse.glob("*.whl")) if packages.name_of(wheel.name) in names]
        files |= {f"wheelhouse/{wheel.name}": wheel for wheel in wheels}
    return files


def dockerfile_of(recipe: Recipe) -> str:
    """Return the recipe's Dockerfile. A wheelhouse has its own, which leaves the wheels out of the image."""
    if recipe.source == "wheels" and settings.load().wheelhouse:
        return "wheelhouse.Dockerfile"
    return str(recipe.dockerfile)


def environment_arguments(recipe: Recipe, base: str) -> dict[str, str]:
    """Return the build arguments; `base`: the reference to build on, as this machine pulls it."""
    arguments = {"BASE": base, **recipe.arguments}
    if recipe.index is None or settings.load().wheelhouse:
        return arguments
    options = packages.index_options(recipe.index, for_container=True)
    values = dict(zip(options[::2], options[1::2], strict=True))
    default = values["--default-index"]
    return arguments | {"INDEX_URL": values.get("--index", default), "DEFAULT_INDEX_URL": default}


def workload_files() -> Files:
    """Return the build context of the workload's image."""
    dockerfile = "workload.Dockerfile"
    files: Files = {dockerfile: (assets.IMAGES / dockerfile).read_bytes()}
    return files | {str(path.relative_to(assets.IMAGES)): path for path in assets.sources_in(assets.WORKLOAD)}


def write_context(files: Mapping[str, bytes | Path], folder: Path) -> None:
    """Write `files` as a folder, for a build by hand."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            path.write_bytes(content)


@contextmanager
def context_archive(files: Mapping[str, bytes | Path]) -> Iterator[IO[bytes]]:
    """Archive `files` with fixed times and owners, so that the layer cache works; on disk, since wheels are large."""
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


CACHE = "--mount=type=cache,target=/root/.cache/uv,sharing=locked"
"""A folder that install.sh uses if it exists; it is not part of the image."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BUILDER_LINES = re.compile(r"Removing intermediate container |ERROR: (process|failed to solve)|-----|>>>| > |DONE |CANCELED")
"""Lines that don't come from the step's program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """The inputs of `docker build`."""

    files: Files
    dockerfile: str
    arguments: dict[str, str]
    tag: str
    labels: dict[str, str]


@cache
def has_buildx(where: Endpoint) -> bool:
    """Check whether the docker command line has buildx. A context's builder has its name and works on that context's daemon."""
    if shutil.which("docker") is None:
        return False
    command = ["docker", "buildx", "inspect", where.context]
    try:
        result = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=20, env=_variables(where)
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0 and "Status: running" in re.sub(r" +", " ", result.stdout)


def _variables(where: Endpoint) -> dict[str, str]:
    """Return this process's variables, so that the docker command line uses the SDK's daemon. DOCKER_HOST would win."""
    return {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"} | where.variables


def buildx(where: Endpoint, build: Build, log: Log) -> None:
    """Build with the docker command line. Raises BuildFailed."""
    dockerfile = build.files[build.dockerfile]
    assert isinstance(dockerfile, bytes)
    files = {**build.files, build.dockerfile: with_cache(dockerfile.decode()).encode()}
    command = ["docker", "buildx", "build", "--builder", where.context, "--load", "--progress", "plain"]
    command += ["--provenance", "false", "--file", build.dockerfile, "--tag", build.tag]
    command += [part for name in proxies() for part in ("--build-arg", name)]
    command += [part for name, value in build.arguments.items() for part in ("--build-arg", f"{name}={value}")]
    command += [part for name, value in build.labels.items() for part in ("--label", f"{name}={value}")]
    outcome = _BuildLog()

    def keep(line: str) -> None:
        if line:
            outcome.add(plain(line))
            log(line)

    with context_archive(files) as archive:
        returncode = containment.run([*command, "-"], keep, variables=_variables(where), given=archive)
    if returncode:
        raise BuildFailed(outcome.failure(build))


def plain(line: str) -> str:
    """Return a line of buildx without the number of its step and the seconds."""
    return _COLOUR.sub("", re.sub(r"^#\d+ ([\d.]+ )?", "", line))


def with_cache(dockerfile: str) -> str:
    """Mount a package cache in a Dockerfile where packages are installed, which only BuildKit understands."""
    return re.sub(r"(?m)^RUN (?=sh /opt/build/install\.sh)", f"RUN {CACHE} ", dockerfile)


def classic(client: docker.DockerClient, build: Build, log: Log) -> None:
    """Build with the docker SDK. Raises BuildFailed, and what the SDK raises."""
    outcome, rest, error = _BuildLog(), "", None
    with context_archive(build.files) as archive:
        stream = client.api.build(
            fileobj=archive, custom_context=True, dockerfile=build.dockerfile, tag=build.tag, rm=True, forcerm=True,
            buildargs=build.arguments | proxies(), labels=build.labels, decode=True,
        )  # fmt: skip
        for chunk in stream:
            *lines, rest = (rest + _chunk_text(chunk)).split("\n")
            for line in filter(str.strip, lines):
                outcome.add(line)
                log(line)
            error = chunk.get("error") or error
    if error:  # only now, since reading a stream to its end closes it
        outcome.last = str(error).strip()
        raise BuildFailed(outcome.failure(build))


def _chunk_text(chunk: dict[str, Any]) -> str:
    """Return a chunk's addition to the log: a step's output comes in pieces, its standard error in red."""
    if "status" in chunk:
        return f"{chunk['status']}\n"
    return _COLOUR.sub("", str(chunk.get("stream", ""))).replace("\r", "\n")


class _BuildLog:
    """The end of a build, from its lines: the step it was in, its program's output from the first error on, the last line."""

    def __init__(self) -> None:
        self.step, self.last = "", ""
        self.errors: list[str] = []

    def add(self, line: str) -> None:
        """Take in one line."""
        step = re.match(r"(?i:step) \d+/\d+ ?: (.*)|\[[^]]*\d+/\d+\] (.*)|\[internal\] load metadata for", line)
        if step:
            self.step, self.errors = step[1] or step[2] or "FROM", []
        elif self.errors or line.lower().startswith("error: "):
            self.errors += [line] if not _BUILDER_LINES.match(line) else []
        if line.strip():
            self.last = line.strip()

    def failure(self, build: Build) -> str:
        """Describe the failure; with the builder's own last line if the program printed nothing."""
        place = f"base image {build.arguments.get('BASE')}" if self.step.startswith("FROM") else self.step.partition(" ")[0]
        message = packages.first_error(self.errors) if self.errors else self.last
        return f"{place or 'build'}: {re.sub('^error: ', '', message, flags=re.IGNORECASE)}"


def proxies() -> dict[str, str]:
    """Return the proxies of this site, as build arguments that Docker predefines and leaves out of the image; never logged."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
    spellings = (spelling for name in names for spelling in (name, name.lower()))
    return {name: os.environ[name] for name in spellings if name in os.environ}
