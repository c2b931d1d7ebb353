"""Matrix x Host -> Plan: ordered Cells, and Skips with their reasons. Pure: no files, no processes, no clock."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial

from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.toml_keys import nearest
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import DEFAULT_KEY, Workload, batch_key, batch_on, changed, ddp_id
from torchmatrix.planning.fit import (
    Supplies,
    Why,
    why_not_gpus,
    why_not_memory,
    why_not_mixed,
    why_not_nodes,
    why_not_slices,
    why_not_stack,
    why_not_supplied,
    why_not_workload,
)
from torchmatrix.planning.slots import Cut, cut


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuSet:
    """Ordered devices of the host; inside the box they are 0..N-1. On a CPU a device is a slot: a set of cores.

    `vendor`: "nvidia", "amd", "cpu", or None where the machine lacks the device. `gpus` are the GPUs themselves;
    `cpus` has one string such as "0-3" per CPU slot. `threads`: CPU threads for each process, the same whatever N is.
    `nodes`: so many machines of a cluster have this set each, and are one launch together. `unlike`: in what CPU slots
    differ, in words; empty if in nothing.
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
        """Such as gpu0, cpu0+1 or gpu0+1@2nodes; part of a cell's id."""
        nodes = f"@{self.nodes}nodes" if self.nodes > 1 else ""
        return ("cpu" if self.vendor == "cpu" else "gpu") + "+".join(map(str, self.indices)) + nodes

    @property
    def count(self) -> int:
        """How many devices, and processes, on all nodes."""
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
        """What will run."""
        return tuple(entry for entry in self.entries if isinstance(entry, Cell))

    @cached_property
    def skips(self) -> tuple[Skip, ...]:
        """What is skipped."""
        return tuple(entry for entry in self.entries if isinstance(entry, Skip))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What makes figures of its cells hard to compare."""
        return tuple(sorted({cell.gpus.unlike for cell in self.cells} - {""}))


def make_plan(matrix: Matrix, host: Host, supplies: Supplies) -> Plan:
    """Every cell of the matrix, to run or to skip, with the one-device baselines added."""
    entries: list[Cell | Skip] = []
    places, hosts = _places(matrix, host, supplies.nodes)
    for stack in matrix.stacks:
        first, last = why_not_stack(stack, matrix, host, supplies), why_not_supplied(stack, supplies)
        of_stack = [first or why_not_gpus(stack, on, host) or last for on in hosts]
        for workload, placed in places:
            if not _belong_together(stack, workload, host):
                continue
            reasons = [why or why_not_workload(stack, workload, on) for why, on in zip(of_stack, hosts, strict=True)]
            for variant, gpus, on, name, place_reason in placed:
                cell = Cell(id=f"{stack.name}/{name}", stack=stack, workload=variant, gpus=gpus)
                why = reasons[on] or place_reason
                entries.append(Skip(cell=cell, why=why) if why else cell)
    plan = Plan(entries=tuple(entries))
    _refuse_twins(plan.cells)
    return plan


def withheld(plan: Plan, reasons: Mapping[str, Why]) -> Plan:
    """The plan with every cell of some stacks skipped. `reasons`: why, by the stack's name."""

    def judged(entry: Cell | Skip) -> Cell | Skip:
        cell = entry if isinstance(entry, Cell) else entry.cell
        why = reasons.get(cell.stack.name)
        return Skip(cell=cell, why=why) if why else entry

    return Plan(entries=tuple(map(judged, plan.entries))) if reasons else plan


_Placed = tuple[Workload, GpuSet, int, str, Why | None]
"""A workload as it runs on a device set, the number of the host with this set's GPU models only, the end of its cells' ids, and
why it doesn't fit there (or None)."""


def _places(matrix: Matrix, host: Host, nodes: int) -> tuple[list[tuple[Workload, list[_Placed]]], list[Host]]:
    """Every workload with its variants on its device sets, and the hosts: the same for all stacks, so it is worked out once."""
    sets = _SetsOf(matrix, host, nodes)
    found = []
    for workload in matrix.workloads:
        placed = []
        asked = sets.of(workload)
        every = tuple(gpu for gpus, _, _ in asked for gpu in gpus.gpus) if matrix.gpus.mixed else ()
        for gpus, on, reason in asked:
            for variant in _variants(workload, gpus, every or gpus.gpus):
                why = reason or why_not_memory(variant, gpus.gpus)
                placed.append((variant, gpus, on, f"{variant.id}/{gpus.label}", why))
        found.append((workload, placed))
    return found, sets.hosts


