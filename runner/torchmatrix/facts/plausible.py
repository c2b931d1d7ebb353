"""Can it be true what a box told of its timed windows? It is held against what the host asked for and what its clock saw.

A box is not believed: a figure that contradicts the launch it comes from is no figure. What no correct box can tell is a
contradiction, and the launch is `crashed`; what only a disturbance explains is told with the launch.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torchmatrix.facts.parts import Unseen
from torchmatrix.facts.wire import END_TO_END, LATENCY, Block, Requests

RELATIVE, SECONDS = 0.01, 0.01
"""Two times of one thing agree within 1 % and 10 ms: device events and the host's clock, the host's clock and the box's."""
STALL_RELATIVE, STALL_SECONDS = 0.10, 0.6
"""A window may be so much longer than its steps, and its edges wider than its slowest rank: on an overloaded machine a process
waits for a CPU."""
CLOCKS_RELATIVE, CLOCKS_SECONDS = 0.02, 0.1
"""Two clocks of a box, or of two nodes, agree within 2 % and 0.1 s about one window."""
STEP_RELATIVE = 0.05
"""Ranks in step on two nodes took 4.97 and 5.56 s for a window where eight processes waited for two CPUs."""
LEAST_REQUESTS = 10
"""Of each kind and rank, if as many were asked for: the box cuts their number down to a length in seconds, but no further."""
QUICKEST = 0.5
"""A request, waited for, takes no less than this share of a step in the timed windows; else it wasn't waited for. Nor does one
from host memory to host memory take less than this share of one on the device."""
LONGER = 1.25
"""Steps on new batches take no longer than the mean step of the timed windows by more than this ratio. Where they seem to, the
box times steps on old batches and on new ones in turns, and all of the new must take longer than any of the old."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the launch was to do; None: not recorded. `steps` of a window: exactly, or at least if it also has a length.

    `requests`: how many at most of each kind, to be timed one by one; 0: none. `is_asynchronous`: the device computes while the
    host goes on, so that a request must be waited for. `here`: so many ranks, the first ones, are on the node whose clock
    stamps the lines; `in_step`: no rank can begin a step before the others have done the last one.
    """

    ranks: int
    here: int
    in_step: bool = False
    batch: int | None
    steps: int | None
    exactly: bool
    windows: int | None
    requests: int = 0
    is_asynchronous: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The host's monotonic clock: when the launch began and for how long it lasted (NaN: unknown).

    `offset`: the host's clock minus the box's, at most; None if the host didn't record when lines came.
    """

    begin: float | None
    seconds: float
    offset: float | None


def contradiction(windows: Sequence[Block], told_ranks: int | None, asked: Asked, seen: Seen) -> str | None:
    """The first thing that can't be true, with both figures; None if all may be."""
    return next(_contradictions(windows, told_ranks, asked, seen), None)


def contradiction_of_requests(found: Sequence[Requests], windows: Sequence[Block], asked: Asked, seen: Seen) -> str | None:
    """The same of the requests that were served one by one; `windows`: the timed ones before them."""
    return next(_contradictions_of_requests(found, windows, asked, seen), None)


def contradiction_of_unseen(found: Unseen, windows: Sequence[Block], asked: Asked) -> str | None:
    """The same of the steps on batches that no step had seen; `windows`: the timed ones before them."""
    return next(_contradictions_of_unseen(found, windows, asked), None)


def stall(windows: Sequence[Block]) -> float:
    """The largest share of a window in which no step of some rank ran; 0 within 1 % and 10 ms, or if unknown."""
    pairs = [(w.seconds[rank], sum(steps)) for w in windows for rank, steps in enumerate(w.step_seconds)]
    pairs += [(w.edges[1] - w.edges[0], w.slowest) for w in windows if w.edges]
    return max((1 - inner / outer for outer, inner in pairs if _exceeds(outer, inner)), default=0.0)


def _contradictions(windows: Sequence[Block], told_ranks: int | None, asked: Asked, seen: Seen) -> Iterator[str]:
    if told_ranks is not None and told_ranks != asked.ranks:
        yield f"the box told of {told_ranks} ranks; the launch has {asked.ranks}"
    if asked.windows is not None and len(windows) != asked.windows:
        yield f"the box told of {len(windows)} timed windows; {asked.windows} were asked for"
    for number, window in enumerate(windows):
        place = f"timed window {number}"
        yield from (f"{place}: {what}" for what in (*_of_counts(window, asked), *_of_times(window, asked)))
    yield from _of_clock(windows, seen)


