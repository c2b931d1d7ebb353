"""Requests to Pyxis, and what is removed of a job's earlier life; test_slurm_containers.py runs the real one."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from support import Command
from torchmatrix.core.errors import LaunchFailed
from torchmatrix.engines.engine import Image, LaunchSpec, Rendezvous
from torchmatrix.machine.host import Host
from torchmatrix.planning.plan import GpuSet
from torchmatrix_plugins.cluster.file_engine import PYXIS_SHARED, FileEngine, Pyxis, binds_of

JOB = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node2", "SLURM_CPUS_ON_NODE": "64"}
ENROOT = """#!/bin/sh
case $1 in
    version) echo 4.1.2 ;;
    list) printf 'pyxis_7.0\\npyxis_70.0\\nmine\\n' ;;
    *) echo "$@" >> "{folder}/told" ;;
esac
"""


@pytest.fixture
def enroot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a program that stands for Enroot and writes down what it is told."""
    (tmp_path / "enroot").write_text(ENROOT.format(folder=tmp_path))
    (tmp_path / "enroot").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_a_step_has_what_its_job_has_of_this_node_and_no_more_folders_and_variables_than_a_launch_needs(
    nvidia_host: Host, tmp_path: Path
) -> None:
    gpus = GpuSet(indices=(2,), vendor="nvidia", gpus=(nvidia_host.gpus[2],))
    spec = LaunchSpec(arguments=(), gpus=gpus, cache="", owner="o", model_file=tmp_path / "net.py")
    words = Pyxis(JOB).command_prefix("/shared/x.sqsh", spec, tmp_path, [*binds_of(spec), "/cache/work:/cache"], PYXIS_SHARED)
    assert {"--overlap", "--nodes=1", "--ntasks=1", "--nodelist=node2", "--cpus-per-task=64"} <= set(words)
    assert {"--container-image=/shared/x.sqsh", "--container-readonly", "--no-container-mount-home"} <= set(words)
    assert "--export=TORCHMATRIX_OWNER,TORCHMATRIX_LAUNCH" in words
    (mounts,) = (word.partition("=")[2].split(",") for word in words if word.startswith("--container-mounts="))
    assert [mount.split(":")[1] for mount in mounts] == ["/tmp", "/opt/workload", "/opt/model/net.py", "/cache"]
    assert [mount.endswith(":ro") for mount in mounts] == [False, True, True, False]
    assert {"CUDA_VISIBLE_DEVICES=GPU-222", "HOME=/tmp"} <= set(words[words.index("sh") :]), (
        "Slurm says which GPUs the whole job has"
    )
    rendezvous = Rendezvous(node=0, nodes=2, address="a", port=1, interface="ib0", devices=("/dev/infiniband",))
    spec = replace(spec, rendezvous=rendezvous)
    several = Pyxis({}).command_prefix("/shared/x.sqsh", spec, tmp_path, binds_of(spec), PYXIS_SHARED)
    assert "/dev/infiniband:/dev/infiniband" in several[several.index("sh") - 1] and not any(
        "nodelist" in word for word in several
    )


@pytest.mark.parametrize(("restarts", "commands"), [("0", ""), ("1", "remove --force pyxis_7.0\n")])
def test_a_job_that_runs_again_removes_the_containers_of_its_earlier_life_and_no_others(
    enroot: Path, tmp_path: Path, restarts: str, commands: str
) -> None:
    engine = FileEngine(tmp_path / "cache", "o", Pyxis({**JOB, "SLURM_RESTART_COUNT": restarts}))
    spec = LaunchSpec(arguments=(), gpus=GpuSet(indices=(0,), vendor="cpu"), cache="", owner="o")
    execution = engine.start(Image(reference="x.sqsh", environment="e"), spec)
    assert (tmp_path / "told").read_text() if commands else not (tmp_path / "told").exists()
    assert not commands or (tmp_path / "told").read_text() == commands
    assert execution.started["isolation"]["network"] == "machine" and "Pyxis" in execution.started["isolation"]["note"]
    assert execution.command.startswith("srun --overlap") and '"$(mktemp -d)":/tmp' in execution.command
    assert json.dumps(engine.facts()) == '{"engine": "pyxis", "version": "4.1.2", "program": "enroot"}'


def test_without_enroot_it_says_what_is_missing(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    refused = torchmatrix("plan", engine="pyxis", PATH=str(tmp_path))
    assert refused.returncode == 4 and "there is no enroot here" in refused.stderr and "hint: " in refused.stderr


def test_a_machine_without_space_for_temporary_files_fails_the_launch(
    enroot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FileEngine(tmp_path / "cache", "o", Pyxis(JOB))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    spec = LaunchSpec(arguments=(), gpus=GpuSet(indices=(0,), vendor="cpu"), cache="", owner="o")
    with pytest.raises(LaunchFailed, match="its container can't be prepared"):
        engine.start(Image(reference="x.sqsh", environment="e"), spec)
