"""Machines compared -> one self-contained HTML file: who is how much faster, how each scales, what failed where."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import structs

from torchmatrix.analysis import across, facts_cache, machines, prices, run_summary, scaling, speedups
from torchmatrix.analysis.across import Relative, RelativeMean, RelativeRow
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.machines import Chosen, Yield, fleet_rows
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.published import Measured, claims, measured
from torchmatrix.analysis.published.claims import Beside
from torchmatrix.analysis.rows import CellRow, LaunchRow, Row, is_ok
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.core import __version__
from torchmatrix.core.formatting import UNKNOWN
from torchmatrix.facts.launch import Unreadable
from torchmatrix.facts.store import Results
from torchmatrix.reporting import page, words
from torchmatrix.reporting.explorers import Explorers
from torchmatrix.reporting.explorers.data import data_of
from torchmatrix.reporting.gpus import COLOURS, ComparedGpus, Gpus
from torchmatrix.reporting.gpus import shown as shown_of_gpus
from torchmatrix.reporting.overview import Cells
from torchmatrix.reporting.overview.cells import colours
from torchmatrix.reporting.page import OURS, Brand, utc
from torchmatrix.reporting.report import sections

# Grids: for each number of devices a table workload x GPU of the relative figures (analysis/across.py).


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """The ratios on `count` devices. `lines`: one per workload and release of torch that two GPUs or more measured.
    `means`: for each GPU that of its ratios. `alone`: how many further workloads only one GPU measured.
    """

    count: int
    gpus: tuple[str, ...]
    means: tuple[RelativeMean | None, ...]
    lines: tuple["Line", ...]
    alone: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One workload on stacks of one release; `entries`: for each GPU its row, or None."""

    workload: str
    stacks: str
    entries: tuple[RelativeRow | None, ...]


def grids(relative: Relative) -> list[Grid]:
    """Build a grid for each number of devices on which two GPUs have a figure, fewest first; GPUs in the order of the table."""
    rows = [row for row in relative.table if row.of_gpu]
    gpus = tuple(dict.fromkeys(row.gpu for row in rows))
    means = {(row.gpu, row.count): row for row in across.relative_means(relative)}
    tables = []
    for count in sorted({row.count for row in rows}):
        lines = _lines([row for row in rows if row.count == count], gpus)
        shared = tuple(line for line in lines if sum(entry is not None and entry.n > 0 for entry in line.entries) > 1)
        if shared:
            row = tuple(means.get((gpu, count)) for gpu in gpus)
            tables.append(Grid(count=count, gpus=gpus, means=row, lines=shared, alone=len(lines) - len(shared)))
    return tables


def _lines(rows: Sequence[RelativeRow], gpus: Sequence[str]) -> tuple[Line, ...]:
    """Return a line for each workload, software and work of the baseline's, and further ones where a GPU has several of them;
    what the baseline lacks is by its release alone.
    """
    by_job: dict[tuple[str, ...], list[dict[str, RelativeRow]]] = {}
    for row in rows:
        key = row.workload, row.stack_class, row.baseline_stack or "", row.baseline_work or ""
        lines = by_job.setdefault(key, [])
        line = next((line for line in lines if row.gpu not in line or (row.n and not line[row.gpu].n)), None)
        if line is None:
            lines.append(line := {})
        line[row.gpu] = row
    every = [(key, line) for key, lines in by_job.items() for line in lines]
    named = Counter((workload, stack_class) for (workload, stack_class, *_), _ in every)
    return tuple(
        Line(
            workload=workload, stacks=stack if stack and named[workload, stack_class] > 1 else stack_class,
            entries=tuple(line.get(gpu) for gpu in gpus),
        )
        for (workload, stack_class, stack, _), line in every
    )  # fmt: skip


