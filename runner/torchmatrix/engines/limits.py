"""What a launch may use of its machine. Generous, so that no limit changes the figure of a launch that ends by itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmatrix.ground import settings

OOM_SCORE_ADJ = 1000
"""The highest: if the machine runs out of memory, the kernel ends the launch before anything else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """`memory_bytes` of all processes of a launch together, without swap; `processes`: how many, threads included.

    None: the engine can't limit it here. `log_mb`: how much of the output the engine itself keeps, in megabytes. Core dumps
    are never written.
    """

    memory_bytes: int | None = None
    processes: int | None = None
    log_mb: int = 20

    def as_facts(self) -> dict[str, Any]:
        """The fields of a launch's header under `started`."""
        return {
            "memory_bytes": self.memory_bytes,
            "processes": self.processes,
            "core_bytes": 0,
            "oom_score_adj": OOM_SCORE_ADJ,
        }


def limits_of(machine_memory_bytes: int | None) -> Limits:
    """The site's share of a machine's memory, and its number of processes."""
    site = settings.load()
    memory = int(machine_memory_bytes * site.memory_share) if machine_memory_bytes else None
    return Limits(memory_bytes=memory, processes=site.processes, log_mb=site.log_mb)


def kernel_oom_kills() -> int:
    """How many processes this machine's kernel has ended for memory, in any control group; 0 if it doesn't say."""
    try:
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return 0
    return int(counts.get("oom_kill", 0))
