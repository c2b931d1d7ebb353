"""The report's section on settings: its sentences and charts, from a cube with a known truth; and the exported tables."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from support.read_back import frames
from support.records import write_run
from torchmatrix.reporting import cubes, exports, report
from torchmatrix.reporting.exports import table_set
from torchmatrix.reporting.exports.table_set import View


def launches(model: str = "resnet50") -> list[dict[str, Any]]:
    """Return launches in which AMP is × 2, NHWC × 1.5 with AMP only (never for BERT), compile × 1.2."""
    measured = []
    for precision, layout, compiled, tried in itertools.product(("fp32", "amp"), (False, True), (False, True), (True, False)):
        rate = 100.0 * (2 if precision == "amp" else 1) * (1.2 if compiled else 1)
        rate *= 1.5 if layout and precision == "amp" and model == "resnet50" else 1
        job = {"precision": precision, "channels_last": layout, "compile": compiled, "cudnn_benchmark": tried}
        name = f"{model}-{precision}-{layout}-{compiled}-{tried}"
        measured += [{"rate": rate * pace, "model": model, "workload": name, "job": job} for pace in (0.999, 1.0, 1.001)]
    return measured


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    return report.view_of(write_run(tmp_path_factory.mktemp("cube"), [*launches(), *launches("bert-base-cased")]))


def test_the_sentences_say_the_best_the_way_to_it_and_what_works_only_together(view: View) -> None:
    resnet, bert = cubes.sections_of(view.summary.launches)
    assert resnet.title == "resnet50, train, GPU 0"
    best, way, together = resnet.sentences
    assert best.startswith(
        "The highest of 16 combinations: precision amp, compile, channels_last, cudnn_benchmark, 360.0 images/s ("
    )
    assert "3.600× ±\u00a00.006 over precision fp32, without compile, without channels_last, cudnn_benchmark" in best
    assert way.startswith("Largest gain first: precision amp 2.000×") and way.endswith("together the highest.")
    assert together == "What channels_last does depends on precision: 1.50× with precision amp; 1.00× with precision fp32."
    assert bert.sentences[-2].startswith("Negative control: channels_last changes nothing, as it must: 1.00×")


def test_a_chart_of_speed_and_cost_has_the_combinations_that_no_other_beats(tmp_path: Path) -> None:
    """Energy per item is the cost: with AMP it is the least, so that one combination is best in both."""
    reading = {"device": "GPU-0", "temperature_celsius": 61, "power_watts": 512.0, "sm_clock_mhz": 1980, "reasons": []}
    readings = [(float(t), {**reading, "energy_joules": 512.0 * t}) for t in range(90, 160)]
    measured = report.view_of(write_run(tmp_path, [{**launch, "readings": readings} for launch in launches()]))
    (chart,) = cubes.sections_of(measured.summary.launches)[0].charts
    assert chart.title.startswith("One combination is best in both") and len(chart.panels[0][0].rows) == 1
    assert "J" in chart.panels[0][0].rows[0].figures[1]


def test_the_page_has_the_section_only_where_there_is_a_cube(view: View, tmp_path: Path) -> None:
    page = report.render(view)
    assert 'id="combinations"' in page and "What channels_last does depends on precision" in page
    alone = report.render(report.view_of(write_run(tmp_path, [{}])))
    assert 'id="combinations"' not in alone


def test_the_tables_are_exported_with_exact_numbers(view: View) -> None:
    tables = table_set.of(view)
    shown = frames(tables)
    effects = shown["effects"]
    assert list(effects["setting"]) == ["precision amp", "compile", "channels_last", "without cudnn_benchmark"] * 2
    assert effects["ratio"][1] == pytest.approx(1.2, rel=1e-12) and list(effects["pairs"]) == [8] * 8
    assert list(effects["negative_control"]) == ["", "", "", "", "", "", "still", "still"]
    interactions = shown["interactions"].dropna(subset="sentence")
    assert list(interactions["settings"]) == ["precision x channels_last"]
    assert list(shown["cheap_way"]["step"]) == [1, 2, 3, 1, 2]
    assert exports.FORMATS["csv"]("effects", tables.values["effects"]).startswith(b"model,mode,devices,setting,over,ratio")
