"""The default view: its answers follow the verdicts, degrade in plain sentences, and what is drawn is what is written."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs

from golden import cases, generation
from support import invented
from support.records import nights, write_run
from torchmatrix.core.formatting import number_or_nan
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.matrix.factors import MODES
from torchmatrix.reporting import report, words
from torchmatrix.reporting.charts import by_section
from torchmatrix.reporting.overview import Overview
from torchmatrix.reporting.overview.answers import ranking
from torchmatrix.reporting.overview.cells import Cells

Launch = dict[str, Any]


@pytest.fixture
def overview_of(tmp_path: Path) -> Callable[..., Overview]:
    def overview(*launches: Launch, **more: Any) -> Overview:
        return report.overview_of(report.view_of(write_run(tmp_path, list(launches), **more)))

    return overview


def answer(overview: Overview, name: str) -> Any:
    return next((item for item in overview.answers.each if item.name == name), None)


def repeated(rates: list[float], **more: Any) -> list[Launch]:
    return [{"rate": rate, **more} for rate in rates]


FAST, SLOW = [120.0, 121.0, 119.5, 120.5], [100.0, 101.0, 99.5, 100.5]


def test_the_fastest_stack_is_the_best_that_was_measured_also_if_fewer_stacks_measured_it(
    overview_of: Callable[..., Overview],
) -> None:
    """Eager was measured by both stacks, torch.compile by one: the answer is the compiled figure."""
    compiled = repeated([180.0, 181.0, 180.5, 179.5], workload="w-compile", job={"compile": True})
    overview = overview_of(
        *repeated(FAST, stack="a"), *repeated(SLOW, stack="b"), *[{**launch, "stack": "b"} for launch in compiled]
    )
    best = answer(overview, "fastest")
    assert best.figure == "b" and best.value == pytest.approx(180.25, abs=0.3) and best.verdict == "FASTER"
    assert "torch.compile" in best.note and "Faster than all others" in best.text


def test_a_stack_not_shown_to_be_slower_is_named_and_no_other(overview_of: Callable[..., Overview]) -> None:
    near = [119.0, 122.5, 120.8, 118.9]
    overview = overview_of(*repeated(FAST, stack="a"), *repeated(near, stack="b"), *repeated(SLOW, stack="c"))
    best = answer(overview, "fastest")
    assert best.verdict == "AMBIGUOUS" and best.text.endswith("No difference shown from b.")
    bold = {row.label for panels in overview.charts[0].panels for panel in panels for row in panel.rows if row.is_best}
    assert bold == {"a", "b"}


def test_one_launch_has_no_interval_no_verdict_and_nothing_bold(overview_of: Callable[..., Overview]) -> None:
    overview = overview_of({"rate": 120.0, "stack": "a"}, {"rate": 100.0, "stack": "b"})
    best = answer(overview, "fastest")
    assert best.text == "One launch: no interval. Not tested against b." and best.verdict == "n/a"
    assert not any(row.is_best for panels in overview.charts[0].panels for panel in panels for row in panel.rows)
    assert overview.answers.lead.endswith(f"on a, 120{words.SPACE}images/s; one launch: not tested.")
    assert "aster" not in " ".join([overview.answers.lead, best.text, *(chart.title for chart in overview.charts)])


def test_a_single_launch_is_never_faster_though_the_others_differ_among_themselves(
    overview_of: Callable[..., Overview],
) -> None:
    overview = overview_of({"rate": 200.0, "stack": "a"}, *repeated(FAST, stack="b"), *repeated(SLOW, stack="c"))
    best = answer(overview, "fastest")
    assert best.verdict == "n/a" and best.text == "One launch: no interval. Not tested against b and c."
    assert overview.answers.lead.startswith("Highest: ") and "aster" not in overview.answers.lead + overview.charts[0].title
    bold = [row.label for panels in overview.charts[0].panels for panel in panels for row in panel.rows if row.is_best]
    assert bold == []


def test_one_stack_says_its_figure_large(overview_of: Callable[..., Overview]) -> None:
    best = answer(overview_of(*repeated(FAST)), "fastest")
    assert best.title == "Measured" and best.figure.startswith("120") and best.interval.startswith("±")


def test_what_was_not_tested_is_no_equal_and_the_sentence_is_about_one_cell(overview_of: Callable[..., Overview]) -> None:
    amp = repeated([300.0, 301.0, 299.5], workload="w-amp", job={"precision": "amp"}, stack="a")
    overview = overview_of(*amp, {"rate": 290.0, "stack": "b"}, *repeated(SLOW, stack="c"))
    best = answer(overview, "fastest")
    assert best.text == "Not tested against b (fp32): one launch." and best.verdict == "n/a" and best.figure.startswith("300")
    assert overview.answers.lead.startswith(f"ResNet-50 trains at 300{words.SPACE}images/s with AMP and eager on a; not tested")
    bold = [row.label for panels in overview.charts[0].panels for panel in panels for row in panel.rows if row.is_best]
    assert bold == ["a"]


@pytest.mark.parametrize("name", [name for name in cases() if name not in ("nothing", "all-failed")])
def test_no_page_says_more_than_it_knows_and_no_model_is_missing(tmp_path: Path, name: str) -> None:
    """The sentence has all settings of the cell whose figure it prints; bold is tested; every measured model is drawn."""
    cases()[name](tmp_path)
    view = report.view_of(Results(tmp_path).runs()[-1])
    overview, cells = report.overview_of(view), report.cells_of(view)
    top = cells.best(cells.chosen)
    lead = overview.answers.lead
    assert top and words.with_unit(top.rate, f"{top.unit}/s") in lead and len(lead.split()) <= 30, lead
    assert all(setting in lead for setting in (*cells.settings(top).split(", "), cells.who(top), cells.model(top))), lead
    equal = ranking(cells, top).equal
    assert equal[0] is top and (len(equal) == 1 or all(row.n > 1 for row in equal))
    for chart in by_section(overview.charts)[0]:
        bold = [row for panels in chart.panels for panel in panels for row in panel.rows if row.is_best]
        assert all("1 launch" not in row.figures for row in bold)
    drawn = " ".join(panel.title for panels in overview.charts[0].panels for panel in panels)
    assert all(cells.model(row) in drawn for row in cells.rows if row.n)
    if any(each.name == "energy" for each in overview.answers.each):
        economical = answer(overview, "energy")
        charts = [chart for chart in overview.charts if chart.id == "energy"]
        values = [row.value for chart in charts for panels in chart.panels for panel in panels for row in panel.rows]
        assert economical.value in [pytest.approx(value) for value in values if value], "the answer's cell is in its chart"
    best = answer(overview, "fastest")
    assert [best.low, best.high] == pytest.approx([number_or_nan(top.value(name)) for name in ("low", "high")], nan_ok=True)
    for row in (row for chart in overview.charts if chart.id == "settings" for (panel,) in chart.panels for row in panel.rows):
        is_told = row.figures[1] in ("faster", "slower") or row.figures[1].startswith(("apart by", "perhaps", "the same"))
        assert row.low is None or is_told or row.low <= 1 <= (row.high or 0), row
        assert row.figures[1] not in ("faster", "slower") or row.low is None or not row.low <= 1 <= (row.high or 0), row


@pytest.mark.parametrize(
    ("resnet", "bert", "agree"),
    [(1.6, 1.0, False), (1.6, 1.7, True), (1.6, 0.8, False), (1.0, 1.001, True)],
)
def test_a_mean_over_models_stands_only_where_they_agree(
    overview_of: Callable[..., Overview], resnet: float, bert: float, agree: bool
) -> None:
    launches = []
    for model, gain in (("resnet50", resnet), ("bert-base-cased", bert)):
        for stack, factor in (("a", 1.0), ("b", gain)):
            launches += repeated([factor * rate for rate in SLOW], stack=stack, workload=f"w-{model}", model=model)
    (chart,) = [chart for chart in overview_of(*launches).charts if chart.id == "settings"]
    labels = [row.label for row in chart.panels[0][0].rows]
    assert labels[:2] == ["b: ResNet-50", "b: BERT-base"] and labels[2:] == (["b: all 2 models"] if agree else [])


@pytest.mark.parametrize(("of_bert", "agree"), [(1.0, False), (3.0, True)])
def test_a_setting_that_differs_by_model_has_no_figure_of_all(
    overview_of: Callable[..., Overview], of_bert: float, agree: bool
) -> None:
    launches = []
    for model, gain in (("resnet50", 2.9), ("bert-base-cased", of_bert)):
        for precision, factor in (("fp32", 1.0), ("amp", gain)):
            job = {"model": model, "precision": precision}
            launches += repeated([factor * rate for rate in SLOW], workload=f"w-{model}-{precision}", model=model, job=job)
    overview = overview_of(*launches)
    amp = answer(overview, "precision")
    (chart,) = [chart for chart in overview.charts if chart.id == "settings"]
    if agree:
        assert amp.verdict == "FASTER" and not math.isnan(amp.value) and "AMP 2.95×" in chart.title
    else:
        assert (
            math.isnan(amp.value) and "it differs by model: 2.90× ResNet-50 (faster) and 1.00× BERT-base (the same" in amp.text
        )
        assert chart.title == "What AMP brings differs by model"


def test_nothing_measured_says_what_happened_and_keeps_the_rows(overview_of: Callable[..., Overview]) -> None:
    overview = overview_of({"outcome": "oom"}, {"outcome": "crashed", "stack": "b"})
    assert overview.answers.lead == "No cell was measured: 1 × out of memory, 1 × crashed." and not overview.answers.each
    problems = [row.problem for panels in overview.charts[0].panels for panel in panels for row in panel.rows]
    assert problems == ["failed: out of memory", "failed: crashed"]


@pytest.mark.parametrize(("rates", "verdicts"), [(FAST, {"FASTER"}), ([100.2, 99.8, 100.4, 100.1], {"SAME", "AMBIGUOUS"})])
def test_the_gain_of_a_setting_follows_its_corrected_verdict(
    overview_of: Callable[..., Overview], rates: list[float], verdicts: set[str]
) -> None:
    overview = overview_of(*repeated(SLOW), *repeated(rates, workload="w-amp", job={"precision": "amp"}))
    amp = answer(overview, "precision")
    assert amp.verdict in verdicts and ("faster" in amp.text) == (amp.verdict == "FASTER")
    assert (amp.figure == "1.200×") == (rates is FAST)


def test_several_devices_say_multiple_and_efficiency(overview_of: Callable[..., Overview]) -> None:
    two = answer(overview_of(*repeated(SLOW), *repeated([190.0, 191.0, 190.5, 189.5], devices=(0, 1))), "devices")
    assert two.title == "2 GPUs bring" and two.figure == "1.898×" and f"95{words.THIN}% efficiency" in two.text


def test_one_device_has_no_answer_on_devices(overview_of: Callable[..., Overview]) -> None:
    assert answer(overview_of(*repeated(SLOW)), "devices") is None


def test_a_lead_sentence_has_at_most_30_words(tmp_path: Path) -> None:
    view = report.view_of(invented.write(tmp_path, invented.machines()[0]))
    overview = report.overview_of(view)
    assert len(overview.answers.lead.split()) <= 30 and 4 <= len(overview.answers.each) <= 6
    assert {item.chart for item in overview.answers.each} <= {chart.id for chart in overview.charts}


def test_since_the_last_run_counts_the_changes_of_this_machine(tmp_path: Path) -> None:
    machine = invented.machines()[0]
    invented.write(tmp_path, machine, run="20260101T000000Z", launches=4)
    run = invented.write(tmp_path, machine, run="20260102T000000Z", launches=4, level=0.9)
    view = report.view_of(run)
    before = report.last_before(run, view.summary)
    assert before is not None and before.run == "20260101T000000Z" and before.environment == {}
    assert 0 < before.compared.recorded < before.compared.of, "what wasn't recorded is no equality"
    overview = report.overview_of(view, before)
    assert before.count("SLOWER") == len(before.cells) and answer(overview, "since").figure.endswith("slower")
    assert answer(overview, "since").note.endswith(f"({before.compared.recorded} of {before.compared.of} known on both sides).")
    assert report.last_before(replace_of(run, "20260101T000000Z"), view.summary) is None


@pytest.mark.parametrize(("ago", "is_told"), [(4, True), (report.RECENT, True), (report.RECENT + 1, False)])
def test_a_level_that_changed_some_nights_ago_is_told_tonight(tmp_path: Path, ago: int, is_told: bool) -> None:
    ids = nights(12 + ago)
    for night, run in enumerate(ids):
        rate = 100.0 if night < 12 else 94.0
        write_run(tmp_path, [{"stack": s, "rate": rate * x} for s in "ab" for x in (0.999, 1.0, 1.001)], run=run)
    run = RunFolder(tmp_path / "testhost" / ids[-1])
    view = report.view_of(run)
    before = report.last_before(run, view.summary)
    assert before is not None and before.count("SLOWER") == 0, "not since the last run"
    assert before.shift.startswith("Both cells became 6\u202f% slower on 2026-01-13." if is_told else "") is True
    assert bool(before.shift) is is_told
    assert before.shift in answer(report.overview_of(view, before), "since").text


def test_since_the_last_run_names_what_else_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = invented.machines()[0]
    invented.write(tmp_path, machine, run="20260101T000000Z")
    then = invented.host_of(machine)
    monkeypatch.setattr(invented, "host_of", lambda _: replace(then, driver="580.65.06"))
    run = invented.write(tmp_path, machine, run="20260102T000000Z")
    view = report.view_of(run)
    overview = report.overview_of(view, report.last_before(run, view.summary))
    assert "What else changed: host driver 575.51.03 → 580.65.06" in answer(overview, "since").note


def replace_of(run: Any, name: str) -> Any:
    return type(run)(run.path.with_name(name))


def test_the_bars_have_the_figures_of_the_exported_tables(tmp_path: Path) -> None:
    """Each bar's length, interval and text come from the cell that the exported table has."""
    view = report.view_of(invented.write(tmp_path, invented.machines()[0]))
    cells = {row.throughput: row for row in view.every_cell if row.n}
    page = report.render(view)
    drawn = 0
    for chart in by_section(report.overview_of(view).charts)[0]:
        for panels in chart.panels:
            for panel in panels:
                for row in panel.rows:
                    near = min(cells, key=lambda rate: abs(rate - (row.value or 0)))
                    assert row.value == pytest.approx(near, rel=1e-6) and row.low == pytest.approx(cells[near].low, rel=1e-6)
                    assert row.figures[0] == words.short(near) and row.figures[0] in page
                    assert f'width="{panel.at(row.value)}"' in page
                    drawn += 1
    assert drawn > 20


