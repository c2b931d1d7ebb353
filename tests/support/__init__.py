"""Helpers that tests of several packages share by import."""

import io
import os
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from torchmatrix import cli
from torchmatrix.core import settings
from torchmatrix.core.streams import PlainStream
from torchmatrix.engines.processes import environment_of

FAKE_PYTHON = Path(__file__).parents[1] / "fake_python"
Command = Callable[..., "subprocess.CompletedProcess[str]"]
PATIENCE_SECONDS = 600.0
"""How long a test waits for something that is certain to come, even on a busy machine."""
REAL_MATRIX = """
[run]
launches = 1
timeout_minutes = 10
[cpus]
counts = [1, 2]
[[stack]]
torch = "2.5.1"
cpu = true
"""
"""The one stack of real PyTorch that most tests measure in virtualenvs; a test appends its workloads."""
OLDEST_MATRIX = REAL_MATRIX.replace('"2.5.1"', '"1.12.1"\npython = "3.9"')
"""The stack that is built as an image: it has a third of the newest one's size."""
NEWEST_MATRIX = REAL_MATRIX.replace("2.5.1", "2.15.0")


def cache_in(folder: Path) -> str:
    """Create a new cache in `folder` and return its path."""
    cache = folder / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    return str(cache)


def full_device(folder: Path) -> Path:
    """Return a device that is always full.

    Root has one of its own: a tool that replaced /dev/full would harm the whole machine.
    """
    if os.geteuid() != 0:
        return Path("/dev/full")
    os.mknod(folder / "full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
    return folder / "full"


def processes_of(owner: bytes) -> list[int]:
    """Return the ids of the processes that carry an owner's mark."""
    return [int(p.name) for p in Path("/proc").glob("[0-9]*") if owner in environment_of(int(p.name))]


def archive_of(files: dict[str, str]) -> io.BytesIO:
    """Return a tar archive of text files, such as the context of an image's build."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o644
            archive.addfile(info, io.BytesIO(text.encode()))
    buffer.seek(0)
    return buffer


def until(condition: Callable[[], object], process: "subprocess.Popen[str] | None" = None) -> None:
    """Wait until `condition` holds; if `process` is to bring it about, only while it lives.

    The limit is far beyond what a busy machine needs: it only ends a wait in vain.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)


def invoke(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in this process, as if it had been started in `folder` with these additional variables.

    Starting Python and importing what a verb needs takes a second; few tests are about that.
    """
    output, errors = (PlainStream(io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)) for _ in range(2))
    command = ["torchmatrix", *words]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.chdir(folder)
        patch.setattr(sys, "argv", command)
        for name, value in variables.items():
            patch.setenv(name, value)
        settings.load.cache_clear()
        code = cli.invoke(command[1:])
    settings.load.cache_clear()
    stdout, stderr = (stream.buffer.getvalue().decode() for stream in (output, errors))
    return subprocess.CompletedProcess(command, int(code), stdout, stderr)
