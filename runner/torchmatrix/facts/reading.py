"""The border of the facts: lines of JSON -> Launch or Unreadable. Malformed facts are handled here and nowhere else.

A malformed line of the host (the first and the last) makes a file unreadable, one of the workload makes a crashed launch.
"""

import copy
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import asdict, force_setattr

from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import named_below
from torchmatrix.core.formatting import number_or_nan
from torchmatrix.core.inputs import Malformed
from torchmatrix.facts import lines, wire
from torchmatrix.facts.host_lines import Exit, Header, OtherNode, Readings, Transport
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.lines import ARRIVED, Event, version_problem
from torchmatrix.facts.parts import RUN_ID, Stamp, Unseen, misnamed, try_number
from torchmatrix.facts.run_record import header_of
from torchmatrix.facts.wire import Block

_READ = (
    *(
        "sample",
        "steps",
        "requests",
        "stream",
        "roof",
        "unseen",
        "environment",
        "setup",
        "precision",
        "all-reduce",
        "collective",
        "hello",
    ),
    *("warm-up", "remarks", "loading", "reference", "enqueue", "phase", "memory", "telemetry", "node", "transport", "failure"),
)
"""The events that make fields of a launch; of several malformed lines the first in this order is reported."""
_OF_THE_HOST: Mapping[str, type[wire.Line]] = {"telemetry": Readings, "node": OtherNode, "transport": Transport}
"""The lines of the host between the first and the last one."""
_TYPES = {**wire.EVENTS, **_OF_THE_HOST}
_PHASES = ("measure", "warm-up", "unseen", "seen")
"""The phases of blocks of steps."""
_Rows = Sequence[Sequence[Any]]
"""The steps of each rank, in order."""


def read_launch(path: Path) -> Launch | Unreadable:
    """Read one launch file, whatever its name; a truncated last line is not an error."""
    content = lines.read(path)
    damage = content.damage_of_launch
    return Unreadable(path=path, reason=damage) if damage else launch_of(path, content.events, content.verified)


def launch_at(path: Path) -> Launch:
    """Read the launch in a file. Raises BadInput if there is none."""
    launch = read_launch(path)
    if isinstance(launch, Unreadable):
        raise BadInput(f"{path} is not a launch file: {launch.reason}", hint="name a round*.jsonl under results/")
    return launch


class Place(NamedTuple):
    """The run that a file lies in. `run`: its folder, which may have been renamed.

    `machine`: the identity of the machine that measures it, None if it isn't recorded; on a cluster, the first of its `nodes`.
    """

    run: Path
    machine: str | None = None
    nodes: frozenset[str] = frozenset()

    def is_run_of(self, launch: Launch) -> bool:
        """Check whether a launch belongs to the run: by the run's name, unless the folder has, or had, another.

        Then it doesn't if it may as well be the copy of a launch of the run beside it that has that name.
        """
        name, other = self.run.name, launch.run
        if other == name or (RUN_ID.fullmatch(other) and RUN_ID.fullmatch(name)):
            return other == name
        beside = self.run.parent / Path(other).name
        return not os.path.exists(beside / "run.jsonl") or _are_of_two_machines(self.run, beside)  # noqa: PTH110 (an odd name)

    def is_measured_by(self, launch: Launch) -> bool:
        """Check whether the machine of a launch takes part in the run; True if either isn't recorded."""
        known = self.machine and launch.machine
        return not known or launch.machine == self.machine or launch.host.get("name") in self.nodes


def _are_of_two_machines(*runs: Path) -> bool:
    records = list(map(header_of, runs))
    return len({(record.machine, str(record.host.get("name"))) for record in records if record.facts}) > 1


def launches_below(folder: Path, names: str = "round*-try*.jsonl", run: Place | None = None) -> Iterator[Launch | Unreadable]:
    """Read the launches in a folder of results, in the order of their paths; without batch trials, whose names differ.

    `run`: the one that the folder belongs to, if there is one.
    """
    return (launch_in(path, run) for path in launch_files(folder, names))


