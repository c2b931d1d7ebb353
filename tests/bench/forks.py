"""A/A: do forked launches give the figures of fresh ones? .venv/bin/python tests/bench/forks.py [--rounds N] [--results FOLDER]

Runs small cells on the CPU in turns, with `--fork` and `--no-fork`, and prints for each cell the ratio of throughput with its
95 % interval (round by round), whether that lies within 1 ± 2 %, and whether both proved the same; then both over all cells,
the same of the fastest steps (on a busy machine, the only ones that nothing else delayed), and the seconds of a launch. No
assertion, since machines differ.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from torchmatrix.analysis.intervals import Interval, paired_ratio
from torchmatrix.facts.launch import Launch, throughput
from torchmatrix.facts.store import Results

WITHIN = 0.02
MATRIX = """
[cpus]
counts = [2]
[[stack]]
torch = "2.5.1"
cpu = true
[[workload]]
device = "cpu"
counts = [1]
model = ["resnet18", "bert-tiny"]
mode = ["train", "infer"]
batch = 4
image_size = 64
sequence_length = 32
steps = 40
warmup_steps = 10
warmup_cap_seconds = 0
"""
KINDS = {"forked": ("--fork",), "fresh": ("--no-fork",)}


def measured(folder: Path, kind: str) -> list[Launch]:
    """One launch of each cell."""
    words = ("run", "--matrix", "matrix.toml", "--engine", "local", "--fast", "--new", "--quiet", "--results", kind)
    subprocess.run(
        [sys.executable, "-m", "torchmatrix", *words, *KINDS[kind]], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    found = sorted(Results(folder / kind).runs()[-1].launches(), key=lambda one: one.monotonic_seconds or 0.0)
    if {(one.outcome, one.started["process"]["state"]) for one in found} != {("ok", kind)}:
        raise SystemExit(f"not all launches are ok and {kind}: {[one.path for one in found]}")
    return found


def proof(launch: Launch) -> object:
    return launch.reference and sorted(launch.reference.fingerprint.items())


def in_words(found: Interval) -> str:
    within = "same" if found.low >= 1 - WITHIN and found.high <= 1 + WITHIN else "not shown"
    return f"{found.value:8.4f} ({found.low:.4f} to {found.high:.4f}) {within:10}"


def fastest(launch: Launch) -> float:
    """Steps per second of the fastest step."""
    return 1 / min(step for window in launch.windows for rank in window.step_seconds for step in rank)


def in_turns(folder: Path, rounds: int) -> dict[str, list[Launch]]:
    """The launches of each kind, in the same order."""
    found: dict[str, list[Launch]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in list(KINDS)[:: 1 if number % 2 else -1]:
            found[kind] += sorted(measured(folder, kind), key=lambda one: one.cell)
    return found


def ratio(both: dict[str, list[Launch]], rate: Callable[[Launch], float]) -> str:
    return in_words(paired_ratio(*(list(map(rate, both[kind])) for kind in KINDS)))


def main(folder: Path, rounds: int) -> None:
    (folder / "matrix.toml").write_text(MATRIX)
    found = in_turns(folder, rounds)
    print(f"{'forked / fresh':56}{'throughput':38}fastest step")
    for cell in sorted({launch.cell for launch in found["fresh"]}):
        both = {kind: [launch for launch in own if launch.cell == cell] for kind, own in found.items()}
        same = "same proofs" if len({str(proof(one)) for own in both.values() for one in own}) == 1 else "PROOFS DIFFER"
        print(f"{cell:56}{ratio(both, throughput)}{ratio(both, fastest)}{same}")
    print(f"{'all':56}{ratio(found, throughput)}{ratio(found, fastest)}")
    spent = {kind: median(launch.seconds for launch in own) for kind, own in found.items()}
    print("median seconds of a launch: " + ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in spent.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--results", type=Path, default=None, help="an empty folder; default: a temporary one")
    args = parser.parse_args()
    main(args.results or Path(tempfile.mkdtemp(prefix="torchmatrix-forks-")), args.rounds)
