"""What is asked of the box, as flags on its command line; a person can paste them."""

from collections.abc import Mapping
from typing import Any

from torchmatrix.machine.host import Host
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.planning.plan import Cell, GpuSet

DEADLINE_MARGIN_SECONDS = 60.0
"""A box ends itself so long after the host should have ended it: for the case that the host is dead."""


def factors_in_words(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What a step does and how it is measured; `values`: of all factors, by name."""
    return tuple(word for factor in FACTORS for word in factor.words_for(values[factor.name]))


def device_options(cell: Cell, host: Host, seed: int, timeout_seconds: float) -> dict[str, Any]:
    """The options that say on what a launch runs, and for how long at most; None: as the box has it."""
    gpus = cell.gpus
    return {
        "--device": "cpu" if gpus.vendor == "cpu" else "cuda",
        "--threads": gpus.threads,
        "--cpus": ":".join(gpus.cpus) or _near(host, gpus) or None,
        "--seed": seed,
        "--deadline": round(timeout_seconds + DEADLINE_MARGIN_SECONDS),
        "--model-builder": cell.workload.own.name if cell.workload.own else None,
        "--model-sha256": cell.workload.own.sha256 if cell.workload.own else None,
    }


def options_in_words(options: Mapping[str, Any]) -> tuple[str, ...]:
    """As they stand on a command line."""
    return tuple(word for key, value in options.items() if value is not None for word in (key, str(value)))


def _near(host: Host, gpus: GpuSet) -> str:
    """The CPUs of each GPU's NUMA node, where the machine has several; empty where they aren't known."""
    cpus = [gpu.local_cpus or "" for gpu in gpus.gpus]
    return ":".join(cpus) if host.numa_nodes > 1 and any(cpus) else ""
