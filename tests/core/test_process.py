"""Helper processes: they leave interruptions to their parent, and end with it."""

import signal
import subprocess
import sys

import pytest

from support import PATIENCE_SECONDS


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_helpers_end_with_their_parent_even_if_that_is_killed(method: str) -> None:
    """The helpers hold the other end of the pipe that is read here to its end."""
    code = f"""
import os, signal, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from torchmatrix.core.process import help_only

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("{method}"), help_only, (os.getpid(),))
    pool.submit(time.sleep, 1000)
    while not active_children():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == -signal.SIGKILL
