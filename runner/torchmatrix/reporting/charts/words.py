"""Numbers and sentences as the titles say them."""

import math
import re
from collections import Counter
from collections.abc import Iterable

from torchmatrix.ground.numbers import HUGE
from torchmatrix.ground.numbers import figure as figure

_VERBS = {"train": ("trains", "train"), "infer": ("runs inference of", "run inference of")}


def times(value: float) -> str:
    """A ratio: two decimals, or three significant digits below 1 and above 100; n/a if unknown."""
    if math.isnan(value):
        return "n/a"
    return f"{value:.2f}" if 0.995 <= value < 100 else f"{value + 0.0:#.3g}".rstrip(".")


def span(low: float, high: float) -> str:
    """The limits of a ratio with enough digits to distinguish them, up to three decimals; one number if they are equal."""
    if math.isnan(low) or low == high:
        return times(low)
    near = times(low) == times(high) and abs(high) < HUGE
    return f"{low:.3f} to {high:.3f}" if near else f"{times(low)} to {times(high)}"


_COMPARED = {
    "FASTER": "{own} is {times} × as fast as {other}",
    "SLOWER": "{own} is {times} × as fast as {other}",
    "SAME": "{own} and {other} are equally fast, {times} ×,",
    "AMBIGUOUS": "Unclear whether {own} is faster than {other}, {times} ×,",
    "n/a": "{own} over {other}: {times} ×, {untested},",
}
"""What may be said of two by the verdict on their ratio; reports/templates/scripts/say.js has the same."""


def compared(own: str, other: str, ratio: float, verdict: str, untested: str) -> str:
    """`own` over `other` in words. `untested`: why there is no verdict, where it is n/a."""
    return _COMPARED[verdict].format(own=own, other=other, times=times(ratio), untested=untested)


def untested(*launches: int) -> str:
    """Why so many launches of each side give no verdict."""
    return "one launch each: not tested" if set(launches) == {1} else "too few launches: not tested"


def interval(low: float, high: float) -> str:
    """The interval of a ratio, for a title."""
    return "too few launches for an interval" if math.isnan(low) else f"95 % interval {span(low, high)}"


def verb(mode: str, many: bool = False) -> str:
    """What a stack does with a model, or what several do."""
    return _VERBS.get(mode, (f"runs {mode} of", f"run {mode} of"))[many]


_DEVICES = re.compile(r"(gpu|cpu)([0-9]+(?:\+[0-9]+)*)(?:@([0-9]+)nodes)?")


def devices(label: str) -> str:
    """A label of devices for a reader: "GPU 0", "8 GPUs" (the first eight), "2 GPUs (1, 3)", "4 CPU slots on 2 nodes"."""
    found = _DEVICES.fullmatch(label)
    if not found:
        return label
    noun, indices = "GPU" if found[1] == "gpu" else "CPU slot", found[2].split("+")
    if len(indices) == 1 and not found[3]:
        return f"{noun} {indices[0]}"
    which = "" if indices == [str(place) for place in range(len(indices))] else f" ({', '.join(indices)})"
    place = f" on {found[3]} nodes" if found[3] else ""
    return f"{len(indices) * int(found[3] or 1)} {noun}s{which}{place}"


def counted(words: Iterable[str]) -> str:
    """Such as "3 × oom, 1 × crashed"."""
    return ", ".join(f"{times_seen} × {word}" for word, times_seen in Counter(words).most_common())


def slug(*words: object) -> str:
    """An id: [a-z0-9-]. Names that differ in other characters only get the same id, so callers add a number."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, words)).lower()).strip("-")[:60].strip("-")
