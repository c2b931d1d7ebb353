"""Prints where the time of recorded launches goes, phase by phase: .venv/bin/python tests/bench/launch_cost.py RESULTS

Medians over the ok launches of each stack and number of devices. `fixed` is what is neither the start of the process or
container, `import torch`, the model, the method's own steps nor the proofs; it should be at most 0.5 s. No assertion, since
machines differ.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median

from torchmatrix.facts.launch import Launch
from torchmatrix.facts.lines import Event, read
from torchmatrix.facts.store import Results, RunFolder

LONGEST = 0.5
PART_OF = {
    "hello": "start", "phase import": "import", "phase model": "model", "phase first-step": "method", "warm-up": "method",
    "clock": "method", "sample": "method", "requests": "method", "steps": "method", "enqueue": "method", "all-reduce": "proofs",
    "precision": "proofs", "reference": "proofs", "exit": "end",
}  # fmt: skip
"""What the box or the host did before it wrote a line; start and end are those of the process, or of torchrun and its ranks."""
ORDER = ("start", "import", "model", "method", "proofs", "end", "fixed", "between")


def parts(events: Iterable[Event]) -> Mapping[str, float]:
    """Return the seconds by part, from the times at which lines were written."""
    seconds: dict[str, float] = defaultdict(float)
    for before, after in pairwise(event for event in events if event["event"] != "telemetry"):
        seconds[_part(after)] += after["monotonic_seconds"] - before["monotonic_seconds"]
    return seconds


def _part(event: Event) -> str:
    name = f"phase {event['phase']}" if event["event"] == "phase" else event["event"]
    return "proofs" if name.startswith("phase proof-") else PART_OF.get(name, "fixed")


def costs(run: RunFolder) -> dict[tuple[str, int], list[Mapping[str, float]]]:
    """Return the parts of each ok launch, by stack and number of devices; `between`: since the end of the launch before it."""
    launches: dict[tuple[str, int], list[Mapping[str, float]]] = defaultdict(list)
    ended = None
    for launch in sorted(run.launches(), key=lambda earlier: earlier.monotonic_seconds or 0.0):
        seconds = {**parts(read(launch.path).events), "between": 0.0 if ended is None else _begin(launch) - ended}
        ended = _begin(launch) + launch.seconds
        if launch.outcome == "ok":
            launches[launch.stack.name, len(launch.devices.indices)].append(seconds)
    return launches


def _begin(launch: Launch) -> float:
    return launch.monotonic_seconds or 0.0


def main(folder: Path) -> None:
    print(f"{'stack':24}{'devices':>8}{'n':>4}" + "".join(f"{name:>9}" for name in ORDER))
    for run in Results(folder).runs():
        for (stack, count), every in costs(run).items():
            middle = {name: median(launch.get(name, 0.0) for launch in every) for name in ORDER}
            mark = "" if middle["fixed"] + middle["between"] <= LONGEST else f"  more than {LONGEST:g} s"
            print(f"{stack:24}{count:>8}{len(every):>4}" + "".join(f"{middle[name]:9.3f}" for name in ORDER) + mark)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