def test_a_flagged_cell_has_its_mark_at_the_bar_and_a_line_on_the_first_screen(tmp_path: Path) -> None:
    view = report.view_of(write_run(tmp_path, repeated(FAST)))
    marked = replace(view, every_cell=[structs.replace(row, throttled=2) for row in view.every_cell])
    page = report.render(marked)
    assert re.search(
        r'<ul class="flags">\s*<li><b>throttled</b>, 1 cell [(]stack-a/resnet50-train-fp32-b4/gpu0[)]: 2 of 4 launches: ', page
    )
    assert report.overview_of(marked).answers.in_words(80).splitlines()[-1] == "doubtful: 1 cell throttled"
    assert re.search(r'role=rowheader[^>]*>[^<]*<abbr title="2 of 4 launches', page)


@pytest.mark.parametrize(
    ("launches", "is_told"), [(({"rate": 100.0}, {"rate": 90.0, "stack": "b"}), True), (repeated(FAST), False)]
)
def test_a_run_of_one_launch_each_says_what_to_do_next(
    overview_of: Callable[..., Overview], launches: list[dict[str, Any]], is_told: bool
) -> None:
    assert ("torchmatrix run makes three" in overview_of(*launches).answers.warning) is is_told


@pytest.mark.parametrize(
    ("outcomes", "lead"),
    [
        (["oom"], "The only cell ran out of memory. A smaller batch"),
        (["oom"] * 2, "Both cells ran out of memory. A smaller batch"),
        (["oom"] * 3, "All 3 cells ran out of memory. A smaller batch"),
        (["oom", "oom", "crashed"], "No cell was measured: 2 × out of memory"),
    ],
)
def test_a_run_out_of_memory_everywhere_says_so_of_its_cells(
    overview_of: Callable[..., Overview], outcomes: list[str], lead: str
) -> None:
    failed = [{"outcome": outcome, "stack": f"s{place}"} for place, outcome in enumerate(outcomes)]
    assert overview_of(*failed).answers.lead.startswith(lead)


