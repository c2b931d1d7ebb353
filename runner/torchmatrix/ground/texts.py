"""Texts from outside, made fit for one line of a terminal or a table."""

LONGEST = 60
"""Letters of a value that stands in a line with others."""


def clipped(text: str, longest: int = LONGEST) -> str:
    """At most `longest` letters; what is cut ends in an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def printable(text: str) -> str:
    """Without what could steer a terminal or break the line."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def as_text(path: object) -> str:
    """A path as text that any file can hold: bytes of its name that are no UTF-8 as escapes, such as \\xe9."""
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")


def in_one_line(text: str) -> str:
    """Printable, with one blank for whatever stands between words."""
    return printable(" ".join(text.split()))


def count(number: int, noun: str) -> str:
    """Such as "1 cell" or "3 cells"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith(('ch', 's', 'sh', 'x')) else 's'}"
