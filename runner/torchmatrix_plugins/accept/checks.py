"""Launches -> checks: each device's figure at each operation, with its siblings, what other machines reached, and its limit."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torchmatrix.analysis import gpu_specs, intervals
from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.centers import median_of
from torchmatrix.analysis.intervals import NO_PRIOR, Interval, Moments, Prior
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.analysis.run_summary import launch_rows
from torchmatrix.facts import alike
from torchmatrix.facts.host_parts import Gpu
from torchmatrix.facts.launch import UNFINISHED, Launch, last_tries
from torchmatrix.facts.operations import MICRO, TOGETHER
from torchmatrix.facts.run_record import CellName
from torchmatrix_plugins.accept import judging
from torchmatrix_plugins.accept.judging import FAIL, UNDECIDED, Judged, Reference

_LANE_GB = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of a PCIe lane in one direction, by its generation, after encoding (PCI-SIG)."""
PCIE = re.compile(r"gen([1-9]) x([1-9]\d?) \(max gen([1-9]) x([1-9]\d?)\)")
BEYOND = 1.02
"""A figure above the device's limit by this ratio is none."""
PEER_COPY, _TO = "peer-copy", " to "
_FAILED = ("crashed", "numerics", "timeout")
"""Outcomes of a launch that a healthy server doesn't have; all others are about what was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One operation on one device, alone or while all others do the same, or one that devices do together.

    `operation`: the workload's id; `devices`: of the launch; `place`: of the device among these, None where they work together.
    `figure`: the moments of its launches, None of one launch; `ratio`: of its `ratios` to the others in the same launches.
    `limit`: what the device can do at most, in `unit` per second; NaN if unknown. `key`: what another machine must have, too,
    to be a reference. `beside`: further references, which decide nothing. `alone`: of a device that worked alone, a launch of
    each other one. `machine`: its label; `identity`: what tells it from others, if `verified` its own, else the name of
    its folder; `folders`: of its runs.
    """

    operation: str
    model: str
    unit: str
    devices: str
    device: str
    place: int | None
    count: int
    key: Mapping[str, str]
    value: float
    launches: Sequence[Launch] = ()
    figure: Moments | None = None
    ratio: Moments | None = None
    ratios: Sequence[float] = ()
    limit: float = math.nan
    reference: Reference | None = None
    judged: Judged = judging.NOT_JUDGED
    beside: Sequence[Reference] = ()
    alone: Sequence[Launch] = ()
    outcome: str = "ok"
    trouble: str = ""
    machine: str = ""
    identity: str = ""
    verified: bool = False
    folders: tuple[str, ...] = ()
    is_of_several: bool = False
    stack: str = ""
    names_stack: bool = False

    @property
    def is_of_pair(self) -> bool:
        """Check whether two GPUs copied to each other: the figure of one direction, whose siblings are the other pairs."""
        return _TO in self.device

    @property
    def ends(self) -> tuple[str, ...]:
        """Return the devices that it is about: those of a pair, else one."""
        return tuple(self.device.split(_TO)) if self.is_of_pair else (self.device,)

    @property
    def name(self) -> str:
        """Return its name among all: the operation and the devices."""
        is_one = self.place is None and (self.model in TOGETHER or self.unit not in ("TFLOP", "GB"))
        others = "" if self.count == 1 else f", {self.count} {'together' if is_one else 'at once'}"
        stack = f", {self.stack}" if self.names_stack else ""
        return f"{self.title} on {self.where}{others}{stack}"

    @property
    def where(self) -> str:
        """Return the device, with its machine if there are several."""
        return f"{self.machine} {self.device}" if self.is_of_several else self.device

    @property
    def title(self) -> str:
        """Return the operation in words, such as "gemm bf16-weights 8192x8192x8192"; a model's workload by its id."""
        asked = self.launches[-1].workload if self.launches else None
        if asked is None or asked.mode != MICRO:
            return self.operation
        parts = [asked.precision if asked.shape else None, asked.shape, asked.direction, size_in_words(asked.bytes)]
        parts += ["pageable" if asked.pinned is False else None, asked.pattern if asked.pattern != "random" else None]
        return " ".join(filter(None, (asked.model, *parts)))

    @property
    def is_latency(self) -> bool:
        """Check whether its figure is shown as a time."""
        return self.unit == "operations"

    @property
    def of_limit(self) -> float:
        """Return the figure over what the device can do at most; NaN if that isn't known."""
        figure = self.judged.figure.value
        return (self.value if math.isnan(figure) else figure) / self.limit

    @property
    def software(self) -> str:
        """Return the versions of PyTorch, CUDA or ROCm, and NCCL or RCCL of its launches."""
        told = self.launches[-1].reported if self.launches else None
        return ", ".join(filter(None, (told.torch, told.cuda or told.hip, told.nccl))) if told else ""

    @property
    def said(self) -> str:
        """Return what its launches say of why they gave no figure, or not all did."""
        if self.outcome == "ok":
            return self.trouble
        return f"{self.outcome}; continue the run" if self.outcome.partition(":")[0] in UNFINISHED else self.outcome


