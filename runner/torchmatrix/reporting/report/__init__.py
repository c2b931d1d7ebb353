"""Facts on disk -> one self-contained HTML file. Needs no engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchmatrix.analysis import facts_cache, gpu_specs, history, run_index, time_split
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.metrics import MORE, PERCENTILES
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.published import audit, claims, mixed
from torchmatrix.analysis.rows import is_ok
from torchmatrix.analysis.run_summary import RunSummary, WholeRun
from torchmatrix.analysis.speedups import Since, since
from torchmatrix.core import __version__
from torchmatrix.core.files import scratch
from torchmatrix.facts.launch import Unreadable
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting import audit_words, cubes, exports, history_page, page, redaction
from torchmatrix.reporting.explorers import Explorers
from torchmatrix.reporting.explorers.data import Data, RunTables, data_of
from torchmatrix.reporting.exports.formats import to_markdown
from torchmatrix.reporting.exports.table_set import View, make_view, view_of
from torchmatrix.reporting.overview import Answers, Cells, Overview, cells, overview
from torchmatrix.reporting.page import OURS, Brand, recorded, save, utc
from torchmatrix.reporting.report import sections
from torchmatrix.reporting.report.sections import Doubt

# The data embedded in a page: tables as CSV, the facts, a table for pasting.

MOST_PASTED = 200
"""A table with more rows than this is not offered for pasting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageData:
    """The data of a page. `facts_bytes`: the size of the facts if they are too large to be among the `files`; else None.
    `markdown`: the cells as a table for pasting; None where there are none or more than MOST_PASTED.
    """

    files: tuple[exports.Embedded, ...]
    facts_bytes: int | None
    markdown: str | None


def carried_of(view: View, archive: exports.Archive | None) -> PageData:
    """Return the tables of cells and launches, the meanings of their columns, and the facts. Without `archive`: no facts."""
    tables = exports.launched(view)
    cells = tables.values["cells"]
    files = [*exports.embedded(tables).values(), exports.columns_in_page(tables)] if view.summary.launches else []
    if archive and archive.data:
        files.append(exports.in_page(f"{view.id}-facts.tar.gz", "application/gzip", archive.data))
    return PageData(
        files=tuple(files),
        facts_bytes=archive.facts_bytes if archive and not archive.data else None,
        markdown=to_markdown("cells", cells).decode() if 0 < len(view.every_cell) <= MOST_PASTED else None,
    )


__all__ = ["Page", "View", "explorers_of", "make_view", "page_of", "render", "rendered", "save", "view_of", "write"]


MOST_LAUNCHES = 1_500
"""Earlier nights are looked through up to this many launches: they are read within two seconds, and kept."""
RECENT = 14
"""A change of level is told for so many runs."""
MOST_FACTS_BYTES = 600_000
"""Packed facts up to this size are embedded in the page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page as HTML, the answers that it begins with, the files of the run that can't be read; `charts`: files beside it."""

    text: str
    answers: Answers
    unreadable: tuple[Unreadable, ...] = ()
    charts: Mapping[str, bytes] = field(default_factory=dict)


def write(run: RunFolder, output: Path, brand: Brand = OURS) -> tuple[Path, Answers]:
    """Render a run into `output`."""
    page = page_of(run, found=facts_cache.whole(Results(run.path.parent.parent), run), brand=brand)
    return save(page.text, output), page.answers


def last_before(run: RunFolder, summary: RunSummary) -> Since | None:
    """Compare the run with the last complete run of the same matrix on this machine, if there is one."""
    results, record = Results(run.path.parent.parent), run.read_record()
    if not record.key:
        return None
    earlier = [other for other in results.finished(run.path.parent.name, record.key) if other.started < run.started]
    if not earlier:
        return None
    last = earlier[-1]
    changes = since(summary.launches, facts_cache.read(results, [last])[0].launches, last.id, last.started)
    nights = MOST_LAUNCHES // max(1, len(summary.launches))
    return replace(changes, shift=_shift(results, [*earlier[-nights:], run]) if nights else "")