def _of_counts(window: Block, asked: Asked) -> Iterator[str]:
    if len(window.seconds) != asked.ranks:
        yield f"the box told the times of {len(window.seconds)} ranks; the launch has {asked.ranks}"
    lengths = sorted({len(steps) for steps in window.step_seconds} - {window.steps})
    if lengths:
        yield f"the box told the step times of {lengths[0]} steps; the window has {window.steps}"
    if asked.steps is not None and (window.steps != asked.steps if asked.exactly else window.steps < asked.steps):
        yield f"{window.steps} steps; {asked.steps} were asked for"
    if asked.batch is not None and window.items != asked.batch * window.steps * asked.ranks:
        product = f"{asked.batch} items x {window.steps} steps x {asked.ranks} ranks"
        yield f"{window.items} items; {product} are {asked.batch * window.steps * asked.ranks}"


def _of_times(window: Block, asked: Asked) -> Iterator[str]:
    for rank, (seconds, steps) in enumerate(zip(window.seconds, map(sum, window.step_seconds), strict=False)):
        if _exceeds(steps, seconds) or _stalls(seconds, steps):
            yield f"the steps of rank {rank} took {steps:.3f} s together, the window {seconds:.3f} s"
    if window.edges:
        width, slowest = window.edges[1] - window.edges[0], max(window.seconds[: asked.here])
        if _exceeds(slowest, width) or _stalls(width, slowest) or (asked.here == 1 and _differ(width, slowest)):
            yield f"the slowest rank took {slowest:.3f} s, but the window's edges are {width:.3f} s apart"
        for rank, seconds in enumerate(window.seconds[asked.here :] if asked.in_step else (), asked.here):
            if abs(seconds - slowest) > STALL_SECONDS + STEP_RELATIVE * max(seconds, slowest):
                yield f"rank {rank} took {seconds:.3f} s, those of the first node, in step with it, {slowest:.3f} s"


def _of_clock(windows: Sequence[Block], seen: Seen) -> Iterator[str]:
    """The windows as the host's clock saw the launch."""
    together = sum(window.slowest for window in windows)
    if _exceeds(together, seen.seconds):
        yield f"the box told of timed windows of {together:.3f} s in a launch of {seen.seconds:.3f} s"
    edges = [window.edges for window in windows if window.edges]
    for number, (before, after) in enumerate(pairwise(edges)):
        if before[1] - after[0] > SECONDS:
            yield f"timed window {number + 1} begins {before[1] - after[0]:.3f} s before window {number} ends"
    if edges and _exceeds(edges[-1][1] - edges[0][0], seen.seconds):
        yield f"the timed windows span {edges[-1][1] - edges[0][0]:.3f} s in a launch of {seen.seconds:.3f} s"
    if seen.offset is not None and seen.begin is not None:
        yield from _of_arrivals(windows, seen.begin, seen.offset)


def _of_arrivals(windows: Sequence[Block], begin: float, offset: float) -> Iterator[str]:
    """Edges are moved to the host's clock: a container in a virtual machine has one of its own.

    The offset is too large by what the fastest line took to come; an edge is then too late by as much, and its line by no less.
    """
    for number, window in enumerate(windows):
        if window.edges is None or window.arrived is None:
            continue
        first, last = (edge + offset - begin for edge in window.edges)
        came = window.arrived - begin
        if first < -SECONDS:
            yield f"timed window {number} began {-first:.3f} s before the launch did"
        if _exceeds(last, came):
            yield f"timed window {number} ended {last:.3f} s after the launch began, but its line came at {came:.3f} s"


