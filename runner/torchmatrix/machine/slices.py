"""Slices of NVIDIA GPUs (Multi-Instance GPU): each is a device of its own, by its UUID.

A GPU that is in MIG mode can't be used as a whole: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Usable:
    """A device that CUDA can use. `whole`: where its GPU stands among all GPUs; `is_slice`: it is only a part of it."""

    handle: Any
    whole: int
    is_slice: bool


def usable(nvml: Any, handles: Sequence[Any], notes: list[str]) -> list[Usable]:
    """The GPUs of `handles`, those in MIG mode replaced by their slices; one that has none is left out and noted."""
    found: list[Usable] = []
    for whole, handle in enumerate(handles):
        if not _is_sliced(nvml, handle):
            found.append(Usable(handle=handle, whole=whole, is_slice=False))
            continue
        slices = _slices(nvml, handle)
        found += [Usable(handle=one, whole=whole, is_slice=True) for one in slices]
        if not slices:
            notes.append(
                f"GPU {whole} is in MIG mode and has no slice, so nothing can use it: make one "
                f"(sudo nvidia-smi mig -i {whole} -cgi PROFILE -C) or leave the mode (sudo nvidia-smi -i {whole} -mig 0)"
            )
    return found


def spread(rows: Rows, devices: Sequence[Usable]) -> tuple[tuple[str, ...], ...]:
    """A matrix of GPUs as one of `devices`. Slices have no links: neither NVLink nor peer access reaches them."""

    def word(one: int, other: int) -> str:
        here, there = devices[one], devices[other]
        if one == other:
            return "X"
        return "n/a" if here.is_slice or there.is_slice else rows[here.whole][there.whole]

    return tuple(tuple(word(i, j) for j in range(len(devices))) for i in range(len(devices)))


def whole_of(nvml: Any, handle: Any) -> Any | None:
    """The GPU that a slice is a part of; None for a whole GPU."""
    try:
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    except (nvml.NVMLError, AttributeError):
        return None


def _is_sliced(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except (nvml.NVMLError, AttributeError):  # GPUs before Ampere, GeForce cards, older bindings
        return False


def _slices(nvml: Any, handle: Any) -> list[Any]:
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        except nvml.NVMLError as error:
            if getattr(error, "value", None) != nvml.NVML_ERROR_NOT_FOUND:  # indices have gaps
                raise
    return found
