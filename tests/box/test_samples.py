"""Lines that the workload writes of many steps reach the host whole, within its limit."""

from typing import Any

import pytest

import channel
import samples
from support.boxes import Written
from torchmatrix.facts import launch_file, reading


def rank(number: int, steps: int) -> dict[str, Any]:
    """Return what a rank measured: values with as many digits as a float can have."""
    times = [(number + 1) / 3 * 1e-3 + step / 7e9 for step in range(steps)]
    timed = {
        "start_monotonic_seconds": 1.0,
        "stop_monotonic_seconds": 9.0,
        "sharing": {},
        "seconds": sum(times),
        "enqueue_seconds": 0.1,
    }
    return {**timed, "step_seconds": times, "losses": [1 / 3 + time for time in times]}


@pytest.mark.parametrize(("ranks", "steps", "lines"), [(1, 20, 1), (8, 2000, 1), (8, 2001, 3), (8, 50_000, 26), (1, 40_000, 4)])
def test_every_step_of_every_rank_arrives_in_order_on_lines_below_a_megabyte(ranks: int, steps: int, lines: int) -> None:
    measured, written = [rank(number, steps) for number in range(ranks)], Written()
    samples.emit(written, 4 * ranks, "measure", 0, measured)
    assert len(written.lines) == lines
    events = [event for line in written.lines if (event := launch_file.event_in("out", line, 1)) is not None]
    (window,) = reading.launch_fields(events)["windows"]
    assert (window.steps, window.items) == (steps, 4 * steps * ranks)
    assert window.step_seconds == tuple(tuple(values["step_seconds"]) for values in measured)


def test_each_window_gets_its_own_steps() -> None:
    written = Written()
    for window in (0, 1):
        samples.emit(written, 1, "measure", window, [rank(window, 20_000)])
    events = [event for line in written.lines if (event := launch_file.event_in("out", line, 1)) is not None]
    first, second = reading.launch_fields(events)["windows"]
    assert first.step_seconds == (tuple(rank(0, 20_000)["step_seconds"]),) and len(first.step_seconds[0]) == 20_000
    assert second.step_seconds == (tuple(rank(1, 20_000)["step_seconds"]),)


def test_a_loss_that_is_not_finite_is_told_with_its_step_after_the_line() -> None:
    measured, written = rank(0, 20_000), Written()
    measured["losses"][19_000] = float("inf")
    with pytest.raises(channel.Numerics, match="the loss of rank 0 is not finite in step 19000 of measure window 1"):
        samples.emit(written, 1, "measure", 1, [measured])
    assert len(written.lines) == 3


def test_steps_that_grad_scaler_skipped_are_recorded_and_a_window_of_nothing_else_is_refused() -> None:
    written = Written()
    samples.emit(written, 4, "measure", 0, [{**rank(0, 20), "scale": 1024.0, "skipped_steps": 3}])
    (event,) = (event for line in written.lines if (event := launch_file.event_in("out", line, 1)) is not None)
    (window,) = reading.launch_fields([event])["windows"]
    assert event["scale"] == [1024.0] and window.skipped == 3
    with pytest.raises(channel.Numerics, match="GradScaler skipped all 20 steps of window 0"):
        samples.emit(written, 4, "measure", 0, [{**rank(0, 20), "scale": 2.0, "skipped_steps": 20}])


def test_the_edges_of_a_window_are_those_of_the_ranks_on_this_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node began to count at another time."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    measured, written = [rank(number, 20) for number in range(4)], Written()
    for other in measured[2:]:
        other |= {"start_monotonic_seconds": 1e6, "stop_monotonic_seconds": 1e6 + 8.0}
    samples.emit(written, 4, "measure", 0, measured)
    (event,) = (event for line in written.lines if (event := launch_file.event_in("out", line, 1)) is not None)
    assert (event["start_monotonic_seconds"], event["stop_monotonic_seconds"]) == (1.0, 9.0) and len(event["seconds"]) == 4
