"""Cubes with a known truth: effects, interactions, the best and the way to it, the front, negative controls."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from support.records import launch_lines
from torchmatrix.analysis.cube_points import COSTS, front_of
from torchmatrix.analysis.effects import Cube, cubes_of
from torchmatrix.analysis.launch_row import row_of
from torchmatrix.analysis.metrics import named
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of
from torchmatrix.reporting.cubes import sentences

PACES = (0.999, 1.0, 1.001)


def launch(rate: float, failed: bool = False, model: str = "resnet50", **settings: Any) -> Launch:
    """Return a launch of the cell with these settings."""
    job = {"precision": "fp32", "channels_last": False, "compile": False, "cudnn_benchmark": True} | settings
    name = "-".join([model, *(f"{key}-{value}" for key, value in job.items())])
    fields: dict[str, Any] = {"outcome": "crashed"} if failed else {"rate": rate}
    parsed = launch_of(Path("a/round1-try1.jsonl"), launch_lines(workload=name, model=model, job=job, **fields))
    assert isinstance(parsed, Launch)
    return parsed


def speed(precision: str, channels_last: bool, compile: bool) -> float:
    """Return a rate: AMP × 2; channels_last × 1.4 with AMP and × 0.98 without; compile × 1.2 in all cells."""
    layout = (1.4 if precision == "amp" else 0.98) if channels_last else 1.0
    return 100.0 * (2.0 if precision == "amp" else 1.0) * layout * (1.2 if compile else 1.0)


def rows_of_cube(
    lost: tuple[Any, ...] | None = None, model: str = "resnet50", layout_matters: bool = True, benchmark: bool = True
) -> list[LaunchRow]:
    """Return three launches of each of 16 cells; cuDNN's benchmark does nothing. `lost`: the settings of a cell that failed."""
    rows = []
    for settings in itertools.product(("fp32", "amp"), (False, True), (False, True), (True, False)[: 1 + benchmark]):
        precision, channels_last, compiled, tried = settings
        rate = speed(precision, channels_last and layout_matters, compiled)
        for pace in PACES:
            job = {"channels_last": channels_last, "compile": compiled, "cudnn_benchmark": tried, "precision": precision}
            rows.append(row_of(launch(rate * pace, settings == lost, model, **job)))
    return rows


def cube(**fields: Any) -> Cube:
    (only,) = cubes_of(rows_of_cube(**fields))
    return only


def effect(whole: Cube, setting: str) -> Any:
    (result,) = (effect for effect in whole.effects if effect.setting == setting)
    return result


def test_each_setting_has_its_paired_ratio_over_the_usual_value() -> None:
    whole = cube()
    assert effect(whole, "compile").found.value == pytest.approx(1.2) and effect(whole, "compile").over is False
    layout = effect(whole, "channels_last")
    assert layout.found.value == pytest.approx(math.sqrt(1.4 * 0.98)) and (layout.n, layout.missing) == (8, 0)
    assert math.isnan(layout.found.low) and math.isnan(layout.found.high), "a mean over cells has no interval"
    assert (layout.least, layout.most) == (pytest.approx(0.98), pytest.approx(1.4))
    assert effect(whole, "precision").found.value == pytest.approx(2.0 * math.sqrt(1.4 / 0.98))


def test_what_a_failed_cell_leaves_out_is_counted() -> None:
    incomplete = cube(lost=("amp", True, True, True))
    assert {effect.setting: (effect.n, effect.missing) for effect in incomplete.effects} == dict.fromkeys(
        ("precision", "compile", "channels_last", "cudnn_benchmark"), (7, 1)
    )


def test_only_settings_that_help_together_are_reported_as_interactions() -> None:
    interactions = cube().interactions
    assert interactions.with_pairs and interactions.why_not == ""
    assert interactions.explained[0].settings == ("precision",) and interactions.explained[0].share > 0.6
    (together,) = interactions.together
    assert {together.setting, together.other} == {"channels_last", "precision"}
    layout = next(pair for pair in (together,) if pair.setting == "channels_last")
    assert layout.sentence.startswith("What channels_last does depends on precision: 1.40× with precision amp; 0.98× with")
    shares = sum(part.share for part in interactions.explained) + interactions.unexplained
    assert shares == pytest.approx(1.0), "in a balanced cube"


