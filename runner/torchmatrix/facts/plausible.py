"""Check whether a workload's report of its timed windows can be true: against the host's request and the host's clock.

A workload process is not trusted: a figure that contradicts its launch is no figure. A report that no correct workload can
make is a contradiction, and the launch is `crashed`; a report that a disturbance explains is shown with the launch.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torchmatrix.facts.parts import Unseen
from torchmatrix.facts.wire import END_TO_END, LATENCY, Block, OfRank, Requests, Stream

RELATIVE, SECONDS = 0.01, 0.01
"""Two clocks agree about a duration within 1 % and 10 ms: device events and the host's clock, the host's and the workload's."""
STALL_RELATIVE, STALL_SECONDS = 0.10, 0.6
"""By how much a window may be longer than its steps, and its edges wider than its slowest rank: on an overloaded machine a
process waits for a CPU."""
CLOCKS_RELATIVE, CLOCKS_SECONDS = 0.02, 0.1
"""Two clocks of a workload process, or of two nodes, agree within 2 % and 0.1 s about one window."""
STEP_RELATIVE = 0.05
"""Ranks in step on two nodes took 4.97 and 5.56 s for a window where eight processes waited for two CPUs."""
LEAST_REQUESTS = 10
"""The least requests of each kind and rank, unless fewer were requested: the workload cuts their number down to a length in
seconds, but no further."""
QUICKEST = 0.5
"""A request that was waited for takes no less than this share of a step in the timed windows. Nor does a request from host
memory to host memory take less than this share of one on the device."""
SLOWEST, REQUEST_SECONDS = 4.0, 0.001
"""The fastest request takes at most this ratio of the mean step in the timed windows, and 1 ms: a step that takes much less
leaves work to whoever reads its outputs, or out. A device's queue hides no more than the host's part of a step."""
LONGER = 1.25
"""Steps on new batches take at most this ratio of the mean step of the timed windows. Where they seem to take longer, the
workload alternates steps on old batches and on new ones, and all of the new must take longer than any of the old."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requested:
    """The request of a launch; None: not recorded, or its mode has none. `steps`: of a window; at least so many unless
    `exactly`.

    `requests`: how many at most of each kind, to be timed one by one; 0: none. `is_asynchronous`: the device computes while the
    host goes on, so that a request must be waited for. `here`: the number of ranks, the first ones, on the node whose clock
    stamps the lines; `batches`: how many all ranks compute in a step; `in_step`: no rank can begin a step before the others
    have done the last one.
    """

    ranks: int
    here: int
    batches: int = 1
    in_step: bool = False
    batch: int | None
    steps: int | None
    exactly: bool
    windows: int | None
    requests: int = 0
    is_asynchronous: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """The host's monotonic clock: when the launch began and how long it lasted (NaN: unknown).

    `offset`: an upper limit of the host's clock minus the workload's; None if the host didn't record when lines came.
    """

    begin: float | None
    seconds: float
    offset: float | None


def contradiction(windows: Sequence[Block], told_ranks: int | None, asked: Requested, clock: Observed) -> str | None:
    """Return the first contradiction in the windows, with both figures; None if all may be true."""
    return next(_contradictions(windows, told_ranks, asked, clock), None)


def contradiction_of_requests(
    requests: Sequence[Requests], windows: Sequence[Block], asked: Requested, clock: Observed
) -> str | None:
    """Return the first contradiction in the requests that were served one by one; `windows`: the timed ones before them."""
    return next(_contradictions_of_requests(requests, windows, asked, clock), None)


def contradiction_of_streams(streams: Sequence[Stream], asked: Requested, clock: Observed) -> str | None:
    """Return the first contradiction in the pieces of work that were timed one by one."""
    return next(_contradictions_of_streams(streams, asked, clock), None)


def contradiction_of_unseen(unseen: Unseen, windows: Sequence[Block], asked: Requested) -> str | None:
    """Return the first contradiction in the steps on unseen batches; `windows`: the timed ones before them."""
    return next(_contradictions_of_unseen(unseen, windows, asked), None)


def stall(windows: Sequence[Block]) -> float:
    """Return the largest share of a window in which no step of some rank ran; 0 within 1 % and 10 ms, or if unknown."""
    pairs = [(w.seconds[rank], sum(steps)) for w in windows for rank, steps in enumerate(w.step_seconds)]
    pairs += [(w.edges[1] - w.edges[0], w.slowest) for w in windows if w.edges]
    return max((1 - inner / outer for outer, inner in pairs if _exceeds(outer, inner)), default=0.0)


def _contradictions(windows: Sequence[Block], told_ranks: int | None, asked: Requested, clock: Observed) -> Iterator[str]:
    if told_ranks is not None and told_ranks != asked.ranks:
        yield f"the workload reported {told_ranks} ranks; the launch has {asked.ranks}"
    if asked.windows is not None and len(windows) != asked.windows:
        yield f"the workload reported {len(windows)} timed windows; {asked.windows} were asked for"
    for number, window in enumerate(windows):
        place = f"timed window {number}"
        yield from (f"{place}: {what}" for what in (*_wrong_counts(window, asked), *_wrong_times(window, asked)))
    yield from _wrong_by_clock(windows, clock)


def _wrong_counts(window: Block, asked: Requested) -> Iterator[str]:
    if len(window.seconds) != asked.ranks:
        yield f"the workload reported the times of {len(window.seconds)} ranks; the launch has {asked.ranks}"
    lengths = sorted({len(steps) for steps in window.step_seconds} - {window.steps})
    if lengths:
        yield f"the workload reported the step times of {lengths[0]} steps; the window has {window.steps}"
    if asked.steps is not None and (window.steps != asked.steps if asked.exactly else window.steps < asked.steps):
        yield f"{window.steps} steps; {asked.steps} were asked for"
    if asked.batch is not None and window.items != asked.batch * window.steps * asked.batches:
        product = f"{asked.batch} items x {window.steps} steps x {asked.batches} {'ranks' if asked.batches > 1 else 'batch'}"
        yield f"{window.items} items; {product} are {asked.batch * window.steps * asked.batches}"


def _wrong_times(window: Block, asked: Requested) -> Iterator[str]:
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


def _wrong_by_clock(windows: Sequence[Block], clock: Observed) -> Iterator[str]:
    """Yield how the windows contradict the host's clock."""
    together = sum(window.slowest for window in windows)
    if _exceeds(together, clock.seconds):
        yield f"the workload reported timed windows of {together:.3f} s in a launch of {clock.seconds:.3f} s"
    edges = [window.edges for window in windows if window.edges]
    for number, (before, after) in enumerate(pairwise(edges)):
        if before[1] - after[0] > SECONDS:
            yield f"timed window {number + 1} begins {before[1] - after[0]:.3f} s before window {number} ends"
    if edges and _exceeds(edges[-1][1] - edges[0][0], clock.seconds):
        yield f"the timed windows span {edges[-1][1] - edges[0][0]:.3f} s in a launch of {clock.seconds:.3f} s"
    if clock.offset is not None and clock.begin is not None:
        yield from _wrong_arrivals(windows, clock.begin, clock.offset)


