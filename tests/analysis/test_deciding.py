"""Runs that make rounds until their comparisons are decided: who goes on, and what looking more than once costs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from support.rows import a_row
from torchmatrix.analysis import best, intervals, speedups
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.verdicts import Significance, judged, may_be_best, verdict_at

MOST = 8


def index(rates: Mapping[str, Sequence[float | None]], further: int | None = 5, **more: Sequence[bool]) -> CellIndex:
    """Return the cells of a job on several stacks, by stack; None: it wasn't launched in that round. `more`: by launch."""
    return CellIndex(
        a_row(
            cell=f"{stack}/job/gpu0", stack=stack, workload="job", round=number + 1, throughput=rate, further=further,
            disturbed=stack in more and more[stack][number],
        )
        for stack, launches in rates.items()
        for number, rate in enumerate(launches)
        if rate
    )  # fmt: skip


QUIET = [100.0, 100.4, 99.6]
OTHERS = {name: [50.0 + 10 * place, 50.2 + 10 * place, 49.9 + 10 * place] for place, name in enumerate("uvw")}


@pytest.mark.parametrize(
    ("b", "goes_on"),
    [
        ([101.5, 102.9, 101.1], True),  # 2 % faster, scatters by 1 %
        ([150.0, 150.6, 149.4], False),  # told
        ([100.1, 100.3, 99.9], False),  # the same
        ([101.0, 140.0, 70.0], False),  # eight launches would not tell it either
        ([101.5], False),  # never tested
    ],
)  # fmt: skip
def test_what_is_open_and_can_be_decided_goes_on_with_both_sides(b: list[float], goes_on: bool) -> None:
    cells = index({"a": QUIET, "b": b, **OTHERS})
    assert ({"a/job/gpu0", "b/job/gpu0"} <= speedups.undecided(cells, MOST)) is goes_on


def test_the_fastest_and_those_that_may_be_as_fast_go_on_though_the_baseline_is_beaten() -> None:
    cells = index({"a": [50.0, 50.2, 49.8], "b": QUIET, "c": [101.5, 102.9, 101.1], "d": [70.0, 70.3, 69.7]})
    assert speedups.undecided(cells, MOST) == {"b/job/gpu0", "c/job/gpu0"}


def test_a_disturbed_side_is_no_reason_to_go_on() -> None:
    rates = {"a": QUIET, "b": [101.5, 102.9, 101.1], **OTHERS}
    assert not speedups.undecided(index(rates, b=[True, False, False]), MOST)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_looking_more_than_once_widens_intervals_as_it_raises_p_values(confidence: float) -> None:
    (a, b), (c, d) = (index({"a": QUIET, "b": [101.5, 102.9, 101.1]}, further).figures for further in (None, 5))
    once, often = b.over(a), d.over(c)
    assert often.chances.differs == pytest.approx(min(1.0, intervals.LOOKS * once.chances.differs))
    assert often.at(confidence) == once.at(1 - (1 - confidence) / intervals.LOOKS)
    edge = often.at(1 - often.chances.differs)
    assert min(edge.low, edge.high, key=lambda end: abs(end - 1)) == pytest.approx(1.0), "the interval agrees with the test"
    assert often.detectable(0.95) > once.detectable(0.95) and (often.settled_by() or 0) > (once.settled_by() or 0)


def test_the_fastest_is_tested_as_the_pairs_are() -> None:
    """At the level at which a pair is just not told, the slower one may still be the fastest."""
    for further in (None, 5):
        a, b = index({"a": QUIET, "b": [102.4, 103.1, 101.9]}, further).figures
        p = b.over(a).chances.differs
        for level, left in ((1.01 * p, [1]), (0.99 * p, [0, 1])):
            assert may_be_best([a.moments(), b.moments()], level) == left
            told = verdict_at(b.over(a), Significance(differs=level))
            assert told == ("FASTER" if left == [1] and p <= 0.05 else "AMBIGUOUS")


