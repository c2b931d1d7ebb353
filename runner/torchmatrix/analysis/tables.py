"""Launches -> tables (pandas): one row per launch, one row per cell. Definitions are in glossary.py."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.centers import mean_of, median_of, variance_of
from torchmatrix.analysis.intervals import center_interval, detectable, noise_verdict, outliers
from torchmatrix.analysis.launch_row import COLUMNS_OF_LAUNCHES, MAY_BE_NONE, PARITY, Row, columns_of, left_out, row_of
from torchmatrix.facts.launch import UNLIKE, Launch

CellKey = tuple[str, ...]
"""What tells one cell from all others: its id, and in tables of several machines the machine before it."""

OF_A_FLEET = ("machine", "gpu")
"""The columns that a table of several machines has besides (see machines.py)."""


def launches_table(launches: Iterable[Launch]) -> pd.DataFrame:
    """One row per launch; the columns are COLUMNS_OF_LAUNCHES."""
    return table_of(launch_rows(launches))


def launch_rows(launches: Iterable[Launch]) -> list[Row]:
    """The rows of launches_table as dictionaries: unknown numbers are NaN, other unknowns None, sequences tuples."""
    rows = [row_of(launch) for launch in launches]
    borrow_flops(rows)
    return rows


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """The table of what launch_rows made, of one run or of several; of a fleet if the rows say so."""
    found = columns_of(rows, [*COLUMNS_OF_LAUNCHES, *told_by(rows[0] if rows else ())])
    return _without_own_texts(pd.DataFrame({name: _column(name, values) for name, values in found.items()}))


def told_by(columns: Iterable[str]) -> list[str]:
    """Those of OF_A_FLEET that are among `columns`."""
    return [name for name in OF_A_FLEET if name in columns]


def with_none(table: pd.DataFrame, rows: Sequence[Row], names: Iterable[str]) -> pd.DataFrame:
    """None where a row has it: pandas makes NaN of it, which is true. Texts as they are: pandas 3 reads its own slowly."""
    for column in names:
        table[column] = pd.Series([row[column] for row in rows], dtype=object)
    return _without_own_texts(table)


def _without_own_texts(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype({name: object for name, kind in table.dtypes.items() if kind == "str"})


def _column(name: str, values: Sequence[Any]) -> Any:
    """As with_none makes it, at once: pandas looks at every value of what isn't said to be objects."""
    return pd.Series(values, dtype=object) if name in MAY_BE_NONE or set(map(type, values)) == {str} else list(values)


