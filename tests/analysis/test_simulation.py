"""Analysis of launches whose truth is known: the coverage of its intervals, its false alarms, and its power."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from support.adaptive import simulated
from support.records import write_run
from torchmatrix.analysis import intervals, run_summary, verdicts
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.centers import of_normal, widening
from torchmatrix.analysis.pairs import pair, pair_by_rounds, pair_over_sum
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import ADAPTIVE_MAXIMUM, ADAPTIVE_MINIMUM, CONFIRMING, Method, Request
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix.running import launch_order

TRUTH = 100.0
WITHIN = 0.005
"""Relative standard deviation of a step within a launch."""
STEPS = 50
PERCENT = 0.01


class Device:
    """Device whose launches have a mean each (`between`: their relative standard deviation) and steps that scatter about it."""

    def __init__(self, seed: int, between: float = PERCENT) -> None:
        self._random = np.random.default_rng(seed)
        self._between = between

    def launches(self, count: int, truth: float = TRUTH) -> list[float]:
        means = self._random.normal(1.0, self._between, count)
        return list(truth * means * self._random.normal(1.0, WITHIN, (STEPS, count)).mean(axis=0))


def pairs(device: Device, count: int, truth: float, draws: int) -> Iterator[tuple[list[float], list[float]]]:
    """Yield `draws` times the launches of two cells, of which the first is `truth` times as fast."""
    for _ in range(draws):
        yield device.launches(count, truth * TRUTH), device.launches(count)


def share(hits: Iterator[bool]) -> float:
    return float(np.mean(list(hits)))


def covers(interval: intervals.Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


@pytest.fixture
def cell(cpu_host: Host) -> Cell:
    """Return any cell; a test makes more of it by giving them other ids."""
    text = '[cpus]\ncounts = [1]\n[[stack]]\nname = "a"\npython = "/usr/bin/python3"\naccelerator = "cpu"\n'
    text += '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n'
    (only,) = make_plan(matrix_file.parse(text), cpu_host, Prerequisites(containers=False)).cells
    return only


@pytest.mark.parametrize("count", [3, 5])
def test_the_interval_covers_the_truth_19_times_out_of_20(count: int) -> None:
    device = Device(seed=count)
    assert share(covers(intervals.center_interval(device.launches(count)), TRUTH) for _ in range(5000)) == pytest.approx(
        0.95, abs=0.01
    )


def slowed(random: np.random.Generator, count: int) -> list[float]:
    """Return launches that are slower than the machine could be by a lognormal share, about 1 % and often much more."""
    return list(TRUTH * (1 - PERCENT * random.lognormal(0.0, 1.0, count)))


@pytest.mark.parametrize(("count", "least"), [(3, 0.90), (5, 0.93), (10, 0.93), (30, 0.93)])
def test_the_interval_covers_the_median_of_launches_that_are_skewed(count: int, least: float) -> None:
    """The interval of their mean covers it in 64 % at 30 launches, and less with more."""
    random = np.random.default_rng(count)
    computed = [intervals.center_interval(slowed(random, count)) for _ in range(3000)]
    assert share(covers(interval, TRUTH * (1 - PERCENT)) for interval in computed) >= least


def test_a_figure_always_lies_inside_its_interval() -> None:
    random = np.random.default_rng(3)
    for count in (2, 3, 4, 5, 30):
        for _ in range(300):
            above, below = slowed(random, count), slowed(random, 3)
            first, second = intervals.moments(above), intervals.moments(below)
            computed = [intervals.center_interval(above, statistic) for statistic in ("median", "mean")]
            computed += [pair(above, below).interval, pair_over_sum(first, [second, first]).interval]
            assert all(interval.low <= interval.value <= interval.high for interval in computed)


@pytest.mark.parametrize("count", [3, 5, 10, 20])
def test_the_widening_of_the_median_is_as_large_as_it_needs(count: int) -> None:
    draws = np.random.default_rng(1).standard_normal((200_000, count))
    medians, errors = np.median(draws, axis=1), draws.var(axis=1, ddof=1) / count
    needed = np.quantile(np.abs(medians) / np.sqrt(errors) / stdtrit(count - 1, 0.975), 0.95)
    assert needed <= widening(count) + 0.01 and widening(count) - needed < 0.07
    assert medians.std() * np.sqrt(count) == pytest.approx(of_normal(count), abs=0.01)


@pytest.mark.parametrize("truth", [1.0, 1.3])
@pytest.mark.parametrize("count", [3, 5])
def test_the_interval_of_a_ratio_covers_the_truth_at_least_19_times_out_of_20(count: int, truth: float) -> None:
    """Welch's degrees of freedom are cautious for few launches."""
    covered = share(covers(pair(a, b).interval, truth) for a, b in pairs(Device(seed=count), count, truth, 4000))
    assert 0.94 <= covered <= 0.98