def test_a_ratio_has_only_the_rounds_in_which_both_were_launched() -> None:
    """The machine loses 10 % after the third round: the slow rounds are in no ratio to a cell that stopped."""
    slow = [*QUIET, 90.0, 90.4, 89.6]
    cells = index({"a": QUIET, "b": slow, "c": [*QUIET, None, 90.0, None], **OTHERS})
    a, b, c = (cells.named[f"{name}/job/gpu0"] for name in "abc")
    assert b.over(a).value == pytest.approx(1.0) and len(b.samples) == 6
    assert b.over(c).value == pytest.approx(1.0, rel=2e-3), "round 5, too, but neither 4 nor 6"
    assert len(b.beside(c).ok) == len(c.ok) == 4
    rows = {ratio.cell.row.stack: ratio for ratio in speedups.speedup_table(cells)}
    assert (rows["b"].n, rows["b"].baseline_n, rows["b"].pair.value) == (3, 3, pytest.approx(1.0))
    (verdict,) = judged([b.over(a)])
    assert verdict.verdict in ("SAME", "AMBIGUOUS")
    fixed = index({"a": QUIET, "b": slow, **OTHERS}, further=None).named
    ratio = fixed["b/job/gpu0"].over(fixed["a/job/gpu0"]).value
    assert ratio == pytest.approx(math.sqrt(0.9), rel=2e-3), "all launches count where rounds are the same for all"


def test_what_one_measured_while_the_other_failed_is_in_no_comparison() -> None:
    """From round 4 on the machine is faster, and the other stack crashes: neither ratio nor the fastest knows these rounds."""
    rates = {"a": [*QUIET, 104.0, 104.4, 103.6], "b": [98.1, 98.9, 97.6], **OTHERS}
    rows = [row for cell in index(rates).every for row in cell.launches]
    names: dict[str, Any] = {"cell": "b/job/gpu0", "stack": "b", "workload": "job", "further": 5}
    rows += [a_row(**names, round=number, outcome="crashed", throughput=math.nan) for number in (4, 5, 6)]
    named = CellIndex(rows).named
    a, b = named["a/job/gpu0"], named["b/job/gpu0"]
    assert len(a.beside(b).ok) == 3 and a.over(b).value == pytest.approx(100 / 98.2, rel=1e-3)
    assert best.chances_of_best([a, b]) == a.over(b).chances, "of two cells it is one comparison"
    assert best.may_be_best([a, b], 0.9 * a.over(b).chances.differs) == [0, 1]
    assert best.over_the_others(a, [b], 0.05) == a.over(b).interval


def test_of_three_that_beat_each_other_in_turn_the_highest_is_left() -> None:
    """Each two have rounds of their own in common, and the machine's speed is another one in each."""
    rates: dict[str, list[float | None]] = {
        "a": [*QUIET, None, None, None, 90.0, 90.2, 89.8], "b": [90.0, 90.2, 89.8, *QUIET, None, None, None],
        "c": [None, None, None, 90.0, 90.2, 89.8, *QUIET],
    }  # fmt: skip
    cells = index(rates).figures
    assert all(one.over(other).value > 1.05 for one, other in zip(cells, [*cells[1:], cells[0]], strict=True))
    assert len(best.may_be_best(cells, level=2.0)) == 1 and len(best.may_be_best(cells, level=1e-9)) == 3


def test_the_best_of_several_is_found_pair_by_pair() -> None:
    rates = {"a": [50.0, 50.2, 49.8], "b": [*QUIET, 100.0], "c": [101.5, 102.9, 101.1, 102.0], "d": [70.0, 70.3, 69.7]}
    cells = index(rates).figures
    assert best.may_be_best(cells) == [1, 2]
    assert best.may_be_best(index({name: launches[:3] for name, launches in rates.items()}, None).figures) == [1, 2]
    chances, (b, c) = best.chances_of_best(cells), cells[1:3]
    assert chances.differs == pytest.approx(min(1.0, 3 * c.over(b).chances.differs)) and chances.same == pytest.approx(1.0)
    assert math.isnan(best.chances_of_best([*cells, index({"e": [1.0]}).figures[0]]).differs), "one of them is untested"