@dataclass(frozen=True)
class Fleet:
    """The machines of a comparison, each with the run that represents it, as read."""

    chosen: tuple[Chosen, ...]
    runs: tuple[RunSummary, ...]
    price_list: PriceList = NONE

    @cached_property
    def launches(self) -> Sequence[LaunchRow]:
        """Return the launches of all machines (machines.fleet_rows), by file: the machines' plans may differ."""
        runs = [sorted(run.launches, key=lambda row: row.path.split("/")) for run in self.runs]
        launches = fleet_rows((choice.machine, rows) for choice, rows in zip(self.chosen, runs, strict=True))
        return prices.charged(launches, self.price_list)

    @property
    def has_models(self) -> bool:
        """Check whether there are devices of several models to compare."""
        return len({row.gpu for row in self.launches}) > 1

    @cached_property
    def sides(self) -> CellIndex:
        """Return the cells by what is compared: device models, or, if all are of one model, machines."""
        return self.index if self.has_models else CellIndex(structs.replace(row, gpu=row.machine) for row in self.launches)

    @cached_property
    def cells(self) -> list[CellRow]:
        return run_summary.cells_table(self.index.figures)

    @cached_property
    def measured(self) -> list[tuple[Measured, ...]]:
        """Return for each machine its cells in the form of published figures."""
        labels = [choice.machine.label for choice in self.chosen]
        return [measured(cell for cell in self.index.figures if cell.machine == label) for label in labels]

    @cached_property
    def published(self) -> list[list[Beside]]:
        """Return for each machine its cells compared with published figures (claims.paired)."""
        return [claims.paired(cells)[0] for cells in self.measured]

    @property
    def unreadable(self) -> list[Unreadable]:
        """Return the files of these runs that can't be read."""
        return [file for run in self.runs for file in run.unreadable]

    @cached_property
    def scaling(self) -> list[Row]:
        return scaling.scaling_table(self.index)

    @cached_property
    def index(self) -> CellIndex:
        """Return the cells, from which all ratios are made."""
        return CellIndex(self.launches)

    @cached_property
    def explorers(self) -> Explorers:
        """Return the explorers of all machines."""
        published = {
            (choice.machine.label, *place): figure
            for choice, pairs in zip(self.chosen, self.published, strict=True)
            for place, figure in claims.throughputs(pairs).items()
        }
        ratios = speedups.ratios_of(self.index)
        return Explorers(data=data_of(self.index, self.cells, self.scaling, ratios, self.price_list, published))


def fleet_of(chosen: Sequence[Chosen], price_list: PriceList = NONE) -> Fleet:
    """Read the runs, all of one results folder, or what was cached of them the last time."""
    results = Results(chosen[0].run.path.parent.parent)
    return Fleet(tuple(chosen), tuple(facts_cache.each(results, [choice.run for choice in chosen])), price_list)


def compared(
    chosen: Sequence[Chosen], baseline_gpu: str | None = None, own_batch: bool = False, price_list: PriceList = NONE
) -> tuple[Fleet, across.Relative]:
    """Read these machines and compare them with the baseline GPU; `own_batch`: each at its own batch."""
    fleet = fleet_of(chosen, price_list)
    return fleet, across.relative_table(fleet.sides, baseline_gpu, "own" if own_batch else "same")


def shown_of(fleet: Fleet, relative: across.Relative, invented: bool = False) -> ComparedGpus:
    """Build the default view. `invented`: nobody measured the figures."""
    worth = [worth for _, worth in _cells(fleet) if worth]
    made = shown_of_gpus(Gpus(
        cells=Cells(data=fleet.explorers.data), relative=relative,
        each=across.relative_to_each(fleet.sides, relative.batch),
        worth=worth, vendors=_vendors(fleet), price_list=fleet.price_list, noun="GPU" if fleet.has_models else "machine",
        source=INVENTED if invented else source_of(fleet),
    ))  # fmt: skip
    doubts = "; ".join(doubt.brief for doubt in sections.flagged(fleet.cells))
    return replace(made, answers=replace(made.answers, doubts=doubts))


INVENTED = "Invented figures: nobody measured them."


def source_of(fleet: Fleet) -> str:
    """Say how the figures of several machines were measured."""
    each = page.launches_each({row.n for row in fleet.cells if row.n})
    days = sorted(utc(run.started)[:10] for run in fleet.runs)
    period = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    return f"Measured with torchmatrix {__version__} on {len(fleet.chosen)} machines, {period}; {each}."


def _vendors(fleet: Fleet) -> dict[str, str]:
    """Return the vendor of each GPU model and of each machine."""
    vendors: dict[str, str] = {}
    for machine in (choice.machine for choice in fleet.chosen):
        vendor = str(machine.gpus[0].get("vendor") or "") if machine.gpus else ""
        vendors |= dict.fromkeys((machine.gpu, machine.label), vendor.upper())
    return vendors


