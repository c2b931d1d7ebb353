"""Does the box's clock run as the host's does? A slow one makes all that is timed with it look fast.

Each line of a box has a stamp of the box's clock, and the host keeps when it came. A line may be late, never early: of several
lines the one that came fastest tells by how much the clocks differ at that time. What that difference grows or shrinks by is
the clock's, since both clocks count the same seconds.
"""

from collections.abc import Iterator, Sequence

RELATIVE, SECONDS = 0.01, 0.05
"""Clocks agree within 1 % and 50 ms, by which all lines around some moment may be late. Honest ones agree within 0.05 %."""
BURST, LATE = 0.5, 0.5
"""Lines that were written within BURST seconds are read at once: one delay of a busy host may make all of them so late."""
IDLE_RELATIVE, IDLE_SECONDS = 0.02, 0.5
"""So much of a window's length, and so long besides, passes at most until the box tells the time again."""
AROUND = 8
"""Lines of which the fastest counts."""

Edges = tuple[float, float]
"""Begin and end of timed steps on the box's clock."""
Stamp = tuple[float, float]
"""Of a line: the box's clock when it was written, the host's when it came."""


def contradiction(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges] = ()) -> str | None:
    """What the two clocks say of the same time, if that can't be; None also where too few lines tell. `others`: the edges of
    steps that were timed beside the windows.
    """
    return next(_contradictions(stamps, windows, others), None)


def offset(stamps: Sequence[Stamp]) -> float | None:
    """The host's clock minus the box's, at most; None without a line."""
    return min((came - told for told, came in stamps), default=None)


def _contradictions(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges]) -> Iterator[str]:
    if windows:
        begin, end = min(first for first, _ in windows), max(last for _, last in windows)
        before = [stamp for stamp in stamps if stamp[0] <= begin]
        yield from _between(
            before[-AROUND:], [stamp for stamp in stamps if stamp[0] >= end][:AROUND], "around the timed windows"
        )
        yield from _after(windows, stamps, others)
    few = min(AROUND, len(stamps) // 2)
    yield from _between(stamps[:few], stamps[len(stamps) - few :], "from the first lines to the last")


def _after(windows: Sequence[Edges], stamps: Sequence[Stamp], others: Sequence[Edges]) -> Iterator[str]:
    """A clock that is slow in a window and makes up for it right afterwards."""
    moments = [told for told, _ in stamps] + [begin for begin, _ in (*windows, *others)]
    for number, (begin, end) in enumerate(windows if stamps else ()):
        idle = min((moment for moment in moments if moment >= end), default=end) - end
        if idle > IDLE_SECONDS + IDLE_RELATIVE * (end - begin):
            yield f"the box tells of nothing in the {idle:.3f} s after timed window {number} of {end - begin:.3f} s"


def _between(some: Sequence[Stamp], others: Sequence[Stamp], where: str) -> Iterator[str]:
    if not some or not others:
        return
    (told, came), (told_then, came_then) = (min(group, key=lambda stamp: stamp[1] - stamp[0]) for group in (some, others))
    own, hosts = told_then - told, came_then - came
    late = SECONDS if min(_spread(some), _spread(others)) >= BURST else LATE
    if abs(hosts - own) > late + RELATIVE * hosts:
        yield f"{where}, {own:.3f} s went by on the box's clock and {hosts:.3f} s on the host's"


def _spread(stamps: Sequence[Stamp]) -> float:
    """For how long these lines were written, on the host's clock, which nobody in the box sets."""
    return max(came for _, came in stamps) - min(came for _, came in stamps)
