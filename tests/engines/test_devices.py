"""Container options of (vendor, GpuSet), with literal values; and what every container is denied."""

import itertools
import subprocess
from dataclasses import replace

import pytest

from torchmatrix.engines import containment
from torchmatrix.engines.caches import CacheFacts
from torchmatrix.engines.containers import by_cdi, communication_options, container_options, device_options, run_command
from torchmatrix.engines.containment import Limits
from torchmatrix.engines.engine import Image, LaunchSpec, Rendezvous, bench_command, workload_environment
from torchmatrix.engines.local import visible_devices
from torchmatrix.engines.volumes import Volume
from torchmatrix.machine import masks
from torchmatrix.machine.host import Host
from torchmatrix.planning.plan import GpuSet


def nvidia(host: Host, *indices: int) -> GpuSet:
    return GpuSet(indices=indices, vendor="nvidia", gpus=tuple(host.gpus[i] for i in indices), threads=4)


def spec_for(gpus: GpuSet) -> LaunchSpec:
    return LaunchSpec(arguments=("--model", "resnet50"), gpus=gpus, cache="w", owner="me")


def test_nvidia_gpus_are_requested_by_uuid_in_the_order_asked_for(nvidia_host: Host) -> None:
    (request,) = device_options(nvidia(nvidia_host, 2, 0))["device_requests"]
    assert dict(request) == {
        "Driver": "nvidia",
        "Count": 0,
        "DeviceIDs": ["GPU-222", "GPU-000"],
        "Capabilities": [["gpu"]],
        "Options": {},
    }
    assert visible_devices(nvidia(nvidia_host, 2, 0)) == {"CUDA_VISIBLE_DEVICES": "GPU-222,GPU-000"}


def test_gpus_come_by_cdi_only_if_the_daemon_knows_all_of_them(nvidia_host: Host) -> None:
    options = device_options(nvidia(nvidia_host, 2, 0))
    both = ["nvidia.com/gpu=GPU-000", "nvidia.com/gpu=GPU-222"]
    assert by_cdi(options, both[:1]) == options
    assert by_cdi(options, None) == by_cdi(options, both), "one that doesn't tell"
    (request,) = by_cdi(options, [*both, "nvidia.com/gpu=all"])["device_requests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=GPU-222", "nvidia.com/gpu=GPU-000"])


def test_amd_gpus_get_kfd_and_only_their_render_nodes_with_numeric_groups(amd_host: Host) -> None:
    gpus = GpuSet(indices=(1,), vendor="amd", gpus=(amd_host.gpus[1],))
    assert device_options(gpus) == {
        "devices": ["/dev/kfd:/dev/kfd:rw", "/dev/dri/renderD129:/dev/dri/renderD129:rw"],
        "group_add": ["44", "109"],
    }
    assert visible_devices(gpus) == {"ROCR_VISIBLE_DEVICES": "1"}


def environment_of(process: "subprocess.Popen[bytes]") -> list[str]:
    """Return the lines of `env`, read before its supervisor's input ends, and with it whatever still runs."""
    assert process.stdout is not None
    lines = process.stdout.read().decode().splitlines()
    process.communicate()
    return lines


def test_no_other_choice_of_gpus_reaches_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*masks.VARIABLES, "ANOTHER_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")
    lines = environment_of(containment.start_supervised(["/usr/bin/env"], {"ROCR_VISIBLE_DEVICES": "3"}, None))
    assert [line for line in lines if "VISIBLE" in line or "ORDINAL" in line or "ORDER" in line] == ["ROCR_VISIBLE_DEVICES=3"]


ACTING = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "LD_PRELOAD", "LD_LIBRARY_PATH", "KMP_AFFINITY", "MALLOC_CONF", "CXX",
          "NVIDIA_TF32_OVERRIDE", "CUBLASLT_LOG_LEVEL", "CUDNN_LOGLEVEL_DBG", "GOMP_CPU_AFFINITY", "OMP_PROC_BIND", "CI",
          "ENABLE_HOST_SIDE_TMA", "CUTLASS_EPILOGUE_FUSION", "HELION_BACKEND", "AOTINDUCTOR_REPRO_LEVEL")  # fmt: skip
ELSE = ("TORCH_LOGS", "CUDA_HOME", "HTTPS_PROXY", "OMPI_COMM_WORLD_RANK", "CXXFLAGS")


def test_what_acts_on_a_launch_does_not_reach_it_from_the_users_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ACTING, *ELSE):
        monkeypatch.setenv(name, "" if name.startswith("LD_") else "1")
    lines = environment_of(
        containment.start_supervised(["/usr/bin/env"], containment.inherited_variables(["KMP_*", "CXX"]), None)
    )
    names = {line.partition("=")[0] for line in lines}
    assert names.issuperset(ELSE) and names.intersection(ACTING) == {"KMP_AFFINITY", "CXX"}
    assert set(containment.withheld_variables(["KMP_*", "CXX"])) >= {*ACTING} - {"KMP_AFFINITY", "CXX"}


