"""The audit: each kind of finding on an invented row, none on clean rows, and the command's exit codes."""

from pathlib import Path
from typing import Any

import pytest

from support.records import CLEAN, table, write_run
from torchmatrix.analysis import glossary, scaling
from torchmatrix.analysis.published import audit, figure_files
from torchmatrix.analysis.published.audit import Coverage, Finding
from torchmatrix.core import assets
from torchmatrix.core.errors import BadInput
from torchmatrix.matrix import catalog
from torchmatrix.reporting import report


def audited(tmp_path: Path, *changes: dict[str, Any]) -> list[Finding]:
    """Return the findings on rows that are CLEAN but for `changes`."""
    return audit.check(figure_files.read(table(tmp_path, *({**CLEAN, **change} for change in changes))))


def page_of(folder: Path, *launches: dict[str, Any]) -> str:
    return report.render(report.view_of(write_run(folder, list(launches))))


def test_clean_rows_have_no_finding(tmp_path: Path) -> None:
    bert = {"model": "bert-large-cased", "unit": "sequences/s", "memory_format": "", "image_size": "", "sequence_length": 384}
    assert audited(
        tmp_path,
        {},
        {"gpus": 2, "throughput": 4700},
        {"gpus": 8, "throughput": 19500.1, "date": "2025-02-01"},  # past midnight; E = 1.015
        {"precision": "tf32", "throughput": 1300},
        {"precision": "amp", "memory_format": "nchw", "throughput": 1390, "compile": "true"},
        {**bert, "batch_per_gpu": 32, "throughput": 110.5},
        {**bert, "batch_per_gpu": 32, "throughput": 61.5, "precision": "tf32"},
        {"gpu": "Some GPU", "throughput": 50, "image_size": ""},
        {"gpus": 0, "gpu": "CPU", "precision": "fp32", "batch_per_gpu": 1, "throughput": 8.33},
    ) == []  # fmt: skip


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def test_an_efficiency_that_cant_be(tmp_path: Path) -> None:
    finding = only(audited(tmp_path, {}, {"gpus": 8, "throughput": 26080}))
    assert (finding.row, finding.field, finding.value, finding.limit) == (3, "throughput", "26080", "efficiency 1.10")
    assert "8 GPUs at an efficiency of 1.358 over row 2 (2400.5 on one GPU)" in finding.reason
    assert (finding.level, finding.unit) == ("impossible", "images/s")


@pytest.mark.parametrize(
    ("throughput", "level", "limit"),
    [
        (19588.0, None, None),  # E = 1.01999 at most, by its digits
        (19600.5, "suspect", "efficiency 1.02"),
        (21120.5, "suspect", "efficiency 1.02"),  # E = 1.0998
        (21130.5, "impossible", "efficiency 1.10"),  # E = 1.1003
    ],
)
def test_a_published_efficiency_is_suspect_first_and_impossible_above_1_10(
    tmp_path: Path, throughput: float, level: str | None, limit: str | None
) -> None:
    findings = audited(tmp_path, {}, {"gpus": 8, "throughput": throughput})
    assert [(finding.level, finding.limit) for finding in findings] == ([(level, limit)] if level else [])


def test_a_missing_batch_does_not_switch_the_efficiency_check_off(tmp_path: Path) -> None:
    single, eight = {"batch_per_gpu": ""}, {"gpus": 8, "throughput": 26080.5, "batch_per_gpu": ""}
    both = [f for f in audited(tmp_path, single, eight) if f.field == "throughput"]
    assert [(f.level, f.limit) for f in both] == [("impossible", "efficiency 1.10")]
    assert both[0].reason.endswith("no machine scales better than linearly; the batch per GPU isn't stated.")
    (either,) = [f for f in audited(tmp_path, {}, eight) if f.field == "throughput"]
    assert (either.level, either.limit) == ("suspect", "efficiency 1.02")
    assert either.reason.endswith("but the batch may differ (not stated, there 512 per GPU).")


