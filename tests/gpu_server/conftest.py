"""Invented GPU servers, each in a separate folder."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from invented_servers import EIGHT_H100, EIGHT_MI300X, MIXED_RTX, SLICED_A100
from stand_ins import Running, start


@pytest.fixture
def eight_h100(tmp_path: Path) -> Running:
    """Start a server with eight H100 behind NVSwitch."""
    return start(EIGHT_H100, tmp_path / "server")


@pytest.fixture
def mixed_rtx(tmp_path: Path) -> Running:
    """Start a server with two RTX 4090 and two RTX 3090 with a bridge."""
    return start(MIXED_RTX, tmp_path / "server")


@pytest.fixture
def sliced_a100(tmp_path: Path) -> Running:
    """Start a server with an A100 cut into four slices, and a whole one."""
    return start(SLICED_A100, tmp_path / "server")


@pytest.fixture
def eight_mi300x(tmp_path: Path) -> Running:
    """Start a server with eight MI300X, all linked by XGMI."""
    return start(EIGHT_MI300X, tmp_path / "server")


@pytest.fixture
def somebody() -> Iterator[int]:
    """Yield the id of somebody else's process."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()
