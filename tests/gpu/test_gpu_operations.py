"""Microbenchmarks on a real GPU: right, below what the device can do, as fast as a bare loop; and an acceptance of one GPU."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gpu_machine import Machine, Run

from torchmatrix_plugins.accept.checks import checks_of

SIDE, BYTES = 8192, 2**30
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"gemm {precision}": ("gemm", {"precision": precision})
        for precision in ("bf16-weights", "half", "tf32", "fp32", "fp8", "nvfp4")
    },
    "triad": ("triad", {}),
    "copy": ("copy", {}),
    **{f"host-copy {way}": ("host-copy", {"direction": way}) for way in ("to-device", "to-host", "both")},
    "host-copy pageable": ("host-copy", {"pinned": False}),
    "gemm of zeros": ("gemm", {"precision": "bf16-weights", "pattern": "zeros"}),
}
TINY = ("gemm fp8", "gemm nvfp4")
NOT_INVENTED = ("gemm tf32", *TINY, "host-copy both")
SHORT = {"seconds": 1.0, "windows": 2, "warmup_seconds": 0.5, "warmup_cap_seconds": 5.0}
BARE = """
import time, torch
left, right = (torch.randn({side}, {side}, device="{device}").to(torch.bfloat16) for _ in range(2))
out = torch.empty_like(left)
for steps in (20, 60):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        torch.mm(left, right, out=out)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
print(2 * {side} ** 3 * steps / seconds / 1e12)
"""


def workload(machine: Machine, model: str, settings: dict[str, Any]) -> str:
    side, size = (SIDE, BYTES) if machine.is_real else (64, 2**16)
    own = {"shape": f"{side}x{side}x{side}"} if model == "gemm" else {"bytes": size}
    return machine.workload(model, 1, **own, **settings, **SHORT)


@pytest.fixture(scope="module")
def measured_operations(machine: Machine) -> Run:
    """Return the run of all operations, one launch each."""
    chosen = [settings for name, settings in OPERATIONS.items() if machine.is_real or name not in NOT_INVENTED]
    return machine.run(*(workload(machine, *settings) for settings in chosen))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_right_and_below_what_the_device_can_do(
    machine: Machine, measured_operations: Run, seen: dict[str, Any], name: str
) -> None:
    if not machine.is_real and name in NOT_INVENTED:
        pytest.skip("the invented device has no tensor cores and no streams")
    model, settings = OPERATIONS[name]
    checks = [check for check in checks_of(measured_operations.launches) if check.model == model]
    asked = {"pattern": "random", **({"pinned": True, "direction": "to-device"} if model == "host-copy" else {}), **settings}
    found = [
        check for check in checks if all(getattr(check.launches[0].workload, key) == value for key, value in asked.items())
    ]
    if not found and name in TINY:
        pytest.skip(f"this GPU has no {name}")
    (check,) = found
    seen |= {
        "figure": check.value,
        "unit": check.unit,
        "limit": check.limit,
        "outcome": check.outcome,
        "said": measured_operations.done.stderr[-800:],
    }
    if name in TINY and check.outcome.startswith("unsupported"):
        pytest.skip(check.outcome)
    assert check.outcome == "ok", measured_operations.done.stderr
    assert not machine.is_real or 0.2 < check.of_limit < 1 or check.limit != check.limit or "pageable" in name


def test_a_product_is_as_fast_as_in_a_bare_loop(machine: Machine, seen: dict[str, Any]) -> None:
    if not machine.is_real:
        pytest.skip("products of 8192 x 8192 take minutes on a CPU")
    ratios = []
    for _ in range(2):
        code = BARE.format(side=SIDE, device="cuda")
        bare = float(subprocess.run([machine.python, "-c", code], capture_output=True, text=True, check=True).stdout)
        run = machine.run(workload(machine, "gemm", {"precision": "bf16-weights"}))
        ratios.append(checks_of(run.launches)[0].value / bare)
    seen |= {"ours over bare": ratios}
    assert 0.97 < sum(ratios) / len(ratios) < 1.03


def test_an_acceptance_of_one_gpu_has_no_reference_and_no_failure(machine: Machine, seen: dict[str, Any]) -> None:
    folder = machine.folder / "accepted"
    folder.mkdir()
    chosen = ("gemm bf16-weights", "triad", "host-copy to-device")
    machine.write_matrix(folder, *(workload(machine, *OPERATIONS[name]) for name in chosen), launches=2)
    words = ("accept", "--matrix", "matrix.toml", "--engine", "local", "--json", "--write-baseline", "baseline.json")
    done = machine.command(folder, *words)
    record = json.loads(done.stdout)
    seen |= {"exit code": done.returncode, "answer": record["answer"], "checks": record["checks"]}
    assert record["counts"]["FAIL"] == 0 and record["counts"]["NO REFERENCE"] == len(record["checks"]) == 3, done.stderr
    entries = json.loads((folder / "baseline.json").read_text(encoding="utf-8"))["entries"]
    assert len(entries) == 3 or not machine.is_real, "what other programs disturbed is in no baseline"
    assert Path(folder / "reports/accept.html").is_file()
