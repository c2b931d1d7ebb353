"""Words -> runs of a results folder: last, last~2, last-7d, all, an id; narrowed by date and by host."""

import math
import re
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import takewhile

from torchmatrix.facts.store import Results, RunFolder, in_order
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.toml_keys import shown

WORDS = "last, last~N, last-7d (also h, w), all, RUN or HOST/RUN"
_BACK = re.compile(r"last(?:~([0-9]{1,6}))?")
_AGE = re.compile(r"last-([0-9]{1,6})([hdw])")
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


def select(results: Results, word: str = "last", since: str | None = None, host: str | None = None) -> list[RunFolder]:
    """The runs that `word` names, oldest first; never none.

    `word`: last (the newest); last~N (N before the newest); last-7d, last-12h, last-2w (started within that time before now);
    all; a run's id, or HOST/RUN if several hosts have a run of that id. `since`: started on that day or later
    (2026-01-31, or 2026-01-31T12:00; UTC unless it says otherwise). `host`: the name of its folder. Date and host narrow the
    runs first: last is then the newest of the rest. Raises BadInput naming the known runs.
    """
    runs = results.runs()
    begin = _moment(since) if since else None
    narrowed = [run for run in runs if host in (None, host_of(run)) and (begin is None or run.started >= begin)]
    found = find(narrowed, word)
    if not found:
        what = "no runs" if word in ("last", "all") else f"no run {shown(word)}"
        narrowing = (f" of host {host}" if host else "") + (f" since {since}" if since else "")
        raise BadInput(f"{what} in {results.root}{narrowing}", hint=_known(runs))
    if len(found) > 1 and found[0].id == found[-1].id == word:
        hosts = ", ".join(host_of(run) for run in found)
        raise BadInput(f"several hosts have a run {word}: {hosts}", hint=f"name the host too: {host_of(found[0])}/{word}")
    return found


def select_each(results: Results, words: Sequence[str], since: str | None = None, host: str | None = None) -> list[RunFolder]:
    """The runs that any of `words` names, each once, oldest first; never none. Raises BadInput as `select` does."""
    found = {run.path: run for word in words for run in select(results, word, since, host)}
    return in_order(found.values())


def undated(results: Results) -> list[RunFolder]:
    """The runs whose start isn't known, or is told to be still to come: none of them is ever the last."""
    return list(takewhile(lambda run: math.isnan(run.started), results.runs()))


def select_one(results: Results, word: str = "last", since: str | None = None, host: str | None = None) -> RunFolder:
    """Like `select`, for exactly one run. Raises BadInput if the word names several."""
    found = select(results, word, since, host)
    if len(found) > 1:
        raise BadInput(f"{word} names {len(found)} runs; one is needed", hint=_known(found))
    return found[0]


def find(runs: Sequence[RunFolder], word: str) -> list[RunFolder]:
    """Those of `runs` (oldest first) that `word` names, as in `select`; none if it names none."""
    if word == "all":
        return list(runs)
    if back := _BACK.fullmatch(word):
        place = len(runs) - 1 - int(back[1] or 0)
        return [runs[place]] if place >= 0 else []
    if age := _AGE.fullmatch(word):
        begin = time.time() - int(age[1]) * _SECONDS[age[2]]
        return [run for run in runs if run.started >= begin]
    return [run for run in runs if word in (run.id, f"{host_of(run)}/{run.id}")]


def host_of(run: RunFolder) -> str:
    """The name of the host of a run."""
    return run.path.parent.name


def _moment(text: str) -> float:
    """Unix seconds of a date or time; UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(f'"{shown(text)}" is not a date', hint="write it as 2026-01-31, or 2026-01-31T12:00 (UTC)") from None


def _known(runs: Sequence[RunFolder]) -> str:
    hosts = sorted({host_of(run) for run in runs})
    several = f" (hosts: {', '.join(hosts)})" if len(hosts) > 1 else ""
    newest = ", ".join(run.id for run in runs[-5:]) or "none"
    return f"runs there: {newest}{several}; words: {WORDS}; measure first: torchmatrix run"