def _refuse_twins(cells: Iterable[Cell]) -> None:
    """Two workloads may turn out equal on this machine, such as a batch of 64 and a table that gives 64 here."""
    twins = sorted(cell for cell, times in Counter(cell.id for cell in cells).items() if times > 1)
    if twins:
        raise BadInput(
            f"{len(twins)} cells would be measured twice on this machine; the first: {twins[0]}",
            hint="two [[workload]] tables are equal here: remove one, or give it a `name`",
        )


def _variants(workload: Workload, gpus: GpuSet, alike: tuple[Gpu, ...]) -> list[Workload]:
    """The workload with the smallest batch of the GPUs `alike`; to be explained, also without all-reduce and without DDP."""
    own = workload
    if workload.batch_for:
        named = [(workload, gpu.name, gpu.memory_bytes) for gpu in alike]
        found = {batch_key(*one): batch_on(*one) for one in named} or {DEFAULT_KEY: workload.batch}
        smallest = min(sorted(found), key=found.__getitem__)
        own = replace(changed(workload, batch=found[smallest], batch_for=()), batch_key=smallest)
    if not workload.explain or gpus.count < 2 or workload.mode != "train" or workload.parallel != "ddp":
        return [own]
    return [own, *(changed(own, parallel=parallel) for parallel in ("no-sync", "independent"))]


def select(plan: Plan, globs: Iterable[str], where: Iterable[str]) -> Plan:
    """The part of the plan whose ids match any glob (none: all) and all key=value conditions. Raises BadInput.

    Cells that a selected cell depends on are kept: its one-device baselines, and the cells that explain it.
    """
    patterns = tuple(globs)
    tests = [_condition(text) for text in where]

    def chosen(cell: Cell) -> bool:
        return (not patterns or any(fnmatchcase(cell.id, p) for p in patterns)) and all(test(cell) for test in tests)

    if not patterns and not tests:
        return plan
    families = {(c.stack.name, ddp_id(c.workload), c.gpus.indices, c.gpus.nodes) for c in plan.cells if chosen(c)}
    families |= {(stack, workload, indices, 1) for stack, workload, indices, _ in families}
    families |= {(stack, workload, (index,), 1) for stack, workload, indices, _ in families for index in indices}

    def kept(entry: Cell | Skip) -> bool:
        if isinstance(entry, Skip):
            return chosen(entry.cell)
        return (entry.stack.name, ddp_id(entry.workload), entry.gpus.indices, entry.gpus.nodes) in families

    return Plan(entries=tuple(filter(kept, plan.entries)))


def _factor(name: str, cell: Cell) -> object:
    value = cell.workload.factors[name]
    return str(value).lower() if isinstance(value, bool) else value


_FIELDS: dict[str, Callable[[Cell], object]] = {
    "stack": lambda c: c.stack.name,
    "torch": lambda c: c.stack.torch,
    "variant": lambda c: c.stack.variant,
    "accelerator": lambda c: c.stack.accelerator,
    **{factor.name: partial(_factor, factor.name) for factor in FACTORS},
    "gpus": lambda c: c.gpus.label,
    "count": lambda c: c.gpus.count,
    "nodes": lambda c: c.gpus.nodes,
}


def values_of(cells: Iterable[Cell], key: str) -> set[str]:
    """What `cells` have for a key of --where."""
    return {str(_FIELDS[key](cell)) for cell in cells}


def _condition(text: str) -> Callable[[Cell], bool]:
    key, equals, value = text.partition("=")
    if not equals or key not in _FIELDS:
        raise BadInput(
            f"--where {text!r} is not a condition", hint=f"write KEY=VALUE; {nearest(key, _FIELDS)}; VALUE may be a glob"
        )
    read = _FIELDS[key]
    return lambda cell: fnmatchcase(str(read(cell)), value)


