"""Other programs on this machine: how many CPUs they use now, and which."""

import os
import time

import psutil

LOOK_SECONDS = 0.2
BUSY = 0.1
"""A machine is busy if others leave a launch less than its CPUs, but for this share of them."""
MOST_NAMED = 3


def busy_cpus(seconds: float = LOOK_SECONDS) -> float:
    """Return how many of the CPUs that this process may use are busy, over so many seconds in which it does nothing itself."""
    allowed, busy = sorted(os.sched_getaffinity(0)), psutil.cpu_percent(seconds, percpu=True)
    return sum(busy[cpu] for cpu in allowed if cpu < len(busy)) / 100


def busiest(seconds: float = LOOK_SECONDS) -> list[int]:
    """Return the ids of the processes that use most of a CPU now, the busiest first, at most MOST_NAMED."""
    before, begin = _cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begin
    used = {pid: spent - before[pid] for pid, spent in _cpu_seconds().items() if pid in before and pid != os.getpid()}
    return sorted((pid for pid, spent in used.items() if spent > BUSY * passed), key=lambda pid: -used[pid])[:MOST_NAMED]


def _cpu_seconds() -> dict[int, float]:
    times = ((process.pid, process.info["cpu_times"]) for process in psutil.process_iter(["cpu_times"]))
    return {pid: spent.user + spent.system for pid, spent in times if spent}


def are_too_few(used: float, needed: int) -> bool:
    """Check whether other programs, which use so many CPUs, leave a launch fewer than it needs."""
    return len(os.sched_getaffinity(0)) - used < (1 - BUSY) * needed