def size_in_words(size: int | None) -> str:
    """Write a number of bytes, such as "1 GiB"; "" for none."""
    power = 0 if not size else min(3, (size.bit_length() - 1) // 10)
    return f"{size / 2 ** (10 * power):g} {('B', 'KiB', 'MiB', 'GiB')[power]}" if size else ""


def checks_of(launches: Sequence[Launch], machine: str = "", is_of_several: bool = False) -> list[Check]:
    """Return the checks of a machine's launches, in their order, not judged yet; `is_of_several`: of machines that are judged
    together.
    """
    files: dict[str, list[Launch]] = {}
    for launch in last_tries(launches):
        files.setdefault(launch.cell, []).append(launch)
    files = {cell: alike.of_cell(of_cell) for cell, of_cell in files.items()}  # also of several runs
    rows = launch_rows(launch for of_cell in files.values() for launch in of_cell)
    checks = [check for cell in CellIndex(rows).figures for check in _of_cell(cell, files[cell.row.cell])]
    prior = intervals.learned_of([check.ratios for check in checks if check.ratios])
    return [
        replace(
            check, machine=machine, is_of_several=is_of_several, ratio=_moments(check.ratios, prior, check.figure)
        )
        for check in checks
    ]  # fmt: skip


def _of_cell(cell: Cell[LaunchRow], launches: Sequence[Launch]) -> Iterator[Check]:
    row, ok = cell.row, [launch for launch in launches if launch.is_ok]
    told, trouble = (ok or launches)[0], _trouble(launches)
    ranks = [list(map(float, each.rank_rates)) for each in cell.ok if each.rank_rates]
    common: dict[str, Any] = {
        "operation": row.workload, "model": row.model, "unit": row.unit, "devices": row.devices, "count": row.count,
        "trouble": trouble, "stack": row.stack,
    }  # fmt: skip
    if not ok:
        outcome = f"{told.outcome}: {told.error}" if told.error else told.outcome
        failed: dict[str, Any] = {"device": row.devices, "place": None, "value": math.nan, "outcome": outcome}
        yield Check(**common, **failed, key=key_of(told, None), launches=launches)
    elif row.count > 1 and ranks and len(ranks) == len(cell.ok):
        is_pair = _is_pair(told)  # its median is that of two, of which nobody knows which is right
        for number, name in enumerate(row.device_list):
            rates = [rank[number] for rank in ranks]
            ratios = [] if is_pair else [rank[number] / median_of(rank) for rank in ranks]
            device = _TO.join([name, row.device_list[1 - number]]) if is_pair else name
            yield Check(
                **common, device=device, place=number, key=key_of(told, number), value=median_of(rates), launches=ok,
                figure=_moments(rates, cell.prior("throughput"), cell.moments()), ratios=ratios, limit=_limit(told, number),
            )  # fmt: skip
    else:
        place = None if row.count > 1 else 0
        device = row.devices if place is None else row.device_list[0]
        yield Check(
            **common, device=device, place=place, key=key_of(told, place), value=cell.estimate().value,
            launches=ok, figure=cell.moments(), limit=math.nan if place is None else _limit(told, place),
        )  # fmt: skip


def _trouble(launches: Sequence[Launch]) -> str:
    """Say which launches gave no figure, what a healthy server doesn't have first; "" if all did."""
    bad = [launch for launch in launches if not launch.is_ok]
    bad.sort(key=lambda launch: launch.outcome not in _FAILED)
    why = next((f": {launch.error}" for launch in bad if launch.error), "")
    return f"{bad[0].outcome}: {len(bad)} of {len(launches)} launches{why}" if bad else ""


def _moments(values: Sequence[float], prior: Prior, of_launches: Moments | None) -> Moments | None:
    """Return the moments of one device's figures; other programs disturbed them as they did the launches."""
    if len(values) < 2 or min(values) <= 0 or of_launches is None:
        return None
    return intervals.moments(values, prior)._replace(disturbed=of_launches.disturbed)


def key_of(launch: Launch, place: int | None) -> dict[str, str]:
    """Return what makes a device's figure comparable with another machine's: its model, memory, link, power limit, partition,
    the stack, and how many take part; of a CPU its name and how many threads a process has. `place`: None of all together.
    """
    key = {"devices": str(launch.devices.count), "stack": launch.stack.name}
    if _is_pair(launch):
        key["between"] = link_of_pair(launch)
    if not launch.devices.gpus:
        return key | {"device": str(launch.host.get("cpu") or "unknown CPU"), "threads": str(launch.devices.threads)}
    gpus = launch.devices.gpus
    each = list(map(_key_of_gpu, gpus if place is None else [gpus[min(place, len(gpus) - 1)]]))
    return key | {name: " + ".join(dict.fromkeys(sorted(one[name] for one in each))) for name in each[0]}


def _is_pair(launch: Launch) -> bool:
    return launch.workload.model == PEER_COPY and launch.devices.count == len(launch.devices.indices) == 2


def link_of_pair(launch: Launch) -> str:
    """Return the kind of link between a launch's two GPUs: "NV" for any number of NVLinks, "unknown" if it isn't recorded."""
    links: Any = launch.host.get("links")
    first, second = launch.devices.indices[:2]
    label = str(links[first][second]) if is_square(links, max(first, second)) else "unknown"
    return label.rstrip("0123456789")


def is_square(table: Any, last: int) -> bool:
    """Check whether a table of GPUs has a row and a column for each up to the `last`."""
    return bool(table) and len(table) > last and all(len(row) > last for row in table)


def _key_of_gpu(gpu: Gpu) -> dict[str, str]:
    link = PCIE.match(gpu.pcie or "")
    return {
        "device": str(gpu.name),
        "memory": "unknown" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.0f} GiB",
        "link": f"gen{link[3]} x{link[4]}" if link else "unknown",
        "power limit": "unknown" if gpu.power_limit_watts is None else f"{gpu.power_limit_watts:.0f} W",
        "partition": gpu.partitions or ("MIG slice" if gpu.slice_of else "whole"),
    }


