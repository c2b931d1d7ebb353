"""Launches of a cell make one figure only if they are alike in all conditions that split (environments.CONDITIONS).

The figure is that of the largest group of alike launches; of two that are as large, of the newer one. The other launches are
left out, with the reason. A launch that did not record a condition stays, and is marked; so are differences that don't split.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from torchmatrix.core.formatting import clipped
from torchmatrix.facts import environments
from torchmatrix.facts.environments import UNDER_LOAD, UNKNOWN, Environment, condition_of, environment_of, values_of
from torchmatrix.facts.launch import Launch, last_tries
from torchmatrix.facts.wire import Reveals

MOST_NAMED = 3
"""The number of conditions that are named; more are only counted."""
_LONGEST = 40


def counting(launches: Iterable[Launch]) -> list[Launch]:
    """Return for each launch the try that counts (last_tries); mark those that are unlike the others of their cell."""
    last = last_tries(launches)
    cells: dict[Any, list[Launch]] = {}
    for launch in last:
        cells.setdefault(launch.path.parent, []).append(launch)
    marked = {launch.path: launch for cell in cells.values() for launch in of_cell(cell)}
    return [marked[launch.path] for launch in last]


def of_cell(launches: Sequence[Launch]) -> list[Launch]:
    """Mark the launches of one cell: why some are left out, and how those that make the figure differ."""
    ok = [launch for launch in launches if launch.is_ok]
    if len(ok) < 2 or _are_alike(ok):
        return list(launches)
    recorded = [environment_of(launch) for launch in ok]
    kept = _largest_group(recorded, [launch.unix_seconds for launch in ok])
    figure = [recorded[place] for place in kept]
    apart, marked = _describe_apart(figure), {}
    for place, launch in enumerate(ok):
        changes = {"apart": apart} if place in kept else {"left_out": _describe_left_out(recorded[place], figure)}
        marked[launch.path] = replace(launch, **changes)
    return [marked.get(launch.path, launch) for launch in launches]


def _are_alike(launches: Sequence[Launch]) -> bool:
    """Check whether launches recorded the same, which saves comparing single conditions."""
    first, *others = map(_recorded, launches)
    if any(other != first for other in others):
        return False
    highest = [environments.highest_readings(launch) for launch in launches]
    for place in set().union(*highest):
        values = [readings[place] for readings in highest if place in readings]
        if len(values) < len(highest) or max(values) - min(values) > UNDER_LOAD[place[1]] * max(values):
            return False
    return True


def _recorded(launch: Launch) -> tuple[Any, ...]:
    image, report = launch.image, launch.reported
    nodes = [(node.machine, node.gpus, node.host) for node in launch.other_nodes]
    built = image and (image.id or image.reference)
    return launch.machine, launch.host, launch.engine, launch.devices, built, report and report.facts, nodes


def _largest_group(recorded: Sequence[Environment], started: Sequence[float]) -> set[int]:
    """Return the places of the launches that make the figure."""
    kept = set(range(len(recorded)))
    while labels := _splitting([recorded[place] for place in kept]):
        keys = {place: tuple(_value(recorded[place], label) for label in labels) for place in kept}
        fewest = min(key.count(UNKNOWN) for key in keys.values())
        groups: dict[tuple[str, ...], list[int]] = {}
        for place, key in keys.items():
            if key.count(UNKNOWN) == fewest:
                groups.setdefault(key, []).append(place)
        chosen = max(groups, key=lambda key: (len(groups[key]), max((started[place], place) for place in groups[key])))
        kept = {place for place in kept if _is_compatible(keys[place], chosen)}
    return kept


def _splitting(recorded: Sequence[Environment]) -> list[str]:
    """Return the labels of the conditions by which launches are not one figure."""
    return [label for label in _differing(recorded) if (condition := condition_of(label)) and condition.splits]


def _differing(recorded: Sequence[Environment]) -> dict[str, list[str]]:
    """Return the known values of each condition that has several."""
    differing = {}
    for label in values_of(recorded):
        values = sorted({_value(environment, label) for environment in recorded} - {UNKNOWN})
        if len(values) > 1 and not environments.are_near(condition_of(label), set(values)):
            differing[label] = values
    return differing


def _value(environment: Environment, label: str) -> str:
    """Return the value of a label; of an entry of an expanding condition that only other launches have, n/a."""
    return environment.get(label, environments.ABSENT if environments.is_known(label, environment) else UNKNOWN)


def _is_compatible(key: Sequence[str], other: Sequence[str]) -> bool:
    """Check whether two keys agree in every value that is known in both."""
    return all(UNKNOWN in pair or pair[0] == pair[1] for pair in zip(key, other, strict=True))


def _describe_left_out(environment: Environment, figure: Sequence[Environment]) -> str:
    """Say how a launch differs from the figure's, such as "power limit 500 W, the others 700 W"."""
    texts = {}
    for label in values_of([environment, *figure]):
        value, others = _value(environment, label), {_value(other, label) for other in figure} - {UNKNOWN}
        if UNKNOWN != value not in others and others and (condition := condition_of(label)) and condition.splits:
            texts[label] = f"{clipped(value, _LONGEST)}, the others {clipped(' | '.join(sorted(others)), _LONGEST)}"
    return _join_texts(texts, environment)


def _describe_apart(figure: Sequence[Environment]) -> str:
    """Say how the launches of one figure differ, and what some of them did not record; empty for nothing."""
    texts = {}
    for label, values in _differing(figure).items():
        condition = condition_of(label)
        is_name = condition and condition.reveals is not Reveals.TEXT  # names of machines and devices are only counted
        texts[label] = f"of {len(values)} kinds" if is_name else clipped(" or ".join(values), 2 * _LONGEST)
    for label in values_of(figure):
        lacking = sum(not environments.is_known(label, environment) for environment in figure)
        if 0 < lacking < len(figure):
            texts.setdefault(label, f"not recorded in {lacking} of {len(figure)} launches")
    return _join_texts(texts, figure[0])


def _join_texts(texts: Mapping[str, str], environment: Environment) -> str:
    """Join texts about conditions, by label, to one sentence; a text that all GPUs have in common appears once."""
    groups: dict[tuple[str, str], list[str]] = {}
    for label, words in texts.items():
        groups.setdefault((_title(label), words), []).append(label)
    gpus = sum(label.endswith(" name") and label.startswith("GPU ") for label in environment)
    joined = []
    for (title, words), labels in groups.items():
        numbers = [label.split(" ")[1] for label in labels if label.startswith("GPU ")]
        place = f"GPU {'+'.join(numbers)} " if numbers and len(numbers) < gpus else ""
        joined.append(f"{place}{title} {words}")
    more = len(joined) - MOST_NAMED
    return "; ".join(joined[:MOST_NAMED]) + (f"; and {more} more conditions" if more > 0 else "")


def _title(label: str) -> str:
    """Return the title of a label without its place and its subject: "driver", "power limit", "package numpy"."""
    condition = condition_of(label)
    if condition is None or not condition.title:
        return label
    return condition.title + label.partition(condition.name)[2] if condition.expands else condition.title
