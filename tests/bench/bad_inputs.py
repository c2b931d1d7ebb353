"""Prints what refusing bad input costs: wall and CPU seconds and memory. Run: .venv/bin/python tests/bench/bad_inputs.py

Targets: 2 s and 500 MB. No assertion, since machines differ. Where others use the machine, CPU seconds tell more.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

STACK = '[[stack]]\ntorch = "2.5.1"\ncpu = true\n'
WORKLOAD = '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n'
PLAN = ("plan", "--engine", "local")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A file with this content, or written by `content`, beside a good matrix, and the command that reads it."""

    name: str
    content: str | Callable[[Path], None]
    file: str = "matrix.toml"
    words: tuple[str, ...] = PLAN


def spaces(path: Path) -> None:
    """Write 3 GB of spaces that take no place on the disk."""
    with path.open("wb") as file:
        file.truncate(3 << 30)


def many(count: int) -> str:
    """Return a matrix of `count` workloads, each of 40,000 variants."""
    values = ", ".join(str(number + 1) for number in range(200))
    return STACK + f'[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = [{values}]\nsteps = [{values}]\n' * count


CASES = (
    Case(name="a number of 4,300 digits", content="[run]\nlaunches = 1" + "0" * 4_300 + "\n" + STACK + WORKLOAD),
    Case(name="1,000 levels of lists", content="a = " + "[" * 1_000 + "]" * 1_000),
    Case(name='torch = "²"', content='[[stack]]\ntorch = "²"\ncpu = true\n' + WORKLOAD),
    Case(name='index = "--help"', content=STACK + 'index = "--help"\n' + WORKLOAD),
    Case(name="a name of 300 letters", content=STACK + f'name = "{"x" * 300}"\n' + WORKLOAD),
    Case(name="counts = [100000000]", content=STACK + WORKLOAD + "[cpus]\ncounts = [100000000]\n"),
    Case(name="launches = 10^9", content="[run]\nlaunches = 1000000000\n" + STACK + WORKLOAD),
    Case(name="25 products of 40,000 workloads", content=many(25)),
    Case(name="256 KiB of keys", content="".join(f"a{number} = 1\n" for number in range(22_000))),
    Case(name="matrix.toml of 3 GB", content=spaces),
    Case(name="matrix.lock of 3 GB", content=spaces, file="matrix.lock"),
    Case(name="matrix.lock, 49,000 headers", content="".join(f"[a{number}]\n" for number in range(49_000)), file="matrix.lock"),
    Case(name="matrix.lock, dotted headers", content="[a.b.c.d.e.f.g]\n" * 100_000, file="matrix.lock"),
    Case(name="settings of 3 GB", content=spaces, file="settings.toml"),
    Case(name="settings, 1,000 levels", content="a = " + "{b = " * 1_000, file="settings.toml"),
    Case(
        name="a bundle of 3 GB of zeros", content=spaces, file="b.tar", words=("bundle", "import", "b.tar", "--engine", "local")
    ),
)


def main() -> None:
    print(f"{'input':<36} {'exit':>4} {'wall s':>7} {'CPU s':>7} {'MB':>6}  first line")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "matrix.toml").write_text(STACK + WORKLOAD)
            path = Path(folder) / case.file
            path.write_text(case.content) if isinstance(case.content, str) else case.content(path)
            print(measured(case, Path(folder)), flush=True)


def measured(case: Case, folder: Path) -> str:
    """Run one case and return its line of the table."""
    command = [str(Path(sys.executable).parent / "torchmatrix"), *case.words]
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    (folder / "settings.toml").touch()
    variables["TORCHMATRIX_SETTINGS"] = str(folder / "settings.toml")
    begin = time.perf_counter()
    with (folder / "said").open("w+") as stderr:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, stderr=stderr)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        stderr.seek(0)
        first = stderr.readline().strip()
    wall, cpu = time.perf_counter() - begin, used.ru_utime + used.ru_stime
    return f"{case.name:<36} {process.returncode:>4} {wall:>7.2f} {cpu:>7.2f} {used.ru_maxrss / 1024:>6.0f}  {first[:90]}"


if __name__ == "__main__":
    main()
