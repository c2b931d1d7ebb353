"""Own models of every kind: whatever draws, keeps or shapes its numbers in another way is proven, or told why it can't be.

In inference, which takes a tenth of the time, where training shows nothing more.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.boxes import bench, only, own_model, recorded
from support.own_models import HOOKED, MORE, NET, PROVEN, SHIFT
from torchmatrix.core import assets
from torchmatrix.facts import reading

pytestmark = pytest.mark.xdist_group("own model")  # one process runs all of the files
TRAINED = (
    MORE["sparse gradients"],
    MORE["a spectral norm"],
    *(
        PROVEN[name]
        for name in ("complex weights", "whole and truth values", "a generator of its own", "a counter", "no numbers, and one")
    ),
)
"""All in one model: importing what trains takes seconds."""
NOT_PROVEN = {
    "a count that is no buffer": (
        "self.n = 1",
        f"self.n += 1; {SHIFT}",
        "this model can't be proven: the same step from the same weights",
    ),
    "chance from outside": ("self.g = random.SystemRandom()", "inputs = inputs * self.g.random()", "gives the loss"),
    "a buffer that grows": (
        "self.register_buffer('n', torch.zeros(1))",
        "self.n = torch.cat([self.n, torch.zeros(1)])",
        "its steps add buffers or change their",
    ),
    "a generator without a seed": (
        "self.g = np.random.default_rng()",
        "pass",
        "Net gave other generators of its own, each time",
    ),
    "a lazy layer that is never reached": ("self.l = nn.LazyLinear(3)", "pass", "leaves l.weight without a shape"),
}


def launched(python: str, folder: Path, *words: str, init: str = "", forward: str = "", **more: Any) -> Any:
    text = NET.format(init=init or "pass", forward=forward or "pass")
    return bench(python, *own_model(folder, text), *words, **more)


@pytest.mark.parametrize("kind", PROVEN)
def test_a_model_is_proven_whatever_it_draws_from_keeps_and_gives(real_python: str, tmp_path: Path, kind: str) -> None:
    init, forward = PROVEN[kind]
    code, events, stderr = launched(real_python, tmp_path, "--mode", "infer", init=init, forward=forward)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr


def test_a_model_whose_answer_depends_on_its_count_is_told_and_not_refused(real_python: str, tmp_path: Path) -> None:
    init, forward = PROVEN["a counter"]
    code, events, stderr = launched(real_python, tmp_path, "--mode", "infer", "--batches", "1", init=init, forward=forward)
    assert code == 0 and "depend on buffers that each step changes" in only(events, "reference")["unwatched"], stderr


def test_a_buffer_that_several_layers_share_is_set_back_in_another_type(real_python: str, tmp_path: Path) -> None:
    init, forward = (
        "self.register_buffer('p', torch.ones(6)); self.layer.register_buffer('q', self.p)",
        "inputs = inputs * self.p",
    )
    flags = ("--precision", "bf16-weights", "--mode", "infer")
    code, events, stderr = launched(real_python, tmp_path, *flags, init=init, forward=forward)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr


def test_a_model_is_trained_and_proven_whatever_its_gradients_are(real_python: str, tmp_path: Path) -> None:
    init, forward = ("\n        ".join(lines) for lines in zip(*TRAINED, strict=True))
    code, events, stderr = launched(real_python, tmp_path, init=init, forward=forward)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr
    assert "discards the imaginary part" not in stderr


@pytest.mark.parametrize("kind", HOOKED)
def test_what_acts_in_a_backward_pass_alone_is_proven(real_python: str, tmp_path: Path, kind: str) -> None:
    code, events, stderr = launched(real_python, tmp_path, init=HOOKED[kind][0], forward=HOOKED[kind][1])
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr


def test_of_whole_numbers_it_is_told_that_not_every_step_is_looked_at(real_python: str, tmp_path: Path) -> None:
    text = NET.format(init="pass", forward="return self.layer(inputs).argmax(-1)")
    text = text.replace(
        'nn.functional.cross_entropy(getattr(outputs, "logits", outputs), targets)', "(outputs == targets).float().mean()"
    )
    _, events, stderr = bench(real_python, *own_model(tmp_path, text), "--mode", "infer")
    failures = [event["message"] for event in events if event["event"] == "failure"]
    assert not any("computes nothing" in message for message in failures), (failures, stderr)


def test_clocks_that_a_models_file_replaces_are_not_the_launchs(real_python: str, tmp_path: Path) -> None:
    slower = "; ".join(
        f"real_{name} = time.{name}; time.{name} = lambda real=real_{name}: type(real())(real() / 2)"
        for name in ("perf_counter", "perf_counter_ns", "monotonic", "time")
    )
    code, events, stderr = launched(real_python, tmp_path, "--mode", "infer", init=f"import time; {slower}")
    assert code == 0, stderr
    windows = [event for event in events if event["event"] == "sample" and event["phase"] == "measure"]
    for window in windows:
        wall = window["stop_monotonic_seconds"] - window["start_monotonic_seconds"]
        assert windows and 0.8 < max(window["seconds"]) / wall < 1.01


def test_a_quick_check_takes_another_branch_than_the_first_step(real_python: str, tmp_path: Path) -> None:
    """The batches' sums have both signs, so that half of the layers has no part in a step."""
    init = "self.other = nn.Linear(6, 3)"
    forward = "if inputs.sum() > 0: return self.other(inputs)"
    for proof in ("full", "fingerprint"):
        code, events, stderr = launched(real_python, tmp_path, "--proof", proof, init=init, forward=forward)
        assert code == 0 and only(events, "reference")["agrees"] is True, stderr
    norms = only(events, "reference")["fingerprint"]
    assert 0.0 in (norms["gradient_norm of other"], norms["gradient_norm of layer"])


