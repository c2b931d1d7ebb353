"""What is started in a box: its command line and its variables. Pure."""

from pathlib import PurePosixPath

from torchmatrix.engines.engine import LaunchSpec

MONITOR_SECONDS = "0.1"
"""How often torchrun looks whether its ranks have ended: as newer releases do; those before 2.4 did it every 5 s."""


def bench_command(python: str, script: str, spec: LaunchSpec, port: int) -> list[str]:
    """The command line inside the box: python for one process, torchrun for more."""
    if spec.processes == 1:
        return [python, script, *spec.arguments]
    return [python, *torchrun(script, spec.processes, port), script, *spec.arguments]


def torchrun(script: str, processes: int, port: int) -> list[str]:
    """The program of images/workload that runs torchrun, beside `script`, and its flags."""
    program = str(PurePosixPath(script).with_name("torchrun.py"))
    there = ["--nnodes", "1", "--node_rank", "0", "--master_addr", "127.0.0.1", "--master_port", str(port)]
    return [program, *there, "--nproc_per_node", str(processes), "--monitor_interval", MONITOR_SECONDS]


def box_environment(vendor: str | None) -> dict[str, str]:
    """Variables that every box gets, for `vendor` (nvidia, amd or cpu)."""
    common = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if vendor == "cpu":
        return common | {"GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    return common | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