def test_without_interactions_none_is_reported() -> None:
    interactions = cube(layout_matters=False).interactions
    assert interactions.together == () and interactions.explained[0].settings == ("precision",)


def test_a_half_fraction_still_shows_main_effects() -> None:
    """Every second cell: each pair of settings is mixed up with another one."""
    rows = [
        row for row in rows_of_cube()
        if sum((row.precision == "amp", row.value("channels_last"), row.compile, not row.value("cudnn_benchmark"))) % 2 == 0
    ]  # fmt: skip
    (half,) = cubes_of(rows)
    assert not half.interactions.with_pairs and half.interactions.explained[0].settings == ("precision",)
    assert len(half.points.points) == 8
    assert "not tested" in " ".join(sentences(half)) and "not tested" not in " ".join(sentences(cube()))


def test_the_best_is_reached_step_by_step_and_each_step_says_what_it_adds() -> None:
    best = cube().best
    assert best is not None and best.candidates == 16 and best.as_good == 2
    assert best.figure.value == pytest.approx(336.0) and best.gain.value == pytest.approx(3.36)
    assert [(step.setting, step.value) for step in best.steps] == [
        ("precision", "amp"), ("channels_last", True), ("compile", True),
    ]  # fmt: skip
    assert [step.gain.value for step in best.steps] == pytest.approx([2.0, 1.4, 1.2])
    assert best.steps[-1].so_far.value == pytest.approx(3.36) and best.steps[-1].point.speed == best.point.speed


def test_a_setting_that_cannot_matter_must_not() -> None:
    still = cube(model="bert-base-cased", layout_matters=False)
    assert effect(still, "channels_last").control == "still" and effect(still, "cudnn_benchmark").control == "still"
    assert effect(still, "compile").control == "" and effect(cube(), "channels_last").control == ""
    assert effect(cube(model="bert-base-cased", benchmark=False), "channels_last").control == "moved", "each pair is judged"


def test_less_latency_is_better_and_the_front_has_what_nothing_beats() -> None:
    def infer(rate: float, compiled: bool, batch: int, latency: float) -> LaunchRow:
        job = {"compile": compiled, "batch": batch, "channels_last": rate > 300}
        lines = launch_lines(
            rate=rate, workload=f"w-{batch}-{compiled}-{rate > 300}", job=job,
            served={"latency": [latency] * 100, "end-to-end": [2 * latency] * 100},
        )  # fmt: skip
        parsed = launch_of(Path("a/round1-try1.jsonl"), lines)
        assert isinstance(parsed, Launch) and parsed.outcome == "ok", parsed
        return row_of(parsed)

    rows = [
        infer(rate, compiled, batch, latency)
        for batch, cells in {1: ((100, 0.01), (200, 0.005), (350, 0.004)), 8: ((150, 0.06), (290, 0.03), (400, 0.02))}.items()
        for compiled, (rate, latency) in zip((False, True, False), cells, strict=True)
    ]
    (by_throughput,) = cubes_of(rows)
    latency = COSTS[0]
    assert [point.speed for point in front_of(by_throughput.points, latency)] == [pytest.approx(350), pytest.approx(400)]
    (by_latency,) = cubes_of(rows, named("latency_p50"))
    assert by_latency.best is not None and by_latency.best.point.settings["batch"] == 1
    assert effect(by_latency, "compile").found.value == pytest.approx(2.0), "half the latency is twice as good"


def test_few_cells_or_one_setting_make_no_cube() -> None:
    assert cubes_of(row for row in rows_of_cube() if row.precision == "fp32" and not row.compile) == []
    assert cubes_of([]) == []
