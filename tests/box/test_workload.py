"""The workload's program with real torch on the CPU, as a person would paste it: one process and two."""

import functools
import json
import math
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.boxes import bench, only, own_model
from torchmatrix.core import assets
from torchmatrix.matrix import catalog

bench_once = functools.cache(bench)
"""A launch that several tests read: it is made when the first of them asks for it."""
RESNET = ("--model", "resnet18", "--image-size", "64", "--batch", "2")
BERT = ("--model", "bert-tiny", "--sequence-length", "16", "--batch", "2")
RESNET18 = ("--model", "resnet18", "--image-size", "32", "--batch", "2")
FIRST = ("resnet18", "resnet50", "bert-tiny", "bert-base-cased", "bert-large-cased", "gpt2")
TWO_STEPS = (*BERT, "--warmup-cap", "2")
"""A warm-up of exactly two steps, each in a block of its own; its gradients are small for the all-reduce of two processes."""
PARALLEL = {"no-sync": ("--parallel", "no-sync"), "independent": ("--parallel", "independent", "--all-reduce-probe")}
OVERRIDES = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "NVIDIA_TF32_OVERRIDE": "1"}


def warmed(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the whole warm-up was; before it, the workload tells that its minimum is over."""
    return [event for event in events if event["event"] == "warm-up"][-1]


def of_samples(events: list[dict[str, Any]], key: str) -> list[Any]:
    """Return a field of every sample, in order: of the blocks of the warm-up, then of the timed window."""
    return [event[key] for event in events if event["event"] == "sample"]


@pytest.mark.parametrize("words", [RESNET, (*BERT, "--optimizer", "adamw")], ids=["resnet", "bert-tiny"])
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.representative
def test_training_records_every_step_of_every_rank_in_phases(real_python: str, words: tuple[str, ...], processes: int) -> None:
    code, events, stderr = bench_once(real_python, *words, processes=processes, fresh=(words, processes) == (RESNET, 2))
    assert code == 0, stderr
    measured, proven = (
        ["import", "init", "model", "first-step"],
        ["windows", "roof", "precision", "model", "steps", "ranks", "reference", "judgement"],
    )
    assert [e["phase"] for e in events if e["event"] == "phase"] == [*measured, *(f"proof-{part}" for part in proven)]
    warm_up = [e for e in events if e["event"] == "sample" and e["phase"] == "warm-up"]
    (window,) = (e for e in events if e["event"] == "sample" and e["phase"] == "measure")
    assert len(warm_up) >= 2 and sum(e["steps"] for e in warm_up) == warmed(events)["steps"] <= 4
    assert window["items"] == 2 * 3 * processes and len(window["seconds"]) == processes
    assert all(len(steps) == 3 for steps in window["step_seconds"])
    for total, enqueued, steps in zip(*(window[key] for key in ("seconds", "enqueue_seconds", "step_seconds")), strict=True):
        assert min(steps) > 0 and sum(steps) <= enqueued + 1e-6 <= total + 2e-6, "the steps lie inside the window"
        assert sum(steps) == pytest.approx(total, rel=0.05)
    assert only(events, "setup")["world_size"] == processes
    assert only(events, "setup")["backend"] == ("gloo" if processes > 1 else None)
    assert events[-1]["event"] == "done"


@pytest.fixture(scope="module")
def families(real_python: str) -> dict[str, Any]:
    """Return what the families say in one interpreter: parameters of the first models, and where the libraries lie."""
    return told_by_families(real_python, [name for name in catalog.models() if name in FIRST])


def told_by_families(python: str, names: list[str]) -> dict[str, Any]:
    """Ask the families on the meta device: nothing is computed or allocated; a few libraries compute while they build."""
    code = """
import json, sys, torch, bench, families
from families import torchvision as t, transformers as f
def count(name):
    size = ["--sequence-length", "16", "--audio-seconds", "30"]
    args = bench.parse(["--model", name, "--batch", "1", "--device", "cpu", *size])
    try:
        with torch.device("meta"):
            return families.parameter_count(families.build(args, "meta")[0])
    except (NotImplementedError, RuntimeError):
        return families.parameter_count(families.build(args, "cpu")[0])
parameters = {name: count(name) for name in sys.argv[1:]}
print(json.dumps({"parameters": parameters, "libraries": [t.torchvision.models.__file__, f.transformers.__file__]}))
"""
    done = subprocess.run(
        [python, "-B", "-c", code, *names], cwd=assets.WORKLOAD, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_catalog_counts_the_parameters_of_the_models_right(families: dict[str, Any]) -> None:
    assert families["parameters"] == {name: catalog.models()[name].parameters for name in FIRST}


@pytest.mark.thorough
@pytest.mark.sweep
def test_the_catalog_counts_the_parameters_of_every_model_right(python_with_models: str) -> None:
    counts = {name: model.parameters for name, model in catalog.models().items()}
    assert told_by_families(python_with_models, list(counts))["parameters"] == counts and None not in counts.values()


def test_the_files_of_a_library_do_not_hide_the_library(families: dict[str, Any]) -> None:
    assert len(families["libraries"]) == 2 and all("site-packages" in path for path in families["libraries"])


HOSTILE = {
    "products in bfloat16": "real = torch.matmul; "
    "torch.matmul = lambda a, b: real(a.bfloat16(), b.bfloat16()).float() if a.dtype is torch.float32 else real(a, b)",
    "a compiler that is wrong": "import os, sys; real = torch.compile; torch.compile = lambda net, backend: vars("
    "sys.modules.setdefault('made', type(sys)('made'))).update(__file__=os.environ['TORCHINDUCTOR_CACHE_DIR'] + '/made.py') or "
    "net.register_forward_hook(lambda m, i, out: 1.05 * out) and real(net, backend='aot_eager')",
    "a loss that explodes": "torch.nn.functional.cross_entropy = lambda x, y: x.sum() * float('inf')",
}
"""What an image's sitecustomize.py may do to torch."""


@pytest.mark.parametrize(
    ("what", "words", "message"),
    [
        ("products in bfloat16", [], "precision fp32 was requested, but matmul computes in bf16"),
        ("a compiler that is wrong", ["--compile"], "precision fp32 was requested, but convolution computes in wrong"),
        ("a loss that explodes", [], "the loss of rank 0 is not finite in step 0 of warm-up window 0"),
    ],
)
@pytest.mark.representative
def test_an_image_that_computes_something_else_gives_no_number(
    real_python: str, tmp_path: Path, what: str, words: list[str], message: str
) -> None:
    when = "any('bench.py' in word for word in sys.orig_argv)"
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nif {when}:\n    import torch\n    {HOSTILE[what]}\n")
    code, events, _ = bench(real_python, *own_model(tmp_path), *words, PYTHONPATH=str(tmp_path))
    failure = only(events, "failure")
    assert code != 0 and failure["kind"] == "numerics" and message in failure["message"]
    assert not any(e["event"] == "done" for e in events)


def test_the_effective_precision_the_reference_and_the_attention_asked_for_are_recorded(real_python: str) -> None:
    words = (*BERT, "--attention", "sdpa", "--precision", "amp-bf16", "--mode", "infer")
    code, events, stderr = bench(real_python, *words)
    assert code == 0, stderr
    assert only(events, "setup")["attention"] == "sdpa"
    (effective,) = only(events, "precision")["effective"]
    assert (effective["matmul"], effective["convolution"]) == ("bf16", "bf16")
    reference = only(events, "reference")
    assert reference["agrees"] and len(reference["differences"]) == 1 == len(reference["losses"][0])
    assert [group["name"] for group in reference["groups"]] == ["outputs", "all"]


def test_a_window_lasts_as_long_as_asked_its_edges_are_on_the_hosts_clock_and_the_flops_are_counted(real_python: str) -> None:
    words = ["--model", "resnet18", "--batch", "1", "--image-size", "224", "--seconds", "2", "--warmup-seconds", "1"]
    before = time.monotonic()
    code, events, stderr = bench(real_python, *words)
    assert code == 0, stderr
    (window,) = (e for e in events if e["event"] == "sample" and e["phase"] == "measure")
    warm_up = [e for e in events if e["event"] == "sample" and e["phase"] == "warm-up"]
    pace = min(e["seconds"][0] / e["steps"] for e in warm_up)
    assert window["steps"] == max(3, math.ceil(1.1 * 2 / pace)) == len(window["losses"][0])
    length = window["stop_monotonic_seconds"] - window["start_monotonic_seconds"]
    assert length == pytest.approx(window["seconds"][0], rel=1e-3)
    assert before < window["start_monotonic_seconds"] < window["stop_monotonic_seconds"] < time.monotonic()
    assert warmed(events)["seconds"] >= 1
    # 1.81 billion multiply-adds in the forward pass of one 224 px image (torchvision's documentation), twice that backward
    assert only(events, "reference")["flops_per_item"] == pytest.approx(3 * 2 * 1.81e9, rel=0.03)


@pytest.mark.parametrize("parallel", ["no-sync", "independent"])
@pytest.mark.thorough
def test_ranks_that_share_nothing_train_alone(real_python: str, parallel: str) -> None:
    alone = of_samples(bench_once(real_python, *TWO_STEPS)[1], "losses")
    code, events, stderr = bench_once(real_python, *TWO_STEPS, *PARALLEL[parallel], processes=2)
    assert code == 0, stderr
    assert [losses[0] for losses in of_samples(events, "losses")][:2] == [losses[0] for losses in alone][:2]


def test_the_collectives_are_probed_up_to_the_size_of_the_gradients(real_python: str) -> None:
    code, events, stderr = bench_once(real_python, *TWO_STEPS, *PARALLEL["independent"], processes=2)
    assert code == 0, stderr
    probe = only(events, "all-reduce")
    assert (
        probe["sizes"][0]["bytes"] == 2**20
        and probe["sizes"][-1]["bytes"] == probe["gradient_bytes"] == 4 * catalog.models()["bert-tiny"].parameters
    )
    assert all(size["bus_bytes_per_second"] > 0 for size in probe["sizes"])
    others = {event["operation"]: event for event in events if event["event"] == "collective"}
    assert set(others) == {"all-gather", "reduce-scatter", "send-receive"}
    for name in ("all-gather", "send-receive"):
        assert [size["bytes"] for size in others[name]["sizes"]] == [size["bytes"] for size in probe["sizes"]]
    assert bool(others["reduce-scatter"]["sizes"]) != bool(others["reduce-scatter"]["error"]), "gloo has learnt it lately"


def test_two_ranks_train_one_model_gradients_are_really_averaged(real_python: str) -> None:
    """Compare with rank 0 alone: with the ranks' own data but averaged gradients, rank 0's losses differ from those."""
    alone, together = (
        of_samples(bench_once(real_python, *RESNET, processes=count, fresh=count == 2)[1], "loss")[1] for count in (1, 2)
    )
    assert alone[0] != pytest.approx(together[0], rel=1e-6), "of the second block, since how many follow is not certain"
    assert together[0] != together[1]


def with_a_loaded_environment(python: str) -> tuple[int, list[dict[str, Any]], str]:
    """Launch among variables that would change its precision, secrets, and one that belongs into the record."""
    secrets = {"HF_TOKEN": "hunter2", "AWS_SECRET_ACCESS_KEY": "hunter2", "NVIDIA_API_KEY": "hunter2"}
    secrets["TORCHINDUCTOR_REMOTE_CACHE"] = "redis://me:hunter2@cache:6379"
    return bench_once(python, *TWO_STEPS, NCCL_DEBUG="WARN", **secrets, **OVERRIDES)


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_losses(real_python: str) -> None:
    first, second = bench_once(real_python, *TWO_STEPS)[1], with_a_loaded_environment(real_python)[1]
    losses = [of_samples(events, "losses")[:4] for events in (first, second)]  # what follows depends on the time it takes
    assert len(losses[0]) == 4 and losses[0] == losses[1]


def test_an_image_cannot_switch_tf32_on(real_python: str) -> None:
    _, events, _ = with_a_loaded_environment(real_python)
    assert only(events, "hello")["removed"] == OVERRIDES
    assert only(events, "setup")["precision"]["matmul_allow_tf32"] is False
    assert only(events, "setup")["precision"]["cudnn_allow_tf32"] is False


def test_secrets_of_the_environment_are_not_recorded(real_python: str) -> None:
    _, events, stderr = with_a_loaded_environment(real_python)
    assert "hunter2" not in json.dumps(events) + stderr
    variables = only(events, "environment")["variables"]
    assert variables["NCCL_DEBUG"] == "WARN" and variables["NVIDIA_API_KEY"] == "…"
    assert variables["TORCHINDUCTOR_REMOTE_CACHE"] == "redis://…@cache:6379" and "HF_TOKEN" not in variables


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["--model", "resnet18", "--batch", "1", "--precision", "amp"], "unsupported", "precision amp needs a GPU"),
        (["--model", "nosuch", "--batch", "1"], "unsupported", "not in models.json"),
        (["--model", "bert-tiny", "--batch", "1", "--sequence-length", "4096"], "unsupported", "512 positions"),
        (["--model", "resnet18", "--batch", "3000000"], "oom", "can't allocate memory"),
    ],
)
def test_what_cannot_be_done_is_said_by_its_kind(real_python: str, words: list[str], kind: str, message: str) -> None:
    code, events, _ = bench(real_python, *words)
    assert code != 0 and only(events, "failure")["kind"] == kind and message in only(events, "failure")["message"]
    assert not any(e["event"] in ("sample", "done") for e in events)


