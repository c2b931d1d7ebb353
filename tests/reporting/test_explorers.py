"""Explorers: the first view follows a rule, every cell can be reached, the figures of exactly known cells are right."""

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from support.browsing import CHROMIUM
from support.drawn import PRICES, Tables, cell, everything, readings, tables
from support.scripted import Choices, written
from torchmatrix.core import assets
from torchmatrix.core.formatting import figure
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers import TITLES

pytestmark = pytest.mark.xdist_group("explorers by script")
SCRIPTS = assets.TEMPLATES / "scripts"
ALL, OWN = "all", "own"
Make = Callable[..., Choices]


@pytest.fixture
def of(browser: Any) -> Iterator[Make]:
    """Yield a function that returns the choices which the page's script offers for some tables."""
    if not CHROMIUM:
        pytest.skip("no chromium on this machine")
    made: list[Choices] = []

    def make(given: Tables, *more: Any) -> Choices:
        made.append(Choices(browser, given.explorers(*more)))
        return made[-1]

    yield make
    for choices in made:
        choices.page.close()


# ---------------------------------------------------------------- which cells


def test_the_first_view_has_the_most_devices_and_amp_where_they_were_measured(of: Make) -> None:
    cells = [
        cell(stack, 100.0 * n, precision, devices=tuple(range(n)))
        for stack, precision, n in product("ab", ("fp32", "amp", "tf32"), (1, 2, 4))
    ]
    picked = of(tables(*cells)).choice("throughput")["picked"]
    assert (picked["devices"], picked["precision"], picked["stack"]) == ("4", "amp", ALL)
    none = [launch if launch["job"]["precision"] != "amp" else launch | {"outcome": "oom"} for launch in cells]
    assert of(tables(*none)).choice("throughput")["picked"]["precision"] == "fp32"


def test_the_first_view_does_not_depend_on_how_fast_anything_is(of: Make) -> None:
    def shown(factor: float) -> dict[str, str]:
        models = [cell(stack, 100.0, model=f"m{i}") | {"workload": f"m{i}"} for i in range(9) for stack in "ab"[: 1 + i % 2]]
        models[3]["rate"] *= factor
        picked: dict[str, str] = of(tables(*models)).choice("throughput")["picked"]
        return picked

    assert shown(0.01) == shown(1.0) == shown(100.0) and shown(1.0)["model"] == "m1"  # the first that both stacks ran


def test_every_cell_can_be_reached_and_no_choice_is_empty(of: Make) -> None:
    cells = [
        cell(stack, 10.0, precision, compiled, model=model, devices=devices)
        | {"workload": f"{model}-{precision}-{compiled}-{batch}"}
        | {"job": {"precision": precision, "compile": compiled, "batch": batch}}
        for stack, model, precision, compiled, batch, devices in product(
            "ab", ("x", "y", "z"), ("fp32", "amp"), (False, True), (4, 8), ((0,), (1,), (0, 1))
        )
        if (model, precision) != ("y", "amp") and (model, batch) != ("z", 8) and (stack, compiled) != ("b", True)
    ]  # fmt: skip
    script = of(tables(*cells, factors=(1.0,)))
    dims, rows = script.explorers.data.dims, script.explorers.data.rows
    names = [dim.name for dim in dims]
    reached: set[tuple[int, ...]] = set()

    def walk(selection: dict[str, str], depth: int) -> None:
        choice = script.choice("throughput", selection)
        assert choice["rows"]
        reached.update(tuple(row[name] for name in names) for row in choice["rows"])
        open_ = [(name, values) for name, values in choice["offered"].items() if len(values) > 1 and name not in selection]
        for name, values in open_[:1] if depth else []:
            for value in values:
                walk(selection | {name: value}, depth - 1)

    walk({}, 9)
    assert len(reached) == len(cells) == len(rows)
    for row in rows:
        place = {dim.name: dim.values[row.value(dim.name)] for dim in dims}
        (only,) = script.choice("throughput", place)["rows"]
        assert all(only[name] == row.value(name) for name in names)


