"""Presets: exactly the articles' stacks and cells, the cells that a machine skips and why, and the verbs that show them."""

import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from support import Command
from torchmatrix.analysis import gpu_specs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import count
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.matrix import catalog, variants
from torchmatrix.matrix.matrix_file import load, parse
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Plan, make_plan

NEWEST = ["torch2.15.0-cu132 3.12", "nvidia-pytorch-26.05-py3"]
STACKS = {
    "accept": ["torch2.7.1-cu128 3.11", "torch2.7.1-rocm6.3 3.11", "torch2.7.1-cpu 3.11"],
    "accept-pairs": ["torch2.7.1-cu128 3.11", "torch2.7.1-rocm6.3 3.11"],
    "accept-quick": ["torch2.7.1-cu128 3.11", "torch2.7.1-rocm6.3 3.11", "torch2.7.1-cpu 3.11"],
    "aime-2023": [
        "torch1.12.1-cu113 3.9", "torch1.13.1-cu117 3.8", "torch2.0.0-cu118 3.8", "torch2.1.0-cu118 3.10",
        "rocm-pytorch-rocm5.4_ubuntu20.04_py3.8_pytorch_1.12.1", *NEWEST,
    ],
    "aime-2025": [
        "torch2.5.1-cu124 3.11", "torch2.7.0-cu128 3.11", "torch2.5.1-rocm6.2 3.10", "nvidia-pytorch-24.10-py3",
        "nvidia-pytorch-25.02-py3", *NEWEST,
    ],
    "bourke-2023": ["torch2.0.0-cu118 3.10", *NEWEST],
    "bourke-2023-cpu": ["torch2.0.1-cpu 3.10", "torch2.7.1-cpu 3.11"],
    "bridger-2023": [
        "torch2.0.1-cu118 3.10", "torch2.1.2-cu121 3.10", "torch2.3.1-cu121 3.11", "torch2.5.1-cu124 3.11",
        "torch2.7.1-cu128 3.11", "torch2.9.1-cu128 3.11", "torch2.15.0-cu132 3.12", "nvidia-pytorch-25.02-py3",
        "nvidia-pytorch-26.05-py3",
    ],
    "bridger-2023-core": ["torch2.15.0-cu132 3.12"],
    "bridger-2023-cpu": ["torch2.5.1-cpu 3.11", "torch2.7.1-cpu 3.11"],
    "bridger-2023-half": ["torch2.15.0-cu132 3.12"],
    "disk": ["torch2.9.1-cu128 3.11", "torch2.15.0-cu132 3.12", "torch2.9.1-rocm6.3 3.11"],
    "disk-cpu": ["torch2.7.1-cpu 3.11"],
    "lambda": ["nvidia-pytorch-22.10-py3", "nvidia-pytorch-24.03-py3", "nvidia-pytorch-25.06-py3", *NEWEST],
    "llm-cpu": ["torch2.7.1-cpu 3.11", "torch2.15.0-cpu 3.12"],
    "llm-decode": ["torch2.7.1-cu128 3.11", "torch2.15.0-cu132 3.12", "torch2.7.1-rocm6.3 3.11"],
    "llm-train": ["torch2.7.1-cu128 3.11", NEWEST[0], "torch2.7.1-rocm6.3 3.11", NEWEST[1]],
    "nebuly-2023": ["torch2.7.1-cu128 3.11", *NEWEST],
    "nebuly-2023-cpu": ["torch2.7.1-cpu 3.11"],
    "nvidia-dle": ["nvidia-pytorch-22.03-py3", *NEWEST],
    "pytorch-2.0": ["torch2.0.0-cu118 3.10", NEWEST[0]],
    "pytorch-2.0-cpu": ["torch2.15.0-cpu 3.12"],
    "suite": ["torch2.15.0-cu130 3.12", "torch2.7.1-cu128 3.11"],
    "suite-cpu": ["torch2.5.1-cpu 3.11"],
    "versions": [
        "torch1.12.1-cpu 3.9", "torch1.13.1-cpu 3.9", "torch2.0.1-cpu 3.9", "torch2.1.2-cpu 3.9", "torch2.5.1-cpu 3.11",
        "torch2.15.0-cpu 3.13",
    ],
}  # fmt: skip
"""Stacks that each article ran, with the Python of wheels, and the newest at the end."""
OUR_OWN = (
    "accept",
    "accept-pairs",
    "accept-quick",
    "disk",
    "disk-cpu",
    "llm-cpu",
    "llm-decode",
    "llm-train",
    "versions",
    "suite",
    "suite-cpu",
    "bourke-2023-cpu",
    "bridger-2023",
    "bridger-2023-core",
    "bridger-2023-cpu",
    "bridger-2023-half",
    "nebuly-2023",
    "nebuly-2023-cpu",
    "pytorch-2.0-cpu",
)
"""Presets that repeat no published figures."""
ON_A_CPU = tuple(name for name in STACKS if name in ("versions", "accept", "accept-quick") or name.endswith("-cpu"))