def test_a_cuda_launch_without_a_gpu_is_unsupported(real_python: str) -> None:
    code, events, _ = bench(real_python, "--model", "resnet18", "--batch", "1", "--device", "cuda", CUDA_VISIBLE_DEVICES="")
    assert code != 0 and only(events, "failure")["kind"] == "unsupported"


@pytest.mark.thorough
@pytest.mark.sweep
def test_compile_is_cold_once_then_warm_and_an_interrupted_cache_is_emptied(real_python: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "inductor").mkdir(parents=True)
    (cache / "inductor" / "half-written").write_text("x")
    words = [*own_model(tmp_path), "--mode", "infer", "--compile", "--cache", str(cache)]

    def compiled() -> set[Path]:
        return set(cache.rglob("*.so"))

    code, cold, stderr = bench(real_python, *words)
    assert code == 0, stderr
    assert only(cold, "hello")["compile_cache"] == "cold" and not (cache / "inductor" / "half-written").exists()
    assert only(cold, "compile")["graph_breaks"] == 0
    made = compiled()
    assert made
    _, warm, _ = bench(real_python, *words)
    assert only(warm, "hello")["compile_cache"] == "warm"
    assert compiled() == made, "nothing was compiled again"


@pytest.mark.thorough
def test_a_deadline_ends_a_workload_whose_host_is_dead(real_python: str) -> None:
    words = ["--model", "resnet50", "--batch", "8", "--steps", "100000", "--deadline", "8"]
    code, events, stderr = bench(real_python, *words)
    assert code != 0 and "Timeout" in stderr and not any(e["event"] == "done" for e in events)


