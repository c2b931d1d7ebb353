"""Differences of Podman where it answers in Docker's place; test_devices_in_containers.py asks a real one."""

import os
from pathlib import Path

import docker
import pytest

from torchmatrix.core.errors import EngineUnusable
from torchmatrix.engines import endpoints
from torchmatrix.engines.caches import CacheFacts
from torchmatrix.engines.choose import choose
from torchmatrix.engines.containers import container_options, run_command
from torchmatrix.engines.engine import Image, LaunchSpec
from torchmatrix.engines.volumes import Volume
from torchmatrix.planning.plan import GpuSet


def test_podmans_tmpfs_over_a_sealed_cache_has_no_owner_which_it_would_refuse() -> None:
    spec = LaunchSpec(arguments=(), gpus=GpuSet(indices=(0,), vendor="cpu", cpus=("0",)), cache="c", owner="o")
    cache = Volume(name="torchmatrix-cache-abc-1", facts=CacheFacts(state="sealed", sha256="0"))
    before = container_options(Image(reference="x", environment="abc"), spec, cache=cache)
    adapted = endpoints.adapt_for_podman(before)
    assert {**adapted, "tmpfs": before["tmpfs"]} == before, "nothing else"
    assert adapted["tmpfs"] == {"/tmp": before["tmpfs"]["/tmp"], "/cache": "rw,exec,nosuid,mode=1777,size=8g"}
    command = run_command(adapted, program="podman")
    assert command.startswith("podman run ") and "--tmpfs /cache:rw,exec,nosuid,mode=1777,size=8g" in command


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"Components": [{"Name": "Podman Engine", "Version": "5.4.2"}, {"Name": "Conmon", "Version": "2"}]}, "5.4.2"),
        ({"Components": [{"Name": "Engine", "Version": "28.2.2"}]}, ""),
        ({"Version": "19.03"}, ""),
    ],
)
def test_podman_is_known_by_its_answer(answer: dict[str, object], version: str) -> None:
    assert endpoints.podman_version(answer) == version


def test_podman_is_looked_for_where_it_is_said_to_be_and_then_at_its_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(endpoints, "PODMAN_SOCKET", tmp_path / "none.sock")
    with pytest.raises(EngineUnusable, match="no socket here"):
        endpoints.podman_address()
    (tmp_path / "podman").mkdir()
    (tmp_path / "podman" / "podman.sock").touch()
    assert endpoints.podman_address() == f"unix://{tmp_path}/podman/podman.sock"
    monkeypatch.setenv("DOCKER_HOST", "unix:///docker.sock")
    assert endpoints.podman_address() == f"unix://{tmp_path}/podman/podman.sock", "Docker's variable may mean Docker"
    monkeypatch.setenv("CONTAINER_HOST", "unix:///own.sock")
    assert endpoints.podman_address() == "unix:///own.sock"
    monkeypatch.setenv("CONTAINER_HOST", "ssh://elsewhere")
    with pytest.raises(EngineUnusable, match="can't be used by way of ssh://elsewhere"):
        endpoints.podman_address()


def test_docker_is_not_taken_for_podman(client: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINER_HOST", os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    with pytest.raises(EngineUnusable, match="Docker answers, not Podman"):
        choose("podman", "test-podman")


def test_a_podman_that_would_leave_out_the_gpus_is_refused() -> None:
    endpoints.refuse_without_cdi("5.4.0")
    with pytest.raises(EngineUnusable, match=r"Podman 4\.3\.1 gives containers no NVIDIA GPU"):
        endpoints.refuse_without_cdi("4.3.1")
