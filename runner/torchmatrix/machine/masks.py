"""Restrict GPUs to those that a scheduler or a user left to us, by each vendor's own rules: the others belong to somebody else.

NVIDIA: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER,
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html; where that is silent (a device
that is named twice, what is a number), the rules are those of _parse_visible_devices() of PyTorch's torch/cuda/__init__.py.

AMD: https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html. ROCR_VISIBLE_DEVICES comes first, as in RvdFilter of
https://github.com/ROCm/ROCR-Runtime (amd_filter_device.cpp). HIP counts among the GPUs that it leaves, by HIP_VISIBLE_DEVICES
or, where that is empty, CUDA_VISIBLE_DEVICES, as in Device::init() of https://github.com/ROCm/clr (rocdevice.cpp).
GPU_DEVICE_ORDINAL is documented for HIP, too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from torchmatrix.core.formatting import are
from torchmatrix.machine.host_gpus import VendorGpus

VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
)  # fmt: skip
"""All variables that choose GPUs, or say how they are counted."""

_Masks = list[tuple[str, str]]
"""The variables that are set, each with the reason why it leaves no more, or ""."""
_NUMBER = re.compile(r"\+?0*(\d{1,9})", re.ASCII)
_UNCOUNTABLE = (
    "counts GPUs of different models, the fastest first, and NVIDIA doesn't say which that is: set "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID to count as nvidia-smi does, or name UUIDs (nvidia-smi -L)"
)


def masked(detected: VendorGpus, environment: Mapping[str, str], notes: list[str]) -> VendorGpus:
    """Return the `detected` GPUs that the variables of `environment` leave, in the host's order; add the effect to `notes`."""
    if not detected.gpus:
        return detected
    readers = {"nvidia": _masked_by_cuda, "amd": _masked_by_rocm, "intel": _masked_by_level_zero}
    left, masks = readers[detected.gpus[0].vendor](detected, environment)
    if not masks:
        return detected
    kept = sorted(left)
    names = f"{' and '.join(name for name, _ in masks)} {are(len(masks))} set"
    note = f"{names}: {len(kept)} of {len(detected.gpus)} GPUs are used; gpu0 is the first of them"
    notes.append("; ".join([note, *(f"{name} {why}" for name, why in masks if why)]))
    links, p2p = (tuple(tuple(rows[i][j] for j in kept) for i in kept) for rows in (detected.links, detected.p2p))
    called = tuple(detected.called[i] for i in kept)
    return replace(detected, gpus=tuple(detected.gpus[i] for i in kept), called=called, links=links, p2p=p2p)


def _masked_by_cuda(detected: VendorGpus, environment: Mapping[str, str]) -> tuple[Sequence[int], _Masks]:
    """Return positions among the GPUs."""
    name = "CUDA_VISIBLE_DEVICES"
    if name not in environment:
        return (), []
    words = [word.strip() for word in _split(environment[name])]
    left, why = _parse_list(words, partial(_find_by_cuda, detected.called), again="none")
    has_numbers = any(not _is_uuid(word) for word in words[: len(left)])
    if has_numbers and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and not _is_countable(detected, left):
        left, why = (), _UNCOUNTABLE
    return left, [(name, why)]


def _is_countable(detected: VendorGpus, left: Sequence[int]) -> bool:
    """Check whether numbers mean the same GPUs in each order: one model, or all GPUs."""
    models = {gpu.name.partition(" MIG ")[0] for gpu in detected.gpus}
    numbers = {name for called in detected.called for name in called if name.isdecimal()}
    return len(models) < 2 or len(left) == len(numbers)


def _is_uuid(word: str) -> bool:
    return word.startswith(("GPU-", "MIG-"))


def _find_by_cuda(called: Sequence[Sequence[str]], word: str) -> int | None:
    """Find a GPU by the beginning of a UUID that only one device has, or by a number, as C's strtoul reads it."""
    number = _NUMBER.match(word)
    name = word if _is_uuid(word) else str(int(number[1])) if number else ""
    exact = [position for position, names in enumerate(called) if name in names]
    begun = [i for i, names in enumerate(called) if _is_uuid(word) and any(name.startswith(word) for name in names)]
    positions = exact or begun
    return positions[0] if len(positions) == 1 else None


