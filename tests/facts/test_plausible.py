"""Events of a workload are held against the job and the host's clock: one that can't be true is no figure."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.records import launch_lines
from torchmatrix.facts import plausible
from torchmatrix.facts.launch import Launch, throughput
from torchmatrix.facts.lines import ARRIVED
from torchmatrix.facts.reading import launch_of, launches_below

Change = Callable[[dict[str, Any]], dict[str, Any]]
RECORDED = Path(__file__).parents[1] / "data/recorded"
DELAY = 0.002
"""Seconds between the end of a window and its line."""


def launch(change: Change, delay: float | None = None, ahead: float = 0.0, **fields: Any) -> Launch:
    """Return a launch of two ranks, with a window of 0.8 s that began 10 s after it; `change`: other fields of its line.

    `delay`: seconds after which the host records the arrival of a line; `ahead`: seconds by which the workload's clock is.
    """
    lines = launch_lines(devices=(0, 1), **{"job": {"batch": 4, "steps": 10, "windows": 1}, **fields})
    for line in lines[1:-1]:
        moment = line.get("stop_monotonic_seconds", 99.0)
        line["monotonic_seconds"] = moment
        if delay is not None:
            line[ARRIVED] = moment + delay
        if line.get("phase") == "measure":
            line |= change(line)
        line |= {key: value + ahead for key, value in line.items() if key.endswith("monotonic_seconds") and key != ARRIVED}
    result = launch_of(Path("a/round1-try1.jsonl"), lines)
    assert isinstance(result, Launch)
    return result


def longer(ratio: float) -> Change:
    return lambda line: {
        "seconds": [ratio * value for value in line["seconds"]],
        "step_seconds": [[ratio * value for value in rank] for rank in line["step_seconds"]],
    }


def moved(seconds: float) -> Change:
    return lambda line: {f"{edge}_monotonic_seconds": line[f"{edge}_monotonic_seconds"] + seconds for edge in ("start", "stop")}


def test_the_items_of_a_language_model_are_tokens() -> None:
    job = {"batch": 4, "steps": 10, "windows": 1, "unit": "tokens", "sequence_length": 16}
    assert launch(lambda line: {"items": 16 * 80}, job=job).outcome == "ok"
    assert launch(lambda line: {"items": 3 * 16 * 80}, job={**job, "accumulate": 3}).outcome == "ok"
    sequences = launch(lambda line: {"items": 80}, job=job)
    assert sequences.outcome == "crashed" and "64 items x 10 steps x 2 ranks are 1280" in str(sequences.error)


def test_devices_that_split_a_model_compute_each_batch_once() -> None:
    job = {"batch": 4, "steps": 10, "windows": 1, "parallel": "tp"}
    assert launch(lambda line: {"items": 40}, job=job).outcome == "ok"
    twice = launch(lambda line: {"items": 80}, job=job)
    assert twice.outcome == "crashed" and "4 items x 10 steps x 1 batch are 40" in str(twice.error)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: {"items": 40}, "timed window 0: 40 items; 4 items x 10 steps x 2 ranks are 80"),
        (lambda line: {name: line[name][1:] for name in ("seconds", "step_seconds", "enqueue_seconds")},
         "timed window 0: the workload reported the times of 1 ranks; the launch has 2"),
        (lambda line: {"steps": 20, "items": 160, "step_seconds": [[0.04] * 20] * 2, "seconds": [0.8] * 2},
         "timed window 0: 20 steps; 10 were asked for"),
        (lambda line: {"step_seconds": line["step_seconds"][1:]},
         'the workload wrote an invalid "sample" line: step_seconds has 1 ranks, seconds has 2'),
        (lambda line: {"step_seconds": [rank[:5] for rank in line["step_seconds"]]},
         'the workload wrote an invalid "sample" line: step_seconds has 5 steps of rank 0, steps is 10'),
        (lambda line: {"seconds": [0.1, 0.2]}, "timed window 0: the steps of rank 0 took 0.400 s together, the window 0.100 s"),
        (lambda line: {"step_seconds": [[0.04] * 10, [0.01] * 10]},
         "timed window 0: the steps of rank 1 took 0.100 s together, the window 0.800 s"),
        (longer(0.1), "timed window 0: the slowest rank took 0.080 s, but the window's edges are 0.800 s apart"),
        (longer(2.0), "timed window 0: the slowest rank took 1.600 s, but the window's edges are 0.800 s apart"),
        (lambda line: longer(100.0)(line) | {"stop_monotonic_seconds": 180.0},
         "the workload reported timed windows of 80.000 s in a launch of 40.000 s"),
    ],
)  # fmt: skip
def test_an_event_that_contradicts_the_launch_is_no_figure_and_both_figures_are_named(change: Change, why: str) -> None:
    result = launch(change)
    assert (result.outcome, result.error) == ("crashed", why)


def test_windows_and_ranks_must_be_as_many_as_asked_for() -> None:
    fewer = launch(lambda line: {}, job={"batch": 4, "steps": 10, "windows": 2})
    assert (fewer.outcome, fewer.error) == ("crashed", "the workload reported 1 timed windows; 2 were asked for")
    header, *lines = launch_lines(devices=(0, 1))
    for line in lines:
        line |= {"world_size": 1} if line["event"] == "setup" else {}
    result = launch_of(Path("a/round1-try1.jsonl"), [header, *lines])
    assert isinstance(result, Launch) and result.error == "the workload reported 1 ranks; the launch has 2"


def test_steps_are_at_least_those_asked_for_if_a_window_also_has_a_length() -> None:
    job = {"batch": 4, "windows": 1, "seconds": 0.5}
    assert launch(lambda line: {}, job=job | {"steps": 10}).outcome == "ok"
    more = launch(lambda line: {"steps": 20, "items": 160, "step_seconds": [[0.02] * 20, [0.04] * 20]}, job=job | {"steps": 10})
    assert more.outcome == "ok"
    fewer = launch(lambda line: {"steps": 5, "items": 40, "step_seconds": [[0.08] * 5, [0.16] * 5]}, job=job | {"steps": 10})
    assert fewer.error == "timed window 0: 5 steps; 10 were asked for"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (moved(-20.0), "timed window 0 began 9.998 s before the launch did"),
        (moved(5.0), "timed window 0 ended 15.802 s after the launch began, but its line came at 10.802 s"),
    ],
)
def test_a_window_lies_between_the_begin_of_the_launch_and_the_arrival_of_its_line(change: Change, why: str) -> None:
    assert launch(lambda line: {}, delay=DELAY).outcome == "ok"
    assert launch(change).outcome == "ok", "facts of earlier versions don't say when lines came"
    result = launch(change, delay=DELAY)
    assert (result.outcome, result.error) == ("crashed", why)


def test_a_container_may_have_its_own_monotonic_clock() -> None:
    """The clock of a virtual machine may have begun to count a minute before or an hour after the host's."""
    for ahead in (60.0, -99.0, 3600.0):
        assert launch(lambda line: {}, delay=DELAY, ahead=ahead).outcome == "ok"
        assert "but its line came at" in str(launch(moved(5.0), delay=DELAY, ahead=ahead).error)


