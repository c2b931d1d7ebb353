"""Advice (analysis/advice.py) -> text for the terminal, a record for --json, and a matrix that measures what is missing."""

import json
import math
from collections.abc import Iterator
from typing import Any

from torchmatrix.analysis.advice import Advice, axes_to_measure
from torchmatrix.analysis.cube_points import COSTS, Point
from torchmatrix.analysis.intervals import Interval
from torchmatrix.ground.formatting import count, figure, is_known, none_for_nan, printable
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.variants import rewritten
from torchmatrix.reporting import words
from torchmatrix.reporting.cubes import combination, ratio_of

MOST_AS_GOOD = 4


def text(found: Advice, run: str, to_measure: str) -> str:
    """`run`: whose facts these are; `to_measure`: the command that measures what is missing."""
    return "\n".join(map(printable, _lines(found, run, to_measure)))


def _lines(found: Advice, run: str, to_measure: str) -> Iterator[str]:
    points, row = found.points, found.point.row
    yield f"take: {row['stack']}: {settings_of(found.point)}"
    yield f"  {found.aim.title}: {_figure(found.aim.times, found.figure)} {found.aim.said(str(row['unit']))}, " + (
        f"the {'highest' if found.aim.more_is_better else 'lowest'} of {count(found.candidates, 'combination')}"
    )
    if found.usual is not found.point:
        alike = ", with no difference shown" if found.usual in found.as_good else ""
        yield f"  {ratio_of(found.gain)} over the usual settings ({settings_of(found.usual)}){alike}"
    yield from _costs(found.point)
    yield from _as_good(found)
    yield "rests on:"
    yield f"  {count(len(found.point.speeds), 'launch')} of {found.point.row['cell']}, run {run}"
    if not is_known(found.figure.low):
        yield "  one launch has no interval: repeat it before you rely on it"
    lost = {"over a limit": found.over_limit, "not known to keep the limits": found.unknown, "without a figure": found.failed}
    if said := ", ".join(f"{number} {why}" for why, number in lost.items() if number):
        yield f"  left out: {said}"
    yield "not measured:"
    if found.never_varied:
        yield f"  settings that were never varied: {', '.join(factor.name for factor in found.never_varied)}"
    if found.unmeasured:
        yield f"  {count(len(found.unmeasured), 'combination')} one setting away from this one"
    if found.never_varied or found.unmeasured:
        yield f"  to measure that: {to_measure}"
    yield f"  any devices but {words.devices(points.devices)}, any size but this one, real data"


def _as_good(found: Advice) -> Iterator[str]:
    if found.as_good:
        shown = [f"{point.row['stack']}: {settings_of(point)}" for point in found.as_good[:MOST_AS_GOOD]]
        more = len(found.as_good) - len(shown)
        yield f"no difference shown from it ({count(len(found.as_good), 'combination')}):"
        yield from (f"  {line}" for line in shown)
        if more:
            yield f"  and {more} more (--json lists all)"


def _costs(point: Point) -> Iterator[str]:
    known = [f"{cost.title} {figure(cost.times * point.costs[cost.column])} {cost.shown_unit}" for cost in COSTS
             if is_known(point.costs[cost.column])]  # fmt: skip
    if known:
        yield f"  with it: {', '.join(known)}"


def settings_of(point: Point) -> str:
    """Its settings for a reader, without the stack."""
    named = {name: value for name, value in point.settings.items() if name != "stack"}
    return combination(named) or str(point.row["workload"])


def _figure(times: float, found: Interval) -> str:
    limits = "" if math.isnan(found.low) else f" ({figure(times * found.low)} to {figure(times * found.high)})"
    return f"{figure(times * found.value)}{limits}"


def record(found: Advice, run: str) -> dict[str, Any]:
    """For --json; NaN becomes null."""
    interval = {name: getattr(found.figure, name) for name in ("value", "low", "high")}
    gain = {name: getattr(found.gain, name) for name in ("value", "low", "high")}
    return {
        "run": run,
        "aim": found.aim.name,
        "unit": found.aim.unit.format(unit=found.point.row["unit"]),
        "take": _point(found.point) | none_for_nan(interval),
        "over_usual": none_for_nan(gain) | {"usual": _point(found.usual)},
        "candidates": found.candidates,
        "as_good": [_point(point) for point in found.as_good],
        "left_out": {"over_limit": found.over_limit, "unknown": found.unknown, "failed": found.failed},
        "never_varied": [factor.name for factor in found.never_varied],
        "unmeasured": [dict(settings) for settings in found.unmeasured],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "cell": point.row["cell"], "stack": point.row["stack"], "settings": dict(point.settings), "launches": len(point.speeds),
        "costs": none_for_nan(dict(point.costs)),
    }  # fmt: skip


def matrix_to_measure(found: Advice, matrix: str) -> str:
    """The run's own matrix file (its text) with one workload, which measures what is missing on the stack to take."""
    row = found.point.row
    fixed = {"model": row["model"], "mode": row["mode"], "device": "gpu" if row["device_list"][0].startswith("gpu") else "cpu"}
    axes = axes_to_measure(found)
    others = json.loads(row["other_settings"])
    keys: dict[str, Any] = {**fixed, "batch": row["batch_requested"]}
    for factor in FACTORS:
        if factor.name not in keys and factor.name not in axes:
            keys |= {factor.name: others[factor.name]} if others.get(factor.name) is not None else {}
    keys |= {name: values if len(values) > 1 else values[0] for name, values in axes.items()}
    keys |= {"stacks": [row["stack"]], "counts": [int(row["count"])]}
    return rewritten(matrix, keys)
