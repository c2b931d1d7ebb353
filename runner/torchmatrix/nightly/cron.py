"""A night as lines of the user's crontab: only lines that end with our mark are ever replaced or removed."""

import re
import shlex
from pathlib import Path

from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.files import write_whole
from torchmatrix.nightly.timetable import CATCH_UP_SECONDS, NOTE, Outside, Timetable, settings_folder

_DAEMONS = ("cron", "crond", "fcron")


def script_path(name: str) -> Path:
    """The script that cron starts: a line of a crontab may be too short for a command."""
    return settings_folder() / f"{name}.sh"


def script(table: Timetable) -> str:
    """Sets the environment that a timer lacks, then becomes the night."""
    environment, folder = shlex.quote(str(table.environment)), shlex.quote(str(table.folder))
    return f"""#!/bin/sh
{NOTE}
set -a
. {environment} || exit 4
set +a
cd {folder} || exit 4
exec {shlex.join(table.command)} "$@"
"""


def lines(table: Timetable) -> list[str]:
    """Two lines: the night at its time, and the check for a missed or cut night after a boot."""
    hour, minute = table.at.split(":")
    start = f"/bin/sh {shlex.quote(str(script_path(table.name)))}"
    commands = {
        f"{int(minute)} {int(hour)} * * *": start,
        "@reboot": f"sleep {CATCH_UP_SECONDS}; {start} --if-missed {table.at}",
    }
    return [f"{when} {_escaped(command)} {_mark(table.name)}" for when, command in commands.items()]


def _mark(name: str) -> str:
    return f"# {name}"


def _escaped(command: str) -> str:
    """cron makes a line break of every % that has no backslash: https://man7.org/linux/man-pages/man5/crontab.5.html"""
    return command.replace("%", "\\%")


def without(crontab: bytes, name: str) -> bytes:
    """The crontab without our lines of that name; all else as it was, byte for byte."""
    mark = _mark(name).encode()
    return b"".join(line for line in crontab.splitlines(keepends=True) if not _is_ours(line, mark))


def _is_ours(line: bytes, mark: bytes) -> bool:
    return line.rstrip().endswith(b" " + mark) and not line.lstrip().startswith(b"#")


def with_lines(crontab: bytes, table: Timetable) -> bytes:
    """The crontab with our lines at its end, instead of older ones."""
    rest = without(crontab, table.name)
    between = b"" if not rest or rest.endswith(b"\n") else b"\n"
    return rest + between + "".join(f"{line}\n" for line in lines(table)).encode()


def answers(outside: Outside) -> str | None:
    """Why cron can't be used here; None: it can."""
    try:
        read(outside)
    except EngineUnusable as error:
        return str(error)
    return None


def runs_here() -> bool:
    """Is a cron daemon running? Without one, the lines have no effect."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            found.add(path.read_text(encoding="utf-8").strip())
        except OSError:
            continue
    return not found.isdisjoint(_DAEMONS)


def read(outside: Outside) -> bytes:
    """The user's crontab, empty if there is none. Raises EngineUnusable."""
    done = outside.ask("crontab", "-l")
    is_empty = done.returncode == 1 and re.search(rb"(?i)no crontab for|can't open", done.stderr)  # Debian and others; busybox
    if done.returncode and not is_empty:
        raise EngineUnusable(
            f"crontab -l failed: {done.stderr.decode(errors='replace').strip() or done.returncode}",
            hint="install cron, or check that this user may use it (/etc/cron.allow)",
        )
    return b"" if is_empty else done.stdout


def install(table: Timetable, outside: Outside) -> list[Path]:
    """Write the script and the lines. Returns the files."""
    path = script_path(table.name)
    write_whole(path, script(table).encode())
    outside.do("crontab", "-", given=with_lines(read(outside), table))
    return [path]


def remove(name: str, outside: Outside) -> list[str]:
    """Take our lines and the script away, as far as they are there. Returns what went."""
    gone = []
    if answers(outside) is None:
        before = read(outside)
        after = without(before, name)
        if after != before:
            outside.do(*(("crontab", "-") if after else ("crontab", "-r")), given=after or None)
            gone += [line.decode(errors="replace").strip() for line in before.splitlines() if line not in after.splitlines()]
    if script_path(name).exists():
        script_path(name).unlink()
        gone.append(str(script_path(name)))
    return gone


def is_installed(name: str, outside: Outside) -> bool:
    """Are our lines in the crontab?"""
    before = read(outside)
    return without(before, name) != before