def test_a_wait_inside_a_window_is_a_stall_and_no_contradiction() -> None:
    """Such a process waits for a CPU between the clock and its first step."""
    stalled = launch(lambda line: {"step_seconds": [[0.04] * 10, [0.07] * 10]})
    assert stalled.outcome == "ok" and plausible.stall(stalled.windows) == pytest.approx(0.125)
    assert plausible.stall(launch(longer(1.005)).windows) == 0.0


def test_recorded_launches_keep_their_figures() -> None:
    recorded = list(launches_below(RECORDED))
    assert len(recorded) == 11 and all(isinstance(launched, Launch) and launched.contradiction is None for launched in recorded)
    assert all(
        isinstance(launched, Launch) and throughput(launched) > 0 and plausible.stall(launched.windows) == 0.0
        for launched in recorded
    )


REQUESTS = {"latency": [0.08] * 20, "end-to-end": [0.1] * 20}


def served(change: Change, requests: int = 20, **fields: Any) -> Launch:
    """Return a launch of one rank that served 20 requests of each kind; `change`: other fields of the lines of latency."""
    lines = launch_lines(**{"served": REQUESTS, "job": {"batch": 4, "steps": 10, "requests": requests}, **fields})
    for line in lines:
        if line.get("kind") == "latency":
            line |= change(line)
    result = launch_of(Path("a/round1-try1.jsonl"), lines)
    assert isinstance(result, Launch)
    return result


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: {"rank": 1}, "the workload reported the latency of ranks [1]; the launch has 1"),
        (lambda line: {"seconds": [0.08] * 21}, "latency of rank 0: 21 requests; 20 were asked for at most"),
        (lambda line: {"seconds": [0.2] * 8}, "latency of rank 0: 8 requests; 20 were asked for at most"),
        (lambda line: {"seconds": [0.1] * 20},
         "latency of rank 0: the requests took 2.000 s together, but their edges are 1.600 s apart"),
        (moved(-2.0), "latency of rank 0: the first one began 1.500 s before the last timed window ended"),
        (lambda line: {"seconds": [0.019] * 20, "stop_monotonic_seconds": line["start_monotonic_seconds"] + 0.38},
         "latency of rank 0: a request took 0.019000 s, a step 0.040000 s: it wasn't waited for"),
        (lambda line: {"seconds": [0.17, *[0.9] * 19], "stop_monotonic_seconds": line["start_monotonic_seconds"] + 17.27},
         "latency of rank 0: no request took less than 0.170000 s, but a step of the timed windows 0.040000 s: these did less"),
    ],
)  # fmt: skip
def test_requests_that_contradict_the_launch_are_no_figure(change: Change, why: str) -> None:
    assert served(lambda line: {}).outcome == "ok"
    result = served(change)
    assert (result.outcome, result.error) == ("crashed", why)


