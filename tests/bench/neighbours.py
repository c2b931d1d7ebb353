"""Measures what tells that a launch was disturbed: windows beside programs that use 0 to 200 % of a CPU, in random order.

    .venv/bin/python tests/bench/neighbours.py STACK/bin/python --windows 150

Each window is timed by the workload's own measure.window, on one CPU with one thread or on all CPUs with a thread each, bound
by products or by memory. Its loss is its time over the median of the undisturbed windows of the same kind, less 1. Prints, for
borders of the waited share how many windows that lost LOST or more are marked, and how many quiet ones (docs/method-launch.md).
Close to 100 and 0 % is good. No assertion, since machines differ.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

REPOSITORY = Path(__file__).parents[2]
LOADS = (0, 0, 2, 5, 10, 25, 50, 100, 200)
"""Of one CPU, in percent; quiet windows are drawn twice as often."""
LOST = 0.1
BORDER = 0.03
BORDERS = (0.01, 0.02, 0.03, 0.05, 0.1)
SECONDS = 0.7
NEIGHBOUR = """
import os, sys, time
share, period, is_memory = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "memory"
os.nice(int(sys.argv[4]))
source, target = bytearray(1 << 25), bytearray(1 << 25)
while True:
    begin = time.monotonic()
    while time.monotonic() - begin < share * period:
        if is_memory:
            target[:] = source
    time.sleep(max(0.0, (1 - share) * period))
"""


def work(kind: str, cpus: str, threads: int) -> None:
    """Time a window for each line of the input; print its record."""
    sys.path.insert(0, str(REPOSITORY / "images/workload"))
    import torch

    import measure
    from world import World

    world = World(SimpleNamespace(device="cpu", cpus=cpus, threads=threads))
    if kind == "products":
        a = torch.randn(384, 384)
        action = lambda _: torch.mm(a, a)  # noqa: E731
    else:
        a, b = torch.randn(1 << 23), torch.randn(1 << 23)
        action = lambda _: torch.add(a, b, out=a)  # noqa: E731
    step = measure.Step(action, list, None, lambda: None, None, None, None, None, None)
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < 2 * SECONDS:
        action(0)
        steps += 1
    for _ in sys.stdin:
        record = measure.window(world, step, steps // 2, 0)[0]
        print(json.dumps({"seconds": record["seconds"], **record["sharing"]}), flush=True)


def neighbours(load: int, draw: random.Random) -> tuple[list[subprocess.Popen[bytes]], str]:
    """Start programs that use so much of a CPU together; return them, and how they use it."""
    period, what, nice = draw.choice((0.01, 0.5)), draw.choice(("products", "memory")), draw.choice((0, 0, 19))
    shares = [100, load - 100] if load > 100 else [load] if load else []
    words = [[str(share / 100), str(period), what, str(nice)] for share in shares]
    started = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR, *one]) for one in words]
    return started, f"{'burst' if period > 0.1 else 'steady'} {what} nice {nice}"


def windows(python: str, kind: str, cpus: str, threads: int, number: int, draw: random.Random) -> list[dict[str, Any]]:
    """Return the records of so many windows."""
    command = [python, __file__, "--work", kind, cpus, str(threads)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdin and worker.stdout
    records = []
    for _ in range(number):
        load = draw.choice(LOADS)
        started, how = neighbours(load, draw)
        time.sleep(0.15)
        print(file=worker.stdin, flush=True)
        records.append(json.loads(worker.stdout.readline()) | {"load": load, "how": how})
        for program in started:
            program.kill()
            program.wait()
    worker.stdin.close()
    worker.wait()
    return records


def told(record: dict[str, Any]) -> float:
    """Return the share of the time in which its threads waited for others, as analysis/sharing.py does."""
    run, wait = record["run_seconds"], record["wait_seconds"]
    return min(max(0.0, record["busy_seconds"] - run), wait) / (run + wait)


def main() -> None:
    if sys.argv[1] == "--work":
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--windows", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="write the records there")
    args = parser.parse_args()
    draw, every = random.Random(args.seed), sorted(os.sched_getaffinity(0))
    kept = []
    for name, cpus in (("one CPU", str(every[0])), ("all CPUs", "")):
        for kind in ("products", "memory"):
            threads = 1 if cpus else len(every)
            records = windows(args.python, kind, cpus, threads, args.windows, draw)
            quiet = median(record["seconds"] for record in records if not record["load"])
            for record in records:
                record |= {"place": name, "kind": kind, "number": threads, "lost": 1 - quiet / record["seconds"]}
            kept += records
    if args.keep:
        args.keep.write_text(json.dumps(kept), encoding="utf-8")
    by_place = defaultdict(list)
    for record in kept:
        by_place[record["place"]].append(record)
    for place, records in by_place.items():
        report(place, records)


def report(place: str, records: list[dict[str, Any]]) -> None:
    """Print how many disturbed, slow and quiet windows each border marks."""
    slow = [told(record) for record in records if record["lost"] >= LOST]
    quiet = [told(record) for record in records if not record["load"] and record["lost"] < LOST]
    print(f"{place}: {len(slow)} windows lost {LOST:.0%} or more, {len(quiet)} quiet ones did not")
    for border in BORDERS:
        shares = [sum(one >= border for one in some) / max(1, len(some)) for some in (slow, quiet)]
        print(f"  waited {border:.0%} or more: {shares[0]:.0%} of the slow, {shares[1]:.0%} of the quiet")
    for load in sorted(set(LOADS)):
        some = [record for record in records if record["load"] == load]
        lost, waited = (median(values) for values in zip(*((r["lost"], told(r)) for r in some), strict=True))
        marked = sum(told(record) >= BORDER for record in some) / len(some)
        print(
            f"  {load:3} % of a CPU, {len(some)} windows: lost {lost:.0%}, waited {waited:.0%}, marked {marked:.0%} (medians)"
        )


if __name__ == "__main__":
    main()
