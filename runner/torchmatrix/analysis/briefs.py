"""Launches -> what a report needs of each, and no more: small enough to be passed between processes. Loads no pandas."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from torchmatrix.analysis.column import Row
from torchmatrix.analysis.launch_row import row_of
from torchmatrix.analysis.spent import Spent, spent_by
from torchmatrix.analysis.traces import Whole, whole_of
from torchmatrix.analysis.watched import summarize
from torchmatrix.facts.alike import counting
from torchmatrix.facts.launch import UNLIKE, Launch, Unreadable
from torchmatrix.facts.reading import launch_files, launch_in, sorted_out
from torchmatrix.facts.run_record import RunRecord
from torchmatrix.facts.store import RunFolder
from torchmatrix.ground.sharing import MOST_PIECES, shared
from torchmatrix.ground.texts import as_text
from torchmatrix.machine.quota import usable_cpus

Facts = dict[str, Any]
FEWEST_FILES = 200
"""So many launches, or more, are shared among processes, which costs as much as reading some twenty."""
MOST_PROCESSES = 4
"""What is left to do in one process takes as long as these take."""


Order = Callable[[str, str], tuple[int, str]]
"""The cell and the path of a launch -> what to sort it by: as planned, within a cell by the names of the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Brief:
    """One launch: its row as of launch_row (no FLOPs borrowed), when it began (unix seconds), why devices could not be read.

    `spent`: None for what a report shows nothing of. `installed`: the facts of the box, the image and the engine, only of the
    first of its stack, of those that were read together, in which the box told of itself.
    """

    row: Row
    started: float
    errors: tuple[str, ...]
    spent: Spent | None
    installed: Facts | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some folders of a run: of each launch the try that counts, in order; cell and outcome of the others; traces by cell."""

    briefs: tuple[Brief, ...]
    repeated: tuple[tuple[str, str], ...]
    traces: dict[str, Whole]
    unreadable: tuple[Unreadable, ...]


def order_of(record: RunRecord) -> Order:
    """That of a run's plan; cells that it lacks come last."""
    places = {name.cell: i for i, name in enumerate(record.planned)}
    return lambda cell, path: (places.get(cell, len(places)), path.rpartition("/")[2])


@contextmanager
def reading(run: RunFolder, order: Order) -> Iterator[Callable[[], list[Part]]]:
    """All launches of a run. Where that pays, other processes begin to read; what is yielded helps them and gives the parts."""
    folders = _by_folder(launch_files(run.path))
    size = max(1, ceil(len(folders) / MOST_PIECES))

    def read(piece: int) -> Part:
        some = folders[piece * size : (piece + 1) * size]
        return part_of((launch_in(path) for folder in some for path in folder), order)

    helpers = min(usable_cpus(), MOST_PROCESSES) - 1 if sum(map(len, folders)) >= FEWEST_FILES else 0
    with shared(read, ceil(len(folders) / size), helpers) as parts:
        yield parts


def part_of(found: Iterable[Launch | Unreadable], order: Order) -> Part:
    """Of launches, all tries of each among them."""
    every, unreadable = sorted_out(found)
    launches = sorted(counting(every), key=lambda launch: order(launch.cell, as_text(launch.path)))
    counted = {launch.path for launch in launches}
    first = {launch.stack.name: launch for launch in reversed(launches) if launch.box}
    return Part(
        briefs=tuple(_brief(launch, launch is first.get(launch.stack.name)) for launch in launches),
        repeated=tuple((launch.cell, launch.outcome) for launch in every if launch.path not in counted),
        traces=whole_of(launches),
        unreadable=tuple(unreadable),
    )


def _brief(launch: Launch, is_first: bool) -> Brief:
    return Brief(
        row=row_of(launch),
        started=launch.unix_seconds,
        errors=() if launch.outcome in ("ok", UNLIKE) else summarize(launch).errors,
        spent=spent_by(launch),
        installed=_installed(launch) if is_first else None,
    )


def _installed(launch: Launch) -> Facts:
    box, image = launch.box.facts if launch.box else {}, launch.image.facts if launch.image else {}
    return {"stack": launch.stack.name, "box": box, "image": image, "engine": launch.engine}


def _by_folder(files: Iterable[Path]) -> list[list[Path]]:
    """All tries of a launch are in one."""
    folders: dict[Path, list[Path]] = {}
    for path in files:
        folders.setdefault(path.parent, []).append(path)
    return list(folders.values())
