"""Where in a row of stacks a cell's level changed: which to measure next, and what the measurements show. Pure.

The ends are measured in turns. If they differ, the stack in the middle is measured in turns with both ends of what is left,
and the search goes on in the half that holds the change. The test is that of the ratio's logarithm (verdicts.py) on the
launches of these runs. Its level is corrected for all tests of the search, with MOST_LOOKS at each step (Bonferroni): if
nothing changed, a search reports a change in at most 5 %. A difference up to NOTEWORTHY never counts.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torchmatrix.analysis.compare import compare
from torchmatrix.analysis.intervals import NOTEWORTHY
from torchmatrix.analysis.verdicts import FALSE_DISCOVERIES
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import none_for_nan
from torchmatrix.facts.launch import Launch

MOST_LOOKS = 3
"""How often a step that can't be decided is measured at most; all its rounds count."""
FOUND, SAME, UNSEEN, UNDECIDED = "found", "same", "unseen", "undecided"
"""Ends of a search: between two stacks; the ends are the same; a difference was not seen; the middle could not be placed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdjacentPair:
    """Two stacks that were measured in turns: `ratio` of the throughputs, new over old, with its interval and p-value.

    `differs`: as the search counts it. `verdict` and `detectable`: of a comparison of the two alone (ComparedRow).
    `environment`: in what else they differ.
    """

    old: str
    new: str
    ratio: float
    low: float
    high: float
    p_value: float
    differs: bool
    detectable: float
    verdict: str
    launches: tuple[int, int]
    environment: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One measurement: of the two ends of what is left, and from the second one on of a stack between them.

    `pairs`: (old, new), or (old, middle) and (middle, new). `goes_on`: the ends for the next step; None: it isn't decided.
    """

    low: str
    middle: str | None
    high: str
    pairs: tuple[AdjacentPair, ...]
    goes_on: tuple[str, str] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A search. `stacks`: names, oldest first. `low` and `high`: the places of the ends of what is left. `looks`: at the
    present step. `left_out`: stacks that can't be measured, and why. `ended`: one of FOUND, SAME, UNSEEN and UNDECIDED, or
    None."""

    stacks: tuple[str, ...]
    low: int
    high: int
    steps: tuple[Step, ...] = ()
    looks: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)
    ended: str | None = None

    @property
    def ends(self) -> tuple[str, str]:
        return self.stacks[self.low], self.stacks[self.high]

    @property
    def middle(self) -> str | None:
        """Return the stack to measure between the ends: None at first, and where none is left."""
        if not self.steps or (len(self.steps) == 1 and self.steps[0].goes_on is None):
            return None
        inside = [place for place in range(self.low + 1, self.high) if self.stacks[place] not in self.left_out]
        center = (self.low + self.high) / 2
        return self.stacks[min(inside, key=lambda place: (abs(place - center), place))] if inside else None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the stacks to measure next, in turns; none once the search has ended."""
        low, high = self.ends
        return () if self.ended else tuple(name for name in (low, self.middle, high) if name)

    @property
    def between(self) -> tuple[str, ...]:
        """Return the stacks between the ends: none, or those that can't be measured or placed."""
        return self.stacks[self.low + 1 : self.high]

    @property
    def level(self) -> float:
        """Return the p-value up to which a difference counts."""
        return FALSE_DISCOVERIES / (MOST_LOOKS * (1 + 2 * most_steps(len(self.stacks))))

    @property
    def change(self) -> AdjacentPair | None:
        """Return the comparison of the ends of what is left, as they were measured last."""
        pairs = [pair for step in reversed(self.steps) for pair in step.pairs]
        return next((pair for pair in pairs if (pair.old, pair.new) == self.ends), None)

    @property
    def others(self) -> tuple[AdjacentPair, ...]:
        """Return other differences, outside of the ends: the level changed more than once."""
        decided = [step for step in self.steps if step.goes_on]
        return tuple(pair for step in decided if step.middle for pair in step.pairs
                     if pair.differs and (pair.old, pair.new) != step.goes_on)  # fmt: skip

    def without(self, stack: str, why: str) -> "Search":
        """Return the search where `stack`, which is no end, can't be measured."""
        return replace(self, left_out={**self.left_out, stack: why}, looks=0)._ended_where_nothing_is_between()

    def told(self, launches: Mapping[str, Sequence[Launch]]) -> "Search":
        """Return the search after the launches of `wanted`, of all looks at this step; each stack has one that is ok."""
        low, high = self.ends
        middle = self.middle
        names = (low, middle, high) if middle else (low, high)
        pairs = tuple(_beside(old, new, launches, self.level) for old, new in itertools.pairwise(names))
        goes_on = _larger(pairs)
        steps = (
            *(self.steps[:-1] if self.looks else self.steps),
            Step(low=low, middle=middle, high=high, pairs=pairs, goes_on=goes_on),
        )
        search = replace(self, steps=steps, looks=self.looks + 1)
        if goes_on is None:
            return search._undecided(pairs)
        low_place, high_place = map(self.stacks.index, goes_on)
        return replace(search, low=low_place, high=high_place, looks=0)._ended_where_nothing_is_between()

    def _undecided(self, pairs: Sequence[AdjacentPair]) -> "Search":
        if len(pairs) == 1 and pairs[0].verdict == "SAME":
            return replace(self, ended=SAME)
        if self.looks < MOST_LOOKS:
            return self
        return replace(self, ended=UNSEEN if len(pairs) == 1 else UNDECIDED)

    def _ended_where_nothing_is_between(self) -> "Search":
        return replace(self, ended=FOUND) if self.steps and not self.middle else self

    def as_record(self) -> dict[str, Any]:
        """Return the search for --json; NaN becomes null."""
        change = self.change
        return {
            "stacks": self.stacks,
            "ended": self.ended,
            "old": self.ends[0],
            "new": self.ends[1],
            "between": self.between,
            "change": change and none_for_nan(asdict(change)),
            "others": [none_for_nan(asdict(pair)) for pair in self.others],
            "not_monotone": not_monotone(self),
            "left_out": dict(self.left_out),
            "level": self.level,
            "steps": [none_for_nan(asdict(step)) for step in self.steps],
        }


