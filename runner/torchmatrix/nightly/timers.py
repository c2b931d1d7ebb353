"""Who begins the nights: systemd, or cron where systemd can't be asked; what was installed is remembered in a file."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchmatrix.facts.disk import holder
from torchmatrix.facts.events import read_lines
from torchmatrix.facts.store import run_event
from torchmatrix.ground.errors import BadInput, EngineUnusable
from torchmatrix.ground.files import write_whole
from torchmatrix.nightly import cron, systemd
from torchmatrix.nightly.journal import Journal, in_words, next_time
from torchmatrix.nightly.timetable import Outside, Timetable, environment_text, name_for, settings_folder, variables_taken

BACKENDS = ("auto", "systemd", "cron")


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """What install did: who begins the nights, the files it wrote, and the names of the variables that it took along."""

    backend: str
    files: tuple[Path, ...]
    variables: tuple[str, ...]
    hints: tuple[str, ...]


def choose(backend: str, is_system: bool | None, outside: Outside, is_real: bool = True) -> tuple[str, bool]:
    """Who can begin nights here, and whether for the machine. `is_system` None: for the machine if root asks, and systemd is
    there. Not `is_real`: a backend that was named is believed. Raises BadInput, or EngineUnusable saying why nobody can."""
    if backend not in BACKENDS:
        raise BadInput(f'unknown backend "{backend}"', hint=f"backends: {', '.join(BACKENDS)}")
    if is_system and backend == "cron":
        raise BadInput("--system needs systemd", hint="leave it out: cron uses the crontab of the user who runs install")
    if is_real and is_system and os.geteuid() != 0:
        raise BadInput("--system needs root", hint="as root, or without it: --user")
    for_machine = os.geteuid() == 0 if is_system is None else is_system
    if not is_real and backend != "auto":
        return backend, for_machine and backend == "systemd"
    problems = {}
    if backend != "cron":
        problems["systemd"] = systemd.answers(outside, for_machine)
    if backend == "cron" or (backend == "auto" and not is_system and problems["systemd"]):
        problems["cron"] = cron.answers(outside)
    for name, problem in problems.items():
        if problem is None:
            return name, for_machine and name == "systemd"
    raise EngineUnusable(
        f"nothing can start nights here: {'; '.join(f'{name}: {problem}' for name, problem in problems.items())}",
        hint="install cron, or have something else start this every night: torchmatrix nightly run",
    )


def install(table: Timetable, backend: str, outside: Outside, here: Mapping[str, str]) -> Installed:
    """Replace what was installed for this matrix. `backend`: as chosen; `here`: the variables to choose from."""
    remove(table.matrix, outside)
    taken = variables_taken(here)
    journal = Journal(table.results)
    journal.append("installed", at=table.at, backend=backend, matrix=str(table.matrix))  # what is earlier is not missed
    with _file_errors():
        if table.run_as:
            for path in (table.results, journal.folder, journal.file):
                shutil.chown(path, table.run_as)
        table.environment.parent.mkdir(parents=True, exist_ok=True)
        write_whole(table.environment, environment_text(taken).encode(errors="surrogateescape"), mode=0o600)
        files = systemd.install(table, outside) if backend == "systemd" else cron.install(table, outside)
        record = {**asdict(table), "backend": backend, "files": [table.environment, *files]}
        write_whole(_record(table.name), json.dumps(run_event("timetable", **record), default=str).encode() + b"\n")
    hints = []
    if backend == "systemd" and systemd.ends_with_the_session(table.is_system):
        hints.append("nights start only while you are logged in; to change that: loginctl enable-linger")
    if os.geteuid() == 0 and table.run_as is None:
        hints.append("nights run as root, and so does all that they start; to run them as an ordinary user: --run-as NAME")
    if backend == "cron" and not cron.runs_here():
        hints.append("cron does not seem to be running: start it, or no night will start")
    return Installed(
        backend=backend, files=(table.environment, *files, _record(table.name)), variables=tuple(taken), hints=tuple(hints)
    )


def texts(table: Timetable, backend: str) -> dict[str, str]:
    """What install would write for `backend`, systemd or cron, by file; without the file of variables."""
    if backend == "cron":
        return {str(cron.script_path(table.name)): cron.script(table), "crontab": "\n".join(cron.lines(table)) + "\n"}
    place = systemd.folder(table.is_system)
    return {str(place / name): text for name, text in systemd.units(table).items()}


def remove(matrix: Path, outside: Outside) -> list[str]:
    """Take away what install made for this matrix, whoever begins its nights; nothing is there: nothing happens.

    Returns what went. The facts, the journal and the logs stay.
    """
    name, gone = name_for(matrix), []
    with _file_errors():
        for is_system in (True, False):
            gone += [str(path) for path in systemd.remove(name, is_system, outside)]
        gone += cron.remove(name, outside)
        for path in (settings_folder() / f"{name}.env", _record(name)):
            if path.exists():
                path.unlink()
                gone.append(str(path))
    return gone


def status(matrix: Path, results: Path, outside: Outside) -> dict[str, Any]:
    """What is installed for this matrix, when the next night begins, how the last one ended, who spends one now."""
    name = name_for(matrix)
    table = next((event for event in read_lines(_record(name)) if event["event"] == "timetable"), {})
    journal = Journal(Path(table.get("results", results)))
    known = journal.nights(matrix.absolute())
    last = known[-1] if known else None
    return {
        "matrix": str(matrix.absolute()),
        "results": str(journal.folder.parent),
        "name": name,
        "installed": bool(table),
        "backend": table.get("backend"),
        "system": table.get("is_system"),
        "at": table.get("at"),
        "next": _next(name, table, outside) if table else None,
        "last": None if last is None else {**asdict(last), "log": str(journal.log(last.id)), "was_cut": last.was_cut},
        "held_by": holder(journal.lock_file),
        "nights": len(known),
    }


def _next(name: str, table: Mapping[str, Any], outside: Outside) -> str | None:
    if table["backend"] == "systemd":
        return systemd.next_time(name, bool(table["is_system"]), outside)
    return in_words(next_time(table["at"], time.time())) if cron.is_installed(name, outside) else None


def _record(name: str) -> Path:
    return settings_folder() / f"{name}.jsonl"


@contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineUnusable(
            f"can't write {error.filename}: {error.strerror or error}", hint="fix the permissions, or free space"
        ) from None