@pytest.fixture
def a100_host(nvidia_host: Host) -> Host:
    """Return a host with eight A100 of 80 GB and a driver for CUDA 13."""
    model = replace(nvidia_host.gpus[0], name="NVIDIA A100-SXM4-80GB", capability="8.0")
    eight = tuple(replace(model, index=i, uuid=f"GPU-{i}") for i in range(8))
    return replace(nvidia_host, gpus=eight, driver="595.45.04")


def plan_of(name: str, host: Host, containers: bool = True) -> Plan:
    return make_plan(variants.load_preset(name), host, Prerequisites(containers=containers))


def measured(name: str, host: Host, glob: str) -> list[tuple[str, str, bool, bool, int, int | str]]:
    """Return (model, precision, compile, channels_last, GPUs, batch) of the cells on stacks whose names start with `glob`."""
    return [
        (w.model, w.precision, w.compile, w.factors["channels_last"], len(cell.gpus.indices), w.batch)
        for cell in plan_of(name, host).cells
        if cell.stack.name.startswith(glob) and (w := cell.workload)
    ]


def test_the_presets_are_those_of_the_table() -> None:
    assert variants.preset_names() == tuple(STACKS)


@pytest.mark.parametrize("name", variants.preset_names())
def test_a_preset_says_what_it_repeats_and_has_the_articles_stacks(name: str) -> None:
    matrix = variants.load_preset(name)
    preset = matrix.preset
    assert preset and all((preset.title, preset.question.endswith("?"), preset.deviations))
    assert bool(preset.article) == bool(preset.claims) == (name not in OUR_OWN)
    assert all(sentence.endswith(".") for sentence in preset.deviations)
    assert [f"{stack.name} {stack.python or ''}".strip() for stack in matrix.stacks] == STACKS[name]
    launches = {"accept": 5, **dict.fromkeys(("bridger-2023-cpu", "llm-cpu", "pytorch-2.0-cpu", "suite-cpu"), 1)}
    assert matrix.method.launches == launches.get(name, 3) and matrix.method.name == (
        "aime" if name.startswith("aime") else "steady"
    )


def test_the_newest_wheels_are_the_catalogs_newest() -> None:
    newest = list(catalog.load().releases.values())[-1]
    assert NEWEST[0] == f"torch{newest.torch}-{newest.pypi} {newest.default_python}"


