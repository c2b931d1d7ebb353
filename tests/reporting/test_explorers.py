"""Explorers: the first view follows a rule, its sentence is true of exactly known cells, every cell can be reached."""

import json
import math
import re
from itertools import product
from typing import Any

import pytest
from drawn import PRICES, WILD, Tables, cell, readings, tables

from torchmatrix.ground import assets
from torchmatrix.ground.numbers import figure
from torchmatrix.reporting import explorers
from torchmatrix.reporting.charts import to_svg
from torchmatrix.reporting.explorers import Explorer, bars, lines
from torchmatrix.reporting.explorers.choosing import ALL, OWN, Row, choose
from torchmatrix.reporting.explorers.data import Data, data_of
from torchmatrix.reporting.explorers.saying import fitting

SCRIPTS = assets.TEMPLATES / "scripts"


def data(found: Tables, held: Any = explorers.NONE) -> Data:
    return data_of(found.table, found.cells, found.scales, found.ratios, held)


def explorer(found: Tables, name: str) -> Explorer:
    return found.explorers().by_name[name]


def drawn(found: Tables, name: str) -> list[Row]:
    """The rows of the default view, panel by panel."""
    return [row for panel in explorer(found, name).panels for row in panel.rows["rows"]]


def picked_first(found: Tables) -> dict[str, str]:
    """What the throughput explorer starts with."""
    told = data(found)
    return choose(told.dims, bars.QUESTION, told.rows, {}).picked


# ---------------------------------------------------------------- which cells


def test_the_first_view_has_the_most_devices_and_amp_where_they_were_measured() -> None:
    cells = [
        cell(stack, 100.0 * n, precision, devices=tuple(range(n)))
        for stack, precision, n in product("ab", ("fp32", "amp", "tf32"), (1, 2, 4))
    ]
    picked = picked_first(tables(*cells))
    assert (picked["devices"], picked["precision"], picked["stack"]) == ("4", "amp", ALL)
    none = [one if one["job"]["precision"] != "amp" else one | {"outcome": "oom"} for one in cells]
    assert picked_first(tables(*none))["precision"] == "fp32"


def test_what_a_view_starts_with_does_not_depend_on_how_fast_anything_is() -> None:
    def shown(factor: float) -> dict[str, str]:
        models = [cell(stack, 100.0, model=f"m{i}") | {"workload": f"m{i}"} for i in range(9) for stack in "ab"[: 1 + i % 2]]
        models[3]["rate"] *= factor
        return picked_first(tables(*models))

    assert shown(0.01) == shown(1.0) == shown(100.0) and shown(1.0)["model"] == "m1"  # the first that both stacks ran


def test_every_cell_can_be_reached_and_no_choice_is_empty() -> None:
    cells = [
        cell(stack, 10.0, precision, compiled, model=model, devices=devices)
        | {"workload": f"{model}-{precision}-{compiled}-{batch}"}
        | {"job": {"precision": precision, "compile": compiled, "batch": batch}}
        for stack, model, precision, compiled, batch, devices in product(
            "ab", ("x", "y", "z"), ("fp32", "amp"), (False, True), (4, 8), ((0,), (1,), (0, 1))
        )
        if (model, precision) != ("y", "amp") and (model, batch) != ("z", 8) and (stack, compiled) != ("b", True)
    ]  # fmt: skip
    found = data(tables(*cells, factors=(1.0,)))
    seen: set[str] = set()

    def walk(asked: dict[str, str], depth: int) -> None:
        choice = choose(found.dims, bars.QUESTION, found.rows, asked)
        assert choice.rows
        seen.update(row["cell"] for row in choice.rows)
        open_ = [(name, values) for name, values in choice.offered.items() if len(values) > 1 and name not in asked]
        for name, values in open_[:1] if depth else []:
            for value in values:
                walk(asked | {name: value}, depth - 1)

    walk({}, 9)
    assert len(seen) == len(cells) == len(found.rows)
    for row in found.rows:
        own = {dim.name: dim.values[row[dim.name]] for dim in found.dims}
        assert [one["cell"] for one in choose(found.dims, bars.QUESTION, found.rows, own).rows] == [row["cell"]]


