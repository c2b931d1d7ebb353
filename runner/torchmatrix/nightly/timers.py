"""What begins the nights: systemd's timers, which are remembered in a file, or lines for cron, which the user pastes."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchmatrix.facts.events import read_lines
from torchmatrix.facts.store import run_event
from torchmatrix.ground.errors import BadInput, EngineUnusable
from torchmatrix.ground.files import lock_holder, write_whole
from torchmatrix.nightly import cron, systemd
from torchmatrix.nightly.journal import Journal
from torchmatrix.nightly.systemd import Systemctl
from torchmatrix.nightly.timetable import Say, Timetable, environment_text, name_for, settings_folder, variables_taken

BACKENDS = ("systemd", "cron")
CRON_LINES_STAY = "lines for cron that were pasted are still in the crontab: take them out with crontab -e"


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """What install did: the files it wrote, and the names of the variables that it took along."""

    files: tuple[Path, ...]
    variables: tuple[str, ...]
    hints: tuple[str, ...]


def for_machine(backend: str, is_system: bool | None, run_as: str | None) -> bool:
    """Are the nights the machine's, or this user's? `is_system` None: the machine's if root asks. Raises BadInput."""
    if backend not in BACKENDS:
        raise BadInput(f'unknown backend "{backend}"', hint=f"backends: {', '.join(BACKENDS)}")
    if is_system and backend == "cron":
        raise BadInput("--system needs systemd", hint="leave it out: the lines are for a user's crontab")
    found = backend == "systemd" and (os.geteuid() == 0 if is_system is None else is_system)
    if run_as and not found:
        raise BadInput("--run-as needs systemd and --system", hint=f"log in as {run_as} and install the nights there")
    return found


def check_systemd(is_system: bool, say: Say) -> None:
    """Raise BadInput, or EngineUnusable, if this user can't install nights here."""
    if is_system and os.geteuid() != 0:
        raise BadInput("--system needs root", hint="as root, or without it: --user")
    problem = Systemctl(is_system, say).problem()
    if problem:
        raise EngineUnusable(
            f"nothing can start nights here: systemd: {problem}",
            hint="for lines to paste into crontab -e: torchmatrix nightly install --backend cron (add --print to write "
            "nothing); or have something else start this every night: torchmatrix nightly run",
        )


def install(table: Timetable, backend: str, here: Mapping[str, str], say: Say) -> Installed:
    """Replace what was installed for this matrix; for cron, write what its lines need. `here`: the variables to choose from."""
    gone = remove(table.matrix, say)
    taken = variables_taken(here)
    journal = Journal(table.results)
    journal.append("installed", at=table.at, backend=backend, matrix=str(table.matrix))  # what is earlier is not missed
    with _file_errors():
        if table.run_as:
            for path in (table.results, journal.folder, journal.file):
                shutil.chown(path, table.run_as)
        table.environment.parent.mkdir(parents=True, exist_ok=True)
        write_whole(table.environment, environment_text(taken).encode(errors="surrogateescape"), mode=0o600)
        if backend == "cron":
            files = [table.environment, cron.script_path(table.name)]
            write_whole(files[-1], cron.script(table).encode())
        else:
            files = [table.environment, *systemd.install(table, say)]
        event = run_event("timetable", **asdict(table), backend=backend, files=files)
        files.append(_record(table.name))
        write_whole(files[-1], json.dumps(event, default=str).encode() + b"\n")
    return Installed(files=tuple(files), variables=tuple(taken), hints=tuple(_hints(table, backend, gone)))


def _hints(table: Timetable, backend: str, gone: Sequence[str]) -> Iterator[str]:
    if backend == "systemd" and systemd.ends_with_the_session(table.is_system):
        yield "nights start only while you are logged in; to change that: loginctl enable-linger"
    if backend == "systemd" and str(cron.script_path(table.name)) in gone:
        yield CRON_LINES_STAY
    if os.geteuid() == 0 and table.run_as is None:
        yield "nights run as root, and so does all that they start; to run them as an ordinary user: --run-as NAME"


def texts(table: Timetable, backend: str) -> dict[str, str]:
    """What install would write, by file, and the lines for a crontab; without the file of variables."""
    if backend == "cron":
        return {str(cron.script_path(table.name)): cron.script(table), "crontab": cron.lines(table)}
    place = systemd.folder(table.is_system)
    return {str(place / name): text for name, text in systemd.units(table).items()}


def remove(matrix: Path, say: Say) -> list[str]:
    """Take away the units and files of this matrix; nothing is there: nothing happens. Returns what went.

    The facts, the journal and the logs stay, and so do lines that were pasted into a crontab.
    """
    name, gone = name_for(matrix), []
    with _file_errors():
        for is_system in (True, False):
            gone += systemd.remove(name, Systemctl(is_system, say))
        for path in (cron.script_path(name), settings_folder() / f"{name}.env", _record(name)):
            if path.exists():
                path.unlink()
                gone.append(path)
    return list(map(str, gone))


def status(matrix: Path, results: Path, say: Say) -> dict[str, Any]:
    """What is installed for this matrix, when the next night begins, how the last one ended, who spends one now.

    `backend` cron: lines were printed; whether they are in a crontab, `installed`, is not known: None.
    """
    name = name_for(matrix)
    table = next((event for event in read_lines(_record(name)) if event["event"] == "timetable"), {})
    backend = table.get("backend")
    journal = Journal(Path(table.get("results", results)))
    known = journal.nights(matrix.absolute())
    last = known[-1] if known else None
    return {
        "matrix": str(matrix.absolute()),
        "results": str(journal.folder.parent),
        "name": name,
        "installed": None if backend == "cron" else bool(table),
        "backend": backend,
        "system": table.get("is_system"),
        "at": table.get("at"),
        "next": Systemctl(bool(table["is_system"]), say).next_time(name) if backend == "systemd" else None,
        "last": None if last is None else {**asdict(last), "log": str(journal.log(last.id)), "was_cut": last.was_cut},
        "held_by": lock_holder(journal.lock_file),
        "nights": len(known),
    }


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
