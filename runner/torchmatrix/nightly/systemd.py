"""A night as systemd's units: their text, where they go, and the commands that make systemd read them.

How a unit file is read: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html (COMMAND LINES) and
https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html (SPECIFIERS).
"""

import getpass
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from torchmatrix.engines.choose import SERVICES
from torchmatrix.ground.files import write_whole
from torchmatrix.nightly.timetable import CATCH_UP_SECONDS, NOTE, Outside, Timetable

_CATCH_UP = "-catch-up"


def folder(is_system: bool) -> Path:
    """Where the units of the machine, or of this user, are."""
    if is_system:
        return Path("/etc/systemd/system")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def timers(name: str) -> tuple[str, str]:
    """The two timers of a night: the one by the clock, and the one after the machine's start."""
    return f"{name}.timer", f"{name}{_CATCH_UP}.timer"


def units(table: Timetable) -> dict[str, str]:
    """The text of every unit, by its file's name.

    Not Persistent=: it would measure while the machine boots, and knows nothing of a night that a reboot cut.
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
    """KillMode=mixed: the night passes a stop on to what it runs, once, and waits while that cleans up. No Nice= and no
    limits: they would change what is measured."""
    order = f"After={' '.join(('network-online.target', *SERVICES))}\nWants=network-online.target\n" if table.is_system else ""
    user = f"User={_line(table.run_as)}\n" if table.run_as else ""
    environment = re.sub(r"([\\*?[])", r"\\\1", str(table.environment))  # systemd takes it for a glob
    return f"""{NOTE}
[Unit]
Description={_line(what)}
{order}
[Service]
Type=oneshot
{user}WorkingDirectory={_line(str(table.folder).rstrip("/"))}/
EnvironmentFile={_line(environment)}
ExecStart={command_line(command)}
KillMode=mixed
TimeoutStartSec=infinity
TimeoutStopSec=180
"""


def _timer(what: str, when: str) -> str:
    return f"""{NOTE}
[Unit]
Description={_line(what)}

[Timer]
{when}

[Install]
WantedBy=timers.target
"""


def command_line(words: Sequence[str]) -> str:
    """A command as ExecStart= wants it. A program's path may hold neither quotes nor a $ there: a shell starts such a one."""
    if re.search(r"[\"'\\$]", words[0]):
        words = ["/bin/sh", "-c", 'exec "$@"', "sh", *words]
    return " ".join(map(_word, words))


def _word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[\w@%+=:,./-]+", escaped) else f'"{escaped}"'


def _line(text: str) -> str:
    """A value that systemd doesn't split into words."""
    return text.replace("%", "%%")


def answers(outside: Outside, is_system: bool) -> str | None:
    """Why systemd can't be asked here; None: it can."""
    done = _ask(outside, is_system, "show", "--property=Version")
    return None if not done.returncode else done.stderr.decode(errors="replace").strip().partition("\n")[0] or "no answer"


def install(table: Timetable, outside: Outside) -> list[Path]:
    """Write the units over older ones and let systemd wait for the times. Returns the files."""
    place = folder(table.is_system)
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in units(table).items():
        write_whole(place / name, text.encode())
        paths.append(place / name)
    _do(outside, table.is_system, "daemon-reload")
    _do(outside, table.is_system, "enable", *timers(table.name))
    _do(outside, table.is_system, "restart", *timers(table.name))  # an older timer would go on waiting for its own time
    return paths


def remove(name: str, is_system: bool, outside: Outside) -> list[Path]:
    """Take the units away, as far as they are there; a night that is under way goes on to its end. Returns the files."""
    found = [path for path in files_of(name, folder(is_system)) if path.exists()]
    if not found:
        return []
    is_here = answers(outside, is_system) is None
    waiting = [path.name for path in found if path.suffix == ".timer"]
    if is_here and waiting:
        _do(outside, is_system, "disable", "--now", *waiting)
    for path in found:
        path.unlink()
    if is_here:
        _do(outside, is_system, "daemon-reload")
        _ask(outside, is_system, "reset-failed", f"{name}*")  # complains if no night has failed
    return found


def files_of(name: str, place: Path) -> list[Path]:
    """The units of a night in the folder `place`, whether or not they are there."""
    return [place / f"{start}.{kind}" for start in (name, name + _CATCH_UP) for kind in ("service", "timer")]


def next_time(name: str, is_system: bool, outside: Outside) -> str | None:
    """When systemd begins the next night, in its words; None: it does not wait for one."""
    if _ask(outside, is_system, "is-active", timers(name)[0]).returncode:
        return None
    done = _ask(outside, is_system, "show", "--property=NextElapseUSecRealtime", "--value", timers(name)[0])
    return done.stdout.decode(errors="replace").strip() or "unknown"


def ends_with_the_session(is_system: bool) -> bool:
    """Does the user's systemd end when the user logs out?"""
    return not is_system and not Path("/var/lib/systemd/linger", getpass.getuser()).exists()


def _do(outside: Outside, is_system: bool, *words: str) -> None:
    outside.do("systemctl", *(() if is_system else ("--user",)), *words)


def _ask(outside: Outside, is_system: bool, *words: str) -> "subprocess.CompletedProcess[bytes]":
    return outside.ask("systemctl", *(() if is_system else ("--user",)), *words)
