"""Which machine measured a run, the run that represents each machine, and the table of the launches of several machines.

A machine is recognised by the identity in its runs' records, not by its name. Runs that were recorded before there was one
belong to the machine that the other runs of their folder name (see Results.home). If they name none, the folder's name is the
identity, which is unverified, since two machines may have the same name.
"""

import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import structs

from torchmatrix.analysis import gpu_specs, prices, run_summary
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.rows import CellRow, FleetRow, LaunchRow, Row, group_by, task_of
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import printable
from torchmatrix.core.toml_keys import shown
from torchmatrix.facts import store
from torchmatrix.facts.alike import counting
from torchmatrix.facts.environments import Environment, of_machine, unlike
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.reading import launch_at, launches_below, sorted_out
from torchmatrix.facts.run_record import RunRecord
from torchmatrix.facts.store import Results, RunFolder, copies_among, host_of, run_around

UNKNOWN_GPU, UNKNOWN_CPU = "unknown GPU", "CPU: unknown"
_SHORTEST_ID = 4
"""Characters of an identity that distinguish two machines of one name; more where they don't suffice."""
_NAMELESS = re.compile(
    r"(?i)|none|n/a|amd gpu|ip discovery|(nvidia )?graphics device|.*\bunknown\b.*|armv\d.*|aarch64|arm64|x86_64|amd64|i[36]86"
    r"|riscv64|ppc64le|s390x|(qemu virtual|qemu tcg|common( \S+)? kvm|virtual) (cpu|processor).*|virtualapple.*|do-\w+"
    r"|(apple part 0x000|implementer 0x00) ?.*|.*0000 ?%?@.*|qemu standard pc.*"
    r"|[^(]*\b(qemu|kvm|virtual (machine|platform)|vmware\S*|virtualbox|domu|dummy-virt|compute engine|openstack nova)\b[^(]*"
)
"""Placeholders that drivers, kernels, hypervisors, clouds and earlier versions of this tool write where there is no name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """One machine. `id`: its identity; `verified`: whether it recorded one, else `id` is the name of the runs' folder.

    `name`: of the host; `label`: this name, with the beginning of the id where another machine has the same name. `gpus`: the
    recorded facts of each. `memory_bytes`: of the host. `conditions`: see environments.of_machine. Unknown values are None.
    """

    id: str
    name: str
    label: str
    verified: bool
    gpus: tuple[Mapping[str, Any], ...]
    cpu: str | None
    cores: int
    memory_bytes: int | None
    driver: str | None
    os: str | None
    kernel: str | None
    conditions: Environment = field(default_factory=dict)

    @property
    def gpu(self) -> str:
        """Return the GPU model's short name, several joined by " + "; of a machine without GPUs "CPU: " and the CPU's name.

        An unknown name contains the machine's label, so that two machines' unknown names are never equal.
        """
        return gpu_of(self, [str(gpu.get("name") or "") for gpu in self.gpus])

    @property
    def gpu_count(self) -> int:
        return len(self.gpus)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The run that represents a machine; `note`: what a reader must know of that choice, else None."""

    machine: Machine
    run: RunFolder
    note: str | None = None


def of_runs(runs: Sequence[RunFolder]) -> list[Machine]:
    """Return the machine of each run, in their order, as the machine's last run describes it. Labels are unique among them."""
    records = [run.read_header() for run in runs]
    identities: dict[Path, set[str]] = {}
    for run, record in zip(runs, records, strict=True):
        identities.setdefault(run.path.parent, set()).update(filter(None, [record.machine]))
    machines = [_machine(run, record, identities[run.path.parent]) for run, record in zip(runs, records, strict=True)]
    newest = {machine.id: machine for machine in machines}
    labels = _labels(list(newest.values()))
    return [replace(newest[machine.id], label=labels[machine.id]) for machine in machines]


