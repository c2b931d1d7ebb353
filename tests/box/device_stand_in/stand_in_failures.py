"""The scripted failure: armed in the forward pass that the script names, met where a real device would show it."""

import math
import os
import signal
import sys
import threading
import time

from stand_in_memory import MEMORY
from stand_in_script import RANK, SCRIPT, UNCORRECTABLE, tell, wait_forever


class Failures:
    """Counts forward passes; knows what has gone wrong since."""

    def __init__(self):
        self._script = SCRIPT["fail"] or {}
        self._depth = self._steps = 0
        self._broken = False
        self.waiting_since = None
        """When this rank began to wait for the others, on the monotonic clock."""

    def enter(self, module, inputs):
        """Count before every forward of a module; the outermost one is a step."""
        self._depth += 1
        if self._depth > 1:
            return
        self._steps += 1
        if self._steps == self._script.get("step") and self._script.get("rank", RANK) == RANK:
            self._arm(self._script["kind"])

    def leave(self, module, inputs, outputs):
        self._depth -= 1

    def _arm(self, failure):
        tell("failure", kind=failure, step=self._steps)
        if failure == "oom":
            for device in range(SCRIPT["devices"]):
                MEMORY.fill_up(device)
        elif failure in ("hang", "stubborn hang"):
            self._broken = "hang"
            if failure == "stubborn hang":  # as a process in the driver, which no signal but SIGKILL reaches
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif failure == "late rank":
            wait_forever()
        else:
            self._broken = failure

    def reach(self, point):
        """Wait for the device as a call does: an error shows here, not where it happened, and in every later call too."""
        if self._broken == "ecc":
            raise RuntimeError(UNCORRECTABLE)
        if self._broken == "hang":
            tell("waiting", at=point)
            wait_forever()

    def waits(self, function):
        """Return `function`, in which this rank waits for the others, with the time of its begin known to the watchdog."""

        def call(*args, **kwargs):
            self.waiting_since = time.monotonic()
            try:
                return function(*args, **kwargs)
            finally:
                self.waiting_since = None

        return call

    def go_on(self):
        """Note that an operation was done meanwhile: what comes next is another collective."""
        if self.waiting_since is not None:
            self.waiting_since = time.monotonic()


FAILURES = Failures()


def watch_collectives(timeout_seconds):
    """Watch as NCCL's watchdog does: end the process if a collective takes longer than the time-out, without asking Python."""

    def watch():
        while time.monotonic() - (FAILURES.waiting_since or math.inf) < timeout_seconds:
            time.sleep(0.1)
        sys.stderr.write(
            "[rank%d]:[E ProcessGroupNCCL.cpp:616] [Rank %d] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
            "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=%d) ran for %d milliseconds before timing out.\n"
            % (RANK, RANK, timeout_seconds * 1000, timeout_seconds * 1000 + 73)
        )
        sys.stderr.write(
            "[rank%d]:[E ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank %d] To avoid data inconsistency, "
            "we are taking the entire process down.\n" % (RANK, RANK)
        )
        sys.stderr.flush()
        os.abort()

    threading.Thread(target=watch, daemon=True, name="watchdog").start()
