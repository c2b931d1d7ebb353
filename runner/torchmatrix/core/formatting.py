"""Format texts and numbers for a terminal, a table and JSON: an unknown number is NaN or None, and n/a to a reader."""

import math
from collections.abc import Mapping
from typing import Any

# Texts from outside, made fit for one line of a terminal or a table

LONGEST = 60
"""Characters of a value that stands in a line with others."""


def clipped(text: str, longest: int = LONGEST) -> str:
    """Return at most `longest` characters; a text that is cut ends in an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


_JOINERS = "\u200c\u200d"
"""They join or part the letters of several scripts, and emoji."""


def printable(text: str) -> str:
    """Return the text with blanks for all that could control a terminal, hide or turn round text, or break the line."""
    is_plain = text.isprintable()
    return text if is_plain else "".join(c if c.isprintable() or c in _JOINERS else " " for c in text)


def as_text(path: object) -> str:
    """Return a path as text that any file can hold: bytes of its name that are no UTF-8 as escapes, such as \\xe9."""
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")


def in_one_line(text: str) -> str:
    """Return the text printable, with one blank for any white space between words."""
    return printable(" ".join(text.split()))


def count(number: int, noun: str) -> str:
    """Return number and noun, such as "1 cell" or "3 cells"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith(('ch', 's', 'sh', 'x')) else 's'}"


def are(number: int) -> str:
    """Return the verb for a number of things: "is" or "are"."""
    return "is" if number == 1 else "are"


# Numbers as every package reads and writes them: NaN and None are unknown, and unknown is a dash to a reader.
#
# Exact halves go to the even digit, as Python writes them; the pages' scripts do so, too (templates/scripts/say.js).

UNKNOWN = "–"
HUGE = 1e15
"""The size from which on not all digits of a number are written."""


def is_known(value: Any) -> bool:
    """Check whether a value is a number other than NaN."""
    return isinstance(value, (int, float)) and not math.isnan(value)


def number_or_nan(value: Any) -> float:
    """Return the value as a float; NaN for anything but a number. True and False are no numbers."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan


def none_for_nan(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row for JSON, which has no NaN."""
    return {str(key): None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}


def without_nan(value: Any) -> Any:
    """Return a value with its content for JSON: null for unknown and infinite numbers, lists for tuples."""
    if isinstance(value, Mapping):
        return {str(key): without_nan(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def figure(value: Any) -> str:
    """Format with four significant digits, whole from 10,000 on; a dash for an unknown value."""
    if not is_known(value):
        return UNKNOWN
    text = f"{value + 0.0:#.4g}".rstrip(".")
    return f"{value:.0f}" if "e" in text and 1e4 <= abs(float(text)) < HUGE else text


def four_decimals(value: Any) -> str:
    """Format a ratio or a share with four decimals; a dash for an unknown value."""
    return f"{value:.4f}" if is_known(value) else UNKNOWN


def in_digits(value: float, digits: int) -> float | int:
    """Round a finite number to `digits` significant digits; a whole one to an int, whose text is shorter in large pages."""
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_BREAKS = ("\t", "\r", "\n")


def csv_field(value: Any) -> Any:
    """Convert a value for the csv module, which writes a float as its repr, and None as an empty field."""
    if isinstance(value, str):
        plain = plain_text(value)
        return plain if plain[:1].isalnum() else inert(plain)
    return ("true" if value else "false") if isinstance(value, bool) else value


def plain_text(text: str) -> str:
    """Return the text with blanks for what would control a terminal or turn text round; line breaks stay."""
    return text if text.isprintable() else "".join(c if c in _BREAKS else printable(c) for c in text)


def inert(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_BREAKS) or text.lstrip(" ").startswith(_FORMULA) else text