def test_aime_2023_has_five_versions_eager_or_compiled_on_one_to_eight_gpus(a100_host: Host) -> None:
    old, two, only_compiled = (measured("aime-2023", a100_host, f"torch{v}") for v in ("1.12.1", "2.0.0", "2.1.0"))
    batches = {"resnet50": 768, "bert-base-cased": 64, "bert-large-cased": 32}
    pairs = [("resnet50", p) for p in ("fp32", "tf32", "amp")]
    pairs += [(model, p) for model in ("bert-base-cased", "bert-large-cased") for p in ("fp32", "amp")]
    wanted = {(m, p, False, False, n, batches[m]) for m, p in pairs for n in (1, 2, 4, 8)}
    compiled = {(m, p, True, False, n, b) for m, p, _, _, n, b in wanted}
    assert set(old) == wanted and set(measured("aime-2023", a100_host, "torch1.13.1")) == wanted
    assert set(two) == wanted | compiled and set(only_compiled) == compiled
    assert len(plan_of("aime-2023", a100_host).cells) == 9 * 7 * 4
    assert {skip.why.reason for skip in plan_of("aime-2023", a100_host).skips} == {
        "needs an AMD GPU; this machine has 8 x NVIDIA A100-SXM4-80GB"
    }


def test_aime_2025_is_compiled_on_one_two_and_four_gpus_and_eager_on_one(a100_host: Host) -> None:
    cells = measured("aime-2025", a100_host, "torch2.5.1-cu124")
    assert Counter((compile_, count) for _, _, compile_, _, count, _ in cells) == {
        (True, 1): 5, (True, 2): 5, (True, 4): 5, (False, 1): 5
    }  # fmt: skip
    assert (
        variants.load_preset("aime-2025").method.steps == 50
        and variants.load_preset("aime-2025").method.start_below_celsius == 50
    )


def test_lambda_has_its_batches_and_both_memory_formats(a100_host: Host) -> None:
    cells = set(measured("lambda", a100_host, "nvidia-pytorch-22.10"))
    for channels_last in (False, True):
        assert ("resnet50", "tf32", False, channels_last, 1, 640) in cells
        assert ("resnet50", "amp", False, channels_last, 8, 1280) in cells
    assert {c[-1] for c in cells if c[0] == "bert-large-cased"} == {112}
    assert {c[-1] for c in cells if c[0] == "bert-base-cased"} == {320}


def test_nvidias_table_is_tf32_in_nchw_and_amp_in_nhwc_on_one_and_eight_gpus(a100_host: Host) -> None:
    assert set(measured("nvidia-dle", a100_host, "nvidia-pytorch-22.03")) == {
        ("resnet50", precision, False, precision == "amp", count, 256) for precision in ("tf32", "amp") for count in (1, 8)
    }


def test_bourkes_run_is_five_epochs_of_391_steps_eager_and_compiled(a100_host: Host) -> None:
    workloads = {cell.workload for cell in plan_of("bourke-2023", a100_host).cells}
    assert {(w.factors["steps"], w.factors["windows"], w.batch, w.precision) for w in workloads} == {(391, 5, 128, "tf32")}
    assert {w.compile for w in workloads} == {False, True} and 390 * 128 < 50_000 <= 391 * 128


@pytest.mark.parametrize(
    ("name", "stack", "cells"), [("aime-2023", "rocm-", 6 * 2), ("aime-2025", "torch2.5.1-rocm6.2", 4 * 3)]
)
def test_on_amd_the_rocm_stack_runs_without_tf32(amd_host: Host, name: str, stack: str, cells: int) -> None:
    plan = plan_of(name, amd_host)
    assert {cell.stack.name.startswith(stack) for cell in plan.cells} == {True} and len(plan.cells) == cells
    reasons = {skip.why.reason for skip in plan.skips if skip.cell.stack.accelerator == "rocm"}
    assert "tf32 is a mode of NVIDIA GPUs" in reasons


@pytest.mark.parametrize("name", [name for name in variants.preset_names() if name not in ON_A_CPU])
def test_elsewhere_every_cell_is_skipped_with_its_reason_and_way_out(name: str, cpu_host: Host, nvidia_host: Host) -> None:
    plan = plan_of(name, cpu_host)
    assert not plan.cells and plan.skips and all(skip.why.reason and skip.why.fix for skip in plan.skips)
    old = plan_of(name, nvidia_host, containers=False)
    reasons = " ".join(skip.why.reason for skip in old.skips)
    assert ("CUDA 13 needs NVIDIA driver 580 or newer" in reasons) == (name != "accept-pairs")
    assert ("no container engine is in use" in reasons) == any("nvidia-" in stack for stack in STACKS[name])


