"""The gate's result: a verdict with figures for every cell, and one verdict for the run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torchmatrix.analysis.intervals import NOTEWORTHY
from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import disk_errors, plain_open
from torchmatrix.core.formatting import none_for_nan
from torchmatrix.facts import lines
from torchmatrix.facts.environments import Compared, is_of_the_machine
from torchmatrix.facts.launch import Unreadable
from torchmatrix.facts.store import Results, run_event

COUNTING = ("regression", "failed", "missing", "skipped-now")
"""Verdicts on a cell that make the gate's verdict REGRESSION. Others: ok, faster, suspected, accepted, those of UNJUDGED."""
UNJUDGED = ("new", "n/a", "removed")


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOptions:
    """`nights`: so many make the baseline. `named`: the first of the runs is the baseline instead, as it was asked for by name.

    `strict`: slower on one night is a regression. `canary`: globs on the ids of cells of a stack that is never upgraded.
    `tolerance`: a ratio that differs from 1 by less is never slower or faster.
    """

    nights: int = 7
    named: bool = False
    strict: bool = False
    canary: tuple[str, ...] = ()
    tolerance: float = NOTEWORTHY


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One metric of one cell. `value`: of the last night, in the metric's unit (items per second, or seconds); `center`: of its
    baseline; `ratio`: the one over the other, of seconds the other way round, so that less than 1 is slower.

    It is slower below `low` and faster above `high`; `detectable`: the smallest loss, as a fraction, that tonight would have
    shown to be slower with a chance of 4 in 5. `why`: the verdict's reason in words. `nights`: the runs of the baseline;
    `rule`: where the limits come from; `strays`: nights that were left out of the scatter. `before`: the ratios of the nights
    before, as far as they were slower, too. `cause`: machine, software or unclear, by the canary `cause_why`; empty without
    one. `changes`: of the stack's environment since the last night of the baseline, or since the last one that measured the
    cell; `compared`: how much of the list of conditions both recorded. `facts`: the launch file to look at. Unknown: NaN.
    """

    cell: str
    verdict: str
    why: str = ""
    metric: str = "throughput"
    stack: str = ""
    unit: str = ""
    devices: tuple[str, ...] = ()
    value: float = math.nan
    center: float = math.nan
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    detectable: float = math.nan
    nights: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    rule: str = ""
    before: tuple[float, ...] = ()
    cause: str = ""
    cause_why: str = ""
    changes: dict[str, tuple[str, str]] = field(default_factory=dict)
    compared: Compared | None = None
    facts: str = ""

    @property
    def name(self) -> str:
        """Of the cell; with the metric, if it isn't the throughput."""
        return self.cell if self.metric == "throughput" else f"{self.cell} ({self.metric})"

    @property
    def is_judged(self) -> bool:
        """Could anything be said of it?"""
        return self.verdict not in UNJUDGED

    @property
    def counts(self) -> bool:
        """Is this a regression of the run?"""
        return self.verdict in COUNTING


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """The verdict on a run, cell by cell. `baseline`: the ids of the nights, or of the run, it was compared with."""

    run: str
    host: str
    started: float
    complete: bool
    baseline: tuple[str, ...]
    options: GateOptions
    cells: tuple[Judged, ...]

    @property
    def verdict(self) -> str:
        """INCOMPLETE; else REGRESSION; else PASS, or NO-BASELINE where not one cell could be judged."""
        if not self.complete:
            return "INCOMPLETE"
        if any(cell.counts for cell in self.cells):
            return "REGRESSION"
        return "PASS" if self.judged else "NO-BASELINE"

    @property
    def judged(self) -> int:
        """How many of `cells` could be judged."""
        return sum(cell.is_judged for cell in self.cells)

    def as_record(self) -> dict[str, Any]:
        """For --json and the hook; NaN becomes null."""
        fields = {name: getattr(self, name) for name in ("run", "host", "started", "complete", "baseline")}
        cells = [none_for_nan(asdict(cell)) | {"counts": cell.counts} for cell in self.cells]
        counts = {"judged": self.judged, "not_judged": len(self.cells) - self.judged}
        return {"verdict": self.verdict, **counts, **none_for_nan(fields), **asdict(self.options), "cells": cells}


# Which slow-downs were accepted, and why: from then on the cell's baseline begins with the run in which it was accepted.

KIND = "accepted"
ACCEPTABLE = ("suspected", "regression")
"""What failed or is missing has no level that could be accepted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """That `run` (started at `started`, unix seconds) is slower at a cell is accepted, `because` of something."""

    run: str
    started: float
    because: str


def accepted_path(results: Results, host: str) -> Path:
    """The record of one host: RESULTS/HOST/accepted.jsonl, a line for each cell."""
    return results.root / host / "accepted.jsonl"


def read_accepted(results: Results, host: str) -> dict[str, Accepted]:
    """By cell what was accepted last; nothing of a record that is damaged.

    A line that lacks a field, or whose run is still to come, accepts nothing: what is slower is told again.
    """
    found = {}
    for event in () if unreadable_record(results, host) else lines.read(accepted_path(results, host)).events:
        run, started, because, cell = (event.get(name) for name in ("run", "started", "because", "cell"))
        if event.get("event") == KIND and inputs.is_number(started) and isinstance(cell, str):
            found[cell] = Accepted(run=str(run), started=float(started or 0), because=str(because))
    return {cell: one for cell, one in found.items() if not inputs.is_to_come(one.started)}


def unreadable_record(results: Results, host: str) -> list[Unreadable]:
    """The record, if it is there and can't be trusted: then slow-downs that were accepted are told again."""
    path = accepted_path(results, host)
    damage = lines.read(path).damage
    return [Unreadable(path=path, reason=damage)] if damage else []


