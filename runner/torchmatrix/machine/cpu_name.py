"""What this machine's CPU is called: by the kernel, or where it has no name, by the kind of its cores and by the board."""

import re
from pathlib import Path

from torchmatrix.ground.files import text_of

_NAMES = ("model name", "cpu model", "cpu", "uarch")
"""Fields of /proc/cpuinfo: of x86, MIPS and LoongArch, POWER, RISC-V. ARM has a name there in a few kernels only."""
_ARCHITECTURE = re.compile(r"ARMv\d", re.IGNORECASE)
"""What those kernels call every CPU: "ARMv8 Processor rev 1 (v8l)"."""
_IMPLEMENTERS = {
    0x41: "Arm", 0x42: "Broadcom", 0x43: "Cavium", 0x46: "Fujitsu", 0x48: "HiSilicon", 0x4E: "NVIDIA", 0x51: "Qualcomm",
    0x61: "Apple", 0x6D: "Microsoft", 0x70: "Phytium", 0xC0: "Ampere",
}  # fmt: skip
_PARTS = {
    0x41: {
        0xD03: "Cortex-A53", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72", 0xD09: "Cortex-A73",
        0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77", 0xD40: "Neoverse-V1",
        0xD41: "Cortex-A78", 0xD42: "Cortex-A78AE", 0xD44: "Cortex-X1", 0xD46: "Cortex-A510", 0xD47: "Cortex-A710",
        0xD48: "Cortex-X2", 0xD49: "Neoverse-N2", 0xD4A: "Neoverse-E1", 0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3",
        0xD4F: "Neoverse-V2", 0xD80: "Cortex-A520", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4", 0xD83: "Neoverse-V3AE",
        0xD84: "Neoverse-V3", 0xD85: "Cortex-X925", 0xD87: "Cortex-A725", 0xD8E: "Neoverse-N3",
    },
    0x42: {0x516: "ThunderX2"},
    0x43: {0x0A1: "ThunderX", 0x0AF: "ThunderX2"},
    0x46: {0x001: "A64FX", 0x003: "MONAKA"},
    0x48: {0xD01: "TaiShan-v110", 0xD02: "TaiShan-v120"},
    0x4E: {0x003: "Denver 2", 0x004: "Carmel", 0x010: "Olympus"},
    0x6D: {0xD49: "Azure Cobalt 100"},
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a"},
}  # fmt: skip
"""ARM's cores by implementer and part, as in sys-utils/lscpu-arm.c of https://github.com/util-linux/util-linux."""
_PLACEHOLDERS = re.compile(
    r"(?i)((system|product|base ?board|name|manufacturer|version)[ _-]*)+|to be filled.*|default string|o\.?e\.?m\.?"
    r"|not (specified|applicable|available)|unknown?|\[?empty\]?|none|n/?a|undefined|invalid|[0x. -]*"
)
"""What vendors leave in DMI."""


def cpu_name(root: Path = Path("/")) -> str | None:
    """Such as "AMD EPYC 9654 96-Core Processor" or "Arm Neoverse-V2 (Supermicro ARS-111GL-NHR)"; None: nothing tells it.

    A core's kind says neither how fast it is clocked nor how large its caches are, so the board is named beside it.
    """
    fields = _fields(text_of(root / "proc/cpuinfo") or "")
    name = next((name for key in _NAMES for name in fields.get(key, ()) if not _ARCHITECTURE.match(name)), None)
    if name:
        return name
    kinds = zip(fields.get("cpu implementer", ()), fields.get("cpu part", ()), strict=False)
    cores = " + ".join(dict.fromkeys(_core(*kind) for kind in kinds))
    board = board_name(root)
    return f"{cores} ({board})" if cores and board else cores or board


def _fields(cpuinfo: str) -> dict[str, list[str]]:
    """The values of each field, of all CPUs. Names in small letters: LoongArch has a "Model Name"."""
    found: dict[str, list[str]] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            found.setdefault(key.strip().lower(), []).append(value.strip())
    return found


def _core(implementer: str, part: str) -> str:
    """MIDR_EL1's numbers in words, or as they are."""
    try:
        maker, kind = int(implementer, 16), int(part, 16)
    except ValueError:
        return f"ARM core {implementer} {part}"
    vendor = _IMPLEMENTERS.get(maker, f"implementer {maker:#04x}")
    return f"{vendor} {_PARTS.get(maker, {}).get(kind, f'part {kind:#05x}')}"


def board_name(root: Path) -> str | None:
    """By the device tree, or by DMI; what a vendor didn't fill in is no name."""
    tree = (text_of(root / "proc/device-tree/model") or "").strip("\0 ")
    dmi = [text_of(root / "sys/class/dmi/id" / name) or "" for name in ("sys_vendor", "product_name")]
    named = [word for word in dmi if not _PLACEHOLDERS.fullmatch(word)]
    return tree or (" ".join(named) if named and not _PLACEHOLDERS.fullmatch(dmi[1]) else None)
