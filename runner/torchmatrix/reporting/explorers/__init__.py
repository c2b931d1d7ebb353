"""Cells -> explorers: one for each question of a reader, with selectors; the default views also as charts for print and files.

In: the tables of the analysis, of one machine or (with the columns `machine` and `gpu`) of several. Out: the data that a page
carries once, and for each explorer a specification without rows, its default panels and what the page's script needs to know.
Open first: choosing.py (which cells a view shows), then bars.py; parts.py has what is known of cells besides throughput.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate
from typing import Any

import pandas as pd

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.ratios import Ratios
from torchmatrix.reporting import pictures
from torchmatrix.reporting.charts import Chart
from torchmatrix.reporting.explorers import alone, bars, lines, losses, pairs, phases, steps, watching
from torchmatrix.reporting.explorers.choosing import ALL as ALL
from torchmatrix.reporting.explorers.choosing import Choice, Question, choose
from torchmatrix.reporting.explorers.data import NONE_PUBLISHED, NOTHING, Data, Published, as_json, data_of
from torchmatrix.reporting.explorers.panels import Panel, drawn
from torchmatrix.reporting.explorers.parts import Within, joined
from torchmatrix.reporting.explorers.saying import corrected

METRIC = "metric"
"""What of an explorer's metrics is asked for, in an address."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explorer:
    """One question. `skeleton`: the panels' specification; `metrics`: names and titles of what it can show.

    `drawings`: waits for those of the default view, where they are being made.
    """

    question: Question
    skeleton: Mapping[str, Any]
    metrics: tuple[tuple[str, str], ...]
    panels: tuple[Panel, ...]
    note: str
    drawings: Callable[[], Sequence[str]] | None = None

    def charts(self) -> list[Chart]:
        """The default view."""
        return [
            Chart(
                id=f"{self.question.name}-{number}-{panel.name}", section=self.question.name, title=panel.title,
                note=self.note, spec=drawn(dict(self.skeleton), panel), table=pd.DataFrame(),
            )
            for number, panel in enumerate(self.panels, 1)
        ]  # fmt: skip

    def drawn(self) -> list[tuple[Chart, str]]:
        """The default view with its drawings."""
        charts = self.charts()
        return list(zip(charts, (self.drawings or pictures.here(charts))(), strict=True))

    def as_json(self) -> str:
        """For the page's script."""
        question = {"name": self.question.name, "panels": self.question.panels, "whole": dict(self.question.whole)}
        found = {"question": question | {"free": self.question.free}, "metrics": self.metrics, "skeleton": self.skeleton}
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


@dataclass(frozen=True, kw_only=True, slots=True)
class Explorers:
    """Of a page; an explorer without a figure is left out."""

    data: Data
    by_name: Mapping[str, Explorer]

    def as_json(self) -> str:
        """The cells, for the page's script."""
        return as_json(self.data)

    def being_drawn(self, draw: pictures.Draw) -> "Explorers":
        """The same, with all default views being drawn."""
        counts = [len(one.panels) for one in self.by_name.values()]
        made = cache(draw([chart for one in self.by_name.values() for chart in one.charts()]))
        ends = list(accumulate(counts))
        parts = [partial(lambda a, b: made()[a:b], end - n, end) for n, end in zip(counts, ends, strict=True)]
        found = zip(self.by_name.items(), parts, strict=True)
        return replace(self, by_name={name: replace(one, drawings=part) for (name, one), part in found})

    def panels(self, name: str, asked: Mapping[str, str]) -> list[Panel]:
        """Another view of an explorer: `asked` by dimension, and its metric as METRIC."""
        metric = asked.get(METRIC, self.by_name[name].metrics[0][0])
        return _panels(self.data, self.by_name[name].question, metric, asked)


_MARKS = "A hollow diamond is a published throughput of the same work on the same GPU: hover over it for its source."


def of(
    launches: pd.DataFrame, cells: pd.DataFrame, scaling: pd.DataFrame, ratios: Ratios,
    held: PriceList = NONE, published: Published = NONE_PUBLISHED, within: Within = NOTHING,
) -> Explorers:  # fmt: skip
    """The explorers of these tables (of analysis.tables and scaling) and ratios; `held`: GPU prices; `within`: of one run."""
    data = data_of(launches, cells, scaling, ratios, held, published, within)
    found = [explorer for make in (_throughput, _scaling, _speedups) if (explorer := make(data))] + _parts(data)
    return Explorers(data=data, by_name={one.question.name: one for one in found})


def _panels(data: Data, question: Question, metric: str, asked: Mapping[str, str]) -> list[Panel]:
    if question.name == "throughput":
        (shown,) = (one for one in data.metrics if one.name == metric)
        return bars.panels(data, choose(data.dims, question, data.rows, asked), shown)
    if question.name == "scaling":
        return lines.panels(data, question, choose(data.dims, question, lines.rows_of(data.rows), asked), metric)
    if question.name in _PANELS:
        rows = joined(data.rows, data.parts[question.name])
        return _PANELS[question.name](data, choose(data.dims, question, rows, asked))
    return pairs.panels(data, choose(data.dims, question, pairs.rows_of(data, metric), asked), metric)


def _throughput(data: Data) -> Explorer | None:
    if not any(row["n"] for row in data.rows):
        return None
    metrics = tuple((metric.name, metric.title) for metric in data.metrics)
    notes = [DEFINITIONS["throughput"], DEFINITIONS["interval"], DEFINITIONS["fastest"], corrected(data.significance)]
    notes += [*(metric.note for metric in data.metrics if metric.note)]
    notes += [_MARKS] if any(row["theirs"] is not None for row in data.rows) else []
    return _explorer(data, bars.QUESTION, bars.skeleton(), metrics, notes)


def _scaling(data: Data) -> Explorer | None:
    if not lines.rows_of(data.rows):
        return None
    parts = [f"{name}: {DEFINITIONS[name]}" for name in ("S", "E", "s")]
    dashed = "Dashed: what perfect scaling would give; stacks stand side by side. Brackets: 95 % interval."
    notes = [*parts, dashed, DEFINITIONS["ratio_interval"], DEFINITIONS["impossible"]]
    return _explorer(data, lines.question(data.dims), lines.skeleton(), lines.METRICS, notes)


def _speedups(data: Data) -> Explorer | None:
    metrics = pairs.metrics(data)
    if not metrics:
        return None
    notes = [DEFINITIONS[name] for name in ("speedup", "setting", "ratio_interval", "geometric_mean")]
    notes += [corrected(data.significance)]
    return _explorer(data, pairs.QUESTION, pairs.skeleton(), metrics, notes)


_OF_PARTS = (losses, alone, phases, steps, watching)
_PANELS: Mapping[str, Callable[[Data, Choice], list[Panel]]] = {module.QUESTION.name: module.panels for module in _OF_PARTS}


def _parts(data: Data) -> list[Explorer]:
    """The explorers of what is known of cells besides throughput."""
    known = {module.QUESTION.name: module for module in _OF_PARTS if data.parts[module.QUESTION.name]}
    return [
        _explorer(data, module.QUESTION, module.skeleton(data), ((name, name),), [module.NOTE])
        for name, module in known.items()
    ]


def _explorer(
    data: Data, question: Question, skeleton: Mapping[str, Any], metrics: tuple[tuple[str, str], ...], notes: Sequence[str]
) -> Explorer:
    panels = tuple(_panels(data, question, metrics[0][0], {}))
    return Explorer(question=question, skeleton=skeleton, metrics=metrics, panels=panels, note=" ".join(filter(None, notes)))
