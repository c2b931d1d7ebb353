"""The box's half of the protocol: lines ``@matrix {json}`` on the real stdout (version 1).

Stray prints of libraries must not corrupt the stream, so the real stdout is kept under another file descriptor and
descriptor 1 is pointed at stderr before anything else is imported. Rank 0 writes the lines; another rank writes only
to say how it failed.
"""

import json
import os
import time

VERSION = 1
PREFIX = b"@matrix "


class Unsupported(Exception):
    """This stack or device can't do what was asked: the outcome is `unsupported`, not a crash."""


class Numerics(Exception):
    """A loss or the precision is not what it must be: the outcome is `numerics`, not a number."""


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

    def emit_failure(self, kind, error):
        """Write how this rank failed, whatever its rank; short, so that the write stays atomic on a pipe."""
        message = "%s: %s" % (type(error).__name__, error)
        self._write("failure", {"kind": kind, "rank": self.rank, "message": message.strip()[:1500]})

    def _write(self, event, fields):
        record = dict(event=event, unix_seconds=time.time(), monotonic_seconds=time.monotonic(), **fields)
        data = PREFIX + json.dumps(record, default=str).encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]