def _bandwidth(gpu: Gpu, facts: gpu_specs.GpuFacts | None) -> float:
    """Return the GB/s of a GPU's memory: two transfers per clock over its width, as the driver tells them, else by its data
    sheet.
    """
    clock = float(gpu.clocks_max_memory_mhz or 0)
    if clock > 0 and gpu.memory_bus_bits and not gpu.slice_of:
        return 2 * clock * 1e6 * gpu.memory_bus_bits / 8 / 1e9
    return (facts.bandwidth_gb_per_second or math.nan) / facts.devices_per_card if facts else math.nan


def spec_of(gpu: Gpu) -> gpu_specs.GpuFacts | None:
    """Return what the data sheet says of a GPU; None if it isn't known."""
    return gpu_specs.find(str(gpu.name), int(gpu.memory_bytes) if gpu.memory_bytes else None)


def _limit(launch: Launch, place: int) -> float:
    """Return what a device can do at most at an operation, in the unit of its figure."""
    if not launch.devices.gpus:
        return math.nan
    gpu, workload = launch.devices.gpus[min(place, len(launch.devices.gpus) - 1)], launch.workload
    facts = spec_of(gpu)
    if workload.model == "gemm":
        units = launch.seen_devices[place].multiprocessors if place < len(launch.seen_devices) else None
        by_clock = gpu_specs.most_flops(gpu.capability, workload.precision, units, gpu.clocks_max_mhz)
        return (by_clock or (gpu_specs.peak_flops(facts, workload.precision) if facts else None) or math.nan) / 1e12
    if workload.model in ("triad", "copy"):
        return _bandwidth(gpu, facts)
    link = PCIE.match(gpu.pcie or "")
    if workload.model == "host-copy" and link:
        both = 2 if workload.direction == "both" else 1
        return both * _LANE_GB.get(int(link[3]), math.nan) * int(link[4])
    return math.nan


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """All checks of a machine, or of several, judged. `notes`: what a reader must know; `unfinished`: the runs that are."""

    checks: Sequence[Check]
    notes: Sequence[str] = ()
    unfinished: Sequence[str] = ()

    @cached_property
    def hosts(self) -> dict[str, Mapping[str, Any]]:
        """Return each machine as its first launch recorded it."""
        found: dict[str, Mapping[str, Any]] = {}
        for check in self.checks:
            if check.launches:
                found.setdefault(check.machine, check.launches[0].host)
        return found

    def launches_of(self, machine: str) -> list[Launch]:
        """Return the launches of a machine's checks."""
        return [launch for check in self.checks if check.machine == machine for launch in check.launches]

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return how many checks have each verdict."""
        return {verdict: sum(check.judged.verdict == verdict for check in self.checks) for verdict in judging.VERDICTS}

    def with_verdict(self, verdict: str) -> list[Check]:
        """Return the checks of a verdict; of those that failed, those that are farthest below their reference first."""
        found = [check for check in self.checks if check.judged.verdict == verdict]
        ratios = {id(check): check.judged.ratio.value for check in found}
        return (
            sorted(found, key=lambda check: ratios[id(check)] if ratios[id(check)] > 0 else 0.0) if verdict == FAIL else found
        )


Find = Callable[[Check], Reference | None]
Groups = dict[tuple[object, ...], list[int]]


def judged(
    checks: Sequence[Check],
    decides: Sequence[Find] = (),
    last: Sequence[Find] = (),
    beside: Sequence[Find] = (),
    looks: int = 1,
) -> Acceptance:
    """Judge all checks together, of launches that are looked at so many times. The first that knows a reference decides: what
    `decides` finds, the check's siblings, what `last` finds. `beside`: what is only shown.
    """
    groups = _groups(checks)
    siblings = _siblings(checks, groups)
    alone = {number: [checks[n].launches[-1] for n in group if n != number] for group in groups.values() for number in group}
    found = [
        replace(
            check,
            reference=_first(decides, check) or siblings[number] or _first(last, check),
            beside=[reference for find in beside if (reference := find(check))],
            alone=alone.get(number, ()) if check.count == 1 or check.is_of_pair else (),
        )
        for number, check in enumerate(checks)
    ]
    number = looks * sum(check.reference is not None and check.outcome == "ok" for check in found)
    names = Counter(check.name for check in found)
    return Acceptance(
        checks=[replace(check, judged=_judge(check, number), names_stack=names[check.name] > 1) for check in found]
    )


def _first(finders: Sequence[Find], check: Check) -> Reference | None:
    return next(filter(None, (find(check) for find in finders)), None)


def _judge(check: Check, checks: int) -> Judged:
    if check.outcome != "ok":
        verdict = FAIL if check.outcome.partition(":")[0] in _FAILED else UNDECIDED
        return Judged(verdict=verdict, figure=Interval(value=math.nan), why=check.said)
    judged = _by_reference(check, checks)
    if check.trouble:
        return replace(judged, verdict=FAIL if check.trouble.startswith(_FAILED) else UNDECIDED, why=check.trouble, more=None)
    if check.value > BEYOND * check.limit:
        why = "it is more than the device can do: look for a wrong limit, or clock"
        return replace(judged, verdict=UNDECIDED, why=why, more=None)
    return judged


def _by_reference(check: Check, checks: int) -> Judged:
    by_ratio = check.reference is not None and check.reference.kind == judging.SIBLINGS and check.ratio is not None
    if not by_ratio:
        return judging.judge(check.figure, check.value, check.reference, checks)
    seen = judging.judge(check.ratio, check.value, check.reference, checks)
    figure = judging.judge(check.figure, check.value, None, checks).figure
    return replace(seen, figure=figure)


def _siblings(checks: Sequence[Check], groups: Groups) -> dict[int, Reference | None]:
    """Return by number the reference of each check among the other devices that do the same: at the same moment, compared
    within each launch, or each alone.
    """
    figures = {key: [checks[n].ratio or checks[n].figure for n in numbers] for key, numbers in groups.items()}
    of_pairs = {key for key, numbers in groups.items() if checks[numbers[0]].is_of_pair}  # one weak GPU is in many of them
    prior = judging.prior_of([group for key, group in figures.items() if key not in of_pairs])
    references: dict[int, Reference | None] = dict.fromkeys(range(len(checks)))
    for key, numbers in groups.items():
        apart = judging.apart([checks[n].ends for n in numbers]) if key in of_pairs else None
        found = judging.siblings(figures[key], NO_PRIOR if apart else prior, apart)
        for number, reference in zip(numbers, found, strict=True):
            others = "directions between other GPUs" if apart else "other devices"
            source = f"the median of {reference.others if apart else f'the {reference.others}'} {others}" if reference else ""
            references[number] = reference and replace(reference, source=source)
    return references


def _groups(checks: Sequence[Check]) -> Groups:
    """Return the numbers of the checks whose devices are siblings: alike, at one operation, at one moment, or each alone or
    in pairs.
    """
    groups: Groups = {}
    for number, check in enumerate(checks):
        if check.place is not None and check.model not in TOGETHER:
            alike = tuple(value for name, value in check.key.items() if name in ("device", "memory", "partition", "between"))
            together = check.devices if check.count > 1 and not check.is_of_pair else ""
            groups.setdefault((check.machine, check.stack, check.operation, check.count, together, alike), []).append(number)
    return groups


def limit_of(check: Check, share: float) -> Reference | None:
    """Return the device's limit as a reference of which a share is asked for; None if it isn't known."""
    if math.isnan(check.limit):
        return None
    return Reference(kind=judging.LIMIT, log=math.log(check.limit), share=share, source="what the device can do at most")


def gpu_of(check: Check) -> Gpu | None:
    """Return the GPU that a check is about; None for several, and for CPUs."""
    gpus = check.launches[0].devices.gpus if check.launches else ()
    return gpus[check.place] if check.place is not None and check.place < len(gpus) else None


def not_launched(planned: Sequence[CellName], launched: Collection[str], machine: str, is_of_several: bool) -> list[Check]:
    """Return a check for each planned cell of which nothing was launched; `launched`: the ids of the others."""
    return [
        Check(
            operation=cell.workload, model="", unit="", devices=cell.devices, device=cell.devices, place=None, count=1, key={},
            value=math.nan, outcome="not launched", machine=machine, is_of_several=is_of_several, stack=cell.stack,
        )
        for cell in planned if cell.cell not in launched
    ]  # fmt: skip
