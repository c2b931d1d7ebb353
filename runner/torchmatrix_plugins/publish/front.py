"""The root of a site: the machines compared, the newest nights and figures, all runs, their history."""

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

from msgspec import structs

from torchmatrix.analysis import facts_cache, history, machines
from torchmatrix.analysis.history import Change, Newest, Trend
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import LaunchRow, group_by
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.core import __version__
from torchmatrix.core.files import scratch
from torchmatrix.core.formatting import figure, is_known, printable, without_nan
from torchmatrix.facts.environments import fields_of
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting import exports, history_page, machines_page, page, redaction, terminal
from torchmatrix.reporting.exports.columns import MACHINE_TABLES as TABLES
from torchmatrix.reporting.page import Brand, recorded, utc
from torchmatrix.reporting.redaction import Redaction
from torchmatrix_plugins.publish.pages import RUNS, WORDS, Page, as_files, place_of

# Badges: a small image for every cell, for other pages: left the cell, right its newest figure and date.
#
# badges/MACHINE/CELL.svg: red without a number if the newest launch failed, grey if a newer run didn't launch the cell.

FOLDER = "badges"
_COLOURS = {"ok": "#0b6bcb", "failed": "#b42318", "stale": "#656d76"}
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST = 100
_NARROW, _WIDE = frozenset("fijlrtI.,:;|'!()[]-/ "), frozenset("mwMW%@±")
_PADDING = 6


def badge_address(host: str, cell: str) -> str:
    """Return the address of a cell's badge, relative to the site: stable, and safe as a path and in a link."""
    return "/".join([FOLDER, *map(_safe, (host, *PurePosixPath(cell).parts))]) + ".svg"


def badge_svg(newest: Newest) -> bytes:
    """Draw the badge of a cell."""
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
    """Return ok, failed or stale."""
    return "failed" if newest.outcome != "ok" else "stale" if newest.is_stale else "ok"


def badge_text(newest: Newest) -> str:
    """Write a badge's text such as "2412 ± 8.3 images/s · 2026-03-01"."""
    day = "n/a" if math.isnan(newest.started) else time.strftime("%Y-%m-%d", time.gmtime(newest.started))
    what = f"failed: {newest.outcome}" if newest.outcome != "ok" else f"{with_margin(newest)} {newest.unit}/s"
    return f"{what} · {'stale, ' if newest.is_stale else ''}{day}"


def with_margin(newest: Newest) -> str:
    """Write the figure ± half its interval; alone if it has none."""
    half = (newest.high - newest.low) / 2
    return figure(newest.throughput) + ("" if math.isnan(half) else f" ± {float(f'{half:.2g}'):g}")


def _devices(label: str) -> str:
    """Write the devices as in the cell's id; a row of three numbers or more by its ends: gpu0+1+2+3 is gpu0–3."""
    match = re.fullmatch(r"(\D+)(\d+(?:\+\d+){2,})", label)
    if not match:
        return label
    numbers = [int(number) for number in match[2].split("+")]
    is_row = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return f"{match[1]}{numbers[0]}–{numbers[-1]}" if is_row else label


def _safe(name: str) -> str:
    """Return the name if it is safe; else its safe part with enough of its hash to be unique."""
    plain = _UNSAFE.sub("-", name).strip(".-")[:_LONGEST]
    return plain if plain == name else f"{plain or 'cell'}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"


def _width(text: str) -> int:
    """Estimate the width in a sans-serif of 11 pixels; the image tells the browser to make it fit."""
    return round(sum(4.0 if character in _NARROW else 9.5 if character in _WIDE else 6.8 for character in text))


# changes.xml: the changes of level as an Atom feed (RFC 4287), one entry per run that changed any cell's level.
#
# Ids follow from the site's secret, the host and the run, so that a reader sees an entry once, wherever the site is served.

FILE = "changes.xml"
MOST_ENTRIES = 50
"""Most entries of the feed, the newest; the page of the history has them all."""
_ATOM = "http://www.w3.org/2005/Atom"


def atom_feed(trends: Sequence[Trend], pages: Mapping[tuple[str, str], str], home: str, newest: float, secret: str) -> bytes:
    """Write the feed. `pages`: a run's report by host and run; `home`: that of the feed; `newest`: start of the newest run, in
    unix seconds.
    """
    runs = history_page.changes_by_run(trends)
    feed = ElementTree.Element("feed", {"xmlns": _ATOM})
    _text(feed, "title", "torchmatrix: changes of level")
    _text(feed, "id", _id(secret, "feed"))
    _text(feed, "updated", _time(newest))
    ElementTree.SubElement(feed, "link", {"rel": "self", "type": "application/atom+xml", "href": FILE})
    ElementTree.SubElement(feed, "link", {"rel": "alternate", "type": "text/html", "href": home})
    _text(ElementTree.SubElement(feed, "author"), "name", "torchmatrix")
    ElementTree.SubElement(feed, "generator", {"version": __version__}).text = "torchmatrix"
    launched = sum(trend.is_launched for trend in trends)
    for (host, run), pairs in list(runs.items())[:MOST_ENTRIES]:
        _entry(feed, _id(secret, host, run), pages.get((host, run), home), pairs, launched)
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
    """Add an element with a text, without control characters, which XML can't hold."""
    ElementTree.SubElement(parent, tag).text = "\n".join(map(printable, text.split("\n")))


