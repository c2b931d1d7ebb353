"""Colours and shapes of bars and lines: by GPU where there are several models, else by stack, the same in all explorers."""

from collections.abc import Sequence

from torchmatrix.reporting.charts import PALETTE
from torchmatrix.reporting.charts.drawing import SHAPES
from torchmatrix.reporting.explorers.choosing import Dim, Row


def place_of(dims: Sequence[Dim], row: Row) -> int:
    """Of the GPU model, or the stack."""
    gpu = next(dim for dim in dims if dim.name == "gpu")
    return int(row["gpu"] if len(gpu.values) > 1 else row["stack"])


def colour_of(dims: Sequence[Dim], row: Row) -> str:
    return PALETTE[place_of(dims, row) % len(PALETTE)]


def shape_of(place: int) -> str:
    """Of the n-th line of a panel; lines of one colour differ in shape."""
    return SHAPES[place % len(SHAPES)]
