"""The contents of a site: a run's folder from its (redacted) facts, the list of all runs, their history."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from torchmatrix.analysis import facts_cache
from torchmatrix.analysis import history as trends
from torchmatrix.analysis.facts_cache import Indexed
from torchmatrix.analysis.prices import PriceList
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.ground.numbers import is_known
from torchmatrix.reporting import exports, report
from torchmatrix.reporting import history_page as trend_pages
from torchmatrix.reporting.exports.formats import to_csv
from torchmatrix.reporting.redaction import Redaction
from torchmatrix.reporting.report import page, sections
from torchmatrix.reporting.report.filters import utc
from torchmatrix.reporting.report.view import View
from torchmatrix.reporting.site.permalinks import RUNS, Page

_BESIDE = {"All runs": "../../index.html", "Facts": "facts.tar.gz"}
_ABOVE = {"All runs": "index.html"}


def of_run(run: RunFolder, held: PriceList) -> tuple[Page, dict[str, bytes]]:
    """The index entry of a run, and the files of its folder by name."""
    view = report.view_of(run)
    tables = exports.of(view, held)
    files = {f"tables/{name}.csv": to_csv(name, table) for name, table in tables.frames.items()}
    files[f"tables/{exports.COLUMNS_FILE}"] = to_csv("columns", exports.described(tables.frames))
    archive = exports.facts_archive(run).data
    assert archive is not None  # there is no limit
    files["facts.tar.gz"] = archive
    files["index.html"] = report.render(view, _BESIDE, held).encode()
    return _summary(view), files


def listing(known: Mapping[str, Page], has_history: bool, redacted: bool) -> bytes:
    """The page that lists all runs, the newest first."""
    rows = [_row(slug, about) for slug, about in known.items()]
    rows.sort(key=lambda row: (row["started_unix_seconds"] or 0.0, row["run"]), reverse=True)
    return page.render("site.html.j2", False, rows=rows, has_history=has_history, redacted=redacted).encode()


def history(results: Results, links: Mapping[RunFolder, str], cleaner: Redaction) -> bytes | None:
    """The page of trends over these runs; None for a single one, which has no trend."""
    if len(links) < 2:
        return None
    runs = (_cleaned(run, cleaner) for run in facts_cache.each(results, list(links)))
    return trend_pages.render(trends.trends(trends.series(runs)), _ABOVE).encode()


def _cleaned(run: Indexed, cleaner: Redaction) -> Indexed:
    """What was read from a run, as it may be shown."""
    known = {"environments": run.environments, "launches": run.launches}
    cleaner.learn(known)
    return replace(
        run,
        id=cleaner.text(run.id),
        host=cleaner.host(run.host),
        planned=tuple(map(cleaner.text, run.planned)),
        skipped={cleaner.text(cell): cleaner.text(reason) for cell, reason in run.skipped.items()},
        **cleaner.value(known),
    )


def _summary(view: View) -> Page:
    host, started = view.record.host, view.record.unix_seconds
    cells = view.every_cell
    return {
        "run": view.id,
        "started_unix_seconds": started if is_known(started) else None,
        "host": host.get("name"),
        "hardware": _hardware(host),
        "stacks": list(dict.fromkeys(cells["stack"])) if len(cells) else [],
        "cells": len(cells),
        "cells_ok": int((cells["n"] > 0).sum()),
        "launches_not_ok": sum(launch.outcome != "ok" for launch in view.launches),
        "complete": view.record.complete,
        "headline": next(iter(sections.headlines(view)), ""),
    }


def _hardware(host: Mapping[str, Any]) -> str:
    """The hardware, such as "4 × NVIDIA H200", or the CPU."""
    names = [str(gpu.get("name")) for gpu in host.get("gpus") or ()]
    counted = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    return ", ".join(counted) or str(host.get("cpu") or "unknown hardware")


def _row(slug: str, about: Page) -> Page:
    """The entry with every key that the template uses: an older version may have written the folder."""
    empty = dict.fromkeys(("run", "host", "hardware", "headline"), "n/a") | {"stacks": [], "complete": True}
    started = about.get("started_unix_seconds")
    number = started if isinstance(started, (int, float)) else None
    counts = {name: about.get(name, "n/a") for name in ("cells", "cells_ok", "launches_not_ok")}
    place = f"{RUNS}/{quote(slug)}"
    return empty | about | counts | {"place": place, "started": utc(number), "started_unix_seconds": number}
