"""Print what checking a workload's lines costs the host, beside only parsing them.

Run: .venv/bin/python tests/bench/launch_lines.py

A launch of 10,000 steps on 8 GPUs, its times with all digits; and one of 100 steps. No assertion, since machines differ.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "images" / "workload"))
import channel
import samples
from support.boxes import Written
from torchmatrix.facts import launch_file

RANKS = 8
REPEATS = 20


def lines_of(steps: int) -> list[bytes]:
    """Return the lines of one window."""
    times = [1 / 300 + step / 7e9 for step in range(steps)]
    edges = {"start_monotonic_seconds": 1.0, "stop_monotonic_seconds": 9.0, "seconds": sum(times), "enqueue_seconds": 0.1}
    written = Written()
    samples.emit(written, 32 * RANKS, "measure", 0, [{**edges, "step_seconds": times, "losses": times}] * RANKS)
    return written.lines


def cpu_milliseconds(action: Callable[[bytes], object], lines: list[bytes]) -> float:
    """Return the CPU milliseconds for all lines: the least of a few times."""
    seconds = []
    for _ in range(REPEATS):
        begin = time.process_time()
        for line in lines:
            action(line)
        seconds.append(time.process_time() - begin)
    return 1000 * min(seconds)


def main() -> None:
    for steps in (100, 10_000):
        lines = lines_of(steps)
        parsed = cpu_milliseconds(lambda line: orjson.loads(line[len(channel.PREFIX) :]), lines)
        checked = cpu_milliseconds(lambda line: launch_file.event_in("out", line, 1), lines)
        size = sum(map(len, lines)) / 1e6
        costs = f"parsed in {parsed:.2f} ms, parsed and checked in {checked:.2f} ms of CPU time"
        print(f"{steps:6} steps, {RANKS} ranks: {len(lines)} lines, {size:.2f} MB; {costs}")


if __name__ == "__main__":
    main()
