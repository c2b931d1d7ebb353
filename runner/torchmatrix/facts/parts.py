"""What is derived from the lines of a launch file: ids and names of earlier versions, and whether two clocks agree."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torchmatrix.core.inputs import Record
from torchmatrix.facts.wire import Block

# Old facts: fields that earlier versions didn't record are derived from the ids and names that they recorded. No other code
# takes an id or a file's name apart.

_EXPLAINS = ("independent", "no-sync")
RUN_ID = re.compile(r"([12]\d{3})(0[1-9]|1[0-2])(\d\d)T(\d\d)(\d\d)(\d\d)Z(-\d+)?", re.ASCII)
"""The name that a run's folder is given; its owner may rename it."""
_NAME = re.compile(r"(?:round|batch|probe)(\d+)-try(\d+)\.jsonl", re.ASCII)


def with_cell(line: Record) -> Record:
    """Return a `planned` or `skip` line with the fields of its cell, which earlier versions kept only in the cell's id."""
    if "workload" in line or not isinstance(line.get("cell"), str):
        return line
    stack, _, rest = line["cell"].partition("/")
    workload, _, devices = rest.partition("/")
    parallel = next((word for word in _EXPLAINS if workload.endswith(f"-{word}")), "ddp")
    ddp = ddp_workload(workload, parallel)
    return {"stack": stack, "workload": workload, "parallel": parallel, "ddp_workload": ddp, "devices": devices, **line}


def ddp_workload(workload: str, parallel: str) -> str:
    """Return the id of the workload that this one explains: its own id without the ending that names the kind."""
    return workload.removesuffix(f"-{parallel}")


def try_number(path: Path) -> int:
    """Return which try a launch was; 1 if its file is not named like a launch file."""
    match = _NAME.fullmatch(path.name)
    return int(match[2]) if match else 1


def misnamed(path: Path, round_: int, number_: int) -> str | None:
    """Return why the name of a file in a results folder doesn't fit its launch, or None: a copy would count twice."""
    match = _NAME.fullmatch(path.name)
    if not match:
        return "its name is not that of a launch file, such as round1-try1.jsonl"
    if (int(match[1]), int(match[2])) != (round_, number_):
        return f"it holds try {number_} of round {round_}: it was copied or renamed"
    return None


# Clocks: does the clock of the workload process run as the host's does? A slow one makes all that it times look fast.
#
# Each line of the workload has a stamp of its clock, and the host keeps when the line came. A line may be late, never early:
# of several lines the one that came fastest shows by how much the clocks differ at that time. Both clocks count the same
# seconds, so a change of that difference is an error of the clock. Where all lines of some time came at once, as after a
# daemon that hung, all may be late: then the clock's error is reported as unknown.

RELATIVE, SECONDS = 0.01, 0.05
"""Clocks agree within 1 % and 50 ms, by which all lines around some moment may be late. Honest ones agree within 0.05 %."""
BURST, LATE = 0.5, 0.5
"""Lines that came within BURST seconds were read at once: one delay of a busy host may make all of them late; up to LATE
seconds are no finding."""
IDLE_RELATIVE, IDLE_SECONDS, WAIT_SECONDS = 0.02, 0.5, 0.7
"""The workload reports the time again after at most this share of a window's length plus these seconds. Up to WAIT_SECONDS
more, a busy machine may as well have stopped it for a moment: nothing tells that from a clock that catches up."""
AROUND = 8
"""The number of lines of which the fastest counts; more of them until they are no burst."""

Edges = tuple[float, float]
"""Begin and end of timed steps on the workload's clock."""
Stamp = tuple[float, float]
"""Two times of a line: on the workload's clock when it was written, on the host's clock when it came."""


class ClockJudgement(NamedTuple):
    """The comparison of two clocks, in words: a difference that can't be (`wrong`), or why it isn't known (`unknown`)."""

    wrong: str | None = None
    unknown: str | None = None


def judge_clocks(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges] = ()) -> ClockJudgement:
    """Compare the workload's clock with the host's. `others`: the edges of steps that were timed besides the windows."""
    judgements = _judgements(stamps, windows, others)
    return ClockJudgement(*(next(filter(None, texts), None) for texts in zip(ClockJudgement(), *judgements, strict=True)))


