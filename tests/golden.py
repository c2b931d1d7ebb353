"""Writes what every verb that reads says of many runs: exports, --json, texts, the figures of pages, exit codes.

A change of the code that should change no figure is proved with it: write one folder before and one after, then
`diff -r BEFORE AFTER`. Run: .venv/bin/python tests/golden.py FOLDER [CASE …]
"""

import html
import io
import json
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from unittest import mock

from example import real_run
from support import invented
from support.records import ROOF, nights, write_run
from torchmatrix.cli import invoke
from torchmatrix.facts.store import Results

RECORDED = Path(__file__).parent / "data" / "recorded"
NOW = 1_790_000_000.0
"""A moment after all the invented runs: the same each time."""
_STACKS = ("torch2.5.1-cu124", "torch2.7.1-cu128", "ngc-25.02")
_MODELS = (("resnet50", "resnet50-train"), ("bert-base-cased", "bert-base-train"))
_OUTCOMES = ("oom", "crashed", "timeout", "numerics", "build-failed", "unsupported")
_TAGS = re.compile(r"<(script|style|svg)\b.*?</\1>|<[^>]*>", re.DOTALL)


def generated(seed: int) -> Iterator[dict[str, Any]]:
    """Yield launches of one random matrix: stacks × models × precisions × devices, some failed, some served, some explained."""
    rand = random.Random(seed)
    stacks = _STACKS[: rand.randint(1, 3)]
    sets = ((0,), (1,), (0, 1), (0, 1, 2, 3))[: rand.randint(1, 4)]
    for stack, (model, name), precision, devices in product(stacks, _MODELS[: rand.randint(1, 2)], ("fp32", "amp"), sets):
        batch = rand.choice((4, 4, 16))
        level = 100 * (1 + _STACKS.index(stack) / 20) * (3 if precision == "amp" else 1) * len(devices) ** 0.95
        failing = rand.random() < 0.12
        served = rand.random() < 0.15 and len(devices) == 1
        for _ in range(rand.choice((1, 2, 3, 5))):
            launch: dict[str, Any] = {
                "rate": level * rand.gauss(1, 0.01), "stack": stack, "workload": f"{name}-{precision}-b{batch}", "model": model,
                "devices": devices, "job": {"precision": precision, "batch": batch},
                "flops": 8.2e9 if rand.random() < 0.7 else None,
            }  # fmt: skip
            if failing and rand.random() < 0.7:
                launch["outcome"] = rand.choice(_OUTCOMES)
            elif served:
                rounds = [0.004 * rand.gauss(1, 0.05) for _ in range(40)]
                launch["served"] = {"latency": rounds, "end-to-end": [1.1 * seconds for seconds in rounds]}
            elif rand.random() < 0.5:
                launch["readings"] = [
                    (moment, {"device": f"GPU-{i}", "temperature_celsius": 50 + moment / 10 * (seed % 3), "sm_clock_mhz": 1700,
                              "power_watts": 400.0, "energy_joules": 400.0 * moment, "reasons": []})
                    for moment in (99.0, 105.0, 113.0, 121.0) for i in devices
                ]  # fmt: skip
            yield launch
        if len(devices) > 1 and rand.random() < 0.5:
            for parallel, gain in (("independent", 1.02), ("no-sync", 1.01)):
                workload = f"{name}-{precision}-b{batch}-{parallel}"
                job = {"precision": precision, "batch": batch}
                whole = f"{name}-{precision}-b{batch}"
                for _ in range(3):
                    yield {
                        "rate": level * gain * rand.gauss(1, 0.01), "stack": stack, "workload": workload, "model": model,
                        "devices": devices, "parallel": parallel, "job": job, "ddp_workload": whole,
                    }  # fmt: skip