@pytest.mark.parametrize(
    ("sibling", "level", "words"),
    [
        ({"gpus": 4, "throughput": 9600.5}, "impossible", "8 GPUs at an efficiency of 1.167 over row 2 (9600.5 on 4 GPUs)"),
        ({"gpus": 4, "throughput": 10600.5}, "suspect", "an efficiency of 1.057 over row 2"),
        ({"gpus": 1, "batch_per_gpu": 1024}, "suspect", "the batch may differ (512 per GPU, there 1024 per GPU)"),
        ({"gpus": 1, "batch_per_gpu": 256}, None, ""),  # a smaller batch is slower per GPU
        ({"gpus": 4, "throughput": 11200.5}, None, ""),
    ],
)
def test_without_a_baseline_a_figure_is_checked_against_its_siblings(
    tmp_path: Path, sibling: dict[str, Any], level: str | None, words: str
) -> None:
    findings = audited(tmp_path, sibling, {"gpus": 8, "throughput": 22400.5})
    assert [f.level for f in findings] == ([level] if level else []) and words in "".join(f.reason for f in findings)


def test_what_is_held_against_nothing_is_counted(tmp_path: Path) -> None:
    several = [
        {}, {"gpus": 2, "throughput": 4700}, {"gpus": 8, "throughput": 18000, "model": "resnet18"},
        {"gpus": 2, "throughput": 2300, "precision": "tf32"}, {"gpus": 4, "throughput": 4300, "precision": "tf32"},
    ]  # fmt: skip
    figures_of = figure_files.read(table(tmp_path, *({**CLEAN, **change} for change in several)))
    assert audit.coverage(figures_of) == Coverage(several=4, baseline=1, siblings=1, unchecked=2)


def test_an_efficiency_that_only_rounding_makes_is_none(tmp_path: Path) -> None:
    coarse = {"batch_per_gpu": 1, "precision": "fp32"}
    findings = audited(tmp_path, {**coarse, "throughput": 10}, {**coarse, "gpus": 2, "throughput": 21})
    assert [finding.limit for finding in findings] == ["1 %", "1 %"]


def test_of_several_baselines_the_fastest_of_the_nearest_counts(tmp_path: Path) -> None:
    slow, fast = {"throughput": 2000.5}, {"throughput": 2400.5}
    elsewhere = {"throughput": 1000.5, "machine": "m2"}
    assert audited(tmp_path, slow, fast, elsewhere, {"gpus": 2, "throughput": 4800}) == []


@pytest.mark.parametrize(
    "change", [{"batch_per_gpu": 256}, {"precision": "tf32"}, {"torch": "2.7.0"}, {"vendor": "W"}, {"compile": "true"}]
)
def test_another_job_is_no_baseline(tmp_path: Path, change: dict[str, Any]) -> None:
    assert audited(tmp_path, {**change, "throughput": 1700}, {"gpus": 2, "throughput": 4800}) == []


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [("machine", "m2", "the same machine"), ("driver", "560.9", "the same driver"), ("date", "2025-01-29", "1 day apart")],
)
def test_a_baseline_from_elsewhere(tmp_path: Path, field: str, value: str, limit: str) -> None:
    finding = only(audited(tmp_path, {field: value}, {"gpus": 2, "throughput": 4700}))
    assert (finding.row, finding.field, finding.value, finding.limit) == (3, field, CLEAN[field], limit)
    assert value in finding.reason and "row 2" in finding.reason


def test_what_is_unknown_of_a_baseline_is_not_elsewhere(tmp_path: Path) -> None:
    assert audited(tmp_path, {"machine": "", "driver": "", "date": ""}, {"gpus": 2, "throughput": 4700}) == []
    assert audited(tmp_path, {"date": "2025"}, {"gpus": 2, "throughput": 4700}) == []
    assert only(audited(tmp_path, {"date": "2024"}, {"gpus": 2, "throughput": 4700})).field == "date"


def test_lambdas_machine_is_read_from_its_logs_place() -> None:
    figures = {f.row: f for f in figure_files.read(assets.PUBLISHED / "lambda.csv")}
    assert figures[7].machine == "3090_v1" and figures[44].machine == "2x3090_v1"


