"""Matrix x Host -> Plan: ordered Cells, and Skips with their reasons. Pure: no files, no processes, no clock."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torchmatrix import catalog
from torchmatrix.errors import BadInput
from torchmatrix.host import Gpu, Host
from torchmatrix.matrix import Matrix, Workload
from torchmatrix.schema import nearest
from torchmatrix.stacks import Stack


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuSet:
    """Ordered devices of the host; inside the box they are 0..N-1. On a CPU a device is a slot: a set of cores.

    `vendor`: "nvidia", "amd", "cpu", or None where the machine lacks the device. `gpus` are the GPUs themselves;
    `cpus` has one string such as "0-3" per CPU slot. `threads`: CPU threads for each process, the same whatever N is.
    """

    indices: tuple[int, ...]
    vendor: str | None
    gpus: tuple[Gpu, ...] = ()
    cpus: tuple[str, ...] = ()
    threads: int = 1

    @property
    def label(self) -> str:
        """Such as gpu0 or cpu0+1; part of a cell's id."""
        return ("cpu" if self.vendor == "cpu" else "gpu") + "+".join(map(str, self.indices))


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One box of the matrix: a stack, a workload and a device set."""

    id: str
    stack: Stack
    workload: Workload
    gpus: GpuSet


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """Why something can't run here, and the way out."""

    reason: str
    fix: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip:
    """A cell that this machine can't run, and why."""

    cell: Cell
    why: Why


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What will run, in the matrix's order, and what won't."""

    cells: tuple[Cell, ...]
    skips: tuple[Skip, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """What there is to run with: is a container engine chosen, which stacks are built, which indexes don't answer."""

    containers: bool
    built: Collection[str] = frozenset()
    unreachable: Collection[str] = frozenset()


def make_plan(matrix: Matrix, host: Host, means: Means) -> Plan:
    """Every cell of the matrix, as something to run or as a skip; the one-device baselines are added."""
    cells: list[Cell] = []
    skips: list[Skip] = []
    sets = _SetsOf(matrix, host)
    for stack in matrix.stacks:
        stack_reason = _why_not_stack(stack, matrix, host, means)
        for workload in matrix.workloads:
            if not _belong_together(stack, workload, host):
                continue
            reason = stack_reason or _why_not_workload(stack, workload, host)
            for gpus, set_reason in sets.of(workload):
                cell = Cell(id=f"{stack.name}/{workload.id}/{gpus.label}", stack=stack, workload=workload, gpus=gpus)
                why = reason or set_reason
                if why:
                    skips.append(Skip(cell=cell, why=why))
                else:
                    cells.append(cell)
    return Plan(cells=tuple(cells), skips=tuple(skips))


def select(plan: Plan, globs: Iterable[str], where: Iterable[str]) -> Plan:
    """The part of the plan whose ids match any glob (none: all) and all key=value conditions. Raises BadInput.

    The one-device baseline of every chosen cell is kept, since a scale factor without it can't be told.
    """
    patterns = tuple(globs)
    tests = [_condition(text) for text in where]

    def chosen(cell: Cell) -> bool:
        return (not patterns or any(fnmatchcase(cell.id, p) for p in patterns)) and all(test(cell) for test in tests)

    named = [cell for cell in plan.cells if chosen(cell)]
    needed = {(c.stack.name, c.workload.id, c.gpus.indices[:1]) for c in named}
    wanted = {cell.id for cell in named}
    cells = (c for c in plan.cells if c.id in wanted or (c.stack.name, c.workload.id, c.gpus.indices) in needed)
    return Plan(cells=tuple(cells), skips=tuple(skip for skip in plan.skips if chosen(skip.cell)))


_FIELDS: dict[str, Callable[[Cell], object]] = {
    "stack": lambda c: c.stack.name,
    "torch": lambda c: c.stack.torch,
    "variant": lambda c: c.stack.variant,
    "accelerator": lambda c: c.stack.accelerator,
    "model": lambda c: c.workload.model,
    "mode": lambda c: c.workload.mode,
    "precision": lambda c: c.workload.precision,
    "compile": lambda c: str(c.workload.compile).lower(),
    "channels_last": lambda c: str(c.workload.channels_last).lower(),
    "attention": lambda c: c.workload.attention,
    "batch": lambda c: c.workload.batch,
    "gpus": lambda c: c.gpus.label,
    "count": lambda c: len(c.gpus.indices),
}