@pytest.mark.parametrize("facts", gpu_specs.load(), ids=lambda facts: facts.name)
def test_no_preset_measures_a_cell_twice_on_any_known_gpu(facts: gpu_specs.GpuFacts, cpu_host: Host) -> None:
    """Two workloads may become the same by a batch table; the plan would refuse that."""
    vendor = facts.vendor.lower()
    memory = int(facts.memory_gb * 2**30 / facts.devices_per_card)
    gpu = Gpu(
        index=0,
        uuid="GPU-0",
        name=next(iter(facts.driver_names), facts.name),
        vendor=vendor,
        memory_bytes=memory,
        capability=facts.compute_capability or None,
    )
    for name in variants.preset_names():
        make_plan(
            variants.load_preset(name),
            replace(cpu_host, vendor=vendor, gpus=(gpu,), driver="595.45.04"),
            Prerequisites(containers=True),
        )


def test_init_writes_the_whole_preset_and_plan_reads_it(torchmatrix: Command, tmp_path: Path) -> None:
    done = torchmatrix("init", "--preset", "nvidia-dle")
    assert done.returncode == 0 and done.stdout.strip() == "matrix.toml"
    assert (tmp_path / "matrix.toml").read_text() == variants.preset_text("nvidia-dle")
    assert load(tmp_path / "matrix.toml").preset == variants.load_preset("nvidia-dle").preset
    plan = torchmatrix("plan")
    assert plan.returncode == 0 and all(line.startswith(("* ", "- ")) for line in plan.stdout.splitlines())
    assert torchmatrix("init", "--preset", "lambda").returncode == 2  # the file is there


def test_an_unknown_preset_is_an_error_with_the_nearest_name(torchmatrix: Command, tmp_path: Path) -> None:
    done = torchmatrix("init", "--preset", "aime-2024")
    assert done.returncode == 2 and 'error: unknown preset "aime-2024"' in done.stderr
    assert 'did you mean "aime-202' in done.stderr and not (tmp_path / "matrix.toml").exists()
    for name in ("nope", "", "../presets/lambda"):
        with pytest.raises(BadInput) as caught:
            variants.load_preset(name)
        assert caught.value.exit_code == 2 and "lambda" in caught.value.hint
    both = torchmatrix("init", "--preset", "lambda", "--python", "/usr/bin/python3")
    assert both.returncode == 2 and "contradict" in both.stderr


def test_presets_are_listed(torchmatrix: Command) -> None:
    text = torchmatrix("presets")
    listed = torchmatrix("presets", "--json")
    assert text.returncode == listed.returncode == 0
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert tuple(rows) == variants.preset_names() and rows["nvidia-dle"]["cells"] == 3 * 2 * 2
    for name, row in rows.items():
        assert f"{name}\n  {row['title']}\n  {count(len(row['stacks']), 'stack')}, {row['cells']} cells" in text.stdout
        assert all(address in text.stdout for address in row["article"])


def test_versions_runs_one_workload_unchanged_on_a_cpu_and_compiles_from_2_0_on(cpu_host: Host) -> None:
    plan = plan_of("versions", cpu_host)
    works = {stack: [cell.workload.id for cell in plan.cells if cell.stack.torch == stack] for stack in ("1.12.1", "2.15.0")}
    assert len(plan.cells) == 6 * 2 + 4 * 2 and len(works["1.12.1"]) == 2
    assert set(works["1.12.1"]) < set(works["2.15.0"]) and len(works["2.15.0"]) == 4
    assert {skip.why.reason.partition(" has ")[2] for skip in plan.skips} == {"no torch.compile (it came with 2.0)"}


