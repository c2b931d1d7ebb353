"""Published throughputs and claims beside ours: what is comparable, what differs, the verdicts, and the page's section."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from support.rows import a_row
from torchmatrix.analysis import glossary, intervals, published, run_summary, scaling
from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.published import Figure, Measured, claims, figure_files
from torchmatrix.analysis.published.claims import Claim
from torchmatrix.core import assets
from torchmatrix.matrix import catalog
from torchmatrix.reporting import report

THEIRS = next(figure for figure in claims.load_figures() if figure.file == "nvidia_dle" and figure.precision == "amp")
"""ResNet-50 in AMP and NHWC, batch 256, on one A100 80GB SXM4: 2470 images/s."""
A100 = {"device": "NVIDIA A100-SXM4-80GB", "memory_bytes": 80 * 2**30}
JOB = {"precision": "amp", "channels_last": True, "batch": 256}


def ours(**other: Any) -> Measured:
    """Return our cell for the same job, with other values of the figure."""
    figure = replace(THEIRS, file="", row=1, cell="s/w/gpu0", vendor="torchmatrix", data="synthetic", torch="2.5.1+cu124")
    cell = Cell([a_row(stack="s", workload="w", throughput=rate) for rate in (2465.0, 2475.0)])
    return Measured(figure=replace(figure, **other), cell=cell)


def run_of(tmp_path: Path, *launches: dict[str, Any], **header: Any) -> tuple[tuple[Measured, ...], list[dict[str, Any]]]:
    rows = run_summary.launch_rows(write_run(tmp_path, list(launches), **header).launches())
    index = CellIndex(rows)
    return published.measured(index.figures), scaling.scaling_table(index)


def page_of(tmp_path: Path, *launches: dict[str, Any], **header: Any) -> str:
    return report.render(report.view_of(write_run(tmp_path, list(launches), **header)))


def thrice(*launches: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each launch three times, with the first rate as the median and hardly any scatter."""
    return [
        {**row, "rate": row["rate"] * share, "round": i} for row in launches for i, share in enumerate((0.9999, 1.0, 1.0001), 1)
    ]


def preset_text(**other: Any) -> str:
    fields = {"title": "T", "article": "https://example.org/a", "question": "Q?", "claims": [], "deviations": [], **other}
    lines = "\n".join(f"{key} = {value!r}" for key, value in fields.items())
    return f"[preset]\n{lines}\n[[stack]]\ntorch = '2.5.1'\ncpu = true\n[[workload]]\nmodel = 'resnet18'\nbatch = 4\n"


def test_the_same_job_is_comparable_and_says_that_the_data_were_real() -> None:
    (pair,) = claims.beside(THEIRS, [ours()])
    assert pair.differs == () and pair.besides == ("data: real, ours synthetic",)
    assert pair.verdict == "reproduced" and pair.ratio.value == pytest.approx(1.0)
    assert (pair.low, pair.high) == pytest.approx((0.95 * 2470, 1.05 * 2470))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("framework", "tensorflow", "framework: pytorch, ours tensorflow"),
        ("precision", "tf32", "precision: amp, ours tf32"),
        ("memory_format", "nchw", "memory format: nhwc, ours nchw"),
        ("compile", True, "compile: no, ours yes"),
        ("batch_per_gpu", 128, "batch per GPU: 256, ours 128"),
        ("image_size", 288, "image size: 224, ours 288"),
    ],
)
def test_each_field_that_differs_is_named_with_both_values(field: str, value: Any, words: str) -> None:
    (pair,) = claims.beside(THEIRS, [ours(**{field: value})])
    assert pair.differs == (words,) and pair.verdict == "not comparable" and math.isnan(pair.ratio.value)


def test_the_settings_that_would_make_a_figure_comparable_are_named() -> None:
    (pair,) = claims.beside(THEIRS, [ours(precision="fp32", batch_per_gpu=64, memory_format="nchw")])
    assert pair.to_match == 'set precision = "amp", batch = 256, channels_last = true'
    (silent,) = claims.beside(replace(THEIRS, memory_format=""), [ours(batch_per_gpu=64)])
    assert silent.to_match == "no setting can: their source doesn't state memory format"
    (other,) = claims.beside(replace(THEIRS, precision="fp32-conv-tf32"), [ours()])
    assert other.to_match == "no setting can: fp32-conv-tf32 is none of our precisions"
    assert claims.beside(THEIRS, [ours()])[0].to_match == ""


@pytest.mark.parametrize("field", ["precision", "memory_format", "compile", "batch_per_gpu", "image_size"])
def test_what_a_source_does_not_say_differs_and_is_never_assumed(field: str) -> None:
    silent = replace(THEIRS, **{field: None if field in ("compile", "batch_per_gpu", "image_size") else ""})
    (pair,) = claims.beside(silent, [ours()])
    assert len(pair.differs) == 1 and ": not stated, ours " in pair.differs[0] and pair.verdict == "not comparable"


