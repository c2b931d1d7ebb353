"""The border of the facts: lines of JSON -> Launch or Unreadable. Malformed facts are handled here and nowhere else.

The host's own lines (the first and the last) make a file unreadable; a malformed line of the box makes a crashed launch.
"""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, force_setattr

from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import named_below
from torchmatrix.core.formatting import number_or_nan
from torchmatrix.core.inputs import Malformed
from torchmatrix.facts import lines, wire
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.lines import ARRIVED, Event, version_problem
from torchmatrix.facts.parts import Exit, Header, OtherNode, Readings, Stamp, Transport, Unseen, misnamed, try_number
from torchmatrix.facts.wire import Block

_READ = (
    *("sample", "steps", "requests", "unseen", "environment", "setup", "precision", "all-reduce", "collective", "hello"),
    *("warm-up", "remarks", "reference", "enqueue", "phase", "memory", "telemetry", "node", "transport", "failure"),
)
"""The events that make fields of a launch; of several malformed lines the first in this order is reported."""
_TYPES: Mapping[str, type[wire.Line]] = {**wire.EVENTS, "telemetry": Readings, "node": OtherNode, "transport": Transport}
_PHASES = ("measure", "warm-up", "unseen", "seen")
"""Of blocks of steps."""
_Rows = Sequence[Sequence[Any]]
"""For each rank, the steps in order."""


def read_launch(path: Path) -> Launch | Unreadable:
    """Read one launch file, whatever its name; a truncated last line is not an error."""
    found = lines.read(path)
    damage = found.damage_of_launch
    return Unreadable(path=path, reason=damage) if damage else launch_of(path, found.events, found.verified)


def launch_at(path: Path) -> Launch:
    """The launch in a file. Raises BadInput if there is none."""
    found = read_launch(path)
    if isinstance(found, Unreadable):
        raise BadInput(f"{path} is not a launch file: {found.reason}", hint="name a round*.jsonl under results/")
    return found


def launches_below(folder: Path, names: str = "round*-try*.jsonl") -> Iterator[Launch | Unreadable]:
    """The launches in a folder of results, in the order of their paths; without batch trials, whose names differ."""
    return map(launch_in, launch_files(folder, names))


def launch_files(folder: Path, names: str = "round*-try*.jsonl") -> list[Path]:
    """The files that launches_below reads."""
    return named_below(folder, names)


def launch_in(path: Path) -> Launch | Unreadable:
    """The launch in a file of a results folder, if the file's name fits it."""
    found = read_launch(path)
    if isinstance(found, Launch) and (why := misnamed(path, found.round, found.number)):
        return Unreadable(path=path, reason=why)
    return found


def sorted_out(found: Iterable[Launch | Unreadable]) -> tuple[list[Launch], list[Unreadable]]:
    """The launches, and the files that can't be read."""
    launches: list[Launch] = []
    rest: list[Unreadable] = []
    for one in found:
        if isinstance(one, Launch):
            launches.append(one)
        else:
            rest.append(one)
    return launches, rest


def launch_of(path: Path, events: Sequence[Event], verified: bool = False) -> Launch | Unreadable:
    """The launch in a file of these lines; `verified`: by their checksums."""
    if not events or events[0]["event"] != "launch":
        return Unreadable(path=path, reason="it has no header")
    try:
        end = wire.decoded(events[-1], Exit) if events[-1]["event"] == "exit" else None
        numbered = events[0] if "try" in events[0] else {**events[0], "try": try_number(path)}
        header = asdict(wire.decoded(numbered, Header))
        return Launch(path=path, exit=end, verified=verified, **header, **told(events[1:]))
    except Malformed as why:
        return Unreadable(path=path, reason=str(why))


