"""Kinds of fields of an event: what fits, and how it is said. event_fields.py names the fields of each event by them."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.facts.checked import Malformed, Record, short

COUNT = 2**53
"""Larger whole numbers are not exact as a float."""
SECONDS = 1e9
"""Some thirty years."""
_NUMBERS = frozenset({int, float})
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field: `fits` says whether a value is valid, `wanted` what is valid, in words. `required`: it can't be null."""

    name: str
    fits: Callable[[Any], bool]
    wanted: str
    required: bool = False


def check_field(record: Record, field: Field) -> None:
    value = record.get(field.name)
    if value is None and field.name in record and field.required:
        raise Malformed(f"{field.name} is null, not {field.wanted}")
    if value is None and field.required:
        raise Malformed(f"{field.name} is missing")
    if value is not None and not field.fits(value):
        raise Malformed(f"{field.name} is {short(value)}, not {field.wanted}")


def text_field(name: str, required: bool = False) -> Field:
    return Field(name=name, fits=lambda value: type(value) is str, wanted="a text", required=required)


def flag_field(name: str) -> Field:
    return Field(name=name, fits=lambda value: type(value) is bool, wanted="true or false")


def word_field(name: str) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is str and _WORD.fullmatch(value) is not None

    return Field(name=name, fits=fits, wanted="a short word", required=True)


def one_of_field(name: str, *words: str) -> Field:
    listed = f"{', '.join(words[:-1])} or {words[-1]}"
    return Field(name=name, fits=lambda value: type(value) is str and value in words, wanted=listed, required=True)


def number_field(name: str, most: float, required: bool = False) -> Field:
    def fits(value: Any) -> bool:
        return (type(value) is float or type(value) is int) and 0 <= value <= most

    return Field(name=name, fits=fits, wanted=f"a number from 0 to {most:g}", required=required)


def ratio_field(name: str) -> Field:
    """A relative change; more than a hundredfold is none."""

    def fits(value: Any) -> bool:
        return (type(value) is float or type(value) is int) and -100 <= value <= 100

    return Field(name=name, fits=fits, wanted="a number from -100 to 100")


def whole_field(name: str, least: int = 0, required: bool = False) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is int and least <= value <= COUNT

    return Field(name=name, fits=fits, wanted=f"a whole number from {least} to {COUNT}", required=required)


def numbers_field(name: str, most: float, required: bool = False) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is list and _are_numbers(value, most) and (bool(value) or not required)

    return Field(name=name, fits=fits, wanted=f"a list of numbers from 0 to {most:g}", required=required)


def known_numbers_field(name: str, most: float) -> Field:
    """A list of numbers and nulls."""

    def fits(value: Any) -> bool:
        return type(value) is list and _are_numbers([one for one in value if one is not None], most)

    return Field(name=name, fits=fits, wanted=f"a list of nulls and numbers from 0 to {most:g}")


def rows_field(name: str, most: float) -> Field:
    """A list of lists of numbers, one for each rank."""

    def fits(value: Any) -> bool:
        return type(value) is list and all(type(row) is list and _are_numbers(row, most) for row in value)

    return Field(name=name, fits=fits, wanted=f"a list of lists of numbers from 0 to {most:g}")


def losses_field(name: str) -> Field:
    """A list of lists of numbers of any sign, one for each rank; null for what isn't finite."""
    types = {int, float, type(None)}

    def fits(value: Any) -> bool:
        return type(value) is list and all(type(row) is list and types.issuperset(map(type, row)) for row in value)

    return Field(name=name, fits=fits, wanted="a list of lists of numbers or null")


def square_field(name: str, *types: type) -> Field:
    """As many lists as each of them is long, with values of these types."""

    def fits(value: Any) -> bool:
        if type(value) is not list or not all(type(row) is list and len(row) == len(value) for row in value):
            return False
        return {type(one) for row in value for one in row} <= set(types)

    return Field(name=name, fits=fits, wanted="a square of lists")


def wholes_field(name: str) -> Field:
    def fits(value: Any) -> bool:
        return type(value) is list and bool(value) and set(map(type, value)) == {int} and 0 <= min(value) <= max(value) <= COUNT

    return Field(name=name, fits=fits, wanted=f"a list of whole numbers from 0 to {COUNT}", required=True)


def texts_field(name: str) -> Field:
    return Field(name=name, fits=lambda value: type(value) is list and set(map(type, value)) <= {str}, wanted="a list of texts")


def list_field(name: str) -> Field:
    return Field(name=name, fits=lambda value: type(value) is list, wanted="a list")


def object_field(name: str) -> Field:
    return Field(name=name, fits=lambda value: type(value) is dict, wanted="an object")


def named_numbers_field(name: str, most: float) -> Field:
    """An object of numbers of either sign."""

    def fits(value: Any) -> bool:
        if type(value) is not dict or not {type(one) for one in value.values()} <= _NUMBERS:
            return False
        return _are_numbers([abs(one) for one in value.values()], most)

    return Field(name=name, fits=fits, wanted=f"an object of numbers from {-most:g} to {most:g}")


def known_named_numbers_field(name: str, most: float) -> Field:
    """An object of nulls and numbers of either sign."""

    def fits(value: Any) -> bool:
        return (
            type(value) is dict
            and _are_numbers([abs(one) for one in value.values() if type(one) in _NUMBERS], most)
            and ({type(one) for one in value.values()} <= {*_NUMBERS, type(None)})
        )

    return Field(name=name, fits=fits, wanted=f"an object of nulls and numbers from {-most:g} to {most:g}")


def parts_field(name: str, *fields: Field) -> Field:
    """A list of objects with these fields; what is wrong inside is reported by its own name."""

    def fits(value: Any) -> bool:
        if type(value) is not list or not set(map(type, value)) <= {dict}:
            return False
        for record in value:
            for field in fields:
                _check_inside(name, record, field)
        return True

    return Field(name=name, fits=fits, wanted="a list of objects")


def _check_inside(name: str, record: Record, field: Field) -> None:
    try:
        check_field(record, field)
    except Malformed as why:
        raise Malformed(f"{name}: {why}") from None


def _are_numbers(values: Sequence[Any], most: float) -> bool:
    """Whether all are numbers from 0 to `most`; NaN is neither."""
    if not set(map(type, values)) <= _NUMBERS:
        return False
    return not values or (min(values) >= 0 and max(values) <= most and not any(map(math.isnan, values)))