def clock_offset(stamps: Sequence[Stamp]) -> float | None:
    """Return an upper limit of the host's clock minus the workload's; None without a line."""
    return min((came - written for written, came in stamps), default=None)


def _judgements(stamps: Sequence[Stamp], windows: Sequence[Edges], others: Sequence[Edges]) -> Iterator[ClockJudgement]:
    if windows:
        begin, end = min(first for first, _ in windows), max(last for _, last in windows)
        before = [stamp for stamp in reversed(stamps) if stamp[0] <= begin]
        after = [stamp for stamp in stamps if stamp[0] >= end]
        yield from _judge_between(_nearest(before), _nearest(after), "around the timed windows")
        for number, window in enumerate(windows if stamps else ()):
            yield from _judge_after(window, f"after timed window {number}", stamps, (*windows, *others))
    half = len(stamps) // 2
    yield from _judge_between(
        _nearest(stamps[:half]), _nearest(stamps[len(stamps) - half :][::-1]), "from the first lines to the last"
    )


def _judge_after(window: Edges, where: str, stamps: Sequence[Stamp], timed: Sequence[Edges]) -> Iterator[ClockJudgement]:
    """Judge a clock that is slow in a window and catches up right afterwards: before the next line, or between the next two."""
    begin, end = window
    allowed = IDLE_SECONDS + IDLE_RELATIVE * (end - begin)
    later = [stamp for stamp in stamps if stamp[0] >= end][:2]
    begins = [first for first, _ in timed if first >= end]
    idle = min([written for written, _ in later] + begins, default=end) - end
    if idle > allowed:
        silent = f"the workload reports nothing in the {idle:.3f} s {where} of {end - begin:.3f} s"
        yield ClockJudgement(silent) if idle > allowed + WAIT_SECONDS else ClockJudgement(unknown=f"{silent}: did it wait?")
    if len(later) == 2:
        workloads, hosts = (later[1][clock] - later[0][clock] for clock in (0, 1))
        if workloads - hosts > allowed and min([workloads, *(begun - later[0][0] for begun in begins)]) > allowed:
            yield ClockJudgement(f"right {where} of {end - begin:.3f} s, {_elapsed(workloads, hosts)}")


def _nearest(stamps: Sequence[Stamp]) -> Sequence[Stamp]:
    """Return the first AROUND of `stamps`; more where these came in a burst."""
    first = last = stamps[0][1] if stamps else 0.0
    for number, (_, came) in enumerate(stamps):
        if number >= AROUND and last - first >= BURST:
            return stamps[:number]
        first, last = min(first, came), max(last, came)
    return stamps


def _judge_between(before: Sequence[Stamp], after: Sequence[Stamp], where: str) -> Iterator[ClockJudgement]:
    """Judge the time that passed on both clocks from the fastest line of `before` to the fastest one of `after`."""
    if not before or not after:
        return
    first, last = (min(stamps, key=lambda stamp: stamp[1] - stamp[0]) for stamps in (before, after))
    workloads, hosts = last[0] - first[0], last[1] - first[1]
    late = after if hosts > workloads else before
    if abs(hosts - workloads) <= SECONDS + RELATIVE * hosts:
        return
    text = f"{where}, {_elapsed(workloads, hosts)}"
    arrivals = [came for _, came in late]  # on the host's clock, which nobody in the container sets
    if max(arrivals) - min(arrivals) >= BURST:
        yield ClockJudgement(wrong=text)
    elif abs(hosts - workloads) > LATE + RELATIVE * hosts:
        yield ClockJudgement(unknown=f"the workload's clock: {text}, but the host may have read these lines late")


def _elapsed(workloads: float, hosts: float) -> str:
    return f"{workloads:.3f} s went by on the workload's clock and {hosts:.3f} s on the host's"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unseen:
    """Steps on batches that no step had seen, after the windows: `new`, and `old` ones that alternate with all `new` but the
    first. `error`: why there are none.
    """

    new: tuple[Block, ...]
    old: tuple[Block, ...]
    error: str | None
