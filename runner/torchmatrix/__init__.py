"""torchmatrix: a containerized, reproducible benchmark matrix for PyTorch."""

from typing import TYPE_CHECKING

from torchmatrix.core import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from torchmatrix.frames import Runs

__all__ = ["__version__", "read"]


def read(folder: "str | Path" = "results") -> "Runs":
    """Read a results folder: its runs, their cells, and tables as pandas data frames. Raises BadInput if it isn't there."""
    from torchmatrix.frames import Runs

    return Runs(folder)
