"""Choose a configuration for a model and an aim from the launches at hand: its grounds, and what wasn't measured."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchmatrix.analysis.cube_points import COSTS, Point, Points, leading, nearest_to_usual, points_of
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.metrics import BY_NAME, METRICS, PERCENTILED, Metric, latency_of
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.core.errors import BadInput
from torchmatrix.core.toml_keys import nearest
from torchmatrix.matrix import catalog
from torchmatrix.matrix.factors import FACTORS, OF_THE_JOB, Factor, Value

AIMS = (*(metric.name for metric in METRICS), "latency")
"""Aims for which a configuration may be chosen."""
MOST_NEIGHBOURS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """The choice. `point`: the cell to take; `figure`: its value of the aim, in an interval that covers whichever of the
    `candidates` is picked; `is_extreme`: no other has a better one, of whatever rounds. `as_good`: the others that can't be
    told apart from it; `untested`: those that nothing compares with it, since one of the two has one launch. `usual`: the cell
    with the usual settings, or nearest to them; `gain`: the speed over it.

    `over_limit`: how many cells exceed a limit; `unknown`: how many don't tell what is limited; `failed`: how many have no
    figure. `never_varied`: settings that have one value in all cells; `unmeasured`: combinations one setting away from the cell
    to take that were not measured.
    """

    aim: Metric
    points: Points
    point: Point
    figure: Interval
    is_extreme: bool
    candidates: int
    as_good: tuple[Point, ...]
    untested: tuple[Point, ...]
    usual: Point
    gain: Interval
    over_limit: int
    unknown: int
    failed: int
    never_varied: tuple[Factor, ...]
    unmeasured: tuple[Mapping[str, Value], ...]


def metric_of(aim: str, mode: str) -> Metric:
    """Return the metric of an aim."""
    return latency_of(mode) if aim == "latency" else BY_NAME[aim]


def advise(rows: Iterable[LaunchRow], model: str, mode: str, aim: Metric, limits: Mapping[str, float]) -> Advice:
    """Advise on the job of this model and mode with the most cells. `limits`: by cost its upper limit, in seconds or bytes.

    Raises BadInput if nothing of it was measured, or nothing keeps the limits.
    """
    points = _job(list(rows), model, mode, aim)
    comparable = [cell for cell in points.measured if not any(math.isnan(cell.limited[name]) for name in limits)]
    fit = [cell for cell in comparable if all(cell.limited[name] <= most for name, most in limits.items())]
    if not fit:
        raise BadInput(f"no measured configuration of {model} ({mode}) keeps the limits", hint=_least(points, limits))
    left = leading(fit)
    best = left[0]
    usual = nearest_to_usual(points)
    return Advice(
        aim=aim,
        points=points,
        point=best,
        figure=best.picked_of(len(fit)),
        is_extreme=best.speed >= max(cell.speed for cell in fit),
        candidates=len(fit),
        as_good=tuple(left[1:]),
        untested=tuple(cell for cell in fit if cell is not best and not best.is_comparable(cell)),
        usual=usual,
        gain=best.over(usual).interval,
        over_limit=len(comparable) - len(fit),
        unknown=len(points.measured) - len(comparable),
        failed=len(points.points) - len(points.measured),
        never_varied=tuple(_never_varied(points)),
        unmeasured=tuple(_unmeasured(points, best)),
    )


def _job(rows: Sequence[LaunchRow], model: str, mode: str, aim: Metric) -> Points:
    """Return the job's points with the most measured cells. Raises BadInput if nothing was measured."""
    jobs = points_of(rows, aim, fewest_cells=1, fewest_settings=0)
    wanted = [points for points in jobs if (points.model, points.mode) == (model, mode)]
    if not wanted:
        there = sorted({points.model for points in jobs})
        other = next((f"it was in the other mode: --mode {points.mode}" for points in jobs if points.model == model), "")
        raise BadInput(f"{model} ({mode}) was not measured", hint=other if model in there else nearest(model, there))
    measured = [points for points in wanted if points.measured]
    if not measured:
        which = "not every launch" if aim.column in PERCENTILED else "no launch"
        raise BadInput(f"{which} of {model} ({mode}) tells its {aim.title}", hint="choose another --aim, or measure it")
    return max(measured, key=lambda points: len(points.measured))


def _least(points: Points, limits: Mapping[str, float]) -> str:
    """Describe what the limits would have to be."""
    costs = [cost for cost in COSTS if cost.column in limits]
    values_by_cost = {
        cost: [point.limited[cost.column] for point in points.measured if point.limited[cost.column] > 0] for cost in costs
    }
    texts = [
        f"the least {cost.title} is {cost.times * min(values):.4g} {cost.shown_unit}"
        for cost, values in values_by_cost.items()
        if values
    ]
    return "; ".join(texts) or "no launch tells what is limited"


def _never_varied(points: Points) -> Iterable[Factor]:
    row = points.points[0].row
    device = "gpu" if row.device_list[0].startswith("gpu") else "cpu"
    model = catalog.find(points.model)
    takes = model.takes if model else ()
    for factor in FACTORS:
        applies = factor.has_column and factor.name not in ("model", "mode", OF_THE_JOB, *points.varied)
        if factor.needs and factor.needs[0] == OF_THE_JOB and row.value(OF_THE_JOB) != factor.needs[1]:
            continue
        if applies and factor.applies(takes, points.mode, device) and row.value(factor.name) is not None:
            yield factor


def _unmeasured(points: Points, best: Point) -> Iterable[Mapping[str, Value]]:
    for name, values in points.varied.items():
        for value in values:
            settings = {**best.settings, name: value}
            point = points.at(settings)
            if point is None or not point.speeds:
                yield settings


def axes_to_measure(advice: Advice) -> dict[str, list[Value]]:
    """Return what to measure next by key of [[workload]].

    These are the settings of the cell to take, the neighbours that were not measured, and all values of what was never varied;
    of a number, which has no end of values, the one that was measured. Stacks are no such key.
    """
    chosen = {name: value for name, value in advice.point.settings.items() if name != "stack" and value is not None}
    axes: dict[str, list[Value]] = {name: [value] for name, value in chosen.items()}
    for settings in itertools.islice(advice.unmeasured, MOST_NEIGHBOURS):
        for name in axes:
            axes[name] += [] if settings[name] in axes[name] else [settings[name]]
    for factor in advice.never_varied:
        choices: list[Value] = [False, True] if factor.kind is bool else list(factor.choices)
        axes[factor.name] = choices or [advice.point.row.value(factor.name)]
    return axes
