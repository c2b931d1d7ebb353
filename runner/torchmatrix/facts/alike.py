"""Launches of a cell make one figure only if they are alike in all conditions that split (environments.CONDITIONS).

The figure is that of the largest group of alike launches, of the newest one where two are as large. The others are left out,
and say why. A launch that did not record a condition stays, which is told; so is what differs without splitting.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from torchmatrix.core.formatting import clipped
from torchmatrix.facts import environments
from torchmatrix.facts.environments import UNDER_LOAD, UNKNOWN, Environment, condition_of, environment_of, values_of
from torchmatrix.facts.launch import Launch, last_tries

MOST_NAMED = 3
"""More conditions are only counted."""
_LONGEST = 40


def counting(launches: Iterable[Launch]) -> list[Launch]:
    """Of each launch the try that counts (last_tries); those that are unlike the others of their cell are marked."""
    found = last_tries(launches)
    cells: dict[Any, list[Launch]] = {}
    for launch in found:
        cells.setdefault(launch.path.parent, []).append(launch)
    marked = {launch.path: launch for own in cells.values() for launch in of_cell(own)}
    return [marked[launch.path] for launch in found]


def of_cell(launches: Sequence[Launch]) -> list[Launch]:
    """The launches of one cell with what they are left out for, and in what those that make the figure differ."""
    ok = [launch for launch in launches if launch.is_ok]
    if len(ok) < 2 or _are_alike(ok):
        return list(launches)
    told = [environment_of(launch) for launch in ok]
    kept = _kept(told, [launch.unix_seconds for launch in ok])
    figure, apart = [told[place] for place in kept], _apart([told[place] for place in kept])
    marked = {
        launch.path: replace(launch, apart=apart) if place in kept else replace(launch, left_out=_why(told[place], figure))
        for place, launch in enumerate(ok)
    }
    return [marked.get(launch.path, launch) for launch in launches]


def _are_alike(launches: Sequence[Launch]) -> bool:
    """Whether they recorded the same, which needs no look at single conditions."""
    first, *others = map(_recorded, launches)
    if any(other != first for other in others):
        return False
    highest = [environments.highest_readings(launch) for launch in launches]
    return all(_are_near([one.get(place) for one in highest], UNDER_LOAD[place[1]]) for place in set().union(*highest))


def _recorded(launch: Launch) -> tuple[Any, ...]:
    image, box = launch.image, launch.box
    nodes = [(node.machine, node.gpus, node.facts.get("host")) for node in launch.other_nodes]
    built = image and (image.id or image.reference)
    return launch.machine, launch.host, launch.engine, launch.devices, built, box and box.facts, nodes


def _are_near(values: Sequence[float | None], within: float) -> bool:
    known = [value for value in values if value is not None]
    return len(known) == len(values) and max(known) - min(known) <= within * max(known)


def _kept(told: Sequence[Environment], started: Sequence[float]) -> set[int]:
    """The places of the launches that make the figure."""
    kept = set(range(len(told)))
    while labels := _splitting([told[place] for place in kept]):
        keys = {place: tuple(_value(told[place], label) for label in labels) for place in kept}
        most = max(_known(key) for key in keys.values())
        groups: dict[tuple[str, ...], list[int]] = {}
        for place, key in keys.items():
            if _known(key) == most:
                groups.setdefault(key, []).append(place)
        chosen = max(groups, key=lambda key: (len(groups[key]), max((started[place], place) for place in groups[key])))
        kept = {place for place in kept if _may_be(keys[place], chosen)}
    return kept


def _splitting(told: Sequence[Environment]) -> list[str]:
    """The conditions for which launches are not one figure, by label."""
    return [label for label, values in _differing(told).items() if (one := condition_of(label)) and one.splits and values]


def _differing(told: Sequence[Environment]) -> dict[str, list[str]]:
    """The known values of each condition that has several."""
    found = {}
    for label in values_of(told):
        values = sorted({_value(one, label) for one in told} - {UNKNOWN})
        if len(values) > 1 and not environments.are_near(condition_of(label), set(values)):
            found[label] = values
    return found


def _value(environment: Environment, label: str) -> str:
    """Of what expands, n/a where others have it and this one doesn't."""
    return environment.get(label, environments.ABSENT if environments.is_known(label, environment) else UNKNOWN)


def _may_be(key: Sequence[str], other: Sequence[str]) -> bool:
    """Whether they differ in nothing that both know."""
    return all(UNKNOWN in pair or pair[0] == pair[1] for pair in zip(key, other, strict=True))


def _known(key: Collection[str]) -> int:
    return sum(value != UNKNOWN for value in key)


def _why(own: Environment, figure: Sequence[Environment]) -> str:
    """Such as "power limit 500 W, the others 700 W"."""
    found = {}
    for label in values_of([own, *figure]):
        value, others = _value(own, label), {_value(one, label) for one in figure} - {UNKNOWN}
        if UNKNOWN != value not in others and others and (one := condition_of(label)) and one.splits:
            found[label] = f"{clipped(value, _LONGEST)}, the others {clipped(' | '.join(sorted(others)), _LONGEST)}"
    return _listed(found, own)


def _apart(figure: Sequence[Environment]) -> str:
    """In what launches differ that make one figure, and what some of them did not record; empty for nothing."""
    found = {label: _values_in_words(label, values) for label, values in _differing(figure).items()}
    every = values_of(figure)
    for label in every:
        lacking = sum(not environments.is_known(label, one) for one in figure)
        if 0 < lacking < len(figure):
            found.setdefault(label, f"not recorded in {lacking} of {len(figure)} launches")
    return _listed(found, figure[0])


def _values_in_words(label: str, values: Sequence[str]) -> str:
    """Names of machines and devices are only counted."""
    condition = condition_of(label)
    return f"of {len(values)} kinds" if condition and condition.kind else clipped(" or ".join(values), 2 * _LONGEST)


def _listed(found: Mapping[str, str], environment: Environment) -> str:
    """What is found of conditions, by label, as one sentence; what all GPUs have in common once."""
    gpus: dict[tuple[str, str], list[str]] = {}
    for label, words in found.items():
        gpus.setdefault((_title(label), words), []).append(label)
    every = sum(label.endswith(" name") and label.startswith("GPU ") for label in environment)
    said = [f"{_place(labels, every)}{title} {words}" for (title, words), labels in gpus.items()]
    more = len(said) - MOST_NAMED
    return "; ".join(said[:MOST_NAMED]) + (f"; and {more} more conditions" if more > 0 else "")


def _title(label: str) -> str:
    """Without the place and without what is plain: "driver", "power limit", "package numpy"."""
    condition = condition_of(label)
    if condition is None or not condition.title:
        return label
    return condition.title + label.partition(condition.name)[2] if condition.expands else condition.title


def _place(labels: Sequence[str], every: int) -> str:
    """Which GPUs, unless it is all of them."""
    numbers = [label.split(" ")[1] for label in labels if label.startswith("GPU ")]
    return f"GPU {'+'.join(numbers)} " if numbers and len(numbers) < every else ""
