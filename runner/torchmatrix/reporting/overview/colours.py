"""Colours by meaning: the versions of one product in one hue, light to dark by age; another vendor's builds in another hue.

At least 3:1 to the paper. A row always has its name beside it, so that no reader needs the colour.
"""

import re
from collections.abc import Sequence

_HUES = (
    (("#5b9bd5", "#2563a8", "#0b2545"), ("#2f6391", "#5a9fdc", "#c3e0fb")),
    (("#d96f0d", "#a34d00", "#5c2b00"), ("#b35f14", "#f08a2c", "#ffd2a1")),
    (("#2f9e77", "#17684c", "#0a3626"), ("#2a7a5d", "#4bc298", "#bdeedb")),
    (("#9a6fc4", "#6b3fa0", "#35184f"), ("#6d4a93", "#a983d6", "#e2d0f5")),
)  # fmt: skip
_VERSION = re.compile(r"\d+(?:\.\d+)+|\d+")


def colours(names: Sequence[str]) -> list[tuple[str, str]]:
    """For each name its colour on white and on black."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(product(name), []).append(name)
    found: dict[str, tuple[str, str]] = {}
    for hue, own in zip(_HUES * (1 + len(families) // len(_HUES)), families.values(), strict=False):
        ordered = sorted(own, key=age)
        shares = [0.5] if len(ordered) == 1 else [place / (len(ordered) - 1) for place in range(len(ordered))]
        found |= {name: (_between(hue[0], share), _between(hue[1], share)) for name, share in zip(ordered, shares, strict=True)}
    return [found[name] for name in names]


def product(name: str) -> str:
    """What comes before the version, and whether it is a build for AMD's GPUs."""
    return f"{_VERSION.split(name, maxsplit=1)[0]}{'rocm' if 'rocm' in name else ''}"


def age(name: str) -> tuple[list[int], str]:
    found = _VERSION.search(name)
    return [int(part) for part in found[0].split(".")] if found else [], name


def _between(stops: Sequence[str], share: float) -> str:
    """A colour between the first, the middle and the last."""
    place = share * (len(stops) - 1)
    first = min(int(place), len(stops) - 2)
    ends = [[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops[first : first + 2]]
    return "#" + "".join(f"{round(a + (b - a) * (place - first)):02x}" for a, b in zip(*ends, strict=True))
