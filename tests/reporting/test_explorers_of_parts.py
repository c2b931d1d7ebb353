"""Losses, single devices, phases, steps and traces: each sentence is true of exactly known launches, every cell is reached."""

import math
from itertools import product
from typing import Any

import pytest
from drawn import Tables, cell, readings, tables

from torchmatrix.reporting.charts import to_svg
from torchmatrix.reporting.explorers import ALL


def panels(found: Tables, name: str, **asked: str) -> list[Any]:
    return found.explorers().panels(name, asked)


def explained(rate: float = 160.0) -> Tables:
    """One cell of two equal devices with the launches that explain its loss."""
    both, name = {"devices": (0, 1)}, "resnet50-train-fp32-b4"
    cells = [cell(rate=100.0), cell(rate=100.0, devices=(1,)), cell(rate=rate, **both)]
    cells += [cell(rate=196.0, parallel="independent", **both) | {"workload": f"{name}-independent"}]
    return tables(*cells, cell(rate=190.0, parallel="no-sync", **both) | {"workload": f"{name}-no-sync"})


def test_the_waterfall_names_the_largest_loss() -> None:
    (fall,) = panels(explained(), "loss")
    assert fall.title.startswith(
        "a trains resnet50 with fp32 on 2 × H200 SXM at E = 0.800; most is lost to waiting for all-reduce: E_comm = 0.842 ("
    )
    *falls, end = fall.rows["rows"]
    assert [row["words"] for row in (*falls, end)] == ["× 1.00", "× 0.980", "× 0.969", "× 0.842", "= 0.800"]
    assert falls[-1]["to"] == pytest.approx(end["end"]) == pytest.approx(0.8)


def test_a_loss_that_no_launch_explains_is_not_guessed() -> None:
    both = {"devices": (0, 1)}
    failed = cell(parallel="independent", outcome="oom", **both) | {"workload": "resnet50-train-fp32-b4-independent"}
    (fall,) = panels(tables(cell(rate=100.0), cell(rate=160.0, **both), failed), "loss")
    assert fall.title.startswith("a trains resnet50 with fp32 on 2 × H200 SXM at E = 0.800; ")
    assert [row["words"] for row in fall.rows["rows"]][1:] == ["× n/a", "× n/a", "× n/a", "= 0.800"]
    assert all("to" not in row for row in fall.rows["rows"][1:])


def test_a_weak_device_is_named_and_without_intervals_none_is_called_weak() -> None:
    alone = [cell(rate=rate, devices=(i,)) for i, rate in enumerate((100.0, 90.0, 101.0, 99.0))]
    (found,) = panels(tables(*alone), "alone")
    assert found.title.startswith("GPU 1 is weak: 0.900 × the median H200 SXM (a trains resnet50 with fp32), 95 % interval")
    assert [row["label"] for row in found.rows["rows"]] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert [row["value"] for row in found.rows["rows"]] == pytest.approx([1.005, 0.905, 1.015, 0.995], rel=0.01)
    (few,) = panels(tables(*alone, factors=(1.0,)), "alone")
    assert few.title.startswith("Too few launches to tell whether a device is weak: they run at 0.900 to 1.01 ×")


def test_the_phases_say_how_much_is_timed() -> None:
    (found,) = panels(tables(cell(rate=10.0)), "phases")  # 4 s warm-up, 4 s measured, 4 × 2 s before, of 40 s
    assert found.title.startswith(
        "A launch of resnet50 (train) with fp32 takes 40 s, of which 10 % is timed; most of the rest goes to the engine"
    )
    (line,) = found.rows["rows"]
    assert line["words"] == "40 s, 10 % timed" and found.params["most"] == pytest.approx(40.0)


def test_the_steps_say_how_far_slow_steps_are_from_the_median() -> None:
    (found,) = panels(tables(cell("a", 10.0), cell("b", 20.0)), "steps")
    assert found.title.startswith("All steps of resnet50 with fp32 on H200 SXM take at most 1.00 × their median")
    assert [row["p50"] for row in found.rows["rows"]] == pytest.approx([400.0, 200.0], rel=0.01)


def test_a_trace_says_whether_the_device_was_slowed_down() -> None:
    (calm,) = panels(tables(cell(rate=None, readings=readings())), "trace")
    assert calm.title == (
        "a trains resnet50 with fp32 on H200 SXM; during the timed windows steady, 60 °C, clock 1980 MHz, 500 W"
    )
    (slow,) = panels(tables(cell(rate=None, readings=readings(reasons=["hw_thermal_slowdown"]))), "trace")
    assert slow.title.endswith("on H200 SXM and was throttled during the timed windows: hw_thermal_slowdown")


def test_every_cell_of_every_part_can_be_reached() -> None:
    some = [
        cell(stack, 100.0, precision, model=model, devices=devices, readings=readings(2)) | {"workload": f"{model}-{precision}"}
        for stack, model, precision, devices in product("abcdefgh", ("x", "y"), ("fp32", "amp"), ((0,), (1,), (0, 1)))
    ]
    found = tables(*some, factors=(1.0,)).explorers()
    assert set(found.by_name) == {"throughput", "scaling", "speedup", "alone", "phases", "steps", "trace"}
    for name in ("phases", "steps", "trace"):
        places = [part["at"] for part in found.data.parts[name]]
        assert len(set(places)) == len(some)
        for place in places:
            row = found.data.rows[place]
            own = {dim.name: dim.values[row[dim.name]] for dim in found.data.dims}
            (panel,) = found.panels(name, own)
            assert own["model"] in panel.title
    assert len(found.panels("trace", {"stack": ALL, "model": "x", "precision": "amp", "devices": "2"})) == 8


def test_a_long_name_has_a_row_to_itself_and_keeps_its_marks() -> None:
    (found,) = panels(tables(cell("a" * 60, 10.0), cell("b" * 60, 10.0)), "phases")
    assert [bool(row["words"]) for row in found.rows["rows"]] == [False, True, False, True]
    assert [bool(row["whole"]) for row in found.rows["rows"]] == [True, False, True, False]
    assert {part["row"] for part in found.rows["parts"]} == {1, 3}
    assert all(math.isfinite(part["stop"]) for part in found.rows["parts"])


def test_no_chart_draws_a_text_that_is_not_there() -> None:
    for chart in explained().all():
        assert "undefined" not in to_svg(chart) and "null" not in to_svg(chart)
