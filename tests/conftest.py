"""Fixtures that the tests of several packages use."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

from support import FAKE_PYTHON, Command, cache_in, invoke
from torchmatrix.core import settings
from torchmatrix.machine.host import Gpu, Host

pytest_plugins = ["support.real_things"]
LONGEST_ID = 100
_WITH_ENGINE = ("plan", "build", "run", "doctor", "explain", "batch", "clean", "lock", "reproduce")


def pytest_configure() -> None:
    """Restore Ctrl-C: a script that starts the tests in the background, or nohup, leaves them and all they start deaf to it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Tests measure beside each other: none waits for the others to end, or gives way to them.
    os.environ["TORCHMATRIX_QUIET_WAIT_MINUTES"] = "0"
    os.environ["TORCHMATRIX_CLAIMS"] = mkdtemp(prefix="torchmatrix-claims-")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's threads would wait for work, awake, beside each command


def pytest_unconfigure() -> None:
    """Remove the folder of this run's claims."""
    if "torchmatrix-claims-" in (folder := os.environ.get("TORCHMATRIX_CLAIMS", "")):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Return a short name for a test's input: some are as long as a book."""
    if isinstance(val, (str, bytes)) and len(val) > LONGEST_ID:
        return f"{val[: LONGEST_ID // 2]!r} and so on, {len(val)} letters"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases after the first of a parametrized test that takes long; keep tests that share something real together.

    In a parallel run these stay in one process: those of a container engine, and those of the stack of PyTorch.

    Several of the former count what a daemon holds: no other process may use it meanwhile. Of the latter, tests of the workload
    start it themselves and share no compile cache, so they needn't.
    """
    functions = set()
    for item in items:
        function = (item.path, getattr(item, "originalname", item.name))
        is_one_more = hasattr(item, "callspec") and function in functions
        functions.add(function)
        if is_one_more and item.get_closest_marker("representative"):
            item.add_marker(pytest.mark.thorough)
        if is_one_more and item.get_closest_marker("thorough"):
            item.add_marker(pytest.mark.sweep)
    shared = {"client": "containers", "real_python": "real PyTorch", "runtimes_python": "real PyTorch"}
    for item in items:
        groups = [group for fixture, group in shared.items() if fixture in getattr(item, "fixturenames", ())]
        if groups and not (groups == ["real PyTorch"] and item.path.parent.name == "box"):
            item.add_marker(pytest.mark.xdist_group(groups[0]))


@pytest.fixture
def cpu_host() -> Host:
    """Return a machine with four cores and no GPU."""
    return Host(
        name="testhost", vendor=None, gpus=(), driver=None, cuda_driver=None, cpu="Test CPU", cores=(0, 1, 2, 3), numa_nodes=1,
        governor=None, memory_bytes=8 << 30, kernel="6.1", os="Test OS", architecture="x86_64", python="3.11.7",
    )  # fmt: skip


@pytest.fixture
def nvidia_host(cpu_host: Host) -> Host:
    """Return a machine with four NVIDIA GPUs, a driver for CUDA 12 and sixteen cores."""
    gpus = tuple(
        Gpu(index=i, uuid=f"GPU-{i}{i}{i}", name="NVIDIA H100", vendor="nvidia", memory_bytes=80 << 30, capability="9.0")
        for i in range(4)
    )
    return replace(cpu_host, vendor="nvidia", gpus=gpus, driver="570.133.7", cuda_driver="12.8", cores=tuple(range(16)))


@pytest.fixture
def amd_host(cpu_host: Host) -> Host:
    """Return a machine with two AMD GPUs."""
    gpus = tuple(
        Gpu(
            index=i, uuid=f"GPU-a{i}", name="AMD Instinct MI100", vendor="amd", capability="gfx908",
            render_node=f"/dev/dri/renderD{128 + i}", groups=(44, 109),
        )
        for i in range(2)
    )  # fmt: skip
    return replace(cpu_host, vendor="amd", gpus=gpus, driver="6.8.5")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., settings.Settings]]:
    """Make this process, and the commands that it starts, live at another site: take variables, return its settings."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "TORCHMATRIX_MIRRORS", "TORCHMATRIX_WHEELHOUSE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "settings.toml").touch()
    monkeypatch.setenv("TORCHMATRIX_SETTINGS", str(tmp_path / "settings.toml"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("TORCHMATRIX_CACHE", str(tmp_path / "cache"))

    def move(**variables: object) -> settings.Settings:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value)) if value is not None else monkeypatch.delenv(name, raising=False)
        settings.load.cache_clear()
        return settings.load()

    yield move
    settings.load.cache_clear()


@pytest.fixture
def fake_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a matrix of one stack (the fake interpreter), one workload and one and two devices, in a folder of its own.

    Its caches are its own, too: a launch whose compile cache is in use by another process gets a new one.
    """
    monkeypatch.setenv("TORCHMATRIX_CACHE", cache_in(tmp_path))
    path = tmp_path / "matrix.toml"
    path.write_text(
        f"""
[run]
launches = 2
[cpus]
counts = [1, 2]
[[stack]]
name = "fake"
python = "{FAKE_PYTHON}"
accelerator = "cpu"
[[workload]]
device = "cpu"
model = "resnet50"
batch = 4
steps = 5
windows = 2
"""
    )
    return path


@pytest.fixture
def torchmatrix(tmp_path: Path) -> Command:
    """Return what runs command lines in a folder of its own, with the local engine unless `engine` says otherwise."""

    def call(*words: str, engine: str | None = "local", **variables: str) -> "subprocess.CompletedProcess[str]":
        engine_words = ["--engine", engine] if engine and words[0] in _WITH_ENGINE else []
        return invoke(tmp_path, *words, *engine_words, **variables)

    return call