def grouped(runs: Sequence[RunFolder]) -> list[tuple[Machine, list[RunFolder]]]:
    """Group the runs by machine: runs in their order, machines in the order of their first run."""
    groups: dict[str, tuple[Machine, list[RunFolder]]] = {}
    for machine, run in zip(of_runs(runs), runs, strict=True):
        groups.setdefault(machine.id, (machine, []))[1].append(run)
    return list(groups.values())


def newest_complete(runs: Sequence[RunFolder]) -> list[Chosen]:
    """Return the newest complete run of each machine in `runs` (oldest first), else its newest run, with a note."""
    return [_choose_run(machine, own_runs) for machine, own_runs in grouped(runs)]


def copied(chosen: Sequence[Chosen], copies: Sequence[RunFolder], identity: Callable[[str], str]) -> list[Chosen]:
    """Return the same choice for copies of its runs: each stays a machine of its own, whichever other runs were copied.

    `identity`: returns what stands in the copies for a machine's identity.
    """
    known = [[identity(choice.machine.id)] if choice.machine.verified else [] for choice in chosen]
    machines = [_machine(run, run.read_header(), own) for run, own in zip(copies, known, strict=True)]
    labels = _labels(machines)
    return [_choose_run(replace(made, label=labels[made.id]), [run]) for made, run in zip(machines, copies, strict=True)]


def find(runs: Sequence[RunFolder], word: str) -> Chosen | None:
    """Return the newest complete run of the machine whose label or id is `word`; None if there is none.

    Raises BadInput where several machines have that name.
    """
    groups = grouped(runs)
    named = [(machine, own_runs) for machine, own_runs in groups if word in (machine.label, machine.id)]
    named = named or [(machine, own_runs) for machine, own_runs in groups if machine.name == word]
    if len(named) > 1:
        raise BadInput(f"{word} names {len(named)} machines", hint=f"name one: {', '.join(each.label for each, _ in named)}")
    return _choose_run(*named[0]) if named else None


def fleet_rows(parts: Iterable[tuple[Machine, Sequence[LaunchRow]]]) -> list[LaunchRow]:
    """Return one row per launch of several machines: a row of launch_rows with `machine` (its label) and `gpu`.

    The rows of a machine are those of one of its runs (RunSummary.launches). `gpu`: short name of the GPU model that the launch
    used, "CPU: " and the CPU's name if none. All tables made of this one keep the machines apart.
    Raises BadInput if a machine is named twice, as launches of two runs must not be pooled.
    """
    by_machine: dict[str, list[LaunchRow]] = {}
    for machine, rows in parts:
        if machine.label in by_machine:
            raise BadInput(f"two runs of {machine.label}: a comparison of machines takes one of each", hint="name one of them")
        by_machine[machine.label] = [
            structs.replace(row, machine=machine.label, gpu=gpu_of(machine, row.gpu_names)) for row in rows
        ]
    return run_summary.with_borrowed_flops([row for rows in by_machine.values() for row in rows])


def gpu_of(machine: Machine, names: Sequence[str]) -> str:
    """Return the short name of GPU models from the driver's names; of the CPU where no GPU is named."""
    if not names:
        return f"CPU: {machine.cpu}" if _is_name(machine.cpu) else f"{UNKNOWN_CPU} ({machine.label})"
    memories = {str(gpu.get("name")): gpu.get("memory_bytes") for gpu in machine.gpus}
    unknown = f"{UNKNOWN_GPU} ({machine.label})"
    short_names = (short_name(name, memories.get(name)) if _is_name(name) else unknown for name in names)
    return " + ".join(dict.fromkeys(short_names))


def short_name(driver_name: str, memory_bytes: Any) -> str:
    """Return a name such as "H100 SXM5 80GB" or "RTX 4090": as in gpus.csv, else the driver's name, without the family."""
    facts = gpu_specs.find(driver_name, memory_bytes if isinstance(memory_bytes, int) else None)
    return gpu_specs.without_family(facts.name if facts else driver_name) or UNKNOWN_GPU


