"""Invented servers: the facts that NVIDIA's and AMD's libraries report of them while nothing runs.

Figures of real boards (memory as the driver reports it, limits, clocks, links), so that the tool's
output can be checked against what is known of those boards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = str | int | float
Facts: TypeAlias = dict[str, Value]
MIB = 1 << 20
MACHINE = -1


@dataclass(frozen=True, kw_only=True)
class Server:
    """Facts of a server. `machine`: of the driver; `devices`: of each GPU by its number, in PCI order; slices from 10 on."""

    name: str
    vendor: str
    machine: Facts
    devices: Mapping[int, Facts] = field(default_factory=dict)

    def uuid(self, number: int) -> str:
        """Return the UUID of a GPU or a slice, as the tool names it."""
        return str(self.devices[number]["uuid"])


def uuid(number: int, prefix: str = "GPU") -> str:
    """Return a UUID in the driver's form that shows the number."""
    return f"{prefix}-{number:08x}-5eed-4000-8000-{number:012x}"


_DRIVER: Facts = {"driver": "570.133.20", "cuda": 12080, "nvml": "12.570.133.20"}
_IDLE: Facts = {"temperature": 34, "memory_temperature": 40, "power": 70, "utilization": 0, "reasons": 1, "energy": 1,
                "ecc_errors": 0, "ecc_corrected": 2, "used": 512 * MIB}  # fmt: skip

_H100: Facts = {
    "name": "NVIDIA H100 80GB HBM3", "capability": "9.0", "memory": 81559 * MIB, "power_limit": 700, "clock": 1980,
    "max_clock": 1980, "memory_clock": 2619, "pcie": 5, "max_pcie": 5, "lanes": 16, "nvlink": "switch 18", "p2p": 0, "ecc": 1,
    "persistence": 1, "mig": 0, "vbios": "96.00.A5.00.01", "bus_width": 5120, "remapped": 0, **_IDLE,
}  # fmt: skip
_A100: Facts = {
    "name": "NVIDIA A100-SXM4-80GB", "capability": "8.0", "memory": 81920 * MIB, "power_limit": 400, "clock": 1410,
    "max_clock": 1410, "memory_clock": 1593, "pcie": 4, "max_pcie": 4, "lanes": 16, "nvlink": "switch 12", "p2p": 0, "ecc": 1,
    "persistence": 1, "mig": 0, "vbios": "92.00.45.00.03", **_IDLE,
}  # fmt: skip
_RTX_4090: Facts = {
    "name": "NVIDIA GeForce RTX 4090", "capability": "8.9", "memory": 24564 * MIB, "power_limit": 450, "clock": 2520,
    "max_clock": 3105, "memory_clock": 10501, "pcie": 1, "max_pcie": 4, "lanes": 16, "p2p": 1, "persistence": 0,
    "vbios": "95.02.18.80.5F", **_IDLE,
}  # fmt: skip
_RTX_3090: Facts = {
    "name": "NVIDIA GeForce RTX 3090", "capability": "8.6", "memory": 24576 * MIB, "power_limit": 350, "clock": 1695,
    "max_clock": 2100, "memory_clock": 9751, "pcie": 1, "max_pcie": 4, "lanes": 16, "p2p": 0, "persistence": 0,
    "vbios": "94.02.26.48.75", **_IDLE,
}  # fmt: skip


def _placed(number: int, card: Facts, **more: Value) -> Facts:
    slot = {"uuid": uuid(number), "pci": f"00000000:{0x1B + 0x10 * number:02X}:00.0", "numa": number // 4}
    return {**card, **slot, **more}


def _slice(number: int, profile: str, gib: float) -> Facts:
    return {"uuid": uuid(number, "MIG"), "name": f"NVIDIA A100-SXM4-80GB MIG {profile}", "capability": "8.0",
            "memory": int(gib * 1024) * MIB, "used": 38 * MIB, "slice_of": 0, "slice_index": number - 10}  # fmt: skip


def _without_ecc(card: Facts) -> Facts:
    return {key: value for key, value in card.items() if key not in ("ecc_errors", "ecc_corrected", "memory_temperature")}


EIGHT_H100 = Server(
    name="eight-h100", vendor="nvidia", machine=_DRIVER, devices={number: _placed(number, _H100) for number in range(8)}
)
MIXED_RTX = Server(
    name="mixed-rtx",
    vendor="nvidia",
    machine=_DRIVER,
    devices={
        0: _placed(0, _without_ecc(_RTX_4090)),
        1: _placed(1, _without_ecc(_RTX_4090)),
        2: _placed(2, _without_ecc(_RTX_3090), nvlink="3 4"),
        3: _placed(3, _without_ecc(_RTX_3090), nvlink="2 4"),
    },
)
SLICED_A100 = Server(
    name="sliced-a100",
    vendor="nvidia",
    machine=_DRIVER,
    devices={
        0: _placed(0, _A100, mig=1),
        1: _placed(1, _A100),
        10: _slice(10, "3g.40gb", 39.5),
        11: _slice(11, "2g.20gb", 19.5),
        13: _slice(13, "1g.10gb", 9.5),
        14: _slice(14, "1g.10gb", 9.5),
    },
)
"""GPU 0 is cut into four slices (instance 2 is missing), GPU 1 is whole."""

_MI300X: Facts = {
    "name": "AMD Instinct MI300X", "memory": 196592 * MIB, "power_limit": 750, "clock": 2100, "memory_clock": 1300,
    "temperature": 38, "memory_temperature": 41, "power": 130, "utilization": 0, "used": 283 * MIB, "ecc_errors": 0,
    "ecc_corrected": 3, "energy": 1,
}  # fmt: skip


def amd_uuid(number: int) -> str:
    """Return a GPU's UUID as the tool and HIP name it: the KFD's unique id."""
    return f"GPU-5eed{number:012x}"


EIGHT_MI300X = Server(
    name="eight-mi300x",
    vendor="amd",
    machine={"driver": "6.12.12"},
    devices={
        number: {**_MI300X, "uuid": amd_uuid(number), "pci": f"0000:{0x05 + 0x18 * number:02x}:00.0", "numa": number // 4,
                 "render": 128 + 8 * number}
        for number in range(8)
    },
)  # fmt: skip
"""A server with eight MI300X. Each may be cut into eight, so every eighth render node is a whole one's."""
