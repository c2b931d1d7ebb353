"""The machine with a GPU on which these tests run: its interpreter with PyTorch, and the launches that they make there.

Where there is none, `--stand-in` puts invented ones in its place (gpu_server/nvml for the driver, box/device_stand_in for
torch.cuda), to see that each test itself works: with small models, whose figures mean nothing.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.analysis.run_summary import launch_rows
from torchmatrix.facts import lines
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SHORT = "steps = 10\nseconds = 2\nwindows = 2\nwarmup_steps = 5\nwarmup_seconds = 1\nwarmup_cap = 200\n"
"""How long a launch of these tests measures: to see that all is right, not for a figure to publish."""
_LONGEST_SECONDS = 420


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a command did. `launches`: those of its run, in the order in which they began."""

    done: "subprocess.CompletedProcess[str]"
    folder: Path
    launches: tuple[Launch, ...] = ()

    @property
    def rows(self) -> list[LaunchRow]:
        """Return the rows of its launches as the tables have them."""
        return launch_rows(list(self.launches))

    def events(self, number: int = 0) -> list[dict[str, Any]]:
        """Return the lines of a launch."""
        return lines.read(self.launches[number].path).events

    def event(self, kind: str, number: int = 0) -> dict[str, Any]:
        """Return the last line of a kind."""
        return [event for event in self.events(number) if event["event"] == kind][-1]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where the tests run. `python`: has PyTorch; `accelerator`: cuda or rocm; `folder`: everything is written below it.

    `is_real`: false for the invented device. `environment`: variables for the tool.
    """

    python: str
    accelerator: str
    folder: Path
    is_real: bool
    environment: Mapping[str, str] = field(default_factory=dict)

    def workload(self, model: str, batch: int | str, **settings: object) -> str:
        """Return a [[workload]] of the matrix: as given on a real GPU, tiny on the invented one."""
        if not self.is_real:
            model, batch, small = _SMALL.get(model, (model, batch, {}))
            settings = {**settings, **small}
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        times = SHORT if self.is_real else "steps = 3\nwindows = 2\nwarmup_steps = 16\nwarmup_cap = 16\n"
        kept = "".join(line for line in times.splitlines(keepends=True) if line.split(" =")[0] not in settings)
        return f'[[workload]]\nmodel = "{model}"\nbatch = {json.dumps(batch)}\n{text}{kept}'

    def run(self, *workloads: str, launches: int = 1, files: tuple[Path, ...] = ()) -> Run:
        """Run a matrix of these workloads on one GPU, by the command that a user types; return what was recorded.

        `files`: copied beside the matrix.
        """
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        self.write_matrix(folder, *workloads, launches=launches)
        for file in files:
            shutil.copy(file, folder)
        done = self.command(folder, "run", "--engine", "local")
        return Run(done=done, folder=folder, launches=tuple(launches_in(folder)))

    def write_matrix(self, folder: Path, *workloads: str, launches: int = 1) -> None:
        """Write matrix.toml: one stack, the interpreter; one GPU. It waits for no quiet machine: a part has ten minutes."""
        stack = f'[[stack]]\nname = "here"\npython = "{self.python}"\naccelerator = "{self.accelerator}"\n'
        run = f"[run]\nlaunches = {launches}\ntimeout_minutes = 4\nquiet_wait_minutes = 0\n[gpus]\ncounts = [1]\n"
        (folder / "matrix.toml").write_text(run + stack + "".join(workloads), encoding="utf-8")

    def command(
        self, folder: Path, *words: str, timeout: float = _LONGEST_SECONDS, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command of the tool in a folder; `timeout` in seconds."""
        command = [sys.executable, "-m", "torchmatrix", *words]
        environment = {**os.environ, **self.environment, **variables}
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    def gpus(self, **variables: str) -> list[dict[str, Any]]:
        """Return the GPUs that the tool sees."""
        code = (
            "import dataclasses, json; from torchmatrix.machine.host import detect; "
            "print(json.dumps([dataclasses.asdict(gpu) for gpu in detect().gpus], default=str))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **self.environment, **variables}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        gpus: list[dict[str, Any]] = json.loads(done.stdout)
        return gpus

    def start(self, folder: Path, *words: str) -> "subprocess.Popen[str]":
        """Start a command of the tool, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "torchmatrix", *words], cwd=folder, env={**os.environ, **self.environment},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def asked(self, code: str, *words: str) -> Any:
        """Run Python code under the interpreter with PyTorch, without the tool; return the JSON on its last line."""
        environment = {**os.environ, **self.environment}
        command = [self.python, "-c", code, *words]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.strip().splitlines()[-1])


def launches_in(folder: Path) -> list[Launch]:
    """Return all launches that a folder of a matrix has results of, in the order in which they began."""
    launches = (launch for run in Results(folder / "results").runs() for launch in run.launches())
    return sorted(launches, key=lambda launch: launch.monotonic_seconds or 0.0)


_SMALL: dict[str, tuple[str, int, dict[str, object]]] = {
    "resnet50": ("resnet18", 2, {"image_size": 32}),
    "bert-large-cased": ("bert-tiny", 2, {"sequence_length": 16}),
    "bert-base-cased": ("bert-tiny", 2, {"sequence_length": 16}),
    "llama-3.2-1b-shape": ("lm-1m", 2, {"sequence_length": 8, "output_length": 4, "precision": "fp32"}),
}
"""What stands for a model on the invented device: its name, batch and sizes."""


def interpreter() -> str | None:
    """Return the interpreter that has PyTorch and sees a GPU: GPU_PYTHON, this one, or the first python3; None without."""
    for python in (os.environ.get("GPU_PYTHON"), sys.executable, shutil.which("python3")):
        if python and _sees_a_gpu(python):
            return python
    return None


def _sees_a_gpu(python: str) -> bool:
    code = "import torch; raise SystemExit(not torch.cuda.is_available())"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, timeout=120, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def real(python: str, folder: Path) -> Machine:
    """Return this machine."""
    hip = subprocess.run([python, "-c", "import torch; print(torch.version.hip or '')"], capture_output=True, text=True)
    accelerator = "rocm" if hip.stdout.strip() else "cuda"
    return Machine(python=python, accelerator=accelerator, folder=folder, is_real=True, environment=_environment(folder))


def stand_in(python: str, folder: Path) -> Iterator[Machine]:
    """Yield a machine with one invented H100, whose PyTorch is that of `python` on the CPU."""
    sys.path.insert(0, str(TESTS / "gpu_server"))
    from dataclasses import replace

    from invented_servers import EIGHT_H100
    from stand_ins import start

    server = replace(EIGHT_H100, devices={0: EIGHT_H100.devices[0]})
    running = start(server, folder / "server")
    script = {"folder": str(folder), "devices": 1, "uuids": [server.uuid(0).removeprefix("GPU-")]}
    wrapper = folder / "python"
    modules = TESTS / "box" / "device_stand_in"
    wrapper.write_text(
        f"#!/bin/sh\nPYTHONPATH='{modules}' STAND_IN='{json.dumps(script)}' exec '{python}' \"$@\"\n", encoding="utf-8"
    )
    wrapper.chmod(0o755)
    environment = {**_environment(folder), **running.environment}
    yield Machine(python=str(wrapper), accelerator="cuda", folder=folder, is_real=False, environment=environment)


def _environment(folder: Path) -> dict[str, str]:
    """Return variables by which the tool runs from this checkout and keeps its caches below the folder."""
    (folder / "settings.toml").touch()
    path = os.pathsep.join(filter(None, [str(ROOT / "runner"), os.environ.get("PYTHONPATH")]))
    return {
        "PYTHONPATH": path,
        "TORCHMATRIX_CACHE": str(folder / "cache"),
        "TORCHMATRIX_SETTINGS": str(folder / "settings.toml"),
    }