def test_unknown_on_both_sides_is_not_the_same() -> None:
    (pair,) = claims.beside(replace(THEIRS, batch_per_gpu=None), [ours(batch_per_gpu=None)])
    assert pair.differs == ("batch per GPU: not stated, ours not stated",)


@pytest.mark.parametrize("change", [{"model": "resnet18"}, {"mode": "infer"}, {"gpu": "H200 SXM"}, {"gpus": 8}])
def test_another_model_mode_or_gpu_is_not_set_beside_it(change: dict[str, Any]) -> None:
    assert claims.beside(THEIRS, [ours(**change)]) == []
    assert claims.beside(replace(THEIRS, gpu=""), [ours(gpu="")]) == []


def test_a_memory_format_means_nothing_for_sequences_but_their_length_does() -> None:
    text = {"model": "bert-large-cased", "unit": "sequences/s", "memory_format": "", "image_size": None, "sequence_length": 384}
    theirs = replace(THEIRS, **text)
    assert claims.beside(theirs, [ours(**text)])[0].differs == ()
    shorter = ours(**{**text, "sequence_length": 128})
    assert claims.beside(theirs, [shorter])[0].differs == ("sequence length: 384, ours 128",)


@pytest.mark.parametrize("word", figure_files.OTHER_PRECISIONS)
def test_precisions_that_are_none_of_ours_equal_none(word: str) -> None:
    for precision in ("fp32", "tf32", "amp", "amp-bf16"):
        (pair,) = claims.beside(replace(THEIRS, precision=word), [ours(precision=precision)])
        assert pair.verdict == "not comparable"


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (100.0, 99.0, 101.0, "reproduced"),
        (94.0, 93.0, 95.0, "ambiguous"),  # touches the edge
        (94.0, 93.0, 94.99, "worse"),
        (106.0, 105.0, 107.0, "ambiguous"),
        (106.0, 105.01, 107.0, "better"),
        (100.0, 90.0, 110.0, "ambiguous"),
        (100.0, 95.0, 110.0, "ambiguous"),
        (100.0, 95.0, 105.0, "reproduced"),
        (100.0, math.nan, math.nan, "ambiguous"),  # one launch
        (50.0, math.nan, math.nan, "ambiguous"),
    ],
)
def test_verdicts_at_their_boundaries(value: float, low: float, high: float, verdict: str) -> None:
    assert intervals.reproduction_verdict(Interval(value=value, low=low, high=high), 95.0, 105.0) == verdict


def test_the_tolerance_stands_beside_the_verdict() -> None:
    assert f"± {100 * intervals.REPRODUCED_WITHIN:g} %" in glossary.DEFINITIONS["reproduced"]


def test_all_published_files_are_read_as_they_are() -> None:
    assert len(claims.load_figures()) == 204 and len(claims.load_claims()) == 16
    figures = {figure.row: figure for figure in claims.load_figures() if figure.file == "lambda"}
    assert figures[60].throughput == 9320 and figures[60].machine.startswith("LambdaOD_8x") and figures[60].compile is False
    assert {figure.gpu for figure in claims.load_figures() if figure.file == "aime"} == {"A100 80GB PCIe"}


def test_a_measured_cell_becomes_a_figure_in_the_published_words(tmp_path: Path) -> None:
    two = {"devices": (0, 1), "rate": 4900.0}
    (single, both), _ = run_of(tmp_path, *thrice({"rate": 2470.0, "job": JOB, **A100}, {**two, "job": JOB, **A100}))
    figure = single.figure
    assert (figure.gpu, figure.gpus, figure.memory_format, figure.batch_per_gpu) == ("A100 80GB SXM4", 1, "nhwc", 256)
    assert (figure.precision, figure.compile, figure.image_size, figure.unit) == ("amp", False, 224, "images/s")
    assert both.figure.gpus == 2 and both.figure.throughput == pytest.approx(4900.0)
    assert claims.beside(THEIRS, [single, both])[0].verdict == "reproduced"


def test_cells_that_failed_are_mixed_or_explain_a_loss_are_no_figures(tmp_path: Path) -> None:
    failed = {"outcome": "oom", "workload": "w1"}
    explaining = {"parallel": "no-sync", "workload": "w2-no-sync"}
    mixed = {"devices": (0, 1), "gpus": {"indices": [0, 1], "label": "gpu0+1", "vendor": "nvidia", "threads": 1,
             "gpus": [{"uuid": "a", "name": "A"}, {"uuid": "b", "name": "B"}]}}  # fmt: skip
    assert [row.cell.row.workload for row in run_of(tmp_path, failed, explaining, mixed, {"workload": "w3"})[0]] == ["w3"]


