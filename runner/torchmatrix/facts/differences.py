"""In what environments differ, and how much of them could be compared.

What one side did not record is neither equal nor different there: how many of the list could be compared is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torchmatrix.facts.environments import ABSENT, UNKNOWN, Environment, Values, are_near, condition_of, is_known, values_of
from torchmatrix.ground.formatting import clipped

Differences = dict[str, tuple[str, str]]
"""Conditions that are not the same, by label: the old value and the new one, or A's and B's."""
_MOST_UNLIKE = 6


def changed(before: Environment, after: Environment) -> Differences:
    """How two environments differ, as far as both are known; of what expands also what was added and what removed.

    What is unknown in one of them is no change: a sensor that failed for a night, another number of GPUs.
    """
    return {} if before == after else differing(values_of([before]), values_of([after]))


def differing(a: Values, b: Values) -> Differences:
    """The same of two sets of launches."""
    found = {}
    for label in {**a, **b}:
        ours, theirs = (side.get(label, set()) - {UNKNOWN} for side in (a, b))
        if ours != theirs and _both_know(label, a, b) and not are_near(condition_of(label), ours | theirs):
            found[label] = (_words(ours), _words(theirs))
    return found


def differences_in_words(environment: Differences, most: int = 3, longest: int = 40) -> str:
    """Such as "host driver 570.1 -> 575.2, box torch 2.7.0 -> 2.7.1, and 4 more"."""
    said = [f"{name} {clipped(a, longest)} -> {clipped(b, longest)}" for name, (a, b) in list(environment.items())[:most]]
    more = len(environment) - len(said)
    return ", ".join(said) + (f", and {more} more" if more else "")


def _both_know(label: str, a: Values, b: Values) -> bool:
    """Whether both sides recorded it."""
    return is_known(label, a) and is_known(label, b)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """How many conditions of the list two sides both recorded, of how many that apply; `missing`: the names of the rest."""

    recorded: int
    of: int
    missing: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """Such as "31 of 58 conditions were recorded on both sides"."""
        return f"{self.recorded} of {self.of} conditions were recorded on both sides"


def compared(a: Values, b: Values) -> Compared:
    """How much of the list could be compared: of GPUs and nodes, what was recorded of at least one on both sides."""
    known: dict[str, bool] = {}
    for label in {**a, **b}:
        condition = condition_of(label)
        if condition:
            known[condition.name] = known.get(condition.name, False) or _both_know(label, a, b)
    missing = tuple(name for name, is_known in known.items() if not is_known)
    return Compared(recorded=len(known) - len(missing), of=len(known), missing=missing)


def unlike(machines: Sequence[Environment]) -> str:
    """In which conditions that split cells machines differ, such as "GPU power limit 500 W or 700 W"; empty for none."""
    known = {name: values for name, values in values_of(machines).items() if (one := condition_of(name)) and one.splits}
    values = {name: sorted(those - {UNKNOWN}) for name, those in known.items()}
    said = [f"{name} {' or '.join(clipped(one, 40) for one in known)}" for name, known in values.items() if len(known) > 1]
    return ", ".join(said[:_MOST_UNLIKE]) + (f", and {len(said) - _MOST_UNLIKE} more" if len(said) > _MOST_UNLIKE else "")


def _words(values: set[str]) -> str:
    return " | ".join(sorted(values)) if values else ABSENT
