"""Two ways to do the same `docker build`: buildx, which keeps downloaded packages between builds, or else the docker SDK."""

import atexit
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import docker

from torchmatrix.engines import Log, context
from torchmatrix.errors import BuildFailed

CACHE = "--mount=type=cache,target=/root/.cache/uv,sharing=locked"
"""install.sh uses this folder if it is there; it is no part of the image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """What `docker build` is told."""

    files: context.Files
    dockerfile: str
    arguments: dict[str, str]
    tag: str
    labels: dict[str, str]


@cache
def has_buildx() -> bool:
    """Does the docker command line have buildx? Its default builder then works on the daemon that the SDK talks to."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(["docker", "buildx", "inspect", "default"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0 and "Status: running" in re.sub(r" +", " ", asked.stdout)


def buildx(build: Build, log: Log) -> None:
    """By the docker command line. Raises BuildFailed."""
    dockerfile = build.files[build.dockerfile]
    assert isinstance(dockerfile, bytes)
    files = {**build.files, build.dockerfile: with_cache(dockerfile.decode()).encode()}
    words = ["docker", "buildx", "build", "--builder", "default", "--load", "--progress", "plain", "--provenance", "false"]
    words += ["--file", build.dockerfile, "--tag", build.tag]
    words += [part for name in proxies() for part in ("--build-arg", name)]
    words += [part for name, value in build.arguments.items() for part in ("--build-arg", f"{name}={value}")]
    words += [part for name, value in build.labels.items() for part in ("--label", f"{name}={value}")]
    said = _Said()
    with subprocess.Popen(
        [*words, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        atexit.register(process.kill)  # builds run in threads, which an interruption ends without a word
        try:
            shutil.copyfileobj(context.archive(files), process.stdin)
            process.stdin.close()
            for line in _lines(process.stdout):
                said.hear(plain(line))
                log(line)
        except BrokenPipeError:
            said.last = said.last or "the builder went away"
        finally:
            atexit.unregister(process.kill)
    if process.returncode:
        raise BuildFailed(said.failure(build))


def plain(line: str) -> str:
    """A line of buildx without the number of its step and the seconds."""
    return re.sub(r"^#\d+ ([\d.]+ )?", "", line)


def with_cache(dockerfile: str) -> str:
    """The Dockerfile with a package cache mounted where packages are installed, which only BuildKit understands."""
    return re.sub(r"(?m)^RUN (?=sh /opt/build/install\.sh)", f"RUN {CACHE} ", dockerfile)


def classic(client: docker.DockerClient, build: Build, log: Log) -> None:
    """By the docker SDK. Raises BuildFailed, and what the SDK raises."""
    stream = client.api.build(
        fileobj=context.archive(build.files), custom_context=True, dockerfile=build.dockerfile, tag=build.tag, rm=True,
        forcerm=True, buildargs=build.arguments | proxies(), labels=build.labels, decode=True,
    )  # fmt: skip
    said, error = _Said(), None
    for chunk in stream:
        for line in str(chunk.get("stream") or chunk.get("status") or "").splitlines():
            if line.strip():
                said.hear(line)
                log(line)
        error = chunk.get("error") or error
    if error:  # only now, since a stream read to its end is a closed one
        said.last = str(error).strip()
        raise BuildFailed(said.failure(build))


class _Said:
    """What a build's lines say of its end: the step it was in, its own error line, the last line."""

    def __init__(self) -> None:
        self.step, self.error, self.last = "", "", ""

    def hear(self, line: str) -> None:
        """One line."""
        step = re.match(r"Step \d+/\d+ : (.*)|\[[^]]*\d+/\d+\] (.*)", line)
        if step:
            self.step, self.error = step[1] or step[2], ""
        if line.startswith("error: "):
            self.error = line.removeprefix("error: ")
        if line.strip():
            self.last = line.strip()

    def failure(self, build: Build) -> str:
        """In one line."""
        place = f"base image {build.arguments.get('BASE')}" if self.step.startswith("FROM") else self.step.partition(" ")[0]
        return f"{place or 'build'}: {self.error or self.last}"


def _lines(stream: Iterable[bytes]) -> Iterator[str]:
    for line in stream:
        if line.strip():
            yield line.decode(errors="replace").rstrip()


def proxies() -> dict[str, str]:
    """The proxies of this site, as build arguments that Docker knows and leaves out of the image; never logged."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
    return {name: os.environ[name] for known in names for name in (known, known.lower()) if name in os.environ}
