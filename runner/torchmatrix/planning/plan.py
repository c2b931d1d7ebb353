"""Matrix x Host -> Plan: ordered Cells, and Skips with their reasons. Pure: no files, no processes, no clock."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice

from torchmatrix.core.errors import BadInput
from torchmatrix.machine.cpu import CoreGroup
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import DEFAULT_KEY, Workload, batch_key, batch_on, changed
from torchmatrix.planning import fit
from torchmatrix.planning.fit_gpu import Why, surprises

# CPU slots: equal shares of a machine's cores, cut along its topology. Pure.
#
# Slots should be alike, or their ratio compares unlike devices. So no slot spans two sockets or NUMA nodes, and all slots
# have cores of the same types. Where that takes smaller slots, cores are left over.

Slot = tuple[int, ...]
"""Logical CPUs, one of each core."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """Slots of one size, none if there are fewer cores. `unlike`: how the slots differ, in words; empty if they don't."""

    slots: tuple[Slot, ...]
    unlike: str = ""

    @property
    def size(self) -> int:
        """Return how many cores a slot has; at least one."""
        return len(self.slots[0]) if self.slots else 1


def cut_slots(cores: Sequence[int], groups: Sequence[CoreGroup], count: int) -> Cut:
    """Cut `count` slots: equal shares of all cores if these follow the topology, else the largest slots within groups of one
    type, the fastest that has enough cores, else equal shares that are not alike. `groups`: of the cores; empty: all are alike.
    """
    groups = groups or (CoreGroup(cores=tuple(cores)),)
    shares = _cut_pieces([core for group in groups for core in group.cores], max(1, len(cores) // count), count)
    if _follow_topology(shares, groups):
        return Cut(slots=shares)
    for kind in sorted({group.kind for group in groups}):
        alike = [group.cores for group in groups if group.kind == kind]
        if size := _largest_size(list(map(len, alike)), count):
            pieces = [piece for members in alike for piece in _cut_pieces(members, size, len(members) // size)]
            return Cut(slots=tuple(islice(pieces, count)))
    return Cut(slots=shares, unlike=_describe_unlike(shares, groups))


def _cut_pieces(cores: Sequence[int], size: int, count: int) -> tuple[Slot, ...]:
    """Return up to `count` whole pieces, each sorted by core number."""
    places = range(0, len(cores) - size + 1, size)
    return tuple(tuple(sorted(cores[place : place + size])) for place in islice(places, count))


def _follow_topology(slots: Sequence[Slot], groups: Sequence[CoreGroup]) -> bool:
    """Check whether each slot lies in one group or consists of whole groups, with as many cores of each type in every slot."""
    for slot in slots:
        touched = [group.cores for group in groups if not set(slot).isdisjoint(group.cores)]
        if len(touched) != 1 and sum(map(len, touched)) != len(slot):
            return False
    return len({frozenset(_count_types(slot, groups).items()) for slot in slots}) <= 1


def _largest_size(sizes: Sequence[int], count: int) -> int:
    """Return the largest size of which `count` pieces fit into groups of these sizes; 0 if there are too few cores."""
    return next((size for size in range(max(sizes), 0, -1) if sum(group_size // size for group_size in sizes) >= count), 0)


def _count_types(slot: Slot, groups: Sequence[CoreGroup]) -> Counter[int]:
    """Count the slot's cores of each type."""
    return sum((Counter({group.kind: len({*slot}.intersection(group.cores))}) for group in groups), Counter())


def _describe_unlike(slots: Sequence[Slot], groups: Sequence[CoreGroup]) -> str:
    """Describe which slots differ from slot 0. Slots of one type could be cut along the topology, so they have several."""
    first = _count_types(slots[0], groups)
    others = [str(number) for number, slot in enumerate(slots) if _count_types(slot, groups) != first]
    return f"CPU slots are unlike devices: cores of other types than slot 0 has are in slot {', '.join(others)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuSet:
    """Ordered devices of the host; in the container they are 0..N-1. On a CPU a device is a slot: a set of cores.

    `vendor`: "nvidia", "amd", "cpu", or None where the machine lacks the device. `gpus`: the GPUs themselves.
    `cpus`: one string such as "0-3" per CPU slot. `threads`: CPU threads for each process, the same whatever N is.
    `nodes`: how many machines of a cluster have this set each and run one launch together. `unlike`: how CPU slots
    differ, in words; empty if they don't.
    """

    indices: tuple[int, ...]
    vendor: str | None
    gpus: tuple[Gpu, ...] = ()
    cpus: tuple[str, ...] = ()
    threads: int = 1
    nodes: int = 1
    unlike: str = ""

    @property
    def label(self) -> str:
        """Return a label such as gpu0, cpu0+1 or gpu0+1@2nodes, which is part of a cell's id."""
        nodes = f"@{self.nodes}nodes" if self.nodes > 1 else ""
        return ("cpu" if self.vendor == "cpu" else "gpu") + "+".join(map(str, self.indices)) + nodes

    @property
    def count(self) -> int:
        """Return the number of devices, and so of processes, on all nodes."""
        return len(self.indices) * self.nodes


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell of the matrix: a stack, a workload and a device set."""

    id: str
    stack: Stack
    workload: Workload
    gpus: GpuSet


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip:
    """A cell that this machine can't run, and why."""

    cell: Cell
    why: Why


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every cell that was selected, to run or to be skipped, in the matrix's order."""

    entries: tuple[Cell | Skip, ...]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Return the cells that will run."""
        return tuple(entry for entry in self.entries if isinstance(entry, Cell))

    @cached_property
    def skips(self) -> tuple[Skip, ...]:
        """Return the cells that are skipped."""
        return tuple(entry for entry in self.entries if isinstance(entry, Skip))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Return what makes figures of the plan's cells hard to compare, and what may surprise in them."""
        unlike = sorted({cell.gpus.unlike for cell in self.cells} - {""})
        return (*unlike, *surprises((cell.stack, cell.workload, cell.gpus.gpus) for cell in self.cells))


def make_plan(matrix: Matrix, host: Host, prerequisites: fit.Prerequisites) -> Plan:
    """Return every cell of the matrix, to run or to skip, with the one-device baselines added."""
    entries: list[Cell | Skip] = []
    places, hosts = _places(matrix, host, prerequisites.nodes)
    for stack in matrix.stacks:
        first, last = fit.why_not_stack(stack, matrix, host, prerequisites), fit.why_not_supplied(stack, prerequisites)
        of_stack = [first or fit.why_not_gpus(stack, on, host) or last for on in hosts]
        for workload, placed in places:
            if not _belong_together(stack, workload, host):
                continue
            reasons = [why or fit.why_not_workload(stack, workload, on) for why, on in zip(of_stack, hosts, strict=True)]
            for variant, gpus, on, name, place_reason in placed:
                cell = Cell(id=f"{stack.name}/{name}", stack=stack, workload=variant, gpus=gpus)
                why = reasons[on] or place_reason or fit.why_not_several(stack, gpus.count)
                entries.append(Skip(cell=cell, why=why) if why else cell)
    plan = Plan(entries=tuple(entries))
    _refuse_twins(plan.cells)
    return plan


def withheld(plan: Plan, reasons: Mapping[str, Why]) -> Plan:
    """Return the plan with every cell of some stacks skipped. `reasons`: why, by stack name."""

    def withhold(entry: Cell | Skip) -> Cell | Skip:
        cell = entry if isinstance(entry, Cell) else entry.cell
        why = reasons.get(cell.stack.name)
        return Skip(cell=cell, why=why) if why else entry

    return Plan(entries=tuple(map(withhold, plan.entries))) if reasons else plan


_Placed = tuple[Workload, GpuSet, int, str, Why | None]
"""A workload as it runs on a device set, the number of the host with this set's GPU models only, the end of its cells' ids, and
why it doesn't fit there (or None)."""


def _places(matrix: Matrix, host: Host, nodes: int) -> tuple[list[tuple[Workload, list[_Placed]]], list[Host]]:
    """Return every workload with its variants on its device sets, and the hosts; computed once, as all stacks share them."""
    sets = _DeviceSets(matrix, host, nodes)
    placements = []
    for workload in matrix.workloads:
        placed = []
        device_sets = sets.of(workload)
        mixed = tuple(gpu for gpus, _, _ in device_sets for gpu in gpus.gpus) if matrix.gpus.mixed else ()
        for gpus, on, reason in device_sets:
            for variant in _variants(workload, gpus, mixed or gpus.gpus):
                why = reason or fit.why_not_shared(variant, gpus.count) or fit.why_not_memory(variant, gpus.gpus, gpus.count)
                if why is None and gpus.vendor == "cpu":
                    why = fit.why_not_host_memory(variant, len(gpus.indices), gpus.count, host)
                placed.append((variant, gpus, on, f"{variant.id}/{gpus.label}", why))
        placements.append((workload, placed))
    return placements, sets.hosts


def _refuse_twins(cells: Iterable[Cell]) -> None:
    """Raise BadInput if two workloads are equal on this machine, such as a batch of 64 and a table that gives 64 here."""
    twins = sorted(cell for cell, times in Counter(cell.id for cell in cells).items() if times > 1)
    if twins:
        raise BadInput(
            f"{len(twins)} cells would be measured twice on this machine; the first: {twins[0]}",
            hint="two [[workload]] tables are equal here: remove one, or give it a `name`",
        )


def _variants(workload: Workload, gpus: GpuSet, alike: tuple[Gpu, ...]) -> list[Workload]:
    """Return the workload with the smallest batch of the GPUs `alike`; if it is to be explained, also without all-reduce and
    without DDP.
    """
    batched = workload
    if workload.batch_for:
        named = [(workload, gpu.name, gpu.memory_bytes) for gpu in alike]
        batches = {batch_key(*gpu_key): batch_on(*gpu_key) for gpu_key in named} or {DEFAULT_KEY: workload.batch}
        smallest = min(sorted(batches), key=batches.__getitem__)
        batched = replace(changed(workload, batch=batches[smallest], batch_for=()), batch_key=smallest)
    if not workload.explain or gpus.count < 2 or not workload.trains or workload.parallel != "ddp":
        return [batched]
    return [batched, *(changed(batched, parallel=parallel) for parallel in ("no-sync", "independent"))]


def _belong_together(stack: Stack, workload: Workload, host: Host) -> bool:
    """Check that a cpu workload meets a CPU stack, or a gpu workload a GPU stack, within the user's `stacks` globs."""
    on_cpu = stack.accelerator == "cpu" or (stack.accelerator == "any" and not host.gpus)
    return on_cpu == (workload.device == "cpu") and any(fnmatchcase(stack.name, glob) for glob in workload.stacks)


class _DeviceSets:
    """The device sets of a workload, each with the number of its host and the reason why not (or None); computed once per set
    of counts.

    `nodes`: how many machines like this one there are. `hosts`: the machine with one GPU of each model of a set.
    """

    def __init__(self, matrix: Matrix, host: Host, nodes: int) -> None:
        self._matrix, self._host, self._nodes = matrix, host, nodes
        self._cache: dict[tuple[str, tuple[int, ...], bool], list[tuple[GpuSet, int, Why | None]]] = {}
        self.hosts: list[Host] = []

    def of(self, workload: Workload) -> list[tuple[GpuSet, int, Why | None]]:
        """Return the requested device sets and their baselines, then the sets requested on several nodes."""
        key = (workload.device, workload.counts, workload.explain)
        if key not in self._cache:
            on_cpu = workload.device == "cpu"
            requested, make = (self._matrix.cpus, self._cpu_set) if on_cpu else (self._matrix.gpus, self._gpu_set)
            lists = [tuple(range(n)) for n in workload.counts or requested.counts] + (
                [] if workload.counts else list(requested.lists)
            )
            alone = [(i,) for i in range(len(self._host.gpus))] if requested.each and not workload.counts and not on_cpu else []
            on_one = _with_baselines([*lists, *alone], each=workload.explain or requested.each)
            several = [nodes for nodes in sorted(set(requested.nodes)) if nodes > 1]
            sets = [make(indices) for indices in on_one]
            for nodes in several:
                for gpus, why in map(make, _sorted_sets(lists)):
                    sets.append((replace(gpus, nodes=nodes), why or fit.why_not_nodes(nodes, self._nodes)))
            self._cache[key] = [(gpus, self._add_host(gpus), why) for gpus, why in sets]
        return self._cache[key]

    def _add_host(self, gpus: GpuSet) -> int:
        """Return the number of the host with only the GPU models of this set, after adding it if it is new."""
        models = tuple({(gpu.name, gpu.capability): gpu for gpu in self._host.gpus if gpu in gpus.gpus}.values())
        on = replace(self._host, gpus=models)
        self.hosts += [on] if on not in self.hosts else []
        return self.hosts.index(on)

    @cached_property
    def _slots(self) -> Cut:
        """Cut as many slots as the largest count in the matrix, so that a slot is always the same."""
        counts = (n for w in self._matrix.workloads if w.device == "cpu" for n in w.counts)
        return cut_slots(self._host.cores, self._host.core_groups, max((*self._matrix.cpus.counts, *counts), default=1))

    def _cpu_set(self, indices: tuple[int, ...]) -> tuple[GpuSet, Why | None]:
        gpus, there = cpu_set(indices, self._slots), len(self._host.cores)
        if len(indices) <= there:
            return gpus, None
        reason = f"needs {len(indices)} CPU cores, one per process; this machine has {there}"
        return gpus, Why(reason=reason, fix="lower [cpus] counts or use a machine with more cores")

    def _gpu_set(self, indices: tuple[int, ...]) -> tuple[GpuSet, Why | None]:
        gpus = self._host.gpus
        threads = max(1, len(self._host.cores) // max(1, len(gpus)))
        if max(indices) >= len(gpus):
            have = f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"
            reason = f"needs GPU {max(indices)} (counting from 0); this machine has {have}"
            why = Why(reason=reason, fix="lower [gpus] counts or lists, or use a machine with more GPUs")
            return GpuSet(indices=indices, vendor=self._host.vendor, threads=threads), why
        chosen = tuple(gpus[i] for i in indices)
        unfit = fit.why_not_slices(chosen) or (None if self._matrix.gpus.mixed else fit.why_not_mixed(chosen))
        return GpuSet(indices=indices, vendor=self._host.vendor, gpus=chosen, threads=threads), unfit


def cpu_set(indices: tuple[int, ...], cut: Cut) -> GpuSet:
    """Return the set of these slots of `cut`, with empty CPUs for slots that don't exist."""
    cpus = tuple(",".join(map(str, cut.slots[i])) if i < len(cut.slots) else "" for i in indices)
    unlike = cut.unlike if len(indices) > 1 else ""
    return GpuSet(indices=indices, vendor="cpu", cpus=cpus, threads=cut.size, unlike=unlike)


def _with_baselines(lists: Iterable[tuple[int, ...]], each: bool) -> list[tuple[int, ...]]:
    """Return the lists in order, with the first device of every set alone as its baseline; with `each`, every device alone."""
    wanted = set(lists)
    wanted |= {(index,) for indices in wanted for index in (indices if each else indices[:1])}
    return _sorted_sets(wanted)


def _sorted_sets(lists: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Remove repetitions and sort by size, smallest first."""
    return sorted(set(lists), key=lambda indices: (len(indices), indices))


# Estimates of a plan's time: from earlier launches of the same cells on this machine, else a rule of thumb. Never a result.

GPU_LAUNCH_SECONDS = 45.0
CPU_LAUNCH_SECONDS = 14.0
COLD_COMPILE_SECONDS = 90.0


def launch_seconds(cell: Cell, number: int, known: Mapping[str, float]) -> float:
    """Estimate one launch of `cell` in round `number`; `known`: seconds by cell id."""
    if cell.id in known:
        return known[cell.id]
    usual = CPU_LAUNCH_SECONDS + cell.workload.request_seconds if cell.gpus.vendor == "cpu" else GPU_LAUNCH_SECONDS
    usual += cell.workload.least_seconds
    return usual + (COLD_COMPILE_SECONDS if cell.workload.compile and number == 1 else 0.0)


def total_seconds(launches: Iterable[tuple[Cell, int]], builds: Iterable[float], known: Mapping[str, float]) -> float:
    """Estimate all launches and builds (`builds`: usual seconds for each stack still to be built)."""
    usual: dict[tuple[int, str | None, bool], float] = {}  # shared by cells of one workload on one kind of device

    def seconds(cell: Cell, number: int) -> float:
        if cell.id in known:
            return known[cell.id]
        alike = (id(cell.workload), cell.gpus.vendor, number == 1)
        if alike not in usual:
            usual[alike] = launch_seconds(cell, number, known)
        return usual[alike]

    return sum(seconds(cell, number) for cell, number in launches) + sum(builds)


def held_against(estimated: float, took: float) -> str:
    """Compare an estimate with the time taken, such as "took 9 min; 10 min were estimated (-10 %)"."""
    return (
        f"took {duration_in_words(took)}; {duration_in_words(estimated)} were estimated ({100 * (took / estimated - 1):+.0f} %)"
    )


def disk_in_words(to_build: Iterable[Stack]) -> str:
    """Describe what building takes on disk at least, by the catalog's rough table, and name the stacks it doesn't list."""
    sizes = {stack.name: fit.least_disk_bytes(stack) for stack in to_build}
    if not sizes:
        return "nothing to build"
    total = sum(size for size in sizes.values() if size)
    unknown = [name for name, size in sizes.items() if size is None]
    space = f"at least {total / 2**30:.0f} GiB on disk" if total else ""
    lacking = f"disk space unknown for {', '.join(unknown)}" if unknown else ""
    return ", ".join(part for part in (space, lacking) if part)


def duration_in_words(seconds: float) -> str:
    """Format a duration such as "40 s", "8 min" or "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
