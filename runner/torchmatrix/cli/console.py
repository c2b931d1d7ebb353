"""What every verb says on stderr: complaints, the machine, progress; and how much of it."""

import shutil
import sys
from collections.abc import Generator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from torchmatrix import __version__
from torchmatrix.ground.errors import BadInput

if TYPE_CHECKING:
    from torchmatrix.running.news import News
    from torchmatrix.running.session import Session

Result = TypeVar("Result")
WIDE = 240


class Volume(IntEnum):
    """How much is said on stderr: errors only; progress and results; commands and build logs too."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


def volume_of(quiet: bool, verbose: bool) -> Volume:
    """What --quiet and --verbose ask for. Raises BadInput."""
    if quiet and verbose:
        raise BadInput("--quiet and --verbose contradict each other", hint="use one of the two options")
    return Volume.QUIET if quiet else Volume.VERBOSE if verbose else Volume.NORMAL


def complain(message: str, hint: str) -> None:
    print(f"error: {message}\n\nhint: {hint}", file=sys.stderr)


def say(text: str = "", volume: Volume = Volume.NORMAL) -> None:
    if volume > Volume.QUIET:
        print(text, file=sys.stderr, flush=True)


def width() -> int:
    """Letters of a line on stderr; where it is no terminal, ids stay whole."""
    return shutil.get_terminal_size().columns if sys.stderr.isatty() else WIDE


def preamble(s: "Session", volume: Volume = Volume.NORMAL) -> None:
    """What this machine is and what will be used, before anything slow."""
    host = s.host
    gpus = f"{len(host.gpus)} x {host.gpus[0].name}, driver {host.driver}" if host.gpus else "no GPU"
    say(f"torchmatrix {__version__} on {host.name}: {host.cpu}, {len(host.cores)} cores; {gpus}", volume)
    say(f"engine: {s.engines.why}", volume)
    for note in (*host.notes, *s.notes):
        say(f"note: {note}", volume)


def tell(
    news: "Generator[News, None, Result]",
    todo: list[Any],
    known: dict[str, float],
    volume: Volume = Volume.NORMAL,
    build_seconds: float = 0.0,
    name_ready: bool = False,
) -> "Result":
    """Tell the news as they come; returns what running them came to.

    `known`: seconds by cell id from earlier runs; `build_seconds`: what the builds may take before. `name_ready`: name the
    stacks that were built before.
    """
    from contextlib import closing

    from rich.console import Console

    from torchmatrix.cli.narrate import Narrator

    console = Console(stderr=True, highlight=False)
    with Narrator(console, todo, known, build_seconds=build_seconds, volume=volume) as narrator, closing(news):
        try:
            while True:
                narrator.tell(next(news))
        except StopIteration as over:
            result: Result = over.value
    if name_ready and narrator.ready:
        say(f"already built: {', '.join(narrator.ready)}", volume)
    return result
