"""Launches -> what a report needs of each, and no more: small enough to be passed between processes. Loads no numpy."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from math import ceil
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from torchmatrix.analysis.column import Row
from torchmatrix.analysis.launch_row import row_of
from torchmatrix.analysis.spent import Spent, spent_by
from torchmatrix.analysis.traces import Whole, whole_of
from torchmatrix.analysis.watched import summarize
from torchmatrix.facts.alike import counting
from torchmatrix.facts.environments import Environment, environment_of
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.reading import launch_files, launch_in, sorted_out
from torchmatrix.facts.run_record import CellName, RunRecord
from torchmatrix.facts.store import RunFolder
from torchmatrix.ground.formatting import as_text
from torchmatrix.ground.process import help_only
from torchmatrix.machine.cpu import usable_cpus

Facts = dict[str, Any]
FEWEST_FILES = 200
"""So many launches, or more, are shared among processes, which costs as much as reading some twenty."""
MOST_PROCESSES = 4
"""What is left to do in one process takes as long as these take."""
PIECES = 4
"""For each of them, so that none waits long for the last one."""


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
    """Some folders of a run: of each launch the try that counts, in order; cell and outcome of the others; traces by cell;
    environments by stack with how well they stand for it.
    """

    briefs: tuple[Brief, ...]
    repeated: tuple[tuple[str, str], ...]
    traces: dict[str, Whole]
    environments: dict[str, tuple[tuple[Any, ...], Environment]]
    unreadable: tuple[Unreadable, ...]


def order_of(record: RunRecord) -> Order:
    """That of a run's plan; cells that it lacks come last."""
    return _order(record.planned)


def _order(planned: Sequence[CellName]) -> Order:
    places = {name.cell: i for i, name in enumerate(planned)}
    return lambda cell, path: (places.get(cell, len(places)), path.rpartition("/")[2])


def read_parts(run: RunFolder, record: RunRecord, most: int = MOST_PROCESSES) -> list[Part]:
    """All launches of a run, where that pays by several processes. Call it before numpy is loaded: a fork has no threads."""
    folders, order = _by_folder(launch_files(run.path)), order_of(record)
    processes = min(usable_cpus(), most) if sum(map(len, folders)) >= FEWEST_FILES and _has_one_thread() else 1
    if processes == 1:
        return [_part(folders, order)]
    size = ceil(len(folders) / (PIECES * processes))
    pieces = [folders[begin : begin + size] for begin in range(0, len(folders), size)]
    pool = ProcessPoolExecutor(processes, get_context("fork"), help_only, (os.getpid(),))
    try:
        begun = [pool.submit(_part_of_plan, piece, record.planned) for piece in pieces]
        return [one.result() for one in begun]
    except (BrokenProcessPool, OSError):  # one was ended, for example for want of memory, or none could be started
        return [_part(folders, order)]
    finally:
        for helper in active_children():  # they have nothing left to do, or an interruption must not wait for them
            helper.kill()
        pool.shutdown(cancel_futures=True)


def _part_of_plan(folders: Sequence[Sequence[Path]], planned: Sequence[CellName]) -> Part:
    return _part(folders, _order(planned))


def _part(folders: Iterable[Iterable[Path]], order: Order) -> Part:
    return part_of((launch_in(path) for folder in folders for path in folder), order)


def _has_one_thread() -> bool:
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


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
        environments=_environments(launches),
        unreadable=tuple(unreadable),
    )


def _environments(launches: Sequence[Launch]) -> dict[str, tuple[tuple[Any, ...], Environment]]:
    """By stack of the launch on the most devices in which the box told of itself, none that is left out of its figure."""
    chosen: dict[str, tuple[tuple[Any, ...], Launch]] = {}
    for launch in launches:
        rank = (launch.box is None, bool(launch.left_out), -launch.devices.count, as_text(launch.path).split("/"))
        if launch.stack.name not in chosen or rank < chosen[launch.stack.name][0]:
            chosen[launch.stack.name] = (rank, launch)
    return {stack: (rank, environment_of(launch)) for stack, (rank, launch) in chosen.items()}


def _brief(launch: Launch, is_first: bool) -> Brief:
    return Brief(
        row=row_of(launch),
        started=launch.unix_seconds,
        errors=() if not launch.has_failed else summarize(launch).errors,
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