def cube(rand: random.Random) -> Iterator[dict[str, Any]]:
    """Yield launches of three settings, each with each other, on two stacks."""
    for stack, precision, compiled, last in product(_STACKS[:2], ("fp32", "amp"), (False, True), (False, True)):
        gain = (3 if precision == "amp" else 1) * (1.2 if compiled else 1) * (1.15 if last and precision == "amp" else 1)
        for _ in range(3):
            yield {
                "rate": 100 * gain * rand.gauss(1, 0.005), "stack": stack, "workload": f"r-{precision}-{compiled}-{last}",
                "job": {"precision": precision, "compile": compiled, "channels_last": last, "batch": 4},
            }  # fmt: skip


def generation(rand: random.Random) -> Iterator[dict[str, Any]]:
    """Yield launches that generate: two stacks, two types of weights, three batches; one runs out of memory."""
    for stack, precision, batch in product(_STACKS[:2], ("bf16-weights", "fp32"), (1, 8, 32)):
        step = 0.01 * (2 if precision == "fp32" else 1) * (1 + batch / 64) * (1 - _STACKS.index(stack) / 20)
        for _ in range(3):
            job = {"mode": "generate", "precision": precision, "batch": batch, "unit": "tokens", "sequence_length": 128}
            launch = {"stack": stack, "workload": f"llama-{precision}-b{batch}", "model": "llama-3.2-1b", "job": job}
            pieces = {"event": "stream", "unit": "tokens", "rank": 0, "start_monotonic_seconds": 120.0,
                      "stop_monotonic_seconds": 190.0}  # fmt: skip
            prompts = {"phase": "prefill", "items": [128 * batch] * 100, "seconds": [0.02 * batch] * 100}
            tokens = {"phase": "decode", "items": [batch] * 200, "seconds": [step * rand.gauss(1, 0.02) for _ in range(200)]}
            numbers, roof = list(range(100)), ROOF | {"weight_bytes": 2.5e9, "cache_bytes": 1e8}
            told = [pieces | prompts | {"requests": numbers}, pieces | tokens | {"requests": numbers * 2}, roof]
            yield launch | ({"outcome": "oom"} if precision == "fp32" and batch == 32 else {"told": told, "rate": batch / step})


def cluster(rand: random.Random) -> Iterator[dict[str, Any]]:
    for count, _ in product((1, 2, 4), range(3)):
        yield {"rate": 760 * count * rand.gauss(0.97, 0.01), "stack": _STACKS[0], "devices": tuple(range(8)), "nodes": count}
        yield {"rate": 100 * rand.gauss(1, 0.01), "stack": _STACKS[0], "devices": (0,)}


