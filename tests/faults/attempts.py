"""One attempt in a process of its own, so that whatever happens to it harms neither the bench nor another attempt."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from faults.kinds import Kind
from faults.workplace import workplace

LIMIT_SECONDS = 900.0
"""Only ends an attempt that hangs."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The `number`-th attempt of a kind in the bench with this seed."""

    kind: str
    number: int
    seed: int
    usual_seconds: float

    @property
    def again(self) -> str:
        """Return the command that repeats the attempt."""
        return f"make faults ARGS=\"--seed {self.seed} --only '{self.kind}#{self.number}'\""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of an attempt: how many faults it tried, how long it took, and why the tool didn't hold, or None."""

    tried: int
    seconds: float
    failure: str | None


def in_this_process(attempt: Attempt, kind: Kind) -> int:
    """Make the attempt here; return how many faults were tried. Raise what the kind raises."""
    random = Random(f"{attempt.seed} {attempt.kind} {attempt.number}")
    with workplace(random, attempt.usual_seconds) as place:
        return kind.attempt(place)


def in_own_process(attempt: Attempt) -> Result:
    """Make the attempt in a process of its own."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "faults", "--attempt", json.dumps(asdict(attempt))]
    tests = Path(__file__).parents[1]
    process = subprocess.Popen(command, cwd=tests, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # it cleans up, as after Ctrl-C
        output, _ = process.communicate()
    seconds = time.monotonic() - begin
    last = output.strip().rpartition("\n")[2]
    if process.returncode == 0 and last.isdigit():
        return Result(tried=int(last), seconds=seconds, failure=None)
    return Result(tried=1, seconds=seconds, failure=output.strip() or f"the attempt ended with {process.returncode}")
