"""Ratios, their means, the best of several and the advice go by one rule: by the rounds that cells share, where they may."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support import invented
from support.records import ROOF, nights, write_run
from torchmatrix.analysis import best, compare, history
from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.cube_points import leading, points_of
from torchmatrix.analysis.machines import choose_sides, newest_complete
from torchmatrix.analysis.metrics import THROUGHPUT
from torchmatrix.analysis.verdicts import Significance
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting import machines_page, report
from torchmatrix.reporting.overview.answers import mean_of, pairs_of, ranking
from torchmatrix.reporting.overview.cells import Cells

FURTHER = {"name": "steady", "statistic": "median", "start_below_celsius": None, "steps": None, "until": None, "further": 5}
WAITED = [{"cpus": "0-1", "run_seconds": 10.0, "wait_seconds": 2.0, "busy_seconds": 14.0, "stolen_seconds": 0.0}]


def launch(rate: float, compiled: bool, model: str = "resnet50", **more: Any) -> dict[str, Any]:
    workload = f"{model}-train-fp32-b4{'-compile' * compiled}"
    return {"rate": rate, "model": model, "workload": workload, "job": {"compile": compiled}, **more}


def drifting(tmp_path: Path, seed: int, rounds: int, models: Sequence[str] = ("resnet50",), gain: float = 1.03) -> RunFolder:
    """Write a run whose machine gets slower by 3 % in each round."""
    random = Random(seed)
    return write_run(tmp_path / f"results{seed}", [
        launch(100 * (1 - 0.03 * number) * (gain if compiled else 1) * random.gauss(1, 0.002), compiled, model)
        for number in range(rounds) for model in models for compiled in (False, True)
    ])  # fmt: skip


def shown(run: RunFolder) -> Cells:
    view = report.view_of(run)
    return report.cells_of(view, report.explorers_of(view).data)


@pytest.mark.parametrize("models", [("resnet50",), ("resnet50", "bert-base-cased")])
@pytest.mark.parametrize("seed", [1, 2])
def test_from_ten_rounds_on_a_mean_and_the_best_are_by_rounds_as_the_ratios_are(
    tmp_path: Path, seed: int, models: tuple[str, ...]
) -> None:
    cells = shown(drifting(tmp_path, seed, 12, models))
    pairs = pairs_of(cells, "compile")
    mean = mean_of(cells, pairs)
    assert {pair.verdict for pair in pairs} == {mean.verdict} == {"FASTER"}
    widest = max(pair.high / pair.low for pair in pairs)
    assert mean.interval.high / mean.interval.low <= widest * (1 + 1e-6) and mean.interval.low > 1.02
    ranked = ranking(cells, cells.best(cells.chosen))
    assert ranked.is_fastest and cells.engine(ranked.top) == "torch.compile"


def test_below_ten_rounds_the_drift_is_in_all_of_them(tmp_path: Path) -> None:
    cells = shown(drifting(tmp_path, 1, 6))
    (pair,) = pairs_of(cells, "compile")
    assert pair.verdict == mean_of(cells, [pair]).verdict == "AMBIGUOUS"
    assert len(ranking(cells, cells.best(cells.chosen)).equal) == 2


def test_equal_cells_on_a_drifting_machine_are_called_different_as_seldom_as_the_level_says() -> None:
    """Three cells over one baseline, which they share, by 12 rounds each. Measured: 4 to 6 of 100."""
    random, wrong, tries = Random(5), 0, 400
    for _ in range(tries):
        drift = [100 * math.exp(-0.02 * number) for number in range(12)]
        base, *others = (_cell([level * math.exp(random.gauss(0, 0.005)) for level in drift]) for _ in range(4))
        for other in others:
            other.family = base.family
        ratios = [(other, base, other.over(base).value) for other in others]
        interval = best.mean_over(ratios, Significance()).interval
        wrong += not interval.low <= 1 <= interval.high
        assert interval.high / interval.low < 1.03
    assert 0.01 < wrong / tries <= 0.09


def test_cells_of_three_rounds_over_one_of_eight_are_compared_by_the_three_they_share() -> None:
    """Measured: 2 to 4 of 100 (5 to 9 with the baseline's error over all of its rounds)."""
    random, wrong, tries = Random(6), 0, 300
    for _ in range(tries):
        base, *others = (
            _cell([100 * math.exp(random.gauss(0, 0.01)) for _ in range(rounds)], further=5) for rounds in (8, *[3] * 6)
        )
        for other in others:
            other.family = base.family
        interval = best.mean_over([(other, base, other.over(base).value) for other in others], Significance()).interval
        wrong += not interval.low <= 1 <= interval.high
    assert wrong / tries <= 0.06


class _Row:
    def __init__(self, number: int, rate: float, further: int) -> None:
        self.run, self.round, self.throughput, self.outcome = "run", number, rate, "ok"
        self.disturbed, self.further = 0, further

    def value(self, column: str) -> float:
        return self.throughput if column == "throughput" else math.nan


def _cell(rates: Sequence[float], further: int = 0) -> Cell[Any]:
    return Cell([_Row(number, rate, further) for number, rate in enumerate(rates)])


@pytest.fixture
def unequal(tmp_path: Path) -> RunFolder:
    """Return a run in which the cell with the highest own figure is slower in the rounds that it shares."""
    random, launches = Random(3), []
    for number in range(8):
        drift = 1 if number < 3 else 0.87
        launches += [launch(100 * drift * random.gauss(1, 0.002), False, method=FURTHER)] if number < 3 else []
        launches.append(launch(112 * drift * random.gauss(1, 0.002), True, method=FURTHER))
    return write_run(tmp_path / "results", launches, method=FURTHER)


def test_a_figure_that_is_higher_only_by_its_rounds_is_not_the_best_and_is_named(unequal: RunFolder) -> None:
    cells = shown(unequal)
    top = cells.best(cells.chosen)
    assert top is not None and cells.engine(top) == "torch.compile" and top.rate < max(row.rate for row in cells.rows)
    ranked = ranking(cells, top)
    assert [cells.engine(row) for row in ranked.only_higher] == ["eager"] and not {
        row.place for row in ranked.equal
    } & cells.slower
    view = report.view_of(unequal)
    page = report.rendered(view, {})
    text = " ".join(page.answers.in_words(100).split())
    assert "Slower by tests, though the figure is higher: eager (" in text
    (points,) = points_of(view.summary.launches, THROUGHPUT, fewest_cells=1, fewest_settings=0)
    assert leading(points.measured)[0].settings["compile"] is True


def test_a_mean_is_disturbed_only_if_a_pair_is(tmp_path: Path) -> None:
    random = Random(2)
    launches = [
        launch(100 * (1.2 if compiled else 1) * random.gauss(1, 0.002), compiled, model, sharing=sharing)
        for _ in range(3) for model, sharing in (("resnet50", WAITED), ("bert-base-cased", [])) for compiled in (False, True)
    ]  # fmt: skip
    cells = shown(write_run(tmp_path / "results", launches))
    pairs = pairs_of(cells, "compile")
    assert [pair.verdict for pair in pairs] == ["FASTER"] * 2 and mean_of(cells, pairs).verdict == "FASTER"
    launches[1]["sharing"] = []
    cells = shown(write_run(tmp_path / "other", launches))
    pairs = pairs_of(cells, "compile")
    assert "DISTURBED" in {pair.verdict for pair in pairs} or mean_of(cells, pairs).verdict == "FASTER"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cells", [1, 4])
def test_the_mean_of_two_runs_says_no_more_than_its_ratios(tmp_path: Path, seed: int, cells: int) -> None:
    """These two runs scatter less than those before: what runs differ by is in each ratio, and in the mean."""
    random = Random(seed)
    for number, night in enumerate(nights(9)):
        scatter = 0.0005 if number >= 7 else 0.03
        launches = [
            {"rate": 100 * (1.02 if number == 8 else 1) * random.gauss(1, scatter), "stack": f"stack-{cell}"}
            for cell in range(cells) for _ in range(5)
        ]  # fmt: skip
        write_run(tmp_path / "results", launches, run=night)
    store = Results(tmp_path / "results")
    sides = [side.launches for side in choose_sides(store, "last", "last~1")]
    between = history.variances_of_history(store, *sides, THROUGHPUT)
    assert between is not None
    comparison = compare.compare(sides[0], sides[1], between=between)
    mean = comparison.means[-1]
    if cells == 1:
        row = comparison.rows[0]
        assert (mean.ratio, mean.low, mean.high, mean.verdict) == (row.ratio, row.low, row.high, row.verdict)
    shared = math.sqrt(between.variance_of_both + 2 * between.launches / cells)
    assert math.log(mean.high / mean.low) / 2 >= 1.96 * shared * 0.999


def test_a_cell_without_a_figure_has_no_ratio_to_itself() -> None:
    failed, some = _cell([math.nan]), _cell([1.0])
    assert math.isnan(failed.over(failed).value) and some.over(some).value == 1.0


@pytest.mark.parametrize(("rounds", "crashed"), [(12, 2), (13, 2), (14, 3)])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_cell_whose_slower_rounds_crashed_is_not_the_best(tmp_path: Path, seed: int, rounds: int, crashed: int) -> None:
    random, launches = Random(seed), []
    for number in range(rounds):
        drift = 100 * math.exp(-0.03 * number)
        outcome = "crashed" if number >= rounds - crashed else "ok"
        launches.append(launch(drift * random.gauss(1, 0.002), False, outcome=outcome))
        launches.append(launch(1.03 * drift * random.gauss(1, 0.002), True))
    run = write_run(tmp_path / "results", launches)
    cells = shown(run)
    top = cells.best(cells.chosen)
    assert top is not None and cells.engine(top) == "torch.compile" and top.place not in cells.slower
    (points,) = points_of(report.view_of(run).summary.launches, THROUGHPUT, fewest_cells=1, fewest_settings=0)
    assert leading(points.measured)[0].settings["compile"] is True


def test_a_cell_of_one_launch_is_the_best_only_by_its_figure(tmp_path: Path) -> None:
    random, launches = Random(1), []
    for number in range(8):
        drift = 1 if number < 3 else 0.87
        launches += [launch(100 * random.gauss(1, 0.002), False, method=FURTHER)] if number < 3 else []
        launches.append(launch(112 * drift * random.gauss(1, 0.002), True, method=FURTHER))
    launches.append(launch(99, False, "resnet50", stack="stack-b", method=FURTHER))
    cells = shown(write_run(tmp_path / "results", launches, method=FURTHER))
    ranked = ranking(cells, cells.best(cells.chosen))
    assert cells.engine(ranked.top) == "torch.compile" and [cells.who(row) for row in ranked.untested] == ["stack-b"]


def test_two_cells_that_a_test_does_not_tell_apart_are_not_fastest_by_their_stacks(tmp_path: Path) -> None:
    random = Random(2)
    rates = {("stack-a", "fp32"): 100.0, ("stack-b", "fp32"): 130.0, ("stack-a", "amp"): 300.0, ("stack-b", "amp"): 301.0}
    launches = [
        {"stack": stack, "workload": f"resnet50-train-{precision}-b4", "job": {"precision": precision},
         "rate": rate * random.gauss(1, 0.002)}
        for _ in range(5) for (stack, precision), rate in rates.items()
    ]  # fmt: skip
    run = write_run(tmp_path / "results", launches)
    cells = shown(run)
    ranked = ranking(cells, cells.best(cells.chosen))
    assert not ranked.is_fastest and len(ranked.equal) + len(ranked.near) == 2
    answers = report.rendered(report.view_of(run), {}).answers
    assert answers.each[0].verdict == "AMBIGUOUS" and "fastest" not in answers.lead
    assert "Faster than all others" not in answers.in_words(100)


def test_ratios_with_a_failed_launch_each_have_a_mean_as_sure_as_they_are(tmp_path: Path) -> None:
    """All cells together share nine rounds, each ratio eleven."""
    random, launches = Random(1), []
    for number in range(12):
        drift = 100 * math.exp(-0.03 * number)
        launches.append(launch(drift * random.gauss(1, 0.002), False))
        for place, mode in enumerate(("default", "max-autotune", "reduce-overhead")):
            launches.append({
                "workload": f"resnet50-train-fp32-b4-compile-{mode}", "job": {"compile": True, "compile_mode": mode},
                "rate": 1.04 * drift * random.gauss(1, 0.002), "outcome": "crashed" if number == 3 * place + 1 else "ok",
            })  # fmt: skip
    cells = shown(write_run(tmp_path / "results", launches))
    pairs = [pair for pair in pairs_of(cells, "compile") if cells.launched(cells.rows[pair.at]).failed]
    mean = mean_of(cells, pairs)
    assert len(pairs) > 1 and {pair.verdict for pair in pairs} == {mean.verdict} == {"FASTER"}
    assert mean.interval.low > 1.03 and mean.interval.high < 1.05


# What a page says first, and of what.


def generation(model: str, step_seconds: float) -> list[dict[str, Any]]:
    """Return launches of a model that generates, by batches of 1 and 8."""
    launches = []
    for batch, _ in itertools.product((1, 8), range(2)):
        job = {"mode": "generate", "precision": "bf16-weights", "batch": batch, "unit": "tokens", "sequence_length": 128}
        window = {
            "event": "stream",
            "unit": "tokens",
            "rank": 0,
            "start_monotonic_seconds": 120.0,
            "stop_monotonic_seconds": 190.0,
        }
        decode = {"phase": "decode", "items": [batch] * 200, "seconds": [step_seconds] * 200, "requests": [*range(100)] * 2}
        prefill = {"phase": "prefill", "items": [128 * batch] * 100, "seconds": [0.02] * 100, "requests": [*range(100)]}
        roof = ROOF | {"weight_bytes": 2.5e9, "cache_bytes": 1e8}
        launches.append({
            "workload": f"{model}-b{batch}", "model": model, "job": job, "rate": batch / step_seconds,
            "told": [window | prefill, window | decode, roof],
        })  # fmt: skip
    return launches


def test_the_time_of_a_token_is_of_the_model_that_the_page_is_about(tmp_path: Path) -> None:
    run = write_run(tmp_path / "results", generation("llama-3.1-8b", 0.02) + generation("llama-tiny", 0.002))
    page = report.rendered(report.view_of(run), {})
    token = next(answer for answer in page.answers.each if answer.name == "generation")
    assert token.value == pytest.approx(0.02) and token.text.startswith("llama-3.1-8b: ")
    assert "The shortest of 2 cells" in token.text


def test_a_workload_of_two_machines_is_one_workload(tmp_path: Path) -> None:
    for machine in invented.machines()[:3]:
        invented.write(tmp_path / "results", machine)
    chosen = newest_complete(Results(tmp_path / "results").runs())
    fleet, relative = machines_page.compared(chosen)
    shown_machines = machines_page.shown_of(fleet, relative)
    (bring,) = (answer for answer in shown_machines.answers.each if answer.name == "devices")
    measured = {(row.of.stack, row.of.workload) for row in fleet.cells if row.n and row.of.count == 8}
    assert len(measured) > 1 and bring.note == f"Geometric mean of {len(measured)} workloads."


def test_batches_that_were_searched_for_are_shown_where_they_differ(tmp_path: Path) -> None:
    for run, batch in (("20260101T000000Z", 32), ("20260102T000000Z", 48)):
        launches = [{"rate": 100.0 + number, "job": {"batch": batch}, "workload": "resnet50-bauto"} for number in range(3)]
        write_run(tmp_path / "results", launches, run=run)
    sides = [side.launches for side in choose_sides(Results(tmp_path / "results"), "last", "last~1")]
    (row,) = compare.compare(sides[0], sides[1], "own").rows
    assert row.batches == (48, 32) and "resnet50-bauto (batch 48 | 32)" in row.label
