"""The factor table: ids, keys, flags and the reading of facts that were recorded before a factor was there."""

import json
from pathlib import Path

import pytest

import bench
import measurements
import recipes
from torchmatrix.core import assets
from torchmatrix.matrix import factors, matrix_file
from torchmatrix.matrix.factors import BY_NAME, FACTORS

DATA = Path(__file__).parents[1] / "data"
IDS = json.loads((DATA / "workload_ids.json").read_text())
"""Ids as the releases before the factor table made them, in their order."""


def _matrix(name: str) -> Path:
    if name == "everything":
        return DATA / "every_factor.toml"
    return assets.DEFAULT_MATRIX if name == "matrix.toml" else assets.PRESETS / f"{name}.toml"


@pytest.mark.parametrize("name", IDS)
def test_ids_and_their_order_are_those_of_older_runs(name: str) -> None:
    assert [workload.id for workload in matrix_file.load(_matrix(name)).workloads] == IDS[name]


def test_every_factor_has_a_meaning_and_a_flag_that_the_workload_program_takes() -> None:
    program = (assets.WORKLOAD / "bench.py").read_text()
    assert len(BY_NAME) == len(FACTORS) > 10
    for factor in FACTORS:
        assert factor.meaning and f'"{factor.flag}"' in program, factor.name


def test_the_workload_program_takes_every_choice() -> None:
    program = (assets.WORKLOAD / "bench.py").read_text()
    for factor in FACTORS:
        if factor.name not in ("mode", "precision"):
            assert [choice for choice in factor.choices if f'"{choice}"' not in program] == [], factor.name
    assert BY_NAME["precision"].choices == bench.PRECISIONS
    assert sorted(BY_NAME["mode"].choices) == measurements.names() == ["generate", "infer", "micro", "train"]


def test_the_plan_and_the_workload_know_the_same_recipes_of_float8() -> None:
    theirs = {name: (".".join(map(str, recipe.capability)), recipe.multiple) for name, recipe in recipes.FLOAT8.items()}
    assert theirs == {name: (recipe.capability, recipe.multiple) for name, recipe in factors.IN_FLOAT8.items()}
    assert recipes.IN_BLOCKS.keys() == {runtime.quantized for runtime in factors.RUNTIMES if runtime.capability == "10.0"}


def test_what_belongs_to_compile_varies_compiled_workloads_only() -> None:
    text = (
        '[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\nmodel = "resnet18"\nbatch = 1\ncompile = [false, true]\n'
        'compile_mode = ["default", "max-autotune"]\ncompile_shapes = ["auto", "static", "dynamic"]\n'
    )
    ends = [workload.id.removeprefix("resnet18-train-fp32-b1-224px") for workload in matrix_file.parse(text).workloads]
    shapes = ("", "-static-shapes", "-dynamic-shapes")
    assert ends == ["", *(f"-compile{mode}{shape}" for mode in ("", "-max-autotune") for shape in shapes)]
    eager = matrix_file.parse(text).workloads[0]
    assert (eager.factors["compile_mode"], eager.factors["compile_shapes"]) == ("default", "auto")


def test_only_ddp_that_trains_looks_for_unused_parameters() -> None:
    text = (
        '[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\nmodel = "resnet18"\nbatch = 1\nmode = ["train", "infer"]\n'
        'parallel = ["ddp", "fsdp"]\nfind_unused_parameters = [false, true]\n'
    )
    workloads = matrix_file.parse(text).workloads
    ends = [workload.id.removeprefix("resnet18-").replace("fp32-b1-224px", "…") for workload in workloads]
    assert ends[:3] == ["train-…", "train-…-find-unused", "train-…-fsdp"]
    assert not any("find-unused" in end for end in ends[2:])
    factor = BY_NAME["find_unused_parameters"]
    assert [factor.words_for(workload.factors[factor.name]) for workload in workloads[:3]] == [(), (factor.flag,), ()]
    assert factor.recorded_in({"mode": "train"}) is False


def test_runtimes_and_eval_are_of_inference_only() -> None:
    text = (
        '[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\nmodel = "resnet18"\nbatch = 1\nmode = ["train", "infer"]\n'
        'runtime = ["eager", "onnxruntime", "torchao-int8"]\neval = [true, false]\n'
    )
    ids = [workload.id.replace("fp32-b1-224px", "…") for workload in matrix_file.parse(text).workloads]
    infer = ["", "-train-mode", "-onnxruntime", "-onnxruntime-train-mode", "-torchao-int8", "-torchao-int8-train-mode"]
    assert ids == ["resnet18-train-…", *(f"resnet18-infer-…{end}" for end in infer)]