def test_cells_that_differ_in_no_selector_get_a_separate_selector() -> None:
    twins = [cell(rate=rate) | {"workload": name} for name, rate in (("w-50-steps", 100.0), ("w-90-steps", 101.0))]
    (variant,) = [dim for dim in tables(*twins).explorers().data.dims if dim.name == "variant"]
    assert variant.values == ("w-50-steps", "w-90-steps")
    others = tables(cell(), cell(precision="amp")).explorers().data.dims
    assert [dim.values for dim in others if dim.name == "variant"] == [("",)]


def test_each_model_has_its_own_batch_unless_one_is_asked_for(of: Make) -> None:
    cells = [
        cell("a", 10.0, model=model) | {"workload": f"{model}-{batch}", "job": {"batch": batch}}
        for model, batches in (("x", (4, 8)), ("y", (16,))) for batch in batches
    ]  # fmt: skip
    script = of(tables(*cells))
    whole = script.choice("throughput")
    assert whole["picked"]["batch"] == OWN and [row["bs"] for row in whole["rows"]] == [4, 16]
    assert [row["bs"] for row in script.choice("throughput", {"batch": "8"})["rows"]] == [8]
    nonsense = script.choice("throughput", {"batch": "5", "model": "<script>", "no-such": "x"})
    assert nonsense["picked"] == whole["picked"]


# ---------------------------------------------------------------- throughput


def test_a_bar_has_its_figure_and_interval_and_its_panel_a_neutral_title(of: Make) -> None:
    script = of(tables(cell("torch2.5.1-cu124", 100.0), cell("torch2.7.1-cu128", 131.0), cell("c", 120.0)))
    (panel,) = script.panels("throughput")
    assert panel["title"] == "ResNet-50, fp32, 1 GPU, batch 4"
    assert script.lines("throughput") == [
        ("torch 2.5.1", "100 ± 0.2 %"), ("torch 2.7.1", "131 ± 0.2 %"), ("c", "120 ± 0.2 %"),
    ]  # fmt: skip
    assert panel["unit"] == "images/s" and [row["value"] for row in panel["rows"]] == pytest.approx([100, 131, 120], rel=1e-3)


def test_bars_that_differ_in_stack_and_setting_name_both(of: Make) -> None:
    assert [label for label, _ in of(tables(cell("a"), cell("b", compile=True))).lines("throughput")] == [
        "a, eager", "b, torch.compile",
    ]  # fmt: skip


def test_a_cell_without_a_number_is_a_row_with_its_reason_and_one_launch_has_no_interval(of: Make) -> None:
    given = tables(cell("a", 100.0), cell("b", outcome="oom"), factors=(1.0,))
    assert of(given).lines("throughput") == [("a", "100"), ("b", "failed: out of memory")]


def test_failures_only_give_no_explorer() -> None:
    failed = [cell("a", outcome="oom"), cell("b", outcome="oom"), cell("c", outcome="crashed")]
    assert tables(*failed).explorers().views == {} == tables().explorers().views


def test_watts_and_euros_can_be_chosen_only_where_they_are_known(of: Make) -> None:
    def shown(given: Tables, *held: Any) -> dict[str, str]:
        script = of(given, *held)
        panels = {view.title: script.panels("throughput", metric=view.name)[0] for view in script.explorers.views["throughput"]}
        return {title: f"{written(panel['rows'][0])}, {panel['unit']}" for title, panel in panels.items()}

    assert list(shown(tables(cell()))) == ["throughput", "peak memory", "time to first step"]
    figures = shown(tables(cell(readings=readings())), PRICES)
    assert list(figures) == ["throughput", "cost", "peak memory", "time to first step", "per watt", "per 1000 EUR"]
    assert figures["per watt"] == "0.200, images/s per watt"
    assert figures["per 1000 EUR"].startswith("5.00 ±") and figures["per 1000 EUR"].endswith(" %, images/s per 1000 EUR")
    assert figures["cost"].startswith("6.94 ±") and figures["cost"].endswith(" %, EUR per million images")
    joules = [(t, {**r, "energy_joules": 500.0 * t}) for t, r in readings()]
    assert shown(tables(cell(readings=joules)))["per joule"] == "0.200 ± 0.3 %, images per joule"  # 2000 items in 20 s of 500 W


