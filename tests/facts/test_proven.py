"""The losses of a launch beside those of the launch of its cell that was proven: what is compared, and what may differ."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.records import launch_lines
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import Compared, compare, launch_at, proof_of


def course(number: int) -> float:
    """The loss of a step: four batches, which training makes smaller."""
    return 2.0 + 0.1 * (number % 4) + math.exp(-number / 40)


def launch(
    folder: Path, name: str, losses: Callable[[int], float | None] | None = course, blocks: Sequence[int] = (5, 5, 10),
    proof: str = "fingerprint", ranks: int = 1, vendor: str = "nvidia", skipped: Sequence[int] = (), exit: Any = (),
    first: dict[str, float] | None = None, **job: Any,
) -> Launch:  # fmt: skip
    """A launch of warm-up blocks and a window of so many steps, whose n-th step (from 2 on) has the loss `losses` gives."""
    header, *_, over = launch_lines(vendor=vendor, devices=tuple(range(ranks)), job={"steps": blocks[-1], **job})
    events, number = [{"event": "hello", "protocol": 1, "arguments": {"batches": 4}}], 2
    for place, steps in enumerate(blocks):
        own = list(map(losses, range(number, number + steps))) if losses else []
        last = own[-1:] if job.get("mode") == "infer" else own
        begin = 100.0 + number
        events.append({
            "event": "sample", "phase": "measure" if place == len(blocks) - 1 else "warm-up", "window": place, "steps": steps,
            "items": 4 * steps * ranks, "seconds": [0.5] * ranks, "start_monotonic_seconds": begin,
            "stop_monotonic_seconds": begin + 0.5, "losses": [last] * ranks if losses else None,
            **({"skipped_steps": [skipped[place]] * ranks} if skipped else {}),
        })  # fmt: skip
        number += steps
    fingerprint = {"loss": course(1), "gradient_norm": 1.0, "gradient_norm of head": 0.5, **(first or {})}
    events[1:-1] = reversed(events[1:-1])  # blocks are told in another order than they ran in
    events += [{"event": "reference", "proof": proof, "fingerprint": fingerprint}, {"event": "done"}]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *events, {**over, **dict(exit)})), encoding="utf-8")
    return launch_at(path)


def held(folder: Path, launched: dict[str, Any], **both: Any) -> Compared:
    proven = proof_of(launch(folder, "round1-try1", proof="full", **both))
    assert proven
    return compare(launch(folder, "round2-try1", **{**both, **launched}), proven)


def test_as_many_steps_are_compared_as_both_launches_did(tmp_path: Path) -> None:
    assert held(tmp_path, {"blocks": (5, 5, 5, 25)}) == Compared(losses=20, contradiction=None)
    assert held(tmp_path, {"blocks": (5, 4)}) == Compared(losses=9, contradiction=None)


@pytest.mark.parametrize(("vendor", "shift"), [("cpu", 0.05), ("nvidia", 0.6)])
def test_another_course_of_training_is_told_with_its_step_and_both_losses(tmp_path: Path, vendor: str, shift: float) -> None:
    def other(number: int) -> float:
        return course(number) + (0.0 if number < 8 else shift)

    found = held(tmp_path, {"losses": other}, vendor=vendor, ranks=2).contradiction
    assert found == f"rank 0: the loss of step 8 is {other(8):.6g}, but was {course(8):.6g} in round1-try1"


def test_what_a_gpu_rounds_otherwise_from_launch_to_launch_is_no_contradiction(tmp_path: Path) -> None:
    def noisy(number: int) -> float:
        return course(number) * (1 + 1e-6 * min(10 ** (number - 1), 1e4) * math.sin(number))

    assert held(tmp_path, {"losses": noisy}).contradiction is None
    assert held(tmp_path, {"losses": noisy}, vendor="cpu").contradiction, "a CPU computes the same bits"


def test_half_a_batch_from_the_second_step_on_is_seen_on_a_gpu_too(tmp_path: Path) -> None:
    def half(number: int) -> float:
        return course(number) + 0.1 * math.sin(number)

    for precision in ("fp32", "amp", "amp-bf16"):
        found = held(tmp_path, {"losses": half}, precision=precision).contradiction
        assert found and found.startswith("the loss of step 2 "), precision


def test_launches_are_compared_until_grad_scaler_skips_other_steps(tmp_path: Path) -> None:
    def other(number: int) -> float:
        return course(number) if number < 7 else 9.0

    asked = {"precision": "amp", "skipped": (1, 0, 0)}
    assert held(tmp_path, {"losses": other, "skipped": (1, 1, 0)}, **asked) == Compared(losses=5, contradiction=None)
    assert held(tmp_path, {"losses": other}, **asked).contradiction


def test_inference_is_compared_by_batch_whatever_the_blocks(tmp_path: Path) -> None:
    def constant(number: int) -> float:
        return 2.0 + 0.1 * (number % 4)

    asked = {"mode": "infer", "losses": constant}
    assert held(tmp_path, {"blocks": (5, 5, 5, 5, 26)}, **asked) == Compared(losses=4, contradiction=None)
    found = held(tmp_path, {"losses": lambda number: 0.99 * constant(number)}, **asked).contradiction
    assert found and found.startswith("the loss of step 6 ")


def test_the_first_step_is_compared_by_groups(tmp_path: Path) -> None:
    found = held(tmp_path, {"first": {"gradient_norm of head": 0.0}}).contradiction
    assert found == "the gradient norm of head of the first step is 0, but was 0.5 in round1-try1"
    assert held(tmp_path, {"first": {"gradient_norm of head": 0.51}}, vendor="cpu").contradiction
    assert held(tmp_path, {"first": {"gradient_norm of head": 0.51}}).contradiction is None


def test_a_launch_whose_losses_were_not_compared_says_so(tmp_path: Path) -> None:
    assert held(tmp_path, {"losses": None}).losses == 0
    words = "its losses were not compared with those of the launch that was proven in full"
    assert launch(tmp_path, "round2-try1").unchecked == words
    assert launch(tmp_path, "round2-try1", exit={"losses_compared": 0}).unchecked == words
    assert launch(tmp_path, "round2-try1", exit={"losses_compared": 9}).unchecked is None
    assert launch(tmp_path, "round1-try1", proof="full").unchecked is None
