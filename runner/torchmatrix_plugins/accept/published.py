"""Published figures of microbenchmarks (published.csv): shown beside ours, each with its source."""

import csv
import math
from functools import cache
from pathlib import Path

from torchmatrix.facts.host_parts import AskedWorkload
from torchmatrix.facts.operations import sides
from torchmatrix_plugins.accept import judging
from torchmatrix_plugins.accept.checks import Check, gpu_of, spec_of
from torchmatrix_plugins.accept.judging import Reference


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(lines))


def find(check: Check) -> Reference | None:
    """Return the published figure of a check's operation on its GPU; None without one of that detail and number of devices, and
    where less was asked of the device: small or constant operands, pageable memory.
    """
    gpus = check.launches[0].devices.gpus if check.launches else ()
    gpu = gpu_of(check) or (gpus[0] if len({gpu.name for gpu in gpus}) == 1 else None)
    facts = spec_of(gpu) if gpu else None
    asked = check.launches[0].workload if check.launches else None
    if facts is None or asked is None or not _is_large(asked):
        return None
    detail = {"gemm": asked.precision, "host-copy": asked.direction}.get(check.model) or ""
    devices = str(check.count) if check.place is None else "1"
    wanted = (facts.name, check.model, detail, devices)
    row = next((row for row in _rows() if (row["gpu"], row["operation"], row["detail"], row["devices"]) == wanted), None)
    if row is None or row["unit"] != f"{check.unit}/s":
        return None
    floor = "at least, " if row["floor"] == "yes" else ""
    source = f"{floor}{row['definition']} ({row['source']})"
    return Reference(kind=judging.PUBLISHED, log=math.log(float(row["value"])), source=source)


def bound(check: Check) -> Reference | None:
    """Return the published figure by which a check may be judged: none that is the best of many others."""
    found = find(check)
    return None if found and _BEST in found.source else found


def _is_large(asked: AskedWorkload) -> bool:
    sizes = sides(asked.shape) if asked.shape else ()
    if sizes is None:
        return False
    is_full = min(sizes, default=_LEAST_SIDE) >= _LEAST_SIDE and (asked.bytes or _LEAST_BYTES) >= _LEAST_BYTES
    return is_full and asked.pattern in (None, "random") and asked.pinned is not False


_BEST = "best of many"
_LEAST_SIDE, _LEAST_BYTES = 4096, 2**28
