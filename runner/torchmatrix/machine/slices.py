"""Slices of NVIDIA GPUs (Multi-Instance GPU): each is a device of its own, by its UUID.

A GPU that is in MIG mode can't be used as a whole: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Usable:
    """A device that CUDA can use, by its own UUID and name. `whole`: its GPU, whose number among all GPUs is `number`.

    `slice_of`: the UUID of the GPU that it is only a part of. `called`: what CUDA_VISIBLE_DEVICES may call it.
    """

    handle: Any
    uuid: str
    name: str
    whole: Any
    number: int
    slice_of: str | None
    called: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dead:
    """A GPU or a slice that can't be used, and why."""

    what: str
    why: Exception | str


def usable(nvml: Any, notes: list[str]) -> tuple[list[Usable], list[Dead]]:
    """All GPUs, those in MIG mode replaced by their slices, and those of them that can't tell who they are.

    A GPU in MIG mode without a slice is left out and noted.
    """
    found, dead = list[Usable](), list[Dead]()
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            whole = nvml.nvmlDeviceGetHandleByIndex(number)
            parts = _slices(nvml, whole) if _is_sliced(nvml, whole) else None
        except (nvml.NVMLError, UnicodeDecodeError) as error:
            dead.append(Dead(what=f"GPU {number}", why=error))
            continue
        if parts == []:
            notes.append(
                f"GPU {number} is in MIG mode and has no slice, so nothing can use it: make one "
                f"(sudo nvidia-smi mig -i {number} -cgi PROFILE -C) or leave the mode (sudo nvidia-smi -i {number} -mig 0)"
            )
        for place, handle in enumerate([whole] if parts is None else parts):
            try:
                found.append(_identified(nvml, number, whole, handle, is_first=place == 0))
            except (nvml.NVMLError, UnicodeDecodeError) as error:
                what = f"GPU {number}" if parts is None else f"slice {place} of GPU {number}"
                dead.append(Dead(what=what, why=error))
    return _without_twins(found, dead)


def _identified(nvml: Any, number: int, whole: Any, handle: Any, is_first: bool) -> Usable:
    """Raises NVMLError for a device that can't tell its UUID and its name.

    Who names a GPU in MIG mode gets its first slice. Drivers before R470 know a slice by its GPU and its instances only:
    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    uuid, name = as_text(nvml.nvmlDeviceGetUUID(handle)), as_text(nvml.nvmlDeviceGetName(handle))
    if handle is whole:
        return Usable(
            handle=handle, uuid=uuid, name=name, whole=whole, number=number, slice_of=None, called=(uuid, str(number))
        )
    gpu = as_text(nvml.nvmlDeviceGetUUID(whole))
    called = [uuid, *_by_instances(nvml, gpu, handle), *((gpu, str(number)) if is_first else ())]
    return Usable(handle=handle, uuid=uuid, name=name, whole=whole, number=number, slice_of=gpu, called=tuple(called))


def _by_instances(nvml: Any, gpu: str, handle: Any) -> list[str]:
    try:
        return [f"MIG-{gpu}/{nvml.nvmlDeviceGetGpuInstanceId(handle)}/{nvml.nvmlDeviceGetComputeInstanceId(handle)}"]
    except (nvml.NVMLError, AttributeError):
        return []


def _without_twins(found: list[Usable], dead: list[Dead]) -> tuple[list[Usable], list[Dead]]:
    """Neither CUDA nor NVML can tell apart devices of one UUID: none of them is usable."""
    times = Counter(one.uuid for one in found)
    twins = [
        Dead(what=f"GPU {one.number}", why=f"another GPU has its UUID, {one.uuid}") for one in found if times[one.uuid] > 1
    ]
    return [one for one in found if times[one.uuid] == 1], dead + twins


def as_text(value: Any) -> Any:
    """Older NVML bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def spread(rows: Rows, devices: Sequence[Usable]) -> tuple[tuple[str, ...], ...]:
    """A matrix of the GPUs of `devices` as one of `devices` themselves.

    Slices have no links: neither NVLink nor peer access reaches them.
    """

    place = {number: row for row, number in enumerate(dict.fromkeys(device.number for device in devices))}

    def word(here: Usable, there: Usable) -> str:
        if here is there:
            return "X"
        return "n/a" if here.slice_of or there.slice_of else rows[place[here.number]][place[there.number]]

    return tuple(tuple(word(here, there) for there in devices) for here in devices)


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
