"""The gate's result: a verdict with figures for every cell, and one verdict for the run."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from torchmatrix.analysis.intervals import NOTEWORTHY
from torchmatrix.facts.differences import Compared
from torchmatrix.ground.formatting import none_for_nan

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
