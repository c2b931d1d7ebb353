"""Checks of what must hold after every fault: no finished launch lost or counted twice, nothing left over, no traceback."""

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from faults.workplace import Ended, Workplace
from support import until
from torchmatrix.core.files import lock_holder
from torchmatrix.facts.launch import UNFINISHED, Launch
from torchmatrix.facts.reading import sorted_out
from torchmatrix.facts.store import RunFolder

_TOLD = re.compile(r"\] ([a-z-]+) +(\S+) round (\d+)")
"""A finished launch, as the tool reports it: outcome, cell, round."""


class Finished:
    """The launches that were finished when last looked at; from then on their files must not change."""

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self._known: dict[Path, bytes] = {}

    def check(self) -> None:
        """Assert that every finished launch is there, unchanged, every file can be read, and every reported launch is recorded.

        A file that was cut off in its first line tells nothing, and doesn't count.
        """
        for path, content in self._known.items():
            assert path.exists(), f"a finished launch was lost: {path}"
            assert path.read_bytes() == content, f"a finished launch was changed: {path}"
        for run in self._place.results.runs():
            launches, unreadable = sorted_out(run.everything())
            broken = [file for file in unreadable if b"\n" in file.path.read_bytes()]
            assert not broken, f"unreadable: {broken}"
            done = [launch for launch in launches if launch.outcome not in UNFINISHED]
            twice = [key for key, n in Counter((launch.cell, launch.round) for launch in done).items() if n > 1]
            assert not twice, f"launches that were finished twice in {run.path}: {twice}"
            self._known |= {launch.path: launch.path.read_bytes() for launch in done}
        _reported_is_recorded(self._place)


def _reported_is_recorded(place: Workplace) -> None:
    """Assert that whatever the tool said of a finished launch stands in the facts."""
    launches = [launch for run in place.results.runs() for launch in run.launches()]
    recorded = Counter((launch.outcome, launch.cell, launch.round) for launch in launches)
    reported = Counter(
        (outcome, cell, int(number)) for ended in place.ended for outcome, cell, number in _TOLD.findall(ended.stderr)
    )
    lost = {key: n for key, n in reported.items() if recorded[key] < n}
    assert not lost, f"reported, but not recorded: {lost}"


def ended_as(ended: Ended, *codes: int) -> None:
    """Assert that a command ended with one of these codes (negative: a signal), without traceback, and said what went wrong."""
    assert not has_traceback(ended.stderr), f"a traceback:\n{ended.stderr}"
    assert ended.code in codes, f"exit code {ended.code} instead of {' or '.join(map(str, codes))}:\n{ended.stderr}"
    if ended.code in (2, 3, 4, 130) and ended.has_stderr:
        assert "error: " in ended.stderr and "hint: " in ended.stderr, f"no error with a hint:\n{ended.stderr}"


def has_traceback(text: str) -> bool:
    """Return whether it shows one of Python's tracebacks, except of Python's own start, before the tool's first line."""
    return "Traceback" in text and "torchmatrix" in text.partition("Traceback")[2]


def completes(place: Workplace, *outcomes: str) -> None:
    """Assert that the next run completes the matrix, its report shows it, and nothing is left over.

    `outcomes`: how launches may have ended where the fault is the cause; default: all of them are ok.
    """
    finished = Finished(place)
    finished.check()
    ended_as(place.call(), 1 if set(outcomes) - {"ok"} else 0)
    finished.check()
    completed(place, *outcomes)


def completed(place: Workplace, *outcomes: str) -> None:
    """Assert that the newest run is complete, its report shows it, and nothing is left over."""
    Finished(place).check()
    newest = place.results.runs()[-1]
    _complete(newest, outcomes or ("ok",))
    page = place.report.read_text()
    assert page.rstrip().endswith("</html>") and newest.id in page, f"the report does not show {newest.id}"
    nothing_left(place)


def _complete(run: RunFolder, outcomes: Collection[str]) -> None:
    """Assert that each planned launch was finished once."""
    record = run.read_record()
    assert record.complete and not record.problems, f"{run.path} is not complete: {record.problems}"
    done = Counter((launch.cell, launch.round) for launch in run.launches() if _is_finished(launch, outcomes))
    wanted = {(cell.cell, number) for cell in record.planned for number in range(1, int(record.facts["launches"]) + 1)}
    assert set(done) == wanted, f"not measured in {run.path}: {wanted - set(done)}"


def _is_finished(launch: Launch, outcomes: Collection[str]) -> bool:
    if launch.outcome in UNFINISHED:
        return False
    assert launch.outcome in outcomes, f"{launch.path} is {launch.outcome}: {launch.error}"
    return True


def nothing_left(place: Workplace) -> None:
    """Assert that no process, held lock, temporary file or empty folder is left."""
    until(lambda: not place.processes)
    assert lock_holder(place.results.lock_file) is None, "the results are still locked"
    assert not list((place.folder / "tmp").iterdir()), f"temporary files: {list((place.folder / 'tmp').iterdir())}"
    paths = [path for folder in ("results", "reports", "cache") for path in (place.folder / folder).rglob("*")]
    parts = [path for path in paths if path.suffix == ".part"]
    assert not parts, f"half-written files were left: {parts}"
    folders = [path for path in paths if path.is_dir() and place.folder / "cache" not in path.parents]
    empty = [path for path in folders if not any(path.iterdir())]
    assert not empty, f"empty folders were left: {empty}"
