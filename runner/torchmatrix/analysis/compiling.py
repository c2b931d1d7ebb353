"""Launches -> how long torch.compile takes from an empty cache, and whether one compilation makes faster code than another."""

import math
from collections.abc import Iterable

from scipy.special import fdtrc

from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.centers import median_of, variance_of
from torchmatrix.analysis.column import Row

FEWEST = 3
"""Launches of either kind, below which scatters are not compared."""
LEVEL = 0.05


def compiles_table(cells: CellIndex) -> list[Row]:
    """One row per cell that was compiled from an empty cache in some ok launch.

    `compiled` launches did so: the median, least and largest time of their first step in seconds; `sd_between_artefacts` is the
    standard deviation of the logarithms of their throughputs. The `reused` launches all ran the code of one compilation:
    `sd_same_artefact`. `varies`: the former scatter is larger than the latter beyond chance, by an F test of the variances of
    the logarithms, one-sided, at LEVEL over the number of tests (Bonferroni); None with fewer than FEWEST launches of a kind.
    """
    shown = [row for row in map(_row, cells.figures) if row]
    tests = sum(not math.isnan(row["p"]) for row in shown)
    for row in shown:
        row["varies"] = None if math.isnan(row["p"]) else row["p"] * tests < LEVEL
    return shown


def _row(cell: Cell) -> Row | None:
    ok = [row for row in cell.ok if row["compile"]]
    cold, warm = ([row for row in ok if row["compile_cache"] == state] for state in ("cold", "warm"))
    if not cold:
        return None
    first = [row["first_step_seconds"] for row in cold if not math.isnan(row["first_step_seconds"])]
    between, same = (_scatter(row["throughput"] for row in some) for some in (cold, warm))
    return {name: cell[name] for name in ("cell", "stack", "workload", "devices", "unit")} | {
        "compiled": len(cold),
        "first_step_seconds": median_of(first) if first else math.nan,
        "first_step_low": min(first, default=math.nan),
        "first_step_high": max(first, default=math.nan),
        "sd_between_artefacts": between,
        "reused": len(warm),
        "sd_same_artefact": same,
        "p": _f_test(between, len(cold), same, len(warm)),
    }


def _scatter(throughputs: Iterable[float]) -> float:
    """The standard deviation of the logarithms; NaN of fewer than two."""
    logarithms = [math.log(one) for one in throughputs]
    return math.sqrt(variance_of(logarithms)) if len(logarithms) > 1 else math.nan


def _f_test(between: float, compiled: int, same: float, reused: int) -> float:
    """The probability that equal variances give such a ratio or a larger one."""
    if min(compiled, reused) < FEWEST or not same > 0:
        return math.nan
    return float(fdtrc(compiled - 1, reused - 1, (between / same) ** 2))
