"""What tests of several rooms share by import."""

import subprocess
from collections.abc import Callable
from pathlib import Path

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