def cells_table(launches: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: median throughput over its ok launches, interval, n, CV, verdict; failed launches are counted."""
    if launches.empty:
        names = ["cell", "n", "failed", "throughput", "low", "high", "cv", "verdict", "outcome", "parallel"]
        return pd.DataFrame(columns=[*names, *told_by(launches.columns)])
    groups: dict[CellKey, list[Row]] = {}
    for row in records(launches):
        groups.setdefault(key_of(row), []).append(row)
    rows = [_cell_row(group) for group in groups.values()]
    return with_none(pd.DataFrame(rows), rows, [name for name in MAY_BE_NONE if name in rows[0]])


def records(table: pd.DataFrame) -> list[Row]:
    """The rows of a table as dictionaries by column, their numbers as Python's own. Faster than pandas' to_dict by far."""
    names, columns = list(table.columns), [_values(table[name]) for name in table.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: pd.Series) -> list[Any]:
    """A text that is unknown is None, also from pandas 3, where a column of texts has NaN for it."""
    values: list[Any] = column.tolist()
    return [None if value != value else value for value in values] if isinstance(column.dtype, pd.StringDtype) else values


def by_cell(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The launches of each cell of one machine, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["cell"], []).append(row)
    return groups


def key_of(row: Row) -> CellKey:
    """Of a row's cell: what two machines call the same is not the same cell."""
    return (row["machine"], row["cell"]) if "machine" in row else (row["cell"],)


def summary(launches: Sequence[Row]) -> Row:
    """What the launches of one cell say of its throughput: n (ok), failed, left_out (see launch_row), throughput, low and high
    (95 %), cv.

    Items per second; NaN where there are too few ok launches to say.
    """
    values = [float(launch["throughput"]) for launch in launches if launch["outcome"] == "ok"]
    interval = center_interval(values, shown(launches)["statistic"])
    return {
        "n": len(values),
        "failed": sum(launch["outcome"] not in ("ok", UNLIKE) for launch in launches),
        "throughput": interval.value,
        "low": interval.low,
        "high": interval.high,
        "cv": math.sqrt(variance_of(values)) / mean_of(values) if len(values) > 1 else math.nan,
        "detectable": detectable(values),
        "outliers": outliers(values),
        **left_out(launches),
    }


def shown(launches: Sequence[Row]) -> Row:
    """The launch that stands for its cell where they can't be pooled: the last ok one, else the last."""
    return next((launch for launch in reversed(launches) if launch["outcome"] == "ok"), launches[-1])


def borrow_flops(rows: Sequence[Row]) -> None:
    """A launch that counted nothing takes what its stack counted for the same operations; where the stack's torch has no
    counter, what another stack did (`flops_from`: which). What a launch counted itself stays.
    """
    told = [row for row in rows if row["outcome"] == "ok" and not row["flops_from"] and not math.isnan(row["flops_per_item"])]
    own = {(row["stack"], row["recipe"], row["operations"]): row for row in reversed(told)}
    others = {row["operations"]: row for row in reversed(told)}
    for row in rows:
        if not math.isnan(row["flops_per_item"]):
            continue
        same = own.get((row["stack"], row["recipe"], row["operations"]))
        found = same or others.get(row["operations"])
        if found and _same_model(row, found):
            row |= {"flops_per_item": found["flops_per_item"], "flops_from": None if same else found["stack"]}


def _same_model(row: Row, other: Row) -> bool:
    """As far as both tell."""
    return None in (row["parameters"], other["parameters"]) or row["parameters"] == other["parameters"]


_OF_LAST = tuple(
    name
    for name in COLUMNS_OF_LAUNCHES
    if name not in ("run", "round", "throughput", "requests", "path", "seconds", "stall", "left_out")
)
"""What a cell has of the launch that stands for it."""


def _cell_row(launches: list[Row]) -> Row:
    ok = [launch for launch in launches if launch["outcome"] == "ok"]
    last, found = shown(launches), summary(launches)
    cold = [launch["first_step_seconds"] for launch in ok if launch["compile"] and launch["compile_cache"] == "cold"]
    per_device = found["throughput"] / last["count"]
    return {
        **{key: last[key] for key in (*_OF_LAST, *told_by(last))},
        **found,
        "peak_bytes": max((launch["peak_bytes"] for launch in ok), default=math.nan),
        **_worst_parity(ok),
        "per_device": per_device,
        "verdict": noise_verdict(found["cv"], found["n"]),
        "cold_compile_seconds": median_of(cold) if cold else math.nan,
        "not_flat": sum(launch["flat"] is False for launch in ok),
        "drift": _median(launch["drift"] for launch in ok),
        "stalled": sum(launch["stall"] > 0 for launch in ok),
        "throttled": sum(bool(launch["throttled"]) for launch in ok),
        "not_steady": sum(launch["steady"] is False for launch in ok),
        "throttled_later": sum(bool(launch["throttled_later"]) for launch in ok),
        **{key: _farthest(launch[key] for launch in ok) for key in ("warming", "clock_change", "power_change", "later_clock")},
        "at_limit": _farthest(launch["at_limit"] for launch in ok),
        "under_load_seconds": min((launch["under_load_seconds"] for launch in ok), default=math.nan),
        "too_warm": sum(bool(launch["too_warm"]) for launch in ok),
        "skipped_steps": sum(launch["skipped_steps"] > 0 for launch in ok),
        "start_unknown": sum(bool(launch["start_unknown"]) for launch in ok),
        "ecc_errors": sum(launch["ecc_errors"] for launch in ok),
        "quota_seconds": max((launch["quota_seconds"] for launch in ok), default=0.0),
        "clock_jumps": sum(launch["clock_jump_seconds"] != 0 for launch in ok),
        "remarks": "; ".join(dict.fromkeys(launch["remarks"] for launch in ok if launch["remarks"])) or None,
        "foreign": tuple(sorted({phrase for launch in ok for phrase in launch["foreign"]})),
        "mfu": _mfu(last, per_device),
        **{key: _median(launch[key] for launch in ok) for key in ("temperature_last", "power_watts", "energy_per_item")},
    }


def _mfu(launch: Row, per_device: float) -> float:
    facts = gpu_specs.find(launch["device_name"] or "", launch["device_memory_bytes"])
    is_mixed = (launch["effective"] or "").startswith("mixed")  # no one peak is that of several types
    peak = gpu_specs.peak_flops(facts, launch["precision"]) if facts and not is_mixed else None
    return gpu_specs.mfu(per_device, launch["flops_per_item"], peak)


def _worst_parity(ok: Sequence[Row]) -> Row:
    """Of the launches that were proven in full: differences at most, agreement at least."""
    worst = {"largest_absolute": max, "largest_relative": max, "cosine": min, "top1": min}
    known = {name: [one for row in ok if not math.isnan(one := row[f"parity_{name}"])] for name in PARITY}
    return {f"parity_{name}": worst[name](known[name], default=math.nan) for name in PARITY}


def _farthest(values: Iterable[float]) -> float:
    """From 0; NaN if none is known."""
    return max((value for value in values if not math.isnan(value)), key=abs, default=math.nan)


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return median_of(known) if known else math.nan
