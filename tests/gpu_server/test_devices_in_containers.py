"""Devices that reach a real container through the engine's requests for GPUs, compared with the plan by UUID.

Docker calls a stand-in for NVIDIA's hook; AMD's nodes are real character devices without a driver.
"""

import json
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest
from cdi import newer_docker, newer_engines, podman
from containers_with_gpus import IMAGE, VENDOR_IMAGE, daemon, give_userland, give_vendor_image
from invented_servers import amd_uuid, uuid
from stand_ins import RENDER_GROUP, Running

from support.sites import serving, tiny_wheels
from torchmatrix.core import assets
from torchmatrix.core.errors import LaunchFailed
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.engine import Image, LaunchSpec
from torchmatrix.machine.host import Gpu
from torchmatrix.matrix.stacks import PYPI
from torchmatrix.planning.plan import GpuSet

pytestmark = [pytest.mark.thorough, pytest.mark.xdist_group("gpu-server-engine")]  # one daemon for all
Launch = Callable[[GpuSet], list[str]]
FREE = "may be opened"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of the daemon."""
    with daemon(tmp_path_factory.mktemp("engine")) as host:
        yield host


@pytest.fixture(scope="module")
def gpu_client(engine: str) -> Iterator[docker.DockerClient]:
    """Yield a client of that daemon."""
    client = docker.DockerClient(base_url=engine)
    yield client
    client.close()


@pytest.fixture(scope="module")
def launched(gpu_client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Return a function that launches on a device set and returns the lines that the container printed."""
    give_userland(gpu_client, tmp_path_factory.mktemp("userland"))
    return lambda gpus: launch(gpu_client, gpus)


def spec_of(gpus: GpuSet) -> LaunchSpec:
    return LaunchSpec(arguments=(), gpus=gpus, cache="c", owner="gpu-server")


def launch(client: docker.DockerClient, gpus: GpuSet) -> list[str]:
    with DockerEngine(client).start(Image(reference=IMAGE, environment="gpu-server"), spec_of(gpus)) as execution:
        lines = [line.decode().rstrip("\n") for _, line in execution.lines()]
        assert execution.wait().returncode == 0, lines
    return sorted(lines)


def nvidia(*uuids: str) -> GpuSet:
    gpus = tuple(Gpu(index=i, uuid=identity, name="NVIDIA H100", vendor="nvidia") for i, identity in enumerate(uuids))
    return GpuSet(indices=tuple(range(len(uuids))), vendor="nvidia", gpus=gpus)


def amd(*numbers: int) -> GpuSet:
    gpus = tuple(
        Gpu(index=i, uuid=amd_uuid(i), name="MI300X", vendor="amd", render_node=f"/dev/dri/renderD{128 + 8 * i}",
            groups=(RENDER_GROUP,))
        for i in numbers
    )  # fmt: skip
    return GpuSet(indices=numbers, vendor="amd", gpus=gpus)


def devices(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("device ")]


def variable(lines: list[str], name: str) -> str:
    return next(line.partition("=")[2] for line in lines if line.startswith(f"variable {name}="))


@pytest.mark.parametrize("numbers", [(0,), (0, 1), (5, 2), tuple(range(8))])
def test_nvidia_gpus_are_those_of_the_plan(launched: Launch, numbers: tuple[int, ...]) -> None:
    output = launched(nvidia(*(uuid(number) for number in numbers)))
    assert devices(output) == [f"/dev/nvidia{number}" for number in sorted(numbers)]
    assert variable(output, "NVIDIA_VISIBLE_DEVICES") == ",".join(uuid(number) for number in numbers)
    assert variable(output, "CUDA_DEVICE_ORDER") == "PCI_BUS_ID"


def test_a_slice_comes_with_its_gpu_and_nothing_else(launched: Launch) -> None:
    output = launched(nvidia(uuid(11, "MIG")))
    assert devices(output) == ["/dev/nvidia-caps/nvidia-cap11", "/dev/nvidia0"]
    assert variable(output, "NVIDIA_VISIBLE_DEVICES") == uuid(11, "MIG")


