"""The folders of runs in a site, made from their (redacted) facts; of many runs in several processes."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from torchmatrix.analysis.prices import PriceList
from torchmatrix.facts.store import RunFolder
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.formatting import is_known
from torchmatrix.ground.process import help_only
from torchmatrix.machine.cpu import usable_cpus
from torchmatrix.reporting import exports, report
from torchmatrix.reporting.exports import FORMATS
from torchmatrix.reporting.report import sections
from torchmatrix.reporting.site import permalinks
from torchmatrix.reporting.site.permalinks import FACTS, Page
from torchmatrix.reporting.view import View

FEWEST_RUNS = 4
"""So many runs, or more, are shared among processes: each takes as long to start as two runs take."""
MOST_PROCESSES = 8
"""Each needs up to half a gigabyte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A run to be rendered. `copy`: its facts as they may be shown, below the folder `place`, which is this copy's only."""

    number: int
    run: RunFolder
    slug: str
    copy: RunFolder
    place: Path


Rendered = tuple[Waiting, Page, dict[str, bytes]]


def rendered(waiting: Iterable[Waiting], count: int, held: PriceList) -> Iterator[Rendered]:
    """The pages of these runs, `count` in all, in their order. Copies are made as they are needed, a few ahead."""
    processes = min(usable_cpus(), MOST_PROCESSES)
    if count < FEWEST_RUNS or processes < 2:
        for one in waiting:
            yield one, *of_run(one.copy, held)
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=help_only, initargs=(os.getpid(),))
    try:
        yield from _shared(pool, waiting, 2 * processes, held)
    except BrokenProcessPool:
        raise EngineUnusable(
            "a process that rendered pages was ended", hint="free memory, then publish again: what is finished stays"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _shared(pool: ProcessPoolExecutor, waiting: Iterable[Waiting], ahead: int, held: PriceList) -> Iterator[Rendered]:
    pending: deque[tuple[Waiting, Future[tuple[Page, dict[str, bytes]]]]] = deque()
    for one in waiting:
        pending.append((one, pool.submit(of_run, one.copy, held)))
        if len(pending) > ahead:
            first, result = pending.popleft()
            yield first, *result.result()
    for first, result in pending:
        yield first, *result.result()


WORDS = ("csv", "json")
"""The formats of a site's tables."""
_BESIDE = {"All runs": "../../index.html", "Facts": FACTS}


def of_run(run: RunFolder, held: PriceList) -> tuple[Page, dict[str, bytes]]:
    """The index entry of a run, and the files of its folder by name."""
    view = report.view_of(run)
    files = as_files(exports.of(view, held))
    archive = exports.facts_archive(run).data
    assert archive is not None  # there is no limit
    files[FACTS] = archive
    made = report.rendered(view, _BESIDE, held)
    files["index.html"] = made.text.encode()
    return _summary(view, made.answers.lead) | {
        "answers": made.answers.as_record(),
        "machine": run.path.parent.name,
        "facts": permalinks.identity_of(archive),
    }, files


def as_files(tables: exports.Tables) -> dict[str, bytes]:
    """The tables by their place in the site's folder, and what their columns mean."""
    every = {**tables.values, "columns": exports.described(tables.values)}
    return {place_of(name, word): FORMATS[word](name, table) for name, table in every.items() for word in WORDS}


def place_of(name: str, word: str) -> str:
    """Of a table, below the folder of the run or of the site."""
    return f"tables/{name}.{word}"


def _summary(view: View, lead: str) -> Page:
    host, started = view.record.host, view.record.unix_seconds
    cells = view.every_cell
    return {
        "run": view.id,
        "started_unix_seconds": started if is_known(started) else None,
        "host": host.get("name"),
        "hardware": _hardware(host),
        "stacks": list(dict.fromkeys(row["stack"] for row in cells)),
        "cells": len(cells),
        "cells_ok": sum(row["n"] > 0 for row in cells),
        "launches_not_ok": view.not_ok,
        "complete": view.record.complete,
        "headline": f"{lead} {sections.state(view)}",
    }


def _hardware(host: Mapping[str, Any]) -> str:
    """The hardware, such as "4 × NVIDIA H200", or the CPU."""
    names = [str(gpu.get("name")) for gpu in host.get("gpus") or ()]
    counted = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    return ", ".join(counted) or str(host.get("cpu") or "unknown hardware")
