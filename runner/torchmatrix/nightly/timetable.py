"""What a timer needs to know of a night: when, which command, where, with which variables. Not who begins it."""

import hashlib
import os
import pwd
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.engines.choose import VARIABLES
from torchmatrix.ground.errors import BadInput
from torchmatrix.machine import masks
from torchmatrix.nightly.journal import clock

Say = Callable[[str], None]
"""Tells the user a line."""
CATCH_UP_SECONDS = 300
"""So long after its start a machine is asked whether a night was missed or cut: booting disturbs what is measured."""
NOTE = "# written by: torchmatrix nightly install; taken away by: torchmatrix nightly remove"
_TAKEN = re.compile(
    rf"{VARIABLES}_\w+"
    rf"|(?i:(https?|ftp|all|no)_proxy)|(TORCHMATRIX|UV)_\w+|{'|'.join(masks.VARIABLES)}|XDG_(CONFIG|CACHE)_HOME"
    r"|PATH|HOME|LANG|LC_ALL|PYTHONPATH|PIP_INDEX_URL|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE",
    flags=re.ASCII,
)
"""The variables that decide what a run does or reaches; a timer starts with hardly any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timetable:
    """The nights of one matrix. `at`: HH:MM, local; `command`: the whole of a night's, with absolute paths; `folder`: where it
    was installed, and where nights are begun; `is_system`: for the machine, else for this user. `run_as`: the user who spends
    them, if it isn't the one who installs them."""

    matrix: Path
    results: Path
    at: str
    command: tuple[str, ...]
    folder: Path
    is_system: bool
    run_as: str | None = None

    @property
    def name(self) -> str:
        """What its units, files and crontab lines are called: another for every matrix file."""
        return name_for(self.matrix)

    @property
    def environment(self) -> Path:
        """The file of variables that its nights begin with; only its owner may read it."""
        return settings_folder() / f"{self.name}.env"


def name_for(matrix: Path) -> str:
    """torchmatrix-night- and eight characters of the hash of the matrix file's path."""
    return f"torchmatrix-night-{hashlib.sha256(os.fsencode(matrix.absolute())).hexdigest()[:8]}"


def settings_folder() -> Path:
    """Where the variables, the scripts for cron and what is installed stand, beside the user's settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "torchmatrix" / "nightly"


def timetable(
    matrix: Path, results: Path, at: str, words: Sequence[str], *, is_system: bool, run_as: str | None = None
) -> Timetable:
    """The nights that `words`, those after `torchmatrix`, begin from the current folder. Raises BadInput."""
    hour, minute = clock(at)
    command = (*own_command(), *words)
    for word in (*command, str(Path.cwd()), str(settings_folder())):
        if not word.isprintable():
            raise BadInput(f"a path or option holds what a unit or a crontab can't: {word!r}", hint="rename it")
    return Timetable(
        matrix=matrix.absolute(),
        results=results.absolute(),
        at=f"{hour:02}:{minute:02}",
        command=command,
        folder=Path.cwd(),
        is_system=is_system,
        run_as=run_as,
    )


def environment_of(run_as: str, here: Mapping[str, str]) -> dict[str, str]:
    """As `here`, with the home of another user. Raises BadInput if there is no such user, or if it is root."""
    try:
        entry = pwd.getpwnam(run_as)
    except (KeyError, ValueError):
        raise BadInput(f"there is no user {run_as!r}", hint="name an existing one: --run-as NAME") from None
    if entry.pw_uid == 0:
        raise BadInput("--run-as names root", hint="name an ordinary user, or leave it out")
    rest = {name: value for name, value in here.items() if not name.startswith("XDG_")}
    return {**rest, "HOME": entry.pw_dir}


def own_command() -> tuple[str, ...]:
    """What starts this very torchmatrix, whatever Python files lie in the current folder (-P is new in Python 3.11)."""
    return (sys.executable, *(("-P",) if sys.version_info >= (3, 11) else ()), "-m", "torchmatrix")


def variables_taken(here: Mapping[str, str]) -> dict[str, str]:
    """Those of this moment's variables that nights begin with."""
    return {name: value for name, value in here.items() if _TAKEN.fullmatch(name) and "\0" not in value}


def environment_text(variables: Mapping[str, str]) -> str:
    """Variables as both systemd's EnvironmentFile= and a shell read them."""
    lines = [NOTE]
    for name, value in sorted(variables.items()):
        quoted = re.sub(r'(["\\$`])', r"\\\1", value)
        lines.append(f'{name}="{quoted}"')
    return "\n".join(lines) + "\n"
