"""The measured cells of a page as its default view needs them: chosen, grouped, named."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torchmatrix.analysis.intervals import Moments
from torchmatrix.analysis.rows import Row
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.reporting.explorers.data import Data

# Colours by meaning: the versions of one product in one hue, light to dark by age; another vendor's builds in another hue.
#
# At least 3:1 to the paper. A row always has its name beside it, so that no reader needs the colour.

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


MOST_NAME = 40
"""Characters of a name in a chart; a bar's tooltip and the tables have all of it."""
_UNNAMED = ("gpu", "machine", "stack", "model", "mode", "devices", "set", "variant", "batch", "image_size", "sequence_length")
"""Dimensions that are no setting."""
_SIZES = ("batch", "image_size", "sequence_length")
_SERIES = ("precision", "runtime", "compile")
"""Settings that tell bars apart; of the others each bar has those of the fastest cell, as far as they were measured."""
_DEFAULTS = {factor.name: str(factor.default).lower() for factor in FACTORS if factor.default is not None}


@dataclass(frozen=True, kw_only=True)
class Cells:
    """`data`: the cells of one machine or of several. `marks`: by a cell's place, words that a reader must see beside it.

    `builds`: of stacks that got another build of PyTorch than they ask for, the version that was installed.
    """

    data: Data
    marks: Mapping[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    builds: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[Row]:
        """Each with its `place`."""
        return [row | {"place": place} for place, row in enumerate(self.data.rows)]

    @cached_property
    def dims(self) -> dict[str, Any]:
        return {dim.name: dim for dim in self.data.dims}

    def value(self, row: Row, name: str) -> str:
        """As it stands in an address."""
        return str(self.dims[name].values[row[name]])

    def label(self, row: Row, name: str) -> str:
        """As a reader sees it."""
        return str(self.dims[name].labels[row[name]])

    @cached_property
    def _stacks(self) -> dict[str, str]:
        found = dict(zip(self.dims["stack"].values, self.dims["stack"].labels, strict=True))
        named = found | {name: f"torch {version}" for name, version in self.builds.items()}
        bearers = Counter(named.values())
        own = {name: text if bearers[text] == 1 else f"{name} ({text})" for name, text in named.items()}
        return {name: shortened(text) for name, text in own.items()}

    def stack(self, row: Row) -> str:
        return self._stacks[self.value(row, "stack")]

    def age(self, row: Row) -> tuple[Any, ...]:
        """Orders stacks of one product by their release; others as the matrix has them."""
        return age(self.value(row, "stack")) if self._is_one_product else (row["stack"],)

    @cached_property
    def _is_one_product(self) -> bool:
        return len({product(name) for name in self.dims["stack"].values}) == 1

    def who(self, row: Row) -> str:
        """The stack; before it the GPU and the machine where there are several."""
        several = [self.label(row, name) for name in ("gpu", "machine") if len(self.dims[name].values) > 1]
        return " · ".join([*several, self.stack(row)]) if not several or len(self._stacks) > 1 else " · ".join(several)

    def model(self, row: Row) -> str:
        """The model's name, and inference where it is that."""
        name = shortened(self.label(row, "model"))
        return f"{name}, inference" if self.value(row, "mode") == "infer" and self.is_mixed else name

    @cached_property
    def is_mixed(self) -> bool:
        """Is there training and inference?"""
        return len(self.dims["mode"].values) > 1

    def precision(self, row: Row) -> str:
        return self.label(row, "precision")

    def engine(self, row: Row) -> str:
        """What runs the model: eager, torch.compile or another runtime."""
        if self.value(row, "runtime") not in ("eager", "none"):
            return self.label(row, "runtime")
        return "torch.compile" if self.value(row, "compile") == "true" else "eager"

    def settings(self, row: Row) -> str:
        """Precision and engine, then what differs from its default: "AMP, torch.compile, channels_last"."""
        return ", ".join([self.precision(row), self.engine(row), *self.extras(row)])

    def extras(self, row: Row) -> list[str]:
        """Settings other than precision and engine that are not at their defaults and vary here."""
        names = [n for n in self.dims if n not in (*_UNNAMED, *_SERIES) and len(self.dims[n].values) > 1]
        return [self.label(row, n) for n in names if self.value(row, n) not in ("none", _DEFAULTS.get(n))]

    def sizes(self, row: Row) -> list[str]:
        """Its batch and what else sizes its input: "batch 64", "224 pixels"."""
        return [self.label(row, name) for name in _SIZES if self.value(row, name) != "none"]

    def device(self, row: Row) -> str:
        """What one of its devices is called."""
        return "core group" if self.label(row, "gpu").startswith("CPU") else "GPU"

    def place(self, row: Row) -> str:
        """The devices: "8 × H100 SXM", "2 core groups"."""
        gpu, devices = self.label(row, "gpu"), self.label(row, "devices")
        if gpu.startswith("CPU") or len(self.dims["gpu"].values) > 1:
            return devices
        nodes = f" {devices[devices.index('on ') :]}" if " on " in devices else ""
        return f"{row['N']} × {gpu}{nodes}" if row["N"] > 1 else f"one {gpu}"

    def which(self, row: Row) -> str:
        """Which devices, where the run measured several sets of so many."""
        return str(row["which"] or "")

    def moments(self, row: Row) -> Moments | None:
        """Of its throughput; None of one launch."""
        return self.data.moments[row["place"]]

    @cached_property
    def slower(self) -> set[int]:
        """Places of cells that some pair on this page shows to be slower than a measured cell."""
        told = {pair["at"] for pair in self.data.pairs if pair["verdict"] == "SLOWER"}
        return told | {pair["over"] for pair in self.data.pairs if pair["verdict"] == "FASTER" and pair["over"] is not None}

    @cached_property
    def jobs(self) -> list[list[Row]]:
        """The cells by model and mode, in the order of the matrix."""
        return grouped(self.rows, lambda row: (row["mode"], row["model"]))

    @cached_property
    def chosen(self) -> list[Row]:
        """The cells of the job that most stacks measured, the first of them in the matrix; the results don't decide."""
        return max(self.jobs, key=lambda rows: len({row["stack"] for row in rows if row["n"]}), default=[])

    def best(self, rows: Iterable[Row]) -> Row | None:
        """The highest throughput on the most devices that were measured; None without one."""
        known = [row for row in rows if row["n"]]
        most = max((row["N"] for row in known), default=0)
        return max((row for row in known if row["N"] == most), key=lambda row: row["rate"], default=None)

    def series(self, row: Row) -> tuple[Any, ...]:
        """What tells bars of one model apart."""
        return tuple(row[name] for name in ("gpu", "machine", "stack", *_SERIES))

    def like(self, rows: Iterable[Row], best: Row) -> list[Row]:
        """Of each series the cell whose other settings are most like those of `best`, a measured one where there is any."""
        others = [name for name in self.dims if name not in (*_SERIES, "stack", "gpu", "machine")]

        def rank(row: Row) -> tuple[bool, int, float]:
            return bool(row["n"]), sum(row[name] == best[name] for name in others), row["rate"] or 0.0

        return [max(own, key=rank) for own in grouped(rows, self.series)]


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> list[list[Row]]:
    """The rows by a key, in the order in which the keys appear."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())


def shortened(name: str) -> str:
    """At most MOST_NAME characters: its begin and its end."""
    half = MOST_NAME // 2
    return name if len(name) <= MOST_NAME else f"{name[:half]}…{name[-half:]}"


def span(values: Sequence[float], write: Callable[[float], str]) -> str:
    """From the lowest to the highest, once where both are written alike."""
    ends = list(dict.fromkeys(write(end) for end in (min(values), max(values))))
    return " to ".join(ends)
