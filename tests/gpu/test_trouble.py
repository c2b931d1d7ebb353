"""What can happen to a GPU during a launch: too little memory, another program, a killed tool."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from cells import CELLS, MODELS
from gpu_machine import Machine

_OCCUPY = (
    "import time, torch; x = torch.randn(4096, 4096, device='cuda'); end = time.time() + float(__import__('sys').argv[1])\n"
    "print('there', flush=True)\n"
    "while time.time() < end: y = x @ x; torch.cuda.synchronize(); time.sleep(0.01)"
)


def test_a_batch_that_does_not_fit_is_out_of_memory(machine: Machine, seen: dict[str, Any]) -> None:
    if not machine.is_real:
        pytest.skip("tests/box/test_cuda_code.py has the invented device run out of memory")
    run = machine.run(machine.workload("resnet50", 4096, precision="fp32"))
    (row,) = run.rows
    seen |= {"outcome": row.outcome, "error": row.error}
    assert row.outcome == "oom" and run.done.returncode == 1


def test_the_largest_batch_is_looked_for(machine: Machine, seen: dict[str, Any]) -> None:
    if not machine.is_real:
        pytest.skip("the invented device has the memory of this machine")
    run = machine.run(machine.workload("resnet50", "auto", precision="amp-bf16", image_size=512, channels_last=True))
    seen |= {"batches": [(row.batch, row.outcome) for row in run.rows], "said": run.done.stderr[-1500:]}
    assert run.done.returncode == 0, run.done.stderr
    assert run.rows[-1].batch >= 32


def test_another_program_on_the_gpu_is_seen_and_named(machine: Machine, seen: dict[str, Any], tmp_path: Path) -> None:
    if not machine.is_real:
        pytest.skip("tests/gpu_server has another process on an invented GPU")
    other = subprocess.Popen([machine.python, "-c", _OCCUPY, "40"], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout and other.stdout.readline() == "there\n"
        machine.write_matrix(tmp_path, CELLS["resnet50-amp-bf16"](machine))
        done = machine.command(tmp_path, "doctor", "--engine", "local")
        seen |= {"process": other.pid, "said": done.stdout[-3000:]}
        assert str(other.pid) in done.stdout or "not visible from here" in done.stdout
    finally:
        other.kill()
        other.wait()


def test_a_killed_tool_leaves_nothing_on_the_gpu(machine: Machine, seen: dict[str, Any], tmp_path: Path) -> None:
    batch, more = MODELS["resnet50"]
    machine.write_matrix(tmp_path, machine.workload("resnet50", batch, **more, precision="amp-bf16", seconds=60))
    tool = machine.start(tmp_path, "run", "--engine", "local")
    try:
        workload = _wait_for(lambda: _workloads(tool.pid), seconds=120)
        time.sleep(15 if machine.is_real else 3)  # in the middle of its work
        os.kill(tool.pid, signal.SIGKILL)
        begin = time.monotonic()
        _wait_for(lambda: not any(psutil.pid_exists(pid) for pid in workload), seconds=60)
        seen["seconds until the workload was gone"] = round(time.monotonic() - begin, 1)
    finally:
        tool.kill()
        tool.wait()
        assert tool.stdout
        tool.stdout.close()


def _workloads(tool: int) -> list[int]:
    """Return the ids of the workload's processes below the tool's."""
    children = psutil.Process(tool).children(recursive=True)
    return [child.pid for child in children if any(word.endswith("bench.py") for word in child.cmdline())]


def _wait_for(check: Any, seconds: float) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := check():
            return result
        time.sleep(0.2)
    raise AssertionError(f"not reached in {seconds} s")