def test_fewer_requests_are_served_where_they_take_long_and_none_must_be_where_none_were_asked_for() -> None:
    assert served(lambda line: {}, requests=1000).outcome == "ok"
    assert "the workload reported the latency of ranks []" in str(served(lambda line: {"kind": "end-to-end"}).error)
    assert served(lambda line: {"seconds": [0.019] * 20, "stop_monotonic_seconds": line["start_monotonic_seconds"] + 0.38},
                  vendor="cpu").outcome == "ok", "on a CPU a step is over when it returns"  # fmt: skip


def timed(phase: str, *ranks: float) -> dict[str, Any]:
    """Return the line of three steps on other batches; `ranks`: seconds of a step of each."""
    return {
        "event": "sample", "phase": phase, "window": 0, "steps": 3, "items": 24, "seconds": [3 * step for step in ranks],
        "enqueue_seconds": [0.01] * len(ranks), "step_seconds": [[step] * 3 for step in ranks], "loss": [1.0] * len(ranks),
    }  # fmt: skip


def after_windows(*events: dict[str, Any], **fields: Any) -> Launch:
    """Return a launch of two ranks, whose steps took 0.04 and 0.08 s in the window, and then `events`."""
    lines = launch_lines(devices=(0, 1), told=events, **{"job": {"batch": 4, "steps": 10, "windows": 1}, **fields})
    result = launch_of(Path("a/round1-try1.jsonl"), lines)
    assert isinstance(result, Launch)
    return result


def test_steps_on_new_batches_that_take_longer_contradict_the_windows() -> None:
    assert after_windows(timed("unseen", 0.04, 0.09)).outcome == "ok"
    slow = after_windows(timed("unseen", 0.04, 0.4))
    assert (slow.outcome, throughput(slow)) == ("crashed", pytest.approx(float("nan"), nan_ok=True))
    assert str(slow.error).startswith("steps of rank 1 took 0.400000 s on batches that none had seen, and 0.0")
    assert "the workload reported the times of 1 ranks" in str(after_windows(timed("unseen", 0.08)).error)


def test_a_machine_that_is_disturbed_meanwhile_slows_old_batches_as_well() -> None:
    slow, slower = timed("unseen", 0.4, 0.4), timed("seen", 0.5, 0.5)
    assert after_windows(slow, slower, slow).outcome == "ok"
    assert after_windows(slow, timed("seen", 0.04, 0.08), slow).outcome == "crashed"
    assert after_windows(slow, timed("seen", 0.04, 0.08), timed("unseen", 0.04, 0.09)).outcome == "ok"


def test_a_launch_says_that_no_new_batch_fitted_into_memory() -> None:
    result = after_windows({"event": "unseen", "error": "new batches need 3 MB on the device, 1 MB are free"})
    assert result.outcome == "ok" and result.unseen.error == "new batches need 3 MB on the device, 1 MB are free"


@pytest.mark.parametrize("vendor", ["nvidia", "cpu"])
def test_end_to_end_requests_that_alternate_with_the_others_are_not_far_shorter(vendor: str) -> None:
    def launched(end_to_end: float, quick: int = 20) -> Launch:
        served = {"latency": [0.08] * quick + [0.16] * (20 - quick), "end-to-end": [end_to_end] * 20}
        lines = launch_lines(vendor=vendor, served=served, job={"batch": 4, "requests": 20})
        for line in lines:
            if line["event"] == "requests":
                took = sum(sum(seconds) for seconds in served.values())
                line |= {"start_monotonic_seconds": 110.0, "stop_monotonic_seconds": 110.0 + took + 0.1}
                line["inputs_seconds"] = 0.05
        result = launch_of(Path("a/round1-try1.jsonl"), lines)
        assert isinstance(result, Launch)
        return result

    assert launched(0.09).outcome == "ok" and launched(0.05).outcome == "ok"
    assert launched(0.07, quick=3).outcome == "ok", "another program's turns may fall on every second request"
    short = launched(0.03)
    assert (short.outcome, short.error) == (
        "crashed", "end-to-end of rank 0: a request took 0.030000 s, one on the device alone 0.080000 s",
    )  # fmt: skip


