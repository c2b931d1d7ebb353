"""Ways in which the generators of bad input make it: from a good text, or from invented values."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from torchmatrix.core.errors import ExitCode, ToolError

ODD = (
    "",
    "0",
    "-1",
    "²",
    "1e999",
    "nan",
    "inf",
    "true",
    "9" * 4_400,
    "0x" + "f" * 500,
    "9223372036854775808",
    "[" * 1_000,
    "{",
    "]",
    '"',
    "'" * 3,
    '"""',
    "\0",
    "\ud800",
    "\uffff",
    "\x1b[31m",
    "\n",
    "\r",
    "=",
    ",",
    ";",
    "#",
    "--help",
    "-r /etc/passwd",
    "../..",
    "n" * 300,
    "[[stack]]",
    "[run]",
    "a." * 40,
    "2026-11-22",
    "1_000",
    "[[1, 2], [3]]",
    "{ default = 1 }",
    "null",
    "NaN",
    "%s",
    "\\",
    "\\u0000",
    "/",
)
"""What a parser or a later step may choke on."""


def mutated(text: str, random: Random, words: Sequence[str] = ODD) -> str:
    """Return the text after one to three changes: characters or lines lost, doubled, swapped, replaced."""
    for _ in range(random.randint(1, 3)):
        text = random.choice((_cut, _doubled, _inserted, _replaced, _flipped, _swapped))(text, random, words)
    return text


def _span(text: str, random: Random, longest: int = 40) -> tuple[int, int]:
    begin = random.randint(0, len(text))
    return begin, min(len(text), begin + random.randint(0, longest))


def _cut(text: str, random: Random, words: Sequence[str]) -> str:
    begin, end = _span(text, random)
    return text[:begin] + text[end:]


def _doubled(text: str, random: Random, words: Sequence[str]) -> str:
    begin, end = _span(text, random, 200)
    return text[:end] + text[begin:]


def _inserted(text: str, random: Random, words: Sequence[str]) -> str:
    begin, _ = _span(text, random)
    return text[:begin] + random.choice(words) + text[begin:]


def _replaced(text: str, random: Random, words: Sequence[str]) -> str:
    """Replace a value after a = or a comma by another."""
    places = [i for i, letter in enumerate(text) if letter in "=,:"] or [0]
    begin = random.choice(places) + 1
    end = next((i for i in range(begin, len(text)) if text[i] in ",\n"), len(text))
    return text[:begin] + random.choice(words) + text[end:]


def _flipped(text: str, random: Random, words: Sequence[str]) -> str:
    begin, _ = _span(text, random)
    return text[:begin] + chr(random.choice((random.randrange(128), random.randrange(0xD000)))) + text[begin + 1 :]


def _swapped(text: str, random: Random, words: Sequence[str]) -> str:
    lines = text.split("\n")
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return "\n".join(lines)


def as_bytes(text: str) -> bytes:
    """Return the text in UTF-8; what can't be written so is left as bytes that are none."""
    return text.encode(errors="surrogatepass")


def held(try_it: Callable[[], object], what: object) -> None:
    """Assert that it succeeds or ends with a message and a hint of our own. `what`: the input, for the failure's text."""
    try:
        try_it()
    except ToolError as error:
        message = str(error)
        assert message and error.hint and error.exit_code is ExitCode.BAD_INPUT, f"no way out: {message!r} for {what!r}"
        assert len(message) < 30_000 and all(c.isprintable() or c == "\n" for c in message), f"{message!r} for {what!r}"
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}, for {what!r}") from error


def in_files(
    random: Random, name: str, make: Callable[[Random], bytes], read: Callable[[Path], object]
) -> Iterator[Callable[[], None]]:
    """Yield cases in which `read` is given a file of what `make` made."""
    path = Path(mkdtemp(prefix="torchmatrix-faults-")) / name

    def case(content: bytes) -> None:
        path.write_bytes(content)
        held(partial(read, path), content)

    try:
        while True:
            yield partial(case, make(random))
    finally:
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def mixed(random: Random, *streams: Iterator[Callable[[], None]]) -> Iterator[Callable[[], None]]:
    """Yield the cases of several streams, in any order."""
    while True:
        yield next(random.choice(streams))