def _condition(text: str) -> Callable[[Cell], bool]:
    key, equals, value = text.partition("=")
    if not equals or key not in _FIELDS:
        raise BadInput(
            f"--where {text!r} is not a condition", hint=f"write KEY=VALUE; {nearest(key, _FIELDS)}; VALUE may be a glob"
        )
    read = _FIELDS[key]
    return lambda cell: fnmatchcase(str(read(cell)), value)


def interleave(cells: Iterable[Cell], launches: int, seed: int) -> Iterator[tuple[Cell, int]]:
    """(cell, round) in the order to launch: blocks of the same devices; in each, rounds of all cells, shuffled.

    Two cells measured one after the other on a warming device differ; interleaved over rounds they don't. The order is
    a function of `seed` alone.
    """
    import random

    shuffle = random.Random(seed).shuffle
    blocks: dict[str, list[Cell]] = {}
    for cell in cells:
        blocks.setdefault(cell.gpus.label, []).append(cell)
    for block in blocks.values():
        for number in range(1, launches + 1):
            order = list(block)
            shuffle(order)
            yield from ((cell, number) for cell in order)


def _belong_together(stack: Stack, workload: Workload, host: Host) -> bool:
    """A cpu workload is for CPU stacks, a gpu workload for GPU stacks; a user's `stacks` globs narrow that."""
    on_cpu = stack.accelerator == "cpu" or (stack.accelerator == "any" and not host.gpus)
    return on_cpu == (workload.device == "cpu") and any(fnmatchcase(stack.name, glob) for glob in workload.stacks)