def launch_files(folder: Path, names: str = "round*-try*.jsonl") -> list[Path]:
    """List the files that launches_below reads."""
    return named_below(folder, names)


def launch_in(path: Path, run: Place | None = None) -> Launch | Unreadable:
    """Read the launch in a file of a results folder; Unreadable if it is misplaced."""
    launch = read_launch(path)
    if isinstance(launch, Launch) and (why := misplaced(path, launch, run)):
        return Unreadable(path=path, reason=why)
    return launch


def misplaced(path: Path, launch: Launch, run: Place | None) -> str | None:
    """Return why a launch doesn't belong where its file lies, or None: a copy would count twice, or with another machine."""
    if run is None:
        return misnamed(path, launch.round, launch.number)
    if not run.is_run_of(launch):
        return f"it belongs to run {launch.run}: it was copied or moved"
    if path.parent.absolute() != run.run.absolute() / launch.cell:
        return f"it belongs to cell {launch.cell}: it was copied or moved"
    if not run.is_measured_by(launch):
        return f"it was measured on another machine, {launch.machine}: it was copied or moved"
    return misnamed(path, launch.round if launch.trial_batch is None else launch.trial_batch, launch.number)


def sorted_out(found: Iterable[Launch | Unreadable]) -> tuple[list[Launch], list[Unreadable]]:
    """Separate the launches from the files that can't be read."""
    launches: list[Launch] = []
    unreadable: list[Unreadable] = []
    for item in found:
        if isinstance(item, Launch):
            launches.append(item)
        else:
            unreadable.append(item)
    return launches, unreadable


def launch_of(path: Path, events: Sequence[Event], verified: bool = False) -> Launch | Unreadable:
    """Make the launch of a file with these events; `verified`: by their checksums."""
    if not events or events[0]["event"] != "launch":
        return Unreadable(path=path, reason="it has no header")
    try:
        end = wire.decoded(events[-1], Exit) if events[-1]["event"] == "exit" else None
        numbered = events[0] if "try" in events[0] else {**events[0], "try": try_number(path)}
        header = wire.decoded(numbered, Header)
        if header.cell != header.cell_of_parts:
            return Unreadable(path=path, reason=f"its cell is {header.cell}, but it ran {header.cell_of_parts}")
        return Launch(path=path, exit=end, verified=verified, **asdict(header), **launch_fields(events[1:]))
    except Malformed as why:
        return Unreadable(path=path, reason=str(why))


def malformed_host_line(events: Iterable[Event]) -> str | None:
    """Return why a line of the host, between the first and the last one, can't be read; None if all can."""
    for event in events:
        try:
            if struct := _OF_THE_HOST.get(event["event"]):
                wire.decoded(event, struct)
        except Malformed as why:
            return f'a line "{event["event"]}": {why}'
    return None