@pytest.mark.parametrize(("words", "attention"), [(RESNET18, None), (BERT, "eager")], ids=["resnet18", "bert-tiny"])
@pytest.mark.parametrize("processes", [1, 2])
def test_inference_times_the_forward_pass_and_its_outputs_are_confirmed(
    real_python: str, words: tuple[str, ...], attention: str | None, processes: int
) -> None:
    """FLOPs of the forward pass; one loss per window, of the last step's outputs; all of them as in eager fp32."""
    code, events, stderr = bench(real_python, *words, "--mode", "infer", processes=processes)
    assert code == 0, stderr
    assert only(events, "setup")["timed"] == "forward" and only(events, "setup")["attention"] == attention
    (window,) = (e for e in events if e["event"] == "sample" and e["phase"] == "measure")
    assert window["steps"] == 3 and [len(rank) for rank in window["losses"]] == [1] * processes
    reference = only(events, "reference")
    assert reference["agrees"] and [len(rank) for rank in reference["measured"]] == [1] * processes


def test_inference_without_the_reference_still_sees_a_wrong_output(real_python: str, tmp_path: Path) -> None:
    when = "any('bench.py' in word for word in sys.orig_argv)"
    broken = "real = torch.nn.functional.linear; torch.nn.functional.linear = lambda *a: real(*a) * float('nan')"
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nif {when}:\n    import torch\n    {broken}\n")
    words = ["--model", "resnet18", "--image-size", "32", "--batch", "2", "--mode", "infer", "--proof", "none"]
    code, events, _ = bench(real_python, *words, PYTHONPATH=str(tmp_path))
    assert code != 0 and only(events, "failure")["kind"] == "numerics"


