"""The suite for a real GPU: skipped with one line where there is none; `--stand-in` runs it on an invented one.

Each test writes what it saw into seen.json in the folder of `--output`, at once, so that a run that is cut off keeps it.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpu_machine
import pytest
from cells import CELLS
from gpu_machine import Machine, Run

FIRST = (
    "test_gpu_identity",
    "test_speed",
    "test_gpu_operations",
    "test_gpu_loading",
    "test_gpu_figures",
    "test_trouble",
    "test_sabotage",
    "test_whole_run",
)
"""The files, the most telling first."""
HERE = Path(__file__).parent
_seen: dict[str, Any] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's own options; without them (a run of all tests) they have their defaults."""
    parser.addoption("--output", default="reports/gpu", help="folder for what the tests on a GPU see")
    parser.addoption("--stand-in", default="", help="an interpreter with PyTorch: run the tests on an invented GPU")


def _option(config: pytest.Config, name: str) -> str:
    return str(config.getoption(name, default=""))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the suite, and mark it: quick are identity and the first figure, the rest is thorough."""
    ours = [item for item in items if item.path.parent == HERE]
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        item.add_marker(pytest.mark.xdist_group("gpu"))
        if item.path.stem != "test_gpu_identity":
            item.add_marker(pytest.mark.thorough)
    places = [place for place, item in enumerate(items) if item.path.parent == HERE]
    ordered = sorted(ours, key=lambda item: FIRST.index(item.path.stem))
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Yield the machine with a GPU, or skip."""
    folder = tmp_path_factory.mktemp("gpu")
    if python := _option(request.config, "stand_in"):
        yield from gpu_machine.stand_in(python, folder)
        return
    found = gpu_machine.interpreter()
    if found is None:
        pytest.skip("no GPU that an interpreter with PyTorch sees (GPU_PYTHON names one)")
    yield gpu_machine.real(found, folder)


@pytest.fixture(scope="session")
def measured(machine: Machine) -> Callable[[str], Run]:
    """Return what launches a cell by its name in `cells.CELLS`, once."""
    runs: dict[str, Run] = {}

    def measure(name: str) -> Run:
        if name not in runs:
            runs[name] = machine.run(CELLS[name](machine))
        return runs[name]

    return measure


@pytest.fixture
def seen(request: pytest.FixtureRequest, machine: Machine) -> Iterator[dict[str, Any]]:
    """Yield a place for what the test sees, which is written when the test has ended, however it ended."""
    noted: dict[str, Any] = {}
    begin = time.time()
    yield noted
    report = getattr(request.node, "report", None)
    outcome = report.outcome if report else "unknown"
    error = str(report.longrepr)[-1500:] if report and report.failed else None
    place = {"outcome": outcome, "seconds": round(time.time() - begin, 1), "seen": noted, "error": error}
    if "machine" not in _seen:
        _seen["machine"] = _facts(machine)
    _seen.setdefault("tests", {})[request.node.name] = place
    _write(Path(_option(request.config, "output") or "reports/gpu"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Leave the outcome of a test where `seen` finds it."""
    report = yield
    if call.when == "call":
        item.report = report  # type: ignore[attr-defined]
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print one line of what was seen."""
    if _seen:
        outcomes = [test["outcome"] for test in _seen["tests"].values()]
        ran, skipped = len(outcomes) - outcomes.count("skipped"), outcomes.count("skipped")
        held = f"{outcomes.count('passed')} of {ran} held, {skipped} skipped, on {_seen['machine']['name']}"
        print(f"\ngpu: {held}: {_option(config, 'output')}/seen.json")


def _facts(machine: Machine) -> dict[str, Any]:
    code = (
        "import json, platform, torch; p = torch.cuda.get_device_properties(0); "
        "print(json.dumps({'name': torch.cuda.get_device_name(0), 'memory_bytes': p.total_memory, 'torch': torch.__version__, "
        "'capability': torch.cuda.get_device_capability(0), 'python': platform.python_version()}))"
    )
    return {"is_real": machine.is_real, "unix_seconds": int(time.time()), **machine.asked(code), "commit": _commit()}


def _commit() -> str | None:
    try:
        command = ["git", "-C", str(gpu_machine.ROOT), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
        json.dump(_seen, file, indent=1, default=str)
    Path(file.name).replace(folder / "seen.json")