def test_amp_that_gains_too_little_on_tensor_cores(tmp_path: Path) -> None:
    finding = only(audited(tmp_path, {"precision": "tf32"}, {"throughput": 2500}))
    assert (finding.row, finding.field, finding.limit) == (3, "throughput", "1.10 times")
    assert "amp is 1.04 times tf32 (row 2)" in finding.reason


@pytest.mark.parametrize(
    "change",
    [
        {"gpu": "Some GPU"},
        {"batch_per_gpu": 64},  # 64 x 3 x 8.18 GFLOP are 5 ms at the peak: the host may be slower
        {"data": "real"},
        {"gpus": 8, "throughput": 19000},
        {"model": "NN-of-ours"},
    ],
)
def test_a_small_gain_is_not_judged_where_something_else_may_bound_it(tmp_path: Path, change: dict[str, Any]) -> None:
    assert audited(tmp_path, {"precision": "tf32", **change}, change) == []


@pytest.mark.parametrize(
    ("precision", "images", "levels"),
    [("amp-bf16", 300, set()), ("amp-bf16", 1000, {"impossible"}), ("tf32", 300, set()), ("tf32", 1000, {"impossible"})],
)
def test_early_tensor_cores_take_fp16_only(tmp_path: Path, precision: str, images: float, levels: set[str]) -> None:
    """A V100 computes bfloat16 and TF32 on its CUDA cores, so as fp32: at 14 TFLOP/s, 570 images/s of ResNet-50, at most."""
    row = {"gpu": "V100 PCIe 16GB", "batch_per_gpu": 64}
    found = audited(
        tmp_path, {**row, "precision": "fp32", "throughput": 380}, {**row, "precision": precision, "throughput": images}
    )
    assert {finding.level for finding in found} == levels, found


@pytest.mark.parametrize(
    ("gpu", "images", "level"),
    [("A100 80GB PCIe", 1012, "suspect"), ("A100 80GB PCIe", 9000, "impossible"), ("V100 PCIe 16GB", 1012, "impossible"),
     ("A100 80GB PCIe", 700, "")],
)  # fmt: skip
def test_others_may_call_fp32_what_has_convolutions_in_tf32(tmp_path: Path, gpu: str, images: float, level: str) -> None:
    """1,012 images/s of ResNet-50 were measured so on an A100: 25 TFLOP/s, whose peak in fp32 is 20."""
    found = audited(tmp_path, {"gpu": gpu, "precision": "fp32", "throughput": images, "batch_per_gpu": 768})
    assert [finding.level for finding in found] == ([level] if level else []), found
    assert level != "suspect" or "convolutions in TF32" in found[0].reason


@pytest.mark.parametrize(
    ("unit", "model", "throughput"),
    [
        ("TPS/GPU", "llama-3.1-8b-shape", 66_670),
        ("WPS", "llama-3.1-8b-shape", 66_670),
        ("tok/s/gpu", "llama-3.1-8b-shape", 66_670),
    ],
)
def test_words_for_tokens_per_second(tmp_path: Path, unit: str, model: str, throughput: float) -> None:
    row = {"gpu": "H100 SXM", "model": model, "unit": unit, "precision": "bfloat16", "image_size": "", "memory_format": ""}
    found = audited(tmp_path, {**row, "throughput": throughput}, {**row, "throughput": throughput / 10})
    assert [(finding.row, finding.level) for finding in found if finding.field == "throughput"] == [(2, "impossible")], found


@pytest.mark.parametrize("unit", ["clips/s", "videos/s"])
def test_clips_scale_like_anything_else(tmp_path: Path, unit: str) -> None:
    row = {"model": "r3d_18", "unit": unit, "image_size": "", "memory_format": "", "throughput": 100}
    found = audited(tmp_path, row, {**row, "gpus": 8, "throughput": 8000})
    assert [(finding.row, finding.level, finding.field) for finding in found] == [(3, "impossible", "throughput")], found