DRAWING = {
    "functional dropout": ("pass", "inputs = nn.functional.dropout(inputs, 0.5, self.training)", ()),
    "noise": ("pass", "inputs = inputs + torch.randn_like(inputs)", ("--mode", "infer")),
    "noise that evaluation can't leave out": (
        "pass",
        "inputs = inputs + torch.randn_like(inputs)\n        if not self.training: return {}",
        (),
    ),
}


@pytest.mark.parametrize("kind", DRAWING)
def test_a_compiled_model_draws_other_numbers_and_is_not_wrong_for_that(real_python: str, tmp_path: Path, kind: str) -> None:
    init, forward, words = DRAWING[kind]
    code, events, stderr = launched(real_python, tmp_path, "--compile", *words, init=init, forward=forward)
    reference = only(events, "reference")
    assert code == 0 and reference["problems"] == [], stderr
    if "noise" in kind:
        assert reference["agrees"] is None and "draws random numbers that can't be turned off" in reference["error"]
    else:
        assert reference["agrees"] is True and reference["quiet"] and reference["flops_per_item"] == 6 * 6 * 3 - 2 * 6 * 3


SEEN = """
import random, sys
sys.path.insert(0, sys.argv[1])
from proofs import reference, rules
chance = random.Random(3)
for draw in (chance.random, lambda: chance.lognormvariate(0, 0.3)):
    refused = 0
    for _ in range(20000):
        loss, *losses = (1 + draw() for _ in range(reference.DRAWS + 2))
        refused += not rules.is_such_a_draw(loss, losses)
        assert not rules.is_such_a_draw(max(losses) + 1.01 * (max(losses) - min(losses)), losses)
    print(refused / 20000)
assert not rules.is_such_a_draw(float("nan"), [1.0, 2.0]) and not rules.is_such_a_draw(1.1, [1.0, 1.0])
"""


def test_an_honest_draw_is_hardly_ever_taken_for_wrong_work(real_python: str) -> None:
    done = subprocess.run([real_python, "-c", SEEN, str(assets.WORKLOAD)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(float(share) < 5e-4 for share in done.stdout.split()), done.stdout


def test_launches_that_draw_are_held_against_each_other_by_their_first_steps_only(real_python: str, tmp_path: Path) -> None:
    _, forward, words = DRAWING["noise"]
    launches = []
    for steps, proof in (("3", "full"), ("4", "fingerprint")):
        flags = (*own_model(tmp_path, NET.format(init="pass", forward=forward)), *words, "--steps", steps, "--proof", proof)
        code, events, stderr = bench(real_python, *flags)
        assert code == 0, stderr
        launches.append(recorded(tmp_path / f"{steps}.jsonl", flags, 1, events))
    proven = reading.proof_of(launches[0])
    assert proven is not None and "by chance" not in str(proven) and launches[1].reference
    assert "two steps on one batch give other ones" in str(launches[1].reference.unwatched)
    assert reading.compare(launches[1], proven).contradiction is None


@pytest.mark.parametrize("kind", NOT_PROVEN)
def test_what_cannot_be_proven_is_told_with_the_way_out(real_python: str, tmp_path: Path, kind: str) -> None:
    init, forward, message = NOT_PROVEN[kind]
    code, events, _ = launched(real_python, tmp_path, "--mode", "infer", init=init, forward=forward)
    assert code and message in only(events, "failure")["message"]


@pytest.mark.parametrize(
    ("words", "processes", "message"),
    [
        (("--precision", "bf16-weights", "--mode", "infer"), 1, "has no complex numbers"),
        ((), 2, "gloo, by which ranks on CPUs"),
    ],
)
def test_what_has_no_complex_numbers_refuses_them(
    real_python: str, tmp_path: Path, words: tuple[str, ...], processes: int, message: str
) -> None:
    init, forward = PROVEN["complex weights"]
    code, events, _ = launched(real_python, tmp_path, *words, init=init, forward=forward, processes=processes)
    failure = next(event for event in events if event["event"] == "failure")
    assert code and failure["kind"] == "unsupported" and message in failure["message"]