def test_bridgers_cube_has_all_combinations_and_its_half_each_pair_of_values_as_often(a100_host: Host) -> None:
    core = [cell.workload for cell in plan_of("bridger-2023-core", a100_host).cells]
    assert Counter((w.model, w.batch) for w in core) == {
        (model, batch): 96 for model in ("resnet50", "bert-base-cased") for batch in (1, 8)
    }
    assert sum(len(variants.load_preset("bridger-2023").workloads) for _ in STACKS["bridger-2023"]) == 864
    assert len(plan_of("bridger-2023-cpu", a100_host).cells) == 288
    half = variants.load_preset("bridger-2023-half").workloads
    assert len(half) == 48 and {w.id for w in half} < {w.id for w in core}
    settings = ("precision", "channels_last", "cudnn_benchmark", "compile", "eval")
    for a, b in itertools.combinations(settings, 2):
        assert set(Counter((w.factors[a], w.factors[b]) for w in half).values()) == {12}


def test_what_is_wrong_in_a_preset_table_is_named() -> None:
    text = variants.preset_text("nvidia-dle").replace("title =", "titel =").replace('"nvidia_dle"', '"nvidia"')
    with pytest.raises(BadInput) as caught:
        parse(text)
    message = str(caught.value)
    assert '[preset], titel: unknown key "titel"; did you mean "title"?' in message and "[preset]: needs title" in message
    assert 'reports/published has no figures "nvidia"; did you mean "nvidia_dle"?' in message


@pytest.mark.parametrize("name", ["suite", "suite-cpu"])
def test_the_suite_trains_and_runs_models_of_every_kind(name: str) -> None:
    workloads = variants.load_preset(name).workloads
    models = {workload.model for workload in workloads}
    assert len(models) >= 40 and {workload.library for workload in workloads} == {
        "torchvision",
        "timm",
        "transformers",
        "diffusers",
    }
    assert {workload.unit for workload in workloads} == {"images", "sequences", "clips"}
    combinations = [(w.model, w.mode, w.compile) for w in workloads]
    assert sorted(combinations) == sorted(itertools.product(models, ("train", "infer"), (False, True)))
    left_out = {"suite": {"bert-tiny", "llama-tiny", "qwen2-tiny", "unet-tiny"}, "suite-cpu": set[str]()}[name]
    elsewhere = {"longformer-base-4096", "camembert-base", "distilgpt2"}
    listed = {model: facts for model, facts in catalog.models().items() if facts.unit != "tokens"}
    large = {model for model, facts in listed.items() if (facts.parameters or 0) > 330e6}
    assert models == set(listed) - (left_out or large) - elsewhere, "every listed model, if it isn't too large for a CPU"


def test_language_models_are_trained_on_every_path_of_a_cpu(cpu_host: Host) -> None:
    plan = plan_of("llm-cpu", cpu_host)
    assert not plan.skips and {cell.workload.unit for cell in plan.cells} == {"tokens"}
    paths = {(w.model, w.precision, w.compile, w.parallel, cell.gpus.count) for cell in plan.cells if (w := cell.workload)}
    assert {("lm-10m", "amp-bf16", False, "ddp", 1), ("lm-10m-moe", "fp32", False, "ddp", 1)} < paths
    assert {("lm-10m", "fp32", True, "ddp", 1), *(("lm-10m", "fp32", False, how, 2) for how in ("ddp", "fsdp", "tp"))} < paths
    generated = {(w.model, str(w.factors["runtime"])) for cell in plan.cells if (w := cell.workload).mode == "generate"}
    assert generated == {("lm-10m", "eager"), ("lm-10m-moe", "eager"), ("lm-10m", "torchao-int8")}


