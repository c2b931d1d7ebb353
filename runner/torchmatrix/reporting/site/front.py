"""What stands at the root of a site: the machines compared, the newest nights and figures, all runs, their history."""

import hashlib
import hmac
import json
import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from torchmatrix import __version__
from torchmatrix.analysis import facts_cache, history, machines
from torchmatrix.analysis import history as trends
from torchmatrix.analysis.history import Change, Newest, Trend
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.core.files import scratch
from torchmatrix.core.formatting import figure, is_known, printable, without_nan
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting import exports, history_page, machines_page, redaction, terminal
from torchmatrix.reporting.exports.table_set import MACHINE_TABLES as TABLES
from torchmatrix.reporting.redaction import Redaction
from torchmatrix.reporting.report import page
from torchmatrix.reporting.report.page import utc
from torchmatrix.reporting.site.pages import RUNS, WORDS, Page, as_files, place_of

# A small image for every cell, to be shown on other pages: left what was measured, right the newest figure and its date.
#
# badges/MACHINE/CELL.svg: red without a number if the newest launch failed, grey if a newer run didn't launch the cell.

FOLDER = "badges"
_COLOURS = {"ok": "#0b6bcb", "failed": "#b42318", "stale": "#656d76"}
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST = 100
_NARROW, _WIDE = frozenset("fijlrtI.,:;|'!()[]-/ "), frozenset("mwMW%@±")
_PADDING = 6


def badge_address(host: str, cell: str) -> str:
    """Of a cell's badge, relative to the site: always the same, and safe as a path and in a link, whatever the names are."""
    return "/".join([FOLDER, *map(_safe, (host, *PurePosixPath(cell).parts))]) + ".svg"


def badge_svg(newest: Newest) -> bytes:
    """The badge of a cell."""
    left, right = printable(f"{newest.workload} · {_devices(newest.devices)} · {newest.stack}"), printable(badge_text(newest))
    widths = [_width(left), _width(right)]
    context = {
        "title": printable(f"{newest.cell} on {newest.host}: {badge_text(newest)}"),
        "texts": [(left, _PADDING, widths[0]), (right, widths[0] + 3 * _PADDING, widths[1])],
        "edge": widths[0] + 2 * _PADDING,
        "width": sum(widths) + 4 * _PADDING,
        "colour": _COLOURS[badge_state(newest)],
    }
    return page.small("badge.svg.j2", **context).encode()


def badge_state(newest: Newest) -> str:
    """ok, failed or stale."""
    return "failed" if newest.outcome != "ok" else "stale" if newest.is_stale else "ok"


def badge_text(newest: Newest) -> str:
    """Such as "2412 ± 8.3 images/s · 2026-03-01"."""
    day = "n/a" if math.isnan(newest.started) else time.strftime("%Y-%m-%d", time.gmtime(newest.started))
    what = f"failed: {newest.outcome}" if newest.outcome != "ok" else f"{with_margin(newest)} {newest.unit}/s"
    return f"{what} · {'stale, ' if newest.is_stale else ''}{day}"


def with_margin(newest: Newest) -> str:
    """The figure ± half its interval; alone if it has none."""
    half = (newest.high - newest.low) / 2
    return figure(newest.throughput) + ("" if math.isnan(half) else f" ± {float(f'{half:.2g}'):g}")


def _devices(label: str) -> str:
    """As in the cell's id; from three numbers in a row on only the ends: gpu0+1+2+3 is gpu0–3."""
    found = re.fullmatch(r"(\D+)(\d+(?:\+\d+){2,})", label)
    numbers: Sequence[int] = [int(number) for number in found[2].split("+")] if found else ()
    if not found or list(numbers) != list(range(numbers[0], numbers[0] + len(numbers))):
        return label
    return f"{found[1]}{numbers[0]}–{numbers[-1]}"


def _safe(name: str) -> str:
    """The name itself if it is safe; else what is safe of it, and enough of its hash to be nobody else's."""
    plain = _UNSAFE.sub("-", name).strip(".-")[:_LONGEST]
    return plain if plain == name else f"{plain or 'cell'}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"


def _width(text: str) -> int:
    """About the width in a sans-serif of 11 pixels; the image tells the browser to make it fit."""
    return round(sum(4.0 if letter in _NARROW else 9.5 if letter in _WIDE else 6.8 for letter in text))


# changes.xml: the changes of level as an Atom feed (RFC 4287), one entry per run that changed any cell's level.
#
# Ids follow from the site's secret, the host and the run, so that a reader meets an entry once, wherever the site is served.

FILE = "changes.xml"
MOST_ENTRIES = 50
"""The newest ones; the page of the history has them all."""
_ATOM = "http://www.w3.org/2005/Atom"


def atom_feed(trends: Sequence[Trend], pages: Mapping[tuple[str, str], str], newest: float, secret: str) -> bytes:
    """The feed. `pages`: the address of a run's report by host and run; `newest`: start of the newest run, in unix seconds."""
    runs = history_page.changes_by_run(trends)
    feed = ElementTree.Element("feed", {"xmlns": _ATOM})
    _text(feed, "title", "torchmatrix: changes of level")
    _text(feed, "id", _id(secret, "feed"))
    _text(feed, "updated", _time(newest))
    ElementTree.SubElement(feed, "link", {"rel": "self", "type": "application/atom+xml", "href": FILE})
    ElementTree.SubElement(feed, "link", {"rel": "alternate", "type": "text/html", "href": "history.html"})
    _text(ElementTree.SubElement(feed, "author"), "name", "torchmatrix")
    ElementTree.SubElement(feed, "generator", {"version": __version__}).text = "torchmatrix"
    launched = sum(trend.is_launched for trend in trends)
    for (host, run), pairs in list(runs.items())[:MOST_ENTRIES]:
        _entry(feed, _id(secret, host, run), pages.get((host, run), "history.html"), pairs, launched)
    ElementTree.indent(feed, " ")
    return bytes(ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True)) + b"\n"


def _entry(feed: ElementTree.Element, name: str, page: str, pairs: Sequence[tuple[Trend, Change]], launched: int) -> None:
    entry = ElementTree.SubElement(feed, "entry")
    _text(entry, "title", history_page.headline(pairs, launched))
    _text(entry, "id", name)
    _text(entry, "updated", _time(pairs[0][1].started))
    ElementTree.SubElement(entry, "link", {"rel": "alternate", "type": "text/html", "href": page})
    lines = [f"{trend.cell}: {terminal.change_in_words(change)}" for trend, change in pairs]
    _text(entry, "content", "\n".join(map(printable, lines)))


def _text(parent: ElementTree.Element, tag: str, text: str) -> None:
    """XML can't hold control characters."""
    ElementTree.SubElement(parent, tag).text = "\n".join(map(printable, text.split("\n")))


def _id(secret: str, *names: str) -> str:
    digest = hmac.new(secret.encode(), "\0".join(names).encode(errors="replace"), hashlib.sha256).digest()
    return uuid.UUID(bytes=digest[:16], version=5).urn


def _time(seconds: float) -> str:
    """RFC 3339; what has no known time gets the epoch, since the format requires one."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(0 if math.isnan(seconds) else seconds))


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
    found = {badge_address(one.host, one.cell): badge_svg(one) for one in figures}
    found |= {CELLS: _json(map(_figure, figures)), FILE: atom_feed(told, pages, started, secret)}
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
    about = {"state": badge_state(one), "badge": quote(badge_address(one.host, one.cell))}
    return one.as_record() | about | {"figure": with_margin(one) if one.outcome == "ok" else None}


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
