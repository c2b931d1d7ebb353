"""Choice of the attempts that are made, in which order and side by side, until the time is over."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from random import Random
from threading import Lock
from time import monotonic

from faults.attempts import Attempt, Result, in_own_process
from faults.kinds import Kind
from faults.workplace import workplace

SHARE_OF_FAULTS = 0.65
"""Of the time; the rest is for bad input, if there is any."""
ENOUGH_INPUTS = 120_000
"""A whole bench ends with so many bad inputs, if not earlier."""
Makes = Callable[[Kind, int], Attempt]


@dataclass(kw_only=True)
class Bench:
    """One bench of some kinds. `made`: the attempts so far, with what they showed."""

    seed: int
    seconds: float
    kinds: Sequence[Kind]
    made: list[tuple[Attempt, Result]] = field(default_factory=list)
    _is_over: bool = False
    _lock: Lock = field(default_factory=Lock)

    @property
    def failures(self) -> list[tuple[Attempt, Result]]:
        """Return the attempts in which the tool did not hold."""
        return [(attempt, result) for attempt, result in self.made if result.failure]

    def of(self, kind: Kind) -> list[Result]:
        """Return the results of one kind."""
        return [result for attempt, result in self.made if attempt.kind == kind.name]

    @property
    def inputs(self) -> int:
        """Return the number of bad inputs that were tried."""
        return sum(result.tried for kind in self.kinds if kind.is_input for result in self.of(kind))

    def run(self, number: int | None = None) -> None:
        """Make all attempts that time allows, one per processor at a time; or only the attempts with one `number`.

        Those that start a daemon of their own are made one after the other, beside the rest.
        """
        begin = monotonic()
        usual = _usual_seconds() if any(not kind.is_input for kind in self.kinds) else 0.0

        def make(kind: Kind, number: int) -> Attempt:
            return Attempt(kind=kind.name, number=number, seed=self.seed, usual_seconds=usual)

        if number is None:
            self._run_lanes(make, begin)
        else:
            self._work_off(iter([make(kind, number) for kind in self.kinds]))

    def _run_lanes(self, make: Makes, begin: float) -> None:
        on_engine = [kind for kind in self.kinds if "engine" in kind.needs]
        rest = [kind for kind in self.kinds if "engine" not in kind.needs]
        lanes = [self._attempts(rest, make, begin)] * (os.cpu_count() or 1)
        lanes += [_before(begin + self.seconds, self._order(on_engine), make)] if on_engine else []
        with ThreadPoolExecutor(len(lanes)) as pool:
            try:
                for done in [pool.submit(self._work_off, lane) for lane in lanes]:
                    done.result()
            finally:
                self._is_over = True

    def _work_off(self, attempts: Iterator[Attempt]) -> None:
        """Make one attempt after the other; several lanes may share them."""
        while not self._is_over:
            with self._lock:
                attempt = next(attempts, None)
            if attempt is None:
                return
            result = in_own_process(attempt)
            self.made.append((attempt, result))
            print(_in_words(attempt, result), flush=True)

    def _attempts(self, kinds: Sequence[Kind], make: Makes, begin: float) -> Iterator[Attempt]:
        """Yield faults, then bad input at each border in turn until it is enough, then the faults that are left."""
        faults, inputs = ([kind for kind in kinds if kind.is_input is wanted] for wanted in (False, True))
        end = begin + self.seconds
        left = self._order(faults)
        yield from _before(begin + self.seconds * (SHARE_OF_FAULTS if inputs else 1.0), left, make)
        for number in count() if inputs else ():
            for kind in inputs:
                if monotonic() > end:
                    return
                if self.inputs >= ENOUGH_INPUTS:
                    yield from _before(end, left, make)
                    return
                yield make(kind, number)

    def _order(self, kinds: Sequence[Kind]) -> deque[tuple[Kind, int]]:
        """Return each kind once, in an order that the seed decides; then all further attempts, evenly spread by kind."""
        order = list(kinds)
        Random(self.seed).shuffle(order)
        attempts = [(kind, number) for number in range(max((k.attempts for k in order), default=0)) for kind in order]
        wanted = [(kind, number) for kind, number in attempts if number < kind.attempts]
        return deque(sorted(wanted, key=lambda attempt: attempt[1] / attempt[0].attempts))


def _before(deadline: float, left: deque[tuple[Kind, int]], make: Makes) -> Iterator[Attempt]:
    """Yield what is `left`, taken from it, as long as there is time."""
    while left and monotonic() < deadline:
        yield make(*left.popleft())


def _in_words(attempt: Attempt, result: Result) -> str:
    """Return a line; if the tool did not hold, also why, and how to see it again."""
    line = f"{attempt.kind} #{attempt.number}: {result.tried} in {result.seconds:.0f} s"
    return f"\n{line} did not hold:\n{result.failure}\nagain: {attempt.again}\n" if result.failure else f"{line} held"


def _usual_seconds() -> float:
    """Return how many seconds an undisturbed run takes on this machine now."""
    with workplace(Random(), 0.0) as place:
        begin = monotonic()
        place.call()
        return monotonic() - begin