def _wrong_arrivals(windows: Sequence[Block], begin: float, offset: float) -> Iterator[str]:
    """Compare the windows' edges, moved to the host's clock, with the launch: a container in a VM has a clock of its own.

    The offset is too large by the delay of the fastest line; an edge is then too late by as much, and its line by no less.
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


def _contradictions_of_requests(
    requests: Sequence[Requests], windows: Sequence[Block], asked: Requested, clock: Observed
) -> Iterator[str]:
    for kind in (LATENCY, END_TO_END) if asked.requests else ():
        ranks = sorted(series.rank for series in requests if series.kind == kind)
        if ranks != list(range(asked.ranks)):
            yield f"the workload reported the {kind} of ranks {ranks}; the launch has {asked.ranks}"
    for series in requests:
        place, count = f"{series.kind} of rank {series.rank}", len(series.seconds)
        if not min(LEAST_REQUESTS, asked.requests) <= count <= asked.requests:
            yield f"{place}: {count} requests; {asked.requests} were asked for at most"
        yield from (f"{place}: {what}" for what in _wrong_series(series, requests, windows, asked, clock))
    yield from _wrong_end_to_end(requests)


def _wrong_series(
    series: Requests, requests: Sequence[Requests], windows: Sequence[Block], asked: Requested, clock: Observed
) -> Iterator[str]:
    begin, end = series.edges
    together = sum(
        sum(each.seconds) + each.between for each in requests if (each.rank, each.edges) == (series.rank, series.edges)
    )
    if _exceeds(together, end - begin) or _stalls(end - begin, together):
        yield f"the requests took {together:.3f} s together, but their edges are {end - begin:.3f} s apart"
    is_here = series.rank < asked.here
    before = max((window.edges[1] for window in windows if window.edges and is_here), default=begin)
    if before - begin > SECONDS:
        yield f"the first one began {before - begin:.3f} s before the last timed window ended"
    yield from _late(series, asked, clock)
    steps = [seconds for window in windows for rank in window.step_seconds for seconds in rank]
    if asked.is_asynchronous and steps and statistics.median(series.seconds) < QUICKEST * statistics.median(steps):
        took, step = statistics.median(series.seconds), statistics.median(steps)
        yield f"a request took {took:.6f} s, a step {step:.6f} s: it wasn't waited for"
    means = [statistics.fmean(rank) for window in windows for rank in window.step_seconds if rank]
    if series.kind == LATENCY and means and min(series.seconds, default=0.0) > SLOWEST * max(means) + REQUEST_SECONDS:
        fastest, mean = min(series.seconds), max(means)
        yield f"no request took less than {fastest:.6f} s, but a step of the timed windows {mean:.6f} s: these did less"


def _contradictions_of_streams(streams: Sequence[Stream], asked: Requested, clock: Observed) -> Iterator[str]:
    for phase in dict.fromkeys(series.phase for series in streams):
        ranks = sorted({series.rank for series in streams if series.phase == phase})
        if ranks != list(range(asked.ranks)):
            yield f"the workload reported the {phase} of ranks {ranks}; the launch has {asked.ranks}"
    for rank, edges in dict.fromkeys((series.rank, series.edges) for series in streams):
        alike = [series for series in streams if (series.rank, series.edges) == (rank, edges)]
        together, width = sum(sum(series.seconds) for series in alike), edges[1] - edges[0]
        if _exceeds(together, width):
            yield f"the pieces of rank {rank} took {together:.3f} s together, but their edges are {width:.3f} s apart"
        yield from (f"{series.phase} of rank {rank}: {what}" for series in alike for what in _late(series, asked, clock))


def _late(series: OfRank, asked: Requested, clock: Observed) -> Iterator[str]:
    """Yield that the last piece of a series ended after its line came, by the host's clock."""
    if series.rank < asked.here and clock.offset is not None and clock.begin is not None and series.arrived is not None:
        last, came = series.edges[1] + clock.offset - clock.begin, series.arrived - clock.begin
        if _exceeds(last, came):
            yield f"the last one ended {last:.3f} s after the launch began, but their line came at {came:.3f} s"


