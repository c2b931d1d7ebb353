"""Published figures of microbenchmarks (published.csv): shown beside ours, each with its source."""

import csv
import math
from functools import cache
from pathlib import Path

from torchmatrix_plugins.accept import judging
from torchmatrix_plugins.accept.checks import Check, spec_of
from torchmatrix_plugins.accept.judging import Reference


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(lines))


def find(check: Check) -> Reference | None:
    """Return the published figure of a check's operation on its GPU; None without one of that detail and number of devices."""
    gpus = check.launches[0].devices.gpus if check.launches else ()
    facts = spec_of(gpus[0]) if gpus else None
    if facts is None:
        return None
    asked = check.launches[0].workload
    detail = {"gemm": asked.precision, "host-copy": asked.direction}.get(check.model) or ""
    devices = str(check.count) if check.place is None else "1"
    wanted = (facts.name, check.model, detail, devices)
    row = next((row for row in _rows() if (row["gpu"], row["operation"], row["detail"], row["devices"]) == wanted), None)
    if row is None or row["unit"] != f"{check.unit}/s":
        return None
    floor = "at least, " if row["floor"] == "yes" else ""
    source = f"{floor}{row['definition']} ({row['source']})"
    return Reference(kind=judging.PUBLISHED, log=math.log(float(row["value"])), source=source)
