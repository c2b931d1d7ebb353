"""A user's command that receives the gate's verdict, to post to a chat, send a mail or open an issue."""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

TIMEOUT_SECONDS = 60.0


def call(command: str, verdict: Mapping[str, Any], timeout_seconds: float = TIMEOUT_SECONDS) -> str | None:
    """Run `command` in a shell with `verdict` (of verdicts.record) as JSON on its stdin; what went wrong, or None.

    TORCHMATRIX_VERDICT and TORCHMATRIX_RUN are in its environment. What it prints goes to stderr. One that takes longer, or
    whose caller is interrupted, is killed with all that it started.
    """
    environment = {**os.environ, "TORCHMATRIX_VERDICT": str(verdict["verdict"]), "TORCHMATRIX_RUN": str(verdict["run"])}
    process = subprocess.Popen(
        command, shell=True, stdin=subprocess.PIPE, stdout=2, env=environment, start_new_session=True, bufsize=0
    )
    try:
        process.communicate(json.dumps(verdict).encode() + b"\n", timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        return f"the hook took longer than {timeout_seconds:g} s and was ended"
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with process:  # closes the pipe and waits
            pass
    return None if process.returncode == 0 else f"the hook ended with exit code {process.returncode}"
