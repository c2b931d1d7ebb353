"""The stand-ins of an invented GPU server: its libraries, its scenario, its journal, and commands that run on it."""

import hashlib
import html
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import kfd_tree
import pytest
from invented_servers import MACHINE, Facts, Server

from support import FAKE_PYTHON, cache_in
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results

SOURCES = Path(__file__).parent
RENDER_GROUP = 993
"""The group that owns AMD's nodes."""
_FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True, kw_only=True)
class Running:
    """An invented server in a separate folder. `environment`: variables with which a command takes it for this machine.

    `within`: the beginning of a command line whose rest then sees the server's /sys and /dev.
    """

    server: Server
    folder: Path
    environment: dict[str, str]
    within: tuple[str, ...] = ()

    @property
    def journal(self) -> Path:
        """Return the journal of the workload's stand-in: a line per launch, window and end, with its process and devices."""
        return self.folder / "journal"

    def change(self, device: int, *, when: str = "", part: str = "-", count: int = 1, **facts: object) -> None:
        """Change facts of a device: at once, or from the `count`-th line of the journal that begins with `when` and has `part`.

        Words of the journal: launch, measure (a timed window begins), exit.
        """
        start = f"@{count} {when} {part} " if when else ""
        with (self.folder / "scenario").open("a") as file:
            file.writelines(f"{start}{_number(device)} {key} {value}\n" for key, value in facts.items())

    def matrix(self, gpus: str, *, launches: int = 1, accelerator: str = "cuda", more: str = "") -> None:
        """Write the matrix of one stand-in for a stack and one workload. `gpus`: the lines of [gpus]."""
        stack = f'name = "stand-in"\npython = "{FAKE_PYTHON}"\naccelerator = "{accelerator}"\n'
        workload = 'model = "resnet50"\nbatch = 4\nsteps = 5\nwindows = 2\n'
        text = f"[run]\nlaunches = {launches}\n[gpus]\n{gpus}\n[[stack]]\n{stack}[[workload]]\n{workload}{more}"
        (self.folder / "matrix.toml").write_text(text)

    @property
    def used(self) -> list[str]:
        """Return the devices of each launch, in order, as the workload was given them."""
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [devices for word, _, devices in lines if word == "launch"]

    def launches(self) -> list[Launch]:
        """Return all launches recorded so far, in the order in which they began."""
        recorded = [launch for run in Results(self.folder / "results").runs() for launch in run.launches()]
        return sorted(recorded, key=lambda launch: launch.monotonic_seconds or 0.0)

    @property
    def page(self) -> str:
        """Return the report's HTML."""
        return (self.folder / "reports/index.html").read_text()

    def report(self) -> str:
        """Return the words of the report, without those that only show when a mark is pointed at."""
        text = re.sub(r"<(script|style).*?</\1>", "", self.page, flags=re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())

    def run(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command line of the tool in the server's folder, as a user would type it there."""
        return subprocess.run(
            [*self.within, sys.executable, "-m", "torchmatrix", *words],
            cwd=self.folder, env={**os.environ, **self.environment, **variables}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def python(self, code: str, **variables: str) -> str:
        """Return the output of a Python program that sees this server."""
        environment = {**os.environ, **self.environment, **variables}
        command = [*self.within, sys.executable, "-c", code]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def start(server: Server, folder: Path) -> Running:
    """Start the server, in `folder`."""
    folder.mkdir(exist_ok=True)
    lines = _lines(MACHINE, server.machine)
    for number, facts in server.devices.items():
        lines += _lines(number, facts)
    (folder / "scenario").write_text("".join(lines))
    (folder / "journal").touch()
    (folder / "settings.toml").touch()
    libraries = folder / "lib"
    libraries.mkdir()
    environment = {
        "LD_LIBRARY_PATH": str(libraries),
        "GPU_SERVER_SCENARIO": str(folder / "scenario"),
        "GPU_SERVER_JOURNAL": str(folder / "journal"),
        "TORCHMATRIX_CACHE": cache_in(folder),
        "TORCHMATRIX_SETTINGS": str(folder / "settings.toml"),
    }
    if server.vendor == "amd":
        return _with_amd(Running(server=server, folder=folder, environment=environment), libraries)
    (libraries / "libnvidia-ml.so.1").symlink_to(_library("nvml", "libnvidia-ml.so.1"))
    return Running(server=server, folder=folder, environment=environment)


def _with_amd(running: Running, libraries: Path) -> Running:
    """Add AMD's library for the Python module amdsmi, and /sys and /dev of a separate namespace."""
    if os.geteuid() != 0:
        pytest.skip("a /dev and /sys of its own need root")
    kfd_tree.write(running.server, running.folder / "sys")
    (libraries / "libamd_smi.so").symlink_to(_library("amdsmi", "libamd_smi.so", _other_functions()))
    minors = " ".join(str(facts["render"]) for facts in running.server.devices.values())
    more = {"TREE": str(running.folder / "sys"), "AMDGPU": str(running.server.machine["driver"]), "RENDER_MINORS": minors,
            "RENDER_GROUP": str(RENDER_GROUP)}  # fmt: skip
    within = ("unshare", "--mount", "sh", "-c", kfd_tree.NAMESPACE, "sh")
    return replace(running, environment={**running.environment, **more}, within=within)


def _other_functions() -> str:
    """Return C code of all functions that AMD's Python module looks for: those the stand-in lacks answer "not supported"."""
    module = importlib.util.find_spec("amdsmi")
    if module is None or module.origin is None:
        pytest.skip("needs AMD's Python module amdsmi")
    wrapper = Path(module.origin).with_name("amdsmi_wrapper.py").read_text()
    names = sorted(set(re.findall(r"_libraries\['libamd_smi.so'\]\.(\w+)", wrapper)))
    return "".join(f"__attribute__((weak)) int {name}(void) {{ return 2; }}\n" for name in names)


def _lines(number: int, facts: Facts) -> list[str]:
    return [f"{_number(number)} {key} {value}\n" for key, value in facts.items()]


def _number(device: int) -> str:
    return "*" if device == MACHINE else str(device)


def _library(name: str, soname: str, more: str = "") -> Path:
    """Return the library made from the folder `name` and the code `more`, built once for each content of its sources."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the stand-ins for NVIDIA's and AMD's libraries need a C compiler")
    sources = sorted([*(SOURCES / name).glob("*.[ch]"), *(SOURCES / "scenario").glob("*.[ch]")])
    texts = [source.read_bytes() for source in sources]
    content = hashlib.sha256(b"".join([*texts, more.encode()])).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"torchmatrix-test-libraries.{os.getuid()}" / content / soname
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f"{soname}.{os.getpid()}")
        code = [str(source) for source in sources if source.suffix == ".c"]
        extra = place.with_name(f"more.{os.getpid()}.c")
        extra.write_text(more)
        command = [compiler, *_FLAGS, f"-Wl,-soname,{soname}", "-o", str(fresh), *code, str(extra), "-lpthread"]
        subprocess.run(command, check=True)
        extra.unlink()
        fresh.rename(place)
    return place