def test_a_cpu_set_gets_its_cores() -> None:
    gpus = GpuSet(indices=(0, 1), vendor="cpu", cpus=("0,1", "2,3"))
    assert device_options(gpus) == {"cpuset_cpus": "0,1,2,3"}
    assert visible_devices(gpus) == {}


def test_limits_are_raised_only_where_several_gpus_talk(nvidia_host: Host) -> None:
    assert communication_options(nvidia(nvidia_host, 0)) == {"shm_size": "8g"}
    several = communication_options(nvidia(nvidia_host, 0, 1))
    assert [(u["Name"], u["Soft"], u["Hard"]) for u in several["ulimits"]] == [
        ("memlock", -1, -1),
        ("stack", 67108864, 67108864),
    ]


def test_a_container_has_no_privileges_no_network_and_a_read_only_root(nvidia_host: Host) -> None:
    image = Image(reference="torchmatrix/x:1", environment="abc")
    cache = Volume(name="torchmatrix-cache-abc-1", facts=CacheFacts(state="sealed", sha256="0"))
    options = container_options(image, spec_for(nvidia(nvidia_host, 0, 1)), cache=cache)
    assert options["user"] == "65532:65532"
    assert options["cap_drop"] == ["ALL"] and options["security_opt"] == ["no-new-privileges"]
    assert options["network_mode"] == "none" and options["read_only"] is True and options["init"] is True
    assert "privileged" not in options and "cap_add" not in options and "ipc_mode" not in options
    ((how, source, target, read_only),) = [(m["Type"], m["Source"], m["Target"], m["ReadOnly"]) for m in options["mounts"]]
    assert (how, source, target, read_only) == ("volume", "torchmatrix-cache-abc-1", "/sealed-cache", True)
    assert options["labels"]["torchmatrix.owner"] == "me"
    pasted = run_command(options)
    assert pasted.startswith("docker run --rm --init --user 65532:65532 --network none --read-only --cap-drop ALL")
    assert "-v torchmatrix-cache-abc-1:/sealed-cache:ro" in pasted and "--sealed-cache /sealed-cache" in pasted
    assert "--gpus '\"device=GPU-000,GPU-111\"'" in pasted and "--ulimit memlock=-1" in pasted


def test_one_process_runs_under_python_and_more_under_torchrun(nvidia_host: Host) -> None:
    assert bench_command("python3", "/b.py", spec_for(nvidia(nvidia_host, 0)), 1)[:3] == ["python3", "/b.py", "--model"]
    words = bench_command("python3", "/box/b.py", spec_for(nvidia(nvidia_host, 0, 1)), 29500)
    assert words[:2] == ["python3", "/box/torchrun.py"] and words[words.index("--monitor_interval") + 2] == "/box/b.py"
    assert words[words.index("--nproc_per_node") + 1] == "2" and words[words.index("--master_port") + 1] == "29500"


def test_ranks_on_several_nodes_meet_at_the_first_and_say_how_they_talk(nvidia_host: Host) -> None:
    rendezvous = Rendezvous(node=1, nodes=2, address="10.0.0.1", port=4000, interface="ib0", devices=("/dev/infiniband",))
    spec = replace(spec_for(nvidia(nvidia_host, 0)), rendezvous=rendezvous)
    words = bench_command("python3", "/box/b.py", spec, 29500)
    flags = dict(itertools.pairwise(words))
    assert (flags["--nnodes"], flags["--node_rank"], flags["--master_addr"], flags["--master_port"]) == (
        "2",
        "1",
        "10.0.0.1",
        "4000",
    )
    options = container_options(Image(reference="torchmatrix/x:1", environment="abc"), spec)
    assert options["network_mode"] == "host" and options["devices"] == ["/dev/infiniband:/dev/infiniband:rw"]
    assert options["environment"]["NCCL_SOCKET_IFNAME"] == "ib0" and options["environment"]["NCCL_DEBUG"] == "INFO"
    assert "--network host" in run_command(options) and options["cap_drop"] == ["ALL"]
    assert (
        "NCCL_DEBUG"
        not in container_options(Image(reference="x", environment="abc"), replace(spec, rendezvous=None))["environment"]
    )


def test_gloo_uses_the_loopback_unless_another_interface_reaches_the_other_nodes() -> None:
    rendezvous = Rendezvous(node=0, nodes=2, address="a", port=1)
    assert workload_environment("cpu")["GLOO_SOCKET_IFNAME"] == "lo"
    assert workload_environment("cpu", replace(rendezvous, interface="eth1"))["GLOO_SOCKET_IFNAME"] == "eth1"


def test_a_pasted_command_has_the_limits_of_the_launch(nvidia_host: Host) -> None:
    image, limits = Image(reference="torchmatrix/x:1", environment="abc"), Limits(memory_bytes=1 << 30, processes=500)
    pasted = run_command(container_options(image, spec_for(nvidia(nvidia_host, 0)), limits))
    assert "--oom-score-adj 1000 --memory 1073741824 --memory-swap 1073741824 --pids-limit 500" in pasted
    assert "--ulimit core=0" in pasted
