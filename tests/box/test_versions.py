"""The oldest and the newest PyTorch on the same workload, and the newest Python; `make versions` runs all in between."""

from pathlib import Path

import docker
import pytest
from docker.errors import ImageNotFound

from support import NEWEST_MATRIX, OLDEST_MATRIX, Command
from support.boxes import SMALL
from torchmatrix.core import assets
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results

pytestmark = pytest.mark.thorough

OLDEST_BASE, NEWEST_BASE = "python:3.9-slim-bookworm", "python:3.13-slim-bookworm"
RESNET50 = """
[[workload]]
device = "cpu"
model = "resnet50"
batch = 4
image_size = 64
steps = 3
warmup_steps = 2
warmup_cap = 4
"""
PARSED = """
import sys, warnings
warnings.simplefilter("error")
from pathlib import Path
for path in Path("/box").rglob("*.py"):
    compile(path.read_text(), str(path), "exec")
sys.path.insert(0, "/box")
import bench, cache, channel, failures
args = bench.parse(sys.argv[1:])
bench.set_environment(args)
print(args.model, *sys.version_info[:2])
"""
"""What of the box needs no torch."""


def test_the_same_workload_runs_on_the_oldest_torch_in_a_container_and_on_the_newest_in_a_virtualenv(
    torchmatrix: Command, client: docker.DockerClient, newest_python: str, tmp_path: Path
) -> None:
    skip_without(client, OLDEST_BASE)
    (tmp_path / "matrix.toml").write_text(OLDEST_MATRIX + RESNET50)
    (old,) = measured(torchmatrix, "docker", tmp_path / "oldest", "*/cpu0")
    (tmp_path / "matrix.toml").write_text(NEWEST_MATRIX + RESNET50)
    (new,) = measured(torchmatrix, "local", tmp_path / "newest", "*/cpu0")
    assert (old.cell, new.cell) == tuple(f"torch{torch}-cpu/resnet50-train-fp32-b4-64px/cpu0" for torch in ("1.12.1", "2.15.0"))
    assert old.workload_hash == new.workload_hash
    for launch, wanted in ((old, "1.12.1"), (new, "2.15.0")):
        assert launch.outcome == "ok" and launch.reported and launch.image
        assert launch.reported.torch and launch.reported.torch.split("+")[0] == wanted
        tested = launch.image.facts["self_test"]
        assert set(tested["losses"]) == {"resnet18", "bert-tiny"} and tested["compiled"] is (None if wanted < "2" else True)


def measured(torchmatrix: Command, engine: str, results: Path, *words: str) -> list[Launch]:
    done = torchmatrix("run", *words, "--results", str(results), engine=engine)
    assert done.returncode == 0, done.stderr
    (run,) = Results(results).runs()
    return list(run.launches())


def test_python_3_13_reads_the_workload_without_a_warning(client: docker.DockerClient) -> None:
    skip_without(client, NEWEST_BASE)
    words = ["python3", "-W", "error", "-c", PARSED, *SMALL, "--model", "resnet18", "--batch", "1"]
    box = {str(assets.WORKLOAD): {"bind": "/box", "mode": "ro"}}
    output = client.containers.run(NEWEST_BASE, words, volumes=box, remove=True, network_mode="none")
    assert output.decode().split() == ["resnet18", "3", "13"]


def skip_without(client: docker.DockerClient, base: str) -> None:
    try:
        client.images.get(base)
    except ImageNotFound:
        pytest.skip(f"no base image {base}: tests/start-engine makes it")