def test_cells_that_differ_in_nothing_that_has_a_selector_have_one_of_their_own() -> None:
    twins = [cell(rate=rate) | {"workload": name} for name, rate in (("w-50-steps", 100.0), ("w-90-steps", 101.0))]
    found = data(tables(*twins))
    (variant,) = [dim for dim in found.dims if dim.name == "variant"]
    assert variant.values == ("w-50-steps", "w-90-steps")
    assert [dim.values for dim in data(tables(cell(), cell(precision="amp"))).dims if dim.name == "variant"] == [("",)]


def test_each_model_has_its_own_batch_unless_one_is_asked_for() -> None:
    cells = [
        cell("a", 10.0, model=model) | {"workload": f"{model}-{batch}", "job": {"batch": batch}}
        for model, batches in (("x", (4, 8)), ("y", (16,))) for batch in batches
    ]  # fmt: skip
    found = data(tables(*cells))
    whole = choose(found.dims, bars.QUESTION, found.rows, {})
    assert whole.picked["batch"] == OWN and [row["bs"] for row in whole.rows] == [4, 16]
    assert [row["bs"] for row in choose(found.dims, bars.QUESTION, found.rows, {"batch": "8"}).rows] == [8]
    nonsense = choose(found.dims, bars.QUESTION, found.rows, {"batch": "5", "model": "<script>", "no-such": "x"})
    assert nonsense.picked == whole.picked


# ---------------------------------------------------------------- throughput


def test_the_fastest_is_named_with_its_interval_and_how_far_the_next_is_behind() -> None:
    (found,) = tables(cell("a", 100.0), cell("b", 131.0), cell("c", 120.0)).titles("throughput")
    assert found == (
        "b trains resnet50 with fp32 on H200 SXM fastest: 131.0 images/s (95 % interval 130.4 to 131.6, for a pick of 3), "
        "1.09 × as fast as c (95 % interval 1.088 to 1.095)"
    )


def test_what_the_launches_do_not_tell_apart_is_not_ranked() -> None:
    (found,) = tables(cell("a", 100.0), cell("b", 104.0), factors=WILD).titles("throughput")
    assert found.startswith("b and a train resnet50 with fp32 on H200 SXM and can't be told apart: 104.0 images/s and")
    (found,) = tables(cell("a", 100.0), cell("b", 100.02)).titles("throughput")
    assert found.startswith("b and a train resnet50 with fp32 on H200 SXM equally fast: 100.0 images/s and")


def test_one_launch_gives_no_interval() -> None:
    (both,) = tables(cell("a", 100.0), cell("b", 131.0), factors=(1.0,)).titles("throughput")
    assert both.endswith("at 131.0 images/s, 1.31 × a; too few launches to tell them apart")
    (alone,) = tables(cell("a", 100.0), factors=(1.0,)).titles("throughput")
    assert alone == "a trains resnet50 with fp32 on H200 SXM at 100.0 images/s (one launch: no interval)"


def test_a_cell_without_a_number_is_a_row_with_its_reason() -> None:
    found = tables(cell("a", 100.0), cell("b", outcome="oom"))
    assert [row["words"] for row in drawn(found, "throughput")] == ["100.0 images/s · bs 4", "no number: oom"]
    (chart,) = explorer(found, "throughput").charts()
    assert "no number: oom" in to_svg(chart)


def test_failures_only_give_no_explorer() -> None:
    failed = [cell("a", outcome="oom"), cell("b", outcome="oom"), cell("c", outcome="crashed")]
    assert tables(*failed).explorers().by_name == {} and tables(*failed).all() == []


