"""Losses, single devices, phases, steps and traces: figures of exactly known launches are right, every cell is reached."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from support.browsing import CHROMIUM
from support.drawn import Tables, cell, readings, tables
from support.scripted import Choices

pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine"),
    pytest.mark.xdist_group("explorers by script"),
]
Make = Callable[[Tables], Choices]


@pytest.fixture
def of(browser: Any) -> Iterator[Make]:
    """Yield a function that returns the choices which the page's script offers for some tables."""
    made: list[Choices] = []

    def make(given: Tables) -> Choices:
        made.append(Choices(browser, given.explorers()))
        return made[-1]

    yield make
    for choices in made:
        choices.page.close()


def explained(rate: float = 160.0) -> Tables:
    """Return one cell of two equal devices with the launches that explain its loss."""
    both, name = {"devices": (0, 1)}, "resnet50-train-fp32-b4"
    cells = [cell(rate=100.0), cell(rate=100.0, devices=(1,)), cell(rate=rate, **both)]
    cells += [cell(rate=196.0, parallel="independent", **both) | {"workload": f"{name}-independent"}]
    return tables(*cells, cell(rate=190.0, parallel="no-sync", **both) | {"workload": f"{name}-no-sync"})


def test_the_waterfall_falls_to_the_efficiency(of: Make) -> None:
    script = of(explained())
    (fall,) = script.panels("loss")
    assert fall["title"] == "ResNet-50, fp32, 2 GPUs"
    *falls, end = fall["rows"]
    assert [text.split()[0] for _, text in script.lines("loss")] == ["1.000×", "0.980×", "0.969×", "0.842×", "0.800×"]
    begins, ends = ([row["spans"][0][side] for row in falls] for side in (0, 1))
    assert begins == [1, *ends[:-1]] and ends[-1] == pytest.approx(end["value"]) == pytest.approx(0.8)


def test_a_loss_that_no_launch_explains_is_not_guessed(of: Make) -> None:
    both = {"devices": (0, 1)}
    failed = cell(parallel="independent", outcome="oom", **both) | {"workload": "resnet50-train-fp32-b4-independent"}
    script = of(tables(cell(rate=100.0), cell(rate=160.0, **both), failed))
    assert [text.split(" ±")[0] for _, text in script.lines("loss")][1:] == ["not known"] * 3 + ["0.800×"]
    assert not any(row["spans"] for row in script.panels("loss")[0]["rows"][1:])


def test_a_weak_device_is_marked_and_without_intervals_none_is_called_weak(of: Make) -> None:
    alone = [cell(rate=rate, devices=(i,)) for i, rate in enumerate((100.0, 90.0, 101.0, 99.0))]
    script = of(tables(*alone))
    lines = dict(script.lines("alone"))
    assert list(lines) == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert [name for name, text in lines.items() if text.endswith(" weak")] == ["GPU 1"] and lines["GPU 1"].startswith("0.900×")
    assert [row["value"] for row in script.panels("alone")[0]["rows"]] == pytest.approx([1.005, 0.905, 1.015, 0.995], rel=0.01)
    assert not [text for _, text in of(tables(*alone, factors=(1.0,))).lines("alone") if "weak" in text]


def test_the_phases_say_how_much_is_timed(of: Make) -> None:
    script = of(tables(cell(rate=10.0)))  # 4 s warm-up, 4 s measured, 4 × 2 s before, of 40 s
    assert script.lines("phases") == [("a", "40.0 s 10 % timed")]
    (panel,) = script.panels("phases")
    (row,) = panel["rows"]
    assert [begin for begin, *_ in row["spans"]] == [0, *(end for _, end, *_ in row["spans"][:-1])]
    assert row["spans"][-1][1] == panel["scale"]["high"] == pytest.approx(40.0)
    assert [text for *_, text in row["spans"]][4:6] == ["warm-up: 4.00\u00a0s", "measure: 4.00\u00a0s"]


def test_the_steps_have_their_median_and_quantiles(of: Make) -> None:
    script = of(tables(cell("a", 10.0), cell("b", 20.0)))
    assert [text.split()[0] for _, text in script.lines("steps")] == ["400", "200"]
    rows = script.panels("steps")[0]["rows"]
    assert [row["value"] for row in rows] == pytest.approx([400.0, 200.0], rel=0.01)
    assert all(begin <= row["value"] <= end <= row["ring"] for row in rows for begin, end, _ in row["spans"])


def test_a_trace_says_whether_the_device_was_slowed_down(of: Make) -> None:
    (calm,) = of(tables(cell(rate=None, readings=readings()))).panels("trace")
    assert calm["title"] == "ResNet-50, fp32, 1 GPU" and calm["rows"][0]["note"] == ""
    (slow,) = of(tables(cell(rate=None, readings=readings(reasons=["hw_thermal_slowdown"])))).panels("trace")
    assert slow["rows"][0]["slow"] and slow["rows"][0]["note"] == "throttled in the timed windows: hw_thermal_slowdown"


def test_every_cell_of_every_part_can_be_reached(of: Make) -> None:
    some = [
        cell(stack, 100.0, precision, model=model, devices=devices, readings=readings(2)) | {"workload": f"{model}-{precision}"}
        for stack, model, precision, devices in product("abcdefgh", ("x", "y"), ("fp32", "amp"), ((0,), (1,), (0, 1)))
    ]
    script = of(tables(*some, factors=(1.0,)))
    data = script.explorers.data
    assert set(script.explorers.views) == {"throughput", "scaling", "speedup", "alone", "phases", "steps", "trace"}
    for name in ("phases", "steps", "trace"):
        places = [part["at"] for part in data.parts[name]]
        assert len(set(places)) == len(some)
        for place in places:
            values = {dim.name: dim.values[data.rows[place].value(dim.name)] for dim in data.dims}
            (panel,) = script.panels(name, values)
            assert values["model"] in panel["title"]
    assert len(script.panels("trace", {"stack": "all", "model": "x", "precision": "amp", "devices": "2"})) == 8
