"""The measured cells of a page for its default view: chosen, grouped, named."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from torchmatrix.analysis.best import may_be_best, mean_over
from torchmatrix.analysis.cells import Cell
from torchmatrix.analysis.intervals import Moments
from torchmatrix.analysis.rows import LaunchRow, group_by
from torchmatrix.analysis.verdicts import MeanRatio, are_comparable
from torchmatrix.matrix.catalog import usual_optimizer
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.reporting.explorers.data import ShownCell

if TYPE_CHECKING:
    from torchmatrix.reporting.explorers.data import Data

# Colours: versions of one product share a hue, light to dark by age; another vendor's builds have another hue.
#
# Contrast with the paper is at least 3:1. Every row also shows its name, so no reader needs the colour.

_HUES = (
    (("#5b9bd5", "#2563a8", "#0b2545"), ("#2f6391", "#5a9fdc", "#c3e0fb")),
    (("#d96f0d", "#a34d00", "#5c2b00"), ("#b35f14", "#f08a2c", "#ffd2a1")),
    (("#2f9e77", "#17684c", "#0a3626"), ("#2a7a5d", "#4bc298", "#bdeedb")),
    (("#9a6fc4", "#6b3fa0", "#35184f"), ("#6d4a93", "#a983d6", "#e2d0f5")),
)  # fmt: skip
_VERSION = re.compile(r"\d+(?:\.\d+)+|\d+")


def colours(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return for each name its colour on white and on black."""
    families = group_by(names, product)
    by_name: dict[str, tuple[str, str]] = {}
    for hue, members in zip(_HUES * (1 + len(families) // len(_HUES)), families.values(), strict=False):
        ordered = sorted(members, key=age)
        shares = [0.5] if len(ordered) == 1 else [place / (len(ordered) - 1) for place in range(len(ordered))]
        by_name |= {
            name: (_between(hue[0], share), _between(hue[1], share)) for name, share in zip(ordered, shares, strict=True)
        }
    return [by_name[name] for name in names]


def product(name: str) -> str:
    """Return what precedes the version in a stack's name, marked if it is a build for AMD's or Intel's GPUs."""
    build = next((build for build in ("rocm", "xpu") if build in name), "")
    return f"{_VERSION.split(name, maxsplit=1)[0]}{build}"


def age(name: str) -> tuple[list[int], str]:
    match = _VERSION.search(name)
    return [int(part) for part in match[0].split(".")] if match else [], name


def _between(stops: Sequence[str], share: float) -> str:
    """Interpolate a colour between the first, the middle and the last."""
    place = share * (len(stops) - 1)
    first = min(int(place), len(stops) - 2)
    ends = [[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops[first : first + 2]]
    return "#" + "".join(f"{round(a + (b - a) * (place - first)):02x}" for a, b in zip(*ends, strict=True))


MOST_NAME = 40
"""Most characters of a name in a chart; a bar's tooltip and the tables have the full name."""
_UNNAMED = ("gpu", "machine", "stack", "model", "mode", "devices", "set", "variant", "batch", "image_size", "sequence_length")
"""Dimensions that are not settings."""
_SIZES = ("batch", "image_size", "sequence_length")
_SERIES = ("precision", "runtime", "compile")
"""Settings that distinguish bars; for all other settings each bar uses those of the fastest cell, where they were measured."""
_DEFAULTS = {factor.name: str(factor.default).lower() for factor in FACTORS if factor.default is not None}


Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The cells of one machine or of several. `marks`: by a cell's place, words that a reader must see beside it.
    `builds`: for stacks that got another build of PyTorch than they ask for, the version that was installed: bars name its
    release, as a mark tells of the build.
    """

    data: "Data"
    marks: Mapping[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    builds: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[ShownCell]:
        """Return the rows."""
        return list(self.data.rows)

    @cached_property
    def dims(self) -> dict[str, Any]:
        return {dim.name: dim for dim in self.data.dims}

    def value(self, row: ShownCell, name: str) -> str:
        """Return a dimension's value as it stands in an address."""
        return str(self.dims[name].values[row.value(name)])

    def label(self, row: ShownCell, name: str) -> str:
        """Return a dimension's value as a reader sees it."""
        return str(self.dims[name].labels[row.value(name)])

    @cached_property
    def _stacks(self) -> dict[str, str]:
        labels = dict(zip(self.dims["stack"].values, self.dims["stack"].labels, strict=True))
        named = labels | {name: f"torch {version.partition('+')[0]}" for name, version in self.builds.items()}
        bearers = Counter(named.values())
        return {name: shortened(text if bearers[text] == 1 else f"{name} ({text})") for name, text in named.items()}

    @property
    def stacks(self) -> list[str]:
        """Return the names of the stacks, as readers see them."""
        return list(self._stacks.values())

    def is_generation(self, row: ShownCell) -> bool:
        """Check whether the cell generates tokens."""
        return self.value(row, "mode") == "generate"

    def stack(self, row: ShownCell) -> str:
        return self._stacks[self.value(row, "stack")]

    def age(self, row: ShownCell) -> tuple[Any, ...]:
        """Return a key that orders stacks of one product by release; other stacks keep the matrix's order."""
        return age(self.value(row, "stack")) if self._is_one_product else (row.stack,)

    @cached_property
    def _is_one_product(self) -> bool:
        return len({product(name) for name in self.dims["stack"].values}) == 1

    def who(self, row: ShownCell) -> str:
        """Return the name of the stack, after the GPU and the machine where there are several."""
        several = [self.label(row, name) for name in ("gpu", "machine") if len(self.dims[name].values) > 1]
        return " · ".join([*several, self.stack(row)]) if not several or len(self._stacks) > 1 else " · ".join(several)

    def model(self, row: ShownCell) -> str:
        """Return the model's name, with the mode, if that isn't training, where the page has several."""
        name = shortened(self.label(row, "model"))
        return f"{name}, {self.label(row, 'mode')}" if self.is_mixed and self.value(row, "mode") != "train" else name

    @cached_property
    def is_mixed(self) -> bool:
        """Check whether there are several modes."""
        return len(self.dims["mode"].values) > 1

    def precision(self, row: ShownCell) -> str:
        return self.label(row, "precision")

    def engine(self, row: ShownCell) -> str:
        """Name what runs the model: eager, torch.compile or another runtime."""
        if self.value(row, "runtime") not in ("eager", "none"):
            return self.label(row, "runtime")
        return "torch.compile" if self.value(row, "compile") == "true" else "eager"

    def settings(self, row: ShownCell) -> str:
        """Return precision and engine, then what differs from its default: "AMP, torch.compile, channels_last"."""
        return ", ".join([self.precision(row), self.engine(row), *self.extras(row)])

    def extras(self, row: ShownCell) -> list[str]:
        """Return settings other than precision and engine that are not at their defaults and vary on this page."""
        names = [name for name in self.dims if name not in (*_UNNAMED, *_SERIES) and len(self.dims[name].values) > 1]
        usual = _DEFAULTS | {"optimizer": usual_optimizer(self.value(row, "model"))}
        return [self.label(row, name) for name in names if self.value(row, name) not in ("none", usual.get(name))]

    def sizes(self, row: ShownCell) -> list[str]:
        """Return the batch and what else sizes the input: "batch 64", "224 pixels"."""
        return [self.label(row, name) for name in _SIZES if self.value(row, name) != "none"]

    def varied_sizes(self, row: ShownCell, among: Sequence[ShownCell]) -> list[str]:
        """Return the sizes of a cell in which others differ from it, and the batch of a generation."""
        others = [self.sizes(other) for other in among]
        batch = self.label(row, "batch") if self.is_generation(row) else ""
        return [size for size in self.sizes(row) if size == batch or any(size not in sizes for sizes in others)]

    def device(self, row: ShownCell) -> str:
        """Return the noun for one device of the cell."""
        return "core group" if self.label(row, "gpu").startswith("CPU") else "GPU"

    def place(self, row: ShownCell) -> str:
        """Return the devices: "8 × H100 SXM", "2 core groups"."""
        gpu, devices = self.label(row, "gpu"), self.label(row, "devices")
        if gpu.startswith("CPU") or len(self.dims["gpu"].values) > 1:
            return devices
        nodes = f" {devices[devices.index('on ') :]}" if " on " in devices else ""
        return f"{row.N} × {gpu}{nodes}" if row.N > 1 else f"one {gpu}"

    def which(self, row: ShownCell) -> str:
        """Return the set of devices, where the run measured several sets of that size."""
        return str(row.which or "")

    def moments(self, row: ShownCell) -> Moments | None:
        """Return the moments of the cell's throughput; None for one launch."""
        return self.launched(row).moments()

    def launched(self, row: ShownCell) -> Cell[LaunchRow]:
        """Return the cell with its launches."""
        return self.data.cells[row.place]

    @cached_property
    def slower(self) -> set[int]:
        """Return the places of cells that some pair on this page shows to be slower than a measured cell."""
        slower = {pair.at for pair in self.data.pairs if pair.verdict == "SLOWER"}
        return slower | {pair.over for pair in self.data.pairs if pair.verdict == "FASTER" and pair.over is not None}

    @cached_property
    def jobs(self) -> list[list[ShownCell]]:
        """Return the cells by model and mode, in the order of the matrix."""
        return grouped(self.rows, lambda row: (row.mode, row.model))

    @cached_property
    def chosen(self) -> list[ShownCell]:
        """Return the cells of the job that most stacks measured, the first of them in the matrix; the results don't decide."""
        return max(self.jobs, key=lambda rows: len({row.stack for row in rows if row.n}), default=[])

    def best(self, rows: Iterable[ShownCell]) -> ShownCell | None:
        """Return the row with the highest throughput on the most devices that were measured; None without one.

        One that tests show to be slower than another is none: its figure may be higher because of its rounds, or as a median.
        """
        measured = [row for row in rows if row.n]
        most = max((row.N for row in measured), default=0)
        ranked = sorted((row for row in measured if most == row.N), key=lambda row: -row.rate)
        if not ranked:
            return None
        left = self.left(ranked[0], ranked)
        return next((row for row in left if row.place not in self.slower), ranked[0])

    def left(self, top: ShownCell, rows: Iterable[ShownCell]) -> list[ShownCell]:
        """Return those of the rows that may be the best, by tests, of all that are compared with `top`."""
        tested = [row for row in rows if are_comparable(self.moments(top), self.moments(row))]
        key = frozenset(row.place for row in tested)
        if key not in self._left:
            places = may_be_best(list(map(self.launched, tested)), self.data.significance.differs)
            self._left[key] = {tested[place].place for place in places}
        return [row for row in tested if row.place in self._left[key]]

    @cached_property
    def _left(self) -> dict[frozenset[int], set[int]]:
        return {}

    def mean(self, ratios: Iterable[tuple[int, int, float]]) -> MeanRatio:
        """Return the geometric mean of ratios: for each the places of the cell and of the one it is over."""
        rows = self.rows
        of_cells = [(self.launched(rows[at]), self.launched(rows[over]), ratio) for at, over, ratio in ratios]
        return mean_over(of_cells, self.data.significance)

    def series(self, row: ShownCell) -> tuple[Any, ...]:
        """Return the key that distinguishes bars of one model."""
        return tuple(row.value(name) for name in ("gpu", "machine", "stack", *_SERIES))

    def like(self, rows: Iterable[ShownCell], best: ShownCell) -> list[ShownCell]:
        """Pick from each series the cell whose other settings are most like those of `best`, a measured one if there is any."""
        others = [name for name in self.dims if name not in (*_SERIES, "stack", "gpu", "machine")]

        def rank(row: ShownCell) -> tuple[bool, int, float]:
            return bool(row.n), sum(row.value(name) == best.value(name) for name in others), row.rate or 0.0

        return [max(group, key=rank) for group in grouped(rows, self.series)]


def grouped(rows: Iterable[Item], key: Callable[[Item], Any]) -> list[list[Item]]:
    """Group the rows by a key, in the order in which the keys appear."""
    return list(group_by(rows, key).values())


def shortened(name: str) -> str:
    """Shorten a name to at most MOST_NAME characters: its beginning and its end."""
    half = MOST_NAME // 2
    return name if len(name) <= MOST_NAME else f"{name[:half]}…{name[-half:]}"


def span(values: Sequence[float], write: Callable[[float], str]) -> str:
    """Write the lowest and the highest value, once where both are written alike."""
    ends = list(dict.fromkeys(write(end) for end in (min(values), max(values))))
    return " to ".join(ends)