class _SetsOf:
    """The device sets of a workload, each with the reason why not (or None); computed once per set of counts."""

    def __init__(self, matrix: Matrix, host: Host) -> None:
        self._matrix, self._host = matrix, host
        self._known: dict[tuple[str, tuple[int, ...]], list[tuple[GpuSet, Why | None]]] = {}

    def of(self, workload: Workload) -> list[tuple[GpuSet, Why | None]]:
        key = (workload.device, workload.counts)
        if key not in self._known:
            make = self._cpu_sets if workload.device == "cpu" else self._gpu_sets
            self._known[key] = make(workload.counts)
        return self._known[key]

    def _cpu_sets(self, counts: tuple[int, ...]) -> list[tuple[GpuSet, Why | None]]:
        """CPU slots: the cores divided evenly by the largest count in the matrix, so that a slot is always the same."""
        wanted = _with_baselines(tuple(range(n)) for n in counts or self._matrix.cpus.counts)
        own = (n for w in self._matrix.workloads if w.device == "cpu" for n in w.counts)
        slots = max((*self._matrix.cpus.counts, *own), default=1)
        cores = self._host.cores
        size = len(cores) // slots if len(cores) >= slots else 1
        return [self._cpu_set(indices, cores, size) for indices in wanted]

    def _cpu_set(self, indices: tuple[int, ...], cores: tuple[int, ...], size: int) -> tuple[GpuSet, Why | None]:
        cpus = tuple(",".join(map(str, cores[i * size : (i + 1) * size])) for i in indices)
        why = None
        if len(indices) > len(cores):
            reason = f"needs {len(indices)} CPU cores, one per process; this machine offers {len(cores)}"
            why = Why(reason=reason, fix="lower [cpus] counts or use a machine with more cores")
        return GpuSet(indices=indices, vendor="cpu", cpus=cpus, threads=size), why

    def _gpu_sets(self, counts: tuple[int, ...]) -> list[tuple[GpuSet, Why | None]]:
        gpus, asked = self._host.gpus, self._matrix.gpus
        lists = [tuple(range(n)) for n in counts or asked.counts]
        if not counts:
            lists += asked.lists
            lists += [(i,) for i in range(len(gpus))] if asked.each else []
        return [self._gpu_set(indices) for indices in _with_baselines(lists)]

    def _gpu_set(self, indices: tuple[int, ...]) -> tuple[GpuSet, Why | None]:
        gpus = self._host.gpus
        threads = max(1, len(self._host.cores) // max(1, len(gpus)))
        if max(indices) >= len(gpus):
            have = f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"
            reason = f"needs GPU {max(indices)} (counting from 0); this machine has {have}"
            why = Why(reason=reason, fix="lower [gpus] counts or lists, or use a machine with more GPUs")
            return GpuSet(indices=indices, vendor=self._host.vendor, threads=threads), why
        chosen = tuple(gpus[i] for i in indices)
        return GpuSet(indices=indices, vendor=self._host.vendor, gpus=chosen, threads=threads), _why_not_mixed(chosen)


def _why_not_mixed(gpus: tuple[Gpu, ...]) -> Why | None:
    names = sorted({gpu.name for gpu in gpus})
    if len(names) < 2:
        return None
    reason = f"mixes GPU models ({', '.join(names)}): a scale factor over them means nothing"
    return Why(reason=reason, fix="name GPUs of one model in [gpus] lists")


def _with_baselines(lists: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Without repetition, smallest first, with the first device alone as the baseline of every larger set."""
    wanted = {indices for indices in lists}
    wanted |= {indices[:1] for indices in wanted}
    return sorted(wanted, key=lambda indices: (len(indices), indices))


def _why_not_stack(stack: Stack, matrix: Matrix, host: Host, means: Means) -> Why | None:
    """Why this machine can't run this stack at all, or None."""
    return (
        _why_not_accelerator(stack, matrix, host)
        or _why_not_engine(stack, means)
        or _why_not_driver(stack, host)
        or _why_not_index(stack, means)
    )


def _why_not_accelerator(stack: Stack, matrix: Matrix, host: Host) -> Why | None:
    have = f"{len(host.gpus)} x {host.gpus[0].name}" if host.gpus else "no GPU"
    if stack.accelerator == "cuda" and host.vendor != "nvidia":
        fix = "run it on a machine with an NVIDIA GPU and its driver; `nvidia-smi` must list it"
        return Why(reason=f"needs an NVIDIA GPU; this machine has {have}", fix=fix)
    if stack.accelerator == "rocm" and host.vendor != "amd":
        fix = "run it on a machine with an AMD GPU and the amdgpu driver; /dev/kfd must exist"
        return Why(reason=f"needs an AMD GPU; this machine has {have}", fix=fix)
    if stack.accelerator == "cpu" and host.gpus and matrix.cpus_when == "no-gpu":
        return Why(reason="CPU stacks run only where there is no GPU", fix='to run them here too: [cpus] when = "always"')
    return None


def _why_not_engine(stack: Stack, means: Means) -> Why | None:
    if stack.source == "image" and not means.containers:
        reason = f"{stack.image} is a container image, and no container engine is in use"
        return Why(reason=reason, fix="start Docker or set DOCKER_HOST, and don't ask for --engine local")
    return None


def _why_not_driver(stack: Stack, host: Host) -> Why | None:
    if stack.accelerator != "cuda" or not stack.variant or not host.driver:
        return None
    major = stack.variant.removeprefix("cu")[:2]
    needed = catalog.load().drivers.get(major)
    if needed and catalog.version_key(host.driver) < catalog.version_key(needed):
        reason = f"CUDA {major} needs NVIDIA driver {needed} or newer; this machine has {host.driver}"
        return Why(reason=reason, fix="update the driver, or use a stack with an older CUDA")
    return None


def _why_not_index(stack: Stack, means: Means) -> Why | None:
    if stack.name in means.built or not stack.indexes:
        return None
    if all(index.url in means.unreachable for index in stack.indexes):
        reason = f"can't be built: no answer from {', '.join(index.url for index in stack.indexes)}"
        return Why(
            reason=reason, fix='mend the network or the proxy settings, or name a mirror: index = "URL" in the [[stack]]'
        )
    return None


def _why_not_workload(stack: Stack, workload: Workload, host: Host) -> Why | None:
    """Why this stack can't run this workload on this machine, or None."""
    if workload.device == "cpu" and workload.precision in ("tf32", "amp"):
        return Why(reason=f"precision {workload.precision} needs a GPU", fix="on a CPU use fp32 or amp-bf16")
    if workload.precision == "tf32" and host.vendor == "amd":
        return Why(reason="tf32 is a mode of NVIDIA GPUs", fix="on AMD use fp32 or amp")
    if workload.precision == "tf32" and any(_older_than(gpu.capability, "8.0") for gpu in host.gpus):
        return Why(reason="tf32 needs an NVIDIA GPU of compute capability 8.0 or newer", fix="use fp32 or amp")
    if workload.compile and stack.source == "wheels":
        return _why_not_compile(stack)
    return None


def _why_not_compile(stack: Stack) -> Why | None:
    if stack.compile_python is None:
        return Why(reason=f"torch {stack.torch} has no torch.compile (it came with 2.0)", fix="leave compile out for it")
    if catalog.version_key(stack.python or "0") > catalog.version_key(stack.compile_python):
        reason = f"torch.compile of torch {stack.torch} needs Python {stack.compile_python} or older, not {stack.python}"
        return Why(reason=reason, fix=f'python = "{stack.compile_python}" in the [[stack]]')
    return None


def _older_than(capability: str | None, wanted: str) -> bool:
    return capability is not None and catalog.version_key(capability) < catalog.version_key(wanted)