def _is_name(name: str | None) -> bool:
    """Check whether a name tells which GPU or CPU it is."""
    return name is not None and not _NAMELESS.fullmatch(name)


def _machine(run: RunFolder, record: RunRecord, in_folder: Collection[str]) -> Machine:
    """Make the machine of a run. `in_folder`: the identities that the runs of this run's folder name."""
    host = record.host
    gpus, cores, memory = tuple(host.get("gpus") or ()), host.get("cores"), host.get("memory_bytes")
    identity = record.machine or (next(iter(in_folder)) if len(in_folder) == 1 else None)
    name = printable(str((identity and host.get("name")) or host_of(run)))
    return Machine(
        id=identity or host_of(run),
        name=name,
        label=name,
        verified=identity is not None,
        gpus=gpus,
        cpu=host.get("cpu"),
        cores=len(cores or ()),
        memory_bytes=memory,
        conditions=of_machine(host),
        **{name: host.get(name) for name in ("driver", "os", "kernel")},
    )


def _labels(machines: Sequence[Machine]) -> dict[str, str]:
    """Return a label by id: the name; for machines of one name NAME#ID, with as much of the id as tells all machines apart."""
    longest_id = max((len(machine.id) for machine in machines), default=0)
    for length in range(_SHORTEST_ID, longest_id + _SHORTEST_ID):
        labels = {machine.id: _label(machine, machines, length) for machine in machines}
        if len(set(labels.values())) == len(labels):
            return labels
    return {machine.id: machine.id for machine in machines}


def _label(machine: Machine, machines: Sequence[Machine], length: int) -> str:
    if sum(machine.name == other.name for other in machines) == 1:
        return machine.name
    return f"{machine.name}#{machine.id[:length] if machine.verified else 'unverified'}"


def _choose_run(machine: Machine, runs: Sequence[RunFolder]) -> Chosen:
    """Choose the newest complete run, else the newest one, with a note."""
    complete = next((run for run in reversed(runs) if run.read_record().complete), None)
    if complete:
        return Chosen(machine=machine, run=complete)
    return Chosen(machine=machine, run=runs[-1], note=f"no run of {machine.label} is complete; this is the newest one")


# Figures for a buyer besides throughput: which GPUs these machines have, and throughput per watt, per price and per GB.

_CATALOG_COLUMNS = [name for name in gpu_specs.COLUMNS if name != "gpu"]


class Yield(FleetRow, frozen=True, kw_only=True):
    """What a cell of a fleet yields: items per second and watt of the devices; items per joule; items per second and GB (2^30
    bytes) of the devices' memory; items per second for each 1000 of the currency that the devices cost; what a million items
    cost. NaN is unknown.
    """

    per_watt: float
    per_joule: float
    per_gb: float
    per_price: float
    cost: float


def fleet_gpu_table(machines: Sequence[Machine], cells: Sequence[CellRow]) -> list[Row]:
    """Return one row per GPU model of a fleet's cells; None and NaN are unknown. CPUs have a row without specifications.

    `machines`: labels of those that have it, with how many each (`counts`), their `drivers`; the lowest and highest power limit
    that the drivers report; in which conditions the machines are `unlike`. `catalog_name`: in gpus.csv; the columns after it
    are those of gpu_specs.gpu_table.
    """
    rows = []
    for gpu, gpu_cells in group_by(cells, lambda cell: cell.of.gpu).items():
        labels = {cell.of.machine for cell in gpu_cells}
        owners = [machine for machine in machines if machine.label in labels]
        specs = next(iter(gpu_specs.gpu_table(gpu_cells)), dict.fromkeys(gpu_specs.COLUMNS))
        limits = _power_limits(owners, {name for cell in gpu_cells for name in cell.of.gpu_names})
        rows.append({
            "gpu": gpu,
            "machines": tuple(machine.label for machine in owners),
            "counts": tuple(machine.gpu_count for machine in owners),
            "drivers": tuple(dict.fromkeys(machine.driver for machine in owners if machine.driver)),
            "power_limit_low_watts": min(limits, default=math.nan),
            "power_limit_high_watts": max(limits, default=math.nan),
            "unlike": unlike([machine.conditions for machine in owners]),
            "catalog_name": specs["gpu"],
            **{name: specs[name] for name in _CATALOG_COLUMNS},
        })  # fmt: skip
    return rows


