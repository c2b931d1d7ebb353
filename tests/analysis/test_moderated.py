"""Scatter that the cells of a run learn from each other, and whether their launches come in levels."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from support.records import write_run
from support.rows import a_row
from torchmatrix.analysis import levels, run_summary, verdicts
from torchmatrix.analysis.cells import Cell, CellIndex, Family
from torchmatrix.analysis.intervals import NO_PRIOR, SEEN_FROM, learned_of, learned_prior
from torchmatrix.analysis.pairs import pair, pair_of_moments

Random = np.random.Generator
Draw = Callable[[Random], list[float]]


def run_of(random: Random, cells: int, draw: Draw) -> list[Cell]:
    """Return the cells of a run, as a report has them; their rates are 100 but for what `draw` gives (logarithms)."""
    rows = [
        a_row(
            stack="s", workload=f"w{number}", cell=f"s/w{number}/gpu0", ddp_workload=f"w{number}", run="r", round=place,
            throughput=100 * math.exp(log),
        )
        for number in range(cells) for place, log in enumerate(draw(random))
    ]  # fmt: skip
    return CellIndex(rows).every


def smooth(n: int, scatter: float = 0.01) -> Draw:
    return lambda random: (scatter * random.normal(size=n)).tolist()


def jumping(n: int, share: float, scatter: float = 0.003) -> Draw:
    """Return a draw of launches of which a share is 5 % slower."""
    return lambda random: [scatter * random.normal() + (math.log(0.95) if random.random() < share else 0.0) for _ in range(n)]


def false_among(random: Random, cells: list[Cell]) -> bool:
    """Return whether one of ten jobs' four stacks is told apart from the first."""
    pairs = [cells[place].over(cells[place - place % 4]) for place in range(len(cells)) if place % 4]
    return any(verdict.verdict in ("FASTER", "SLOWER") for verdict in verdicts.judged(pairs))


def test_two_cells_learn_nothing_of_each_other() -> None:
    assert learned_prior([1e-4, 1e-4], [2, 2]) == learned_prior([], []) == NO_PRIOR
    assert learned_prior([0.0, 0.0, 0.0, 1e-4], [2, 2, 2, 2]) == NO_PRIOR, "most don't scatter at all: nothing fits"


def test_cells_that_scatter_alike_know_it_together_and_cells_that_do_not_know_little() -> None:
    random = np.random.default_rng(1)
    alike = learned_of([np.exp(0.01 * random.normal(size=3)) for _ in range(40)])
    assert alike.freedom > 8 and math.sqrt(alike.variance) == pytest.approx(0.01, rel=0.2)
    unlike = learned_of([np.exp(10 ** random.uniform(-3, -1) * random.normal(size=3)) for _ in range(40)])
    assert unlike.freedom < 2.5
    few = learned_of([np.exp(0.01 * random.normal(size=3)) for _ in range(4)])
    assert 0 < few.freedom < 3


def test_a_moderated_variance_lies_between_the_cell_s_own_and_that_of_the_others() -> None:
    prior = learned_prior([1e-4, 2e-4, 0.5e-4, 1e-4, 1.5e-4], [2] * 5)
    for variance in (1e-6, 1e-4, 1e-2):
        low, high = sorted((variance, prior.variance))
        assert low <= prior.moderated(variance, 2) <= high


def test_a_unit_changes_nothing() -> None:
    random = np.random.default_rng(2)
    rates = [np.exp(0.01 * random.normal(size=3)) for _ in range(10)]
    plain, scaled = learned_of(rates), learned_of([1e6 * values for values in rates])
    assert plain.freedom == pytest.approx(scaled.freedom) and plain.variance == pytest.approx(scaled.variance)


@pytest.mark.parametrize("draw", [smooth(2), smooth(3), smooth(5), jumping(3, 0.3), jumping(3, 0.5), jumping(5, 0.3)])
def test_of_forty_equal_cells_hardly_ever_one_is_told_apart(draw: Draw) -> None:
    """At most in 5 of 100 runs; more would be seen in 80 with a chance of 19 in 20 only if it were twice that."""
    random = np.random.default_rng(3)
    assert sum(false_among(random, run_of(random, 40, draw)) for _ in range(80)) <= 9


def test_three_launches_detect_four_percent_among_forty_cells() -> None:
    random, detected = np.random.default_rng(4), 0
    for _ in range(60):
        cells = run_of(random, 40, smooth(3))
        faster = [structs.replace(row, throughput=1.04 * row.throughput) for row in cells[0].launches]
        family = Family([Cell(faster), *cells[1:]])
        cell = Cell(faster, family)
        detected += pair_of_moments(cell.moments(), cells[1].moments()).chances.differs < 0.05 / 30  # type: ignore[arg-type]
    assert detected >= 45


