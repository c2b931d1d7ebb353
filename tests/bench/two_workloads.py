"""Measures what a change of images/workload costs a launch: two such folders, launched in turns, phase by phase.

    git worktree add /tmp/before COMMIT
    .venv/bin/python tests/bench/two_workloads.py STACK/bin/python /tmp/before/images/workload images/workload --launches 5

Prints the medians of both and their difference in seconds: the phases that the workload tells of, all of them together, the
whole process and its CPU time, which other work on the machine hardly changes. No assertion, since machines differ.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
from torchmatrix.facts.lines import PREFIX

STEPS = (
    "--device",
    "cpu",
    "--steps",
    "10",
    "--warmup-steps",
    "4",
    "--warmup-cap",
    "4",
    "--requests",
    "20",
    "--request-seconds",
    "1",
)
CASES = {
    "resnet18 train": ("--model", "resnet18", "--image-size", "64", "--batch", "4"),
    "resnet18 train, not the first launch": (
        "--model",
        "resnet18",
        "--image-size",
        "64",
        "--batch",
        "4",
        "--proof",
        "fingerprint",
    ),
    "bert-tiny train amp-bf16": ("--model", "bert-tiny", "--sequence-length", "32", "--batch", "4", "--precision", "amp-bf16"),
    "resnet18 infer": ("--model", "resnet18", "--image-size", "64", "--batch", "4", "--mode", "infer"),
}


def seconds(python: str, workload: Path, words: tuple[str, ...]) -> dict[str, float]:
    """Return the seconds of one launch, by phase; raise SystemExit if it fails."""
    begin, cpu = time.monotonic(), _cpu_seconds()
    command = [python, "bench.py", *STEPS, *words]
    done = subprocess.run(
        command, cwd=workload, capture_output=True, encoding="utf-8", env=dict(os.environ, PYTHONHASHSEED="0")
    )
    whole = time.monotonic() - begin
    events = [json.loads(line.removeprefix(PREFIX)) for line in done.stdout.splitlines() if line.startswith(PREFIX)]
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    phases: dict[str, float] = defaultdict(float)
    for event in events:
        if event["event"] == "phase":
            phases[event["phase"]] += event["seconds"]
    phases["measured"] = sum(max(event["seconds"]) for event in events if event["event"] == "sample")
    return {**phases, "all told": sum(phases.values()), "process": whole, "its CPU time": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--launches", type=int, default=5, help="of each")
    args = parser.parse_args()
    for name, words in CASES.items():
        both: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
        for _ in range(args.launches):
            for index in random.sample((0, 1), 2):
                both[index].append(seconds(args.python, (args.before, args.after)[index], words))
        print(f"\n{name}, {args.launches} launches of each\n{'phase':24}{'before':>9}{'after':>9}{'more':>9}")
        for phase in dict.fromkeys(phase for launch in both[1] for phase in launch):
            old, new = (median(launch.get(phase, 0.0) for launch in side) for side in both)
            print(f"{phase:24}{old:9.3f}{new:9.3f}{new - old:9.3f}", flush=True)


if __name__ == "__main__":
    main()
