"""Do launches on different devices disturb each other? An equivalence test: beside the others over alone, round by round."""

from collections.abc import Iterable, Sequence

from torchmatrix.analysis.intervals import CONFIDENCE, UNKNOWN, Interval
from torchmatrix.analysis.pairs import pair_by_rounds
from torchmatrix.facts.run_record import LaneTest, ParallelTest

WITHIN = 0.005
"""Launches may be measured at once if the whole interval of beside / alone lies within 1 ± this, for every lane, unless the
matrix allows more."""
LOOKS = (4, 8, 12)
"""After so many rounds it is decided; after the last, what has not been shown counts as not so."""
LOOK_CONFIDENCE = 1 - (1 - CONFIDENCE) / len(LOOKS)
"""Of each look's interval (Bonferroni): a lane that is disturbed by WITHIN passes any of the looks in at most 2.5 %. All lanes
must pass, which needs no correction for their number (R. L. Berger, Technometrics 24 (1982), 295-300)."""


def ratio_of(beside: Sequence[float], alone: Sequence[float]) -> Interval:
    """Throughput beside the others over that alone; entry by entry of one round."""
    return pair_by_rounds(beside, alone).at(LOOK_CONFIDENCE) if alone else UNKNOWN


def is_shown(found: Interval, within: float = WITHIN) -> bool:
    """Whether the lane is not disturbed by more than that."""
    return found.low >= 1 - within and found.high <= 1 + within


def is_disturbed(found: Interval, within: float = WITHIN) -> bool:
    """Whether the lane is certainly disturbed by more than that, so that further rounds can't help."""
    return found.high < 1 - within or found.low > 1 + within


def all_shown(lanes: Sequence[LaneTest], within: float = WITHIN) -> bool:
    """Whether none of the lanes is disturbed by more."""
    return all(is_shown(found, within) for found in _ratios(lanes))


def in_words(test: ParallelTest) -> str:
    """What the test found, for the progress and the report."""
    what = "run at once" if test.shown else "run one after the other"
    return f"{_listed(lane.devices for lane in test.lanes)} {what}: {test.why}"


def why(lanes: Sequence[LaneTest], within: float = WITHIN) -> str:
    """The ratios in words, and what follows from them."""
    margin = f"{100 * within:g} %"
    said = "; ".join(
        f"{lane.devices} beside the others / alone {lane.ratio:.4f} ({lane.low:.4f} to {lane.high:.4f}, n = {len(lane.alone)})"
        for lane in lanes
    )
    if all_shown(lanes, within):
        return f"none is disturbed by more than {margin}: {said}"
    if any(is_disturbed(found, within) for found in _ratios(lanes)):
        return f"they disturb each other by more than {margin}: {said}"
    return f"not shown within {LOOKS[-1]} rounds that they disturb each other by at most {margin}: {said}"


def _ratios(lanes: Sequence[LaneTest]) -> list[Interval]:
    return [Interval(value=lane.ratio, low=lane.low, high=lane.high) for lane in lanes]


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return " and ".join(filter(None, (", ".join(every[:-1]), every[-1])))
