"""Did a launch do what the proven launch of its cell did? Its first step and all its losses are held against it.

One launch of a cell is compared with eager fp32 (docs/method-launch.md). The others begin from the same weights, batches and
seeds, so that their losses must be the same, step by step: a step that trains less, or on less, moves them elsewhere.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torchmatrix.facts.launch import Launch
from torchmatrix.facts.wire import Block
from torchmatrix.ground.formatting import number_or_nan

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