def _wrong_end_to_end(requests: Sequence[Requests]) -> Iterator[str]:
    """Compare end-to-end requests with the quicker latency requests that they alternated with: other programs slow both, but
    may slow every second request alone, where their turns take as long.
    """
    for latency in (series for series in requests if series.kind == LATENCY):
        for series in requests:
            is_alike = (series.kind, series.rank, series.edges) == (END_TO_END, latency.rank, latency.edges)
            if is_alike and len(series.seconds) >= LEAST_REQUESTS:
                took, least = statistics.median(series.seconds), sorted(latency.seconds)[len(latency.seconds) // 10]
                if took < QUICKEST * least:
                    place = f"end-to-end of rank {series.rank}"
                    yield f"{place}: a request took {took:.6f} s, one on the device alone {least:.6f} s"


def _contradictions_of_unseen(unseen: Unseen, windows: Sequence[Block], asked: Requested) -> Iterator[str]:
    for block in (*unseen.new, *unseen.old):
        place = f"steps on {'new' if block in unseen.new else 'old'} batches"
        if len(block.step_seconds) != asked.ranks:
            yield f"{place}: the workload reported the times of {len(block.step_seconds)} ranks; the launch has {asked.ranks}"
        yield from (f"{place}: {what}" for what in _wrong_times(block, asked))
    timed = [window.step_seconds for window in windows if len(window.step_seconds) == asked.ranks]
    for rank in range(asked.ranks) if timed and unseen.new else ():
        usual = max(statistics.fmean(steps[rank]) for steps in [block.step_seconds for block in unseen.old] or timed)
        new = min(statistics.median(block.step_seconds[rank]) for block in unseen.new)
        if new > LONGER * usual:
            yield (
                f"steps of rank {rank} took {new:.6f} s on batches that none had seen, and {usual:.6f} s on those of the timed "
                "windows: these were answered from memory, or by code compiled for their values"
            )


def _exceeds(longer: float, shorter: float) -> bool:
    """Check whether a time exceeds another by more than two clocks differ; never if the other is unknown."""
    return longer - shorter > SECONDS + RELATIVE * max(shorter, 0.0) and not math.isnan(shorter)


def _differ(a: float, b: float) -> bool:
    """Check whether two clocks disagree about a time; between readings of both, a process may have waited for a CPU."""
    return abs(a - b) > CLOCKS_SECONDS + CLOCKS_RELATIVE * max(a, b)


def _stalls(outer: float, inner: float) -> bool:
    return outer - inner > STALL_SECONDS + STALL_RELATIVE * outer