# ---------------------------------------------------------------- scaling


def test_one_chart_holds_efficiency_scale_factor_speed_up_and_throughput(of: Make) -> None:
    script = of(tables(cell(rate=100.0), cell(rate=180.0, devices=(0, 1))))
    rows = {view.name: script.panels("scaling", metric=view.name)[0]["rows"] for view in script.explorers.views["scaling"]}
    expected = {"E": [0.9], "s": [0.8], "S": [1.8], "throughput": [100.0, 180.0]}
    values = {name: [row["value"] for row in entries] for name, entries in rows.items()}
    assert {name: pytest.approx(entries, rel=1e-4) for name, entries in expected.items()} == values
    ideal = {name: entries[-1]["ideal"] for name, entries in rows.items()}
    assert ideal == {"E": 1, "s": 1, "S": 2, "throughput": pytest.approx(200.0)}
    assert [(row["head"], row["label"]) for row in rows["throughput"]] == [("a", "1 GPU"), ("", "2 GPUs")]


def test_of_two_lines_only_one_may_have_an_interval(of: Make) -> None:
    """All launches but one of a cell may have failed."""
    often = [cell("a", rate * n**0.9, devices=tuple(range(n))) for rate in (99.9, 100.0, 100.1) for n in (1, 2)]
    (panel,) = of(tables(*often, cell("b", 100.0), cell("b", 195.0, devices=(0, 1)), factors=(1.0,))).panels("scaling")
    assert [(row["head"], row["low"] is not None) for row in panel["rows"]] == [("a", True), ("b", False)]


def test_an_impossible_efficiency_is_marked(of: Make) -> None:
    (panel,) = of(tables(cell(rate=100.0), cell(rate=230.0, devices=(0, 1)))).panels("scaling")
    (row,) = panel["rows"]
    assert row["mark"] == "impossible" and row["text"] == "115.0\u202f%"


# ---------------------------------------------------------------- speed-ups


def test_a_pair_has_the_verdict_that_python_found(of: Make) -> None:
    cells = [
        cell(stack, rate * n * gain * speed, word, model=model, devices=tuple(range(n))) | {"workload": f"{model}-{word}"}
        for stack, speed in (("a", 1.0), ("b", 1.5)) for n in (1, 2) for word, gain in (("fp32", 1.0), ("amp", 2.0 * speed))
        for model, rate in (("x", 10.0), ("y", 20.0))
    ]  # fmt: skip
    cells += [cell("a", 100.0, "amp", model="w", devices=(0, 1)) | {"workload": "w"}]
    cells += [cell("b", precision="amp", model="w", devices=(0, 1), outcome="oom") | {"workload": "w"}]
    script = of(tables(*cells))
    (panel,) = script.panels("speedup")
    assert panel["title"] == "b over a: AMP, 2 GPUs"
    assert script.lines("speedup") == [
        ("x", "2.250× ± 0.004 faster"), ("y", "2.250× ± 0.004 faster"), ("w", "failed: out of memory"),
    ]  # fmt: skip
    assert [row.get("is_best") for row in panel["rows"]] == [1, 1, None]


def test_another_baseline_can_be_chosen(of: Make) -> None:
    script = of(tables(cell("a", 100.0), cell("b", 200.0), baseline="b"))
    assert script.lines("speedup") == [("a", "0.500× ± 0.001 slower")]


def test_settings_are_compared_with_what_they_replace(of: Make) -> None:
    given = tables(cell(), cell(precision="amp", rate=190.0), cell(precision="amp", compile=True, outcome="unsupported"))
    script = of(given)
    assert [(view.name, view.title) for view in script.explorers.views["speedup"]] == [("amp", "AMP over fp32")]
    assert script.panels("speedup")[0]["title"].startswith("AMP over fp32: ")


