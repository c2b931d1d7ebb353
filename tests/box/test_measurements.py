"""A new measurement: one file beside those of the workload is a new mode, which the host plans, runs and reads back."""

import csv
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from torchmatrix.core import assets
from torchmatrix.facts.launch import Launch, throughput
from torchmatrix.facts.store import Results

CONVERSE = '''\
"""Generation: each request is a prefill of its whole batch, then decoded tokens, one after the other."""

import time

import torch

import measure
import measurements

MODE = {
    "trains": False,
    "windows": False,
    "timed": "prefill, decode",
    "noun": "conversation",
    "verb": "converses",
}
TOKENS = 3


def make_step(args, world, family, model, batches):
    decoder = torch.nn.Linear(8, 8).to(world.device)

    def pieces(index):
        batch = batches[index % len(batches)]
        yield "prefill", args.batch * args.sequence_length, lambda: family.forward(model, batch)
        for _ in range(TOKENS):
            yield "decode", args.batch, lambda: decoder(torch.ones(args.batch, 8, device=world.device))

    def run(index):
        with torch.no_grad():
            for _, _, work in pieces(index):
                work()

    return measure.Step(run, lambda: [], run, lambda: None, None, None, None, pieces, batches)


def streams(args, world, step, pace, new):
    phases = {name: {"items": [], "seconds": [], "requests": []} for name in ("prefill", "decode")}
    start = time.monotonic()
    with torch.no_grad(), measure.no_garbage_collection():
        for request in range(args.steps):
            for name, items, work in step.serve(request):
                world.synchronize()
                begin = time.perf_counter_ns()
                work()
                world.synchronize()
                for field, value in zip(phases[name], (items, (time.perf_counter_ns() - begin) / 1e9, request)):
                    phases[name][field].append(value)
    edges = start, time.monotonic()
    return [line for name, rows in phases.items() for line in measurements.stream(world, name, "tokens", rows, edges)]
'''
WITH_THAT_WORKLOAD = """\
import sys
from pathlib import Path
from torchmatrix.core import assets
assets.WORKLOAD = Path(sys.argv.pop(1))
from torchmatrix.__main__ import main
main()
"""
WORKLOAD = """
[[workload]]
device = "cpu"
model = "bert-tiny"
mode = ["infer", "converse"]
sequence_length = 16
batch = 2
steps = 4
requests = 0
warmup_steps = 2
warmup_cap_seconds = 0
"""


@pytest.fixture
def place(real_python: str, real_matrix: Path) -> Path:
    """Return a folder with a matrix of that mode, and a copy of the workload with its file."""
    real_matrix.write_text(real_matrix.read_text(encoding="utf-8") + WORKLOAD, encoding="utf-8")
    shutil.copytree(assets.WORKLOAD, real_matrix.parent / "workload", ignore=shutil.ignore_patterns("__pycache__"))
    (real_matrix.parent / "workload" / "measurements" / "converse.py").write_text(CONVERSE, encoding="utf-8")
    return real_matrix.parent


def call(place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process of its own, since it reads the modes when it starts."""
    command = [sys.executable, "-c", WITH_THAT_WORKLOAD, str(place / "workload"), *words]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def launches(place: Path) -> dict[tuple[str, int], Launch]:
    """Return the launches by mode and number of ranks."""
    (run,) = Results(place / "results").runs()
    return {(launch.workload.mode, launch.devices.count): launch for launch in run.launches()}


@pytest.mark.thorough
def test_a_file_with_two_named_phases_is_a_mode_from_the_matrix_to_the_report(place: Path) -> None:
    ran = call(place, "run", "--engine", "local")
    assert ran.returncode == 0, ran.stderr
    measured = launches(place)
    assert {key: (launch.outcome, launch.error) for key, launch in measured.items()} == {
        (mode, ranks): ("ok", None) for mode in ("infer", "converse") for ranks in (1, 2)
    }
    for ranks in (1, 2):
        launch = measured["converse", ranks]
        pieces = {(stream.phase, stream.rank): stream for stream in launch.streams}
        assert sorted(pieces) == [(phase, rank) for phase in ("decode", "prefill") for rank in range(ranks)]
        for (phase, _), stream in pieces.items():
            count, items = {"prefill": (1, 2 * 16), "decode": (3, 2)}[phase]
            assert Counter(stream.requests) == dict.fromkeys(range(4), count)
            assert stream.unit == "tokens" and set(stream.items) == {items}
            assert sum(stream.seconds) <= stream.edges[1] - stream.edges[0]
        assert not launch.windows and launch.warm_up_blocks and throughput(launch) != throughput(launch), "it has none"
        assert [process.phase for process in launch.memory] == ["cold", "warm"]
        assert "the work is not proven: only that of timed windows can be" in launch.remarks and launch.reference is None
    assert throughput(measured["infer", 1]) > 0 and not measured["infer", 1].streams
    reported = call(place, "report")
    assert reported.returncode == 0, reported.stderr
    page = (place / "reports" / "index.html").read_text(encoding="utf-8")
    assert "BERT-tiny, conversation" in page and "bert-tiny-converse-fp32-b2-s16-eager" in page
    exported = call(place, "export", "last", "out", "--format", "csv", "--no-charts")
    assert exported.returncode == 0, exported.stderr
    with (place / "out" / "launches.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == "converse"]
    assert [(row["outcome"], row["items_per_second"]) for row in rows] == [("ok", "")] * 2
    assert "ok: it has no such figure" in call(place, "history").stdout
    advised = call(place, "advise", "bert-tiny", "--mode", "converse")
    assert advised.returncode == 2 and "tells its throughput" in advised.stderr


def test_a_mode_that_no_file_has_is_refused_with_the_names_of_those_that_are_there(place: Path) -> None:
    path = place / "matrix.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('"converse"', '"convese"'), encoding="utf-8")
    done = call(place, "plan", "--engine", "local")
    assert done.returncode == 2 and "convese" in done.stderr and "converse" in done.stderr, done.stderr


def test_settings_of_windows_have_no_effect_on_a_mode_without(place: Path) -> None:
    path = place / "matrix.toml"
    text = path.read_text(encoding="utf-8").replace('["infer", "converse"]', '"converse"')
    path.write_text(text.replace("requests = 0\n", "windows = 3\n"), encoding="utf-8")
    done = call(place, "plan", "--engine", "local")
    assert done.returncode == 0, done.stderr
    assert "windows: has no effect: it is for mode = train or generate or infer" in done.stderr
