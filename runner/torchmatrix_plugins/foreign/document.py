"""A file of any content -> what a reader takes from it, checked by type. All raise BadInput."""

import csv
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import as_text, clipped, in_one_line, printable

MOST_BYTES = 64 << 20
"""Of a file: 1,000 requests of 1,000 tokens each, with all their times, take 20 MB."""
HINT = "docs/other-tools.md lists the files that are read"
MS = {
    "min": 6e4, "s": 1e3, "sec": 1e3, "seconds": 1e3, "ms": 1.0, "milliseconds": 1.0, "us": 1e-3, "microseconds": 1e-3,
    "ns": 1e-6, "nanoseconds": 1e-6,
}  # fmt: skip
"""Milliseconds in a unit."""


class Aggregate(BadInput):
    """A file that sums up runs and holds no figure of each."""


class Fields:
    """An object of a file, whose fields are taken by type: what is missing or null is None, of another type BadInput."""

    def __init__(self, data: Any, place: str) -> None:
        if not isinstance(data, dict):
            raise BadInput(f"{place} is {_kind(data)}, not an object", hint=HINT)
        self.data: dict[str, Any] = data
        self.place = place

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def is_object(self, key: str) -> bool:
        """Check whether an object stands under this key."""
        return isinstance(self.data.get(key), dict)

    def number(self, *keys: str) -> float | None:
        """Return the number at a path of keys. A number that isn't one (NaN, infinite) is None."""
        value = self._at(keys)
        if value is None:
            return None
        if isinstance(value, str) and value.strip().lower() in ("inf", "infinity", "nan", "n/a", ""):
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadInput(f"{self.place}: {'.'.join(keys)} is {_kind(value)}, not a number", hint=HINT)
        return float(value) if math.isfinite(value) else None

    def positive(self, *keys: str) -> float | None:
        """Return the number at a path of keys if it is above 0, else None."""
        value = self.number(*keys)
        return value if value is not None and value > 0 else None

    def whole(self, *keys: str) -> int | None:
        """Return the whole number at a path of keys."""
        value = self.number(*keys)
        return None if value is None else int(value)

    def text(self, *keys: str) -> str:
        """Return a text, or a number as one, at a path of keys; "" for none."""
        value = self._at(keys)
        return clipped(str(value), 200) if isinstance(value, (str, int, float)) else ""

    def milliseconds(self, unit: str) -> float:
        """Return the milliseconds in a unit of this object's times."""
        if unit not in MS:
            raise BadInput(f"{self.place}: the unit {in_one_line(unit)} isn't known", hint=f"known units: {', '.join(MS)}")
        return MS[unit]

    def flag(self, *keys: str) -> bool:
        """Check whether true stands at a path of keys."""
        return self._at(keys) is True

    def part(self, *keys: str) -> "Fields":
        """Return the object at a path of keys; an empty one where none is."""
        value = self._at(keys)
        return Fields({} if value is None else value, f"{self.place}: {'.'.join(keys)}")

    def parts(self, *keys: str) -> list["Fields"]:
        """Return the objects of the list at a path of keys."""
        place = f"{self.place}: {'.'.join(keys)}"
        return [Fields(value, f"{place}[{index}]") for index, value in enumerate(self._list(keys))]

    def numbers(self, *keys: str) -> tuple[float, ...]:
        """Return the numbers of the list at a path of keys."""
        return numbers_of(self._list(keys), f"{self.place}: {'.'.join(keys)}")

    def lists(self, *keys: str) -> tuple[tuple[float, ...], ...]:
        """Return the lists of numbers in the list at a path of keys."""
        place = f"{self.place}: {'.'.join(keys)}"
        rows = self._list(keys)
        if wrong := next((row for row in rows if not isinstance(row, list)), None):
            raise BadInput(f"{place} holds {_kind(wrong)}, not lists", hint=HINT)
        return tuple(numbers_of(row or [], place) for row in rows)

    def _list(self, keys: tuple[str, ...]) -> list[Any]:
        value = self._at(keys)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BadInput(f"{self.place}: {'.'.join(keys)} is {_kind(value)}, not a list", hint=HINT)
        return value

    def _at(self, keys: tuple[str, ...]) -> Any:
        value: Any = self.data
        for key in keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return value


