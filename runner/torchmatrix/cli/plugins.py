"""Add the verbs of plugins, ours and strangers' alike: functions, or groups of verbs, named by entry points."""

from importlib.metadata import entry_points

import typer

from torchmatrix.cli.console import say
from torchmatrix.cli.options import app
from torchmatrix.core.formatting import in_one_line, printable

VERBS = "torchmatrix.verbs"
"""The group of entry points whose names are verbs: each a function whose parameters are Typer's, or a typer.Typer of some."""
BROKEN: dict[str, str] = {}
"""Why a plugin's verb can't be used, by the name of its entry point."""


def add_verbs() -> None:
    """Add the verb of each entry point to the command, after the core's; one that can't be loaded goes to BROKEN."""
    taken = {command.name or str(getattr(command.callback, "__name__", "")) for command in app.registered_commands}
    for entry in sorted(entry_points(group=VERBS), key=lambda entry: entry.name):
        try:
            if entry.name in taken:
                raise ValueError("the core, or another plugin, has a verb of that name")
            verb = entry.load()
            if isinstance(verb, typer.Typer):
                app.add_typer(verb, name=entry.name)
            else:
                app.command(entry.name)(verb)
            taken.add(entry.name)
        except (Exception, SystemExit) as error:  # a stranger's code may raise anything
            BROKEN[entry.name] = in_one_line(f"{type(error).__name__}: {error}")


def tell_broken() -> None:
    """Name each plugin that can't be used, in a line on stderr."""
    for name, why in BROKEN.items():
        say(printable(f"note: the plugin {name} is left out: {why}"))
