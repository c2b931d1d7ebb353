"""A user's command that receives the gate's verdict, to post to a chat, send a mail or open an issue."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from torchmatrix.ground.process import end_with_parent

TIMEOUT_SECONDS = 60.0
_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|(?i:(https?|ftp|all|no)_proxy)|SSL_CERT_(FILE|DIR)"
    r"|REQUESTS_CA_BUNDLE|TORCHMATRIX_HOOK_\w+",
    flags=re.ASCII,
)
"""The variables of ours that a hook gets (docs/nightly.md): all else, such as passwords of package indexes, is kept from it."""


def call(command: str, verdict: Mapping[str, Any], timeout_seconds: float = TIMEOUT_SECONDS) -> str | None:
    """Run `command` in a shell with `verdict` (of verdicts.record) as JSON on its stdin; what went wrong, or None.

    TORCHMATRIX_VERDICT, TORCHMATRIX_RUN and few other variables are in its environment. What it prints goes to stderr. One
    that takes longer, or whose caller is interrupted, is killed with all that it started.
    """
    environment = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    environment |= {"TORCHMATRIX_VERDICT": str(verdict["verdict"]), "TORCHMATRIX_RUN": str(verdict["run"])}
    process = subprocess.Popen(
        command, shell=True, stdin=subprocess.PIPE, stdout=2, env=environment, start_new_session=True, bufsize=0,
        preexec_fn=partial(end_with_parent, os.getpid()),
    )  # fmt: skip
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