def told(events: Sequence[Event]) -> dict[str, Any]:
    """The fields of a launch that come from the box's lines and the telemetry; the first malformed line is reported."""
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event["event"], []).append(event)
    made, wrong = _made(kinds)
    try:
        blocks = {phase: _blocks(phase, made["sample"], made["steps"]) for phase in _PHASES}
    except ValueError as why:
        blocks = dict.fromkeys(_PHASES, ())
        wrong = wrong or f'the box wrote "steps" lines that contradict its windows: {why}'
    first = {kind: next(iter(some), None) for kind, some in made.items()}
    setup, hello, precision = first["setup"], first["hello"], first["precision"]
    batches = hello.arguments.get("batches") if hello else None
    return {
        "box": first["environment"],
        "told_ranks": setup.world_size if setup else None,
        "stamps": _stamps(events),
        "seen_devices": setup.devices if setup else (),
        "parameters": setup.parameters if setup else None,
        "compile_cache": hello.compile_cache if hello else None,
        "batches": batches if type(batches) is int and batches > 0 else None,
        "windows": blocks["measure"],
        "warm_up_blocks": blocks["warm-up"],
        "unseen": Unseen(new=blocks["unseen"], old=blocks["seen"], error=first["unseen"] and first["unseen"].error),
        "requests": made["requests"],
        "warm_up": next(reversed(made["warm-up"]), None),
        "phases": {one.phase: one.seconds for one in reversed(made["phase"])},
        "memory": made["memory"],
        "enqueue_seconds": tuple(
            seconds for seconds in (first["enqueue"].step_seconds if first["enqueue"] else ()) if seconds is not None
        ),
        "precision": precision.effective if precision else (),
        "changed_settings": precision.changed if precision else (),
        "remarks": first["remarks"].texts if first["remarks"] else (),
        "reference": first["reference"],
        "collectives": (*made["all-reduce"], *made["collective"]),
        "telemetry": made["telemetry"],
        "other_nodes": made["node"],
        "transport": first["transport"],
        "failures": made["failure"],
        "is_done": "done" in kinds,
        "refused": next(filter(None, map(version_problem, kinds.get("hello", ()))), None),
        "malformed": wrong,
    }


def _made(kinds: Mapping[str, Sequence[Event]]) -> tuple[dict[str, tuple[Any, ...]], str | None]:
    """The events of each kind, none of a kind with a malformed line; and what is wrong with the first such line."""
    made: dict[str, tuple[Any, ...]] = {}
    wrong: list[str] = []
    for kind in _READ:
        try:
            made[kind] = tuple(wire.decoded(event, _TYPES[kind]) for event in kinds.get(kind, ()))
        except Malformed as why:
            made[kind] = ()
            wrong.append(f'the box wrote an invalid "{kind}" line: {why}')
    return made, next(iter(wrong), None)


def _blocks(phase: str, blocks: Iterable[wire.Block], parts: Sequence[wire.Steps]) -> tuple[wire.Block, ...]:
    """The blocks of a phase. The times and losses of many steps stand on lines of their own, in order, before their block.

    Raises ValueError.
    """
    chosen = (block for block in blocks if block.phase == phase)
    return tuple(_whole(one, [part for part in parts if (part.phase, part.window) == (phase, one.window)]) for one in chosen)


def _whole(block: wire.Block, parts: Sequence[wire.Steps]) -> wire.Block:
    if not parts:
        return block
    for part in parts:
        wire.same_ranks("step_seconds", part.step_seconds, block.seconds)
    whole = copy.copy(block)
    force_setattr(whole, "step_seconds", _joined([part.step_seconds for part in parts]))
    force_setattr(whole, "losses", _joined([part.losses for part in parts]))
    return whole


def _joined(parts: Sequence[_Rows]) -> tuple[tuple[Any, ...], ...]:
    """The rows of each rank one after the other; of no rank that a part leaves out."""
    return tuple(tuple(chain.from_iterable(rows)) for rows in zip(*parts, strict=False))


def _stamps(events: Sequence[Event]) -> tuple[Stamp, ...]:
    """Of each line of the box; none if the host recorded no arrivals."""
    pairs = ((event["monotonic_seconds"], event[ARRIVED]) for event in events if {"monotonic_seconds", ARRIVED} <= event.keys())
    return tuple((told, came) for told, came in pairs if inputs.is_number(told) and inputs.is_number(came))