_OF_LAUNCH = (
    "gpu", "machine", "stack", "workload", "model", "mode", "precision", "runtime", "compile", "count", "devices", "batch",
    "unit",
)  # fmt: skip


def worth(row: CellRow, price_list: PriceList = NONE) -> Yield | None:
    """Return what a cell of a fleet (of cells_table) yields; None without a throughput."""
    if not row.n:
        return None
    rate, launch = row.throughput, row.of
    memory = launch.device_memory_bytes
    gigabytes = math.nan if memory is None or launch.mixed else memory * launch.count / 2**30  # read of the first device
    return Yield(
        **{name: row.value(name) for name in _OF_LAUNCH},
        machines=1,
        task=task_of(json.loads(launch.work)),
        n=row.n,
        throughput=rate,
        per_watt=_quotient(rate, row.power_watts),
        per_joule=_quotient(1.0, row.energy_per_item),
        per_gb=_quotient(rate, gigabytes),
        per_price=_quotient(1000 * rate, prices.purchase(price_list, launch)),
        cost=1e6 * row.cost_per_item,
    )


def _quotient(amount: float, base: float) -> float:
    return amount / base if base > 0 else math.nan


def _power_limits(machines: Iterable[Machine], names: set[str]) -> list[float]:
    """Return the power limits that the drivers report for the GPUs of these names."""
    limits: list[Any] = [
        gpu.get("power_limit_watts") for machine in machines for gpu in machine.gpus if gpu.get("name") in names
    ]
    return [float(watts) for watts in limits if isinstance(watts, (int, float))]


# Choose the launches that a word names, for `compare` and `audit`.


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenLaunches:
    """The launches that a word names. `unreadable`: files among them that can't be read. `note`: a remark for the reader."""

    launches: list[Launch]
    unreadable: tuple[Unreadable, ...] = ()
    note: str | None = None


def choose_sides(results: Results, a: str, b: str) -> list[ChosenLaunches]:
    """Return the launches that two words name (choose_launches); two globs on stacks are of the newest run that planned both.

    Raises BadInput.
    """
    newest, words = None, (a, b)
    if all(_is_glob(results, word) for word in words):
        newest = next((run for run in reversed(results.runs()) if _has_stacks(run, words)), None)
    return [choose_launches(results, word, newest) for word in words]


def _is_glob(results: Results, word: str) -> bool:
    """Check whether a word can only be a glob on stacks: it is no path, run or machine, and names no run before a colon."""
    runs = results.runs()
    return bool(word) and not (":" in word or os.path.lexists(word) or store.find(runs, word) or find(runs, word))


def _has_stacks(run: RunFolder, globs: Sequence[str]) -> bool:
    stacks = {name.stack for name in run.read_record().planned}
    return all(any(fnmatchcase(stack, glob) for stack in stacks) for glob in globs)