def begun(stacks: Sequence[str]) -> Search:
    """Return the search through at least two stacks, oldest first."""
    return Search(stacks=tuple(stacks), low=0, high=len(stacks) - 1)


def most_steps(stacks: int) -> int:
    """Return how many stacks between the ends are measured at most, if each can be."""
    return math.ceil(math.log2(max(1, stacks - 1)))


def not_monotone(search: Search) -> bool:
    """Check whether the level went both up and down on the way."""
    differing = [pair for pair in (*search.others, search.change) if pair and pair.differs]
    return len({pair.ratio > 1 for pair in differing}) > 1


def _larger(pairs: Sequence[AdjacentPair]) -> tuple[str, str] | None:
    """Return the ends of the pair that differs; of the larger difference if both do."""
    differing = [pair for pair in pairs if pair.differs]
    largest = max(differing, key=lambda pair: abs(math.log(pair.ratio)), default=None)
    return (largest.old, largest.new) if largest else None


def _beside(old: str, new: str, launches: Mapping[str, Sequence[Launch]], level: float) -> AdjacentPair:
    """Compare two stacks. Raises BadInput if the two did different work."""
    comparison = compare(launches[new], launches[old])
    row = comparison.rows[0]
    if row.refused:
        raise BadInput(f"{old} and {new} can't be compared: {row.refused}", hint="name releases that do the same work")
    differs = row.p_value <= level and abs(row.ratio - 1) > NOTEWORTHY
    return AdjacentPair(
        old=old, new=new, ratio=row.ratio, low=row.low, high=row.high, p_value=row.p_value, differs=differs,
        detectable=row.detectable, verdict=row.verdict, launches=(row.launches[1], row.launches[0]),
        environment={name: (was, now) for name, (now, was) in comparison.environment.items()},
    )  # fmt: skip
