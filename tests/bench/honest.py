"""Counts how often the proof of work, or the host, accuses a launch that did its work: honest launches and false alarms.

    .venv/bin/python tests/bench/honest.py --python STACK/bin/python --python OTHER/bin/python --launches 200

Starts the workload in pairs of launches, first with a full proof, then with a fingerprint, whose losses are held against the
first one's as the tool holds them: with small models on the CPU, in an order shuffled by --seed. --of says which: "listed" ones
over interpreters × models × training, inference and generation × precisions × ranks × seeds (and compiled ones with --compile,
which take minutes each on a slow machine), language models by "configuration", a user's "own" models of every kind; without it
--launches of each. Prints each pair as it ends, an alarm with its words, and at the end the counts by interpreter. --seconds
ends it earlier.
"""

import argparse
import itertools
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "images" / "workload"))
from support import configurations
from support.boxes import bench, own_model, recorded
from support.own_models import HOOKED, MORE, NET, PROVEN
from torchmatrix.facts import plausible, reading
from torchmatrix.facts.reading import compare, proof_of

MODELS = (
    ("--model", "resnet18", "--image-size", "32", "--batch", "4"),
    ("--model", "resnet18", "--image-size", "64", "--batch", "2", "--channels-last"),
    ("--model", "bert-tiny", "--sequence-length", "16", "--batch", "2", "--optimizer", "adamw"),
    ("--model", "bert-tiny", "--sequence-length", "32", "--batch", "4", "--optimizer", "adamw"),
    ("--model", "lm-1m", "--sequence-length", "32", "--batch", "2", "--optimizer", "adamw", "--attention", "sdpa"),
    ("--model", "lm-10m-moe", "--sequence-length", "16", "--batch", "2", "--optimizer", "adamw"),
)
GENERATES = ("--mode", "generate", "--output-length", "8", "--requests", "10")
"""The mode of language models besides the others; without autocast, as a cache has one type."""
SEEDS = 5
KINDS = ("fp32", "amp-bf16", "bf16-weights", "bf16-master", "half")
LONGER = ("--warmup-steps", "8", "--steps", "12")


TRAINS, INFERS = ("--mode", "train"), ("--mode", "infer", "--requests", "20")
Launches = list[tuple[str, int, tuple[str, ...]]]
"""Each as (interpreter, ranks, flags)."""


def listed(args: argparse.Namespace, _: Path) -> Launches:
    """Return launches of models that the catalog has."""
    kinds = ((), ("--compile",)) if args.compile else ((),)
    modes = (TRAINS, INFERS, GENERATES)
    return [
        (python, ranks, (*model, *mode, *LONGER, "--precision", precision, "--seed", str(seed), *kind))
        for python, ranks, model, mode, precision, seed, kind in itertools.product(
            args.python, (1, 2), MODELS, modes, KINDS, range(SEEDS), kinds
        )
        if model[1] not in args.without.get(python, ()) and model[1].startswith(args.model)
        if (precision != "half" or mode[1] != "train") and (precision != "bf16-master" or mode[1] == "train")
        if (ranks == 1 or mode is not GENERATES)
        if mode is not GENERATES or (model[1].startswith("lm-") and precision != "amp-bf16")
    ]


def by_configuration(args: argparse.Namespace, folder: Path) -> Launches:
    """Return launches of language models by config.json, of the types that an interpreter's transformers has."""
    sizes = ("--sequence-length", "32", "--batch", "2", *LONGER)
    return [
        (python, 1, (*configurations.written(folder, kind), *sizes, *mode, "--precision", precision))
        for python, kind, mode, precision in itertools.product(
            args.python, configurations.KINDS, (TRAINS, INFERS, GENERATES), ("fp32", "bf16-weights")
        )
        if kind in args.types[python] and not (kind in OTHER_LOGITS and mode is GENERATES and "4" in args.types[python])
    ]


def own(args: argparse.Namespace, folder: Path) -> Launches:
    """Return launches of a user's own models."""
    launches: Launches = []
    for kind, (init, forward) in {**PROVEN, **HOOKED, **MORE}.items():
        place = folder / kind.replace(" ", "-")
        place.mkdir()
        flags = own_model(place, NET.format(init=init or "pass", forward=forward or "pass"))
        launches += [(python, 1, (*flags, *LONGER, *mode)) for python in args.python for mode in (TRAINS, INFERS)]
    return launches


OTHER_LOGITS = ("jetmoe",)
"""Types that transformers 4 decodes by other logits with a static cache (findings/static-cache-types.sh): no honest work."""
KINDS_OF_LAUNCHES = {"listed": listed, "configuration": by_configuration, "own": own}