def _id(secret: str, *names: str) -> str:
    digest = hmac.new(secret.encode(), "\0".join(names).encode(errors="replace"), hashlib.sha256).digest()
    return uuid.UUID(bytes=digest[:16], version=5).urn


def _time(seconds: float) -> str:
    """Write a time as RFC 3339; an unknown time becomes the epoch, since the format requires one."""
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
    entries: Mapping[str, Page],
    cleaner: Redaction,
    price_list: PriceList,
    brand: Brand,
    secret: str,
) -> dict[str, bytes]:
    """Return the contents by name. `links`: the permalinks of the runs published now; `entries`: all runs of the site."""
    notes = history.Sightings()
    cleaned = (_cleaned(run, cleaner) for run in facts_cache.each(results, list(links)))
    trends = history.trends(history.series(history.noted(cleaned, notes)))
    figures, started = (
        history.of(notes),
        max((run.started for run in notes.last.values() if is_known(run.started)), default=0.0),
    )
    pages = {(cleaner.named("host", run.path.parent.name), cleaner.text(run.id)): _page_of(slug) for run, slug in links.items()}
    contents = {badge_address(newest.host, newest.cell): badge_svg(newest) for newest in figures}
    has_trends = len(links) > 1
    feed = atom_feed(trends, pages, HISTORY if has_trends else "index.html", started, secret)
    contents |= {CELLS: _json(map(_figure, figures)), FILE: feed}
    if has_trends:
        contents[HISTORY] = history_page.render(trends, {**_ABOVE, "JSON": HISTORY_DATA}).encode()
        contents[HISTORY_DATA] = _json(trend.as_record() for trend in trends)
    context = _context(trends, figures, entries, pages, cleaner.enabled) | {"has_history": HISTORY in contents}
    tables = {name: context[name] for name in ("hosts", "nights", "models", "rows")}
    contents[FRONT_DATA] = json.dumps(without_nan(tables), indent=1).encode()
    alone = {"index.html": page.render("site.html.j2", site=context, newest=_newest(entries), brand=brand).encode()}
    return contents | (_comparison(links, cleaner, price_list, brand, context) or alone)


def _comparison(
    links: Mapping[RunFolder, str], cleaner: Redaction, price_list: PriceList, brand: Brand, site: Mapping[str, Any]
) -> dict[str, bytes]:
    """Render the page of the machines, if there are several, with the site's sections; and its tables."""
    chosen = machines.newest_complete(list(links))
    if len(chosen) < 2:
        return {}
    with scratch() as temporary:
        shown = redaction.staged_choice(chosen, cleaner, temporary)
        pages = {copy.machine.id: _page_of(links[choice.run]) for copy, choice in zip(shown, chosen, strict=True)}
        fleet, relative = machines_page.compared(shown, price_list=price_list)
        tables = as_files(exports.of_machines(fleet, relative))
        view = machines_page.shown_of(fleet, relative)
        text = machines_page.page_of(fleet, relative, pages=pages, site=site, brand=brand, shown=view)
        apart = machines_page.charts_apart(fleet, view, brand)
        return tables | apart | {"index.html": text.encode()}


def _context(
    trends: Sequence[Trend],
    figures: Sequence[Newest],
    entries: Mapping[str, Page],
    pages: Mapping[tuple[str, str], str],
    redacted: bool,
) -> dict[str, Any]:
    rows = [_row(slug, about) for slug, about in entries.items()]
    rows.sort(key=lambda row: (row["started_unix_seconds"] or 0.0, row["run"]), reverse=True)
    nights = [
        night | {"page": pages.get((night["host"], night["run"]))} for night in history_page.runs_of(trends)[:MOST_NIGHTS]
    ]
    shown = figures[:MOST_CELLS]
    return {
        "rows": rows,
        "redacted": redacted,
        "hosts": _hosts(rows),
        "nights": nights,
        "models": _models(figures),
        "figures": {
            host: [_figure(newest) for newest in shown if newest.host == host]
            for host in dict.fromkeys(newest.host for newest in shown)
        },
        "more_figures": len(figures) - len(shown),
    }


