"""Many runs -> their pages, in several processes where that pays: a page costs a second of computing."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from torchmatrix.analysis.prices import PriceList
from torchmatrix.facts.store import RunFolder
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.sharing import help_only
from torchmatrix.machine.quota import usable_cpus
from torchmatrix.reporting.site import pages
from torchmatrix.reporting.site.permalinks import Page

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
            yield one, *pages.of_run(one.copy, held)
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
        pending.append((one, pool.submit(pages.of_run, one.copy, held)))
        if len(pending) > ahead:
            first, result = pending.popleft()
            yield first, *result.result()
    for first, result in pending:
        yield first, *result.result()