def test_a_run_whose_launches_jump_says_so_and_reports_no_difference_of_that_size() -> None:
    random = np.random.default_rng(5)
    cells = run_of(random, 40, jumping(3, 0.4))
    jump = cells[0].family.jump("throughput")
    assert 0.05 < jump < 0.1
    pairs = [cell.over(cells[0]) for cell in cells[1:]]
    assert {item.jump for item in pairs} == {jump}
    assert "different" not in {item.reason for item in verdicts.judged(pairs)}
    clear = pair([104.0, 104.1, 104.2], [100.0, 100.1, 100.2])
    (plain,), held = verdicts.judged([clear]), verdicts.judged([replace(clear, jump=jump)])
    assert (plain.reason, held[0].verdict, held[0].reason) == ("different", "AMBIGUOUS", "levels")
    assert pairs[0].settled_by() is None or pairs[0].settled_by() >= SEEN_FROM  # type: ignore[operator]
    assert run_of(random, 40, smooth(3))[0].family.jump("throughput") == 0.0


def test_a_difference_larger_than_a_jump_is_still_detected() -> None:
    random = np.random.default_rng(6)
    cells = run_of(random, 40, jumping(3, 0.4))
    slow = [structs.replace(row, throughput=0.5 * row.throughput) for row in cells[0].launches]
    (verdict,) = verdicts.judged([Cell(slow, cells[0].family).over(cells[1])])
    assert (verdict.verdict, verdict.reason) == ("SLOWER", "different")


def test_a_cell_s_two_levels_are_found_and_scatter_alone_shows_none() -> None:
    cut = levels.best_cuts([[math.log(rate) for rate in (410.0, 389.2, 410.4, 388.8, 409.7)]])[0]
    assert cut is not None and cut.low == 2 and math.exp(cut.gap) == pytest.approx(410 / 389, rel=1e-3)
    assert levels.significant_levels([cut], 0.05) == [cut]
    random = np.random.default_rng(7)
    runs = [levels.best_cuts([(0.02 * random.normal(size=5)).tolist() for _ in range(40)]) for _ in range(100)]
    assert sum(any(levels.significant_levels(cuts, 0.05)) for cuts in runs) <= 11
    assert levels.best_cuts([[0.0, 0.1], [0.1, 0.1, 0.1]]) == [None, None]


def test_one_slow_launch_of_five_is_no_level() -> None:
    assert levels.significant_levels(levels.best_cuts([[0.0, 0.0001, -0.0001, 0.0002, -0.1]]), 0.05) == [None]


def test_the_levels_of_a_cell_are_described_with_what_differs_between_them() -> None:
    rates = (410.0, 389.2, 410.4, 388.8, 409.7)
    rows = [
        a_row(throughput=rate, round=place, clock_mhz=1980.0 if rate > 400 else 1755.0, compile_cache="warm")
        for place, rate in enumerate(rates, 1)
    ]  # fmt: skip
    cut = levels.best_cuts([[math.log(rate) for rate in rates]])[0]
    assert cut is not None
    text = levels.levels_in_words(rows, cut, "images")
    assert text.startswith(
        "3 of 5 launches at 410 images/s, 2 at 389 (rounds 2, 4); they differ in clock in MHz (1980 and 1760)"
    )
    bare = [structs.replace(row, clock_mhz=math.nan, compile_cache=None) for row in rows]
    assert "nothing that is recorded of each tells why" in levels.levels_in_words(bare, cut, "images")


@pytest.mark.parametrize("rounds", [9, 12])
def test_a_report_takes_the_ratio_that_compare_takes(tmp_path: Path, rounds: int) -> None:
    """Round by round from ten rounds on, on a machine that loses a tenth meanwhile."""
    from torchmatrix.analysis import compare
    from torchmatrix.analysis.speedups import ratios_of

    random = np.random.default_rng(8)
    pace = np.linspace(1.0, 0.9, rounds)
    launches = [
        {"stack": stack, "rate": speed * share * (1 + 0.002 * random.normal()), "round": place + 1}
        for stack, speed in (("a", 100.0), ("b", 103.0)) for place, share in enumerate(pace)
    ]  # fmt: skip
    every = list(write_run(tmp_path, launches).launches())
    (row,) = compare.compare(*([entry for entry in every if entry.stack.name == name] for name in "ba")).rows
    shown = next(
        entry for entry in ratios_of(CellIndex(run_summary.launch_rows(every))).speedups if entry.cell.row.stack == "b"
    )
    assert row.paired == (rounds > 9)
    assert (shown.pair.value, shown.pair.interval.low, shown.pair.interval.high) == pytest.approx(
        (row.ratio, row.low, row.high)
    )
    assert shown.verdict == row.verdict == ("FASTER" if rounds > 9 else "AMBIGUOUS")