def _shift(results: Results, nights: Sequence[RunFolder]) -> str:
    """Return the sentence on the newest change of levels in the last RECENT of these runs, or ""."""
    trends = history.trends(history.with_differences(run_index.rows(results, nights, [])))
    recent = {night.id for night in nights[-RECENT:]}
    newest = next(iter(history_page.changes_by_run(trends).items()), None)
    if newest is None or newest[0][1] not in recent:
        return ""
    return history_page.headline(newest[1], sum(trend.is_launched for trend in trends))


def page_of(
    run: RunFolder,
    baseline: str | None = None,
    price_list: PriceList = NONE,
    found: WholeRun | None = None,
    brand: Brand = OURS,
) -> Page:
    """Render the page of one run with its facts embedded if they are small enough; `baseline` and `found` as in view_of.
    A page may be passed on, so its facts are cleaned of credentials and absolute paths, as published facts are.
    """
    archive = exports.facts_archive(run, MOST_FACTS_BYTES)
    if archive.data:
        with scratch() as temporary:
            archive = exports.facts_archive(redaction.cleaned(run, temporary), MOST_FACTS_BYTES)
    view = view_of(run, baseline, found, price_list)
    return rendered(view, {}, archive, last_before(run, view.summary), brand)


def render(view: View, links: Mapping[str, str] | None = None) -> str:
    """Render the page of one run without its facts. `links`: label -> relative address of a file next to the page."""
    return rendered(view, links or {}).text


def rendered(
    view: View, links: Mapping[str, str], archive: exports.Archive | None = None, before: Since | None = None,
    brand: Brand = OURS, is_published: bool = False,
) -> Page:  # fmt: skip
    """Render like `render`, with the facts of `archive` embedded, what changed since an earlier run, and whose page it is.
    `is_published`: with its charts as files beside it (charts_apart).
    """
    explorers = explorers_of(view)
    shown = overview_of(view, before, explorers.data)
    stacks = cells_of(view, explorers.data).stacks
    head = page.head_of(page.hardware(view.record.host), stacks, shown.answers, shown.style.source)
    text = page.render(
        "report.html.j2",
        explorers=explorers,
        links=links,
        carried=carried_of(view, archive),
        shown=shown,
        head=head,
        chart_files=page.chart_files(shown.charts, shown.style),
        brand=brand,
        is_published=is_published,
        **_context(view, explorers),
    )
    apart = page.charts_apart(shown.charts, shown.style, _colours(explorers), head, brand) if is_published else {}
    return Page(text=text, answers=shown.answers, unreadable=view.summary.unreadable, charts=apart)


def _colours(explorers: Explorers) -> list[tuple[str, str]]:
    return cells.colours([value for dim in explorers.data.dims if dim.name == "stack" for value in dim.values])


def explorers_of(view: View) -> Explorers:
    """Build the explorers of one run."""
    published = {("", *place): figure for place, figure in claims.throughputs(claims.paired(view.measured)[0]).items()}
    within = RunTables(
        decomposition=view.decomposition,
        devices=view.devices,
        phases=view.details.phases,
        steps=view.details.steps,
        traces=view.details.traces,
    )
    return Explorers(data=data_of(view.index, view.cells, view.scaling, view.ratios, view.price_list, published, within))


def overview_of(view: View, before: Since | None = None, data: Data | None = None) -> Overview:
    """Build the default view of one run; `data`: of its explorers, if they are at hand."""
    failed = [row.outcome for row in view.summary.launches if not is_ok(row)]
    doubts = sections.flagged(view.every_cell)
    made = overview(
        cells_of(view, data, doubts), view.price_list, before, failed, len(view.summary.unreadable_launches),
        source_of(view, doubts),
    )  # fmt: skip
    return replace(made, answers=replace(made.answers, doubts="; ".join(doubt.brief for doubt in doubts)))


def source_of(view: View, doubts: Sequence[Doubt]) -> str:
    """Say how a run's figures were measured, with the doubts that all have."""
    each = page.launches_each({row.n for row in view.every_cell if row.n})
    where, day = page.hardware(view.record.host), page.utc(view.record.unix_seconds)[:10]
    return f"Measured with torchmatrix {__version__} on {where}, {day}, run {view.id}; {each}." + "".join(
        f" All cells: {doubt.word}." for doubt in doubts if doubt.is_shared
    )


