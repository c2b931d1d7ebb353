"""Flags that a launch gets from what the host knows: CPUs near the GPUs, their peak, what was proven."""

from dataclasses import replace
from pathlib import Path

import pytest

from torchmatrix.engines import recipes
from torchmatrix.engines.choose import choose
from torchmatrix.facts.reading import Proven
from torchmatrix.facts.store import Results
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import Method
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import make_plan
from torchmatrix.running.launch_cell import Attempt, Job, bench_arguments, cache_name

MATRIX = """
[gpus]
counts = [2]
[[stack]]
name = "own"
python = "/usr/bin/python3"
accelerator = "cuda"
[[workload]]
model = "resnet18"
precision = "amp"
batch = 2
"""


def flags(host: Host, folder: Path, **attempt: object) -> dict[str, str]:
    """Return the flags of a launch on two GPUs, by name."""
    results = Results(folder / "results")
    path = folder / "matrix.toml"
    path.write_text(MATRIX)
    cells = make_plan(matrix_file.load(path), host, Prerequisites(containers=False)).cells
    (cell,) = (cell for cell in cells if len(cell.gpus.indices) == 2)
    local = choose("local", results.owner).local
    job = Job(
        folder=results.new_run(host.name), host=host, owner=results.owner, timeout_seconds=60, seed=0, method=Method(),
        engine_for=lambda stack: local, recipe_for=lambda stack: recipes.recipes(stack)[0],
    )  # fmt: skip
    words = bench_arguments(Attempt(cell=cell, number=1, batch=2, **attempt), job)  # type: ignore[arg-type]
    return dict(zip(words[::2], words[1::2], strict=False)) if len(words) % 2 == 0 else {}


def test_code_for_other_threads_or_another_cpu_lies_in_another_compile_cache(nvidia_host: Host, tmp_path: Path) -> None:
    """Up to torch 2.10.0 code for two threads runs two of them wherever it is found (findings/inductor-cache-threads.sh)."""
    path = tmp_path / "matrix.toml"
    path.write_text(MATRIX)
    (cell, *_) = make_plan(matrix_file.load(path), nvidia_host, Prerequisites(containers=False)).cells
    devices = replace(cell.gpus, threads=cell.gpus.threads + 1)
    names = {
        cache_name(cell, 2, nvidia_host),
        cache_name(replace(cell, gpus=devices), 2, nvidia_host),
        cache_name(cell, 2, replace(nvidia_host, cpu="another")),
    }
    assert len(names) == 3


def two_nodes(host: Host) -> Host:
    near = ("0-7,16-23", None, "8-15,24-31", "8-15,24-31")
    gpus = tuple(replace(gpu, local_cpus=cpus) for gpu, cpus in zip(host.gpus, near, strict=True))
    return replace(host, gpus=gpus, numa_nodes=2)


def test_the_ranks_are_pinned_near_their_gpus_where_that_makes_a_difference(nvidia_host: Host, tmp_path: Path) -> None:
    assert flags(two_nodes(nvidia_host), tmp_path)["--cpus"] == "0-7,16-23:"
    assert "--cpus" not in flags(replace(two_nodes(nvidia_host), numa_nodes=1), tmp_path)
    assert "--cpus" not in flags(replace(nvidia_host, numa_nodes=2), tmp_path), "unknown is not guessed"


def test_the_workload_gets_the_peak_of_devices_that_are_known(nvidia_host: Host, tmp_path: Path) -> None:
    assert "--peak-flops" not in flags(nvidia_host, tmp_path), "no GPU has this name alone"
    host = replace(nvidia_host, gpus=tuple(replace(gpu, name="NVIDIA H100 80GB HBM3") for gpu in nvidia_host.gpus))
    assert float(flags(host, tmp_path)["--peak-flops"]) == pytest.approx(989e12, rel=0.01)


def test_a_launch_is_proven_in_full_until_one_was_and_a_trial_never(nvidia_host: Host, tmp_path: Path) -> None:
    assert "--proof" not in flags(nvidia_host, tmp_path), "the box's default is the full proof"
    proven = Proven(name="round1-try1", fingerprint={"loss": 2.5}, flops_per_item=3e9, blocks=())
    later = flags(nvidia_host, tmp_path, proven=proven)
    assert (later["--proof"], later["--proven"]) == ("fingerprint", "flops_per_item=3000000000.0")
    assert "--proof" not in flags(nvidia_host, tmp_path, proven=proven, fresh=True), "newly compiled code is proven anew"
    assert flags(nvidia_host, tmp_path, trial=True)["--proof"] == "none"