@pytest.mark.parametrize("word", ["amp_fp16", "float16", "bfloat16", "float32", "bf16-mixed", "16-mixed"])
def test_words_for_precisions_of_other_tools(tmp_path: Path, word: str) -> None:
    found = audited(tmp_path, {"precision": word, "throughput": 27_000})
    assert [finding.level for finding in found] == ["impossible"], found


def test_a_figure_per_gpu_is_held_against_the_peak_without_their_number(tmp_path: Path) -> None:
    row = {"gpus": "", "unit": "tokens/s/GPU", "model": "llama-3.1-8b-shape", "image_size": "", "memory_format": ""}
    found = audited(tmp_path, {**row, "gpu": "H100 SXM", "precision": "amp-bf16", "throughput": 60_000})
    assert [(f.level, f.field) for f in found] == [("impossible", "throughput"), ("unclear", "gpus")]
    assert found[1].reason == "The number of GPUs is unknown, so the scaling can't be checked."


def test_a_gain_over_a_larger_batch_is_not_judged(tmp_path: Path) -> None:
    assert audited(tmp_path, {"precision": "tf32", "batch_per_gpu": 1024}, {}) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"precision": "fp32", "throughput": 882}, "22 TFLOP/s of each GPU, whose peak in fp32 is 20"),
        ({"gpus": 8, "throughput": 110_000}, "337 TFLOP/s of each GPU, whose peak in amp is 312"),
        (
            {"model": "bert-large-cased", "unit": "sequences/s", "sequence_length": 384, "image_size": "", "throughput": 460},
            "320 TFLOP/s",
        ),
        ({"mode": "infer", "throughput": 39_000}, "319 TFLOP/s"),
    ],
)
def test_more_than_the_peak(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    finding = only(audited(tmp_path, change))
    assert words in finding.reason and finding.limit.endswith("TFLOP/s")


def test_a_little_more_than_the_peak_is_suspect_as_cards_may_run_above_their_boost_clock(tmp_path: Path) -> None:
    little, more = only(audited(tmp_path, {"throughput": 12720})), only(audited(tmp_path, {"throughput": 14000}))
    assert (little.level, little.limit) == ("suspect", "312 TFLOP/s") and "312.15 TFLOP/s of each GPU, whose" in little.reason
    assert (more.level, more.limit) == ("impossible", "312 TFLOP/s") and "344 TFLOP/s of each GPU" in more.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image_size": ""}, "the image size isn't given"),
        ({"model": "bert-large-cased", "unit": "sequences/s"}, "the sequence length isn't given"),
        ({"model": "NN-of-ours"}, 'the operations of the model "NN-of-ours" aren\'t known'),
        ({"gpu": "RTX 4090 Laptop GPU"}, 'gpus.csv lists no GPU that surely is "RTX 4090 Laptop GPU"'),
        ({"unit": "images/min"}, "it is in images/min, not in items per second"),
        ({"unit": "ms/step"}, "it is in ms/step, not in items per second"),
        ({"unit": "ms per image/GPU"}, "it is in ms per image/GPU, not in items per second"),
        ({"unit": "tokens/s"}, "it is in tokens/s, which resnet50 has none of"),
        ({"unit": "sequences/s/GPU"}, "it is in sequences/s/GPU, which resnet50 has none of"),
        ({"unit": ""}, "its unit isn't given"),
        ({"gpu": "A100"}, 'gpus.csv lists no GPU that surely is "A100"'),
        ({"gpu": ""}, "no GPU is named"),
        ({"gpus": ""}, "the number of GPUs isn't given"),
        ({"gpus": 0, "gpu": "CPU i9"}, "it was measured without a GPU"),
        ({"precision": "fp4"}, 'it isn\'t known what the precision "fp4" means'),
        ({"precision": ""}, "the precision isn't given"),
        ({"gpu": "T4", "precision": "fp8"}, "no peak of T4 in fp8 is known"),
    ],
)
def test_a_figure_is_held_against_a_peak_or_counted_with_the_reason(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    figures = figure_files.read(table(tmp_path, CLEAN, {**CLEAN, **change, "throughput": 99_999_999.5}))
    result = audit.checked(figures)
    assert (result.figures, result.against_peak, result.against_scaling) == (2, 1, 0)
    assert [(figure.row, figure.reason) for figure in result.unchecked] == [(3, reason)]
    assert not any(finding.field == "throughput" for finding in audit.check(figures))


def test_rounding_to_integers_at_small_values(tmp_path: Path) -> None:
    small = {"precision": "fp32", "batch_per_gpu": 1}
    finding = only(audited(tmp_path, {**small, "throughput": 42}))
    assert finding.reason == "It is rounded to ± 0.5, which is 1.2 % of it." and finding.limit == "1 %"
    assert audited(tmp_path, {**small, "throughput": 50}) == [] and audited(tmp_path, {**small, "throughput": "42.0"}) == []


def test_an_unknown_memory_format_or_batch(tmp_path: Path) -> None:
    assert only(audited(tmp_path, {"memory_format": ""})).field == "memory_format"
    assert only(audited(tmp_path, {"batch_per_gpu": ""})).field == "batch_per_gpu"


def test_the_definition_names_the_limits_that_are_used() -> None:
    text = glossary.DEFINITIONS["audit"]
    assert (
        f"{audit.SUSPECT_EFFICIENCY}" in text
        and f"{scaling.IMPOSSIBLE_UNTESTED:.2f}" in text
        and f"{audit.LEAST_GAIN} times" in text
        and f"{100 * audit.ROUNDING:g} %" in text
    )


def test_a_vendors_raw_columns_and_words_are_read(tmp_path: Path) -> None:
    row = {"vendor": "timm", "gpu": "rtx3090", "n_gpus": 1, "model": "resnet50", "mode": "inference", "precision": "amp nhwc",
           "compile": "no", "batch_size_per_gpu": 1024, "throughput": 3544.26, "unit": "images/s", "torch_version": "1.10",
           "container_image": "cu113", "source_file": "f"}  # fmt: skip
    (figure,) = figure_files.read(table(tmp_path, row))
    assert (figure.gpus, figure.mode, figure.precision, figure.memory_format) == (1, "infer", "amp", "nhwc")
    assert (figure.compile, figure.batch_per_gpu, figure.torch, figure.image, figure.source) == (
        False,
        1024,
        "1.10",
        "cu113",
        "f",
    )
    assert (figure.gpu, figure.published_gpu, figure.rounding) == ("GeForce RTX 3090", "rtx3090", pytest.approx(0.005))
    (other,) = figure_files.read(
        table(tmp_path, {**row, "gpu": "NVIDIA A100-SXM4-80GB", "precision": "fp32 (TF32 where it is)"})
    )
    assert other.gpu == "A100 80GB SXM4" and other.precision == "" and other.published_precision.startswith("fp32 (TF32")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows"),
        ("gpu,gpus,model,throughput\n", "no rows"),
        ("gpu,gpus,model\na,1,b\n", "no column throughput"),
        ("gpu,gpus,model,throughput\na,1,b\n", "row 2: not as many fields"),
        ("gpu,gpus,model,throughput\n\na,1,b,many\n", 'row 3, throughput: "many"'),
        ("gpu,gpus,model,throughput\na,1,b,nan\n", "not a number above 0"),
        ("gpu,gpus,model,throughput\na,1,b,\n", "row 2: no throughput"),
        ("gpu,gpus,model,throughput\na,2+,b,3.5\n", "not a whole number"),
        ('gpu,gpus,model,throughput\na,1,"b,3.5\n', "can't read"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"bad\.csv") as error:
        figure_files.read(path)
    assert words in str(error.value) and error.value.hint


def test_our_own_cells_are_audited_by_the_same_rules(tmp_path: Path) -> None:
    page = page_of(tmp_path / "a", {"rate": 100.0}, {"rate": 210.0, "devices": (0, 1)})
    assert "Audit: 1 finding (" in page and "2 GPUs at an efficiency of 1.050 over stack-a/resnet50-train-fp32-b4/gpu0" in page
    assert "Audit: 0 findings" in page_of(tmp_path / "b", {}, {"rate": 190.0, "devices": (0, 1)})


def test_a_report_says_what_its_audit_rests_on(tmp_path: Path) -> None:
    checked = page_of(tmp_path / "a", {}, {"rate": 190.0, "devices": (0, 1)})
    assert "Audit: 0 findings; 2 of 2 figures were held against a peak, 1 against scaling<" in checked
    cpu = page_of(tmp_path / "b", {"vendor": "cpu", "device": "cpu"})
    assert "Audit: none could be checked" in cpu and "0 of 1 figures were held against a peak" in cpu
    assert "because it was measured without a GPU." in cpu


def test_operations_that_the_workload_counted_are_held_against_the_peak(tmp_path: Path) -> None:
    job = {"model": "mine.py:Net@0123", "image_size": None}
    counted = page_of(tmp_path / "a", {"rate": 1000.0, "flops": 1e12, "job": job})
    assert "It needs 1000 TFLOP/s of each GPU, whose peak in fp32 is 67." in counted
    unknown = page_of(tmp_path / "b", {"rate": 1000.0, "job": job})
    assert "the operations of the model &#34;mine.py:Net@0123&#34; aren&#39;t known" in unknown


def test_another_stack_is_no_baseline_of_ours(tmp_path: Path) -> None:
    page = page_of(tmp_path, {"rate": 100.0, "stack": "b"}, {"rate": 210.0, "devices": (0, 1)})
    assert "Audit: 0 findings" in page


EACH = ("images/s/GPU", "images/s/device", "images/s per GPU", "img/sec/gpu", "images/GPU/s", "samples per second per card")


@pytest.mark.parametrize("unit", EACH)
def test_figures_per_gpu_are_those_of_each_gpu(tmp_path: Path, unit: str) -> None:
    """2,600 on one GPU and 4,100 on each of eight scale at 1.58; as a sum it would pass for 0.2."""
    finding = only(audited(tmp_path, {"unit": unit, "throughput": 2600}, {"unit": unit, "gpus": 8, "throughput": 4100}))
    assert (finding.level, finding.value, finding.unit) == ("impossible", "8 x 4100", unit)
    assert "efficiency of 1.577 over row 2 (1 x 2600 on one GPU)" in finding.reason
    assert not audited(tmp_path, {"unit": unit, "throughput": 2400}, {"unit": unit, "gpus": 8, "throughput": 2350})
    figures = figure_files.read(table(tmp_path, {**CLEAN, "unit": unit, "gpus": "", "throughput": 2400}))
    assert audit.checked(figures).against_peak == 1, "the peak of one needs no number of GPUs"


@pytest.mark.parametrize("unit", ["ms/step", "ms", "s/it", "seconds", "step_time", "latency", "ms/image", "minutes", "s/epoch"])
def test_times_are_no_throughputs(tmp_path: Path, unit: str) -> None:
    """A time that falls to a quarter on eight GPUs is no efficiency of 0.03, nor one that rises one of 2."""
    rows = [{**CLEAN, "unit": unit}, {**CLEAN, "unit": unit, "gpus": 8, "throughput": 99_000}]
    figures = figure_files.read(table(tmp_path, *rows))
    result = audit.checked(figures)
    assert (result.against_peak, result.against_scaling, audit.check(figures)) == (0, 0, [])
    assert [figure.reason for figure in result.unchecked] == [f"it is in {unit}, not in items per second"] * 2


@pytest.mark.parametrize(
    ("unit", "throughput", "is_impossible"),
    [("tokens/s", 60_000, False), ("", 60_000, False), ("sequences/s", 60_000, True), ("tokens/s", 60_000_000, True)],
)
def test_tokens_are_no_sequences(tmp_path: Path, unit: str, throughput: int, is_impossible: bool) -> None:
    bert = {"model": "bert-large-cased", "memory_format": "", "image_size": "", "sequence_length": 384, "unit": unit}
    levels = [finding.level for finding in audited(tmp_path, {**bert, "throughput": throughput})]
    assert ("impossible" in levels) == is_impossible


@pytest.mark.parametrize(
    "name", ["vit_b_16", "vgg16", "gpt2", "llama-3.1-8b-shape", "qwen3-30b-a3b-shape", "timm.resnet50d", "resnet18"]
)
def test_an_impossible_figure_of_any_listed_model_is_found(tmp_path: Path, name: str) -> None:
    """989 TFLOP/s are the peak of an H100 in fp16; a training step needs three times the forward pass."""
    model = catalog.models()[name]
    assert model.forward_flops
    per_item = 3 * model.forward_flops
    row = {
        "gpu": "H100 SXM",
        "model": name,
        "unit": f"{model.unit if model.unit != 'sequences' else 'tokens'}/s",
        "precision": "amp",
        "mode": "train",
    }
    for share, levels in ((0.6, []), (0.99, []), (1.2, ["impossible"])):
        found = audited(tmp_path, {**row, "throughput": round(share * 989.4e12 / per_item, 3)})
        assert [finding.level for finding in found if finding.field == "throughput" and finding.level == "impossible"] == levels


def test_most_listed_models_have_operations() -> None:
    listed = [model for model in catalog.models().values() if model.unit != "clips"]
    unknown = {model.name for model in listed if model.forward_flops is None}
    resized = {"fasterrcnn_resnet50_fpn", "fcos_resnet50_fpn", "retinanet_resnet50_fpn", "ssdlite320_mobilenet_v3_large"}
    of_one_size = {f"timm.{name}" for name in ("deit3_small_patch16_224", "eva02_tiny_patch14_224", "levit_128s")}
    assert unknown - resized - of_one_size <= {
        "longformer-base-4096", "timm.vit_tiny_patch16_224", "unet-ddpm-cifar10", "unet-tiny",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "mode", "tokens", "is_impossible"),
    [
        # bert-base-cased computes 170 MFLOP for a token: its embeddings, a fifth of its parameters, are looked up.
        ("bert-base-cased", "train", 1.7e6, False),
        ("bert-base-cased", "train", 2.2e6, True),
        # roberta-base may be trained with a head of two classes: 171 MFLOP, and 77 more only with the vocabulary.
        ("roberta-base", "train", 1.7e6, False),
        ("roberta-base", "train", 2.2e6, True),
        # A prefill of llama-3.2-1b compares the last token of each prompt with the vocabulary, its training every one.
        ("llama-3.2-1b-shape", "infer", 480e3, False),
        ("llama-3.2-1b-shape", "infer", 600e3, True),
        ("llama-3.2-1b-shape", "train", 120e3, False),
        ("llama-3.2-1b-shape", "train", 150e3, True),
    ],
)
def test_a_model_is_held_against_no_more_than_it_must_compute(
    tmp_path: Path, model: str, mode: str, tokens: float, is_impossible: bool
) -> None:
    row = {"gpu": "H100 SXM", "model": model, "unit": "tokens/s", "precision": "amp", "mode": mode, "throughput": tokens}
    levels = {finding.level for finding in audited(tmp_path, {**row, "image_size": "", "memory_format": ""})}
    assert ("impossible" in levels) == is_impossible


@pytest.mark.parametrize("name", ["image_size", "batch_per_gpu", "sequence_length", "throughput"])
@pytest.mark.parametrize("value", ["1e200", "1e308", "1e-300", "inf", "-1", "0"])
def test_no_number_of_a_table_stops_the_audit_of_the_others(tmp_path: Path, name: str, value: str) -> None:
    taken = figure_files.take(table(tmp_path, {**CLEAN, name: value}, CLEAN))
    audit.check(taken.figures)
    assert len(taken.unparsed) + len(taken.figures) == 2 and audit.checked(taken.figures).figures >= 1
