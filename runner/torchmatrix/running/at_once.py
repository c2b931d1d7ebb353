"""Several lanes of launches at once: a thread for each, and one queue of news."""

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torchmatrix.running.news import News
from torchmatrix.running.turns import Turns

PATIENCE_SECONDS = 60.0
"""How long an interrupted run waits for a lane: an engine gives a launch ten seconds to end before it ends it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Over:
    """The end of a lane; `error`: what ended it, if it did not end by itself."""

    error: BaseException | None


_Told = queue.Queue[News | _Over]


def drained(lanes: Sequence[Iterable[News]], turns: Turns) -> Iterator[News]:
    """The news of all lanes, which begin together, as they come.

    What ends one of them, or this iterator, ends the others; what is finished stays.
    """
    told: _Told = queue.Queue()
    begin = threading.Barrier(len(lanes))
    threads = [threading.Thread(target=_drain, args=(lane, told, turns, begin), daemon=True, name="lane") for lane in lanes]
    for thread in threads:
        thread.start()
    running, ended = len(threads), False
    try:
        while running:
            item = told.get()
            if not isinstance(item, _Over):
                yield item
                continue
            running -= 1
            if item.error:
                raise item.error
        ended = True
    finally:
        if not ended:
            turns.end()
        for thread in threads:
            thread.join(timeout=PATIENCE_SECONDS)


def _drain(lane: Iterable[News], told: _Told, turns: Turns, begin: threading.Barrier) -> None:
    """A lane that is closed between two pieces of news records the launch that it leaves as interrupted, as without threads."""
    found: BaseException | None = None
    try:
        begin.wait()
        for item in lane:
            told.put(item)
            if turns.are_over:
                break
        if turns.are_over and hasattr(lane, "close"):
            lane.close()
    except BaseException as error:  # whatever it is, the run's own thread raises it
        found = error
    told.put(_Over(error=found))
