"""Traces as torch.profiler writes them, of invented steps with known times, in milliseconds."""

import gzip
import json
from collections.abc import Iterable
from typing import Any

from torchmatrix_plugins.profile.profiles import STEP, WINDOW

Op = tuple[str, float, float]
"""Name, begin and length."""
_BEGIN = 7_000.0
"""Microseconds on the trace's own clock when the window begins."""


def span(name: str, begin: float, length: float, kind: str = "cpu_op", lane: int = 1, **args: Any) -> dict[str, Any]:
    """Return a complete event; begin and length in milliseconds from the window's begin on."""
    times = {"ts": _BEGIN + 1e3 * begin, "dur": 1e3 * length}
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": lane, **times, "args": args}


def allocation(at: float, total: int, device_type: int = 0) -> dict[str, Any]:
    args = {"Total Allocated": total, "Bytes": 1, "Device Type": device_type, "Device Id": 0}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": _BEGIN + 1e3 * at,
        "args": args,
    }


def trace(milliseconds: float, events: Iterable[dict[str, Any]], steps: int = 2) -> bytes:
    """Return a trace of so many steps of equal length, which take so long together, with these events."""
    length = milliseconds / steps
    frame = [span(WINDOW, 0, milliseconds, "user_annotation")]
    frame += [span(STEP, number * length, length, "user_annotation") for number in range(steps)]
    return json.dumps({"schemaVersion": 1, "traceEvents": [*frame, *events, {"ph": "M", "name": "process_name"}]}).encode()


def packed(milliseconds: float, events: Iterable[dict[str, Any]], steps: int = 2) -> bytes:
    """Return a trace as a profile keeps it."""
    return gzip.compress(trace(milliseconds, events, steps))


def record(cell: str, steps: int = 2, profiled: float = 0.020, plain: float = 0.018, **more: Any) -> dict[str, Any]:
    """Return what profile.json says, without the machine's part."""
    work = {"model": "resnet50", "mode": "train", "batch": 4, "image_size": 224, "sequence_length": None, "devices": 1}
    return {
        "unix_seconds": 1.6e9, "cell": cell, "stack": cell.partition("/")[0], "torch": "2.0.0", "environment": "abc",
        "workload_hash": "h", "machine": "m", "work": work, "command": "python bench.py --profile 2", "steps": steps,
        "plain_seconds": [plain], "profiled_seconds": [profiled], **more,
    }  # fmt: skip
