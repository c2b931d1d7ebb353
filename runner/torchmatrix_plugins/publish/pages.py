"""The folders of runs in a site, made from their (redacted) facts; many runs are rendered by several processes."""

import hashlib
import hmac
import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct, ValidationError, convert

from torchmatrix.analysis.prices import PriceList
from torchmatrix.core import __version__
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import content_of
from torchmatrix.core.formatting import clipped, is_known, printable
from torchmatrix.core.process import end_helpers, help_only
from torchmatrix.facts.store import RunFolder
from torchmatrix.facts.wire import Moment
from torchmatrix.machine.cpu import usable_cpus
from torchmatrix.reporting import exports, report
from torchmatrix.reporting.exports import FORMATS
from torchmatrix.reporting.exports.table_set import View
from torchmatrix.reporting.page import Brand, hardware
from torchmatrix.reporting.redaction import Redaction
from torchmatrix.reporting.redaction.identities import Pseudonyms
from torchmatrix.reporting.report import sections

# The address of each run of a site, and the content of earlier publications.

RUNS, ABOUT, FACTS, STATE = "runs", "run.json", "facts.tar.gz", "site.json"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100

Page = dict[str, Any]
"""The content of run.json."""


def permalinks_of(
    target: Path, runs: Sequence[RunFolder], names: Pseudonyms, cleaner: Redaction, redact: bool
) -> dict[RunFolder, str]:
    """Return the permalinks in the order of `runs`: the one that a run already has, else its id, else its id with a number."""
    earlier = known_pages(target)
    for run in runs:
        for event in islice(run.events(), 1):
            cleaner.learn_line(event)
    existing = {
        str(page.get("key")): slug for slug, page in earlier.items() if page.get("redacted") or cleaner.text(slug) == slug
    }
    permalinks: dict[RunFolder, str] = {}
    for run in runs:
        plain = _UNSAFE.sub("-", cleaner.text(run.id)).strip(".-")[:_LONGEST] or "run"
        numbered = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        free = (slug for slug in numbered if slug not in earlier and slug not in permalinks.values())
        permalinks[run] = existing.get(key_of(run, names)) or next(free)
    if state_of(target).get("redacted") and not redact:
        raise BadInput(f"{target} is a redacted site", hint="add --redact, or publish into another folder")
    if redact:
        refuse_bare(target, earlier, now=list(permalinks.values()))
    return permalinks


def known_pages(target: Path) -> dict[str, Page]:
    """Return what earlier publications wrote, by permalink. Raises BadInput if the folder's index isn't ours, or of a later
    torchmatrix.
    """
    if (target / "index.html").exists() and not (target / STATE).exists():
        raise BadInput(f"{target} has an index.html that isn't ours", hint="name another folder; nothing was changed")
    if (written := state_of(target).get("format", FORMAT)) != FORMAT:
        raise BadInput(
            f"{target} was published in the format {clipped(printable(str(written)))}, not {FORMAT}",
            hint="use the torchmatrix that did, or another folder; nothing was changed",
        )
    folders = [path.parent for path in sorted(target.glob(f"{RUNS}/*/{ABOUT}"))]
    return {folder.name: page for folder in folders if (page := read_page(folder))}  # a damaged one is as one that is not there


def read_page(folder: Path) -> Page:
    """Read the run.json of a run's folder; empty if there is none."""
    return _object_in(folder / ABOUT)


def state_of(target: Path) -> Page:
    """Read the site.json of a site; empty if there is none."""
    return _object_in(target / STATE)


class _Answers(Struct):
    lead: str | None = None
    answers: list[dict[str, Any]] | None = None


_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("run", "machine", "host", "hardware", "headline", "key", "fingerprint"), str),
    **dict.fromkeys(("cells", "cells_ok", "launches_not_ok"), int),
    "started_unix_seconds": Moment, "complete": bool, "stacks": list[str], "badges": list[str],
    "answers": _Answers, "facts": dict[str, Any], "sizes": dict[str, int],
    "runs": list[dict[str, Any]],
}  # fmt: skip
"""The types of what is read of run.json and site.json."""


def _object_in(path: Path) -> Page:
    """Read an object, without the fields that are null or have another type than theirs; empty where none can be read."""
    try:
        found = dict(json.loads(content_of(path)))
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        return {}
    return {name: value for name, value in found.items() if value is not None and _is_of(value, _FIELDS.get(name, Any))}


def _is_of(value: Any, kind: Any) -> bool:
    try:
        convert(value, kind)
    except ValidationError:
        return False
    return True


