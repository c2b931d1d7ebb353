"""A trace -> how long each operator or kernel ran in a step, so that all of them and the gaps add up to the step."""

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torchmatrix.analysis.profiles.traces import Slice, Traced

IDLE, NO_OPERATOR_RUNS = "(device idle)", "(in no operator)"
"""The gaps: on a device, and on a CPU, where Python and the C++ around operators run meanwhile."""
_HASH = re.compile(r"\b(?=[a-z]*\d)[a-z0-9]{24,}\b")
"""Part of the names of compiled graphs; another one for each compilation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """An operator or a kernel: seconds of its own in a step, and how often it ran in one. `by`: what launched a kernel."""

    name: str
    seconds: float
    calls: float
    by: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Of a traced step of so many `seconds`: its `parts`, the largest first, and the gap, with which they add up to it."""

    seconds: float
    steps: int
    on_device: bool
    parts: tuple[Part, ...]

    @property
    def gap(self) -> float:
        """Seconds of a step in which nothing ran."""
        return max(0.0, self.seconds - sum(part.seconds for part in self.parts))

    @property
    def gap_name(self) -> str:
        """What a gap is."""
        return IDLE if self.on_device else NO_OPERATOR_RUNS


def shares(traced: Traced, kernels: bool = True) -> Shares:
    """By kernel, where there is a device and `kernels` are wanted; else by operator.

    Of operators inside each other the innermost counts. Where several threads or streams are busy at once, each of them gets
    an equal part of that time, so that nothing is counted twice.
    """
    by_kernel = traced.on_device and kernels
    seconds: dict[str, float] = {}
    for name, spent in _shared([list(_innermost(_named(lane, traced.on_device, kernels))) for lane in traced.lanes]):
        seconds[name] = seconds.get(name, 0.0) + spent
    calls = Counter(one.name for lane in traced.lanes for one in _named(lane, traced.on_device, kernels))
    launched = {_plain(one.name): one.operator for lane in traced.lanes for one in lane} if by_kernel else {}
    parts = (
        Part(name=name, seconds=spent / traced.steps, calls=calls[name] / traced.steps, by=launched.get(name, ""))
        for name, spent in seconds.items()
    )
    return Shares(
        seconds=traced.seconds / traced.steps,
        steps=traced.steps,
        on_device=traced.on_device,
        parts=tuple(sorted(parts, key=lambda part: (-part.seconds, part.name))),
    )


def _named(lane: Iterable[Slice], on_device: bool, kernels: bool) -> list[Slice]:
    """By the name that counts, which is the same in each trace."""
    by_operator = on_device and not kernels
    return [Slice(_plain(one.operator if by_operator else one.name), one.begin, one.end) for one in lane]


def _plain(name: str) -> str:
    return _HASH.sub("…", name)


_Piece = tuple[float, float, str]
"""Begin, end and name."""


def _innermost(lane: Sequence[Slice]) -> Iterator[_Piece]:
    """What ran when on one thread: of slices inside each other the last that began."""
    running: list[Slice] = []
    now = 0.0
    for one in sorted(lane, key=lambda one: (one.begin, -one.end)):
        while running and running[-1].end <= one.begin:
            over = running.pop()
            if over.end > now:
                yield now, over.end, over.name
                now = over.end
        if running and one.begin > now:
            yield now, one.begin, running[-1].name
        now = max(now, one.begin)
        running.append(one)
    while running:
        over = running.pop()
        if over.end > now:
            yield now, over.end, over.name
            now = over.end


def _shared(lanes: Sequence[Sequence[_Piece]]) -> Iterator[tuple[str, float]]:
    """The time of each piece; where so many lanes are busy, only that part of it."""
    begins = heapq.merge(*lanes)
    running: list[_Piece] = []
    now = 0.0
    for begin, end, name in begins:
        yield from _until(begin, now, running)
        running = [one for one in running if one[1] > begin]
        now = begin
        running.append((begin, end, name))
    yield from _until(float("inf"), now, running)


def _until(moment: float, now: float, running: Sequence[_Piece]) -> Iterator[tuple[str, float]]:
    """What the running pieces get from now to the moment."""
    left = sorted(running, key=lambda one: one[1])
    while left and now < moment:
        till = min(left[0][1], moment)
        for _, _, name in left:
            yield name, max(0.0, till - now) / len(left)
        now = max(now, till)
        left = [one for one in left if one[1] > now]