# Did a launch do what the proven launch of its cell did? Its first step and all its losses are held against it.
#
# One launch of a cell is compared with eager fp32 (docs/method-launch.md). The others begin from the same weights, batches and
# seeds, so that their losses must be the same, step by step: a step that trains less, or on less, moves them elsewhere.

LEVEL = {"fp32": 1e-4, "tf32": 2e-3, "amp": 2e-3, "half": 2e-3}
OTHER_LEVEL = 1e-2
"""On GPUs, whose libraries choose their algorithms anew and add up in any order: by how much losses differ from launch to
launch, relative to the largest one."""
GROWTH = (1e-4, 1e-4, 1e-3, 1e-2)
"""In the first, second and later steps no less than this: rounding grows in training. Where batch norms divide by the scatter
of four values, noise of 1e-7 in the gradients moved the loss of ResNet-18 by 6e-7, 3e-6, 2e-4 and 1e-2 in its second to fifth
step."""
SHARE = 0.5
"""And from the fourth step on by this share of the range that the losses have had: there, 0.3 was seen."""
ON_CPU, SHARE_ON_CPU = 1e-5, 0.02
"""The same on CPUs, where PyTorch computes the same bits in each launch."""
NORM = {"fp32": 0.1}
"""Of the first step's norms on a GPU; else OTHER_NORM."""
OTHER_NORM, NORM_ON_CPU = 0.5, 1e-3
OF_A_GROUP, MOST_OF_A_GROUP, NEGLIGIBLE = 4.0, 0.8, 1e-3
"""A group's norm may differ by so many times more, but by no more than that; it counts as at least this share of the whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Proven:
    """What a launch found whose work was proven in full. `name`: of its file; `fingerprint`: of its first step."""

    name: str
    fingerprint: Mapping[str, float]
    flops_per_item: float
    blocks: tuple[Block, ...]


def proof_of(launch: Launch) -> Proven | None:
    """What the other launches of the cell must find, too; None if this one wasn't proven in full."""
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
    """How a launch compares: how many losses of a rank were compared, and what contradicts the proof, in words."""

    losses: int
    contradiction: str | None


def compare(launch: Launch, proven: Proven) -> Compared:
    """Hold a launch that ended well against the one of its cell that was proven."""
    pairs = _pairs(launch, _in_order(launch), proven.blocks)
    wrong = [*_of_first_step(launch, proven), *_of_losses(launch, pairs)]
    return Compared(losses=max(map(len, pairs), default=0), contradiction=f"{wrong[0]} in {proven.name}" if wrong else None)


def _in_order(launch: Launch) -> tuple[Block, ...]:
    """All steps after the first, in the order in which they ran; empty where that or the losses are unknown."""
    blocks = (*launch.warm_up_blocks, *launch.windows)
    if not all(block.edges and block.losses for block in blocks):
        return ()
    return tuple(sorted(blocks, key=lambda block: block.edges or (0.0, 0.0)))


def _of_first_step(launch: Launch, proven: Proven) -> Iterator[str]:
    found, known = launch.reference.fingerprint if launch.reference else {}, proven.fingerprint
    for name, value in found.items():
        if name != "loss" and name in known:
            least = NEGLIGIBLE * known.get(name.partition(" of ")[0], 0.0)
            if not abs(value - known[name]) <= _allowed(launch, name) * max(abs(known[name]), least):
                yield f"the {name.replace('_', ' ')} of the first step is {value:.6g}, but was {known[name]:.6g}"
    if "loss" in found and "loss" in known:
        yield from _apart(launch, [1], [known["loss"]], [found["loss"]])


def _repeats(launch: Launch) -> bool:
    """Whether the launch computes the same bits each time; of compiled ones that has not been seen yet."""
    is_eager = launch.workload.factors.get("runtime") in (None, "eager") and not launch.workload.compile
    return launch.devices.is_cpu and is_eager


