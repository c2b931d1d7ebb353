"""How long a plan may take: from earlier launches of the same cells on this machine, else a rule of thumb. Never a result."""

from collections.abc import Iterable, Mapping

from torchmatrix.planning.plan import Cell

GPU_LAUNCH_SECONDS = 45.0
CPU_LAUNCH_SECONDS = 14.0
COLD_COMPILE_SECONDS = 90.0


def launch_seconds(cell: Cell, number: int, known: Mapping[str, float]) -> float:
    """One launch of `cell` in round `number`; `known` has seconds by cell id."""
    if cell.id in known:
        return known[cell.id]
    usual = CPU_LAUNCH_SECONDS if cell.gpus.vendor == "cpu" else GPU_LAUNCH_SECONDS
    usual += cell.workload.least_seconds
    return usual + (COLD_COMPILE_SECONDS if cell.workload.compile and number == 1 else 0.0)


def total_seconds(launches: Iterable[tuple[Cell, int]], builds: Iterable[float], known: Mapping[str, float]) -> float:
    """All launches and builds (`builds`: usual seconds for each stack still to be built)."""
    return sum(launch_seconds(cell, number, known) for cell, number in launches) + sum(builds)


def in_words(seconds: float) -> str:
    """Such as "40 s", "8 min" or "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