def test_a_mask_outside_changes_nothing_inside(launched: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    output = launched(nvidia(uuid(6)))
    assert devices(output) == ["/dev/nvidia6"] and variable(output, "CUDA_VISIBLE_DEVICES") == "(unset)"


def test_a_gpu_that_is_gone_fails_its_launch_with_the_engines_words(launched: Launch) -> None:
    with pytest.raises(LaunchFailed, match="unknown device"):
        launched(nvidia(uuid(77)))


@pytest.mark.parametrize("numbers", [(0,), (6, 3), tuple(range(8))])
def test_amd_gpus_are_kfd_and_the_render_nodes_of_the_plan_which_the_user_may_open(
    launched: Launch, numbers: tuple[int, ...]
) -> None:
    output = launched(amd(*numbers))
    nodes = [f"device /dev/dri/renderD{128 + 8 * number} 241:{128 + 8 * number} {FREE}" for number in numbers]
    assert [line for line in output if line.startswith("device ")] == sorted([*nodes, f"device /dev/kfd 240:0 {FREE}"])


def test_a_cpu_launch_gets_no_gpu(launched: Launch) -> None:
    output = launched(GpuSet(indices=(0,), vendor="cpu", cpus=("0",)))
    assert devices(output) == [] and variable(output, "NVIDIA_VISIBLE_DEVICES") == "(unset)"
    assert variable(output, "CUDA_VISIBLE_DEVICES") == ""


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Yield the command line that executes an engine of a newer Debian, in which four GPUs are described."""
    with newer_engines(tmp_path_factory.mktemp("newer"), range(4)) as within:
        yield within


@pytest.mark.sweep
def test_a_newer_daemon_without_nvidias_hook_gives_the_planned_gpus_by_cdi(newer: list[str], tmp_path: Path) -> None:
    with newer_docker(tmp_path, newer) as host, closing(docker.DockerClient(base_url=host)) as client:
        give_userland(client, tmp_path)
        assert devices(launch(client, nvidia(uuid(3), uuid(1)))) == ["/dev/nvidia1", "/dev/nvidia3"]
        assert devices(launch(client, nvidia(uuid(2)))) == ["/dev/nvidia2"]
        with pytest.raises(LaunchFailed, match="install the NVIDIA Container Toolkit"):
            launch(client, nvidia(uuid(5)))  # which it doesn't know
        done = DockerEngine(client).start(Image(reference=IMAGE, environment="gpu-server"), spec_of(nvidia(uuid(2))))
        assert f"--device nvidia.com/gpu={uuid(2)} " in done.command


def test_podman_gives_the_planned_gpus_by_cdi_and_its_command_can_be_pasted(newer: list[str], tmp_path: Path) -> None:
    with podman(tmp_path, newer) as host, closing(docker.DockerClient(base_url=host)) as client:
        give_userland(client, tmp_path)
        assert devices(launch(client, nvidia(uuid(3), uuid(1)))) == ["/dev/nvidia1", "/dev/nvidia3"]
        output = launch(client, GpuSet(indices=(0,), vendor="cpu", cpus=("0",)))
        assert devices(output) == [] and client.containers.list(all=True) == []
        with pytest.raises(LaunchFailed, match=r"unresolvable CDI devices .*; describe the GPUs: sudo nvidia-ctk cdi generate"):
            launch(client, nvidia(uuid(5)))  # which it doesn't know
        engine = DockerEngine(client)
        assert engine.name == engine.facts()["engine"] == "podman"
        done = engine.start(Image(reference=IMAGE, environment="gpu-server"), spec_of(nvidia(uuid(2))))
        words = shlex.split(done.command)
        assert words[:2] == ["podman", "run"]
        pasted = subprocess.run([*newer, "podman", "--url", host, *words[1:]], capture_output=True, text=True)
        assert pasted.returncode == 0 and devices(pasted.stdout.splitlines()) == ["/dev/nvidia2"], pasted.stderr


def test_a_whole_run_in_containers_measures_on_the_planned_gpus(
    engine: str, gpu_client: docker.DockerClient, eight_h100: Running, tmp_path: Path
) -> None:
    """Plan, launches and report: the GPU of each container is recorded by UUID, and has a number only if it was planned."""
    give_vendor_image(gpu_client, tmp_path / "wheels", eight_h100.folder / "scenario")
    matrix = f'[run]\nlaunches = 1\n[gpus]\ncounts = [1, 2, 8]\nlists = [[3, 5]]\n[[stack]]\nimage = "{VENDOR_IMAGE}"\n'
    matrix += 'accelerator = "cuda"\n[[workload]]\nmodel = "resnet50"\nbatch = 4\nsteps = 5\n'
    (eight_h100.folder / "matrix.toml").write_text(matrix)
    done = eight_h100.run("run", "--engine", "docker", "--json", DOCKER_HOST=engine)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"] == {"ok": 5}
    used = {launch.devices.label: [device.uuid for device in launch.seen_devices] for launch in eight_h100.launches()}
    planned = {"gpu0": [0], "gpu3": [3], "gpu0+1": [0, 1], "gpu3+5": [3, 5], "gpu0+1+2+3+4+5+6+7": list(range(8))}
    assert used == {label: [uuid(number).partition("-")[2] for number in numbers] for label, numbers in planned.items()}
    assert "8 × NVIDIA H100 80GB HBM3" in eight_h100.report()


def test_the_default_matrix_is_planned_on_eight_h100_with_its_own_stacks(
    engine: str, eight_h100: Running, tmp_path: Path
) -> None:
    shutil.copy(assets.DEFAULT_MATRIX, eight_h100.folder / "matrix.toml")
    with serving(tiny_wheels(tmp_path / "wheels")) as index:
        mirrors = f"https://download.pytorch.org/whl={index.url},{PYPI}={index.url}"
        done = eight_h100.run("plan", "--json", "--engine", "docker", TORCHMATRIX_MIRRORS=mirrors, DOCKER_HOST=engine)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    whole, part = ("nvidia-pytorch-26.05-py3",), ("torch2.5.1-cu124", "torch2.7.1-cu128")
    stacks = Counter(cell["id"].partition("/")[0] for cell in plan["cells"])
    assert stacks == {**dict.fromkeys(whole, 10), **dict.fromkeys(part, 5)}, "ResNet-50 and BERT on 1, 2, 4 and 8 GPUs"
    assert Counter(cell["id"].rpartition("/")[2] for cell in plan["cells"]) == {
        "gpu0": 8, "gpu0+1": 4, "gpu0+1+2+3": 4, "gpu0+1+2+3+4+5+6+7": 4,
    }  # fmt: skip
    assert Counter(skip["reason"] for skip in plan["skips"]) == {
        "needs an AMD GPU; this machine has 8 x NVIDIA H100 80GB HBM3": 30,
        "CUDA 13 needs NVIDIA driver 580 or newer; this machine has 570.133.20": 10,
        "CPU stacks run only where there is no GPU": 10,
    }