def test_the_names_of_equals_are_told_apart(overview_of: Callable[..., Overview]) -> None:
    launches = [
        {"stack": name, "job": {"precision": precision}, "workload": f"w-{precision}", "rate": 100.0 + n / 10}
        for name in "ab" for precision in ("fp32", "amp") for n in range(4)
    ]  # fmt: skip
    text = answer(overview_of(*launches), "fastest").text
    names = text.removeprefix("No difference shown from ").removesuffix(".").replace(" and ", ", ").split(", ")
    assert len({*names}) == 3 and any("(" in name for name in names), text


def test_a_mark_that_all_cells_share_stands_once_and_in_the_source_of_pictures(tmp_path: Path) -> None:
    view = report.view_of(write_run(tmp_path, [*repeated(FAST), *repeated(SLOW, stack="b"), *repeated(SLOW, stack="c")]))
    some, every = (
        replace(view, every_cell=[structs.replace(row, throttled=int(row.of.stack in stacks)) for row in view.every_cell])
        for stacks in ("ab", ("stack-a", "b", "c"))
    )
    assert "1 cell (b/resnet50" in report.render(some) and any(report.cells_of(some).marks.values())
    assert "<b>throttled</b>, all 3 cells: 1 of 4 launches" in report.render(every)
    assert not any(report.cells_of(every).marks.values())
    assert report.overview_of(every).style.source.endswith("All cells: throttled.")
    assert "throttled" not in report.overview_of(some).style.source


