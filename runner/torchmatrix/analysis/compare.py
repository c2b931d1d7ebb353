"""Two sets of launches side by side: ratio, interval, verdict, and how their environments differ; or why they can't be."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torchmatrix.analysis import comparable
from torchmatrix.analysis.intervals import PAIRED_FROM, difference_verdict, launches_to_settle, paired_ratio, ratio
from torchmatrix.facts import run_words
from torchmatrix.facts.environments import differing, environment_of
from torchmatrix.facts.launch import Launch, last_tries, throughput
from torchmatrix.facts.reading import launch_at, launches_below, sorted_out
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.numbers import none_for_nan


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One workload on one device set, A over B. `refused`: why they can't be compared (the ratio is NaN then).

    `verdict`: FASTER, SLOWER, SAME, AMBIGUOUS, or n/a where one side has fewer than two launches; `settle`: so many launches
    on each side would end an AMBIGUOUS. `paired`: the ratio is the geometric mean over the rounds that both have.
    """

    label: str
    ratio: float
    low: float
    high: float
    launches: tuple[int, int]
    failed: tuple[int, int]
    verdict: str
    settle: int | None
    refused: str | None
    paired: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All rows that A and B share, those that only one has, and the fields in which their environments differ."""

    rows: tuple[Row, ...]
    only_one: tuple[str, ...]
    environment: dict[str, tuple[str, str]]

    def as_record(self) -> dict[str, Any]:
        """For --json; NaN becomes null."""
        rows = [none_for_nan(asdict(row)) for row in self.rows]
        return {"rows": rows, "only_one": self.only_one, "environment": self.environment}


def choose(results: Results, word: str) -> list[Launch]:
    """The launches that `word` names; raises BadInput.

    A launch file, a cell's or a run's folder; a run's id; `last` or `last~N`; else a glob on the stacks of the newest run,
    or of RUN in RUN:GLOB.
    """
    path = Path(word)
    try:
        if path.is_file():
            return [launch_at(path)]
        if path.is_dir():
            return last_tries(sorted_out(launches_below(path))[0])
    except OSError as error:
        raise BadInput(f"can't read {word}: {error.strerror}", hint="name a launch file or a folder of results") from None
    folder, glob = _run_and_glob(results, word)
    launches = last_tries(folder.launches()) if folder else []
    found = [launch for launch in launches if fnmatchcase(launch.stack.name, glob)]
    if not found:
        raise BadInput(f'"{word}" is not a file, folder, run or stack with launches', hint=_known(results))
    return found


def _run_and_glob(results: Results, word: str) -> tuple[RunFolder | None, str]:
    """The run that RUN or RUN:GLOB names, else the newest one with `word` as the glob; None if there is no run."""
    runs = results.runs()
    run, _, glob = word.rpartition(":")
    found = run_words.find(runs, run or word)
    if len(found) > 1:
        raise BadInput(f"{run or word} names {len(found)} runs; name one", hint=_known(results))
    if found:
        return found[0], glob if run else "*"
    if run:
        raise BadInput(f"no run {run} in {results.root}", hint=_known(results))
    return (runs[-1] if runs else None), word


def _known(results: Results) -> str:
    runs = results.runs()
    stacks = sorted({launch.stack.name for run in runs[-1:] for launch in run.launches()})
    return f"runs: {', '.join(run.id for run in runs[-5:]) or 'none'}; stacks of the newest: {', '.join(stacks) or 'none'}"


def compare(a: Sequence[Launch], b: Sequence[Launch]) -> Comparison:
    """A over B for every workload and device set that both measured. Raises BadInput where they share none."""
    by_stack = bool({x.stack.name for x in a} & {x.stack.name for x in b})
    ours, theirs = _grouped(a, by_stack), _grouped(b, by_stack)
    shared = [key for key in ours if key in theirs]
    if not shared:
        raise BadInput(
            "A and B share no workload on the same devices",
            hint=f"A has {', '.join(sorted(ours)[:3])}; B has {', '.join(sorted(theirs)[:3])}",
        )
    rows = tuple(_row(key, ours[key], theirs[key]) for key in shared)
    environment = differing(_environment(a), _environment(b))
    return Comparison(rows=rows, only_one=tuple(sorted(ours.keys() ^ theirs.keys())), environment=environment)


def _grouped(launches: Iterable[Launch], by_stack: bool) -> dict[str, list[Launch]]:
    """By workload and devices, and by stack too where both sides have the same ones."""
    found: dict[str, list[Launch]] = {}
    for launch in launches:
        parts = [launch.stack.name] if by_stack else []
        found.setdefault("/".join([*parts, launch.workload.id, launch.devices.label]), []).append(launch)
    return found


def _row(label: str, a: list[Launch], b: list[Launch]) -> Row:
    good = [[launch for launch in side if launch.outcome == "ok"] for side in (a, b)]
    failed = (len(a) - len(good[0]), len(b) - len(good[1]))
    refused = _why_not_sides(*good)
    if refused:
        counts = (len(good[0]), len(good[1]))
        return Row(
            label=label, ratio=math.nan, low=math.nan, high=math.nan, launches=counts, failed=failed, verdict="n/a",
            settle=None, refused=refused,
        )  # fmt: skip
    by_round = _common_rounds(*good)
    paired = len(by_round) >= PAIRED_FROM
    ours, theirs = ([throughput(launch) for launch in side] for side in good)
    if paired:
        ours, theirs = map(list, zip(*by_round, strict=True))
    found = paired_ratio(ours, theirs) if paired else ratio(ours, theirs, a[0].method.statistic)
    verdict = difference_verdict(found)
    return Row(
        label=label,
        ratio=found.value,
        low=found.low,
        high=found.high,
        launches=(len(ours), len(theirs)),
        failed=failed,
        verdict=verdict,
        settle=launches_to_settle(ours, theirs, paired) if verdict == "AMBIGUOUS" else None,
        refused=None,
        paired=paired,
    )


def _common_rounds(a: list[Launch], b: list[Launch]) -> list[tuple[float, float]]:
    """The throughputs of A and B in every round of one run that both have; such launches were interleaved."""
    sides = [{(launch.run, launch.round): throughput(launch) for launch in side} for side in (a, b)]
    return [(sides[0][key], sides[1][key]) for key in sorted(sides[0].keys() & sides[1].keys())]


def _why_not_sides(a: list[Launch], b: list[Launch]) -> str | None:
    """Why the ok launches of two sides can't be compared, or None."""
    for name, side in (("A", a), ("B", b)):
        if not side:
            return f"{name} has no launch that is ok"
        if any(launch.trial_batch for launch in side):
            return f"{name} is a batch trial, which measures nothing"
        stacks = sorted({launch.stack.name for launch in side})
        if len(stacks) > 1:
            return f"{name} has several stacks ({', '.join(stacks)}): name one"
        mixed = next((why for launch in side[1:] if (why := why_not(side[0], launch))), None)
        if mixed:
            return f"the launches of {name} did different work: {mixed}"
    return why_not(a[0], b[0])


def why_not(a: Launch, b: Launch) -> str | None:
    """The fields in which two launches differ so that a ratio would mean nothing, or None."""
    return comparable.difference(comparable.work_of(a), comparable.work_of(b))


def _environment(launches: Sequence[Launch]) -> dict[str, set[str]]:
    """Every value that each field takes among the launches."""
    found: dict[str, set[str]] = {}
    for launch in launches:
        for name, value in environment_of(launch).items():
            found.setdefault(name, set()).add(value)
    return found