def broken(run: Any) -> None:
    """Cut one launch in the middle, garble the next, empty a third."""
    paths = sorted(run.path.rglob("round*.jsonl"))
    paths[0].write_bytes(paths[0].read_bytes()[: paths[0].stat().st_size // 2])
    paths[1].write_text("{not JSON\n" + paths[1].read_text())
    paths[2].write_text("")


def cases() -> dict[str, Callable[[Path], object]]:
    """Return by name what writes a results folder."""
    first, *others = invented.machines()
    failing = {f"{model}/{precision}": "oom" for model, precision in product(("resnet50", "bert-base-cased"), ("fp32", "amp"))}
    return {
        **{f"random-{seed:02}": partial(_random, seed) for seed in range(40)},
        "two-runs": lambda root: [write_run(root, list(generated(seed)), run=run) for seed, run in enumerate(nights(2), 4)],
        "broken": lambda root: broken(write_run(root, list(generated(7)), complete=False)),
        "nothing": lambda root: write_run(root, [], complete=False),
        "cube": lambda root: write_run(root, list(cube(random.Random(3)))),
        "generation": lambda root: write_run(root, list(generation(random.Random(5)))),
        "cluster": lambda root: write_run(root, list(cluster(random.Random(4)))),
        "nights": _nights,
        "machines": lambda root: [invented.write(root, machine) for machine in (first, *others)],
        "one-launch": lambda root: invented.write(root, first, launches=1),
        "all-failed": lambda root: invented.write(root, replace(first, fails=failing)),
        "recorded": lambda root: shutil.copytree(RECORDED, root, dirs_exist_ok=True),
        "example": _example,
    }


def _random(seed: int, root: Path) -> None:
    write_run(root, list(generated(seed)), skips=[("a/b/c", "no GPU")])


def _nights(root: Path) -> None:
    rand = random.Random(6)
    for night, run in enumerate(nights(14)):
        level = 1.0 if night < 9 else 0.94
        launches: list[dict[str, Any]] = [
            {"rate": 1000 * level * rand.gauss(1, 0.004), "stack": stack, "workload": name, "model": model}
            for stack, (model, name), _ in product(_STACKS[:2], _MODELS, range(3))
        ]
        if night == 5:
            launches[0] = {"outcome": "crashed", "stack": _STACKS[0], "workload": _MODELS[0][1], "model": _MODELS[0][0]}
        write_run(root, launches, run=run)


def _example(root: Path) -> None:
    with real_run() as results:
        for run in results.runs():
            shutil.copytree(run.path, root / "example" / run.id)


def readings(root: Path, out: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield by name the arguments of each reading."""
    runs, at = [run.id for run in Results(root).runs()], ["--results", str(root)]
    for run in runs[-2:]:
        yield f"export-{run}", ["export", run, str(out / f"export-{run}"), *at, "--no-charts"]
        yield f"report-{run}", ["report", run, "--output", str(out / f"report-{run}.html"), *at]
        yield f"gate-{run}", ["gate", run, *at, "--json"]
        yield f"audit-{run}", ["audit", run, *at, "--json"]
        for model, aim in product([model for model, _ in _MODELS], ("throughput", "memory")):
            yield f"advise-{run}-{model}-{aim}", ["advise", model, "--run", run, "--aim", aim, *at, "--json"]
    hosts = sorted(path.name for path in root.iterdir() if not path.name.startswith(".")) if root.is_dir() else []
    pairs = [("last", "last"), *([("last", "last~1")] if len(runs) > 1 else []), *pairwise(hosts)]
    pairs += [(_STACKS[0], _STACKS[1])]
    for place, (a, b) in enumerate(pairs):
        for flags in ([], ["--json"]):
            yield f"compare-{place}{'-json' * bool(flags)}", ["compare", a, b, *at, *flags]
    yield "history", ["history", *at, "--json", "--output", str(out / "history.html")]
    yield "export-machines", ["export", str(out / "export-machines"), "--machines", *at, "--no-charts"]
    yield "report-machines", ["report", "--machines", "--output", str(out / "machines.html"), *at]


def read(arguments: Sequence[str]) -> str:
    """Return what a verb prints, and its exit code."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = invoke(list(arguments))
    return f"{printed.getvalue()}\nexit code {code}\n"


def text_of(page: str) -> str:
    """Return what a reader sees of a page, one line for each part that isn't empty, and the data of its explorers."""
    data = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    lines = (" ".join(html.unescape(part).split()) for part in _TAGS.sub("\n", page).split("\n"))
    return "\n".join([*(line for line in lines if line), *data]) + "\n"


def main(target: Path, chosen: Sequence[str]) -> None:
    begun = time.monotonic()
    for name, make in cases().items():
        if chosen and name not in chosen:
            continue
        root, out = Path("/tmp/torchmatrix-golden") / name, target / name
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        root.mkdir(parents=True)
        out.mkdir(parents=True)
        make(root)
        texts = {}
        with mock.patch("time.time", lambda: NOW):
            for reading, arguments in readings(root, out):
                texts[reading] = read(arguments).replace(str(out), "OUT").replace(str(root), "ROOT")
        for reading, text in texts.items():
            (out / f"{reading}.txt").write_text(text)
        for page in out.glob("*.html"):
            page.with_suffix(".page.txt").write_text(text_of(page.read_text()))
            page.unlink()
        for parquet in out.rglob("*.parquet"):
            import pandas as pd

            frame = pd.read_parquet(parquet)
            parquet.with_suffix(".parquet.txt").write_text(
                f"{json.dumps({n: str(t) for n, t in frame.dtypes.items()})}\n{frame.to_json()}\n"
            )
            parquet.unlink()
        shutil.rmtree(root)
        print(f"{name}: {len(texts)} readings, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
