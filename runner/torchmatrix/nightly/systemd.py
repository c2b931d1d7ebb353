"""A night as systemd's units: their text, where they go, and the commands that make systemd read them.

How a unit file is read: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html (COMMAND LINES) and
https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html (SPECIFIERS).
"""

import getpass
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.engines.choose import SERVICES
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.files import write_whole
from torchmatrix.nightly.timetable import CATCH_UP_SECONDS, NOTE, Say, Timetable

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


@dataclass(frozen=True, slots=True)
class Systemctl:
    """The systemd of the machine, or of this user; says each command that changes something, in a form that can be pasted."""

    is_system: bool
    say: Say

    def ask(self, *words: str) -> "subprocess.CompletedProcess[bytes]":
        """The outcome of a command, in English; 127 where it isn't there. It finds the user's systemd after su, too."""
        variables = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ, "LC_ALL": "C"}
        try:
            return subprocess.run(self._command(words), capture_output=True, env=variables)
        except OSError as error:
            return subprocess.CompletedProcess(words, 127, b"", str(error).encode())

    def do(self, *words: str) -> None:
        """Run a command that changes something. Raises EngineUnusable with its words."""
        command = shlex.join(self._command(words))
        self.say(f"$ {command}")
        done = self.ask(*words)
        if done.returncode:
            raise EngineUnusable(
                f"{command} failed: {done.stderr.decode(errors='replace').strip() or done.returncode}",
                hint="mend that, and give the same command again",
            )

    def problem(self) -> str | None:
        """Why systemd can't be asked here; None: it can."""
        done = self.ask("show", "--property=Version")
        return None if not done.returncode else done.stderr.decode(errors="replace").strip().partition("\n")[0] or "no answer"

    def next_time(self, name: str) -> str | None:
        """When it begins the next night, in its words; None: it does not wait for one."""
        if self.ask("is-active", timers(name)[0]).returncode:
            return None
        done = self.ask("show", "--property=NextElapseUSecRealtime", "--value", timers(name)[0])
        return done.stdout.decode(errors="replace").strip() or "unknown"

    def _command(self, words: Sequence[str]) -> list[str]:
        return ["systemctl", *(() if self.is_system else ("--user",)), *words]


def install(table: Timetable, say: Say) -> list[Path]:
    """Write the units over older ones and let systemd wait for the times. Returns the files."""
    place, systemctl = folder(table.is_system), Systemctl(table.is_system, say)
    place.mkdir(parents=True, exist_ok=True)
    for name, text in units(table).items():
        write_whole(place / name, text.encode())
    systemctl.do("daemon-reload")
    systemctl.do("enable", *timers(table.name))
    systemctl.do("restart", *timers(table.name))  # an older timer would go on waiting for its own time
    return [place / name for name in units(table)]


def remove(name: str, systemctl: Systemctl) -> list[Path]:
    """Take the units away, as far as they are there; a night that is under way goes on to its end. Returns the files."""
    found = [path for path in files_of(name, folder(systemctl.is_system)) if path.exists()]
    if not found:
        return []
    is_here = systemctl.problem() is None
    waiting = [path.name for path in found if path.suffix == ".timer"]
    if is_here and waiting:
        systemctl.do("disable", "--now", *waiting)
    for path in found:
        path.unlink()
    if is_here:
        systemctl.do("daemon-reload")
        systemctl.ask("reset-failed", f"{name}*")  # complains if no night has failed
    return found


def files_of(name: str, place: Path) -> list[Path]:
    """The units of a night in the folder `place`, whether or not they are there."""
    return [place / f"{start}.{kind}" for start in (name, name + _CATCH_UP) for kind in ("service", "timer")]


def ends_with_the_session(is_system: bool) -> bool:
    """Does the user's systemd end when the user logs out?"""
    return not is_system and not Path("/var/lib/systemd/linger", getpass.getuser()).exists()