def numbers_of(values: list[Any], place: str) -> tuple[float, ...]:
    """Return a list of times, rates or lengths. Raises BadInput for anything else in it: NaN, infinity, less than 0."""
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise BadInput(f"{place} holds {_kind(value)}, not numbers alone", hint=HINT)
        if value < 0:
            raise BadInput(f"{place} holds {value:g}, which is less than nothing", hint=HINT)
    return tuple(map(float, values))


def _kind(value: Any) -> str:
    kinds = {bool: "true or false", str: "a text", list: "a list", dict: "an object", type(None): "null"}
    return kinds.get(type(value), "no finite number")


@dataclass(frozen=True)
class Document:
    """A file's content, parsed as each reader wants it, once. `name`: the file's name."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """Return the file's name, fit for a line."""
        return printable(as_text(self.path.name))

    @property
    def place(self) -> str:
        """Return its path, fit for a line."""
        return printable(as_text(self.path))

    @cached_property
    def looks_like_json(self) -> bool:
        """Check whether it begins as an object or a list does."""
        return self.text.lstrip()[:1] in ("{", "[")

    @cached_property
    def json(self) -> Any:
        """Return the file as JSON, of several lines of objects a list; None if it isn't meant to be JSON. Raises BadInput for
        one that is cut or damaged, if its name says that it is JSON."""
        if not self.looks_like_json:
            return None
        try:
            return self._json()
        except BadInput:
            if self.path.suffix in (".json", ".jsonl"):
                raise
            return None

    def _json(self) -> Any:
        lines = [line for line in self.text.splitlines() if line.strip()]
        if len(lines) > 1 and all(line.startswith("{") for line in lines) and _is_object(lines[0]):
            return [self._parsed(line, f"{self.place}, line {number}") for number, line in enumerate(lines, 1)]
        return self._parsed(self.text, self.place)

    @staticmethod
    def _parsed(text: str, place: str) -> Any:
        return inputs.json_of(text, place, hint=HINT, takes_infinity=True)

    @cached_property
    def objects(self) -> tuple[Fields, ...]:
        """Return the objects of its lines or of its list, or its one object; () if it holds anything else."""
        values = self.json if isinstance(self.json, list) else [self.json]
        if not all(isinstance(value, dict) for value in values):
            return ()
        return tuple(
            Fields(value, f"{self.name}, {index}" if len(values) > 1 else self.name) for index, value in enumerate(values, 1)
        )

    @cached_property
    def object(self) -> Fields:
        """Return the file's one object; an empty one if it holds none, or several."""
        return self.objects[0] if len(self.objects) == 1 else Fields({}, self.name)

    @cached_property
    def yaml(self) -> Fields | None:
        """Return the object of a YAML file; None if it is none. Raises BadInput without PyYAML, and for aliases, with which a
        small file grows beyond all memory."""
        if self.path.suffix not in (".yaml", ".yml"):
            return None
        try:
            import yaml  # type: ignore[import-untyped]
        except ImportError:
            hint = "pip install pyyaml, or convert it to JSON"
            raise BadInput(f"{self.place} is YAML, and PyYAML isn't installed", hint=hint) from None
        try:
            if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(self.text, Loader=yaml.SafeLoader)):
                raise BadInput(f"{self.place} has aliases, which no such report needs", hint=HINT)
            data = yaml.safe_load(self.text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise BadInput(f"{self.place} is not valid YAML: {in_one_line(str(error))}", hint=HINT) from None
        return Fields(data, self.name) if isinstance(data, dict) else None

    @cached_property
    def records(self) -> tuple[Fields, ...]:
        """Return its objects or, of a CSV file, its rows by the names of the header: numbers where a text is one."""
        if self.looks_like_json:
            return self.objects
        rows = csv.DictReader(self.text.splitlines())
        return tuple(Fields(_typed(row), f"{self.name}, row {number}") for number, row in enumerate(rows, 2))


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _typed(row: Mapping[str, str]) -> dict[str, Any]:
    return {key: _number(text) for key, text in row.items() if isinstance(key, str) and isinstance(text, str)}


def _number(text: str) -> Any:
    if not text.strip():
        return None
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        value = float(text)
        return value if math.isfinite(value) or text.strip().lstrip("+-").isalpha() else text  # a commit such as 12e4567
    return text


def read(path: Path) -> Document:
    """Read a file of at most MOST_BYTES."""
    return Document(path, inputs.read_text(path, hint=HINT, most_bytes=MOST_BYTES))