def launch_fields(events: Sequence[Event]) -> dict[str, Any]:
    """Return the fields of a launch that come from the workload's lines and the telemetry, and its first malformed line."""
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event["event"], []).append(event)
    decoded, malformed = _decode(kinds)
    try:
        blocks = {phase: _blocks(phase, decoded["sample"], decoded["steps"]) for phase in _PHASES}
    except ValueError as why:
        blocks = dict.fromkeys(_PHASES, ())
        malformed = malformed or f'the workload wrote "steps" lines that contradict its windows: {why}'
    first = {kind: next(iter(lines_), None) for kind, lines_ in decoded.items()}
    setup, hello, precision = first["setup"], first["hello"], first["precision"]
    batches = hello.arguments.get("batches") if hello else None
    return {
        "reported": first["environment"],
        "told_ranks": setup.world_size if setup else None,
        "stamps": _stamps(events),
        "seen_devices": setup.devices if setup else (),
        "parameters": setup.parameters if setup else None,
        "compile_cache": hello.compile_cache if hello else None,
        "batches": batches if type(batches) is int and batches > 0 else None,
        "windows": blocks["measure"],
        "warm_up_blocks": blocks["warm-up"],
        "unseen": Unseen(new=blocks["unseen"], old=blocks["seen"], error=first["unseen"] and first["unseen"].error),
        "requests": decoded["requests"],
        "streams": decoded["stream"],
        "roofs": decoded["roof"],
        "warm_up": next(reversed(decoded["warm-up"]), None),
        "phases": {phase.phase: phase.seconds for phase in reversed(decoded["phase"])},
        "memory": decoded["memory"],
        "enqueue_seconds": tuple(
            seconds for seconds in (first["enqueue"].step_seconds if first["enqueue"] else ()) if seconds is not None
        ),
        "precision": precision.effective if precision else (),
        "changed_settings": precision.changed if precision else (),
        "remarks": tuple(text for line in decoded["remarks"] for text in line.texts),
        "loading": first["loading"],
        "reference": first["reference"],
        "collectives": (*decoded["all-reduce"], *decoded["collective"]),
        "telemetry": decoded["telemetry"],
        "other_nodes": decoded["node"],
        "transport": first["transport"],
        "failures": decoded["failure"],
        "is_done": "done" in kinds,
        "refused": next(filter(None, map(version_problem, kinds.get("hello", ()))), None),
        "malformed": malformed,
    }


def _decode(kinds: Mapping[str, Sequence[Event]]) -> tuple[dict[str, tuple[Any, ...]], str | None]:
    """Decode the events of each kind, none of a kind with a malformed line; return them with the first problem."""
    decoded: dict[str, tuple[Any, ...]] = {}
    problems: list[str] = []
    for kind in _READ:
        try:
            decoded[kind] = tuple(wire.decoded(event, _TYPES[kind]) for event in kinds.get(kind, ()))
        except Malformed as why:
            decoded[kind] = ()
            writer = "the tool" if kind in _OF_THE_HOST else "the workload"
            problems.append(f'{writer} wrote an invalid "{kind}" line: {why}')
    return decoded, next(iter(problems), None)


def _blocks(phase: str, blocks: Iterable[wire.Block], parts: Sequence[wire.Steps]) -> tuple[wire.Block, ...]:
    """Return the blocks of a phase. Times and losses of many steps stand on lines of their own, in order, before their block.

    Raises ValueError.
    """
    return tuple(
        _with_steps(block, [part for part in parts if (part.phase, part.window) == (phase, block.window)])
        for block in blocks
        if block.phase == phase
    )


def _with_steps(block: wire.Block, parts: Sequence[wire.Steps]) -> wire.Block:
    if not parts:
        return block
    for part in parts:
        wire.same_ranks("step_seconds", part.step_seconds, block.seconds)
    whole = copy.copy(block)
    force_setattr(whole, "step_seconds", _join_rows([part.step_seconds for part in parts]))
    force_setattr(whole, "losses", _join_rows([part.losses for part in parts]))
    return whole


def _join_rows(parts: Sequence[_Rows]) -> tuple[tuple[Any, ...], ...]:
    """Join the rows of each rank; ranks that a part leaves out are dropped."""
    return tuple(tuple(chain.from_iterable(rows)) for rows in zip(*parts, strict=False))


def _stamps(events: Sequence[Event]) -> tuple[Stamp, ...]:
    """Return the stamp of each line of the workload; none if the host recorded no arrivals."""
    pairs = ((event["monotonic_seconds"], event[ARRIVED]) for event in events if {"monotonic_seconds", ARRIVED} <= event.keys())
    return tuple((written, came) for written, came in pairs if inputs.is_number(written) and inputs.is_number(came))


# Proof: the first step and all losses of a launch are compared with those of the proven launch of its cell.
#
# One launch of a cell is compared with eager fp32 (docs/method-launch.md). The others begin from the same weights, batches and
# seeds, so that their losses must be the same, step by step: a step that trains less, or on less, moves them elsewhere.