def test_one_launch_each_is_a_ratio_that_was_not_tested(of: Make) -> None:
    assert of(tables(cell("a", 100.0), cell("b", 118.0), factors=(1.0,))).lines("speedup") == [("b", "1.18× not tested")]


# ---------------------------------------------------------------- the data in the page


def test_the_page_carries_each_cell_once_and_nothing_that_ends_a_script() -> None:
    evil = "</script><script>alert(1)</script>"
    held = tables(cell(evil), cell("b")).explorers()
    assert "<" not in held.as_json()
    data = json.loads(held.as_json())
    (stacks,) = (dim["labels"] for dim in data["dims"] if dim["name"] == "stack")
    assert stacks == [evil, "b"] and data["cells"]["stack"] == {"places": 2}
    assert all(
        not isinstance(value, float) or math.isfinite(value)
        for columns in [data["cells"], *(metric["rows"] for explorer in data["explorers"] for metric in explorer["metrics"])]
        for column in columns.values()
        if isinstance(column, list)
        for value in column
    )


def test_a_pair_names_both_its_cells() -> None:
    data = tables(cell("a", 100.0), cell("b", 131.0), cell("b", 262.0, "amp")).explorers().data
    assert [(pair.kind, pair.at, pair.over) for pair in data.pairs] == [("stack", 1, 0), ("amp", 2, 1)]


def test_each_explorer_has_a_title_and_a_note() -> None:
    explorers = {explorer["name"]: explorer for explorer in json.loads(everything().explorers().as_json())["explorers"]}
    assert list(explorers) == list(TITLES) and all(
        explorer["title"] and explorer["note"] and explorer["metrics"] for explorer in explorers.values()
    )


def test_the_texts_of_the_explorers_are_those_of_the_tables() -> None:
    """Check each cell and each pair, not only those that a first view shows."""
    explorers = everything().explorers()
    (rates, *_), speedups = explorers.views["throughput"], explorers.views["speedup"]
    for row in rates.rows:
        cell_ = explorers.data.rows[row["at"]]
        limits = words.rate_interval(cell_.rate or 0.0, cell_.low, cell_.high)
        assert (row["text"], row["interval"]) == (words.short(cell_.rate), limits) if cell_.n else row["problem"]
    pairs = {(pair.kind, pair.at): pair for pair in explorers.data.pairs}
    judged = [(pairs[speedup.name, row["at"]], row) for speedup in speedups for row in speedup.rows if row["value"] is not None]
    assert len(judged) > 10
    for pair, row in judged:
        limits = words.effect_interval(pair.ratio, pair.low, pair.high)
        assert (row["text"], row["interval"]) == (words.effect(pair.ratio, pair.low, pair.high), limits)
        assert row["more"] == words.verdict(pair.verdict) and row["is_best"] == (pair.verdict == "FASTER")


def test_the_scripts_write_round_numbers_only_and_compute_no_statistics() -> None:
    scripts = {path.name: re.sub(r"(?m)^ *//.*$", "", path.read_text()) for path in SCRIPTS.glob("*.js")}
    writing = [
        (name, call) for name, text in scripts.items() for call in re.findall(r"to(?:Fixed|Exponential|LocaleString)\b", text)
    ]
    assert writing == [("draw.js", "toLocaleString")], "ticks and plain quotients, in one place"
    assert not [name for name, text in scripts.items() if re.search(r"faster\b|slower\b|Math\.(exp|sqrt)\b", text)]


@pytest.mark.parametrize(
    ("value", "text"),
    [(9999.5, "10000"), (9999.4, "9999"), (12344.5, "12344"), (1.0625, "1.062"), (1e-5, "1.000e-05"), (float("nan"), "–")],
)
def test_a_figure_has_four_digits_and_no_exponent_above_ten_thousand(value: float, text: str) -> None:
    assert figure(value) == text
