"""What stands at the root of a site: the machines compared, the newest nights and figures, all runs, their history."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from torchmatrix.analysis import facts_cache, history, machines
from torchmatrix.analysis import history as trends
from torchmatrix.analysis.history import Newest, Trend
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.ground.files import scratch
from torchmatrix.ground.formatting import is_known, without_nan
from torchmatrix.reporting import exports, history_page, machines_page, redaction
from torchmatrix.reporting.exports.machines import MACHINE_TABLES as TABLES
from torchmatrix.reporting.redaction import Redaction
from torchmatrix.reporting.report import page
from torchmatrix.reporting.report.filters import utc
from torchmatrix.reporting.site import badges, feed
from torchmatrix.reporting.site.pages import WORDS, as_files, place_of
from torchmatrix.reporting.site.permalinks import RUNS, Page

HISTORY, CELLS = "history.html", "newest.json"
HISTORY_DATA, FRONT_DATA = "history.json", "front.json"
MACHINE_TABLES = frozenset(place_of(name, word) for name in (*TABLES, "columns") for word in WORDS)
MOST_NIGHTS = 10
MOST_CELLS = 1000
"""The most rows in the table of newest figures; newest.json has them all."""
_ABOVE = {"All runs": "index.html"}


def files(
    results: Results,
    links: Mapping[RunFolder, str],
    known: Mapping[str, Page],
    cleaner: Redaction,
    held: PriceList,
    secret: str,
) -> dict[str, bytes]:
    """The contents by name. `links`: the permalinks of the runs that are published now; `known`: all that the site has."""
    seen = history.nothing_seen()
    cleaned = (_cleaned(run, cleaner) for run in facts_cache.each(results, list(links)))
    told = trends.trends(trends.series(history.noted(cleaned, seen)))
    figures, started = history.of(seen), max((run.started for run in seen.last.values() if is_known(run.started)), default=0.0)
    pages = {(cleaner.host(run.path.parent.name), cleaner.text(run.id)): _page_of(slug) for run, slug in links.items()}
    found = {badges.address_of(one.host, one.cell): badges.svg(one) for one in figures}
    found |= {CELLS: _json(map(_figure, figures)), feed.FILE: feed.of(told, pages, started, secret)}
    if len(links) > 1:  # a single run has no trend
        found[HISTORY] = history_page.render(told, {**_ABOVE, "JSON": HISTORY_DATA}).encode()
        found[HISTORY_DATA] = _json(trend.as_record() for trend in told)
    context = _context(told, figures, known, pages, cleaner.enabled) | {"has_history": HISTORY in found}
    tables = {name: context[name] for name in ("hosts", "nights", "models", "rows")}
    found[FRONT_DATA] = json.dumps(without_nan(tables), indent=1).encode()
    alone = {"index.html": page.render("site.html.j2", site=context, newest=_newest(known)).encode()}
    return found | (_comparison(links, cleaner, held, context) or alone)


def _comparison(
    links: Mapping[RunFolder, str], cleaner: Redaction, held: PriceList, site: Mapping[str, Any]
) -> dict[str, bytes]:
    """The page of the machines, if there are several, with the site's own sections; and its tables."""
    chosen = machines.newest_complete(list(links))
    if len(chosen) < 2:
        return {}
    with scratch() as temporary:
        shown = machines.newest_complete([redaction.staged(one.run, cleaner, temporary) for one in chosen])
        pages = {copy.machine.id: _page_of(links[one.run]) for copy, one in zip(shown, chosen, strict=True)}
        fleet, relative = machines_page.compared(shown)
        found = as_files(exports.of_machines(fleet, relative, held))
        return found | {"index.html": machines_page.page_of(fleet, relative, held, pages=pages, site=site).encode()}


def _context(
    told: Sequence[Trend],
    figures: Sequence[Newest],
    known: Mapping[str, Page],
    pages: Mapping[tuple[str, str], str],
    redacted: bool,
) -> dict[str, Any]:
    rows = [_row(slug, about) for slug, about in known.items()]
    rows.sort(key=lambda row: (row["started_unix_seconds"] or 0.0, row["run"]), reverse=True)
    nights = [night | {"page": pages.get((night["host"], night["run"]))} for night in history_page.runs_of(told)[:MOST_NIGHTS]]
    shown = figures[:MOST_CELLS]
    return {
        "rows": rows,
        "redacted": redacted,
        "hosts": _hosts(rows),
        "nights": nights,
        "models": _models(figures),
        "figures": {host: [_figure(one) for one in shown if one.host == host] for host in dict.fromkeys(f.host for f in shown)},
        "more_figures": len(figures) - len(shown),
    }


def _newest(known: Mapping[str, Page]) -> dict[str, Any] | None:
    """The answers of the newest complete run, and its page; None if an older version wrote its folder."""
    runs = [(about.get("started_unix_seconds") or 0.0, slug) for slug, about in known.items() if about.get("complete")]
    slug = max(runs)[1] if runs else ""
    told = known[slug].get("answers") if runs else None
    if not isinstance(told, dict):
        return None
    return {"lead": told.get("lead"), "each": told.get("answers"), "page": _page_of(slug)}


def _hosts(rows: Sequence[Page]) -> list[Page]:
    """The newest run of each machine, which says of what it is made, with the number of its runs."""
    found: dict[str, Page] = {}
    for row in rows:
        found.setdefault(row["machine"], row | {"runs": 0})["runs"] += 1
    return list(found.values())


def _models(figures: Sequence[Newest]) -> list[dict[str, Any]]:
    """What was trained or run, with the GPUs and the cells that did."""
    found: dict[tuple[str, str], list[Newest]] = {}
    for one in figures:
        found.setdefault((one.model, one.mode), []).append(one)
    return [
        {
            "model": model,
            "mode": mode,
            "devices": list(dict.fromkeys(filter(None, map(_device, cells)))),
            "cells": len(cells),
            "ok": sum(one.outcome == "ok" for one in cells),
        }
        for (model, mode), cells in sorted(found.items())
    ]


def _device(one: Newest) -> str | None:
    """None for a GPU that no launch of the cell named."""
    return one.device_name or ("CPU" if one.devices.startswith("cpu") else None)


def _figure(one: Newest) -> dict[str, Any]:
    """A row of newest.json."""
    about = {"state": badges.state(one), "badge": quote(badges.address_of(one.host, one.cell))}
    return one.as_record() | about | {"figure": badges.with_margin(one) if one.outcome == "ok" else None}


def _cleaned(run: RunSummary, cleaner: Redaction) -> RunSummary:
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


def _page_of(slug: str) -> str:
    return f"{RUNS}/{quote(slug)}/index.html"


def _json(rows: Iterator[Any]) -> bytes:
    return ("[" + ",".join("\n" + json.dumps(row, allow_nan=False) for row in rows) + "\n]\n").encode()


def _row(slug: str, about: Page) -> Page:
    """The entry with every key that the template uses: an older version may have written the folder."""
    empty = dict.fromkeys(("run", "hardware", "headline"), "n/a") | {"stacks": [], "complete": True}
    started = about.get("started_unix_seconds")
    number = started if isinstance(started, (int, float)) else None
    counts = {name: about.get(name, "n/a") for name in ("cells", "cells_ok", "launches_not_ok")}
    place, machine = f"{RUNS}/{quote(slug)}", about.get("machine") or about.get("host") or "n/a"
    found = {"machine": machine, "place": place, "started": utc(number), "started_unix_seconds": number}
    return {name: value for name, value in (empty | about | counts | found).items() if name != "answers"}
