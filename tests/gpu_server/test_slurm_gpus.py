"""Nodes with GPUs on a real Slurm: invented boards behind devices that Slurm gives to jobs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from invented_servers import EIGHT_H100, uuid
from stand_ins import Running, start

from support import slurm_cluster
from support.slurm_cluster import Cluster

pytestmark = [
    pytest.mark.skipif(bool(slurm_cluster.why_not()), reason=slurm_cluster.why_not()),
    pytest.mark.xdist_group("slurm"),
]


@pytest.fixture
def server(tmp_path: Path) -> Running:
    (tmp_path / "settings.toml").write_text('[slurm]\nlauncher = "bare"\n')
    return start(EIGHT_H100, tmp_path / "server")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "slurm").mkdir()
    yield tmp_path / "slurm"


def run(server: Running, cluster: Cluster, *words: str) -> "subprocess.CompletedProcess[str]":
    variables = {"TORCHMATRIX_SETTINGS": str(server.folder.parent / "settings.toml")}
    return subprocess.run(
        [sys.executable, "-m", "torchmatrix", "run", "--engine", "slurm", *words], cwd=server.folder, text=True,
        env=os.environ | server.environment | cluster.variables | variables, capture_output=True, timeout=300,
    )  # fmt: skip


@pytest.mark.thorough
def test_a_job_has_the_gpus_that_slurm_gave_and_launches_those_that_were_planned(server: Running, folder: Path) -> None:
    server.matrix("counts = [1, 2]", launches=2)
    with slurm_cluster.started(folder, gpus=4) as cluster:
        done = run(server, cluster)
        assert done.returncode == 0, done.stderr
    recorded = server.launches()
    assert [launch.outcome for launch in recorded] == ["ok"] * 4
    assert sorted(set(server.used)) == [uuid(0), f"{uuid(0)},{uuid(1)}"]
    assert {len(launch.host["gpus"]) for launch in recorded} == {4} and "4 x NVIDIA H100" in done.stderr


def test_a_node_that_shows_other_gpus_than_slurm_gave_is_left_out(server: Running, folder: Path) -> None:
    server.matrix("counts = [1]")
    with slurm_cluster.started(folder, gpus=9) as cluster:
        done = run(server, cluster)
    assert done.returncode == 4 and "Slurm gave 9 GPUs, but 8 x NVIDIA H100 80GB HBM3 can be seen" in done.stderr
    assert server.launches() == []