def test_scripts_are_not_needed_for_the_default_view(tmp_path: Path) -> None:
    page = report.render(report.view_of(write_run(tmp_path, repeated(FAST))))
    before = page[page.index("<header>") : page.index('id="method"')]
    assert "<svg class=t" in before and "vega" not in before and "application/json" not in before


def test_cells_name_what_differs_from_the_default_only(tmp_path: Path) -> None:
    view = report.view_of(invented.write(tmp_path, invented.machines()[0]))
    cells = Cells(data=report.explorers_of(view).data, marks={})
    bert = next(row for row in cells.rows if cells.value(row, "model") == "bert-base-cased")
    assert cells.settings(bert) in ("fp32, eager", "AMP, eager") and cells.model(bert) == "BERT-base"


def test_two_stacks_of_one_build_keep_their_names_apart(tmp_path: Path) -> None:
    view = report.view_of(
        write_run(tmp_path, [*repeated(FAST, stack="a"), *repeated(SLOW, stack="b"), *repeated(SLOW, stack="c")])
    )
    cells = Cells(data=report.explorers_of(view).data, builds={"a": "2.5.1+cpu", "b": "2.5.1+cpu"})
    assert [cells.stack(row) for row in cells.rows] == ["a (torch 2.5.1)", "b (torch 2.5.1)", "c"]


