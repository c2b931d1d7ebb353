"""The workload's half of the protocol: lines ``@matrix {json}`` on the real stdout (version 1).

Stray prints of libraries must not corrupt the stream, so the real stdout moves to another file descriptor and
descriptor 1 is pointed at stderr before anything else is imported. Rank 0 writes the lines; other ranks write only
to report how they failed.
"""

import json
import math
import os
from time import monotonic
from time import time as unix_time

VERSION = 1
PREFIX = b"@matrix "


class Unsupported(Exception):
    """This stack or device can't do what was requested: the outcome is `unsupported`, not a crash."""


class Numerics(Exception):
    """A loss or the precision is wrong: the outcome is `numerics`, not a figure."""


class Channel:
    """Writes protocol lines, one ``os.write`` each."""

    def __init__(self, rank):
        self.rank = rank
        self._fd = os.dup(1)
        os.dup2(2, 1)

    def emit(self, event, **fields):
        """Write one event if this is rank 0."""
        if self.rank == 0:
            self._write(event, fields)

    def emit_failure(self, kind, message):
        """Write how this rank failed, on any rank; short, so that the write stays atomic on a pipe."""
        self._write("failure", {"kind": kind, "rank": self.rank, "message": message[:1500]})

    def _write(self, event, fields):
        record = dict(event=event, unix_seconds=unix_time(), monotonic_seconds=monotonic(), **fields)
        data = PREFIX + _json(record).encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]


def _json(record):
    """Serialize a record. JSON has no NaN and no infinity, and the host refuses them: null stands for them."""
    try:
        return json.dumps(record, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(record), default=str)


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