LEVEL = {"fp32": 1e-4, "tf32": 2e-3, "amp": 2e-3, "half": 2e-3}
OTHER_LEVEL = 1e-2
"""The tolerance of losses from launch to launch, relative to the largest one, on GPUs: their libraries choose algorithms anew
and add up in any order."""
GROWTH = (1e-4, 1e-4, 1e-3, 1e-2)
"""The least tolerance in the first, second and later steps: rounding grows in training. Where batch norms divide by the
scatter of four values, noise of 1e-7 in the gradients moved the loss of ResNet-18 by 6e-7, 3e-6, 2e-4 and 1e-2 in its second
to fifth step."""
SHARE = 0.5
"""The additional tolerance from the fourth step on, as a share of the range of the losses so far: 0.3 was observed there."""
ON_CPU, SHARE_ON_CPU = 1e-5, 0.02
"""The tolerances on CPUs, where PyTorch computes the same bits in each launch."""
NORM = {"fp32": 0.1}
"""The tolerance of the first step's norms on a GPU; else OTHER_NORM."""
OTHER_NORM, NORM_ON_CPU = 0.5, 1e-3
OF_A_GROUP, MOST_OF_A_GROUP, NEGLIGIBLE = 4.0, 0.8, 1e-3
"""A group's norm has a tolerance so many times larger, up to a maximum; it counts as at least this share of the whole norm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Proven:
    """The figures of a launch whose work was proven in full. `name`: of its file; `fingerprint`: of its first step."""

    name: str
    fingerprint: Mapping[str, float]
    flops_per_item: float
    blocks: tuple[Block, ...]


def proof_of(launch: Launch) -> Proven | None:
    """Return the figures that the other launches of the cell must reproduce; None if this one wasn't proven in full."""
    reference = launch.reference
    if not launch.is_ok or reference is None or reference.proof != "full" or reference.error:
        return None
    return Proven(
        name=launch.path.stem,
        fingerprint=reference.fingerprint,
        flops_per_item=reference.flops_per_item,
        blocks=_in_order(launch),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A comparison with the proof: how many losses of a rank were compared, and the first contradiction, in words."""

    losses: int
    contradiction: str | None


def compare(launch: Launch, proven: Proven) -> Compared:
    """Compare a launch that ended well with the proven one of its cell."""
    is_by_chance = launch.workload.mode != "train" and launch.reference is not None and launch.reference.unwatched
    pairs = [] if is_by_chance else _pairs(launch, _in_order(launch), proven.blocks)  # its steps may have drawn other numbers
    wrong = [*_wrong_first_step(launch, proven), *_wrong_losses(launch, pairs)]
    return Compared(losses=max(map(len, pairs), default=0), contradiction=f"{wrong[0]} in {proven.name}" if wrong else None)


def _in_order(launch: Launch) -> tuple[Block, ...]:
    """Return all steps after the first, in the order in which they ran; empty where that or the losses are unknown."""
    blocks = (*launch.warm_up_blocks, *launch.windows)
    if not all(block.edges and block.losses for block in blocks):
        return ()
    return tuple(sorted(blocks, key=lambda block: block.edges or (0.0, 0.0)))


def _wrong_first_step(launch: Launch, proven: Proven) -> Iterator[str]:
    now, then = launch.reference.fingerprint if launch.reference else {}, proven.fingerprint
    for name, value in now.items():
        if name != "loss" and name in then:
            least = NEGLIGIBLE * then.get(name.partition(" of ")[0], 0.0)
            if not abs(value - then[name]) <= _norm_tolerance(launch, name) * max(abs(then[name]), least):
                yield f"the {name.replace('_', ' ')} of the first step is {value:.6g}, but was {then[name]:.6g}"
    if "loss" in now and "loss" in then:
        yield from _first_apart(launch, [(1, then["loss"], now["loss"])])


def _repeats(launch: Launch) -> bool:
    """Check whether the launch computes the same bits each time; compiled ones have not been observed to."""
    is_eager = launch.workload.factors.get("runtime") in (None, "eager") and not launch.workload.compile
    return launch.devices.is_cpu and is_eager


def _norm_tolerance(launch: Launch, name: str) -> float:
    if _repeats(launch):
        return NORM_ON_CPU
    most = NORM.get(launch.workload.precision, OTHER_NORM)
    return min(OF_A_GROUP * most, MOST_OF_A_GROUP) if " of " in name else most


_Pairs = Sequence[tuple[int, float, float]]
"""The steps of one rank: number, proven loss, and loss now."""


def _pairs(launch: Launch, blocks: Sequence[Block], proven: Sequence[Block]) -> list[_Pairs]:
    """Return the steps of each rank that can be compared. In training, the steps that both launches did, until GradScaler skips
    others; in inference, where weights stay as they are, the last steps of all blocks that had the same batch.
    """
    if not blocks or not proven:
        return []
    ranks = zip(_numbered_losses(proven), _numbered_losses(blocks), strict=False)
    end = _until_skips_differ(blocks, proven)
    if launch.workload.mode == "train" or not launch.workload.factors.get("eval", True):
        return [_same_steps(then, now, end) for then, now in ranks]
    return [_same_batches(then, now, launch.batches) for then, now in ranks] if launch.batches else []


def _numbered_losses(blocks: Sequence[Block]) -> list[list[tuple[int, float]]]:
    """Return each rank's losses with the numbers of their steps; the first block begins with the launch's second step."""
    ranks: list[list[tuple[int, float]]] = [[] for _ in blocks[0].losses]
    for block, begin in zip(blocks, accumulate((block.steps for block in blocks), initial=2), strict=False):
        end = begin + block.steps
        for rank, losses in zip(ranks, block.losses, strict=False):
            rank += zip(range(end - len(losses), end), map(number_or_nan, losses), strict=True)
    return ranks


def _until_skips_differ(*launches: Sequence[Block]) -> float:
    """Return the first step of the first block in which the launches skipped different numbers of steps."""
    skipped = []
    for blocks in launches:
        begins = accumulate((block.steps for block in blocks), initial=2)
        skipped.append({(begin, b.steps, b.skipped) for begin, b in zip(begins, blocks, strict=False) if b.skipped})
    return min((begin for begin, _, _ in skipped[0] ^ skipped[1]), default=math.inf)


def _same_steps(then: Sequence[tuple[int, float]], now: Sequence[tuple[int, float]], end: float) -> _Pairs:
    losses = dict(then)
    return [(number, losses[number], loss) for number, loss in now if number in losses and number < end]


def _same_batches(then: Sequence[tuple[int, float]], now: Sequence[tuple[int, float]], batches: int) -> _Pairs:
    losses = {number % batches: loss for number, loss in reversed(then)}
    return [(number, losses[number % batches], loss) for number, loss in now if number % batches in losses]


def _wrong_losses(launch: Launch, pairs: Sequence[_Pairs]) -> Iterator[str]:
    for rank, steps in enumerate(pairs):
        if steps:
            prefix = f"rank {rank}: " if len(pairs) > 1 else ""
            yield from (prefix + text for text in _first_apart(launch, steps))


def _first_apart(launch: Launch, steps: _Pairs) -> Iterator[str]:
    """Yield the first step whose loss is too far from the proven one. The tolerance includes a share of the range over which
    training has moved the losses, so that another course of training is noticed, not only another level.
    """
    exact, is_training = _repeats(launch), launch.workload.mode == "train"
    level = ON_CPU if exact else LEVEL.get(launch.workload.precision, OTHER_LEVEL)
    size, low, high = max(abs(then) for _, then, _ in steps), math.inf, -math.inf
    for number, then, now in steps:
        place, low, high = min(number, len(GROWTH)) - 1, min(low, then), max(high, then)
        grown = level if exact or not is_training else max(level, GROWTH[place])
        moved = (SHARE_ON_CPU if exact else SHARE) * (high - low) if is_training and number >= len(GROWTH) else 0.0
        if not abs(now - then) <= grown * size + moved:
            yield f"the loss of step {number} is {now:.6g}, but was {then:.6g}"
            return
