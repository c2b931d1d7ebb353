"""Add the verbs of plugins, ours and strangers' alike."""

import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

import typer

from torchmatrix.cli.console import say
from torchmatrix.cli.options import app
from torchmatrix.core import plugins
from torchmatrix.core.formatting import printable

BROKEN: dict[str, str] = {}
"""Why a plugin's verb can't be used, by the name of its entry point."""
_TRIED: set[EntryPoint] = set()
"""The entry points whose verbs were added, or can't be."""


def _of_core() -> set[str]:
    return {command.name or str(getattr(command.callback, "__name__", "")) for command in app.registered_commands}


def jobs() -> set[str]:
    """Return the first words of jobs; a job that is named like a verb goes to BROKEN."""
    verbs = _of_core() | {*plugins.names(plugins.VERBS)}
    names = {*plugins.names(plugins.JOBS)}
    BROKEN.update(dict.fromkeys(sorted(names & verbs), "ValueError: its job is named like a verb"))
    return names - verbs


def _add_verbs(word: str) -> None:
    """Add the verb of each entry point to the command, after the core's; one that can't be used goes to BROKEN.

    `word`: the first of the command line. If it is a verb, ours of other names aren't loaded, which takes a while.
    """
    taken, entries = _of_core(), plugins.entries(plugins.VERBS)
    is_verb = word in taken | {entry.name for entry in entries}
    for entry in entries:
        if entry in _TRIED or (is_verb and entry.name != word and plugins.is_ours(entry)):
            continue
        _TRIED.add(entry)
        try:
            if entry.name in taken:
                raise ValueError("the core, or another plugin, has a verb of that name")
            verb = _loaded(entry)
            if isinstance(verb, typer.Typer):
                app.add_typer(verb, name=entry.name)
            else:
                app.command(entry.name)(verb)
            taken.add(entry.name)
        except BaseException as error:  # a stranger's code may raise anything, an exit and an interruption, too
            BROKEN[entry.name] = plugins.why(error)


@cache
def command(word: str = "") -> Any:
    """Return the command, whole or as far as a command line that begins with this word needs it. Where it can't be made,
    verbs of plugins whose parameters can't be are left out.
    """
    _add_verbs(word)
    try:
        return typer.main.get_command(app)
    except Exception:
        app.registered_commands = [one for one in app.registered_commands if _can_be_made(one, "registered_commands")]
        app.registered_groups = [one for one in app.registered_groups if _can_be_made(one, "registered_groups")]
        return typer.main.get_command(app)


def _can_be_made(verb: Any, kind: str) -> bool:
    """Check whether a registered verb alone makes a command; else leave it out."""
    alone = typer.Typer()
    setattr(alone, kind, [verb])
    try:
        typer.main.get_command(alone)
    except Exception as error:
        BROKEN[str(verb.name)] = plugins.why(error)
        return False
    return True


def _loaded(entry: EntryPoint) -> Callable[..., Any]:
    """Load a verb. Raise whatever it raises, and ValueError or TypeError for none."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", entry.name):
        raise ValueError("a verb is small letters, digits and -")
    return plugins.loaded(entry)


def tell_broken() -> None:
    """Name each plugin that can't be used, in a line on stderr."""
    for name, why in BROKEN.items():
        say(printable(f"note: the plugin {name} is left out: {why}"))
