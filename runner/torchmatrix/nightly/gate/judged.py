"""Hold the gate's result: a verdict with figures for every cell, and one verdict for the run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torchmatrix.analysis.intervals import NOTEWORTHY
from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import disk_errors, locked_file
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
    """The gate's settings. `nights`: how many make the baseline. `named`: the first run, chosen by name, is it instead.

    `strict`: slower on one night is a regression. `canary`: globs on the ids of cells of a stack that is never upgraded.
    `tolerance`: a ratio that differs from 1 by less is never slower or faster.
    """

    nights: int = 7
    named: bool = False
    strict: bool = False
    canary: tuple[str, ...] = ()
    tolerance: float = NOTEWORTHY


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedCell:
    """The verdict on one metric of one cell. `value`: of the last night, in the metric's unit (items per second, or seconds);
    `center`: of its baseline; `ratio`: value over center, for seconds center over value, so that less than 1 is slower.

    The ratio is slower below `low` and faster above `high`; `detectable`: the smallest loss, as a fraction, that tonight would
    have shown to be slower with a chance of 4 in 5. `why`: the verdict's reason in words. `nights`: the runs of the baseline;
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
        """Return the cell's id; with the metric, if it isn't the throughput."""
        return self.cell if self.metric == "throughput" else f"{self.cell} ({self.metric})"

    @property
    def is_judged(self) -> bool:
        """Check whether the cell could be judged at all."""
        return self.verdict not in UNJUDGED

    @property
    def counts(self) -> bool:
        """Check whether the verdict makes the run a regression."""
        return self.verdict in COUNTING


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """The verdict on a run, cell by cell. `baseline`: ids of the nights, or of the named run, that the run is compared with."""

    run: str
    host: str
    started: float
    complete: bool
    baseline: tuple[str, ...]
    options: GateOptions
    cells: tuple[JudgedCell, ...]

    @property
    def verdict(self) -> str:
        """Return INCOMPLETE; else REGRESSION; else PASS, or NO-BASELINE where not one cell could be judged."""
        if not self.complete:
            return "INCOMPLETE"
        if any(cell.counts for cell in self.cells):
            return "REGRESSION"
        return "PASS" if self.judged else "NO-BASELINE"

    @property
    def judged(self) -> int:
        """Count the `cells` that could be judged."""
        return sum(cell.is_judged for cell in self.cells)

    def as_record(self) -> dict[str, Any]:
        """Return the record for --json and the hook; NaN becomes null."""
        fields = {name: getattr(self, name) for name in ("run", "host", "started", "complete", "baseline")}
        cells = [none_for_nan(asdict(cell)) | {"counts": cell.counts} for cell in self.cells]
        counts = {"judged": self.judged, "not_judged": len(self.cells) - self.judged}
        return {"verdict": self.verdict, **counts, **none_for_nan(fields), **asdict(self.options), "cells": cells}


# Accepted slow-downs and their reasons: a cell's baseline begins with the run in which its slow-down was accepted.

KIND = "accepted"
ACCEPTABLE = ("suspected", "regression")
"""Verdicts that can be accepted: a cell that failed or is missing has no level."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """A slow-down of a cell that was accepted in `run` (started at `started`, unix seconds); `because`: the reason."""

    run: str
    started: float
    because: str


def accepted_path(results: Results, host: str) -> Path:
    """Return the file with a host's accepted slow-downs: RESULTS/HOST/accepted.jsonl, a line for each cell."""
    return results.root / host / "accepted.jsonl"


def read_accepted(results: Results, host: str) -> dict[str, Accepted]:
    """Read by cell what was accepted last; nothing from a damaged record.

    A line that lacks a field, or whose run is still to come, accepts nothing: the slower cell is reported again.
    """
    accepted = {}
    for event in () if unreadable_record(results, host) else lines.read(accepted_path(results, host)).events:
        run, started, because, cell = (event.get(name) for name in ("run", "started", "because", "cell"))
        if event.get("event") == KIND and inputs.is_number(started) and isinstance(cell, str):
            accepted[cell] = Accepted(run=str(run), started=float(started or 0), because=str(because))
    return {cell: entry for cell, entry in accepted.items() if not inputs.is_to_come(entry.started)}


def unreadable_record(results: Results, host: str) -> list[Unreadable]:
    """Return the record of accepted slow-downs if it is damaged: then these are reported again."""
    path = accepted_path(results, host)
    damage = lines.read(path).damage
    return [Unreadable(path=path, reason=damage)] if damage else []


