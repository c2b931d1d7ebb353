"""The workload under --profile, with real torch on the CPU: traces of its steps, nothing that could be taken for a figure."""

import base64
import functools
import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.boxes import bench, only, own_model
from torchmatrix.core import assets
from torchmatrix.facts import wire
from torchmatrix_plugins.profile.profiles import memory_of, parse, shares

RESNET18 = ("--model", "resnet18", "--image-size", "32", "--batch", "2", "--profile", "3")
bench_once = functools.cache(bench)


def file_of(events: list[dict[str, Any]], name: str) -> bytes:
    parts = [event for event in events if event["event"] == "part" and event["name"] == name]
    assert [part["number"] for part in parts] == list(range(parts[0]["count"]))
    return gzip.decompress(b"".join(base64.b64decode(part["data"]) for part in parts))


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [1, 2])
def test_traced_steps_add_up_and_are_no_figure(real_python: str, processes: int) -> None:
    code, events, stderr = bench_once(real_python, *RESNET18, processes=processes)
    assert code == 0, stderr
    for event in events:
        wire.check(event)
    assert not {"sample", "steps", "reference", "warm-up"} & {event["event"] for event in events}
    timed = only(events, "profile")
    assert timed["steps"] == 3 and len(timed["plain_seconds"]) == len(timed["profiled_seconds"]) == processes
    step = shares(parse(file_of(events, "trace")))
    assert step.steps == 3 and not step.on_device
    assert sum(part.seconds for part in step.parts) + step.gap == pytest.approx(step.seconds)
    assert 3 * step.seconds == pytest.approx(timed["profiled_seconds"][0], rel=0.05)
    calls = {part.name: part.calls for part in step.parts}
    assert calls["aten::mkldnn_convolution"] == 20 and calls["aten::convolution_backward"] == 20
    assert events[-1]["event"] == "done"


@pytest.mark.thorough
def test_what_steps_allocate_is_traced_apart(real_python: str) -> None:
    _, events, _ = bench_once(real_python, *RESNET18, processes=1)
    traced = parse(file_of(events, "memory"))
    memory = memory_of(traced)
    assert memory and traced.steps == 2 and memory.peak > 2 * 3 * 32 * 32 * 4
    names = {event.get("name") for event in json.loads(file_of(events, "trace"))["traceEvents"]}
    assert "[memory]" not in names  # it would slow down the steps whose time is looked at


@pytest.mark.thorough
@pytest.mark.sweep
def test_what_is_compiled_for_a_cpu_is_one_part(real_python: str, tmp_path: Path) -> None:
    code, events, stderr = bench(real_python, *own_model(tmp_path), "--profile", "3", "--mode", "infer", "--compile")
    assert code == 0, stderr
    names = [part.name for part in shares(parse(file_of(events, "trace"))).parts]
    assert any("Compiled" in name for name in names) and not any("cpp_fused" in name for name in names)


@pytest.mark.thorough
def test_kernels_for_a_cpu_get_names_where_they_are_asked_for(real_python: str) -> None:
    """Compiling them takes minutes: here only whether the compiler is told to name them."""
    code = """
import types, profiling
from torch._inductor import config
for asked in (False, True):
    profiling.prepare(types.SimpleNamespace(name_kernels=asked))
    print(config.cpp.enable_kernel_profile)
"""
    done = subprocess.run(
        [real_python, "-c", code], env={**os.environ, "PYTHONPATH": str(assets.WORKLOAD)}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", "True"], done.stderr
