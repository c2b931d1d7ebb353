"""Which runs the gate needs: the one to judge and the nights before it, read from the index."""

import math
from collections.abc import Sequence

from torchmatrix.analysis import facts_cache
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.facts.run_words import host_of, select
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.ground.errors import BadInput, NothingSelected
from torchmatrix.nightly.gate import is_night_of

LONGEST = 120
"""So many nights are read: a regression that nobody accepted is told for as long, and a slow drift has as much time."""
_LOOK_BACK = 4
"""So many times the runs that are needed are looked through at most, where some of them are no nights (see is_night_of)."""


def read(
    results: Results, word: str = "last", nights: int = 7, baseline: str | None = None, host: str | None = None
) -> list[RunSummary]:
    """The runs for gate.judge, oldest first: the nights before, and last the run that `word` names.

    These are LONGEST, or as many as make the baseline; first comes the run that `baseline` names, with the nights since then.
    Words are those of run_words.select. Raises BadInput, and NothingSelected if there is no run at all.
    """
    if not results.runs():
        raise NothingSelected(
            f"no runs in {results.root}", hint="measure twice, then compare: torchmatrix run, torchmatrix gate"
        )
    folder = _one(select(results, word, host=host), word)
    here = select(results, "all", host=host_of(folder))
    earlier = [run for run in here[: [run.path for run in here].index(folder.path)] if not math.isnan(run.started)]
    (judged,) = facts_cache.read(results, [folder])
    count = max(LONGEST, nights)
    if baseline is None:
        if math.isnan(folder.started):
            hint = "name the run to compare it with: --baseline RUN"
            raise BadInput(f"it isn't known when {folder.id} began, so not which nights were before it", hint=hint)
        return [*_nights(results, earlier, judged, count), judged]
    named = _one(select(results, baseline, host=host_of(folder)), baseline)
    if named.path == folder.path:
        raise BadInput(f"{named.id} is the run to judge and its own baseline", hint="name an older run: --baseline RUN")
    since = [run for run in earlier if run.started > named.started]
    return [*facts_cache.read(results, [named]), *_nights(results, since, judged, count), judged]


def _nights(results: Results, earlier: Sequence[RunFolder], judged: RunSummary, count: int) -> list[RunSummary]:
    """The newest `count` of `earlier` that are nights of the run, oldest first."""
    found: list[RunSummary] = []
    for _ in range(_LOOK_BACK):
        chunk, earlier = earlier[-count:], earlier[:-count]
        found = [run for run in facts_cache.read(results, chunk) if is_night_of(run, judged)] + found
        if len(found) >= count or not earlier:
            break
    return found[-count:]


def _one(runs: Sequence[RunFolder], word: str) -> RunFolder:
    if len(runs) > 1:
        raise BadInput(
            f"{word} names {len(runs)} runs; the gate judges one and compares it with one", hint="last, last~1 or RUN"
        )
    return runs[0]
