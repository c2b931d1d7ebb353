"""Rows of launches that were never made."""

from functools import cache
from pathlib import Path
from typing import Any

from msgspec import structs

from support.records import launch_lines
from torchmatrix.analysis.launch_row import row_of
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of


def a_row(**columns: Any) -> LaunchRow:
    """Return the row of an invented launch with these columns."""
    return structs.replace(_usual(), **columns)


@cache
def _usual() -> LaunchRow:
    launch = launch_of(Path("a/round1-try1.jsonl"), launch_lines())
    assert isinstance(launch, Launch)
    return row_of(launch)