def _belong_together(stack: Stack, workload: Workload, host: Host) -> bool:
    """A cpu workload is for CPU stacks, a gpu workload for GPU stacks; a user's `stacks` globs narrow that."""
    on_cpu = stack.accelerator == "cpu" or (stack.accelerator == "any" and not host.gpus)
    return on_cpu == (workload.device == "cpu") and any(fnmatchcase(stack.name, glob) for glob in workload.stacks)


class _SetsOf:
    """The device sets of a workload, each with the number of its host and the reason why not (or None); computed once per set
    of counts.

    `nodes`: how many machines there are like this one. `hosts`: the machine with one GPU of each model of a set.
    """

    def __init__(self, matrix: Matrix, host: Host, nodes: int) -> None:
        self._matrix, self._host, self._nodes = matrix, host, nodes
        self._known: dict[tuple[str, tuple[int, ...], bool], list[tuple[GpuSet, int, Why | None]]] = {}
        self.hosts: list[Host] = []

    def of(self, workload: Workload) -> list[tuple[GpuSet, int, Why | None]]:
        """Those asked for and their baselines, and then those asked for on several nodes."""
        key = (workload.device, workload.counts, workload.explain)
        if key not in self._known:
            on_cpu = workload.device == "cpu"
            asked, make = (self._matrix.cpus, self._cpu_set) if on_cpu else (self._matrix.gpus, self._gpu_set)
            lists = [tuple(range(n)) for n in workload.counts or asked.counts] + ([] if workload.counts else list(asked.lists))
            alone = [(i,) for i in range(len(self._host.gpus))] if asked.each and not workload.counts and not on_cpu else []
            on_one = _with_baselines([*lists, *alone], each=workload.explain or asked.each)
            several = [nodes for nodes in sorted(set(asked.nodes)) if nodes > 1]
            found = [make(indices) for indices in on_one]
            found += [self._on(nodes, *make(indices)) for nodes in several for indices in _in_order(lists)]
            self._known[key] = [(gpus, self._host_of(gpus), why) for gpus, why in found]
        return self._known[key]

    def _host_of(self, gpus: GpuSet) -> int:
        models = tuple({(gpu.name, gpu.capability): gpu for gpu in self._host.gpus if gpu in gpus.gpus}.values())
        on = replace(self._host, gpus=models)
        self.hosts += [on] if on not in self.hosts else []
        return self.hosts.index(on)

    def _on(self, nodes: int, gpus: GpuSet, why: Why | None) -> tuple[GpuSet, Why | None]:
        """A set on so many nodes."""
        return replace(gpus, nodes=nodes), why or why_not_nodes(nodes, self._nodes)

    @cached_property
    def _slots(self) -> Cut:
        """As many as the largest count in the matrix, so that a slot is always the same."""
        own = (n for w in self._matrix.workloads if w.device == "cpu" for n in w.counts)
        return cut(self._host.cores, self._host.core_groups, max((*self._matrix.cpus.counts, *own), default=1))

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
        unfit = why_not_slices(chosen) or (None if self._matrix.gpus.mixed else why_not_mixed(chosen))
        return GpuSet(indices=indices, vendor=self._host.vendor, gpus=chosen, threads=threads), unfit


def cpu_set(indices: tuple[int, ...], found: Cut) -> GpuSet:
    """These slots, as far as they are there."""
    cpus = tuple(",".join(map(str, found.slots[i])) if i < len(found.slots) else "" for i in indices)
    unlike = found.unlike if len(indices) > 1 else ""
    return GpuSet(indices=indices, vendor="cpu", cpus=cpus, threads=found.size, unlike=unlike)


def _with_baselines(lists: Iterable[tuple[int, ...]], each: bool) -> list[tuple[int, ...]]:
    """In order, with the first device of every set alone as its baseline; with `each`, all."""
    wanted = {indices for indices in lists}
    wanted |= {(index,) for indices in wanted for index in (indices if each else indices[:1])}
    return _in_order(wanted)


def _in_order(lists: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Without repetition, smallest first."""
    return sorted(set(lists), key=lambda indices: (len(indices), indices))