def test_a_cell_that_differs_in_its_batch_only_is_named_by_it(overview_of: Callable[..., Overview]) -> None:
    overview = overview_of(*repeated(SLOW, job={"batch": 32}), *repeated(FAST, workload="w-b64", job={"batch": 64}))
    assert overview.answers.lead.endswith("the throughput of batch 32."), overview.answers.lead
    assert "the next is batch 32 (" in answer(overview, "fastest").text


def test_the_share_of_the_peak_is_drawn_with_its_interval_weighted_where_types_are_mixed(tmp_path: Path) -> None:
    flops, types = 50e9, {"flops": {"float8": 80e9, "bfloat16": 20e9}}
    mixed = {"matmul": "bf16", "convolution": "bf16", "mixed": "mixed: float8 80 %, bfloat16 20 %", "types": types}
    told = [{"event": "precision", "effective": [mixed], "changed": []}]
    runs = [
        {"rate": rate * pace, "flops": flops, "workload": f"w-{precision}", "job": {"precision": precision}, "told": seen}
        for precision, rate, seen in (("amp-bf16", 4000.0, []), ("fp8", 6000.0, told), ("half", 4100.0, told[:0]))
        for pace in (0.99, 1.0, 1.01)
    ]
    overview = report.overview_of(report.view_of(write_run(tmp_path, runs)))
    (chart,) = [chart for chart in overview.charts if chart.id == "utilization"]
    ((panel,),) = chart.panels
    peak = 100 / (80 / 1979e12 + 20 / 989e12)  # of an H200
    by_label = {row.label: row for row in panel.rows}
    assert by_label["float8, eager"].value == pytest.approx(6000 * flops / peak, rel=1e-4)
    assert by_label["AMP bf16, eager"].value == pytest.approx(4000 * flops / 989e12, rel=1e-4)
    assert by_label["float8, eager"].low < by_label["float8, eager"].value < by_label["float8, eager"].high
    assert chart.title.endswith(f"float8, eager reaches {100 * 6000 * flops / peak:.0f}{words.THIN}% of its peak")
    unknown = report.overview_of(
        report.view_of(write_run(tmp_path / "cpu", [{"vendor": "cpu", "device": "cpu", "flops": flops}]))
    )
    assert not [chart for chart in unknown.charts if chart.id == "utilization"], "the peak of a CPU is not known"


