"""Cubes (analysis/cube) -> what the report says of them: sentences (telling.py), charts (charts.py), and here the tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis.cube import Cube, cubes_of
from torchmatrix.analysis.cube.points import Row
from torchmatrix.reporting.charts.rows import Chart
from torchmatrix.reporting.cubes import charts, telling

MOST_CUBES = 6
"""Of one page; all are in the exported tables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """What a report shows of one cube."""

    title: str
    sentences: tuple[str, ...]
    charts: tuple[Chart, ...]
    explained: tuple[dict[str, Any], ...]
    unexplained: float
    why_not: str


def sections_of(launches: Sequence[Row]) -> list[Section]:
    """One for each of the first cubes of a run's launches."""
    return [_section(cube, place) for place, cube in enumerate(cubes_of(launches)[:MOST_CUBES])]


def _section(cube: Cube, place: int) -> Section:
    return Section(
        title=telling.title(cube),
        sentences=tuple(telling.sentences(cube)),
        charts=tuple(charts.of(cube, place)),
        explained=tuple(
            {"settings": " × ".join(one.settings), "share": one.share, "p": one.adjusted_p_value}
            for one in cube.interactions.explained
        ),
        unexplained=cube.interactions.unexplained,
        why_not=cube.interactions.why_not,
    )