def claim(**other: Any) -> Claim:
    return Claim(**{
        "vendor": "V", "quantity": "scale-factor", "low": 0.9, "high": 0.95, "models": ("resnet50",), "precisions": ("amp",),
        "gpus": ("A100 80GB SXM4",), "count": 2, "and_more": True, "against": "one GPU", "published_gpu": "A100", "source": "a",
        "notes": "", **other,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "verdict"), [(185.0, "worse"), (192.0, "reproduced"), (198.0, "better"), (210.0, "not comparable")]
)
def test_a_claimed_scale_factor_is_tested_by_ours(tmp_path: Path, rate: float, verdict: str) -> None:
    cells = [{"rate": 100.0, "job": JOB, **A100}, {"rate": rate, "devices": (0, 1), "job": JOB, **A100}]
    (tested,) = claims.evidence(claim(), *run_of(tmp_path, *thrice(*cells)))
    assert tested.verdict == verdict and tested.ours.value == pytest.approx(rate / 100 - 1)
    assert (tested.low, tested.high) == (0.9, 0.95) and tested.what == "stack-a, resnet50-train-fp32-b4, gpu0+1"
    assert bool(tested.differs) == (verdict == "not comparable")


def test_a_claim_about_another_precision_is_shown_beside_ours_without_a_verdict(tmp_path: Path) -> None:
    cells = [{"rate": 100.0, **A100}, {"rate": 192.0, "devices": (0, 1), **A100}]
    (tested,) = claims.evidence(claim(precisions=("fp32-conv-tf32", "amp")), *run_of(tmp_path, *cells))
    assert tested.verdict == "not comparable" and tested.differs == ("precision: fp32-conv-tf32 or amp, ours fp32",)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gpus": ("A10",)}, "no cell of its GPU model: A10"),
        ({"models": ("bert-base-cased", "bert-large-cased")}, "no cell of its models: bert-base-cased, bert-large-cased"),
        ({"count": 4}, "no cell of them on 4 or more GPUs"),
        ({"quantity": "ratio"}, "it compares GPU models; one run has only one"),
        ({"quantity": "speed-up", "against": "without compile"}, "the baseline isn't measured: without compile"),
        ({"quantity": "speed-up", "against": "prayer"}, "the baseline isn't measured: prayer"),
    ],
)
def test_a_claim_that_was_not_measured_says_why(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    cells = [{"rate": 100.0, "job": JOB, **A100}, {"rate": 192.0, "devices": (0, 1), "job": JOB, **A100}]
    (tested,) = claims.evidence(claim(**change), *run_of(tmp_path, *cells))
    assert tested.verdict == "not measured" and tested.differs == (why,) and math.isnan(tested.ours.value)


def test_speed_ups_by_compile_and_by_amp_are_taken_from_cells_that_differ_in_that_only(tmp_path: Path) -> None:
    launches = [
        {"rate": 100.0, "workload": "eager", "job": JOB},
        {"rate": 160.0, "workload": "compiled", "job": {**JOB, "compile": True}},
        {"rate": 170.0, "workload": "other-batch", "job": {**JOB, "compile": True, "batch": 64}},
        {"rate": 50.0, "workload": "old", "stack": "old", "torch": "1.13.1+cu117", "job": JOB},
        {"rate": 40.0, "workload": "full", "job": {**JOB, "precision": "fp32"}},
    ]
    run = run_of(tmp_path, *thrice(*({**launch, **A100} for launch in launches)))
    about = {"quantity": "speed-up", "count": 1, "and_more": False, "precisions": ()}
    (compiled,) = claims.evidence(claim(**about, against="without compile", low=1.5, high=4.0), *run)
    assert compiled.ours.value == pytest.approx(1.6) and compiled.verdict == "reproduced"
    assert compiled.what == "stack-a, compiled, gpu0 over stack-a, eager"
    (older,) = claims.evidence(claim(**about, against="PyTorch 1 without compile", low=3.0, high=3.0), *run)
    assert older.ours.value == pytest.approx(3.2) and older.verdict == "better" and older.what.endswith("over old, old")
    (amp,) = claims.evidence(claim(**about, against="fp32", low=2.0, high=math.inf), *run)
    assert amp.ours.value == pytest.approx(2.5) and amp.verdict == "reproduced"
    (default,) = claims.evidence(claim(**about, against="fp32-conv-tf32", low=2.0, high=math.inf), *run)
    assert default.verdict == "not comparable" and default.differs == ("baseline: fp32-conv-tf32, ours fp32",)


def test_a_mean_speed_up_is_geometric_over_models_and_weighted_over_precisions(tmp_path: Path) -> None:
    rates = {("amp", "a"): 2.0, ("amp", "b"): 1.28, ("fp32", "a"): 1.2, ("fp32", "b"): 1.2}
    launches = [
        {"rate": rate, "workload": f"{model} {precision} {compiled}", "job": job, **A100}
        for (precision, model), speed_up in rates.items()
        for compiled, rate in ((False, 100.0), (True, 100.0 * speed_up))
        if (job := {**JOB, "model": f"timm.{model}x", "precision": precision, "compile": compiled})
    ]
    run = run_of(tmp_path, *thrice(*launches))
    about = {"quantity": "mean-speed-up", "count": 1, "and_more": False, "against": "without compile", "low": 1.5, "high": 1.5}
    mean = claim(**about, models=("timm.*",), precisions=("amp", "fp32"), suite=2, weights=(0.75, 0.25))
    (tested,) = claims.evidence(mean, *run)
    assert tested.ours.value == pytest.approx(0.75 * 1.6 + 0.25 * 1.2) and math.isnan(tested.ours.low)
    assert tested.verdict == "ambiguous" and tested.what == "stack-a, 2 models in amp and fp32"
    (more,) = claims.evidence(replace(mean, suite=61), *run)
    assert more.verdict == "not comparable" and more.differs == ("models: 61, ours 2",)
    (none,) = claims.evidence(replace(mean, models=("torchbench.*",)), *run)
    assert none.differs == ("no cell of its model: torchbench.*",)


def test_a_run_that_has_nothing_to_do_with_published_figures_has_no_section(tmp_path: Path) -> None:
    assert 'id="published"' not in page_of(tmp_path / "a", {})
    assert 'id="published"' not in page_of(tmp_path / "b", {"vendor": "cpu", "device": "Some CPU"})


def test_the_section_shows_ours_theirs_the_verdict_and_the_source(tmp_path: Path) -> None:
    page = page_of(tmp_path, *({"rate": rate, "job": JOB, **A100} for rate in (2460.0, 2470.0, 2480.0)))
    section = page[page.index('<section id="published"') : page.index('<section id="data"')]
    first, *others = section.split("<tbody>")[1].split("</tr>")[:-1]
    assert "2470</b>" in first and "1.000" in first and "reproduced" in first and "2346 – 2594" in first
    assert "NVIDIA: resnet50 v1.5, 1 × A100 80GB SXM4 (DGX A100)" in first and "data: real, ours synthetic" in first
    assert any("precision: tf32, ours amp" in row and "memory format: nchw, ours nhwc" in row for row in others)
    assert all("not comparable" in row for row in others) and '<a href="#published">' in page


def test_a_preset_stands_above_with_its_question_articles_and_deviations_all_of_it_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    text = preset_text(
        title=evil, question=evil, article=[evil, "https://example.org/a", "javascript:alert(1)"], deviations=[evil]
    )
    page = page_of(tmp_path, {"stack": evil, "workload": evil, "job": JOB, **A100}, matrix=text)
    section = page[page.index('<section id="published"') : page.index('<section id="data"')]
    assert "<script>alert" not in page and section.count("&lt;script&gt;alert(1)") >= 5
    assert '<a href="https://example.org/a">' in section and 'href="javascript' not in section
    assert "1 deviation from the article" in section


def test_a_preset_without_a_fitting_gpu_says_so_and_lists_its_claims(tmp_path: Path) -> None:
    text = (assets.PRESETS / "aime-2025.toml").read_text()
    page = page_of(tmp_path, {"vendor": "cpu", "device": "Some CPU"}, matrix=text)
    assert "No published throughput matches this run" in page and "AIME 2025: compiled training" in page
    assert page.count('class="verdict-not-measured"') == 7 and "more than 2" in page


@pytest.mark.parametrize("text", ["[preset]\n", "[preset]\ntitle = 3", "not toml [preset]", "[preset]\x00"])
def test_a_matrix_that_no_longer_parses_does_not_break_the_report(tmp_path: Path, text: str) -> None:
    page = page_of(tmp_path, {}, matrix=text)
    assert 'id="published"' not in page and "can’t read the matrix’s [preset] table" in page


def test_a_doubtful_published_figure_is_marked(tmp_path: Path) -> None:
    job = {"model": "bert-base-cased", "unit": "sequences", "image_size": None, "sequence_length": 384, "precision": "amp",
           "batch": 320, "attention": "eager"}  # fmt: skip
    eight = {"rate": 6000.0, "devices": tuple(range(8)), "device": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 * 2**30}
    page = page_of(tmp_path, *thrice({**eight, "job": job}))
    assert "audit of their figure: 8 GPUs at an efficiency of 1.358" in page and 'class="verdict-worse"' in page


def test_every_models_unit_is_known_without_being_written() -> None:
    for name, model in catalog.models().items():
        assert replace(THEIRS, model=name, unit="").is_vision == (model.unit == "images")
    assert isinstance(THEIRS, Figure) and not replace(THEIRS, model="", unit="").is_vision
