"""Check tables of a TOML file against the keys they may have: every problem at once, with its line and a suggestion."""

import difflib
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torchmatrix.core.formatting import clipped, printable

Table = Mapping[str, Any]
MOST_PROBLEMS = 50
"""The most problems that are listed: more of them help nobody to mend a file."""
MOST_VALUES = 256
"""The limit of one list."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """The values that a key may have. `axis`: a list is allowed too and multiplies. `plural`: it must be a list.

    `longest`: characters of a text. `meaning`: a sentence for the reference. `formerly`: an older name of the key, which files
    written before still have.
    """

    kind: type
    default: Any = None
    choices: Collection[str] = ()
    minimum: float | None = None
    maximum: float | None = None
    pattern: str = ""
    longest: int = 1_000
    explanation: str = ""
    axis: bool = False
    plural: bool = False
    formerly: str = ""
    meaning: str = ""


NAME = Key(
    kind=str,
    pattern=r"[A-Za-z0-9][A-Za-z0-9._+-]*",
    longest=64,
    explanation="use letters, digits and . _ + - only, since it becomes part of ids and paths",
)
"""A name that the user gives."""
_NO_SECRET = r"(?!.*://[^/]*@)(?!.*://.*[?&]).*"
_SECRET = "contains credentials or a query, which would reach logs and reports; put them into ~/.netrc"
ADDRESS = Key(kind=str, pattern=_NO_SECRET, explanation=_SECRET)
ADDRESSES = Key(kind=str, default=(), plural=True, pattern=_NO_SECRET, explanation=_SECRET)
"""Values that are recorded and could hold a URL."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A table in the file: its header as written and which one of that name it is (0 for the first)."""

    header: str
    number: int = 0

    def describe(self, lines: list[str], key: str | None) -> str:
        """Name the place, as ``line 12, [[stack]] 2, torch``; with the line of the table if the key's line isn't found."""
        line = self._find(lines, key)
        label = f"{self.header} {self.number + 1}" if self.header.startswith("[[") else self.header
        return ", ".join(([f"line {line}"] if line else []) + [shown(label)] + ([shown(key)] if key else []))

    def _find(self, lines: list[str], key: str | None) -> int | None:
        headers = (i for i, line in enumerate(lines) if line.split("#")[0].replace(" ", "").strip() == self.header)
        start = next(islice(headers, self.number, None), None)
        if start is None:
            return None
        for index in range(start + 1, len(lines)):
            if lines[index].lstrip().startswith("["):
                break
            if key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", lines[index]):
                return index + 1
        return start + 1


def shown(value: object) -> str:
    """Return a value of the file as a message shows it, clipped to one line; a text without quotes."""
    return clipped(printable(value if isinstance(value, str) else repr(value)))


