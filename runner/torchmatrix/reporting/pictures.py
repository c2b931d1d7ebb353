"""Charts -> drawings, which a process beside this one can make while this one goes on. Loads no library before it draws."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from torchmatrix.ground.sharing import beside
from torchmatrix.machine.quota import usable_cpus

if TYPE_CHECKING:
    from torchmatrix.reporting.charts import Chart

Draw: TypeAlias = "Callable[[Sequence[Chart]], Callable[[], list[str]]]"
"""Begins to draw some charts; what it returns waits for the SVG elements (charts.to_svg), in the same order.

Of no charts: the renderer gets ready, which takes half a second, if that can be done beside this process.
"""
_EMPTY: Mapping[str, Any] = {"data": {"values": []}, "mark": "point"}
_Told = tuple[str, str, Mapping[str, Any]]
"""Title, note and specification."""


def here(charts: "Sequence[Chart]") -> Callable[[], list[str]]:
    """Draws in this process, when it is waited for."""
    return lambda: _drawn(_told(charts))


@contextmanager
def drawing() -> Iterator[Draw]:
    """Where this process may use a second CPU, a process beside it draws. To be begun before any library starts threads."""
    if usable_cpus() < 2:
        yield here
        return
    with beside(_drawn) as ask:
        yield lambda charts: ask(_told(charts))


def _told(charts: "Sequence[Chart]") -> list[_Told]:
    return [(chart.title, chart.note, chart.spec) for chart in charts]


def _drawn(told: Sequence[_Told]) -> list[str]:
    from torchmatrix.reporting.charts import svg_of

    drawn = [svg_of(*one) for one in told or [("", "", _EMPTY)]]
    return drawn if told else []
