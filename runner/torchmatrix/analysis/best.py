"""The best of several cells: which may be the highest, and by how much it is ahead; and means of their ratios.

Figures of cells with the same few rounds are compared by their moments, all at once. Cells with rounds enough to be compared
round by round, and those of a run that makes further rounds for some of them only, are compared pair by pair, as the tables of
ratios do.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchmatrix.analysis import intervals, verdicts
from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.pairs import UNTESTED, Chances, Pair, pair_by_rounds
from torchmatrix.analysis.verdicts import MeanRatio, Significance


def may_be_best(
    figures: Sequence[Any],
    level: float = verdicts.FALSE_DISCOVERIES,
    moments: Callable[[Any], intervals.Moments | None] = Cell.moments,
    over: Callable[[Any, Any], Pair] = Cell.over,
    rounds: Callable[[Any], frozenset[Any]] = Cell.rounds,
) -> list[int]:
    """Return the places of the figures that may be the highest: see verdicts.may_be_best. They are those of cells, or have
    these `moments`, ratios `over` each other and `rounds`.

    By pairs, each of which has rounds of its own, several may be out in turn; where none is left, it is the highest. Of the
    same rounds the ratio is that of the moments, so that a pair need not be made to see which one is ahead.
    """
    known = list(map(moments, figures))
    if not _go_by_pairs(known):
        return verdicts.may_be_best(known, level)
    least = level / max(1, len(figures) - 1)
    every = list(enumerate(figures))
    highest_first = sorted(every, key=lambda item: -_height(known[item[0]]))
    measured = list(map(rounds, figures))

    def is_out(place: int, one: Any) -> bool:
        least_height = _height(known[place]) + math.log1p(intervals.NOTEWORTHY)
        candidates = (
            other
            for at, other in highest_first
            if at != place and (measured[at] != measured[place] or _height(known[at]) > least_height - _ROUNDING)
        )
        return any(_p_ahead(over(other, one)) <= least for other in candidates)

    left = [place for place, one in every if not is_out(place, one)]
    return left or [max(range(len(known)), key=lambda place: _height(known[place]))]


def chances_of_best(cells: Sequence[Cell[Any]]) -> Chances:
    """Return p-values of one claim: that the highest is above all others, and that all are the same as the highest: see
    verdicts.chances_of_best.
    """
    known = [cell.moments() for cell in cells]
    if not _go_by_pairs(known):
        return verdicts.chances_of_best(known)
    if len(cells) < 2 or None in known:
        return UNTESTED
    first, *others = sorted(cells, key=lambda cell: -_height(cell.moments()))
    alone = max(min(_p_ahead(better.over(other)) for better in cells if better is not other) for other in others)
    return Chances(differs=min(1.0, len(others) * alone), same=max(first.over(other).chances.same for other in others))


def over_the_others(first: Cell[Any], others: Sequence[Cell[Any]], level: float) -> intervals.Interval:
    """Return the ratio of the first to the best of the others, with Hsu's limits at 1 - `level` (verdicts.over_the_others)."""
    known = [cell.moments() for cell in (first, *others)]
    if not _go_by_pairs(known):
        return verdicts.over_the_others(known[0], known[1:], level)
    return verdicts.lowest_of([first.over(other) for other in others], level)


_ROUNDING = 1e-9
"""Mean logarithms may differ by this much from the mean of differences."""


def _go_by_pairs(figures: Sequence[intervals.Moments | None]) -> bool:
    """Check whether they may have unequal rounds, which only a run that looks more than once makes, or rounds enough to be
    compared one by one.
    """
    measured = [figure for figure in figures if figure is not None]
    has_enough = sum(figure.launches >= intervals.PAIRED_FROM for figure in measured) > 1
    return has_enough or any(figure.looks > 1 for figure in measured)


def _height(figure: intervals.Moments | None) -> float:
    return -math.inf if figure is None else figure.log


def _p_ahead(pair: Pair) -> float:
    """Return the p-value of a figure that is noteworthily above another one; infinite for one that isn't, or isn't tested."""
    is_ahead = pair.log > max(pair.jump, math.log1p(intervals.NOTEWORTHY)) and not math.isnan(pair.chances.differs)
    return pair.chances.differs if is_ahead else math.inf


# The mean of ratios of cells.

CellRatio = tuple[Cell[Any], Cell[Any], float]
"""A cell, the one it is compared with, and their ratio."""