class Problems:
    """The problems of one file, the first ones if there are many. `notes`: remarks that are no problems."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self.messages: list[str] = []
        self.notes: list[str] = []
        self.number = 0

    def add(self, place: Place, key: str | None, message: str) -> None:
        """Add one problem at `place`."""
        self.number += 1
        if self.number <= MOST_PROBLEMS:
            self.messages.append(f"{place.describe(self._lines, key)}: {message}")

    def note(self, place: Place, key: str | None, message: str) -> None:
        """Add a remark that is no problem; of many, the first ones are kept, and that there are more."""
        if len(self.notes) < MOST_PROBLEMS:
            self.notes.append(f"{place.describe(self._lines, key)}: {message}")
        elif len(self.notes) == MOST_PROBLEMS:
            self.notes.append("and more settings without effect")

    def __str__(self) -> str:
        """Return a line for each problem."""
        return in_lines(self.messages, self.number)


def in_lines(first: Sequence[str], number: int) -> str:
    """Return a line for each of the first messages, and how many more there are of `number`."""
    more = [f"  and {number - len(first)} more"] if number > len(first) else []
    return "\n".join([*(f"  {message}" for message in first), *more])


def nearest(word: str, valid: Iterable[str]) -> str:
    """Suggest a word, as ``did you mean "precision"?``, or list the valid words where none is near."""
    words = sorted(map(str, valid))
    if not words:
        return "there is none"
    if near := difflib.get_close_matches(clipped(str(word)), words, n=1, cutoff=0.5):
        return f'did you mean "{near[0]}"?'
    return "valid: " + ", ".join(words[:MOST_PROBLEMS]) + (", …" if len(words) > MOST_PROBLEMS else "")


def check(table: Table, keys: Mapping[str, Key], place: Place, problems: Problems) -> dict[str, Any]:
    """Return the values of `table` with defaults filled in; axes and plurals as tuples. Problems are added, never raised."""
    table = _with_present_names(table, keys, place, problems)
    for name in [name for name in table if name not in keys][:MOST_PROBLEMS]:
        problems.add(place, name, f'unknown key "{shown(name)}"; {nearest(name, keys)}')
    return {name: _value(table, name, key, place, problems) for name, key in keys.items()}


def _with_present_names(table: Table, keys: Mapping[str, Key], place: Place, problems: Problems) -> Table:
    """Return `table` with every former name replaced by the present one."""
    present = {key.formerly: name for name, key in keys.items() if key.formerly}
    for former, name in present.items():
        if former in table and name in table:
            problems.add(place, former, f'is the former name of "{name}", which is also present: keep one of them')
    return {present.get(name, name): value for name, value in table.items()}


def _value(table: Table, name: str, key: Key, place: Place, problems: Problems) -> Any:
    if name not in table:
        return (key.default,) if key.axis else key.default
    given = table[name]
    if key.plural and not isinstance(given, list):
        problems.add(place, name, f"must be a list, not {_quoted(given)}")
        return key.default
    several = isinstance(given, list)
    if several and len(given) > MOST_VALUES:
        problems.add(place, name, f"must have at most {MOST_VALUES} values, not {len(given)}")
        return (key.default,) if key.axis else key.default
    if several and not (key.axis or key.plural):
        problems.add(place, name, "must be one value, not a list")
        return key.default
    values = given if several else [given]
    if several and not values and key.axis:
        problems.add(place, name, "the list is empty")
    checked = []
    for value in values:
        problem = _problem(value, key)
        if problem is None:
            checked.append(value)
        else:
            problems.add(place, name, problem)
    if len(set(map(str, checked))) < len(checked):
        problems.add(place, name, f"a value is listed twice: {shown(given)}")
    if not several and not key.axis:
        return checked[0] if checked else key.default
    return tuple(checked)


def _quoted(value: object) -> str:
    """Return a value as `shown` does, but a text with quotes."""
    return clipped(printable(repr(value)))


def _problem(value: Any, key: Key) -> str | None:
    """Return why a key can't have a value, or None."""
    wanted = (int, float) if key.kind is float else key.kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and key.kind is not bool):
        kinds = {str: "text in quotes", int: "a whole number", bool: "true or false", float: "a number", list: "a list"}
        return f"must be {kinds.get(key.kind, key.kind.__name__)}, not {_quoted(value)}"
    if key.choices and value not in key.choices:
        return f'unknown value "{shown(value)}"; {nearest(str(value), key.choices)}'
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, not {value}"
    if key.maximum is not None and isinstance(value, (int, float)) and value > key.maximum:
        return f"must be at most {key.maximum:.12g}, not {value}"
    if isinstance(value, str) and len(value) > key.longest:
        return f"must have at most {key.longest} letters, not {len(value)}"
    if isinstance(value, str) and not value.isprintable():
        return f"must be one line of printable letters, not {_quoted(value)}"
    if key.pattern and not re.fullmatch(key.pattern, str(value)):
        return key.explanation
    if key.minimum is not None and isinstance(value, (int, float)) and value < key.minimum:
        return f"must be at least {key.minimum:g}, not {value}"
    return None
