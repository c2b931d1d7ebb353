"""Print what begins the nights: a service and a timer of systemd, as a shell script, or lines for a crontab.

Nothing is installed or remembered here: who pastes the text owns it.
"""

import hashlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.core.credentials import line_of_first
from torchmatrix.core.errors import BadInput
from torchmatrix.engines.choose import SERVICES, VARIABLES
from torchmatrix.machine import masks
from torchmatrix.nightly.journal import clock

CATCH_UP_SECONDS = 300
"""How long after a machine's start a missed or cut night is made up for: booting disturbs what is measured."""
_OPEN = re.compile(
    r"PATH|HOME|LANG|LC_ALL|PYTHONPATH|XDG_(CONFIG|CACHE)_HOME|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|(?i:no_proxy)"
    rf"|{'|'.join(masks.VARIABLES)}"
)
"""Variables that hold no secret, whatever their value."""
_KEPT_VARIABLES = re.compile(
    rf"{VARIABLES}_\w+"
    rf"|(?i:(https?|ftp|all)_proxy)|(TORCHMATRIX|UV)_\w+|PIP_INDEX_URL|{_OPEN.pattern}",
    flags=re.ASCII,
)
"""The environment variables that decide what a run does or reaches; a timer starts with hardly any."""
_OPEN_VALUE = re.compile(r"\d+(\.\d+)?|/[\w./+-]*|(unix|tcp|ssh|https?)://[\w.-]*(:\d{1,5})?(/[a-z._-]{0,20}){0,4}")
"""Values of others that are printed: a number, a path, an address without a user and a query."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timetable:
    """The nights of one matrix. `at`: HH:MM, local; `command`: a night's whole command line, with absolute paths; `folder`:
    where nights begin, the current one; `variables`: with which environment; `withheld`: names of those that a unit or a
    crontab can't hold, or that may hold a secret."""

    name: str
    at: str
    command: tuple[str, ...]
    folder: Path
    variables: Mapping[str, str]
    withheld: tuple[str, ...]


def name_for(matrix: Path) -> str:
    """Return torchmatrix-night- and eight characters of the hash of the matrix file's path."""
    return f"torchmatrix-night-{hashlib.sha256(os.fsencode(matrix.absolute())).hexdigest()[:8]}"


def timetable(matrix: Path, at: str, words: Sequence[str], here: Mapping[str, str]) -> Timetable:
    """Return the timetable of nights that `torchmatrix` with `words` begins in the current folder, with what they need of the
    environment `here`. Raises BadInput.
    """
    hour, minute = clock(at)
    at = f"{hour:02}:{minute:02}"
    command = (*own_command(), *words, "--if-missed", at)
    for word in (*command, str(Path.cwd())):
        if not word.isprintable():
            raise BadInput(f"a path or option holds what a unit or a crontab can't: {word!r}", hint="rename it")
    taken = {name: value for name, value in sorted(here.items()) if _KEPT_VARIABLES.fullmatch(name)}
    open_ones = {name: value for name, value in taken.items() if _is_open(name, value)}
    return Timetable(
        name=name_for(matrix), at=at, command=command, folder=Path.cwd(), variables=open_ones,
        withheld=tuple(name for name in taken if name not in open_ones),
    )  # fmt: skip


def own_command() -> tuple[str, ...]:
    """Return the command that starts this torchmatrix, whatever Python files are in the current folder (-P: from 3.11 on)."""
    return (sys.executable, *(("-P",) if sys.version_info >= (3, 11) else ()), "-m", "torchmatrix")


def _is_open(name: str, value: str) -> bool:
    """Check whether a value holds no secret, and is read alike by systemd and cron: no quotes or blanks at its ends."""
    reads_alike = value.isprintable() and value.strip(" \"'") == value != ""
    return reads_alike and line_of_first(value) is None and bool(_OPEN.fullmatch(name) or _OPEN_VALUE.fullmatch(value))


def cron_lines(table: Timetable) -> str:
    """Return the variables, a line for the night at its time, and one that makes up for a missed or cut night after a boot.

    cron makes a line break of every % that has no backslash: https://man7.org/linux/man-pages/man5/crontab.5.html
    """
    hour, minute = map(int, table.at.split(":"))
    start = f"cd {shlex.quote(str(table.folder))} && {shlex.join(table.command)}".replace("%", "\\%")
    lines = [f"{name}={value}" for name, value in table.variables.items()]
    lines += [f"{minute} {hour} * * * {start}", f"@reboot sleep {CATCH_UP_SECONDS}; {start}"]
    return "\n".join([f"# {table.name}: to the end of the crontab (crontab -e)", *lines]) + "\n"


# systemd. How a unit file is read: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html (COMMAND LINES)
# and https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html (SPECIFIERS).


def systemd_script(table: Timetable, is_system: bool) -> str:
    """Return a shell script that writes the service and its timer, over older ones, and starts the timer; `is_system`: for the
    machine, else for this user.
    """
    place = "/etc/systemd/system" if is_system else '"${XDG_CONFIG_HOME:-$HOME/.config}"/systemd/user'
    systemctl, timer = "systemctl" if is_system else "systemctl --user", f"{table.name}.timer"
    written = "".join(f"cat >{place}/{name} <<'END'\n{text}END\n" for name, text in unit_texts(table).items())
    return f"""set -e
mkdir -p {place}
{written}{systemctl} daemon-reload
{systemctl} enable {timer}
{systemctl} restart {timer}
# to take it away: {systemctl} disable --now {timer}; rm {place}/{table.name}.*
"""


def unit_texts(table: Timetable) -> dict[str, str]:
    """Return the text of each unit, by its file's name.

    Not Persistent=: it would measure while the machine boots, and would not continue a night that a reboot cut.
    """
    what = f"{table.name}: a night of torchmatrix at {table.at}"
    return {
        f"{table.name}.service": _service(table, what),
        f"{table.name}.timer": f"""[Unit]
Description={what}

[Timer]
OnCalendar=*-*-* {table.at}:00
OnStartupSec={CATCH_UP_SECONDS}
AccuracySec=1s
RandomizedDelaySec=0

[Install]
WantedBy=timers.target
""",
    }


def _service(table: Timetable, what: str) -> str:
    """Return a service. KillMode=mixed: the night passes a stop on to its command, once, and waits while that cleans up. No
    Nice= and no limits: they would change what is measured."""
    variables = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in table.variables.items())
    return f"""[Unit]
Description={what}
After={" ".join(("network-online.target", *SERVICES))}
Wants=network-online.target

[Service]
Type=oneshot
WorkingDirectory={_escaped(str(table.folder).rstrip("/"))}/
{variables}ExecStart={exec_start(table.command)}
KillMode=mixed
TimeoutStartSec=infinity
TimeoutStopSec=180
"""


def exec_start(words: Sequence[str]) -> str:
    """Return a command for ExecStart=. A shell starts a program whose path has quotes or a $, which are not allowed there."""
    if re.search(r"[\"'\\$]", words[0]):
        words = ["/bin/sh", "-c", 'exec "$@"', "sh", *words]
    return " ".join(_quoted(word).replace("$", "$$") for word in words)


def _quoted(word: str) -> str:
    escaped = _escaped(word.replace("\\", "\\\\").replace('"', '\\"'))
    return escaped if re.fullmatch(r"[\w@%+=:,./-]+", escaped) else f'"{escaped}"'


def _escaped(text: str) -> str:
    """Escape a value that systemd doesn't split into words."""
    return text.replace("%", "%%")