def _masked_by_rocm(detected: VendorGpus, environment: Mapping[str, str]) -> tuple[Sequence[int], _Masks]:
    """Return positions among the GPUs, each named by KFD's unique id, if it has one."""
    uuids = ["".join(names) for names in detected.called]
    visible: tuple[int, ...] = tuple(range(len(uuids)))
    masks: _Masks = []
    if (text := environment.get("ROCR_VISIBLE_DEVICES")) is not None:
        visible, why = _parse_list(_split(text), partial(_find_by_rocr, uuids), again="end")
        masks.append(("ROCR_VISIBLE_DEVICES", why))
    left: Sequence[int] = visible
    for name in _hip_variables(environment):
        positions, why = _parse_list(
            _split(environment[name]), partial(_find_by_clr, [uuids[i] for i in visible]), again="skip"
        )
        left = [position for position in left if position in {visible[i] for i in positions}]
        masks.append((name, why))
    return left, masks


def _masked_by_level_zero(detected: VendorGpus, environment: Mapping[str, str]) -> tuple[Sequence[int], _Masks]:
    """Return positions among the GPUs. A part of a GPU, such as 0.1, is none that can be measured: the list ends there."""
    if (text := environment.get("ZE_AFFINITY_MASK")) is None:
        return (), []
    words = [word.strip() for word in _split(text)]
    left, why = _parse_list(words, partial(_find_by_index, len(detected.gpus)), again="skip")
    return left, [("ZE_AFFINITY_MASK", why)]


def _hip_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables by which HIP chooses. PyTorch counts no GPU where one is empty, so none is used then.

    Where Slurm isn't told which GPUs it has, it sets those of all vendors alike (Flags in
    https://slurm.schedmd.com/gres.conf.html): they don't count below ROCR_VISIBLE_DEVICES once more.
    """
    names = [name for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES") if name in environment]
    chosen = [*[name for name in names if environment[name]], *names][:1]
    chosen += ["GPU_DEVICE_ORDINAL"] if environment.get("GPU_DEVICE_ORDINAL") else []
    set_by_slurm = environment.get("ROCR_VISIBLE_DEVICES") if "SLURM_JOB_ID" in environment else None
    return [name for name in chosen if name == "HIP_VISIBLE_DEVICES" or environment[name] != set_by_slurm]


def _find_by_rocr(uuids: Sequence[str], word: str) -> int | None:
    """Find a GPU by an index, as C's strtol reads it, or by the beginning of a unique id that only one GPU has."""
    token = word.strip().upper()
    if token.startswith("G"):
        begun = [i for i, uuid in enumerate(uuids) if uuid.upper().startswith(token) and len(token) > len("GPU-")]
        return begun[0] if len(begun) == 1 else None
    with suppress(ValueError):
        if re.fullmatch(r"0X[0-9A-F]{1,8}|\d{1,9}", token):
            number = int(token, 16 if "X" in token else 8 if token[0] == "0" else 10)
            return number if number < len(uuids) else None
    return None


def _find_by_clr(uuids: Sequence[str], word: str) -> int | None:
    """Find a GPU by an index without anything around it, or by a part of a unique id: the first GPU with it."""
    if "GPU-" in word:
        return next((position for position, uuid in enumerate(uuids) if word in uuid), None)
    return _find_by_index(len(uuids), word)


def _find_by_index(count: int, word: str) -> int | None:
    """Find one of `count` GPUs by an index without anything around it."""
    is_index = re.fullmatch(r"0|[1-9]\d{0,8}", word) is not None and int(word) < count
    return int(word) if is_index else None


def _split(text: str) -> list[str]:
    return text.removesuffix(",").split(",") if text else []


def _parse_list(words: Sequence[str], position_of: Callable[[str], int | None], again: str) -> tuple[tuple[int, ...], str]:
    """Return the positions up to the first word that names no device, and why the list ends there.

    `again`: what a device that is named twice does: leave "none", "end" the list, or be "skip"ped.
    """
    positions: list[int] = []
    for word in words:
        position = position_of(word)
        if position is None:
            return tuple(positions), f"ends at {word[:80]!r}, which is none of them"
        if position in positions and again == "none":
            return (), f"names {word[:80]!r} twice, so none is left"
        if position in positions and again == "end":
            return tuple(positions), f"ends at {word[:80]!r}, which it names before"
        positions += [position] if position not in positions else []
    return tuple(positions), ""
