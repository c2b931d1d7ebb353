"""The workload process's clock is held against the arrivals of its lines, from both sides; late lines are no finding."""

import random
from collections.abc import Callable

import pytest

from torchmatrix.facts import parts

BEGIN, WINDOW, END = 1000.0, (1010.0, 1020.0), 1040.0
"""The times of a launch, on the host's clock."""
NOTHING = parts.ClockJudgement()
Clock = Callable[[float], float]


def stamps(clock: Clock, delay: Callable[[], float]) -> list[parts.Stamp]:
    """Return lines nearly every half second, but none in the window, as a workload process with this clock stamps them."""
    moments = [BEGIN + 0.499 * step for step in range(80)]
    return [(clock(moment), moment + delay()) for moment in moments if not WINDOW[0] < moment < WINDOW[1]]


def judge(clock: Clock, delay: Callable[[], float] = lambda: 0.001) -> parts.ClockJudgement:
    return parts.judge_clocks(stamps(clock, delay), [(clock(WINDOW[0]), clock(WINDOW[1]))])


def paced(rate: float, begin: float = BEGIN, end: float = END) -> Clock:
    """Return a clock that is right but from `begin` to `end`."""
    return lambda moment: moment + (rate - 1) * max(0.0, min(moment, end) - begin)


@pytest.mark.parametrize(
    ("clock", "message"),
    [
        (paced(0.9), "around the timed windows, 12.575 s went by on the workload's clock and 13.972 s on the host's"),
        (paced(1.1), "on the host's"),
        (paced(0.97), "on the host's"),
        (paced(1.03), "on the host's"),
        (paced(0.9, *WINDOW), "around the timed windows, "),
        (paced(1.1, *WINDOW), "around the timed windows, "),
        (paced(0.9, BEGIN, BEGIN + 8.0), "from the first lines to the last, "),
        (lambda moment: moment - (2.0 if moment > 1015.0 else 0.0), "around the timed windows, "),
        (lambda moment: moment + (2.0 if moment > 1030.0 else 0.0), "from the first lines to the last, "),
        (lambda moment: moment - (1.0 if 1015.0 < moment < 1020.1 else 0.0), "reports nothing in the 1.459 s"),
        (lambda moment: BEGIN, "around the timed windows, 0.000 s went by"),
    ],
)  # fmt: skip
def test_a_clock_that_is_slow_fast_or_jumps_is_reported_with_both_times(clock: Clock, message: str) -> None:
    assert message in str(judge(clock).wrong), judge(clock)


@pytest.mark.parametrize("rate", [1.0, 1.0005, 0.9995])
@pytest.mark.parametrize("mean", [0.0001, 0.001, 0.02, 0.1])
def test_a_right_clock_is_not_called_wrong_however_late_lines_are(rate: float, mean: float) -> None:
    drawn = random.Random(1)
    for _ in range(50):
        assert judge(lambda moment: 3600.0 + paced(rate)(moment), lambda: drawn.expovariate(1 / mean)) == NOTHING


def late_together(arrivals: list[parts.Stamp], first: int, last: int, until: float) -> list[parts.Stamp]:
    """Return `arrivals`, but the host reads lines `first` to `last` only when it goes on."""
    return [(stamp, max(came, until) if first <= row < last else came) for row, (stamp, came) in enumerate(arrivals)]


@pytest.mark.parametrize("many", [5, 12, 30])
def test_lines_delayed_together_by_a_host_that_hangs_are_no_wrong_clock(many: int) -> None:
    arrivals = stamps(lambda moment: moment, lambda: 0.001)
    for first in range(1, len(arrivals) - many - 1):
        assert (
            parts.judge_clocks(late_together(arrivals, first, first + many, arrivals[first + many][0]), [WINDOW]) == NOTHING
        ), first