def mean_over(ratios: Sequence[CellRatio], level: Significance) -> MeanRatio:
    """Return the geometric mean of ratios of cells, by the rule of the ratios themselves.

    That of one ratio is the ratio. Ratios that share cells, such as a baseline, are one group, which is computed round by round
    where all its cells share rounds enough; else a cell counts with all its weights together (verdicts.mean_ratio). Raises
    ValueError without a ratio.
    """
    values = [value for *_, value in ratios]
    if len(ratios) == 1:
        ((cell, base, value),) = ratios
        return verdicts.as_mean(replace(cell.over(base), value=value), values, level)
    by_rounds: list[tuple[Pair, int]] = []
    by_moments: list[list[CellRatio]] = []
    for group in _sharing_cells(ratios):
        if of_group := _mean_by_rounds(group):
            by_rounds.append((of_group, len(group)))
        else:
            by_moments.append(group)
    if not by_rounds and all(cell.looks == 1 for ratio in ratios for cell in ratio[:2]):
        return verdicts.mean_ratio(ratios, {cell: cell.moments() for ratio in ratios for cell in ratio[:2]}, level)
    if by_moments:
        by_rounds.append((_mean_by_moments(by_moments), sum(map(len, by_moments))))
    parts, numbers = zip(*by_rounds, strict=True)
    mean = verdicts.mean_of_pairs(parts, weights=numbers)
    return verdicts.as_mean(replace(mean, value=intervals.geometric_mean(values).value), values, level)


def _sharing_cells(ratios: Sequence[CellRatio]) -> list[list[CellRatio]]:
    """Group ratios that share a cell with another one of their group."""
    groups: list[list[CellRatio]] = []
    for ratio in ratios:
        touching = [group for group in groups if any(cell in other[:2] for other in group for cell in ratio[:2])]
        groups = [group for group in groups if not any(group is other for other in touching)]
        groups.append([*(other for group in touching for other in group), ratio])
    return groups


def _is_disturbed(group: Sequence[CellRatio]) -> bool:
    return any(bool(cell.disturbed) != bool(base.disturbed) for cell, base, _ in group)


def _mean_by_rounds(group: Sequence[CellRatio]) -> Pair | None:
    """Return the mean of a group's ratios over the rounds that all its cells share; None if these are too few.

    Where each ratio has rounds enough but all together have not, the ratios are taken to err alike, which widens the interval.
    """
    weights = verdicts.weights_of(group)
    rounds = [{key: rate for key, rate in cell.by_round("throughput").items() if rate > 0} for cell in weights]
    common = sorted(set.intersection(*map(set, rounds))) if rounds else []
    if len(common) < intervals.PAIRED_FROM or len({id(cell.family) for cell in weights}) > 1:
        pairs = [cell.over(base) for cell, base, _ in group]
        if not all(pair.paired for pair in pairs):
            return None
        log, error = (
            math.fsum(numbers) / len(pairs) for numbers in zip(*((pair.log, pair.error) for pair in pairs), strict=True)
        )
        return replace(
            pairs[0], value=math.exp(log), log=log, error=error, freedom=min(pair.freedom for pair in pairs),
            disturbed=_is_disturbed(group), looks=max(pair.looks for pair in pairs),
        )  # fmt: skip
    each = [
        math.exp(sum(weight * math.log(of_cell[key]) for weight, of_cell in zip(weights.values(), rounds, strict=True)))
        for key in common
    ]
    looks = max(cell.looks for cell in weights)
    return replace(pair_by_rounds(each, [1.0] * len(each)), disturbed=_is_disturbed(group), looks=looks)


def _of_common_rounds(weights: Mapping[Cell[Any], float]) -> dict[Cell[Any], float]:
    """Return the cells with the launches of the rounds that all of them share, where a run made further ones for some."""
    common = frozenset.intersection(*(cell.rounds() for cell in weights)) if weights else frozenset()
    if len(common) < 2 or all(cell.looks == 1 for cell in weights):
        return dict(weights)
    shared = {cell: [row for row in cell.ok if (row.run, row.round) in common] for cell in weights}
    return {Cell(shared[cell], cell.family): weight for cell, weight in weights.items()}


def _mean_by_moments(groups: Sequence[Sequence[CellRatio]]) -> Pair:
    """Return the mean of these groups' ratios; that of a single ratio's cells by the rounds that both have."""
    parts: list[tuple[float, intervals.Moments | None]] = []
    for group in groups:
        share = len(group) / sum(map(len, groups))
        if len(group) == 1:
            ((cell, base, _),) = group
            parts += [(share, cell.beside(base).moments()), (-share, base.beside(cell).moments())]
        else:
            parts += [
                (share * weight, cell.moments()) for cell, weight in _of_common_rounds(verdicts.weights_of(group)).items()
            ]
    value = intervals.geometric_mean([value for group in groups for *_, value in group]).value
    measured = [(weight, figure) for weight, figure in parts if figure is not None]
    if len(measured) < len(parts):
        return Pair(value=value)
    return verdicts.weighted_pair(value, measured, any(map(_is_disturbed, groups)))
