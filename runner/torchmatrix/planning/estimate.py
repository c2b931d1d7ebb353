"""How long a plan may take: from earlier launches of the same cells on this machine, else a rule of thumb. Never a result."""

from collections.abc import Iterable, Mapping

from torchmatrix.matrix.stacks import Stack
from torchmatrix.planning.fit import least_disk_bytes
from torchmatrix.planning.plan import Cell

GPU_LAUNCH_SECONDS = 45.0
CPU_LAUNCH_SECONDS = 14.0
COLD_COMPILE_SECONDS = 90.0


def launch_seconds(cell: Cell, number: int, known: Mapping[str, float]) -> float:
    """One launch of `cell` in round `number`; `known` has seconds by cell id."""
    if cell.id in known:
        return known[cell.id]
    usual = CPU_LAUNCH_SECONDS + cell.workload.request_seconds if cell.gpus.vendor == "cpu" else GPU_LAUNCH_SECONDS
    usual += cell.workload.least_seconds
    return usual + (COLD_COMPILE_SECONDS if cell.workload.compile and number == 1 else 0.0)


def total_seconds(launches: Iterable[tuple[Cell, int]], builds: Iterable[float], known: Mapping[str, float]) -> float:
    """All launches and builds (`builds`: usual seconds for each stack still to be built)."""
    usual: dict[tuple[int, str | None, bool], float] = {}  # of cells of one workload on one kind of device, which is nearly all

    def seconds(cell: Cell, number: int) -> float:
        if cell.id in known:
            return known[cell.id]
        alike = (id(cell.workload), cell.gpus.vendor, number == 1)
        if alike not in usual:
            usual[alike] = launch_seconds(cell, number, known)
        return usual[alike]

    return sum(seconds(cell, number) for cell, number in launches) + sum(builds)


def held_against(estimated: float, took: float) -> str:
    """How good an estimate was, such as "took 9 min; 10 min were estimated (-10 %)"."""
    return f"took {in_words(took)}; {in_words(estimated)} were estimated ({100 * (took / estimated - 1):+.0f} %)"


def disk_in_words(to_build: Iterable[Stack]) -> str:
    """What building takes on disk at least, by the catalog's rough table; which stacks are unknown to it is said."""
    sizes = {stack.name: least_disk_bytes(stack) for stack in to_build}
    if not sizes:
        return "nothing to build"
    total = sum(size for size in sizes.values() if size)
    unknown = [name for name, size in sizes.items() if size is None]
    said = f"at least {total / 2**30:.0f} GiB on disk" if total else ""
    lacking = f"disk space unknown for {', '.join(unknown)}" if unknown else ""
    return ", ".join(part for part in (said, lacking) if part)


def in_words(seconds: float) -> str:
    """Such as "40 s", "8 min" or "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
