"""What tests of several rooms share by import."""

import subprocess
from collections.abc import Callable
from pathlib import Path

FAKE_PYTHON = Path(__file__).parent / "fake_python"
Command = Callable[..., "subprocess.CompletedProcess[str]"]
