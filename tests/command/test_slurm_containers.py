"""Real PyTorch on a real Slurm, on one node and two, in containers and in virtualenvs, with a node that dies on the way; and
Apptainer and Pyxis on nodes without Docker, with the tests' stand-in for PyTorch.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import docker
import pytest

from support import OLDEST_MATRIX, PATIENCE_SECONDS, REAL_MATRIX, Command, processes_of, slurm_cluster, until
from support.containers import vendor_image
from support.slurm_cluster import Cluster
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results
from torchmatrix_plugins.cluster import file_engine

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(bool(slurm_cluster.why_not()), reason=slurm_cluster.why_not()),
]
WORKLOAD = """
[[workload]]
device = "cpu"
model = {models}
batch = 2
image_size = 32
sequence_length = 16
steps = 2
warmup_steps = 2
warmup_cap = 2
"""


DEVICES = {"cpu0": 1, "cpu0@2nodes": 1, "cpu0+1": 2, "cpu0+1@2nodes": 2}
"""Number of devices of each node, by the name of the device set."""


def begin(
    folder: Path, cluster: Cluster, launcher: str, models: list[str], matrix: str, counts: list[int]
) -> "subprocess.Popen[str]":
    text = matrix.replace("counts = [1, 2]", f'counts = {counts}\nnodes = [1, 2]\nwhen = "always"')
    (folder / "matrix.toml").write_text(text + WORKLOAD.format(models=json.dumps(models)))
    (folder / "settings.toml").write_text(f'[slurm]\nlauncher = "{launcher}"\n')
    return subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "run", "--engine", "slurm"], cwd=folder, text=True,
        env=os.environ | cluster.variables | {"TORCHMATRIX_SETTINGS": str(folder / "settings.toml")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def launches(folder: Path) -> list[Launch]:
    return [launch for run in Results(folder / "results").runs() for launch in run.launches()]


def is_measuring(folder: Path, node: str) -> bool:
    return any(
        launch.host["name"] == node and launch.windows == () and launch.reported and not launch.exit
        for launch in launches(folder)
    )


def check(folder: Path, process: "subprocess.Popen[str]", engine: str, models: list[str], counts: list[int]) -> None:
    """Check that each cell is there, once, on the nodes that it belongs to, and proven; the report shows the nodes."""
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    good = [launch for launch in launches(folder) if launch.outcome == "ok"]
    assert Counter((launch.workload.model, launch.devices.label) for launch in good) == {
        (model, devices): 1 for model in models for devices, count in DEVICES.items() if count in counts
    }
    assert {launch.engine["engine"] for launch in good} == {engine}
    alone = [launch for launch in good if launch.devices.nodes == 1]
    assert len({(launch.workload.model, launch.host["name"]) for launch in alone}) == len(models)
    assert all(launch.reference and launch.reference.fingerprint for launch in good), "each was proven"
    together = [launch for launch in good if launch.devices.nodes == 2]
    assert all(len(launch.other_nodes) == 1 and launch.told_ranks == launch.devices.count for launch in together)
    assert {node.facts["engine"]["engine"] for launch in together for node in launch.other_nodes} == {engine}
    assert all(launch.transport and launch.transport.network == "TCP" and launch.collectives for launch in together)
    page = (folder / "reports" / "index.html").read_text()
    assert "Across nodes" in page and "gloo over TCP" in page


@pytest.mark.sweep
def test_real_pytorch_runs_in_virtualenvs(real_python: str, tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    with slurm_cluster.started(tmp_path / "slurm") as cluster:
        process = begin(tmp_path, cluster, "bare", ["resnet18"], REAL_MATRIX, [1, 2])
        check(tmp_path, process, "local", ["resnet18"], [1, 2])
        assert not cluster.jobs()


@pytest.mark.sweep
def test_real_pytorch_runs_in_containers_and_a_node_dies(
    client: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slurm").mkdir()
    both = ["resnet18", "bert-tiny"]
    with slurm_cluster.started(tmp_path / "slurm") as cluster:
        process = begin(tmp_path, cluster, "docker", both, OLDEST_MATRIX, [1])
        until(lambda: is_measuring(tmp_path, "node2"), process)
        cluster.kill_node("node2")
        until(lambda: "down" in " ".join(cluster.states()), process)
        cluster.start_node("node2")
        check(tmp_path, process, "docker", both, [1])
        assert [launch.outcome for launch in launches(tmp_path) if launch.outcome != "ok"] == ["lost"]
        assert not cluster.jobs()
    for node in cluster.nodes:
        monkeypatch.setenv("SLURMD_NODENAME", node)
        mark = f"torchmatrix.owner={Results(tmp_path / 'results').owner}"
        assert not client.containers.list(all=True, filters={"label": mark}), "no container is left"


PLUGSTACK = os.environ.get("TORCHMATRIX_PLUGSTACK", "")
"""A plugstack.conf that loads Pyxis, where somebody built it; Debian has no package of it, nor of Enroot."""
no_apptainer = pytest.mark.skipif(not file_engine.find_apptainer(), reason="no apptainer here: tests/install-apptainer")
no_pyxis = pytest.mark.skipif(not PLUGSTACK, reason="no Pyxis here: TORCHMATRIX_PLUGSTACK names its plugstack.conf")


@pytest.mark.parametrize("launcher", [pytest.param("apptainer", marks=no_apptainer), pytest.param("pyxis", marks=no_pyxis)])
def test_images_that_are_files_run_on_nodes_without_docker(
    launcher: str,
    client: docker.DockerClient,
    small: str,
    own: str,
    tmp_path: Path,
    torchmatrix: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHMATRIX_CACHE", str(tmp_path / "cache"))
    image = f"torchmatrix-test/{own}:1"
    vendor_image(client, small, tmp_path / "wheels", image, 1)
    stack = f'[[stack]]\nname = "{own}"\nimage = "{image}"\naccelerator = "cpu"\n'
    matrix = REAL_MATRIX.partition("[[stack]]")[0] + stack
    (tmp_path / "matrix.toml").write_text(matrix + WORKLOAD.format(models='"resnet18"'))
    (tmp_path / "slurm").mkdir()
    with slurm_cluster.started(tmp_path / "slurm", more=f"PlugStackConfig={PLUGSTACK}\n" * bool(PLUGSTACK)) as cluster:
        built = torchmatrix("build", engine=launcher, **cluster.variables)
        assert built.returncode == 0, built.stderr
        client.images.remove(image, force=True)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
        process = begin(tmp_path, cluster, launcher, ["resnet18"], matrix, [1, 2])
        _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, stderr
        assert not cluster.jobs()
    recorded = {launch.devices.label: launch for launch in launches(tmp_path)}
    assert sorted(recorded) == sorted(DEVICES) and {launch.outcome for launch in recorded.values()} == {"ok"}
    assert {launch.engine["engine"] for launch in recorded.values()} == {launcher}
    networks = {label: launch.started["isolation"]["network"] for label, launch in recorded.items()}
    assert networks == {label: "machine" if "nodes" in label or launcher == "pyxis" else "none" for label in DEVICES}
    assert not processes_of(f"TORCHMATRIX_OWNER={Results(tmp_path / 'results').owner}".encode())
