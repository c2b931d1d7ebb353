"""Install what begins the nights: systemd's timers, which are recorded in a file, or lines for cron, which the user pastes."""

import getpass
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import lock_holder, write_whole
from torchmatrix.core.settings import home_folder
from torchmatrix.engines.choose import SERVICES
from torchmatrix.facts.lines import read_lines
from torchmatrix.facts.store import run_event
from torchmatrix.nightly.journal import (
    CATCH_UP_SECONDS,
    NOTE,
    Journal,
    Say,
    Timetable,
    environment_text,
    name_for,
    settings_folder,
    variables_taken,
)

# cron: two lines to paste into a crontab, and the script that they start; no crontab is read or written.


def cron_script_path(name: str) -> Path:
    """Return the path of the script that cron starts: a line of a crontab may be too short for a command."""
    return settings_folder() / f"{name}.sh"


def cron_script(table: Timetable) -> str:
    """Return a script that sets the environment that a timer lacks, then becomes the night."""
    environment, folder = shlex.quote(str(table.environment)), shlex.quote(str(table.folder))
    return f"""#!/bin/sh
{NOTE}
set -a
. {environment} || exit 4
set +a
cd {folder} || exit 4
exec {shlex.join(table.command)} "$@"
"""


def cron_lines(table: Timetable) -> str:
    """Return two lines: the night at its time, and the check for a missed or cut night after a boot.

    cron makes a line break of every % that has no backslash: https://man7.org/linux/man-pages/man5/crontab.5.html
    """
    hour, minute = map(int, table.at.split(":"))
    start = f"/bin/sh {shlex.quote(str(cron_script_path(table.name)))}".replace("%", "\\%")
    return f"""{minute} {hour} * * * {start} # {table.name}
@reboot sleep {CATCH_UP_SECONDS}; {start} --if-missed {table.at} # {table.name}
"""


# systemd: the units' text and folder, and the commands that make systemd read them.
#
# How a unit file is read: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html (COMMAND LINES) and
# https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html (SPECIFIERS).

_CATCH_UP = "-catch-up"


def unit_folder(is_system: bool) -> Path:
    """Return the folder of the machine's units, or of this user's."""
    if is_system:
        return Path("/etc/systemd/system")
    return Path(os.environ.get("XDG_CONFIG_HOME") or home_folder() / ".config") / "systemd" / "user"


def unit_timers(name: str) -> tuple[str, str]:
    """Return the names of a night's two timers: the one by the clock, and the one after the machine's start."""
    return f"{name}.timer", f"{name}{_CATCH_UP}.timer"


def unit_texts(table: Timetable) -> dict[str, str]:
    """Return the text of every unit, by its file's name.

    Not Persistent=: it would measure while the machine boots, and would not continue a night that a reboot cut.
    """
    night, late = table.name, table.name + _CATCH_UP
    what, late_what = f"torchmatrix: {table.matrix} at {table.at}", f"torchmatrix: {table.matrix}, if a night was missed or cut"
    return {
        f"{night}.service": _service(table, what, table.command),
        f"{night}.timer": _timer(what, f"OnCalendar=*-*-* {table.at}:00\nAccuracySec=1s\nRandomizedDelaySec=0"),
        f"{late}.service": _service(table, late_what, (*table.command, "--if-missed", table.at)),
        f"{late}.timer": _timer(late_what, f"{'OnBootSec' if table.is_system else 'OnStartupSec'}={CATCH_UP_SECONDS}"),
    }


def _service(table: Timetable, what: str, command: Sequence[str]) -> str:
    """Return a service. KillMode=mixed: the night passes a stop on to its command, once, and waits while that cleans up. No
    Nice= and no limits: they would change what is measured."""
    order = f"After={' '.join(('network-online.target', *SERVICES))}\nWants=network-online.target\n" if table.is_system else ""
    user = f"User={_escaped(table.run_as)}\n" if table.run_as else ""
    environment = re.sub(r"([\\*?[])", r"\\\1", str(table.environment))  # systemd takes it for a glob
    return f"""{NOTE}
[Unit]
Description={_escaped(what)}
{order}
[Service]
Type=oneshot
{user}WorkingDirectory={_escaped(str(table.folder).rstrip("/"))}/
EnvironmentFile={_escaped(environment)}
ExecStart={exec_start(command)}
KillMode=mixed
TimeoutStartSec=infinity
TimeoutStopSec=180
"""


