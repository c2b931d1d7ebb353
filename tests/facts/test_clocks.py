"""The box's clock is held against the arrivals of its lines, from both sides; late lines are no finding."""

import random
from collections.abc import Callable

import pytest

from torchmatrix.facts import clocks

BEGIN, WINDOW, END = 1000.0, (1010.0, 1020.0), 1040.0
"""Of a launch, on the host's clock."""
Clock = Callable[[float], float]


def stamps(clock: Clock, delay: Callable[[], float]) -> list[clocks.Stamp]:
    """Lines nearly every half second, but none in the window, as a box with this clock stamps them."""
    moments = [BEGIN + 0.499 * step for step in range(80)]
    return [(clock(moment), moment + delay()) for moment in moments if not WINDOW[0] < moment < WINDOW[1]]


def found(clock: Clock, delay: Callable[[], float] = lambda: 0.001) -> str | None:
    return clocks.contradiction(stamps(clock, delay), [(clock(WINDOW[0]), clock(WINDOW[1]))])


def paced(rate: float, begin: float = BEGIN, end: float = END) -> Clock:
    """A clock that is right but from `begin` to `end`."""
    return lambda moment: moment + (rate - 1) * max(0.0, min(moment, end) - begin)


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        (paced(0.9), "around the timed windows, 12.575 s went by on the box's clock and 13.972 s on the host's"),
        (paced(1.1), "on the host's"),
        (paced(0.97), "on the host's"),
        (paced(1.03), "on the host's"),
        (paced(0.9, *WINDOW), "around the timed windows, "),
        (paced(1.1, *WINDOW), "around the timed windows, "),
        (paced(0.9, BEGIN, BEGIN + 8.0), "from the first lines to the last, "),
        (lambda moment: moment - (2.0 if moment > 1015.0 else 0.0), "around the timed windows, "),
        (lambda moment: moment + (2.0 if moment > 1030.0 else 0.0), "from the first lines to the last, "),
        (lambda moment: moment - (1.0 if 1015.0 < moment < 1020.1 else 0.0), "of nothing in the 1.459 s after timed window 0"),
        (lambda moment: BEGIN, "around the timed windows, 0.000 s went by"),
    ],
)  # fmt: skip
def test_a_clock_that_is_slow_fast_or_jumps_is_told_with_both_times(clock: Clock, said: str) -> None:
    assert said in str(found(clock)), found(clock)


@pytest.mark.parametrize("rate", [1.0, 1.0005, 0.9995])
@pytest.mark.parametrize("mean", [0.0001, 0.001, 0.02, 0.1])
def test_an_honest_clock_is_none_however_late_lines_are(rate: float, mean: float) -> None:
    drawn = random.Random(1)
    for _ in range(50):
        assert found(lambda moment: 3600.0 + paced(rate)(moment), lambda: drawn.expovariate(1 / mean)) is None


def test_lines_that_wait_together_for_a_host_that_hangs_are_none() -> None:
    told = stamps(lambda moment: moment, lambda: 0.001)
    for first in range(len(told) - 6):
        waiting = [
            (one, max(came, told[first + 5][1])) if first <= row < first + 5 else (one, came)
            for row, (one, came) in enumerate(told)
        ]
        assert clocks.contradiction(waiting, [WINDOW]) is None


def test_too_little_to_tell_tells_nothing() -> None:
    assert clocks.contradiction([], [WINDOW]) is None and clocks.offset([]) is None
    assert clocks.contradiction([(1.0, 1.0)], []) is None
    short = [(0.9 * moment, moment) for moment in (0.0, 0.1, 0.2, 0.3)]
    assert clocks.contradiction(short, [(0.09, 0.18)]) is None, "0.03 s may be how late a line is"