@pytest.mark.parametrize("between", [0.005, 0.01, 0.03])
@pytest.mark.parametrize("count", [3, 5])
def test_two_identical_cells_are_called_different_once_in_twenty_at_most(count: int, between: float) -> None:
    results = [intervals.difference_verdict(pair(a, b).interval) for a, b in pairs(Device(count, between), count, 1.0, 6000)]
    assert share(verdict in ("FASTER", "SLOWER") for verdict in results) <= 0.05


@pytest.mark.parametrize("count", [3, 5])
def test_of_forty_identical_cells_hardly_ever_one_is_called_different(count: int) -> None:
    """Uncorrected, that happens in most comparisons of two runs."""
    device = Device(seed=count)

    def differ(draws: int, corrected: bool) -> bool:
        samples = list(pairs(device, count, 1.0, draws))
        ratios = [pair(a, b) for a, b in samples]
        alone = (intervals.difference_verdict(ratio.interval) for ratio in ratios)
        results = [ratio.verdict for ratio in verdicts.judged(ratios)] if corrected else alone
        return any(verdict in ("FASTER", "SLOWER") for verdict in results)

    assert share(differ(40, True) for _ in range(250)) <= 0.05
    assert share(differ(40, False) for _ in range(50)) > 0.3


def test_among_forty_cells_reported_differences_are_true_and_most_true_ones_are_reported() -> None:
    """Ten of them differ by 5 %."""
    device = Device(seed=9)
    false, reported, there = 0, 0, 0
    for _ in range(100):
        samples = [next(pairs(device, 5, truth, 1)) for truth in [1.05] * 10 + [1.0] * 30]
        results = verdicts.judged([pair(a, b) for a, b in samples])
        differ = [result.verdict in ("FASTER", "SLOWER") for result in results]
        false, reported, there = false + sum(differ[10:]), reported + sum(differ), there + sum(differ[:10])
    assert false / reported <= 0.05 and there / 1000 > 0.9


def test_an_interval_over_machines_covers_a_gpu_model_and_one_over_all_launches_does_not() -> None:
    """Four machines of each of two GPU models; machines of one model differ by 3 %, launches on one machine by 0.5 %."""
    random, device = np.random.default_rng(5), Device(seed=5, between=0.005)
    by_machine, by_launch = [], []
    for _ in range(1000):
        models = [[device.launches(3, truth * TRUTH * random.normal(1.0, 0.03)) for _ in range(4)] for truth in (1.3, 1.0)]
        ours, theirs = ([float(np.median(launches)) for launches in model] for model in models)
        by_machine.append(covers(pair(ours, theirs).interval, 1.3))
        by_launch.append(covers(pair(*([rate for launches in model for rate in launches] for model in models)).interval, 1.3))
    assert share(iter(by_machine)) >= 0.94 and share(iter(by_launch)) < 0.8


def drifting(device: Device, count: int, truth: float) -> tuple[list[float], list[float]]:
    """Return two interleaved cells on a machine that loses a fifth of its speed over `count` rounds."""
    pace = np.linspace(1.0, 0.8, count)
    return list(pace * device.launches(count, truth * TRUTH)), list(pace * device.launches(count))


@pytest.mark.parametrize("truth", [1.0, 1.3])
def test_round_by_round_the_interval_covers_the_truth_although_the_machine_drifts(truth: float) -> None:
    device = Device(seed=7)
    computed = [pair_by_rounds(*drifting(device, intervals.PAIRED_FROM, truth)).interval for _ in range(4000)]
    assert share(covers(interval, truth) for interval in computed) == pytest.approx(0.95, abs=0.01)
    alarms = share(intervals.difference_verdict(interval) in ("FASTER", "SLOWER") for interval in computed)
    assert alarms <= 0.05 if truth == 1.0 else alarms == 1.0


def test_round_by_round_a_drift_does_not_hide_that_two_cells_are_the_same() -> None:
    device = Device(seed=8)
    draws = [drifting(device, 12, 1.0) for _ in range(500)]
    assert share(intervals.difference_verdict(pair_by_rounds(*sides).interval) == "SAME" for sides in draws) > 0.9
    assert share(intervals.difference_verdict(pair(*sides).interval) == "AMBIGUOUS" for sides in draws) > 0.9


def test_a_difference_of_5_percent_is_seen_with_5_launches_that_scatter_by_1_percent() -> None:
    results = [intervals.difference_verdict(pair(a, b).interval) for a, b in pairs(Device(seed=1), 5, 1.05, 1000)]
    assert share(verdict == "FASTER" for verdict in results) > 0.99


def settled(device: Device, count: int, truth: float) -> float:
    """Return the share of AMBIGUOUS pairs that are no longer so once continued to the number of launches that was named."""
    unambiguous = []
    for a, b in pairs(device, count, truth, 600):
        if intervals.difference_verdict(pair(a, b).interval) == "AMBIGUOUS":
            more = max(0, (pair(a, b).settled_by() or 0) - count)
            a, b = a + device.launches(more, truth * TRUTH), b + device.launches(more)
            unambiguous.append(intervals.difference_verdict(pair(a, b).interval) != "AMBIGUOUS")
    assert len(unambiguous) > 100
    return share(iter(unambiguous))