def _timer(what: str, when: str) -> str:
    return f"""{NOTE}
[Unit]
Description={_escaped(what)}

[Timer]
{when}

[Install]
WantedBy=timers.target
"""


def exec_start(words: Sequence[str]) -> str:
    """Return a command for ExecStart=. A shell starts a program whose path has quotes or a $, which are not allowed there."""
    if re.search(r"[\"'\\$]", words[0]):
        words = ["/bin/sh", "-c", 'exec "$@"', "sh", *words]
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[\w@%+=:,./-]+", escaped) else f'"{escaped}"'


def _escaped(text: str) -> str:
    """Escape a value that systemd doesn't split into words."""
    return text.replace("%", "%%")


@dataclass(frozen=True, slots=True)
class Systemctl:
    """The systemd of the machine, or of this user; says each command that changes something, in a form that can be pasted."""

    is_system: bool
    say: Say

    def ask(self, *words: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a command and return its outcome, in English; 127 without systemctl. Finds the user's systemd after su, too."""
        variables = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ, "LC_ALL": "C"}
        try:
            return subprocess.run(self._command(words), capture_output=True, env=variables)
        except OSError as error:
            return subprocess.CompletedProcess(words, 127, b"", str(error).encode())

    def do(self, *words: str) -> None:
        """Say and run a command that changes something. Raises EngineUnusable with its error output."""
        command = shlex.join(self._command(words))
        self.say(f"$ {command}")
        done = self.ask(*words)
        if done.returncode:
            raise EngineUnusable(
                f"{command} failed: {done.stderr.decode(errors='replace').strip() or done.returncode}",
                hint="mend that, and give the same command again",
            )

    def problem(self) -> str | None:
        """Return why systemd can't be used here; None if it can."""
        done = self.ask("show", "--property=Version")
        return None if not done.returncode else done.stderr.decode(errors="replace").strip().partition("\n")[0] or "no answer"

    def next_time(self, name: str) -> str | None:
        """Return when systemd begins the next night, in its words; None if it does not wait for one."""
        if self.ask("is-active", unit_timers(name)[0]).returncode:
            return None
        done = self.ask("show", "--property=NextElapseUSecRealtime", "--value", unit_timers(name)[0])
        return done.stdout.decode(errors="replace").strip() or "unknown"

    def _command(self, words: Sequence[str]) -> list[str]:
        return ["systemctl", *(() if self.is_system else ("--user",)), *words]


def install_units(table: Timetable, say: Say) -> list[Path]:
    """Write the units over older ones and let systemd wait for their times. Return the files."""
    place, systemctl = unit_folder(table.is_system), Systemctl(table.is_system, say)
    place.mkdir(parents=True, exist_ok=True)
    for name, text in unit_texts(table).items():
        write_whole(place / name, text.encode())
    systemctl.do("daemon-reload")
    systemctl.do("enable", *unit_timers(table.name))
    systemctl.do("restart", *unit_timers(table.name))  # an older timer would go on waiting for its own time
    return [place / name for name in unit_texts(table)]


def remove_units(name: str, systemctl: Systemctl) -> list[Path]:
    """Remove the units that are there; a night that is under way goes on to its end. Return the removed files."""
    present = [path for path in unit_files(name, unit_folder(systemctl.is_system)) if path.exists()]
    if not present:
        return []
    is_here = systemctl.problem() is None
    waiting = [path.name for path in present if path.suffix == ".timer"]
    if is_here and waiting:
        systemctl.do("disable", "--now", *waiting)
    for path in present:
        path.unlink()
    if is_here:
        systemctl.do("daemon-reload")
        systemctl.ask("reset-failed", f"{name}*")  # complains if no night has failed
    return present


