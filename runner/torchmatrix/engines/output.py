"""What a launch prints, cut into lines, with a bound on what is kept of a line that doesn't end."""

from collections.abc import Iterator

from torchmatrix.ground import settings
from torchmatrix.ground.settings import MEGABYTE

Line = tuple[str, bytes]
"""The stream ("out" or "err") and a line with its line break."""


class Output:
    """Cuts two streams into lines. One that is longer than the setting `line_mb` comes in pieces, without line breaks."""

    def __init__(self) -> None:
        self._rest = {"out": b"", "err": b""}
        self._longest = settings.load().line_mb * MEGABYTE

    def add(self, stream: str, data: bytes) -> Iterator[Line]:
        """The lines that these bytes complete."""
        *complete, rest = (self._rest[stream] + data).split(b"\n")
        yield from ((stream, line + b"\n") for line in complete)
        self._rest[stream] = b"" if len(rest) > self._longest else rest
        if len(rest) > self._longest:
            yield stream, rest

    def end(self) -> Iterator[Line]:
        """What was printed without a line break at the end."""
        yield from ((stream, rest) for stream, rest in self._rest.items() if rest)


def text_of(line: bytes) -> str:
    """A line as text, without its line break."""
    return line.decode(errors="replace").removesuffix("\n")