def test_values_of_one_factor_never_share_an_id() -> None:
    base = {"model": "m", "mode": "infer", "precision": "fp32", "batch": 1}
    for factor in FACTORS:
        values = (False, True) if factor.kind is bool else factor.choices
        ids = {factors.id_of({**base, factor.name: value}) for value in values}
        assert len(ids) == len(values) or not factor.part, factor.name


def test_facts_without_a_factor_have_its_default_where_it_applies() -> None:
    assert BY_NAME["compile"].recorded_in({"mode": "train"}) is False
    assert BY_NAME["compile"].recorded_in({"mode": "train", "compile": True}) is True
    assert BY_NAME["attention"].recorded_in({"attention": None}) is None


def test_a_factor_of_some_modes_and_devices_multiplies_only_these() -> None:
    text = (
        '[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\nmodel = "resnet18"\nbatch = 1\nmode = ["train", "infer"]\n'
        'cudnn_benchmark = [true, false]\ngrad = ["none", "no_grad", "inference_mode"]\n'
    )

    def ids(more: str) -> list[str]:
        return [workload.id.removesuffix("-fp32-b1-224px") for workload in matrix_file.parse(text + more).workloads]

    infer = [f"resnet18-infer-fp32-b1-224px-{grad}" for grad in ("grad-none", "grad-inference_mode")]
    assert ids('device = "cpu"\n') == ["resnet18-train", infer[0], "resnet18-infer", infer[1]]
    assert len(ids("")) == 2 + 2 * 3 and f"{infer[0].replace('-grad', '-no-cudnn-benchmark-grad')}" in ids("")


def test_what_was_recorded_before_a_factor_was_there_still_compares() -> None:
    old = {"mode": "infer", "device": "gpu"}
    assert [BY_NAME[name].recorded_in(old) for name in ("cudnn_benchmark", "grad")] == [True, "no_grad"]
    old = {"mode": "train", "device": "cpu"}
    assert [BY_NAME[name].recorded_in(old) for name in ("cudnn_benchmark", "grad")] == [None, None]
    assert BY_NAME["cudnn_benchmark"].words_for(True) == () == BY_NAME["grad"].words_for(None)
    assert BY_NAME["cudnn_benchmark"].words_for(False) == ("--no-cudnn-benchmark",)


def test_optimizers_and_checkpointing_multiply_training() -> None:
    text = (
        '[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\nmodel = "lm-1m"\nbatch = 1\nmode = ["train", "infer"]\n'
        'sequence_length = 16\ncheckpointing = [false, true]\noptimizer = ["adamw", "adamw-fused"]\n'
    )
    *workloads, infer = matrix_file.parse(text).workloads
    assert infer.optimizer == "adamw"
    ends = [workload.id.removeprefix("lm-1m-train-fp32-b1-s16-eager") for workload in workloads]
    assert ends == ["", "-checkpointing", "-adamw-fused", "-adamw-fused-checkpointing"]
    factor = BY_NAME["checkpointing"]
    assert factor.words_for(True) == ("--checkpointing",) and factor.recorded_in({"mode": "infer"}) is None


def test_only_training_accumulates_and_one_micro_batch_is_no_part_of_an_id() -> None:
    text = (
        '[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\nmodel = "lm-1m"\nbatch = 1\nmode = ["train", "infer"]\n'
        "accumulate = [1, 4]\n"
    )
    train, four, infer = matrix_file.parse(text).workloads
    assert four.id == f"{train.id}-accumulate4" and "accumulate" not in infer.id
    factor = BY_NAME["accumulate"]
    assert factor.words_for(four.factors["accumulate"]) == ("--accumulate", "4")
    assert factor.words_for(infer.factors["accumulate"]) == () and factor.recorded_in({"mode": "train"}) == 1


def test_what_acts_with_data_from_disk_has_no_value_elsewhere() -> None:
    dependents = [factor for factor in factors.FACTORS if factor.needs and factor.needs[0] == "data"]
    assert {factor.name for factor in dependents} == {"workers", "prefetch", "pin_memory", "decoder", "page_cache"}
    for factor in dependents:
        for data in ({}, {"data": "synthetic"}):  # of facts from before there was a choice, too
            assert factor.recorded_in({"mode": "train", **data, factor.name: factor.default}) is None
        assert factor.recorded_in({"mode": "train", "data": "disk", factor.name: factor.default}) == factor.default