@pytest.mark.parametrize("processes", [1, 2])
def test_single_requests_are_timed_after_the_windows_as_many_as_asked_for(real_python: str, processes: int) -> None:
    words = (*RESNET18, "--mode", "infer", "--proof", "none", "--requests", "30")
    code, events, stderr = bench(real_python, *words, processes=processes)
    assert code == 0, stderr
    served = [e for e in events if e["event"] == "requests"]
    kinds = [(metric, rank) for metric in ("latency", "end-to-end") for rank in range(processes)]
    assert [(e["kind"], e["rank"]) for e in served] == kinds and {len(e["seconds"]) for e in served} == {30}
    (window,) = (e for e in events if e["event"] == "sample" and e["phase"] == "measure")
    for event in served:
        width = event["stop_monotonic_seconds"] - event["start_monotonic_seconds"]
        assert window["stop_monotonic_seconds"] <= event["start_monotonic_seconds"]
        assert min(event["seconds"]) > 0 and sum(event["seconds"]) <= width


def test_training_serves_no_requests_and_slow_ones_are_ten(real_python: str) -> None:
    code, events, stderr = bench(real_python, *RESNET18, "--proof", "none", "--requests", "30")
    assert code == 0 and not any(e["event"] == "requests" for e in events), stderr
    words = (*RESNET18, "--mode", "infer", "--proof", "none", "--requests", "30", "--request-seconds", "0.000001")
    _, events, _ = bench(real_python, *words)
    assert [len(e["seconds"]) for e in events if e["event"] == "requests"] == [10, 10]
