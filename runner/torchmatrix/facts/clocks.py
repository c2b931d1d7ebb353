"""Does the box's clock run as the host's does? A slow one makes all that is timed with it look fast.

Each line of a box has a stamp of the box's clock, and the host keeps when it came. A line may be late, never early: of several
lines the one that came fastest tells by how much the clocks differ at that time. What that difference grows or shrinks by is
the clock's, since both clocks count the same seconds. Where all lines of some time came at once, as after a daemon that hung,
all may be late: then the clock isn't known, and that is told.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

RELATIVE, SECONDS = 0.01, 0.05
"""Clocks agree within 1 % and 50 ms, by which all lines around some moment may be late. Honest ones agree within 0.05 %."""
BURST, LATE = 0.5, 0.5
"""Lines that came within BURST seconds were read at once: one delay of a busy host may make all of them late; by LATE seconds
that is no finding."""
IDLE_RELATIVE, IDLE_SECONDS = 0.02, 0.5
"""So much of a window's length, and so long besides, passes at most until the box tells the time again."""
AROUND = 8
"""Lines of which the fastest counts; more of them until they are no burst."""

Edges = tuple[float, float]
"""Begin and end of timed steps on the box's clock."""
Stamp = tuple[float, float]
"""Of a line: the box's clock when it was written, the host's when it came."""


class Judged(NamedTuple):
    """What the two clocks say of the same time, in words: what can't be (`wrong`), or why it isn't known (`unknown`)."""

    wrong: str | None = None
    unknown: str | None = None


def judge(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges] = ()) -> Judged:
    """Hold the box's clock against the host's. `others`: the edges of steps that were timed beside the windows."""
    found = list(_found(stamps, windows, others))
    return Judged(*(next(filter(None, texts), None) for texts in zip(Judged(), *found, strict=True)))


def offset(stamps: Sequence[Stamp]) -> float | None:
    """The host's clock minus the box's, at most; None without a line."""
    return min((came - told for told, came in stamps), default=None)


def _found(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges]) -> Iterator[Judged]:
    if windows:
        begin, end = min(first for first, _ in windows), max(last for _, last in windows)
        before = [stamp for stamp in reversed(stamps) if stamp[0] <= begin]
        after = [stamp for stamp in stamps if stamp[0] >= end]
        yield from _between(_nearest(before), _nearest(after), "around the timed windows")
        for number, window in enumerate(windows if stamps else ()):
            yield from _after(window, f"after timed window {number}", stamps, (*windows, *others))
    half = len(stamps) // 2
    yield from _between(
        _nearest(stamps[:half]), _nearest(stamps[len(stamps) - half :][::-1]), "from the first lines to the last"
    )


def _after(window: Edges, where: str, stamps: Sequence[Stamp], timed: Sequence[Edges]) -> Iterator[Judged]:
    """A clock that is slow in a window and makes up for it right afterwards: before the next line, or between the next two."""
    begin, end = window
    allowed = IDLE_SECONDS + IDLE_RELATIVE * (end - begin)
    later = [stamp for stamp in stamps if stamp[0] >= end][:2]
    begins = [first for first, _ in timed if first >= end]
    idle = min([told for told, _ in later] + begins, default=end) - end
    if idle > allowed:
        yield Judged(f"the box tells of nothing in the {idle:.3f} s {where} of {end - begin:.3f} s")
    if len(later) == 2:
        own, hosts = (later[1][clock] - later[0][clock] for clock in (0, 1))
        if own - hosts > allowed and min([own, *(begun - later[0][0] for begun in begins)]) > allowed:
            yield Judged(f"right {where} of {end - begin:.3f} s, {_passed(own, hosts)}")


def _nearest(stamps: Sequence[Stamp]) -> Sequence[Stamp]:
    """The first AROUND of `stamps`; more where these came in a burst."""
    first = last = stamps[0][1] if stamps else 0.0
    for number, (_, came) in enumerate(stamps):
        if number >= AROUND and last - first >= BURST:
            return stamps[:number]
        first, last = min(first, came), max(last, came)
    return stamps


def _between(some: Sequence[Stamp], others: Sequence[Stamp], where: str) -> Iterator[Judged]:
    """`some` were written before `others`."""
    if not some or not others:
        return
    (told, came), (told_then, came_then) = (min(group, key=lambda stamp: stamp[1] - stamp[0]) for group in (some, others))
    own, hosts = told_then - told, came_then - came
    late = others if hosts > own else some
    if abs(hosts - own) <= SECONDS + RELATIVE * hosts:
        return
    text = f"{where}, {_passed(own, hosts)}"
    if _spread(late) >= BURST:
        yield Judged(wrong=text)
    elif abs(hosts - own) > LATE + RELATIVE * hosts:
        yield Judged(unknown=f"the box's clock: {text}, but the host may have read these lines late")


def _passed(own: float, hosts: float) -> str:
    return f"{own:.3f} s went by on the box's clock and {hosts:.3f} s on the host's"


def _spread(stamps: Sequence[Stamp]) -> float:
    """For how long these lines came, on the host's clock, which nobody in the box sets."""
    return max(came for _, came in stamps) - min(came for _, came in stamps)
