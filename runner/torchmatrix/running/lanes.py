"""Run launches of several lanes at the same time, and merge their progress; what must be alone takes its turn."""

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from torchmatrix.engines.engine import Execution
from torchmatrix.running.news import News

# What launches that run at once share: whose turn it is, who ran beside whom, and how all of them are ended.

_LOOK_SECONDS = 1.0
"""How often a lane that waits for its turn looks whether the run is over."""


class Turns:
    """Turns of the lanes of one run. Safe for threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._beside: dict[str, set[str]] = {}
        self._waiting_alone = 0
        self._is_alone = False
        self._executions: list[Execution] = []
        self._over = threading.Event()

    @property
    def are_over(self) -> bool:
        """Whether `end` was called: what ends now did not end by itself."""
        return self._over.is_set()

    @contextmanager
    def taken(self, cell: str, *, alone: bool) -> Iterator[None]:
        """Wait for the turn of a cell and hold it. `alone`: nothing else runs meanwhile. Raises KeyboardInterrupt at the end.

        Whoever must be alone comes before those that don't wait yet: else lanes that follow closely would never let it in.
        """
        with self._changed:
            self._wait(alone)
            others = self._beside.keys()
            for own in self._beside.values():
                own.add(cell)
            self._beside[cell] = set(others)
            self._is_alone = alone
        try:
            yield
        finally:
            with self._changed:
                del self._beside[cell]
                self._is_alone = False
                self._changed.notify_all()

    def _wait(self, alone: bool) -> None:
        self._waiting_alone += alone
        try:
            while self._is_alone or (self._beside if alone else self._waiting_alone):
                self._changed.wait(timeout=_LOOK_SECONDS)
                self._refuse_when_over()
            self._refuse_when_over()
        finally:
            self._waiting_alone -= alone

    def _refuse_when_over(self) -> None:
        if self.are_over:
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the end."""
        self._over.wait(seconds)

    def beside(self, cell: str) -> list[str]:
        """The cells that ran at some moment of the turn that `cell` holds."""
        with self._changed:
            return sorted(self._beside.get(cell, ()))

    @contextmanager
    def covering(self, execution: Execution) -> Iterator[None]:
        """Make `end` reach a running launch."""
        with self._changed:
            self._executions.append(execution)
            is_late = self.are_over
        if is_late:
            _stop(execution)
        try:
            yield
        finally:
            with self._changed:
                self._executions.remove(execution)

    def end(self) -> None:
        """No further turn is given; what runs is stopped, all at once."""
        with self._changed:
            self._over.set()
            running = list(self._executions)
            self._changed.notify_all()
        stopping = [threading.Thread(target=_stop, args=(execution,), daemon=True) for execution in running]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()


def _stop(execution: Execution) -> None:
    with suppress(Exception):  # it may just have ended by itself
        execution.stop()


# Several lanes of launches at once: a thread for each, and one queue of news.

PATIENCE_SECONDS = 60.0
"""How long an interrupted run waits for a lane: an engine gives a launch ten seconds to end before it ends it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Over:
    """The end of a lane; `error`: what ended it, if it did not end by itself."""

    error: BaseException | None


_Told = queue.Queue[News | _Over]


def run_concurrently(lanes: Sequence[Iterable[News]], turns: Turns) -> Iterator[News]:
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
