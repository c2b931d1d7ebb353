"""The oldest and the newest PyTorch, in containers, on the same workload; `make versions` runs all in between."""

from pathlib import Path

import docker
import pytest
from docker.errors import ImageNotFound

from support import Command
from torchmatrix.facts.store import Results

pytestmark = pytest.mark.thorough

BASES = ("python:3.9-slim-bookworm", "python:3.13-slim-bookworm")


def test_the_same_workload_runs_on_the_oldest_and_the_newest_torch(
    torchmatrix: Command, client: docker.DockerClient, tmp_path: Path
) -> None:
    for base in BASES:
        try:
            client.images.get(base)
        except ImageNotFound:
            pytest.skip(f"no base image {base}: tests/start-engine makes it")
    assert torchmatrix("init", "--preset", "versions").returncode == 0
    chosen = ("torch1.12.1-cpu/*", "torch2.15.0-cpu/*", "--where", "model=resnet50", "--where", "compile=false", "--fast")
    done = torchmatrix("run", *chosen, engine="docker")
    assert done.returncode == 0, done.stderr
    (run,) = Results(tmp_path / "results").runs()
    launches = {launch.cell: launch for launch in run.launches()}
    assert sorted(launches) == [
        "torch1.12.1-cpu/resnet50-train-fp32-b4-64px/cpu0",
        "torch2.15.0-cpu/resnet50-train-fp32-b4-64px/cpu0",
    ]
    assert {launch.outcome for launch in launches.values()} == {"ok"}
    assert len({launch.workload_hash for launch in launches.values()}) == 1
    for launch in launches.values():
        wanted = launch.stack.torch
        assert launch.box.torch.split("+")[0] == wanted
        tested = launch.image.facts["self_test"]
        assert set(tested["losses"]) == {"resnet18", "bert-tiny"} and tested["compiled"] is (None if wanted < "2" else True)
