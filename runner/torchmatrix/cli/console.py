"""Print what every verb prints on stderr: errors, the machine, progress; and set how much of it."""

import glob
import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torchmatrix.cli.options import Volume
from torchmatrix.core import __version__
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import disk_errors, write_to, write_whole
from torchmatrix.core.formatting import as_text, count, printable
from torchmatrix.core.secrets import cleaned, cleaned_value

if TYPE_CHECKING:
    from torchmatrix.analysis.prices import PriceList
    from torchmatrix.facts.launch import Unreadable
    from torchmatrix.facts.store import Results, RunFolder
    from torchmatrix.reporting.redaction import Redaction
    from torchmatrix.running.progress import ProgressEvent
    from torchmatrix.running.session import Session

Item = TypeVar("Item")
Result = TypeVar("Result")
WIDE = 240
MOST_UNREADABLE = 5
"""How many unreadable files are named."""


def volume_of(quiet: bool, verbose: bool) -> Volume:
    """Return the volume that --quiet and --verbose set. Raises BadInput if both are given."""
    if quiet and verbose:
        raise BadInput("--quiet and --verbose contradict each other", hint="use one of the two options")
    return Volume.QUIET if quiet else Volume.VERBOSE if verbose else Volume.NORMAL


def complain(message: str, hint: str) -> None:
    print(cleaned(f"error: {message}\n\nhint: {hint}"), file=sys.stderr)


def in_json(value: Any, **how: Any) -> str:
    """Return a value as JSON, without credentials, in ASCII and with an escape for DEL, so that it is printed as it is; `how`:
    options of `json`.
    """
    return json.dumps(cleaned_value(value), **how).replace("\x7f", "\\u007f")


def say(text: str = "", volume: Volume = Volume.NORMAL) -> None:
    if volume > Volume.QUIET:
        print(cleaned(text), file=sys.stderr, flush=True)


def write_file(path: Path, content: bytes, hint: str) -> None:
    """Write a file, in a new folder if need be. Raises EngineUnusable with the hint where it can't be written."""
    with disk_errors(path, hint=hint):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_to(path, content)


def write_new(path: Path, text: str) -> None:
    """Write the file of --write FILE. Raises BadInput if the file exists, and EngineUnusable."""
    if path.exists() or path.is_symlink():
        raise BadInput(f"{path} exists", hint="name a new file: --write FILE")
    with disk_errors(path, hint="name another file: --write FILE"):
        write_whole(path, text.encode())
    say(f"wrote {path}")


def answer_for_files(verb: str, words: list[str], as_json: bool, **options: Any) -> None:
    """Print what a plugin says of files that another tool wrote, and end; do nothing where no word names a file or a folder."""
    import typer

    from torchmatrix.core import plugins

    if not any(os.path.lexists(word) or glob.has_magic(word) for word in words if "\0" not in word):
        return
    for name in plugins.names(plugins.FILES):
        try:
            given = plugins.made(
                plugins.FILES, name, lambda given: given is None or isinstance(given, plugins.Answer), verb, words, options
            )
        except EngineUnusable as error:
            say(f"note: {error}")
            continue
        if given:
            print(in_json(given.record) if as_json else cleaned(given.text), end="\n" if as_json or given.text else "")
            for note in given.notes:
                say(printable(note))
            raise typer.Exit(given.exit_code)


def say_unreadable(
    unreadable: "Sequence[Unreadable]", volume: Volume = Volume.NORMAL, cleaner: "Redaction | None" = None
) -> None:
    """Name the first of the files that can't be read, and count the others. `cleaner`: what made them, if they are copies."""
    for file in unreadable[:MOST_UNREADABLE]:
        what = "can't be read in part" if file.path.name == "run.jsonl" else "can't be read and is left out"
        path = cleaner.sources.get(file.path, file.path) if cleaner else file.path
        say(printable(f"{as_text(path)} {what}: {file.reason}"), volume)
    if len(unreadable) > MOST_UNREADABLE:
        say(f"{count(len(unreadable) - MOST_UNREADABLE, 'further file')} can't be read", volume)