def _contradictions_of_requests(found: Sequence[Requests], windows: Sequence[Block], asked: Asked, seen: Seen) -> Iterator[str]:
    for kind in (LATENCY, END_TO_END) if asked.requests else ():
        ranks = sorted(one.rank for one in found if one.kind == kind)
        if ranks != list(range(asked.ranks)):
            yield f"the box told the {kind} of ranks {ranks}; the launch has {asked.ranks}"
    for one in found:
        place, count = f"{one.kind} of rank {one.rank}", len(one.seconds)
        if not min(LEAST_REQUESTS, asked.requests) <= count <= asked.requests:
            yield f"{place}: {count} requests; {asked.requests} were asked for at most"
        yield from (f"{place}: {what}" for what in _of_served(one, found, windows, asked, seen))
    yield from _of_end_to_end(found)


def _of_served(one: Requests, found: Sequence[Requests], windows: Sequence[Block], asked: Asked, seen: Seen) -> Iterator[str]:
    begin, end = one.edges
    together = sum(sum(each.seconds) + each.between for each in found if (each.rank, each.edges) == (one.rank, one.edges))
    if _exceeds(together, end - begin) or _stalls(end - begin, together):
        yield f"the requests took {together:.3f} s together, but their edges are {end - begin:.3f} s apart"
    is_here = one.rank < asked.here
    before = max((window.edges[1] for window in windows if window.edges and is_here), default=begin)
    if before - begin > SECONDS:
        yield f"the first one began {before - begin:.3f} s before the last timed window ended"
    if is_here and seen.offset is not None and seen.begin is not None and one.arrived is not None:
        last, came = end + seen.offset - seen.begin, one.arrived - seen.begin
        if _exceeds(last, came):
            yield f"the last one ended {last:.3f} s after the launch began, but their line came at {came:.3f} s"
    steps = [seconds for window in windows for rank in window.step_seconds for seconds in rank]
    if asked.is_asynchronous and steps and statistics.median(one.seconds) < QUICKEST * statistics.median(steps):
        took, step = statistics.median(one.seconds), statistics.median(steps)
        yield f"a request took {took:.6f} s, a step {step:.6f} s: it wasn't waited for"


def _of_end_to_end(found: Sequence[Requests]) -> Iterator[str]:
    """Those that took turns with the latency's, so that a disturbance was there for both."""
    for rank, edges, on_device in ((one.rank, one.edges, one.seconds) for one in found if one.kind == LATENCY):
        for one in found:
            if (one.kind, one.rank, one.edges) == (END_TO_END, rank, edges) and len(one.seconds) >= LEAST_REQUESTS:
                took, least = statistics.median(one.seconds), statistics.median(on_device)
                if took < QUICKEST * least:
                    yield f"end-to-end of rank {rank}: a request took {took:.6f} s, one on the device alone {least:.6f} s"


def _contradictions_of_unseen(found: Unseen, windows: Sequence[Block], asked: Asked) -> Iterator[str]:
    for block in (*found.new, *found.old):
        yield from (f"steps on {'new' if block in found.new else 'old'} batches: {what}" for what in _of_steps(block, asked))
    told = [window.step_seconds for window in windows if len(window.step_seconds) == asked.ranks]
    for rank in range(asked.ranks) if told and found.new else ():
        beside = [block.step_seconds for block in found.old] or told
        usual = max(statistics.fmean(block[rank]) for block in beside)
        new = min(statistics.median(block.step_seconds[rank]) for block in found.new)
        if new > LONGER * usual:
            yield (
                f"steps of rank {rank} took {new:.6f} s on batches that none had seen, and {usual:.6f} s on those of the timed "
                "windows: these were answered from memory, or by code compiled for their values"
            )


def _of_steps(block: Block, asked: Asked) -> Iterator[str]:
    if len(block.step_seconds) != asked.ranks:
        yield f"the box told the times of {len(block.step_seconds)} ranks; the launch has {asked.ranks}"
    yield from _of_times(block, asked)


def _exceeds(one: float, other: float) -> bool:
    """Whether one time is longer than another by more than two clocks differ; never if one is unknown."""
    return one - other > SECONDS + RELATIVE * max(other, 0.0) and not math.isnan(other)


def _differ(one: float, other: float) -> bool:
    """Whether two clocks tell different times; between readings of both, a process may have waited for a CPU."""
    return abs(one - other) > CLOCKS_SECONDS + CLOCKS_RELATIVE * max(one, other)


def _stalls(outer: float, inner: float) -> bool:
    return outer - inner > STALL_SECONDS + STALL_RELATIVE * outer