def test_watts_and_euros_can_be_chosen_only_where_they_are_known() -> None:
    def shown(found: Tables, held: Any = explorers.NONE) -> dict[str, list[str]]:
        told = data(found, held)
        choice = choose(told.dims, bars.QUESTION, told.rows, {})
        return {m.title: [panel.rows["rows"][0]["words"] for panel in bars.panels(told, choice, m)] for m in told.metrics}

    assert list(shown(tables(cell()))) == ["throughput", "peak memory"]
    found = shown(tables(cell(readings=readings())), PRICES)
    assert list(found) == ["throughput", "per watt", "per 1000 EUR", "per EUR", "peak memory"]
    assert found["per watt"] == ["0.2000 images/s per watt · bs 4"] and found["per 1000 EUR"] == [
        "5.000 images/s per 1000 EUR · bs 4"
    ]
    assert found["per EUR"] == ["144000 images per EUR · bs 4"]
    joules = [(t, {**r, "energy_joules": 500.0 * t}) for t, r in readings()]
    assert shown(tables(cell(readings=joules)))["per joule"] == [
        "0.2000 images per joule · bs 4"
    ]  # 2000 items in 20 s of 500 W


def test_labels_keep_what_tells_them_apart() -> None:
    names = [f"a-very-long-name-of-a-stack-{i}-built-on-a-tuesday" for i in (1, 2)]
    assert fitting(names, [30, 60]) == ["a-very-lo…1-built-on-a-tuesday", names[1]]
    assert fitting(names, [14, 14]) == ["a-…1…a-tuesday", "a-…2…a-tuesday"]
    assert fitting(["x" * 40], [20]) == [None]
    rows = drawn(tables(cell("s" * 30 + "a" * 30), cell("s" * 30 + "b" * 30)), "throughput")
    assert [row["label"][-1] for row in rows if row["label"]] == ["a", "a", "b", "b"] and len(rows) == 4


# ---------------------------------------------------------------- scaling


def test_scaling_says_what_n_devices_give() -> None:
    (one,) = tables(cell(rate=100.0), cell(rate=360.0, devices=(0, 1, 2, 3))).titles("scaling")
    assert one.startswith("4 GPUs train resnet50 3.60 [3.59 to 3.61] × as fast as one with fp32, a (E = 0.900, s = 0.867)")
    four = [cell("a", 100.0), cell("a", 180.0, devices=(0, 1)), cell("b", 100.0), cell("b", 190.0, devices=(0, 1))]
    (two,) = tables(*four).titles("scaling")
    assert two == (
        "2 GPUs train resnet50 1.80 [1.796 to 1.804] × (a) to 1.90 [1.896 to 1.904] × (b) as fast as one with fp32 "
        "(E = 0.900 to 0.950, s = 0.800 to 0.900)"
    )
    (alike,) = tables(*four, factors=WILD).titles("scaling")
    assert "1.80 to 1.90 × as fast as one with fp32, 2 stacks alike within their intervals" in alike


def test_of_two_lines_only_one_may_have_an_interval() -> None:
    """As when all launches but one of a cell failed."""
    often = [cell("a", rate * n**0.9, devices=tuple(range(n))) for rate in (99.9, 100.0, 100.1) for n in (1, 2)]
    (found,) = tables(*often, cell("b", 100.0), cell("b", 195.0, devices=(0, 1)), factors=(1.0,)).titles("scaling")
    assert "(a) to 1.95 × (b) as fast as one with fp32" in found


def test_an_impossible_efficiency_is_not_celebrated() -> None:
    (found,) = tables(cell(rate=100.0), cell(rate=230.0, devices=(0, 1))).titles("scaling")
    assert found == "E = 1.15 of resnet50 with fp32 on 2 GPUs with a is impossible: above 1.02; look for a wrong baseline"