def read_prices(path: Path | None, runs: "Iterable[RunFolder]") -> "PriceList":
    """Return the price list in a file, and name its rows that are left out; without a file none. Raises BadInput."""
    from torchmatrix.analysis.prices import price_list_for

    held = price_list_for(path, runs)
    for row in held.unknown[:MOST_UNREADABLE]:
        say(printable(f"note: {path}, {row}: left out"))
    if len(held.unknown) > MOST_UNREADABLE:
        say(f"note: so are {len(held.unknown) - MOST_UNREADABLE} more rows")
    return held


def list_runs(results: "Results") -> "list[RunFolder]":
    """Return all runs, oldest first. Name those that are never `last`, since it isn't known when they began, and those that
    are left out."""
    from torchmatrix.facts.store import host_of, undated

    listed = results.listed()
    left_out = listed.left_out
    for path, why in islice(left_out.items(), MOST_UNREADABLE):
        say(printable(f"note: {path} is left out: {why}"))
    if len(left_out) > MOST_UNREADABLE:
        say(f"note: so are {len(left_out) - MOST_UNREADABLE} more")
    if runs := undated(listed.runs):
        names = printable(", ".join(f"{host_of(run)}/{run.id}" for run in runs[:MOST_UNREADABLE]))
        more = f" and {len(runs) - MOST_UNREADABLE} more" if len(runs) > MOST_UNREADABLE else ""
        never = ": never taken for the last run" if len(runs) < len(listed.runs) else ""
        say(f"note: when {names}{more} began isn't known, or is still to come{never}")
    return listed.runs


def width() -> int:
    """Return the width of a line on stderr, in characters; WIDE if it isn't a terminal, so that ids stay whole."""
    return shutil.get_terminal_size().columns if sys.stderr.isatty() else WIDE


def preamble(s: "Session", volume: Volume = Volume.NORMAL) -> None:
    """Describe this machine and what will be used, before anything slow."""
    host = s.host
    gpus = host.gpus_in_words + (f", driver {host.driver}" if host.gpus else "")
    say(f"torchmatrix {__version__} on {host.name}: {host.cpu}, {count(len(host.cores), 'core')}; {gpus}", volume)
    say(f"engine: {s.engines.why}", volume)
    for note in (*filter(None, [host.limits_in_words]), *host.notes, *s.notes, *s.matrix.notes, *s.plan.notes):
        say(f"note: {note}", volume)


def consume(items: "Generator[Item, None, Result]", handle: Callable[[Item], None]) -> Result:
    """Pass every item of a generator to `handle`; return the generator's result."""
    while True:
        try:
            item = next(items)
        except StopIteration as end:
            result: Result = end.value
            return result
        handle(item)


def tell(
    events: "Generator[ProgressEvent, None, Result]",
    todo: list[Any],
    earlier: dict[str, float],
    volume: Volume = Volume.NORMAL,
    build_seconds: float = 0.0,
    name_ready: bool = False,
    node_of: "Mapping[str, str] | None" = None,
) -> "Result":
    """Report progress events as they come; return the generator's result.

    `earlier`: seconds by cell id from earlier runs; `build_seconds`: how long builds may take first. `name_ready`: also list
    the stacks that were already built. `node_of`: the node of a cluster that measures a cell, by its id.
    """
    from contextlib import closing

    from rich.console import Console

    from torchmatrix.cli.narrate import Narrator

    console = Console(file=getattr(sys.stderr, "own", sys.stderr), highlight=False)  # the narrator's texts are printable
    with (
        Narrator(console, todo, earlier, build_seconds=build_seconds, volume=volume, node_of=node_of) as narrator,
        closing(events),
    ):
        result = consume(events, narrator.tell)
    if name_ready and narrator.ready:
        say(f"already built: {', '.join(narrator.ready)}", volume)
    return result
