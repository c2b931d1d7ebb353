"""A night as two lines to paste into a crontab, and the script that they start; no crontab is read or written."""

import shlex
from pathlib import Path

from torchmatrix.nightly.timetable import CATCH_UP_SECONDS, NOTE, Timetable, settings_folder


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


def lines(table: Timetable) -> str:
    """Two lines: the night at its time, and the check for a missed or cut night after a boot.

    cron makes a line break of every % that has no backslash: https://man7.org/linux/man-pages/man5/crontab.5.html
    """
    hour, minute = map(int, table.at.split(":"))
    start = f"/bin/sh {shlex.quote(str(script_path(table.name)))}".replace("%", "\\%")
    return f"""{minute} {hour} * * * {start} # {table.name}
@reboot sleep {CATCH_UP_SECONDS}; {start} --if-missed {table.at} # {table.name}
"""
