"""A run's cells in brief: what `run` ends with, as a small table for the terminal or as records for a program."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.rows import is_ok
from torchmatrix.analysis.run_summary import launch_rows
from torchmatrix.facts.alike import counting
from torchmatrix.facts.launch import Launch
from torchmatrix.ground.formatting import clipped, count, figure, printable
from torchmatrix.reporting import words

NOT_LAUNCHED = "not launched"


@dataclass(frozen=True, kw_only=True, slots=True)
class CellSummary:
    """One cell: items (`unit`) per second with its 95 % interval from `n` launches that were ok; None: unknown.

    `failed`: launches that were not; `left_out`: those that were, but are unlike the others. `outcome`: ok if any launch was,
    else that of the last one; `reason`: the last error.
    """

    id: str
    throughput: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    failed: int = 0
    left_out: int = 0
    unit: str = ""
    verdict: str = "n/a"
    outcome: str = NOT_LAUNCHED
    reason: str | None = None

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def of_launches(launches: Iterable[Launch], planned: Iterable[str]) -> list[CellSummary]:
    """Every planned cell of a run in its order; what was not launched yet says so."""
    found = CellIndex(launch_rows(counting(launches))).named
    return [_summary(found[name]) if name in found else CellSummary(id=name) for name in planned]


def _summary(cell: Cell) -> CellSummary:
    found = cell.summary()
    return CellSummary(
        id=cell["cell"],
        throughput=_known(found["throughput"]),
        low=_known(found["low"]),
        high=_known(found["high"]),
        **{name: found[name] for name in ("n", "failed", "left_out", "verdict")},
        unit=cell["unit"],
        outcome=cell.last["outcome"],
        reason=next((row["error"] for row in reversed(cell.launches) if not is_ok(row)), None),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def in_words(cells: Sequence[CellSummary], width: int, most: int) -> str:
    """A table of at most `most` cells, at most `width` letters wide.

    Where the ids leave no room for the figures, the figures stand below their id.
    """
    launched = [cell for cell in cells if cell.outcome != NOT_LAUNCHED]
    shown = launched[:most]
    rows = [("cell", "throughput", "95 % interval", "verdict"), *map(_columns, shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [_line(row, widths, width) for row in rows] if shown else []
    if len(launched) > len(shown):
        failed = sum(cell.outcome != "ok" for cell in launched[most:])
        lines.append(f"and {count(len(launched) - most, 'more cell')}" + (f", {failed} of them failed" if failed else ""))
    if len(cells) > len(launched):
        lines.append(f"{count(len(cells) - len(launched), 'cell')} not launched")
    return "\n".join(lines)


def _columns(cell: CellSummary) -> tuple[str, str, str, str]:
    failed = f"; {cell.failed} failed" if cell.failed else ""
    failed += f"; {cell.left_out} left out" if cell.left_out else ""
    if cell.throughput is None:
        return printable(cell.id), "not measured", "", words.failed(cell.outcome)
    interval = words.UNKNOWN if cell.low is None or cell.high is None else f"{figure(cell.low)} to {figure(cell.high)}"
    return (
        printable(cell.id),
        f"{figure(cell.throughput)} {cell.unit}/s",
        interval,
        f"{words.NO_INTERVAL if cell.verdict == 'n/a' else cell.verdict}{failed}",
    )


def _line(row: tuple[str, str, str, str], widths: Sequence[int], width: int) -> str:
    figures = f"{row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}"
    if sum(widths) + 6 <= width:
        return f"{row[0]:<{widths[0]}}  {figures}"
    below = clipped(f"  {figures}", width)
    return below if row[0] == "cell" else f"{clipped(row[0], width)}\n{below}"