@pytest.mark.parametrize(
    ("between", "count", "truth", "share_settled"),
    [(0.01, 5, 1.0, 0.8), (0.01, 5, 1.02, 0.8), (0.03, 3, 1.0, 0.5), (0.03, 5, 1.0, 0.6)],
)
def test_the_number_of_launches_that_should_settle_a_comparison_settles_most(
    between: float, count: int, truth: float, share_settled: float
) -> None:
    """Four in five where the scatter is known from ten launches; fewer where it is known from six and may be far too small."""
    assert settled(Device(seed=1, between=between), count, truth) > share_settled


LAUNCH_MINUTES = 1.0
DRIFT, DRIFT_MINUTES = 0.02, 5.0


def warming_ratio(order: list[str]) -> float:
    """Return A over B, identical and without scatter, launched in this order on a device that loses DRIFT while it warms up."""
    rates: dict[str, list[float]] = {"a": [], "b": []}
    for position, name in enumerate(order):
        warmth = min(1.0, (position + 0.5) * LAUNCH_MINUTES / DRIFT_MINUTES)
        rates[name].append(TRUTH * (1 - DRIFT * warmth))
    return pair(rates["a"], rates["b"]).interval.value


def test_interleaved_rounds_cancel_the_warming_of_the_device_and_blocks_do_not(cell: Cell) -> None:
    cells = [replace(cell, id="a"), replace(cell, id="b")]
    orders = [[c.id for c, _ in launch_order.interleave(cells, 3, seed)] for seed in range(200)]
    off = [warming_ratio(order) - 1 for order in orders]
    assert abs(np.mean(off)) < 0.001 and max(map(abs, off)) < 0.005
    assert warming_ratio(sorted(orders[0])) - 1 > 0.01


def adaptive_samples(cell: Cell, device: Device, method: Method, draws: int) -> list[list[float]]:
    """Return the rates of `draws` independent cells when the rule of --until said that they were done."""
    names = map(str, range(draws))
    jobs = {name: replace(cell.workload, factors={**cell.workload.factors, "model": name}) for name in names}
    cells = [replace(cell, id=name, workload=job) for name, job in jobs.items()]
    rates = simulated(cells, method, lambda _, number: device.launches(1)[0])
    return [[rate for _, rate in launches] for launches in rates.values()]


@pytest.mark.thorough
@pytest.mark.parametrize(("between", "least"), [(0.003, 0.94), (0.01, 0.93), (0.02, 0.93)])
def test_stopping_when_the_interval_is_narrow_costs_little_of_its_coverage(cell: Cell, between: float, least: float) -> None:
    """Stopping when the scatter looks small favours samples that scatter too little; the rounds that follow make up for it."""
    method = Request(until="1%").applied(Method())
    samples = adaptive_samples(cell, Device(seed=1, between=between), method, 2500)
    assert share(covers(intervals.center_interval(values), TRUTH) for values in samples) >= least
    assert all(ADAPTIVE_MINIMUM <= len(values) <= ADAPTIVE_MAXIMUM for values in samples)
    narrow = [intervals.relative_half_width(values[:-CONFIRMING]) <= PERCENT for values in samples]
    assert all(done or len(values) == ADAPTIVE_MAXIMUM for done, values in zip(narrow, samples, strict=True))


def test_on_a_drifting_machine_until_tells_no_two_equal_cells_apart(cell: Cell) -> None:
    """The machine loses 10 % from round to round 1 to 30; the baseline scatters less and would have been done sooner."""
    method, false = Request(until="1%").applied(Method()), 0
    for seed in range(200):
        random = np.random.default_rng(seed)

        def rate(cell: Cell, number: int, random: np.random.Generator = random) -> float:
            return float(TRUTH * (1 - 0.1 * number / 30) * random.normal(1.0, 0.001 if cell.id == "a" else 0.02))

        rates = simulated([replace(cell, id="a"), replace(cell, id="b")], method, rate)
        a, b = ([rate for _, rate in rates[name]] for name in ("a", "b"))
        paired = len(a) >= intervals.PAIRED_FROM
        interval = pair_by_rounds(a, b).interval if paired else pair(a, b).interval
        false += intervals.difference_verdict(interval) in ("FASTER", "SLOWER")
    assert false / 200 <= 0.05


@pytest.mark.thorough
def test_the_report_says_of_launch_files_what_the_intervals_say_of_the_same_samples(tmp_path: Path) -> None:
    device = Device(seed=1)
    for number in range(60):
        samples = device.launches(3)
        run = write_run(tmp_path / str(number), [{"rate": rate} for rate in samples])
        (row,) = run_summary.cells_table(CellIndex(run_summary.launch_rows(run.launches())).every)
        expected = intervals.center_interval(samples)
        assert (row.throughput, row.low, row.high) == pytest.approx((expected.value, expected.low, expected.high))
        assert row.n == 3