def test_the_clock_of_another_node_is_held_against_that_of_the_first() -> None:
    """Each node's clock has its own beginning, and ranks that train one model take equally long for a window."""

    def on_two_nodes(seconds: float) -> Launch:
        lines = launch_lines(devices=(0,), nodes=2, job={"batch": 4, "steps": 10, "windows": 1})
        for line in lines:
            if line.get("phase") == "measure":
                begin = line["start_monotonic_seconds"]
                line |= {"seconds": [5.0, seconds], "stop_monotonic_seconds": begin + 5.0}
                line["step_seconds"] = [[0.5] * 10, [seconds / 10] * 10]
            if line["event"] == "exit":
                line["monotonic_seconds"] = 200.0
        result = launch_of(Path("a/round1-try1.jsonl"), lines)
        assert isinstance(result, Launch)
        return result

    assert on_two_nodes(5.01).outcome == on_two_nodes(5.6).outcome == "ok", "a process may have waited for a CPU"
    assert on_two_nodes(6.0).error == ("timed window 0: rank 1 took 6.000 s, those of the first node, in step with it, 5.000 s")


PREFILL = {
    "event": "stream",
    "phase": "prefill",
    "unit": "tokens",
    "items": [32, 32],
    "seconds": [0.4, 0.4],
    "requests": [0, 1],
}
EDGES = {"start_monotonic_seconds": 101.0, "stop_monotonic_seconds": 102.0}


def streamed(change: Change = lambda line: {}, windows: int | None = None, ranks: tuple[int, ...] = (0, 1)) -> Launch:
    """Return a launch of two ranks that timed two pieces each and no window; `change`: other fields of the last rank's line."""
    times = {**EDGES, ARRIVED: 102.0 + DELAY, "monotonic_seconds": 102.0}
    pieces = [{**PREFILL, **times, "rank": rank} for rank in ranks]
    pieces[-1:] = [line | change(line) for line in pieces[-1:]]
    lines = launch_lines(devices=(0, 1), told=pieces, job={"mode": "generate", "windows": windows})
    result = launch_of(Path("a/round1-try1.jsonl"), [line for line in lines if line.get("phase") != "measure"])
    assert isinstance(result, Launch)
    return result


def test_a_launch_whose_mode_has_no_windows_is_ok_by_its_streams_and_has_no_throughput() -> None:
    result = streamed()
    assert (result.outcome, result.error, result.contradiction) == ("ok", None, None)
    assert [(stream.rank, stream.items, stream.seconds, stream.requests) for stream in result.streams] == [
        (rank, (32, 32), (0.4, 0.4), (0, 1)) for rank in (0, 1)
    ]
    assert math.isnan(throughput(result))
    assert streamed(windows=1).outcome == "crashed", "windows were asked for"
    assert streamed(ranks=()).outcome == "crashed", "it told of no work"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: {"rank": 0}, "the workload reported the prefill of ranks [0]; the launch has 2"),
        (lambda line: {"rank": 2}, "the workload reported the prefill of ranks [0, 2]; the launch has 2"),
        (lambda line: {"seconds": [0.7, 0.7]}, "the pieces of rank 1 took 1.400 s together, but their edges are 1.000 s apart"),
        (moved(3.0), "prefill of rank 1: the last one ended 15.002 s after the launch began, but their line came at 12.002 s"),
        (lambda line: {"seconds": [0.4]}, 'the workload wrote an invalid "stream" line: items has 2 pieces, seconds has 1'),
        (lambda line: {"requests": [0]}, 'the workload wrote an invalid "stream" line: requests has 1 pieces, seconds has 2'),
        (
            lambda line: {"seconds": [0.4, 0.0]},
            'the workload wrote an invalid "stream" line: seconds[1] is 0.0, not a number >= 1e-09',
        ),
        (lambda line: {"seconds": [0.4, None]}, 'the workload wrote an invalid "stream" line: seconds'),
        (lambda line: {"items": [32, 0]}, 'the workload wrote an invalid "stream" line: items'),
        (lambda line: {"items": [], "seconds": []}, 'the workload wrote an invalid "stream" line: items'),
        (lambda line: {"unit": "no unit"}, 'the workload wrote an invalid "stream" line: unit is "no unit"'),
        (lambda line: {"stop_monotonic_seconds": 100.0}, "it stops 1.000 s before it starts"),
    ],
)
def test_streams_that_contradict_themselves_or_the_launch_are_no_figure(change: Change, why: str) -> None:
    result = streamed(change)
    assert result.outcome == "crashed" and why in str(result.error), result.error
