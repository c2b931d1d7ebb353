"""Find what plugins add, by group and name, and load it when it is used. A stranger's code may raise anything, an exit too."""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from torchmatrix.core.errors import EngineUnusable, ToolError, is_interruption
from torchmatrix.core.formatting import in_one_line, printable

VERBS = "torchmatrix.verbs"
"""Names are verbs; each is a function whose parameters are Typer's, or a typer.Typer of several."""
ENGINES = "torchmatrix.engines"
"""Names are choices of --engine; each is called with the folder for its files and the owner of what it starts, returns an
engine (engines/engine.py), or raises EngineUnusable where this machine can't have it."""
SCHEDULERS = "torchmatrix.schedulers"
"""Names are choices of `run --engine`; each is called with a running.scheduler.Request and returns a Scheduler."""
PAGES = "torchmatrix.pages"
"""Names are pages of `report --page NAME=PATH`; each is called with a reporting.pages.PageRequest, writes, and returns the path
of its first page."""
JOBS = "torchmatrix.jobs"
"""Names are first words of what jobs call, not for people; each is called with the other words and returns an exit code."""
FILES = "torchmatrix.files"
"""Names are free; each is called with a verb (compare or audit), its words and its options by name, and returns an Answer, or
None where the words name no files that it reads."""
FORMATS = "torchmatrix.formats"
"""Names are formats of `export --format`; each is called with a run's reporting.exports.Tables and returns the contents (bytes)
of its files by their names."""
_OURS = "torchmatrix_plugins."


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a verb says of files that others wrote: `text` for stdout, or `record` for --json, and `notes` for stderr."""

    text: str
    record: Any
    notes: tuple[str, ...] = ()
    exit_code: int = 0


@cache
def _installed() -> Any:
    """Return all entry points, which takes a scan of all packages: of SelectableGroups in Python 3.11, else EntryPoints."""
    return entry_points()


def is_ours(entry: EntryPoint) -> bool:
    """Check whether an entry point names what comes with this tool."""
    return entry.value.startswith(_OURS)


def entries(group: str) -> list[EntryPoint]:
    """Return the entry points of a group by name; of two of one name ours, or else the first, comes first."""
    return sorted(_installed().select(group=group), key=lambda entry: (entry.name, not is_ours(entry), entry.value))


def names(group: str) -> tuple[str, ...]:
    """Return the names in a group, each once."""
    return tuple(dict.fromkeys(entry.name for entry in entries(group)))


def loaded(entry: EntryPoint) -> Callable[..., Any]:
    """Load what an entry point names; what its module prints goes to stderr. Raise whatever it raises, and TypeError for what
    can't be called.
    """
    with redirect_stdout(sys.stderr):
        hook = entry.load()
    if not callable(hook):
        raise TypeError("it names nothing that can be called")
    return hook  # type: ignore[no-any-return]


def load(group: str, name: str) -> Callable[..., Any]:
    """Load what has this name in the group. Raises EngineUnusable for one that can't be loaded, KeyError for none."""
    entry = next((entry for entry in entries(group) if entry.name == name), None)
    if entry is None:
        raise KeyError(name)
    try:
        return loaded(entry)
    except BaseException as error:
        if is_interruption(error):
            raise
        raise EngineUnusable(
            printable(f"the plugin {name} can't be used: {why(error)}"), hint="install it again, or another version of it"
        ) from None


def made(group: str, name: str, is_right: Callable[[Any], bool], *given: Any) -> Any:
    """Call what has this name in the group; return what it gives. Raises EngineUnusable, in a line that names the plugin, for
    one that can't be loaded, fails, or gives what isn't right; errors of our own pass.
    """
    hook = load(group, name)
    try:
        result = hook(*given)
        if not is_right(result):
            raise TypeError(f"it gives {result!r}")
    except ToolError:
        raise
    except BaseException as error:  # an exit, too: it would be the command's
        if is_interruption(error):
            raise
        raise EngineUnusable(printable(f"the plugin {name} failed: {why(error)}"), hint="leave it out, or mend it") from None
    return result


def why(error: BaseException) -> str:
    """Write an error of a plugin in one line."""
    with suppress(Exception):  # its message may raise, too
        return in_one_line(f"{type(error).__name__}: {error}")
    return type(error).__name__
