"""Microbenchmarks with real PyTorch: what each operation does, that its result is checked, and what a figure of it is."""

import json
import math
from pathlib import Path

import pytest

from support import Command
from support.boxes import bench, only, recorded
from torchmatrix.facts.launch import measured_seconds, rates_of_ranks, throughput
from torchmatrix.facts.reading import launch_at
from torchmatrix.matrix import catalog

SHORT = ("--batch", "1", "--mode", "micro", "--steps", "3", "--windows", "2", "--warmup-steps", "2", "--warmup-cap", "2")
ALONE = {
    "gemm": ("--shape", "64x48x80"), "triad": ("--bytes", "4096"), "copy": ("--bytes", "4000"),
}  # fmt: skip
TOGETHER = {
    name: ("--bytes", "4096")
    for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-receive", "all-reduce-latency")
}
SABOTAGES = {
    "gemm": "import torch; mm = torch.mm; torch.mm = lambda a, b, out: mm(a, b, out=out).mul_(1.5)",
    "triad": "import torch; add = torch.add; torch.add = lambda a, b, alpha, out: add(a, b, alpha=2.0, out=out)",
    "copy": "import operations; stream = operations.stream\n"
    "def lazy(*given):\n    made = stream(*given)\n    return made._replace(run=lambda index: None)\noperations.stream = lazy",
    "all-reduce": "import torch.distributed as dist; dist.all_reduce = lambda tensor, op=None: None",
    "all-gather": "import torch.distributed as dist; gather = dist.all_gather_into_tensor\n"
    "dist.all_gather_into_tensor = lambda every, part: gather(every, part * 0)",
}  # fmt: skip


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("name", ALONE)
def test_each_rank_does_an_operation_by_itself(real_python: str, tmp_path: Path, name: str, processes: int) -> None:
    words = ("--model", name, *ALONE[name], *SHORT)
    code, events, stderr = bench(real_python, *words, processes=processes)
    assert code == 0, stderr
    assert only(events, "reference")["problems"] == [] and only(events, "reference")["proof"] == "full"
    windows = [event for event in events if event["event"] == "sample" and event["phase"] == "measure"]
    assert [(len(w["seconds"]), w["items"]) for w in windows] == [(processes, 3 * processes)] * 2
    if name == "gemm":
        assert only(events, "reference")["flops_per_item"] == 2 * 64 * 48 * 80
        assert {rank["matmul"] for rank in only(events, "precision")["effective"]} == {"fp32"}


@pytest.mark.parametrize("name", TOGETHER)
def test_all_ranks_do_an_operation_together(real_python: str, name: str) -> None:
    words = ("--model", name, *TOGETHER[name], *SHORT)
    code, events, stderr = bench(real_python, *words, processes=2)
    assert code == 0 and only(events, "reference")["problems"] == [], stderr
    code, events, _ = bench(real_python, *words)
    assert code and only(events, "failure")["kind"] == "unsupported" and "two devices" in only(events, "failure")["message"]


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_wrong_result_is_no_figure(real_python: str, name: str) -> None:
    processes = 2 if name in TOGETHER else 1
    code, events, _ = bench(
        real_python, "--model", name, *{**ALONE, **TOGETHER}[name], *SHORT, processes=processes, before=SABOTAGES[name]
    )
    failure = next(event for event in events if event["event"] == "failure")
    assert code and failure["kind"] == "numerics" and ("wrong" in failure["message"] or "away" in failure["message"])
    assert only(events, "reference")["agrees"] is False


@pytest.mark.parametrize("name", ["host-copy", "peer-copy"])
def test_a_cpu_has_no_copies_to_itself(real_python: str, name: str) -> None:
    code, events, _ = bench(real_python, "--model", name, "--bytes", "4096", *SHORT)
    assert code and only(events, "failure")["kind"] == "unsupported"


@pytest.mark.parametrize("pattern", ["zeros", "ones"])
def test_other_patterns_are_checked_too(real_python: str, pattern: str) -> None:
    for name, words in ALONE.items():
        code, events, stderr = bench(real_python, "--model", name, *words, *SHORT, "--pattern", pattern)
        assert code == 0 and only(events, "reference")["problems"] == [], stderr


def test_sums_of_ones_are_held_against_what_the_type_can_hold(real_python: str) -> None:
    words = ("--model", "gemm", "--shape", "8x8x70000", *SHORT, "--pattern", "ones", "--precision")
    code, events, stderr = bench(real_python, *words, "bf16-weights")
    assert code == 0 and only(events, "reference")["problems"] == [], stderr
    code, events, _ = bench(real_python, *words, "half")
    assert code and only(events, "failure")["kind"] == "unsupported" and "70000 ones" in only(events, "failure")["message"]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Backend gloo does not support this", "unsupported"),
        ("NCCL error: unhandled system error", "crashed"),
        ("CUDA error: operation not supported", "crashed"),
    ],
)
def test_a_library_that_lacks_a_collective_is_no_broken_one(real_python: str, said: str, kind: str) -> None:
    broken = f"import torch.distributed as dist\ndef broken(*given, **named):\n    raise RuntimeError({said!r})\n"
    words = ("--model", "send-receive", "--bytes", "4096", *SHORT)
    code, events, _ = bench(real_python, *words, processes=2, before=broken + "dist.batch_isend_irecv = broken")
    assert code and {event["kind"] for event in events if event["event"] == "failure"} == {kind}


