"""Find Intel's GPUs and read them: sysfs of the drivers i915 and xe, and names and memory by the command xpu-smi where it is.

Written from the documentation (https://docs.kernel.org/gpu/, hwmon ABI of both drivers; https://intel.github.io/xpumanager/):
it has not been run on such a GPU.
"""

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchmatrix.core.files import text_of
from torchmatrix.machine import topology
from torchmatrix.machine.cpu import whole_number
from torchmatrix.machine.host_gpus import Gpu, VendorGpus
from torchmatrix.machine.telemetry import UNWATCHED, Reading, Sensor

INTEL = "0x8086"
_INTEGRATED = re.compile(r"0000:00:02\.\d")
"""The PCI address that all of Intel's processors give their own GPU."""
_LIMIT_SECONDS = 20.0
_Ask = Callable[[Sequence[str]], Any]


def ask_xpu_smi(words: Sequence[str]) -> Any:
    """Return what `xpu-smi` with these words prints as JSON; None where it isn't installed, or fails."""
    program = shutil.which("xpu-smi")
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        command = [program or "", *words, "-j"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_SECONDS, check=True)
        return json.loads(done.stdout)
    return None


def intel_gpus(notes: list[str], sys_root: Path, dev_root: Path, ask: _Ask = ask_xpu_smi) -> VendorGpus:
    """Return Intel's GPUs that are cards of their own, in the order of their PCI addresses. One in a processor is left out."""
    nodes = sorted((sys_root / "class/drm").glob("renderD*"), key=lambda node: (node / "device").resolve().name)
    found = [node for node in nodes if text_of(node / "device/vendor") == INTEL]
    cards = [node for node in found if not _INTEGRATED.fullmatch((node / "device").resolve().name)]
    if len(cards) < len(found):
        notes.append("the GPU in this machine's Intel processor is not used: it shares the processor's memory and power")
    if not cards:
        return VendorGpus()
    listed = _listed(ask)
    gpus = tuple(_gpu(index, node, listed, dev_root, ask) for index, node in enumerate(cards))
    drivers = dict.fromkeys((node / "device/driver").resolve().name for node in cards)
    unknown = tuple(tuple("X" if row == column else "n/a" for column in range(len(gpus))) for row in range(len(gpus)))
    return VendorGpus(
        gpus=gpus, links=unknown, p2p=unknown, driver=f"{' and '.join(drivers)} (kernel {platform.release()})",
        called=tuple((str(gpu.index),) for gpu in gpus),
    )  # fmt: skip


def _listed(ask: _Ask) -> dict[str, dict[str, Any]]:
    """Return xpu-smi's entries by PCI address."""
    answer = ask(("discovery",))
    entries = answer.get("device_list") if isinstance(answer, dict) else None
    devices = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return {str(entry.get("pci_bdf_address")): entry for entry in devices}


def _gpu(index: int, node: Path, listed: dict[str, dict[str, Any]], dev_root: Path, ask: _Ask) -> Gpu:
    device, render = node / "device", dev_root / "dri" / node.name
    address = device.resolve().name
    entry = listed.get(address, {})
    details = ask(("discovery", "-d", str(entry["device_id"]))) if "device_id" in entry else None
    size = str(details.get("memory_physical_size_byte")) if isinstance(details, dict) else ""
    name, uuid = entry.get("device_name"), entry.get("uuid")
    groups: tuple[int, ...] = ()
    with suppress(OSError):
        groups = (render.stat().st_gid,)
    return Gpu(
        index=index,
        uuid=uuid if isinstance(uuid, str) and uuid else f"PCI-{address}",
        name=name if isinstance(name, str) and name else f"Intel GPU (device {text_of(device / 'device') or 'unknown'})",
        vendor="intel",
        memory_bytes=int(size) if size.isdecimal() else whole_number(_card(node) / "lmem_total_bytes"),
        pci_bus=address,
        render_node=str(render),
        groups=groups,
        numa_node=topology.pci_numa_node(device),
        local_cpus=topology.pci_local_cpus(device),
        pcie=topology.sysfs_pcie(device),
        clocks_max_mhz=_first_number(node, _MOST_MHZ),
        power_limit_watts=_scaled(_first_number(node, ("device/hwmon/hwmon*/power1_max",)), 1e-6),
    )


_MOST_MHZ = ("device/drm/card*/gt/gt0/rps_max_freq_mhz", "device/tile0/gt0/freq0/max_freq")
_PATHS: dict[str, tuple[float, tuple[str, ...]]] = {
    "temperature_celsius": (1e-3, ("device/hwmon/hwmon*/temp2_input", "device/hwmon/hwmon*/temp1_input")),
    "memory_temperature_celsius": (1e-3, ("device/hwmon/hwmon*/temp3_input",)),
    "sm_clock_mhz": (1, ("device/drm/card*/gt/gt0/rps_act_freq_mhz", "device/tile0/gt0/freq0/act_freq")),
    "power_limit_watts": (1e-6, ("device/hwmon/hwmon*/power1_max",)),
    "energy_joules": (1e-6, ("device/hwmon/hwmon*/energy1_input",)),
}
"""For each key of a reading its unit in the file, and where i915 and xe have it; the first file that exists counts."""


def _card(node: Path) -> Path:
    return next(iter(sorted((node / "device/drm").glob("card*"))), node)


def _first_number(node: Path, patterns: Sequence[str]) -> int | None:
    numbers = (whole_number(path) for pattern in patterns for path in sorted(node.glob(pattern)))
    return next((number for number in numbers if number is not None), None)


def _scaled(number: int | None, unit: float) -> float | None:
    return None if number is None else number * unit


class IntelSensor:
    """Reads GPUs through sysfs. `nodes`: the folder of each one's render node, by UUID."""

    def __init__(self, nodes: dict[str, Path]) -> None:
        self._nodes = nodes

    def read(self) -> list[Reading]:
        """Return one reading per GPU."""
        return [self._read(uuid, node) for uuid, node in self._nodes.items()]

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _read(self, uuid: str, node: Path) -> Reading:
        numbers = {key: _scaled(_first_number(node, paths), unit) for key, (unit, paths) in _PATHS.items()}
        reading: Reading = {"device": uuid, **{key: number for key, number in numbers.items() if number is not None}}
        return reading if len(reading) > 1 else reading | {"error": f"{node} tells nothing"}


def open_intel(gpus: Sequence[Gpu], sys_root: Path = Path("/sys")) -> tuple[Sensor | None, str | None]:
    """Return the sensor of these GPUs, and what can't be monitored."""
    nodes = {gpu.uuid: sys_root / "class/drm" / Path(gpu.render_node).name for gpu in gpus if gpu.render_node}
    if not any(_first_number(node, paths) is not None for node in nodes.values() for _, paths in _PATHS.values()):
        return None, f"{UNWATCHED}: the driver has no readings in sysfs"
    return IntelSensor(nodes), "unseen on Intel's GPUs: how busy they are, memory in use and other programs"