def page_of(
    fleet: Fleet,
    relative: across.Relative,
    links: Mapping[str, str] | None = None,
    pages: Mapping[str, str] | None = None,
    site: Mapping[str, Any] | None = None,
    invented: bool = False,
    brand: Brand = OURS,
    shown: ComparedGpus | None = None,
) -> str:
    """Render the page of these machines. `pages`: machine id -> relative address of the report of its run.
    `site`: what the sections of a site show, if this is its front page. `invented`: nobody measured the figures. `shown`: the
    default view, if it is at hand.
    """
    shown = shown or shown_of(fleet, relative, invented)
    context = _context(fleet, pages or {}) | {
        "head": _head(fleet, shown),
        "chart_files": page.chart_files(shown.charts, shown.style),
        "brand": brand,
        "is_published": site is not None,
        "explorers": fleet.explorers,
        "shown": shown,
        "colours": _colours(shown),
        "sides": "GPU" if fleet.has_models else "machine",
        "baseline_gpu": relative.baseline,
        "batch": relative.batch,
        "grids": grids(relative),
        "flags": sections.flagged(fleet.cells),
        "each_machine": [row for row in relative.table if not row.of_gpu],
        "refused": relative.refused,
    }
    return page.render("machines.html.j2", links=links or {}, site=site, invented=invented, **context)


def charts_apart(fleet: Fleet, shown: ComparedGpus, brand: Brand) -> dict[str, bytes]:
    """Return the charts of the page as files beside it (page.charts_apart)."""
    return page.charts_apart(shown.charts, shown.style, _colours(shown), _head(fleet, shown), brand)


def _colours(shown: ComparedGpus) -> list[tuple[str, str]]:
    return [*COLOURS, *colours(shown.releases)]


def _head(fleet: Fleet, shown: ComparedGpus) -> page.Head:
    devices = words.enumerated(dict.fromkeys(row.of.gpu for row in fleet.cells), 9) or "no device"
    return page.head_of(devices, (), shown.answers, shown.style.source)


def _context(fleet: Fleet, pages: Mapping[str, str]) -> dict[str, Any]:
    every = fleet.cells
    return {
        "machines": [_machine(choice, run, pages) for choice, run in zip(fleet.chosen, fleet.runs, strict=True)],
        "models": list(dict.fromkeys(row.of.gpu for row in every)),
        "measured": sum(row.n > 0 for row in every),
        "planned": sum(len(run.planned) for run in fleet.runs),
        "gpus": machines.fleet_gpu_table([choice.machine for choice in fleet.chosen], every),
        "cells": _cells(fleet),
        "currency": fleet.price_list.currency,
        "failures": [
            {"launch": row, "log": sections.log_of(Path(row.path), row.outcome, row.stack)}
            for row in fleet.launches
            if not is_ok(row)
        ],
        "published": _published(fleet),
        "pending": sum(_pending(run) for run in fleet.runs),
        "unreadable": [line for run in fleet.runs for line in sections.unreadable_of(run, run.unreadable)],
        "definitions": DEFINITIONS,
    }


def _published(fleet: Fleet) -> dict[str, Any]:
    """Return the pairs of our throughputs with comparable published ones; `others`: how many match no cell."""
    every = [
        (choice.machine.label, pair) for choice, pairs in zip(fleet.chosen, fleet.published, strict=True) for pair in pairs
    ]
    comparable = [(label, pair) for label, pair in every if not pair.differs]
    return {"pairs": comparable, "others": len(every) - len(comparable)}


def _pending(run: RunSummary) -> int:
    """Count the planned cells that have no launch."""
    launched = {row.cell for row in run.launches}
    return sum(cell not in launched for cell in run.planned)


def _cells(fleet: Fleet) -> list[tuple[CellRow, Yield | None]]:
    """Return the cells of all machines, each with its yield per watt, price and GB."""
    return [(row, machines.worth(row, fleet.price_list)) for row in fleet.cells]


def _machine(choice: Chosen, run: RunSummary, pages: Mapping[str, str]) -> dict[str, Any]:
    machine = choice.machine
    return {
        "label": machine.label,
        "verified": machine.verified,
        "note": choice.note,
        "hardware": f"{machine.gpu_count} × {machine.gpu}" if machine.gpu_count else machine.gpu.removeprefix("CPU: "),
        "cpu": machine.cpu or UNKNOWN,
        "cores": machine.cores,
        "memory_bytes": machine.memory_bytes,
        "driver": machine.driver or UNKNOWN,
        "os": machine.os or UNKNOWN,
        "kernel": machine.kernel or UNKNOWN,
        "started": utc(run.started),
        "run": run.id,
        "page": pages.get(machine.id),
        "measured": len({row.cell for row in run.launches if is_ok(row)}),
        "planned": len(run.planned),
        "not_ok": sum(not is_ok(row) for row in run.launches),
        "skipped": len(run.skipped),
        "stacks": list(dict.fromkeys(row.stack for row in run.launches)),
    }
