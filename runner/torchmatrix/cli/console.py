"""What every verb says on stderr: complaints, the machine, progress."""

import sys
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from torchmatrix import __version__
from torchmatrix.ground.errors import NothingSelected

if TYPE_CHECKING:
    from torchmatrix.running.news import News
    from torchmatrix.running.session import Session

Result = TypeVar("Result")


def complain(message: str, hint: str) -> None:
    print(f"error: {message}\n\nhint: {hint}", file=sys.stderr)


def say(text: str = "") -> None:
    print(text, file=sys.stderr)


def preamble(s: "Session") -> None:
    """What this machine is and what will be used, before anything slow."""
    host = s.host
    gpus = f"{len(host.gpus)} x {host.gpus[0].name}, driver {host.driver}" if host.gpus else "no GPU"
    say(f"torchmatrix {__version__} on {host.name}: {host.cpu}, {len(host.cores)} cores; {gpus}")
    say(f"engine: {s.engines.why}")
    for note in (*host.notes, *s.notes):
        say(f"note: {note}")


def refuse_nothing(s: "Session") -> None:
    if s.plan.cells:
        return
    if s.plan.skips:
        first = s.plan.skips[0]
        raise NothingSelected(
            f"all {len(s.plan.skips)} selected cells are skipped here; the first: {first.cell.id}: {first.why.reason}",
            hint=f"{first.why.fix}; torchmatrix doctor lists the rest",
        )
    raise NothingSelected("the selection matches no cell", hint="torchmatrix plan lists the ids of all cells")


def skips_in_words(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """(stack, reason) pairs, each once, with the number of cells."""
    counted: dict[tuple[str, str], int] = {}
    for pair in reasons:
        counted[pair] = counted.get(pair, 0) + 1
    for (stack, reason), count in counted.items():
        yield f"{stack} ({count} cell{'s' if count > 1 else ''}): {reason}"


def tell(news: "Generator[News, None, Result]", todo: list[Any], known: dict[str, float], name_ready: bool = False) -> "Result":
    """Tell the news as they come; returns what running them came to. `name_ready`: with the stacks that were built before."""
    from contextlib import closing

    from rich.console import Console

    from torchmatrix.cli.narrate import Narrator

    console = Console(stderr=True, highlight=False)
    with Narrator(console, todo, known) as narrator, closing(news):
        try:
            while True:
                narrator.tell(next(news))
        except StopIteration as over:
            result: Result = over.value
    if name_ready and narrator.ready:
        say(f"ready before: {', '.join(narrator.ready)}")
    return result