def test_products_in_float8_are_checked_and_unsupported_where_there_are_none(real_python: str, newest_python: str) -> None:
    words = ("--model", "gemm", "--shape", "64x48x80", *SHORT, "--precision", "fp8")
    code, events, stderr = bench(newest_python, *words)
    assert code == 0 and only(events, "reference")["problems"] == [], stderr
    wrong = "import torch; mm = torch._scaled_mm; torch._scaled_mm = lambda *a, out, **n: mm(*a, out=out, **n).mul_(1.5)"
    assert bench(newest_python, *words, before=wrong)[0]
    code, events, _ = bench(real_python, *words)
    assert code and only(events, "failure")["kind"] == "unsupported"


FLOAT4 = """
import devices, torch
devices.Device.lack = lambda self, precision: None
values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
def numbers(packed):
    codes = packed.view(torch.uint8)
    codes = torch.stack([codes & 15, codes >> 4], -1).flatten(1).long()
    return values[codes & 7] * (1 - 2 * (codes >> 3))
def product(left, right, scale_a, scale_b, out_dtype, out):
    assert left.dtype == right.dtype == torch.float4_e2m1fn_x2 and right.stride(0) == 1
    assert scale_a.dtype == torch.float8_e4m3fn and (len(scale_a), len(scale_b)) == (256 * 8, 128 * 8)
    out.copy_(numbers(left) @ numbers(right.t()).t() * FACTOR)
torch._scaled_mm = product
"""
"""What a device with products in float4 does."""


@pytest.mark.parametrize("pattern", ["random", "ones"])
def test_products_in_float4_are_checked_and_unsupported_where_there_are_none(newest_python: str, pattern: str) -> None:
    words = ("--model", "gemm", "--shape", "130x48x96", *SHORT, "--precision", "nvfp4", "--pattern", pattern)
    code, events, stderr = bench(newest_python, *words, before=FLOAT4.replace("FACTOR", "1.0"))
    assert code == 0 and only(events, "reference")["problems"] == [], stderr
    code, events, _ = bench(newest_python, *words, before=FLOAT4.replace("FACTOR", "1.5"))
    assert code and only(events, "failure")["kind"] == "numerics" and "float64" in only(events, "failure")["message"]
    code, events, _ = bench(newest_python, *words)
    assert code and only(events, "failure")["kind"] == "unsupported" and "10.0 or newer" in only(events, "failure")["message"]


MATRIX = """
[run]
launches = 1
[cpus]
counts = [1, 2]
[[stack]]
torch = "2.5.1"
cpu = true
[[workload]]
device = "cpu"
model = ["gemm", "all-reduce"]
shape = "128x128x256"
bytes = 65536
steps = 3
windows = 2
warmup_steps = 2
warmup_cap = 2
"""


def test_a_matrix_has_them_beside_models(real_matrix: Path, torchmatrix: Command) -> None:
    real_matrix.write_text(MATRIX, encoding="utf-8")
    done = torchmatrix("run", "--json")
    record = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    units = {cell["id"].split("/")[1].split("-micro")[0]: cell["unit"] for cell in record["cells"]}
    assert units == {"gemm": "TFLOP", "all-reduce": "GB"} and len(record["cells"]) == 3
    assert all(cell["throughput"] > 0 for cell in record["cells"])
    assert torchmatrix("plan", "--skipped").stdout.count("needs 2 devices") == 1
    profiled = torchmatrix("profile", "*gemm*/cpu0", "--steps", "2", "--engine", "local")
    assert profiled.returncode == 0 and "aten::mm" in profiled.stdout, profiled.stderr
    assert torchmatrix("batch", "*gemm*").returncode == 3


def test_a_figure_is_in_units_of_the_field(real_python: str, tmp_path: Path) -> None:
    words = ("--model", "gemm", "--shape", "64x48x80", *SHORT)
    code, events, stderr = bench(real_python, *words, processes=2)
    assert code == 0, stderr
    path = tmp_path / "round1-try1.jsonl"
    recorded(path, words, 2, events)
    first, *others = path.read_text(encoding="utf-8").splitlines()
    header = json.loads(first)
    header["workload"]["shape"] = "64x48x80"
    path.write_text("\n".join([json.dumps(header), *others]) + "\n", encoding="utf-8")
    launch = launch_at(path)
    operations = sum(window.items for window in launch.windows)
    assert launch.is_ok and throughput(launch) == pytest.approx(operations * 2 * 64 * 48 * 80 / 1e12 / measured_seconds(launch))
    each = rates_of_ranks(launch)
    assert len(each) == 2 and math.fsum(each) >= throughput(launch) * 0.999


def test_what_is_no_operation_has_no_such_mode(torchmatrix: Command, real_matrix: Path) -> None:
    text = '[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\ndevice = "cpu"\n'
    real_matrix.write_text(text + 'model = "resnet18"\nmode = "micro"\nbatch = 1\n', encoding="utf-8")
    done = torchmatrix("plan")
    assert done.returncode == 2 and "micro is for gemm" in done.stderr and "resnet18 is a model" in done.stderr
    real_matrix.write_text(text + 'model = "gemm"\nshape = "64x64"\n', encoding="utf-8")
    done = torchmatrix("plan")
    assert done.returncode == 2 and "M x N x K" in done.stderr
    real_matrix.write_text(text + 'model = "gemm"\nprecision = ["fp32", "amp-bf16"]\n', encoding="utf-8")
    assert "operands of one type" in torchmatrix("plan", "--skipped").stdout
    assert set(catalog.operations()).isdisjoint(catalog.models())
