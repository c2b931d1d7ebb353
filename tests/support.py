"""What tests of several rooms share by import."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from torchmatrix.engines.local import _environment_of

FAKE_PYTHON = Path(__file__).parent / "fake_python"
Command = Callable[..., "subprocess.CompletedProcess[str]"]
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
"""The one stack of real PyTorch that the tests build; a test appends its workloads."""


def processes_of(owner: bytes) -> list[int]:
    """Ids of the processes that carry an owner's mark."""
    return [int(p.name) for p in Path("/proc").glob("[0-9]*") if owner in _environment_of(int(p.name))]


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is so; fail where it is in vain."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