def unit_files(name: str, place: Path) -> list[Path]:
    """Return the paths of a night's units in the folder `place`, whether or not they exist."""
    return [place / f"{start}.{suffix}" for start in (name, name + _CATCH_UP) for suffix in ("service", "timer")]


def ends_with_the_session(is_system: bool) -> bool:
    """Check whether the user's systemd ends when the user logs out."""
    return not is_system and not Path("/var/lib/systemd/linger", getpass.getuser()).exists()


BACKENDS = ("systemd", "cron")
CRON_LINES_STAY = "lines for cron that were pasted are still in the crontab: take them out with crontab -e"


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """The result of an installation: the files, the names of the stored environment variables, and hints for the user."""

    files: tuple[Path, ...]
    variables: tuple[str, ...]
    hints: tuple[str, ...]


def for_machine(backend: str, is_system: bool | None, run_as: str | None) -> bool:
    """Check whether nights are the machine's or this user's. `is_system` None: the machine's if root asks. Raises BadInput."""
    if backend not in BACKENDS:
        raise BadInput(f'unknown backend "{backend}"', hint=f"backends: {', '.join(BACKENDS)}")
    if is_system and backend == "cron":
        raise BadInput("--system needs systemd", hint="leave it out: the lines are for a user's crontab")
    is_for_machine = backend == "systemd" and (os.geteuid() == 0 if is_system is None else is_system)
    if run_as and not is_for_machine:
        raise BadInput("--run-as needs systemd and --system", hint=f"log in as {run_as} and install the nights there")
    return is_for_machine


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
    """Replace what was installed for this matrix; for cron, write what its lines need. `here`: variables to choose from."""
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
            files = [table.environment, cron_script_path(table.name)]
            write_whole(files[-1], cron_script(table).encode())
        else:
            files = [table.environment, *install_units(table, say)]
        event = run_event("timetable", **asdict(table), backend=backend, files=files)
        files.append(_record(table.name))
        write_whole(files[-1], json.dumps(event, default=str).encode() + b"\n")
    return Installed(files=tuple(files), variables=tuple(taken), hints=tuple(_hints(table, backend, gone)))


def _hints(table: Timetable, backend: str, gone: Sequence[str]) -> Iterator[str]:
    if backend == "systemd" and ends_with_the_session(table.is_system):
        yield "nights start only while you are logged in; to change that: loginctl enable-linger"
    if backend == "systemd" and str(cron_script_path(table.name)) in gone:
        yield CRON_LINES_STAY
    if os.geteuid() == 0 and table.run_as is None:
        yield "nights run as root, and so does all that they start; to run them as an ordinary user: --run-as NAME"


def texts(table: Timetable, backend: str) -> dict[str, str]:
    """Return what install would write, by file, and the lines for a crontab; without the environment file."""
    if backend == "cron":
        return {str(cron_script_path(table.name)): cron_script(table), "crontab": cron_lines(table)}
    place = unit_folder(table.is_system)
    return {str(place / name): text for name, text in unit_texts(table).items()}


def remove(matrix: Path, say: Say) -> list[str]:
    """Remove the units and files of this matrix, if there are any. Return what was removed.

    The facts, the journal and the logs stay, and so do lines that were pasted into a crontab.
    """
    name, gone = name_for(matrix), []
    with _file_errors():
        for is_system in (True, False):
            gone += remove_units(name, Systemctl(is_system, say))
        for path in (cron_script_path(name), settings_folder() / f"{name}.env", _record(name)):
            if path.exists():
                path.unlink()
                gone.append(path)
    return list(map(str, gone))


def status(matrix: Path, results: Path, say: Say) -> dict[str, Any]:
    """Return what is installed for this matrix, when the next night begins, how the last one ended, who runs one now.

    `backend` cron: lines were printed; `installed` is None, since nobody knows whether they are in a crontab.
    """
    name = name_for(matrix)
    table = next((event for event in read_lines(_record(name)) if event["event"] == "timetable"), {})
    backend = table.get("backend")
    journal = Journal(Path(table.get("results", results)))
    nights = journal.nights(matrix.absolute())
    last = nights[-1] if nights else None
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
        "nights": len(nights),
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