def slower_cells(gate: Gate, globs: Sequence[str]) -> list[Judged]:
    """The slower cells that the globs name, each once. Raises BadInput for a glob that names none."""
    known = [one for one in gate.cells if one.verdict in ACCEPTABLE]
    for glob in globs:
        if not any(fnmatchcase(one.cell, glob) for one in known):
            listing = ", ".join(one.cell for one in known) or "none"
            raise BadInput(f"no slower cell matches {glob}", hint=f"slower cells of {gate.run}: {listing}")
    found = {one.cell: one for one in reversed(known) if any(fnmatchcase(one.cell, glob) for glob in globs)}
    return list(reversed(found.values()))


def accept(results: Results, gate: Gate, globs: Sequence[str], because: str) -> Mapping[str, Accepted]:
    """Record that the slower cells which the globs name are accepted as they are in the judged run; returns all that is.

    Raises BadInput where the record is damaged: what is added to it would not be read.
    """
    path, end = accepted_path(results, gate.host), lines.End()
    for damaged in unreadable_record(results, gate.host):
        raise BadInput(f"{path} is damaged: {damaged.reason}", hint="restore it, or move it away and accept all again")
    found = slower_cells(gate, globs)
    with disk_errors(path), plain_open(path, "a+b", buffering=0) as file:
        file.seek(0)
        end.add(file.read())
        for one in found:
            event = run_event(
                KIND, cell=one.cell, run=gate.run, started=gate.started, because=because, metric=one.metric, ratio=one.ratio
            )
            lines.append(file, event, end)
    return read_accepted(results, gate.host)


# A canary is a cell whose software is never upgraded: if it moves as well, the machine is the cause.

_MOVES = {"suspected": "slower", "regression": "slower", "faster": "faster", "ok": "ok", "failed": "failed"}
"""Where a cell went, by its verdict; for all others it is unknown."""
_MEASURED = ("suspected", "regression", "faster", "ok")


def attribute(cells: Sequence[Judged], globs: Sequence[str]) -> tuple[Judged, ...]:
    """The cells, each that moved or failed with the machine or the software as the cause, by the canaries among them.

    Raises BadInput if there are globs and none of them matches a cell.
    """
    canaries = [one for one in cells if any(fnmatchcase(one.cell, glob) for glob in globs)]
    if globs and not canaries:
        known = ", ".join(sorted({one.stack for one in cells if one.stack})) or "none"
        raise BadInput(f"no cell matches the canary {' '.join(globs)}", hint=f"a glob on cell ids; stacks: {known}")
    return tuple(_attributed(one, canaries) for one in cells)


def _attributed(one: Judged, canaries: Sequence[Judged]) -> Judged:
    """By the canaries on the cell's own devices, where there are such, else by all of them."""
    moved = _MOVES.get(one.verdict)
    if not canaries or moved in (None, "ok"):
        return one
    if one in canaries:
        return _by_the_machine(one, one, "it is the canary")
    of_metric = [canary for canary in canaries if canary.metric == one.metric] or canaries
    near = [canary for canary in of_metric if set(canary.devices) & set(one.devices)] or of_metric
    for canary in near:
        if _MOVES.get(canary.verdict) == moved:
            return _by_the_machine(one, canary, f"canary {canary.cell} {_extent(canary)}, too")
    still = next((canary for canary in near if canary.verdict in _MEASURED), near[0])
    cause = "software" if still.verdict in _MEASURED else "unclear"
    return replace(one, cause=cause, cause_why=f"canary {still.cell} {_extent(still)}")


def _by_the_machine(one: Judged, canary: Judged, why: str) -> Judged:
    """Unless the canary's own software has changed: then it is none."""
    names = [name for name in canary.changes if not is_of_the_machine(name)]
    if names:
        return replace(one, cause="unclear", cause_why=f"{why}, but its own software has changed: {', '.join(names[:3])}")
    return replace(one, cause="machine", cause_why=why)


def _extent(one: Judged) -> str:
    percent = round(100 * (one.ratio - 1), 1) + 0.0  # no -0.0
    if one.verdict == "ok":
        return f"moved by {percent:+.1f} %, within its limits"
    if math.isnan(percent):
        return "failed" if one.verdict == "failed" else f"is {one.verdict}"
    return f"is {abs(percent):.1f} % {_MOVES[one.verdict]}"