def _allowed(launch: Launch, name: str) -> float:
    if _repeats(launch):
        return NORM_ON_CPU
    most = NORM.get(launch.workload.precision, OTHER_NORM)
    return min(OF_A_GROUP * most, MOST_OF_A_GROUP) if " of " in name else most


_Pairs = Sequence[tuple[int, float, float]]
"""Of one rank: the number of a step, the loss that was proven and the loss now."""


def _pairs(launch: Launch, blocks: Sequence[Block], proven: Sequence[Block]) -> list[_Pairs]:
    """Of each rank, what can be compared. In training, the steps that both launches did, until GradScaler skips others; in
    inference, where weights stay as they are, the last steps of all blocks that had the same batch.
    """
    if not blocks or not proven:
        return []
    ranks = zip(*(_numbered(each) for each in (proven, blocks)), strict=False)
    end = _until_skips_differ(blocks, proven)
    if launch.workload.mode == "train" or not launch.workload.factors.get("eval", True):
        return [_same_steps(known, found, end) for known, found in ranks]
    return [_same_batches(known, found, launch.batches) for known, found in ranks] if launch.batches else []


def _numbered(blocks: Sequence[Block]) -> list[list[tuple[int, float]]]:
    """Of each rank, the losses with the numbers of their steps; the first block begins with the second step of the launch."""
    found: list[list[tuple[int, float]]] = [[] for _ in blocks[0].losses]
    for block, end in zip(blocks, accumulate((block.steps for block in blocks), initial=2), strict=False):
        after = end + block.steps
        for rank, losses in zip(found, block.losses, strict=False):
            rank += zip(range(after - len(losses), after), map(number_or_nan, losses), strict=True)
    return found


def _until_skips_differ(*launches: Sequence[Block]) -> float:
    """The first step of the first block in which one launch skipped other steps than the other."""
    skipped = []
    for blocks in launches:
        begins = accumulate((block.steps for block in blocks), initial=2)
        skipped.append({(begin, b.steps, b.skipped) for begin, b in zip(begins, blocks, strict=False) if b.skipped})
    return min((begin for begin, _, _ in skipped[0] ^ skipped[1]), default=math.inf)


def _same_steps(known: Sequence[tuple[int, float]], found: Sequence[tuple[int, float]], end: float) -> _Pairs:
    losses = dict(known)
    return [(number, losses[number], loss) for number, loss in found if number in losses and number < end]


def _same_batches(known: Sequence[tuple[int, float]], found: Sequence[tuple[int, float]], turn: int) -> _Pairs:
    losses = {number % turn: loss for number, loss in reversed(known)}
    return [(number, losses[number % turn], loss) for number, loss in found if number % turn in losses]


def _of_losses(launch: Launch, pairs: Sequence[_Pairs]) -> Iterator[str]:
    for rank, steps in enumerate(pairs):
        if steps:
            several = f"rank {rank}: " if len(pairs) > 1 else ""
            numbers, known, found = zip(*steps, strict=True)
            yield from (several + text for text in _apart(launch, numbers, known, found))


def _apart(launch: Launch, numbers: Sequence[int], known: Sequence[float], found: Sequence[float]) -> Iterator[str]:
    """The first step whose loss is too far from the proven one. It may be a share of how far training has moved the losses, and
    so notices another course of training, not only another level.
    """
    exact, is_training = _repeats(launch), launch.workload.mode == "train"
    level = ON_CPU if exact else LEVEL.get(launch.workload.precision, OTHER_LEVEL)
    size, low, high = max(map(abs, known)), math.inf, -math.inf
    for number, then, now in zip(numbers, known, found, strict=True):
        place, low, high = min(number, len(GROWTH)) - 1, min(low, then), max(high, then)
        grown = level if exact or not is_training else max(level, GROWTH[place])
        moved = (SHARE_ON_CPU if exact else SHARE) * (high - low) if is_training and number >= len(GROWTH) else 0.0
        if not abs(now - then) <= grown * size + moved:
            yield f"the loss of step {number} is {now:.6g}, but was {then:.6g}"
            return
