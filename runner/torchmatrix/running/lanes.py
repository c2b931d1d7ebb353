"""Run launches of several lanes concurrently and merge their progress events; some launches must run alone."""

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from torchmatrix.engines.engine import Execution
from torchmatrix.running.progress import ProgressEvent

# The lock: which launches may run now, which ran at the same time, and how all of them are ended.

_LOOK_SECONDS = 1.0
"""The interval at which a waiting lane checks whether the run is over."""


class LaneLock:
    """The lock that the lanes of one run share: several launches hold it at once, or one alone. Safe for threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._neighbours: dict[str, set[str]] = {}
        self._waiting_alone = 0
        self._is_alone = False
        self._executions: list[Execution] = []
        self._ended = threading.Event()

    @property
    def is_ended(self) -> bool:
        """Check whether `end` was called; a launch that ends now did not end by itself."""
        return self._ended.is_set()

    @contextmanager
    def hold(self, cell: str, *, alone: bool) -> Iterator[None]:
        """Wait for the lock and hold it for a launch of `cell`. Raises KeyboardInterrupt at the end.

        `alone`: nothing else runs meanwhile. Such a launch goes before launches that don't wait yet: else busy lanes would
        never let it in.
        """
        with self._changed:
            self._wait(alone)
            others = set(self._neighbours)
            for neighbours in self._neighbours.values():
                neighbours.add(cell)
            self._neighbours[cell] = others
            self._is_alone = alone
        try:
            yield
        finally:
            with self._changed:
                del self._neighbours[cell]
                self._is_alone = False
                self._changed.notify_all()

    def _wait(self, alone: bool) -> None:
        self._waiting_alone += alone
        try:
            while not self.is_ended and (self._is_alone or (self._neighbours if alone else self._waiting_alone)):
                self._changed.wait(timeout=_LOOK_SECONDS)
        finally:
            self._waiting_alone -= alone
        if self.is_ended:
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the end."""
        self._ended.wait(seconds)

    def neighbours(self, cell: str) -> list[str]:
        """Return the cells that ran at some moment while `cell` has held the lock."""
        with self._changed:
            return sorted(self._neighbours.get(cell, ()))

    @contextmanager
    def stopping(self, execution: Execution) -> Iterator[None]:
        """Let `end` stop this running launch."""
        with self._changed:
            self._executions.append(execution)
            is_late = self.is_ended
        if is_late:
            _stop(execution)
        try:
            yield
        finally:
            with self._changed:
                self._executions.remove(execution)

    def end(self) -> None:
        """Let no further launch begin, and stop all running launches at the same time."""
        with self._changed:
            self._ended.set()
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


# Concurrent lanes: a thread for each, and one queue of progress events.

PATIENCE_SECONDS = 60.0
"""The time that an interrupted run waits for a lane: an engine gives a launch ten seconds to end before killing it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _LaneEnd:
    """The end of a lane; `error`: what ended it, if it did not end by itself."""

    error: BaseException | None


_Events = queue.Queue[ProgressEvent | _LaneEnd]


def run_concurrently(lanes: Sequence[Iterable[ProgressEvent]], lock: LaneLock) -> Iterator[ProgressEvent]:
    """Yield the progress events of all lanes, which begin together, as they come.

    An error in one lane, or the end of this iterator, ends the other lanes; finished launches stay.
    """
    events: _Events = queue.Queue()
    begin = threading.Barrier(len(lanes))
    threads = [threading.Thread(target=_run_lane, args=(lane, events, lock, begin), daemon=True, name="lane") for lane in lanes]
    for thread in threads:
        thread.start()
    running, ended = len(threads), False
    try:
        while running:
            event = events.get()
            if not isinstance(event, _LaneEnd):
                yield event
                continue
            running -= 1
            if event.error:
                raise event.error
        ended = True
    finally:
        if not ended:
            lock.end()
        for thread in threads:
            thread.join(timeout=PATIENCE_SECONDS)


def _run_lane(lane: Iterable[ProgressEvent], events: _Events, lock: LaneLock, begin: threading.Barrier) -> None:
    """Queue a lane's events. A lane closed between two events records its launch as interrupted, as without threads."""
    failure: BaseException | None = None
    try:
        begin.wait()
        for event in lane:
            events.put(event)
            if lock.is_ended:
                break
        if lock.is_ended and hasattr(lane, "close"):
            lane.close()
    except BaseException as error:  # whatever it is, the run's own thread raises it
        failure = error
    events.put(_LaneEnd(error=failure))
