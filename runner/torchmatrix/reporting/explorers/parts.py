"""What a run tells of its cells besides throughput, as rows to draw (drawn.py)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torchmatrix.analysis.rows import Row
from torchmatrix.analysis.time_split import PHASES, QUANTILES
from torchmatrix.analysis.traces import QUANTITIES, Readings, Trace
from torchmatrix.ground.formatting import is_known
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers.figures import rounded

Parts: TypeAlias = Mapping[str, tuple[Row, ...]]
"""By explorer its rows; `at`: the place of the cell."""
CAUSES = {
    "E_hetero": "unequal devices", "E_corun": "shared power, PCIe, CPU", "E_ddp": "DDP overhead",
    "E_comm": "waiting for all-reduce", "E": "all of it: the efficiency",
}  # fmt: skip
"""Why an efficiency is what it is, down to the efficiency itself."""
_LOOKS = (6, 3, 7, 5, 1, 0, 4)
"""The colour of each phase."""
_PICKED = {"slowed": "one that was slowed down", "hottest": "the hottest", "first": "the first"}


@dataclass(frozen=True, kw_only=True)
class Within:
    """The tables of one run: scaling.decomposition_table and devices_table, rows of time_split, traces."""

    decomposition: Sequence[Row] = ()
    devices: Sequence[Row] = ()
    phases: Sequence[Row] = ()
    steps: Sequence[Row] = ()
    traces: Sequence[Trace] = ()


def parts_of(within: Within, cells: Sequence[str]) -> Parts:
    """The rows of each explorer; `cells`: of one run, in the order of their places."""
    at = {cell: place for place, cell in enumerate(cells)}
    return {
        "loss": tuple({"at": at[row["cell"]]} | one for row in within.decomposition for one in _loss(row)),
        "alone": tuple({"at": at[row["cell"]]} | _alone(row) for row in within.devices),
        "phases": tuple({"at": at[row["cell"]]} | _phases(row) for row in within.phases),
        "steps": tuple({"at": at[row["cell"]]} | _steps(row) for row in within.steps),
        "trace": tuple({"at": at[trace.cell]} | _trace(trace) for trace in within.traces),
    }


def _loss(row: Row) -> Iterator[Row]:
    """Each cause goes on with the product so far, which ends at the efficiency; after an unknown one all are unknown."""
    level = 1.0
    for name, label in CAUSES.items():
        start = 1.0 if name == "E" else level
        value, low, high = (rounded(start * row[f"{name}{end}"]) for end in ("", "_low", "_high"))
        spans = [] if name == "E" or value is None else [[rounded(start), value, ""]]
        placed = {"value": value if name == "E" else None, "low": low, "high": high, "spans": spans}
        yield {"label": label, "title": name} | _effect(row, name) | placed
        level *= row[name]


def _effect(row: Row, name: str) -> Row:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    told = {"text": words.effect(value), "interval": words.effect_interval(value, low, high)}
    return {"value": rounded(value), "low": rounded(low), "high": rounded(high)} | told


def _alone(row: Row) -> Row:
    if row["ratio_low"] == row["ratio_high"] == 1:
        return {"value": 1, "text": "the median device"}
    return _effect(row, "ratio") | ({"more": "weak", "colour": "bad"} if row["weak"] else {})


def _phases(row: Row) -> Row:
    known = [(phase, look, row[phase]) for phase, look in zip(PHASES, _LOOKS, strict=True) if row[phase] > 0]
    ends = [sum(seconds for *_, seconds in known[:place]) for place in range(len(known) + 1)]
    spans = [
        [rounded(begin, 4), rounded(end, 4), f"q{look}", f"{phase}: {words.with_unit(seconds, 's')}"]
        for (phase, look, seconds), begin, end in zip(known, ends, ends[1:], strict=False)
    ]
    timed = f"{words.percent(row['measure'] / row['total'])} timed" if is_known(row["measure"] / row["total"]) else ""
    cache = f"{row['cache']} cache" if row["cache"] else ""
    return {"label": cache, "text": words.with_unit(row["total"], "s"), "interval": timed, "spans": spans}


def legend() -> list[tuple[str, int]]:
    """Of the phases."""
    return list(zip(PHASES, _LOOKS, strict=True))


def _steps(row: Row) -> Row:
    ms = {name: 1e3 * row[name] for name in QUANTILES}
    looks = (("p1", "p99", "thin"), ("p5", "p95", "mid"), ("p25", "p75", ""))
    spans = [[rounded(ms[begin], 4), rounded(ms[end], 4), look] for begin, end, look in looks]
    told = ", ".join(f"{name} {words.short(value)}" for name, value in ms.items())
    return {
        "value": rounded(ms["p50"], 4), "ring": rounded(ms["max"], 4), "spans": spans, "text": words.short(ms["p50"]),
        "interval": f"longest {words.short(ms['max'])}", "more": f"{words.spaced(row['steps'])} steps", "title": f"ms: {told}",
    }  # fmt: skip


def _trace(trace: Trace) -> Row:
    """`plots`: title, whether its axis begins at 0, values of each device; `slow`: begin, end, reason."""
    reasons = ", ".join(sorted({reason for *_, reason in trace.slowdowns}))
    notes = [
        ": ".join(filter(None, ("throttled in the timed windows", reasons))) if trace.seen.throttled else "",
        f"drawn: {_PICKED[trace.picked]} of {trace.more_devices + 1} devices" if trace.more_devices else "",
    ]
    return {
        "note": "; ".join(filter(None, notes)),
        "names": [one.device for one in trace.readings],
        "seconds": [[_brief(time) for time in one.seconds] for one in trace.readings],
        "plots": [
            [title, int(name in ("power_watts", "busy_cpus")), [_values(one, name) for one in trace.readings]]
            for name, title in QUANTITIES.items()
            if any(name in one.values for one in trace.readings)
        ],
        "windows": [[round(time, 1) for time in window] for window in trace.windows],
        "slow": [[round(start, 1), round(stop, 1), reason] for start, stop, reason in trace.slowdowns],
    }  # fmt: skip


def _values(one: Readings, name: str) -> list[float | None]:
    return [_brief(value) for value in one.values.get(name, ())]


def _brief(value: float | None) -> float | int | None:
    """With two digits after the point, none from 100 on."""
    if value is None or not math.isfinite(value):
        return None
    short = round(value) if abs(value) >= 100 else round(value, 2)
    return int(short) if short == int(short) else short
