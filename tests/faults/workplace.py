"""Workplace of one attempt: an empty folder with a small matrix, in which the tool is started as a user starts it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

from support import FAKE_PYTHON, PATIENCE_SECONDS, cache_in, processes_of
from torchmatrix.facts.store import Results

MATRIX = f"""
[run]
launches = 3
[cpus]
counts = [1, 2]
when = "always"
[[stack]]
name = "fake"
python = "{FAKE_PYTHON}"
accelerator = "cpu"
[[workload]]
device = "cpu"
model = "resnet50"
batch = 4
steps = 5
"""
"""Six launches of the tests' stand-in for an interpreter with PyTorch, each a fraction of a second."""
LONGER = {"FAKE_SECONDS": "0.3"}
"""A variable that makes launches long enough for something to happen during one."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A command that ended: its exit code (negative: the signal that ended it) and what it wrote."""

    code: int
    stdout: str
    stderr: str
    has_stderr: bool


@dataclass(kw_only=True)
class Workplace:
    """A workplace. `folder`: of this attempt alone. `usual_seconds`: how long an undisturbed run of the matrix takes here.

    `command`: the usual one. `variables`: added to the environment of all commands; `ended`: every command so far.
    """

    folder: Path
    random: Random
    usual_seconds: float
    command: tuple[str, ...] = ("run", "--engine", "local")
    variables: dict[str, str] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)

    @property
    def results(self) -> Results:
        return Results(self.folder / "results")

    @property
    def matrix(self) -> Path:
        return self.folder / "matrix.toml"

    @property
    def report(self) -> Path:
        return self.folder / "reports" / "index.html"

    @property
    def processes(self) -> list[int]:
        """Return the processes that carry the mark of this workplace's results, such as launches."""
        return processes_of(f"TORCHMATRIX_OWNER={self.results.owner}".encode())

    @property
    def is_measuring(self) -> bool:
        """Return whether a launch is under way."""
        return any(b'"hello"' in text and b'"exit"' not in text for text in (path.read_bytes() for path in self.files()))

    def signal_launches(self, number: int) -> None:
        """Send a signal to every process of a launch."""
        for pid in self.processes:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def files(self, pattern: str = "round*.jsonl") -> list[Path]:
        """Return files of launches, in the order in which they were begun."""
        return sorted(self.results.root.rglob(pattern), key=lambda path: path.stat().st_mtime_ns)

    def start(self, *words: str, before: Sequence[str] = (), **options: Any) -> "subprocess.Popen[str]":
        """Start a command in the background, in a session of its own. `before`: a program that starts it, with its words."""
        command = [*before, sys.executable, "-m", "torchmatrix", *(words or self.command)]
        usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        environment = {**_clean(), **self.variables, **options.pop("variables", {})}
        return subprocess.Popen(command, cwd=self.folder, env=environment, **{**usual, **options})

    def end(self, process: "subprocess.Popen[str]") -> Ended:
        """Wait for a command's end."""
        stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
        self.ended.append(
            Ended(code=process.returncode, stdout=stdout or "", stderr=stderr or "", has_stderr=stderr is not None)
        )
        return self.ended[-1]

    def call(self, *words: str, **options: Any) -> Ended:
        """Run a command from beginning to end."""
        return self.end(self.start(*words, **options))


@contextmanager
def workplace(random: Random, usual_seconds: float) -> Iterator[Workplace]:
    """Yield a fresh workplace, removed at the end with the processes that the tool left, if it did."""
    folder = Path(tempfile.mkdtemp(prefix="tm-faults-"))
    place = Workplace(folder=folder, random=random, usual_seconds=usual_seconds)
    place.matrix.write_text(MATRIX)
    (folder / "claims").mkdir()
    # Faults are tried beside each other: none gives way to the others, or waits for them to end.
    place.variables |= {"TORCHMATRIX_CLAIMS": str(folder / "claims"), "TORCHMATRIX_QUIET_WAIT_MINUTES": "0"}
    place.variables["TORCHMATRIX_CACHE"] = cache_in(folder)
    for variable, name in (("TMPDIR", "tmp"), ("HOME", "home")):
        (folder / name).mkdir()
        place.variables[variable] = str(folder / name)
    try:
        yield place
    finally:
        place.signal_launches(signal.SIGKILL)
        rmtree(folder, ignore_errors=True)


def _clean() -> dict[str, str]:
    """Return this process's environment without what would change what the tool does."""
    dropped = ("TORCHMATRIX_", "FAKE_", "DOCKER_", "XDG_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