def cells_of(view: View, data: Data | None = None, doubts: Sequence[Doubt] | None = None) -> Cells:
    """Return the cells of the default view, with what a reader must see beside each but for doubts that all have; `data`: as in
    overview_of; `doubts`: sections.flagged, if it is at hand.
    """
    data = data or explorers_of(view).data
    shared = {doubt.word for doubt in (sections.flagged(view.every_cell) if doubts is None else doubts) if doubt.is_shared}
    marks = {
        row.of.cell: tuple((flag["word"], flag["title"]) for flag in sections.flags(row) if flag["word"] not in shared)
        for row in view.every_cell
    }
    by_place = {place: marks.get(row.cell, ()) for place, row in enumerate(data.rows)}
    builds = {row.of.stack: row.of.torch_build or "" for row in view.every_cell if row.n and audit.is_other_build(row)}
    return Cells(data=data, marks=by_place, builds=builds)


def _context(view: View, explorers: Explorers) -> dict[str, Any]:
    record, stacks = view.record, sections.stacks(view)
    preset, scales = claims.preset_of(record.matrix), view.scaling
    names = [value for dim in explorers.data.dims if dim.name == "stack" for value in dim.values]
    return {
        "run": view.id,
        "header": recorded(record.facts),
        "host": recorded(record.host),
        "nodes_in_words": sections.nodes_in_words(record),
        "complete": record.complete,
        "measured": sum(row.n > 0 for row in view.every_cell),
        "launched": len(view.every_cell),
        "planned": len(record.planned),
        "launches": len(view.summary.launches),
        "again": sections.made_again(view.details),
        "started": utc(record.unix_seconds),
        "method": recorded(record.method or {"name": "not known"}),
        "parallel": record.parallel.in_words if record.parallel else None,
        "cells": [(row, sections.marks(row)) for row in view.cells],
        "known": {name: sections.is_known_for_some(view, column) for name, column in sections.WATCHED.items()},
        "unknown": sections.unknown_columns(view),
        "counters": sections.counters(view),
        "more_metrics": [metric for metric in MORE if sections.is_known_for_some(view, metric.column)],
        "scaling": scales,
        "decomposition": view.decomposition,
        "nodes": view.nodes,
        "collectives": view.collectives,
        "devices": view.devices,
        "gpus": gpu_specs.gpu_table(view.every_cell),
        "colours": _colours(explorers),
        "stack_names": names,
        "flags": sections.flagged(view.every_cell),
        "state": sections.state(view),
        "pending": view.pending,
        "published": claims.section(preset, view.measured, scales),
        "preset_is_lost": preset is None and "[preset]" in record.matrix,
        **_audit(view),
        "cubes": cubes.sections_of(view.summary.launches),
        "latencies": sections.latencies(view),
        "percentiles": list(PERCENTILES),
        "compiles": [row for row in view.compiles if row["compiled"] > 1],
        "inside": sections.inside_rows(view),
        "phases": time_split.PHASES,
        "skips": sections.skips(view),
        "failures": sections.failures(view),
        "unreadable": sections.unreadable(view),
        "stacks": recorded(stacks),
        "libraries": [name for name in ("torchvision", "transformers") if len({stack[name] for stack in stacks}) > 1],
        "definitions": DEFINITIONS,
    }


def _audit(view: View) -> dict[str, Any]:
    """Return the findings, a description of what they rest on, and what could not be checked."""
    figures = [cell.figure for cell in view.measured]
    checked = audit.checked(figures, mixed(view.index.figures))
    findings = audit.findings(view.every_cell, figures)
    return {
        "findings": findings,
        "audited": audit_words.result_in_words(checked, findings) if checked.figures or findings else None,
        "checked": audit_words.checked_in_words(checked),
        "unchecked": list(audit_words.unchecked_in_words(checked.unchecked)),
    }
