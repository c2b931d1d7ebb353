"""Figures as a reader sees them: four significant digits, n/a if unknown. These are the filters of the templates."""

import math
import time
from typing import Any

from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.published.claims import Claim, Tested
from torchmatrix.ground.formatting import figure, is_known
from torchmatrix.reporting import words


def ratio(value: Any) -> str:
    """Three decimals."""
    return f"{round(value, 3) + 0.0:.3f}" if is_known(value) else "n/a"


def times(value: Any) -> str:
    """A ratio with its sign: ×1.234."""
    return f"×{ratio(value)}" if is_known(value) else "n/a"


def utc(seconds: float | None) -> str:
    """To the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds)) if is_known(seconds) else "n/a"


def _limits(found: Interval, kind: str) -> str:
    """Both ends of an interval, written as `kind` of number: figure or ratio."""
    write = figure if kind == "figure" else ratio
    return "n/a" if math.isnan(found.low) else f"{write(found.low)} – {write(found.high)}"


def _range(found: Claim | Tested) -> str:
    """From low to high; one number if they are equal, "more than" if there is no upper end."""
    if math.isinf(found.high):
        return f"more than {found.low:g}"
    return f"{found.low:g}" if found.low == found.high else f"{found.low:g} – {found.high:g}"


def _written(pattern: str, factor: float = 1.0) -> Any:
    """A filter that writes `factor` times a number by `pattern`."""
    return lambda value: pattern.format(factor * value) if is_known(value) else "n/a"


def _with_unit(unit: str, factor: float = 1.0) -> Any:
    """A filter that writes four significant digits and the unit."""
    return lambda value: f"{figure(factor * value)} {unit}" if is_known(value) else "n/a"


FILTERS = {
    "devices": words.devices,
    "outcome": lambda outcome: words.OUTCOMES.get(outcome, outcome),
    "verdict": words.verdict,
    "figure": figure,
    "ratio": ratio,
    "times": times,
    "limits": _limits,
    "range": _range,
    "whole": _written("{:.0f}"),
    "percent": _written("{:.2f} %", 100),
    "share": _written("{:.1f} %", 100),
    "bytes": _written("{:.2f} GiB", 2**-30),
    "mebibytes": _written("{:.1f} MiB", 2**-20),
    "seconds": _written("{:.1f} s"),
    "latency": _with_unit("ms", 1e3),
    "known": is_known,
    "milliseconds": _written("{:.2f} ms", 1e3),
    "degrees": _written("{:.0f} °C"),
    "watts": _written("{:.0f} W"),
    "joules": _with_unit("J"),
    "bandwidth": _with_unit("GB/s", 1e-9),
}