def test_one_chart_holds_efficiency_scale_factor_speed_up_and_throughput() -> None:
    found = tables(cell(rate=100.0), cell(rate=180.0, devices=(0, 1))).explorers()
    panels = {name: found.panels("scaling", {"metric": name})[0] for name, _ in lines.METRICS}
    values = {name: [row["value"] for row in panel.rows["rows"]] for name, panel in panels.items()}
    expected = {"E": [0.9], "s": [0.8], "S": [1.8], "throughput": [100.0, 180.0]}
    assert {name: pytest.approx(own) for name, own in expected.items()} == values


# ---------------------------------------------------------------- speed-ups


def test_speed_ups_are_geometric_means_of_cells_with_one_precision_and_one_number_of_devices() -> None:
    cells = [
        cell(stack, rate * n * gain * speed, word, model=model, devices=tuple(range(n))) | {"workload": f"{model}-{word}"}
        for stack, speed in (("a", 1.0), ("b", 1.5)) for n in (1, 2) for word, gain in (("fp32", 1.0), ("amp", 2.0 * speed))
        for model, rate in (("x", 10.0), ("y", 20.0), ("z", 40.0))
    ]  # fmt: skip
    cells += [cell("a", 100.0, "amp", model="w", devices=(0, 1)) | {"workload": "w"}]
    cells += [cell("b", precision="amp", model="w", devices=(0, 1), outcome="oom") | {"workload": "w"}]
    (found,) = tables(*cells).titles("speedup")
    basis = "(geometric mean of 3 cells; 1 more without a ratio)"
    assert found == f"b over a: 2.25 ×, a mean over cells is not tested, on 2 × H200 SXM with amp {basis}"
    rows = drawn(tables(*cells), "speedup")
    assert [row["label"] for row in rows] == ["geometric mean", "x", "y", "z", "without a ratio: 1"] and rows[-1][
        "words"
    ] == "1 × oom"


def test_another_baseline_can_be_chosen() -> None:
    (found,) = tables(cell("a", 100.0), cell("b", 200.0), baseline="b").titles("speedup")
    assert found.startswith("a is 0.500 × as fast as b on H200 SXM with fp32 (one cell, 95 % interval 0.499 to 0.501)")


def test_settings_are_compared_with_what_they_replace() -> None:
    found = tables(cell(), cell(precision="amp", rate=190.0), cell(precision="amp", compile=True, outcome="unsupported"))
    assert explorer(found, "speedup").metrics == (("amp", "AMP (float16) over fp32"),)
    (title,) = found.titles("speedup")
    assert title.startswith("AMP (float16) is 1.90 × as fast as fp32 on H200 SXM")


# ---------------------------------------------------------------- the data in the page


def test_the_page_carries_each_cell_once_and_nothing_that_ends_a_script() -> None:
    evil = "</script><script>alert(1)</script>"
    held = tables(cell(evil), cell("b")).explorers()
    assert "</script" not in held.as_json() and "<" not in held.by_name["throughput"].as_json()
    told = json.loads(held.as_json())
    (stacks,) = (dim["labels"] for dim in told["dims"] if dim["name"] == "stack")
    assert stacks == [evil, "b"] and told["rows"]["stack"] == {"places": 2}
    assert all(
        not isinstance(value, float) or math.isfinite(value)
        for column in told["rows"].values()
        if isinstance(column, list)
        for value in column
    )


def test_one_function_of_the_scripts_rounds() -> None:
    scripts = {path.name: re.sub(r"(?m)^ *//.*$", "", path.read_text()) for path in SCRIPTS.glob("*.js")}
    names = {name: re.findall(r"(.)to(?:Fixed|Precision|Exponential)\b", text) for name, text in scripts.items()}
    assert {name: set(found) for name, found in names.items() if found} == {"say.js": {'"'}}, "called by name, in one place"
    assert scripts["say.js"].count("[how](") == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(9999.5, "10000"), (9999.4, "9999"), (12344.5, "12344"), (1.0625, "1.062"), (1e-5, "1.000e-05"), (float("nan"), "n/a")],
)
def test_a_figure_has_four_digits_and_no_exponent_above_ten_thousand(value: float, text: str) -> None:
    assert figure(value) == text
