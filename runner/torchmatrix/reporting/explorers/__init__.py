"""Cells -> explorers: one for each question of a reader, with selectors, drawn by the page's script when they are opened.

In: the tables of the analysis, of one machine or (with the columns `machine` and `gpu`) of several. Out: the cells, their
figures, pairs and verdicts, which a page carries once; the script chooses among them and draws, and computes no statistic.
Open first: data.py; parts.py has what is known of cells besides throughput, skeletons.py what the script draws with.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.ratios import Ratios
from torchmatrix.analysis.scaling import FACTORS
from torchmatrix.analysis.verdicts import Significance
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers import skeletons
from torchmatrix.reporting.explorers.data import NONE_PUBLISHED, NOTHING, Data, Published, as_json, data_of
from torchmatrix.reporting.explorers.parts import Within

TITLES = {
    "throughput": "Throughput", "scaling": "Scaling", "speedup": "Speed-ups", "loss": "What scaling loses",
    "alone": "Each device alone", "phases": "Where the time of a launch goes", "steps": "How much steps vary",
    "trace": "Temperature, clock and power",
}  # fmt: skip
_SCALING = (("E", "efficiency E, %"), ("s", "scale factor s"), ("S", "speed-up S"), ("throughput", "throughput"))
_MARKS = "A hollow diamond is a published throughput of the same work on the same GPU: hover over it for its source."


@dataclass(frozen=True, kw_only=True)
class Explorers:
    """Of a page."""

    data: Data

    @cached_property
    def by_name(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Of each explorer that has a figure, names and titles of what it can show."""
        return {name: metrics for name in TITLES if (metrics := tuple(_metrics(self.data, name)))}

    def as_json(self) -> str:
        """For the page's script."""
        return as_json(self.data, explorers=[self._told(name) for name in self.by_name])

    def _told(self, name: str) -> dict[str, Any]:
        skeleton = skeletons.of(name, self.data.parts.get(name, ()))
        told = {"name": name, "title": TITLES[name], "metrics": self.by_name[name]}
        return told | {"note": " ".join(filter(None, _notes(self.data, name))), "skeleton": skeleton}


def of(
    launches: pd.DataFrame, cells: pd.DataFrame, scaling: pd.DataFrame, ratios: Ratios,
    held: PriceList = NONE, published: Published = NONE_PUBLISHED, within: Within = NOTHING,
) -> Explorers:  # fmt: skip
    """The explorers of these tables (of analysis.tables and scaling) and ratios; `held`: GPU prices; `within`: of one run."""
    return Explorers(data=data_of(launches, cells, scaling, ratios, held, published, within))


def _metrics(data: Data, name: str) -> Iterator[tuple[str, str]]:
    if name == "throughput":
        yield from ((one.name, one.title) for one in data.metrics if any(row["n"] for row in data.rows))
    elif name == "scaling":
        yield from (metric for metric in _SCALING if any(row["scales"] for row in data.rows))
    elif name == "speedup":
        titles = {"stack": "stacks over the baseline"}
        titles |= {name: " over ".join(both) for name, both in words.CONTRASTS.items()}
        yield from ((kind, titles[kind]) for kind in dict.fromkeys(pair["kind"] for pair in data.pairs if pair["ratio"]))
    elif data.parts[name]:
        yield name, name


_DEFINED: dict[str, Sequence[str]] = {
    "throughput": ("throughput", "interval"), "scaling": ("S", "E", "s", "ratio_interval", "impossible"),
    "speedup": ("speedup", "setting", "ratio_interval"), "loss": (*FACTORS, "ratio_interval"),
    "alone": ("weak", "ratio_interval"), "phases": ("phases",), "steps": ("steps",), "trace": ("trace",),
}  # fmt: skip


def _notes(data: Data, name: str) -> Iterator[str]:
    """How to read the charts of an explorer."""
    yield from (DEFINITIONS[word] for word in _DEFINED[name])
    if name == "throughput":
        yield from (metric.note for metric in data.metrics)
        yield _MARKS if any(row["theirs"] is not None for row in data.rows) else ""
    if name == "scaling":
        yield "Dashed: what perfect scaling would give; stacks stand side by side. Bars: 95 % intervals."
    if name == "speedup":
        yield corrected(data.significance)
    if name == "loss":
        yield "From top to bottom, each cause takes a part of what is left."
    if name == "trace":
        yield "Vermilion: the device was slowed down. In long traces every k-th reading is drawn."


def corrected(level: Significance) -> str:
    """How the verdicts of a page are corrected; "" for a single comparison."""
    if level.comparisons < 2:
        return ""
    return (
        f"Verdicts allow for the {level.comparisons} comparisons of this report: at most 5 % of the differences reported are "
        "expected to be false."
    )
