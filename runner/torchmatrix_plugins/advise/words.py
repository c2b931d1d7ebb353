"""Write advice as text for the terminal, as a record for --json, and as a matrix that measures what is missing."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from torchmatrix.analysis.cube_points import COSTS, Point
from torchmatrix.analysis.intervals import Interval
from torchmatrix.core.formatting import count, figure, is_known, none_for_nan, printable
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.variants import rewritten
from torchmatrix.reporting import words
from torchmatrix.reporting.cubes import combination, ratio_of
from torchmatrix_plugins.advise.advice import Advice, axes_to_measure

MOST_AS_GOOD = 4


def advice_text(advice: Advice, run: str, to_measure: str) -> str:
    """Write an advice. `run`: the run that the facts are from; `to_measure`: the command that measures what is missing."""
    return "\n".join(map(printable, _advice_lines(advice, run, to_measure)))


def _advice_lines(advice: Advice, run: str, to_measure: str) -> Iterator[str]:
    points, row = advice.points, advice.point.row
    extreme = "highest" if advice.aim.more_is_better else "lowest"
    which = extreme if advice.is_extreme else "best by the rounds that they share"
    yield f"take: {row.stack}: {settings_of(advice.point)}"
    yield f"  {advice.aim.title}: {_figure(advice.aim.times, advice.figure)} {advice.aim.said(row.unit)}, " + (
        f"the {which} of {count(advice.candidates, 'combination')}"
    )
    if advice.usual is not advice.point:
        alike = ", with no difference shown" if advice.usual in advice.as_good and advice.point.moments else ""
        is_same_stack = advice.usual.row.stack == row.stack
        usual = settings_of(advice.usual) if is_same_stack else f"{advice.usual.row.stack}: {settings_of(advice.usual)}"
        than = "over" if advice.aim.more_is_better else "better than"
        yield f"  {ratio_of(advice.gain)} {than} the usual settings ({usual}){alike}"
    yield from _cost_lines(advice.point)
    yield from _equal_lines(advice)
    yield "rests on:"
    yield f"  {count(len(advice.point.speeds), 'launch')} of {advice.point.row.cell}, run {run}"
    if disturbed := advice.point.cell.disturbed:
        yield f"  other programs disturbed {disturbed} of them"
    if not is_known(advice.figure.low):
        yield "  one launch has no interval: repeat it before you rely on it"
    lost = {
        "over a limit": advice.over_limit,
        "not known to keep the limits": advice.unknown,
        "without a figure": advice.failed,
    }
    if left_out := ", ".join(f"{number} {why}" for why, number in lost.items() if number):
        yield f"  left out: {left_out}"
    yield "not measured:"
    if advice.never_varied:
        yield f"  settings that were never varied: {', '.join(factor.name for factor in advice.never_varied)}"
    if advice.unmeasured:
        yield f"  {count(len(advice.unmeasured), 'combination')} one setting away from this one"
    if advice.never_varied or advice.unmeasured:
        yield f"  to measure that: {to_measure}"
    yield f"  any devices but {words.devices(points.devices)}, any size but this one, real data"


def _equal_lines(advice: Advice) -> Iterator[str]:
    for what, points in (
        ("no difference shown from it", advice.as_good),
        (f"not tested against it, by {_why_untested(advice)}", advice.untested),
    ):
        if points:
            yield f"{what} ({count(len(points), 'combination')}):"
            yield from (f"  {point.row.stack}: {settings_of(point)}" for point in points[:MOST_AS_GOOD])
            if len(points) > MOST_AS_GOOD:
                yield f"  and {len(points) - MOST_AS_GOOD} more (--json lists all)"


def _why_untested(advice: Advice) -> str:
    are_disturbed = {bool(point.moments and advice.point.moments) for point in advice.untested}
    whys = {False: "one launch", True: "launches that other programs disturbed"}
    return " or ".join(why for is_disturbed, why in whys.items() if is_disturbed in are_disturbed)


def _cost_lines(point: Point) -> Iterator[str]:
    costs = [f"{cost.title} {figure(cost.times * point.costs[cost.column])} {cost.shown_unit}" for cost in COSTS
             if is_known(point.costs[cost.column])]  # fmt: skip
    if costs:
        yield f"  with it: {', '.join(costs)}"


def settings_of(point: Point) -> str:
    """Write a point's settings, without the stack."""
    named = {name: value for name, value in point.settings.items() if name != "stack"}
    return combination(named) or point.row.workload


def _figure(times: float, interval: Interval) -> str:
    limits = "" if math.isnan(interval.low) else f" ({figure(times * interval.low)} to {figure(times * interval.high)})"
    return f"{figure(times * interval.value)}{limits}"


def advice_record(advice: Advice, run: str) -> dict[str, Any]:
    """Return the advice for --json; NaN becomes null."""
    return {
        "run": run,
        "aim": advice.aim.name,
        "unit": advice.aim.unit.format(unit=advice.point.row.unit),
        "take": _point(advice.point) | none_for_nan(asdict(advice.figure)),
        "over_usual": none_for_nan(asdict(advice.gain)) | {"usual": _point(advice.usual)},
        "candidates": advice.candidates,
        "as_good": [_point(point) for point in advice.as_good],
        "untested": [_point(point) for point in advice.untested],
        "left_out": {"over_limit": advice.over_limit, "unknown": advice.unknown, "failed": advice.failed},
        "never_varied": [factor.name for factor in advice.never_varied],
        "unmeasured": [dict(settings) for settings in advice.unmeasured],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "cell": point.row.cell, "stack": point.row.stack, "settings": dict(point.settings), "launches": len(point.speeds),
        "disturbed": point.cell.disturbed,
        "costs": none_for_nan(dict(point.costs)),
    }  # fmt: skip


def matrix_to_measure(advice: Advice, matrix: str) -> str:
    """Rewrite the run's matrix file (its text) to one workload, which measures what is missing on the stack to take."""
    row = advice.point.row
    fixed = {"model": row.model, "mode": row.mode, "device": "gpu" if row.device_list[0].startswith("gpu") else "cpu"}
    axes = axes_to_measure(advice)
    others = json.loads(row.other_settings)
    keys: dict[str, Any] = {**fixed, "batch": row.batch_requested}
    for factor in FACTORS:
        if factor.name not in keys and factor.name not in axes:
            keys |= {factor.name: others[factor.name]} if others.get(factor.name) is not None else {}
    keys |= {name: values if len(values) > 1 else values[0] for name, values in axes.items()}
    keys |= {"stacks": [row.stack], "counts": [row.count]}
    return rewritten(matrix, keys)