def identity_of(content: bytes) -> dict[str, Any]:
    """Return what tells a reader of site.json whether it already has a file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def key_of(run: RunFolder, names: Pseudonyms) -> str:
    """Return a key that identifies a run of a results folder, but reveals nothing to a reader."""
    text = f"{run.path.parent.name}/{run.id}"
    return hmac.new(names.secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]


def refuse_bare(target: Path, known: Mapping[str, Page], now: Sequence[str] = ()) -> None:
    """Raise BadInput if the site holds folders of runs that aren't redacted, nor published `now`: it is redacted as a whole or
    not at all. A folder left by a killed command has no entry; in a site that was redacted before, it counts as redacted.
    """
    was_redacted = bool(state_of(target).get("redacted"))
    folders = {
        path.name for path in target.glob(f"{RUNS}/*") if path.is_dir() and not (was_redacted and path.name not in known)
    }
    bare = [f"{RUNS}/{slug}" for slug in sorted(folders - set(now)) if not known.get(slug, {}).get("redacted")]
    if bare:
        raise BadInput(
            f"{target} holds {len(bare)} pages that were published without --redact and are not published now",
            hint=f"publish into another folder, or remove them first: {', '.join(bare[:3])}",
        )


# site.json: the list of a site's runs for programs, which can fetch facts and tables without reading a page.

FORMAT = 1
"""Fields may be added; any other change is another format."""


def runs_for_programs(target: Path, known: Mapping[str, Page], redacted: bool) -> dict[str, Any]:
    """Return all runs in the order of their start. Addresses are relative to site.json and percent-encoded."""
    runs = [_run(target, slug, about) for slug, about in known.items()]
    runs.sort(key=lambda run: (run["started_unix_seconds"] or 0.0, run["page"]))
    return {"format": FORMAT, "tool": __version__, "redacted": redacted, "runs": runs}


def _run(target: Path, slug: str, about: Page) -> dict[str, Any]:
    """Return the entry of one run. `machine`: the folder of its runs, which is one machine's only, unlike `host`.
    `facts`: the archive of its facts and its identity; None if somebody has removed it.
    """
    place, archive = f"{RUNS}/{quote(slug)}", target / RUNS / slug / FACTS
    entry = {
        name: about.get(name) for name in ("run", "machine", "host", "started_unix_seconds", "complete", "cells", "cells_ok")
    }
    facts = None
    if archive.is_file():  # an older version's run.json doesn't say
        facts = {"address": f"{place}/{FACTS}"} | (about.get("facts") or identity_of(archive.read_bytes()))
    return entry | {"page": f"{place}/index.html", "tables": f"{place}/tables/", "facts": facts}


FEWEST_RUNS = 4
"""Fewest runs that are shared among processes: a process takes as long to start as two runs take."""
MOST_PROCESSES = 8
"""Most processes: each needs up to half a gigabyte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingRun:
    """A run to be rendered. `copy`: its redacted facts, below the folder `place`, which is this copy's only."""

    number: int
    run: RunFolder
    slug: str
    copy: RunFolder
    place: Path


Rendered = tuple[PendingRun, Page, dict[str, bytes]]


def rendered(waiting: Iterable[PendingRun], count: int, price_list: PriceList, brand: Brand) -> Iterator[Rendered]:
    """Yield the pages of these runs, `count` in all, in their order. Copies are made as they are needed, a few ahead."""
    processes = min(usable_cpus(), MOST_PROCESSES)
    if count < FEWEST_RUNS or processes < 2:
        for item in waiting:
            yield item, *of_run(item.copy, price_list, brand)
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=help_only, initargs=(os.getpid(),))
    try:
        yield from _rendered_in_pool(pool, waiting, 2 * processes, price_list, brand)
    except BrokenProcessPool:
        raise EngineUnusable(
            "a process that rendered pages was ended", hint="free memory, then publish again: what is finished stays"
        ) from None
    finally:
        end_helpers()
        pool.shutdown(cancel_futures=True)


def _rendered_in_pool(
    pool: ProcessPoolExecutor, waiting: Iterable[PendingRun], ahead: int, price_list: PriceList, brand: Brand
) -> Iterator[Rendered]:
    pending: deque[tuple[PendingRun, Future[tuple[Page, dict[str, bytes]]]]] = deque()
    for item in waiting:
        pending.append((item, pool.submit(of_run, item.copy, price_list, brand)))
        if len(pending) > ahead:
            first, result = pending.popleft()
            yield first, *result.result()
    for first, result in pending:
        yield first, *result.result()


WORDS = ("csv", "json")
"""The formats of a site's tables."""
_LINKS = {"All runs": "../../index.html", "Facts": FACTS}


def of_run(run: RunFolder, price_list: PriceList, brand: Brand) -> tuple[Page, dict[str, bytes]]:
    """Return the index entry of a run, and the files of its folder by name."""
    view = report.view_of(run, price_list=price_list)
    files = as_files(exports.of(view))
    archive = exports.facts_archive(run).data
    assert archive is not None  # there is no limit
    files[FACTS] = archive
    page = report.rendered(view, _LINKS, brand=brand, is_published=True)
    files |= {"index.html": page.text.encode(), **page.charts}
    return _summary(view, page.answers.lead) | {
        "unreadable": len(page.unreadable),
        "answers": page.answers.as_record(),
        "machine": run.path.parent.name,
        "facts": identity_of(archive),
    }, files


def as_files(tables: exports.Tables) -> dict[str, bytes]:
    """Return the tables by their place in the site's folder, and the meanings of their columns."""
    every = {**tables.values, "columns": exports.described(tables.values)}
    return {place_of(name, word): FORMATS[word](name, table) for name, table in every.items() for word in WORDS}


def place_of(name: str, word: str) -> str:
    """Return the place of a table, below the folder of the run or of the site."""
    return f"tables/{name}.{word}"


def _summary(view: View, lead: str) -> Page:
    host, started, cells = view.record.host, view.record.unix_seconds, view.every_cell
    return {
        "run": view.id,
        "started_unix_seconds": started if is_known(started) else None,
        "host": host.get("name"),
        "hardware": hardware(host),
        "stacks": list(dict.fromkeys(row.of.stack for row in cells)),
        "cells": len(cells),
        "cells_ok": sum(row.n > 0 for row in cells),
        "launches_not_ok": view.not_ok,
        "complete": view.record.complete,
        "headline": f"{lead} {sections.state(view)}",
    }