@pytest.mark.parametrize("mode", MODES)
def test_the_first_sentence_is_one_in_every_mode(tmp_path: Path, mode: str) -> None:
    said = {"train": "ResNet-50 trains fastest with fp32", "infer": "ResNet-50 runs inference fastest with fp32"}
    said["micro"] = "gemm runs fastest with fp32"
    requests = {"served": {"latency": [0.1] * 20, "end-to-end": [0.2] * 20}} if mode == "infer" else {}
    launches: Iterable[dict[str, Any]] = [
        {"rate": rate * (1 + place / 1000), "stack": stack, **requests}
        for stack, rate in (("stack-a", 100.0), ("stack-b", 150.0)) for place in range(4)
    ]  # fmt: skip
    if mode == "generate":
        launches = generation(Random(5))
    if mode == "micro":
        work = {"model": "gemm", "job": {"mode": mode, "unit": "TFLOP", "shape": "1000x1000x1000"}}
        launches = [{**launch, **work} for launch in launches]
    lead = report.overview_of(report.view_of(write_run(tmp_path, list(launches)))).answers.lead
    assert lead.startswith(said.get(mode, "llama-3.2-1b generates fastest with bfloat16 weights, eager and batch 32 on"))
    assert mode != "generate" or "the throughput of torch 2.5.1 (fp32, batch 1)" in lead


@pytest.mark.parametrize(("slow", "said"), [(SLOW, "next is gpu0"), (FAST, "shown from gpu")])
def test_a_stack_is_never_compared_with_itself(overview_of: Callable[..., Overview], slow: list[float], said: str) -> None:
    overview = overview_of(*repeated(slow, stack="a", devices=(0,)), *repeated(FAST, stack="a", devices=(1,)))
    told = " ".join([overview.answers.lead, *(answer.text for answer in overview.answers.each)])
    assert said in told and "next is a " not in told and "from a." not in told and "throughput of a" not in told