def slower_cells(gate: Gate, globs: Sequence[str]) -> list[JudgedCell]:
    """Return the slower cells that the globs match, each once. Raises BadInput for a glob that matches none."""
    slower = [judged for judged in gate.cells if judged.verdict in ACCEPTABLE]
    for glob in globs:
        if not any(fnmatchcase(judged.cell, glob) for judged in slower):
            listing = ", ".join(judged.cell for judged in slower) or "none"
            raise BadInput(f"no slower cell matches {glob}", hint=f"slower cells of {gate.run}: {listing}")
    matching = {judged.cell: judged for judged in reversed(slower) if any(fnmatchcase(judged.cell, glob) for glob in globs)}
    return list(reversed(matching.values()))


def accept(results: Results, gate: Gate, globs: Sequence[str], because: str) -> Mapping[str, Accepted]:
    """Record that the slower cells which the globs match are accepted as they are in the judged run; return all accepted.

    Raises BadInput where the record is damaged: what is added to it would not be read.
    """
    path, end = accepted_path(results, gate.host), lines.End()
    _refuse_damaged(results, gate.host)
    slower = slower_cells(gate, globs)
    with disk_errors(path), locked_file(path, wait=True) as file:  # two commands would write the same checksum
        _refuse_damaged(results, gate.host)
        file.seek(0)
        end.add(file.read())
        for judged in slower:
            event = run_event(
                KIND,
                cell=judged.cell,
                run=gate.run,
                started=gate.started,
                because=because,
                metric=judged.metric,
                ratio=judged.ratio,
            )
            lines.append(file, event, end)
    return read_accepted(results, gate.host)


def _refuse_damaged(results: Results, host: str) -> None:
    for damaged in unreadable_record(results, host):
        raise BadInput(f"{damaged.path} is damaged: {damaged.reason}", hint="restore it, or move it away and accept all again")


# Canaries: cells whose software is never upgraded. If a canary moves as well, the machine is the cause.

_MOVES = {"suspected": "slower", "regression": "slower", "faster": "faster", "ok": "ok", "failed": "failed"}
"""How a cell moved, by its verdict; unknown for other verdicts."""
_MEASURED = ("suspected", "regression", "faster", "ok")


def attribute(cells: Sequence[JudgedCell], globs: Sequence[str]) -> tuple[JudgedCell, ...]:
    """Add the cause, machine or software, to each cell that moved or failed, by the canaries among the cells.

    Raises BadInput if there are globs and none of them matches a cell.
    """
    canaries = [judged for judged in cells if any(fnmatchcase(judged.cell, glob) for glob in globs)]
    if globs and not canaries:
        stacks = ", ".join(sorted({judged.stack for judged in cells if judged.stack})) or "none"
        raise BadInput(f"no cell matches the canary {' '.join(globs)}", hint=f"a glob on cell ids; stacks: {stacks}")
    return tuple(_with_cause(judged, canaries) for judged in cells)


def _with_cause(judged: JudgedCell, canaries: Sequence[JudgedCell]) -> JudgedCell:
    """Add the cause by the canaries on the cell's own devices, or by all canaries if there is none on them."""
    moved = _MOVES.get(judged.verdict)
    if not canaries or moved in (None, "ok"):
        return judged
    if judged in canaries:
        return _with_machine_cause(judged, judged, "it is the canary")
    of_metric = [canary for canary in canaries if canary.metric == judged.metric] or canaries
    near = [canary for canary in of_metric if set(canary.devices) & set(judged.devices)] or of_metric
    for canary in near:
        if _MOVES.get(canary.verdict) == moved:
            return _with_machine_cause(judged, canary, f"canary {canary.cell} {_movement_in_words(canary)}, too")
    measured = [canary for canary in near if canary.verdict in _MEASURED]
    changed = [canary for canary in measured if canary.verdict != "ok"] if moved == "failed" else []
    still = (changed or measured or near)[0]
    cause = "software" if measured and not changed else "unclear"
    return replace(judged, cause=cause, cause_why=f"canary {still.cell} {_movement_in_words(still)}")


def _with_machine_cause(judged: JudgedCell, canary: JudgedCell, why: str) -> JudgedCell:
    """Add the machine as the cause; `unclear` if the canary's own software has changed."""
    names = [name for name in canary.changes if not is_of_the_machine(name)]
    if names:
        return replace(judged, cause="unclear", cause_why=f"{why}, but its own software has changed: {', '.join(names[:3])}")
    return replace(judged, cause="machine", cause_why=why)


def _movement_in_words(judged: JudgedCell) -> str:
    percent = round(100 * (judged.ratio - 1), 1) + 0.0  # no -0.0
    if judged.verdict == "ok":
        return f"moved by {percent:+.1f} %, within its limits"
    if math.isnan(percent) or judged.verdict not in _MOVES:
        return "failed" if judged.verdict == "failed" else f"is {judged.verdict}"
    return f"is {abs(percent):.1f} % {_MOVES[judged.verdict]}"
