"""One launch's file while it is written: every line is on disk before the next one is read."""

import threading
import time
from pathlib import Path
from typing import IO, Any

from torchmatrix.facts import lines
from torchmatrix.facts.events import ARRIVED, Event
from torchmatrix.facts.pipe import Refused
from torchmatrix.ground import settings
from torchmatrix.ground.files import disk_errors, open_new
from torchmatrix.ground.settings import MEGABYTE

TAIL_LINES = 120
"""How many of the log's last lines the launch's exit line keeps."""


class LaunchFile:
    """Writes one launch as it happens; every line is on disk before the next one is read."""

    def __init__(self, path: Path, number: int = 1) -> None:
        """`number`: which try of this launch it is. Raises FileExistsError if another process has made the file."""
        self.path, self.number = path, number
        self._events = open_new(path)
        self._end = lines.End()
        self._log: IO[bytes] | None = None
        self._logged = 0
        self._site = settings.load()
        self._tail: list[str] = []
        self._lock = threading.Lock()
        self._is_over = False

    def event(self, kind: str, **fields: Any) -> None:
        """Append one of the host's own lines."""
        with self._lock:
            self._append(_timed(kind, **fields))

    def copy(self, text: bytes) -> None:
        """Append an event of the box as it wrote it, with the time at which it came; telemetry comes from another thread.

        Raises Refused if the file is full (setting `launch_file_mb`), so that a runaway box can't fill the disk.
        """
        with self._lock:
            if self._is_full():
                raise Refused(f"the launch's file is full: {self._site.launch_file_mb} MB (setting launch_file_mb)")
            arrived = f', "{ARRIVED}": {time.monotonic()}}}'.encode()
            with disk_errors(self.path):
                lines.append_text(self._events, text[:-1] + arrived, self._end)

    def log(self, line: bytes) -> None:
        """Write an unmarked line to the log beside the file. Raises Refused if the log is full (setting `log_mb`)."""
        data = line.decode(errors="replace").rstrip("\n").encode() + b"\n"
        self._tail = [*self._tail[1 - TAIL_LINES :], data[:500].decode(errors="ignore").rstrip("\n")]
        if self._logged + len(data) > self._site.log_mb * MEGABYTE:
            raise Refused(f"the box printed more than {self._site.log_mb} MB (setting log_mb)")
        if self._log is None:
            with disk_errors(self.path):
                self._log = open_new(self.path.with_suffix(".log"))
        self._logged += len(data)
        with disk_errors(self.path):
            self._log.write(data)

    def close(self, **fields: Any) -> None:
        """Append the exit line, which completes the launch; a later reading is not written."""
        tail = self._tail if fields.get("reason") or fields.get("returncode") else []
        with self._lock:
            self._is_over = True
        self.event("exit", tail=tail, **fields)
        self.abandon()

    def telemetry(self, readings: list[dict[str, Any]]) -> None:
        """Append readings; comes from another thread, perhaps after the end."""
        with self._lock:
            if not self._is_over and not self._is_full():
                self._append(_timed("telemetry", readings=readings))

    def abandon(self) -> None:
        """Close the files without an exit line."""
        with self._lock:
            self._is_over = True
            self._events.close()
            if self._log is not None:
                self._log.close()

    def _is_full(self) -> bool:
        return self._end.size > self._site.launch_file_mb * MEGABYTE

    def _append(self, event: Event) -> None:
        with disk_errors(self.path):
            lines.append(self._events, event, self._end)


def _timed(kind: str, **fields: Any) -> Event:
    return {"event": kind, "unix_seconds": time.time(), "monotonic_seconds": time.monotonic(), **fields}
