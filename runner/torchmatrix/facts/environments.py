"""What a launch ran in, as far as it can affect a figure; and how two such environments differ."""

import json

from torchmatrix.facts.launch import Launch

Environment = dict[str, str]
"""The fields of a launch's machine, engine, image and box by name, as text; what was not recorded is UNKNOWN."""

UNKNOWN = "null"
_HOST_FIELDS = ("name", "cpu", "driver", "cuda_driver", "kernel", "os", "governor", "memory_bytes", "numa_nodes")
_QUOTA = "cpu_quota"
_GPU_FIELDS = ("name", "uuid", "vbios", "power_limit_watts", "ecc", "persistence", "memory_bytes")
_BOX_FIELDS = ("torch", "cuda", "hip", "cudnn", "nccl", "triton", "python", "glibc", "os", "torch_config", "variables")
_PACKAGE = "package "


def environment_of(launch: Launch) -> Environment:
    """The fields of a launch's machine, engine, image and box that can affect a figure, as text."""
    image, box = launch.image, launch.box
    fields = {f"host {name}": launch.host.get(name) for name in _HOST_FIELDS}
    if _QUOTA in launch.host:
        fields[f"host {_QUOTA}"] = launch.host[_QUOTA] or (None if launch.host.get("limits_unseen") else "no limit")
    for index, gpu in enumerate(launch.devices.gpus):
        fields |= {f"GPU {index} {name}": gpu.facts.get(name) for name in _GPU_FIELDS}
    fields |= {"engine": launch.engine.get("engine"), "image": (image.id or image.reference) if image else None}
    fields |= {f"box {name}": box.facts.get(name) if box else None for name in _BOX_FIELDS}
    fields |= {f"{_PACKAGE}{name}": version for name, version in (box.versions if box else {}).items()}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}


def differing(a: dict[str, set[str]], b: dict[str, set[str]]) -> dict[str, tuple[str, str]]:
    """The fields whose values differ between the two sides."""
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    return {name: (_words(a.get(name)), _words(b.get(name))) for name in names}


def is_told(environment: Environment) -> bool:
    """Whether the box reported its environment. A launch whose image was not built, or that crashed early, has none."""
    return environment.get("box python", UNKNOWN) != UNKNOWN


def changed(before: Environment, after: Environment) -> dict[str, tuple[str, str]]:
    """How two environments differ, as far as both are known; for packages also which were added and which removed.

    A field that is unknown in one of them is no change: a sensor that failed for a night, another number of GPUs.
    """
    if before == after:
        return {}
    found = differing({name: {value} for name, value in before.items()}, {name: {value} for name, value in after.items()})
    packages = is_told(before) and is_told(after)
    return {name: pair for name, pair in found.items() if _is_known(name, before, after, packages)}


def _is_known(name: str, before: Environment, after: Environment, packages: bool) -> bool:
    if name.startswith(_PACKAGE):
        return packages
    return UNKNOWN not in (before.get(name, UNKNOWN), after.get(name, UNKNOWN))


def _words(values: set[str] | None) -> str:
    return " | ".join(sorted(values)) if values else "n/a"
