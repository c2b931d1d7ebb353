"""Standard output and standard error as the command writes to them: whatever a text holds, it can't control the terminal."""

from collections.abc import Iterable
from typing import Any, TextIO
from unicodedata import category

from torchmatrix.core.formatting import printable


def _plain(line: str) -> str:
    """Return a line printable, with its spaces of other widths: the paths on stdout are data."""
    return line if line.isprintable() else "".join(c if category(c) == "Zs" else printable(c) for c in line)


class PlainStream:
    """A text stream through which only printable characters and line breaks come, whoever writes and wherever the text is from.

    `own`: the stream below, for what writes colours of its own (progress on a terminal) and makes each text printable itself.
    """

    def __init__(self, own: TextIO) -> None:
        self.own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def write(self, text: str) -> int:
        """Write a text of one or more lines. A part of a name that is not UTF-8 is written as an escape, such as \\udce9."""
        escaped = text.encode(errors="backslashreplace").decode()
        self.own.write("\n".join(map(_plain, escaped.split("\n"))))
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.write(text)