def chosen(args: argparse.Namespace, folder: Path) -> Launches:
    """Return launches of each kind that is asked for, shuffled."""
    launches = []
    for name in args.of or KINDS_OF_LAUNCHES:
        of_kind = KINDS_OF_LAUNCHES[name](args, folder)
        random.Random(args.seed).shuffle(of_kind)
        launches += of_kind[: args.launches]
    random.Random(args.seed).shuffle(launches)
    return launches


def verdict(code: int, events: list[dict[str, Any]]) -> tuple[str, str]:
    """Return (ok, unsupported, alarm or failed; why)."""
    failures = [event for event in events if event["event"] == "failure"]
    why = "; ".join(event["message"] for event in failures)
    if any(event["kind"] == "numerics" for event in failures):
        return "alarm", why
    if failures and all(event["kind"] == "unsupported" for event in failures):
        return "unsupported", why
    proven = any(event["event"] == "reference" and event["agrees"] for event in events)
    if code != 0 or not proven:
        return "failed", why or f"exit code {code}"
    doubt = of_the_host(events)
    return ("alarm", doubt) if doubt else ("ok", "")


def of_the_host(events: list[dict[str, Any]]) -> str | None:
    """Return what contradicts the windows, as the host judges them; None if nothing does."""
    fields = reading.launch_fields(events)
    ranks, requests = fields["told_ranks"], max((len(request.seconds) for request in fields["requests"]), default=0)
    wanted = plausible.Requested(ranks=ranks, here=ranks, batch=None, steps=None, exactly=False, windows=1, requests=requests)
    observed = plausible.Observed(begin=None, seconds=float("nan"), offset=None)
    return plausible.contradiction_of_unseen(
        fields["unseen"], fields["windows"], wanted
    ) or plausible.contradiction_of_requests(fields["requests"], fields["windows"], wanted, observed)


def pair(python: str, ranks: int, words: tuple[str, ...], folder: Path) -> tuple[str, str, list[dict[str, Any]]]:
    """Make a launch with a full proof and one that is held against it.

    Return (ok, alarm or failed; why; the events of both).
    """
    code, first, _ = bench(python, *words, processes=ranks)
    outcome, why = verdict(code, first)
    proven = proof_of(recorded(folder / "round1-try1.jsonl", words, ranks, first)) if outcome == "ok" else None
    if proven is None:
        return outcome, why, first
    again = (*words, "--proof", "fingerprint", "--steps", "15")
    code, second, _ = bench(python, *again, processes=ranks)
    outcome, why = verdict(code, second)
    if outcome == "ok":
        held = compare(recorded(folder / "round2-try1.jsonl", again, ranks, second), proven)
        outcome, why = ("alarm", held.contradiction) if held.contradiction else ("ok" if held.losses else "failed", "")
    return outcome, why, first + second


def proof_seconds(events: list[dict[str, Any]]) -> float:
    return sum(event["seconds"] for event in events if event["event"] == "phase" and event["phase"].startswith("proof-"))


def libraries(python: str) -> set[str]:
    """Return the models whose library this interpreter lacks."""
    needs = dict.fromkeys((words[1] for words in MODELS), "transformers") | {"resnet18": "torchvision"}
    run = {name: subprocess.run([python, "-c", f"import {library}"], capture_output=True) for name, library in needs.items()}
    return {name for name, done in run.items() if done.returncode}


def types(python: str) -> set[str]:
    """Return the types of models that an interpreter's transformers has, and its major version; none without it."""
    words = (
        "import transformers as t; print(t.__version__.split('.')[0], *t.models.auto.configuration_auto.CONFIG_MAPPING_NAMES)"
    )
    return set(subprocess.run([python, "-c", words], capture_output=True, text=True).stdout.split())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", action="append", required=True, help="an interpreter with torch; may be repeated")
    parser.add_argument("--launches", type=int, default=200, help="pairs of them, of each kind")
    parser.add_argument("--of", action="append", choices=KINDS_OF_LAUNCHES, help="this kind alone; may be repeated")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--model", default="", help="only models whose names begin so, such as lm-")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.without = {python: libraries(python) for python in args.python}
    args.types = {python: types(python) for python in args.python}
    counts: Counter[tuple[str, str]] = Counter()
    costs, begin = [], time.monotonic()
    folder = Path(tempfile.mkdtemp())
    for python, ranks, words in chosen(args, folder):
        if time.monotonic() - begin > args.seconds:
            break
        outcome, why, events = pair(python, ranks, words, folder)
        counts[python, outcome] += 1
        costs.append(proof_seconds(events))
        print(f"{outcome}: {python} {' '.join(words)}, {ranks} ranks{why and ': '}{why}", flush=True)
    for (python, outcome), count in sorted(counts.items()):
        print(f"{count:5d} {outcome:11s} {python}")
    print(f"seconds of a proof: median {statistics.median(costs):.2f}, largest {max(costs):.2f}")
    return 1 if any(outcome in ("alarm", "failed") for _, outcome in counts) else 0


if __name__ == "__main__":
    raise SystemExit(main())
