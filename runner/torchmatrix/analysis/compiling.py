"""Launches -> how long torch.compile takes from an empty cache, and whether one compilation makes faster code than another."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd
from scipy.special import fdtrc

from torchmatrix.analysis.centers import variance_of
from torchmatrix.matrix.factors import ONE_MODEL

FEWEST = 3
"""Launches of either kind, below which scatters are not compared."""
LEVEL = 0.05
COLUMNS = (
    "cell", "stack", "workload", "devices", "unit", "compiled", "first_step_seconds", "first_step_low", "first_step_high",
    "sd_between_artefacts", "reused", "sd_same_artefact", "p", "varies",
)  # fmt: skip


def compiles_table(launches: pd.DataFrame) -> pd.DataFrame:
    """One row per cell that was compiled from an empty cache in some ok launch.

    `compiled` launches did so: the median, least and largest time of their first step in seconds; `sd_between_artefacts` is the
    standard deviation of the logarithms of their throughputs. The `reused` launches all ran the code of one compilation:
    `sd_same_artefact`. `varies`: the former scatter is larger than the latter beyond chance, by an F test of the variances of
    the logarithms, one-sided, at LEVEL over the number of tests (Bonferroni); None with fewer than FEWEST launches of a kind.
    """
    ok = launches[launches["compile"] & (launches["outcome"] == "ok") & launches["parallel"].isin(ONE_MODEL)]
    rows = [_row(group) for _, group in ok.groupby("cell", sort=False)]
    shown = [row for row in rows if row["compiled"]]
    tests = sum(not math.isnan(row["p"]) for row in shown)
    for row in shown:
        row["varies"] = None if math.isnan(row["p"]) else row["p"] * tests < LEVEL
    return pd.DataFrame(shown, columns=list(COLUMNS))


def _row(group: pd.DataFrame) -> dict[str, Any]:
    cold, warm = (group[group["compile_cache"] == state] for state in ("cold", "warm"))
    first = cold["first_step_seconds"].astype(float)
    between, same = _scatter(cold["throughput"]), _scatter(warm["throughput"])
    named = {name: group.iloc[-1][name] for name in COLUMNS[:5]}
    return named | {
        "compiled": len(cold),
        "first_step_seconds": first.median(),
        "first_step_low": first.min(),
        "first_step_high": first.max(),
        "sd_between_artefacts": between,
        "reused": len(warm),
        "sd_same_artefact": same,
        "p": _f_test(between, len(cold), same, len(warm)),
    }


def _scatter(throughputs: Iterable[Any]) -> float:
    """The standard deviation of the logarithms; NaN of fewer than two."""
    logarithms = [math.log(one) for one in throughputs]
    return math.sqrt(variance_of(logarithms)) if len(logarithms) > 1 else math.nan


def _f_test(between: float, compiled: int, same: float, reused: int) -> float:
    """The probability that equal variances give such a ratio or a larger one."""
    if min(compiled, reused) < FEWEST or not same > 0:
        return math.nan
    return float(fdtrc(compiled - 1, reused - 1, (between / same) ** 2))