def _newest(entries: Mapping[str, Page]) -> dict[str, Any] | None:
    """Return the answers of the newest complete run, and its page; None if an older version wrote its folder."""
    runs = [(about.get("started_unix_seconds") or 0.0, slug) for slug, about in entries.items() if about.get("complete")]
    slug = max(runs)[1] if runs else ""
    answers = entries[slug].get("answers") if runs else None
    if not isinstance(answers, dict):
        return None
    found: dict[str, Any] = recorded({**answers, "each": answers.get("answers"), "page": _page_of(slug)})
    return found


def _hosts(rows: Sequence[Page]) -> list[Page]:
    """Return the newest run of each machine, which describes its hardware, with the number of its runs."""
    hosts: dict[str, Page] = {}
    for row in rows:
        hosts.setdefault(row["machine"], row | {"runs": 0})["runs"] += 1
    return list(hosts.values())


def _models(figures: Sequence[Newest]) -> list[dict[str, Any]]:
    """Return the models that were trained or run, with their GPUs and cells."""
    by_model = group_by(figures, lambda newest: (newest.model, newest.mode))
    return [
        {
            "model": model,
            "mode": mode,
            "devices": list(dict.fromkeys(filter(None, map(_device, cells)))),
            "cells": len(cells),
            "ok": sum(cell.outcome == "ok" for cell in cells),
        }
        for (model, mode), cells in sorted(by_model.items())
    ]


def _device(newest: Newest) -> str | None:
    """Return the cell's device; None for a GPU that no launch of the cell named."""
    return newest.device_name or ("CPU" if newest.devices.startswith("cpu") else None)


def _figure(newest: Newest) -> dict[str, Any]:
    """Return a row of newest.json."""
    about = {"state": badge_state(newest), "badge": quote(badge_address(newest.host, newest.cell))}
    return newest.as_record() | about | {"figure": with_margin(newest) if newest.outcome == "ok" else None}


_WORDS = frozenset(
    {"model", "mode", "unit", "precision", "statistic", "parallel", "accelerator", "source", "variant", "device_name"}
)
"""The fields of a launch's row that reveal nothing."""


def _cleaned(run: RunSummary, cleaner: Redaction) -> RunSummary:
    """Redact the summary of a run."""
    declared = {stack: fields_of(environment) for stack, environment in run.environments.items()}
    for stack, environment in run.environments.items():
        cleaner.learn(environment, declared[stack])
    cleaner.learn([structs.asdict(row) for row in run.launches])
    environments = {stack: cleaner.declared(environment, declared[stack]) for stack, environment in run.environments.items()}
    return replace(
        run,
        id=cleaner.text(run.id),
        host=cleaner.named("host", run.host),
        planned=tuple(map(cleaner.cell, run.planned)),
        skipped={cleaner.cell(cell): cleaner.text(reason) for cell, reason in run.skipped.items()},
        environments={
            cleaner.text(stack): {cleaner.text(label): words for label, words in environment.items()}
            for stack, environment in environments.items()
        },
        launches=tuple(_cleaned_row(row, cleaner) for row in run.launches),
    )


_MESSAGES = frozenset({"error", "unchecked", "only_seen"})
"""The fields of a launch's row that may quote a workload, an engine or a build."""


def _cleaned_row(row: LaunchRow, cleaner: Redaction) -> LaunchRow:
    """Redact a launch's row; without what was said of it unless messages are wanted: it doesn't tell whose words they are."""
    columns = structs.asdict(row)
    if not cleaner.with_messages:
        columns |= {name: redaction.WITHHELD for name in _MESSAGES if columns[name]}
    return type(row)(**cleaner.value(columns, _WORDS))


def _page_of(slug: str) -> str:
    return f"{RUNS}/{quote(slug)}/index.html"


def _json(rows: Iterator[Any]) -> bytes:
    return ("[" + ",".join("\n" + json.dumps(row, allow_nan=False) for row in rows) + "\n]\n").encode()


def _row(slug: str, about: Page) -> Page:
    """Return an entry with every key that the template uses: an older version may have written the folder."""
    empty = dict.fromkeys(("run", "hardware", "headline"), "n/a") | {"stacks": [], "complete": True}
    started = about.get("started_unix_seconds")
    number = started if isinstance(started, (int, float)) else None
    counts = {name: about.get(name, "n/a") for name in ("cells", "cells_ok", "launches_not_ok")}
    place, machine = f"{RUNS}/{quote(slug)}", about.get("machine") or about.get("host") or "n/a"
    derived = {"machine": machine, "place": place, "started": utc(number), "started_unix_seconds": number}
    return {name: value for name, value in (empty | about | counts | derived).items() if name != "answers"}