def choose_launches(results: Results, word: str, newest: RunFolder | None = None) -> ChosenLaunches:
    """Return the launches that `word` names; raises BadInput. `newest`: the run that counts as the newest, if not the last.

    `word`: a launch file, a cell's or a run's folder; a run's id; `last` or `last~N`; a machine's label, name or identity,
    which stands for its newest complete run; else a glob on the stacks of the newest run, or of RUN (or MACHINE) in RUN:GLOB.
    """
    path, may_be_path = Path(word), bool(word) and not store.counts_back(word)
    try:
        path = Path(os.path.realpath(path)) if ".." in path.parts else path
        if may_be_path and path.is_file():
            return ChosenLaunches(launches=[launch_at(path)])
        if may_be_path and path.is_dir():
            return _in_folder(path)
    except OSError as error:
        raise BadInput(
            f"can't read {shown(word)}: {error.strerror}", hint="name a launch file or a folder of results"
        ) from None
    folder, glob, note = _run_and_glob(results, word, newest)
    launches, unreadable = _read(folder.everything(), folder) if folder else ([], [])
    chosen = [launch for launch in counting(launches) if fnmatchcase(launch.stack.name, glob)]
    if not chosen:
        raise BadInput(f'"{word}" is not a file, folder, run, machine or stack with launches', hint=_known_names(results))
    return ChosenLaunches(launches=chosen, unreadable=tuple(unreadable), note=note)


def _in_folder(path: Path) -> ChosenLaunches:
    around = run_around(path)
    below = [] if around else [RunFolder(record.parent) for end in ("*", "*/*") for record in path.glob(f"{end}/run.jsonl")]
    copies = copies_among(below)
    below = [run for run in below if run not in copies]
    if len(below) > 1:
        raise BadInput(f"{path} holds {len(below)} runs, not one", hint="name one of them, by its folder or its id")
    run = around or next(iter(below), None)
    whole = path if around or run is None else run.path
    launches, unreadable = _read(launches_below(whole, run=run.place() if run else None), run)
    if not launches:
        broken = f" that can be read; {_broken(unreadable)}" if unreadable else ""
        raise BadInput(f"{path} has no launches{broken}", hint="name a cell's or a run's folder, or a launch file")
    return ChosenLaunches(launches=counting(launches), unreadable=tuple(unreadable))


def _read(files: Iterable[Launch | Unreadable], run: RunFolder | None) -> tuple[list[Launch], list[Unreadable]]:
    """Return the launches, the files that can't be read, and what can't be read of their run's record."""
    launches, unreadable = sorted_out(files)
    problems = run.read_record().problems if run else ()
    return launches, unreadable + [Unreadable(path=run.record, reason=problem) for problem in problems if run]


def _broken(unreadable: Sequence[Unreadable]) -> str:
    first = unreadable[0]
    of_several = f"{len(unreadable)} files can't, the first: " if len(unreadable) > 1 else "1 file can't: "
    return f"{of_several}{first.path}: {first.reason}"


def _run_and_glob(results: Results, word: str, newest: RunFolder | None) -> tuple[RunFolder | None, str, str | None]:
    """Return the run that RUN, MACHINE, RUN:GLOB or MACHINE:GLOB names, else the newest one with `word` as the glob; and a
    note."""
    runs = results.runs()
    run, _, glob = word.rpartition(":")
    matches = store.find(runs, run or word)
    if len(matches) > 1:
        raise BadInput(f"{run or word} names {len(matches)} runs; name one", hint=_known_names(results))
    if matches:
        return matches[0], glob if run else "*", None
    if machine := find(runs, run or word):
        return machine.run, glob if run else "*", machine.note or f"{run or word} stands for its run {machine.run.id}"
    if run:
        raise BadInput(f"no run or machine {shown(run)} in {results.root}", hint=_known_names(results))
    last = runs[-1] if runs else None
    note = f"{word}: of run {newest.id}, the newest with both" if newest and last and newest.path != last.path else None
    return newest or last, word, note


def _known_names(results: Results) -> str:
    runs = results.runs()
    stacks = sorted({launch.stack.name for run in runs[-1:] for launch in run.launches()})
    labels = [machine.label for machine, _ in grouped(runs)]
    return (
        f"runs: {', '.join(store.short_names(runs)[-5:]) or 'none'}; machines: {', '.join(labels[:5]) or 'none'}; "
        f"stacks of the newest: {', '.join(stacks) or 'none'}"
    )