def test_nebulys_runtimes_run_where_their_packages_are(a100_host: Host, cpu_host: Host) -> None:
    plan = plan_of("nebuly-2023", a100_host)
    runtimes: dict[str, set[object]] = {}
    for cell in plan.cells:
        runtimes.setdefault(cell.stack.name, set()).add(cell.workload.factors["runtime"])
    assert runtimes == {
        "torch2.7.1-cu128": {"eager", "onnxruntime", "torchao-int8"},
        "torch2.15.0-cu132": {"eager", "onnxruntime", "torchao-int8"},
        "nvidia-pytorch-26.05-py3": {"eager", "onnxruntime", "tensorrt", "torch-tensorrt", "torchao-int8"},
    }
    on_cpu = plan_of("nebuly-2023-cpu", cpu_host)
    assert len(on_cpu.cells) == 4 * 4 * 2 + 4 * 2 + 2 * 2 and not on_cpu.skips
    (stack,) = {cell.stack for cell in on_cpu.cells}
    names = [package.partition("==")[0] for package in stack.packages]
    assert names[-4:] == ["onnxruntime", "onnx", "openvino", "torchao"]


def test_the_announcement_of_pytorch_2_has_163_models_each_built_or_listed_with_a_reason(a100_host: Host) -> None:
    text = variants.preset_text("pytorch-2.0")
    comment = text[: text.index("[preset]")]
    renamed = dict(re.findall(r"^#   (\w+) = (\S+)$", comment, re.MULTILINE))
    listed = comment.partition("early 2023 have:")[2].replace("#", "").replace("\n", "").split(",")
    models = {workload.model for workload in variants.load_preset("pytorch-2.0").workloads}
    suites = Counter(
        workload.library for workload in {w.model: w for w in variants.load_preset("pytorch-2.0").workloads}.values()
    )
    assert suites == {"timm": 61, "transformers": 46} and set(renamed.values()) < models
    assert len({name.strip() for name in listed}) == 56
    assert len(models) + len(listed) == 163
    assert len(plan_of("pytorch-2.0", a100_host).cells) == (107 + 106) * 2 * 2


def test_the_core_for_a_cpu_is_twelve_models_of_the_announcement(cpu_host: Host) -> None:
    whole, core = ({w.model for w in variants.load_preset(name).workloads} for name in ("pytorch-2.0", "pytorch-2.0-cpu"))
    assert core < whole and len(core) == 12
    plan = plan_of("pytorch-2.0-cpu", cpu_host)
    assert len(plan.cells) == 12 * 2 * 2 and not plan.skips


def generated_on(host: Host) -> set[tuple[str, str]]:
    """Return the models of llm-decode, with their runtimes, that are planned on one GPU of the host."""
    plan = plan_of("llm-decode", host)
    return {(cell.workload.model, str(cell.workload.factors["runtime"])) for cell in plan.cells if cell.gpus.count == 1}


def test_language_models_generate_on_the_gpus_whose_memory_they_fit(a100_host: Host) -> None:
    small = replace(a100_host, gpus=tuple(replace(gpu, memory_bytes=24 << 30) for gpu in a100_host.gpus))
    fits = {model for model, _ in generated_on(small)}
    assert {"gpt2-355m-shape", "qwen3-0.6b-shape", "llama-3.2-1b-shape", "llama-3.1-8b-shape"} <= fits
    assert not fits & {"gpt-oss-20b-shape", "qwen3-30b-a3b-shape", "qwen3-32b-shape"}
    large = generated_on(replace(a100_host, gpus=tuple(replace(gpu, memory_bytes=80 << 30) for gpu in a100_host.gpus)))
    assert {"gpt-oss-20b-shape", "qwen3-30b-a3b-shape", "qwen3-32b-shape"} <= {model for model, _ in large}
    assert {runtime for model, runtime in large if model == "llama-3.1-8b-shape"} == {"eager", "torchao-int8", "torchao-int4"}
    skips = [skip for skip in plan_of("llm-decode", a100_host).skips if skip.cell.stack.name == "torch2.15.0-cu132"]
    (why,) = {skip.why.reason for skip in skips if "float8" in skip.cell.workload.id and skip.cell.gpus.count == 1}
    assert why == "runtime torchao-float8 needs an NVIDIA GPU of compute capability 8.9 or newer"
