"""What is started in a box: its command line and its variables. Pure."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from torchmatrix.engines.engine import LaunchSpec, Meeting
from torchmatrix.planning.plan import GpuSet

MONITOR_SECONDS = "0.1"
"""How often torchrun looks whether its ranks have ended: as newer releases do; those before 2.4 did it every 5 s."""

WORKLOAD_FOLDER = PurePosixPath("/opt/workload")
"""Where a container finds images/workload."""
MODEL_FOLDER = PurePosixPath("/opt/model")
"""Where a container finds the file of a user's own model."""

CACHE_FOLDERS = ("/cache", "/sealed-cache")
"""Where a container finds its compile cache, and what it was sealed as."""


def bench_command(python: str, script: str, spec: LaunchSpec, port: int) -> list[str]:
    """The command line inside the box: python for one process, torchrun for more. `port`: a free one of this machine."""
    if spec.processes == 1 and not spec.meeting:
        return [python, script, *spec.arguments]
    meeting = spec.meeting or Meeting(node=0, nodes=1, address="127.0.0.1", port=port)
    return [python, *torchrun(script, spec.processes, meeting), script, *spec.arguments]


def torchrun(script: str, processes: int, meeting: Meeting) -> list[str]:
    """The program of images/workload that runs torchrun, beside `script`, and its flags; `processes`: on this node."""
    program = str(PurePosixPath(script).with_name("torchrun.py"))
    there = ["--nnodes", str(meeting.nodes), "--node_rank", str(meeting.node)]
    there += ["--master_addr", meeting.address, "--master_port", str(meeting.port)]
    return [program, *there, "--nproc_per_node", str(processes), "--monitor_interval", MONITOR_SECONDS]


def box_environment(vendor: str | None, meeting: Meeting | None = None) -> dict[str, str]:
    """Variables that every box gets, for `vendor` (nvidia, amd or cpu).

    With a `meeting`, NCCL says by what it sends from node to node (https://docs.nvidia.com/deeplearning/nccl/user-guide/).
    """
    return _on_any(vendor) | (_among_nodes(meeting) if meeting else {})


def _among_nodes(meeting: Meeting) -> dict[str, str]:
    named = {"GLOO_SOCKET_IFNAME": meeting.interface, "NCCL_SOCKET_IFNAME": meeting.interface} if meeting.interface else {}
    return named | {"NCCL_DEBUG": "INFO"}


def _on_any(vendor: str | None) -> dict[str, str]:
    common = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if vendor == "cpu":
        return common | {"GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    return common | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def visible_devices(gpus: GpuSet) -> dict[str, str]:
    """The variable that shows a process only the chosen GPUs, in the chosen order."""
    if gpus.vendor == "nvidia":
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus.gpus)}
    if gpus.vendor == "amd":
        return {"ROCR_VISIBLE_DEVICES": ",".join(str(gpu.index) for gpu in gpus.gpus)}
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Isolation:
    """What a launch shares with its machine. `network`: none, or the machine's. `note`: what else, or why not less."""

    network: str
    note: str | None = None

    def as_facts(self) -> dict[str, Any]:
        """The field of a launch's header under `started`."""
        return {"isolation": {"network": self.network, "note": self.note}}


def pasted(command: Sequence[str], scratch: Path) -> str:
    """The command with a new folder instead of `scratch`, which a launch removes."""
    return " ".join('"$(mktemp -d)"'.join(part and shlex.quote(part) for part in word.split(str(scratch))) for word in command)
