"""Work that only looks fast is no figure: steps on new batches, requests that come anew and the host's own clock tell."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import Command
from support.boxes import bench
from torchmatrix.facts import plausible, reading
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results

pytestmark = pytest.mark.thorough
SABOTAGE = Path(__file__).parent
BROKEN = """\
import os, runpy, sys
real, name, words = sys.argv[1], sys.argv[2], sys.argv[3:]
box = next((number for number, word in enumerate(words) if word.endswith("bench.py")), None)
if box is None:
    os.execv(real, [real, *words])
sys.path[:0] = [os.path.dirname(words[box]), {folder!r}]
import sabotage
getattr(sabotage, name)()
sys.argv = words[box:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SMALL = 'device = "cpu"\nmodel = "resnet18"\nbatch = 2\nimage_size = 32\nsteps = 5\nwarmup_steps = 4\nwarmup_cap = 8\n'
"""Each of the four batches that take turns is seen before the timed window, so that a memory answers all of its steps."""
RESNET = ("--model", "resnet18", "--image-size", "32", "--batch", "4", "--steps", "8", "--warmup-steps", "8")
INFER = (*RESNET, "--mode", "infer", "--requests", "30", "--request-seconds", "1")
PROVEN = ("--proof", "fingerprint", "--warmup-cap", "9")
MEMOS = (
    "memo_of_contents", "memo_of_places", "memo_of_objects", "memo_of_a_part", "memo_on_second_sight", "memo_of_items",
    "memo_of_half_the_batches",
)  # fmt: skip
FROM_MEMORY = "on those of the timed windows: these were answered from memory"


def said_of(events: list[dict[str, Any]], ranks: int = 1) -> str:
    """Return what the host finds in these lines."""
    fields = reading.launch_fields(events)
    assert fields["malformed"] is None and fields["is_done"], fields["failures"]
    requested = plausible.Requested(
        ranks=ranks, here=ranks, batch=4, steps=8, exactly=True, windows=1, requests=30 if fields["requests"] else 0
    )
    contradiction = plausible.contradiction_of_unseen(fields["unseen"], fields["windows"], requested)
    observed = plausible.Observed(begin=None, seconds=float("nan"), offset=None)
    return str(contradiction or plausible.contradiction_of_requests(fields["requests"], fields["windows"], requested, observed))


def why_none(code: int, events: list[dict[str, Any]], ranks: int = 1) -> str:
    """Return why there is no figure: by the workload, or else by the host."""
    failures = [event["message"] for event in events if event["event"] == "failure"]
    return str(failures[0]) if code else said_of(events, ranks)


def before(name: str) -> str:
    return f"import sys; sys.path.insert(0, {str(SABOTAGE)!r}); import sabotage; sabotage.{name}()"


@pytest.mark.parametrize("memo", MEMOS)
def test_inference_that_answers_from_a_memo_is_no_figure(real_python: str, memo: str) -> None:
    code, events, stderr = bench(real_python, *INFER, *PROVEN, before=before(memo))
    why = why_none(code, events)
    assert FROM_MEMORY in why or "the products of the timed step are none" in why, stderr


@pytest.mark.parametrize("processes", [1, 2])
def test_training_that_recalls_its_gradients_is_no_figure(real_python: str, processes: int) -> None:
    code, events, stderr = bench(
        real_python, *RESNET, *PROVEN, "--parallel", "independent", processes=processes, before=before("memo_of_gradients")
    )
    why = why_none(code, events, processes)
    assert FROM_MEMORY in why or "are those from before them" in why, stderr


def test_end_to_end_far_shorter_than_on_the_device_alone_is_impossible(real_python: str) -> None:
    code, events, stderr = bench(real_python, *INFER, *PROVEN, before=before("memo_of_requests"))
    assert code == 0, stderr
    assert said_of(events).startswith("end-to-end of rank 0: a request took 0.0000")


WATCH = """
import hashlib, atexit, json, os, families
real, seen = families.of, []
def of(args):
    family = real(args)
    if not hasattr(family, "watched"):
        family.watched = family.forward
        def forward(net, batch):
            seen.append([hashlib.sha1(one.contiguous().numpy().tobytes()).hexdigest() for one in batch.values()])
            return family.watched(net, batch)
        family.forward = forward
    return family
families.of = of
from measurements import requests
serve = requests.serve
def watched(*what):
    seen.clear()
    found = serve(*what)
    print(json.dumps({"watched": seen}), file=__import__("sys").stderr)
    return found
requests.serve = watched
"""


@pytest.mark.parametrize("batch", [4, 1])
def test_no_two_requests_have_the_same_content_and_their_targets_stay_with_them(real_python: str, batch: int) -> None:
    words = ("--model", "resnet18", "--image-size", "64", "--batch", str(batch), "--mode", "infer", "--proof", "none")
    code, events, stderr = bench(real_python, *words, "--requests", "40", "--request-seconds", "60", before=WATCH)
    assert code == 0, stderr
    (line,) = (line for line in stderr.splitlines() if line.startswith('{"watched"'))
    contents = [tuple(content) for content in json.loads(line)["watched"]]
    count = sum(len(event["seconds"]) + 3 for event in events if event["event"] == "requests")
    assert len(contents) == count and (len(set(contents)) == count or batch == 1)


def test_an_honest_launch_is_accused_of_nothing_and_tells_its_new_batches(real_python: str) -> None:
    """Three of them; one where each timed step took a tenth of a second."""
    for words in ((*RESNET, *PROVEN), (*INFER, *PROVEN)):
        for processes in (1, 2):
            code, events, stderr = bench(real_python, *words, processes=processes)
            assert code == 0, stderr
            assert said_of(events, processes) == "None"
            fields = reading.launch_fields(events)
            shortest = min(step for window in fields["windows"] for rank in window.step_seconds for step in rank)
            new, *_ = fields["unseen"].new
            assert new.steps == (1 if shortest >= 0.1 else 3) and len(new.step_seconds) == processes


def test_a_long_step_is_tried_on_one_new_batch_which_tells_a_memo_as_well(real_python: str) -> None:
    """With a border that each step reaches."""
    always = "import unseen; unseen.LONG_SECONDS = 0.0"
    code, events, stderr = bench(real_python, *INFER, *PROVEN, before=always)
    assert code == 0, stderr
    new, *_ = reading.launch_fields(events)["unseen"].new
    assert new.steps == 1 and said_of(events) == "None"
    code, events, stderr = bench(real_python, *INFER, *PROVEN, before=f"{before('memo_of_contents')}; {always}")
    why = why_none(code, events)
    assert FROM_MEMORY in why or "the products of the timed step are none" in why, stderr


@pytest.fixture
def broken(tmp_path: Path, real_python: str, torchmatrix: Command) -> Callable[..., dict[str, Launch]]:
    """Return what runs this workload once through the whole tool with each of these sabotages: by its name, the launch."""

    def run(workload: str, *names: str) -> dict[str, Launch]:
        text = "[run]\nlaunches = 1\n[cpus]\ncounts = [1]\n"
        (tmp_path / "broken.py").write_text(BROKEN.format(folder=str(SABOTAGE)))
        for name in names:
            python = tmp_path / f"python-{name}"
            python.write_text(f'#!/bin/sh\nexec {real_python} {tmp_path}/broken.py {real_python} {name} "$@"\n')
            python.chmod(0o755)
            text += f'[[stack]]\nname = "{name.replace("_", "-")}"\npython = "{python}"\n'
        (tmp_path / "matrix.toml").write_text(f"{text}[[workload]]\n{SMALL}{workload}")
        assert torchmatrix("run", "--engine", "local").returncode == 1
        (folder,) = Results(tmp_path / "results").runs()
        return {launch.stack.name.replace("-", "_"): launch for launch in folder.launches()}

    return run


@pytest.mark.sweep
def test_a_clock_that_is_slow_or_fast_is_found_by_the_arrivals_of_the_lines(broken: Callable[..., dict[str, Launch]]) -> None:
    launches = broken("seconds = 2\n", "slow_clock", "fast_clock", "slow_timer", "no_sabotage")  # clocks may differ by 0.1 s
    assert launches.pop("no_sabotage").outcome == "ok"
    assert {launch.outcome for launch in launches.values()} == {"crashed"}
    for name in ("slow_clock", "fast_clock"):
        assert "s went by on the workload's clock and" in str(launches[name].error)
    assert "but the window's edges are" in str(launches["slow_timer"].error)


@pytest.mark.sweep
def test_a_memo_costs_the_launch_its_figure(broken: Callable[..., dict[str, Launch]]) -> None:
    launches = broken(
        'mode = "infer"\nrequests = 20\nrequest_seconds = 0.5\n', "memo_of_contents", "memo_of_requests", "no_sabotage"
    )
    assert launches.pop("no_sabotage").outcome == "ok"
    contents, requests = launches["memo_of_contents"], launches["memo_of_requests"]
    roof = "times what this device reaches in products of matrices"  # the workload says it before the host judges
    assert (contents.outcome, roof in str(contents.error), FROM_MEMORY in str(contents.error)) in (
        ("numerics", True, False), ("crashed", False, True),
    )  # fmt: skip
    assert requests.outcome == "crashed" and "one on the device alone" in str(requests.error)