@pytest.mark.parametrize("seconds", [0.8, 3.0, 60.0])
def test_the_clock_is_unknown_where_all_lines_since_the_windows_came_at_once(seconds: float) -> None:
    """A daemon that hung to the end: nothing says whether the clock was slow or the lines were late."""
    arrivals = [(moment, moment + 0.001) for moment in (1000.0 + 0.499 * step for step in range(20))]
    arrivals += [(moment, 1020.5 + seconds) for moment in (1020.01, 1020.2, 1020.4)]
    judged = parts.judge_clocks(arrivals, [WINDOW])
    assert judged.wrong is None and "but the host may have read these lines late" in str(judged.unknown)
    assert str(judged.unknown).startswith("the workload's clock: around the timed windows, 10.")


def test_lines_that_came_at_once_do_not_excuse_a_clock_that_is_fast() -> None:
    arrivals = [(moment, moment + 0.001) for moment in (1000.0 + 0.499 * step for step in range(20))]
    arrivals += [(moment, 1019.0) for moment in (1020.01, 1020.2, 1020.4)]
    assert "around the timed windows, 10." in str(parts.judge_clocks(arrivals, [WINDOW]).wrong), (
        "no line comes before it is written"
    )


WAITS = 1.034
"""Seconds waited for another node, after a window, on machines with too much to do (measured)."""


def after_the_window(jump: float, idle: float, late: float) -> parts.ClockJudgement:
    """Judge a line at the window's end, which the host may read late; the next is `idle` later, if the clock didn't jump."""
    slow = paced(1 - jump / 10.0, *WINDOW)
    arrivals = [stamp for stamp in stamps(lambda moment: moment, lambda: 0.001) if stamp[0] < WINDOW[0]]
    arrivals.append((slow(WINDOW[1]) + 0.001, WINDOW[1] + 0.002 + late))
    arrivals += [(moment, moment + 0.003) for moment in (WINDOW[1] + 0.01 + idle + 0.499 * step for step in range(20))]
    return parts.judge_clocks(sorted(arrivals), [(WINDOW[0], slow(WINDOW[1]))])


def test_a_workload_that_waits_after_a_window_has_no_wrong_clock_if_it_reported_the_end() -> None:
    assert after_the_window(0.0, WAITS, 0.0) == NOTHING
    assert after_the_window(0.0, 0.0, WAITS) == NOTHING, "a line that was read late"
    assert after_the_window(0.0, WAITS, 0.4) == NOTHING, "both"


@pytest.mark.parametrize("jump", [0.75, 1.0, 2.0])
def test_a_clock_that_makes_up_for_a_slow_window_after_its_end_was_reported_is_wrong(jump: float) -> None:
    assert "right after timed window 0 of " in str(after_the_window(jump, 0.0, 0.0).wrong)


@pytest.mark.parametrize(("seconds", "known"), [(0.6, True), (0.75, False), (1.3, False), (1.5, True)])
def test_a_workload_that_was_stopped_right_at_a_windows_end_is_not_called_wrong(seconds: float, known: bool) -> None:
    """The line at the end came late: a stop explains it, and so does a clock that catches up. None needs so long."""
    arrivals = [stamp for stamp in stamps(lambda moment: moment, lambda: 0.001) if stamp[0] < WINDOW[0]]
    arrivals += [(moment, moment + 0.003) for moment in (WINDOW[1] + seconds + 0.2 * step for step in range(40))]
    judged = parts.judge_clocks(arrivals, [WINDOW])
    assert (judged == NOTHING) if seconds < 0.7 else bool(judged.wrong) == known and bool(judged.unknown) != known


def test_too_few_lines_give_no_judgement() -> None:
    assert parts.judge_clocks([], [WINDOW]) == NOTHING and parts.clock_offset([]) is None
    assert parts.judge_clocks([(1.0, 1.0)], []) == NOTHING
    short = [(0.9 * moment, moment) for moment in (0.0, 0.1, 0.2, 0.3)]
    assert parts.judge_clocks(short, [(0.09, 0.18)]) == NOTHING, "0.03 s may be how late a line is"
