"""The losses of a launch against those of its cell's proven launch: what is compared, and what may differ."""

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
    """Return the loss of a step: four batches, which training makes smaller."""
    return 2.0 + 0.1 * (number % 4) + math.exp(-number / 40)


def launch(
    folder: Path, name: str, losses: Callable[[int], float | None] | None = course, blocks: Sequence[int] = (5, 5, 10),
    proof: str = "fingerprint", ranks: int = 1, vendor: str = "nvidia", skipped: Sequence[int] = (), exit: Any = (),
    first: dict[str, float] | None = None, **job: Any,
) -> Launch:  # fmt: skip
    """Return a launch of warm-up blocks and a window of `blocks` steps, whose n-th step (from 2 on) has the loss losses(n)."""
    header, *_, over = launch_lines(vendor=vendor, devices=tuple(range(ranks)), job={"steps": blocks[-1], **job})
    events, number = [{"event": "hello", "protocol": 1, "arguments": {"batches": 4}}], 2
    for place, steps in enumerate(blocks):
        values = list(map(losses, range(number, number + steps))) if losses else []
        last = values[-1:] if job.get("mode") == "infer" else values
        begin = 100.0 + number
        events.append({
            "event": "sample", "phase": "measure" if place == len(blocks) - 1 else "warm-up", "window": place, "steps": steps,
            "items": 4 * steps * ranks, "seconds": [0.5] * ranks, "start_monotonic_seconds": begin,
            "stop_monotonic_seconds": begin + 0.5, "losses": [last] * ranks if losses else None,
            **({"skipped_steps": [skipped[place]] * ranks} if skipped else {}),
        })  # fmt: skip
        number += steps
    fingerprint = {"loss": course(1), "gradient_norm": 1.0, "gradient_norm of head": 0.5, **(first or {})}
    events[1:-1] = reversed(events[1:-1])  # blocks are reported in another order than they ran in
    events += [{"event": "reference", "proof": proof, "fingerprint": fingerprint}, {"event": "done"}]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *events, {**over, **dict(exit)})), encoding="utf-8")
    return launch_at(path)


def compared_with_proven(folder: Path, launched: dict[str, Any], **both: Any) -> Compared:
    proven = proof_of(launch(folder, "round1-try1", proof="full", **both))
    assert proven
    return compare(launch(folder, "round2-try1", **{**both, **launched}), proven)


def test_as_many_steps_are_compared_as_both_launches_did(tmp_path: Path) -> None:
    assert compared_with_proven(tmp_path, {"blocks": (5, 5, 5, 25)}) == Compared(losses=20, contradiction=None)
    assert compared_with_proven(tmp_path, {"blocks": (5, 4)}) == Compared(losses=9, contradiction=None)


@pytest.mark.parametrize(("vendor", "shift"), [("cpu", 0.05), ("nvidia", 0.6)])
def test_another_course_of_training_is_reported_with_its_step_and_both_losses(
    tmp_path: Path, vendor: str, shift: float
) -> None:
    def other(number: int) -> float:
        return course(number) + (0.0 if number < 8 else shift)

    contradiction = compared_with_proven(tmp_path, {"losses": other}, vendor=vendor, ranks=2).contradiction
    assert contradiction == f"rank 0: the loss of step 8 is {other(8):.6g}, but was {course(8):.6g} in round1-try1"


def test_rounding_that_differs_between_launches_on_a_gpu_is_no_contradiction(tmp_path: Path) -> None:
    def noisy(number: int) -> float:
        return course(number) * (1 + 1e-6 * min(10 ** (number - 1), 1e4) * math.sin(number))

    assert compared_with_proven(tmp_path, {"losses": noisy}).contradiction is None
    assert compared_with_proven(tmp_path, {"losses": noisy}, vendor="cpu").contradiction, "a CPU computes the same bits"


def test_half_a_batch_from_the_second_step_on_is_seen_on_a_gpu_too(tmp_path: Path) -> None:
    def half(number: int) -> float:
        return course(number) + 0.1 * math.sin(number)

    for precision in ("fp32", "amp", "amp-bf16"):
        contradiction = compared_with_proven(tmp_path, {"losses": half}, precision=precision).contradiction
        assert contradiction and contradiction.startswith("the loss of step 2 "), precision


def test_launches_are_compared_until_grad_scaler_skips_other_steps(tmp_path: Path) -> None:
    def other(number: int) -> float:
        return course(number) if number < 7 else 9.0

    both = {"precision": "amp", "skipped": (1, 0, 0)}
    assert compared_with_proven(tmp_path, {"losses": other, "skipped": (1, 1, 0)}, **both) == Compared(
        losses=5, contradiction=None
    )
    assert compared_with_proven(tmp_path, {"losses": other}, **both).contradiction


def test_inference_is_compared_by_batch_whatever_the_blocks(tmp_path: Path) -> None:
    def constant(number: int) -> float:
        return 2.0 + 0.1 * (number % 4)

    both = {"mode": "infer", "losses": constant}
    assert compared_with_proven(tmp_path, {"blocks": (5, 5, 5, 5, 26)}, **both) == Compared(losses=4, contradiction=None)
    contradiction = compared_with_proven(tmp_path, {"losses": lambda number: 0.99 * constant(number)}, **both).contradiction
    assert contradiction and contradiction.startswith("the loss of step 6 ")


def test_the_first_step_is_compared_by_groups(tmp_path: Path) -> None:
    contradiction = compared_with_proven(tmp_path, {"first": {"gradient_norm of head": 0.0}}).contradiction
    assert contradiction == "the gradient norm of head of the first step is 0, but was 0.5 in round1-try1"
    assert compared_with_proven(tmp_path, {"first": {"gradient_norm of head": 0.51}}, vendor="cpu").contradiction
    assert compared_with_proven(tmp_path, {"first": {"gradient_norm of head": 0.51}}).contradiction is None


def test_a_launch_whose_losses_were_not_compared_says_so(tmp_path: Path) -> None:
    assert compared_with_proven(tmp_path, {"losses": None}).losses == 0
    words = "its losses were not compared with those of the launch that was proven in full"
    assert launch(tmp_path, "round2-try1").unchecked == words
    assert launch(tmp_path, "round2-try1", exit={"losses_compared": 0}).unchecked == words
    assert launch(tmp_path, "round2-try1", exit={"losses_compared": 9}).unchecked is None
    assert launch(tmp_path, "round1-try1", proof="full").unchecked is None


@pytest.mark.parametrize(
    "said", [{"agrees": False}, {"agrees": False, "problems": ["no gradient"]}, {"problems": ["no gradient"]}]
)
def test_a_launch_whose_proof_failed_has_no_figure_though_it_ended_as_done(tmp_path: Path, said: dict[str, Any]) -> None:
    honest = launch(tmp_path, "round1-try1", proof="full")
    path = tmp_path / "round1-try1.jsonl"
    path.write_text(path.read_text().replace('"proof": "full"', f'"proof": "full", {json.dumps(said)[1:-1]}'))
    lying = launch_at(path)
    assert honest.is_ok and lying.outcome == "crashed"
    assert lying.error and said.get("problems", ["no reason"])[0] in lying.error
