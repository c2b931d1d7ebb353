"""One launch's file while it is written: every line is on disk before the next one is read."""

import json
import re
import threading
import time
from pathlib import Path
from typing import IO, Any

import orjson

from torchmatrix.core import settings
from torchmatrix.core.errors import LaunchFailed
from torchmatrix.core.files import disk_errors, open_new
from torchmatrix.core.formatting import LONGEST, clipped, in_one_line
from torchmatrix.core.inputs import Malformed, json_bytes
from torchmatrix.core.settings import MEGABYTE
from torchmatrix.facts import lines, wire
from torchmatrix.facts.lines import ARRIVED, DEEPEST, PREFIX, Event, is_too_deep, version_problem
from torchmatrix.facts.reveals import HOST_LINES

# The border of a running workload: each line that it prints is an event, a text for the log, or the end of the launch.
#
# A workload process may be broken, or hostile: nothing that it prints may end the run, reach a reader unchecked or be kept
# beyond the limits. Each line is checked here, once, while the launch runs. A line that is refused makes the launch `crashed`,
# and the workload is ended.

_MARK = PREFIX.encode()
_REBUILD = "rebuild the image (torchmatrix build)"


class Refused(LaunchFailed):
    """The workload wrote a line that none may write; the text says why, and shows where the line begins."""


def event_in(stream: str, line: bytes, line_mb: int) -> Event | None:
    """Return the event on a line of the workload (with its line break); None for a text, which belongs into the log.

    `stream`: out or err, whose lines are all texts. A marked line without a line break is a text, too: the workload was ended
    while it wrote. Raises Refused.
    """
    if stream != "out":
        return None
    if len(line) > line_mb * MEGABYTE:
        raise _refused(f"a line longer than {line_mb} MB (setting line_mb)", line)
    return _event(line) if line.startswith(_MARK) and line.endswith(b"\n") else None


def text_of(line: bytes) -> bytes:
    """Return the JSON of an event on a line of the workload, as it was written."""
    return line[len(_MARK) :].strip()


def _event(line: bytes) -> Event:
    event = _parse(line)
    if not isinstance(event, dict) or type(event.get("event")) is not str:
        raise _refused("a marked line that is no event", line)
    if problem := version_problem(event):
        raise Refused(problem, is_own=True)
    kind = event["event"]
    if kind in HOST_LINES:
        raise _refused(f'an event "{kind}", which only the host may write', line)
    if kind not in wire.EVENTS:
        raise _refused(f"an event that protocol 1 does not have: {_REBUILD}", line)
    try:
        wire.check(event)
    except Malformed as why:
        raise _refused(f'an invalid "{kind}" line: {why}', line) from None
    return event


def _parse(line: bytes) -> Any:
    """Parse the JSON on a marked line, which has no NaN, no infinite number and at most DEEPEST levels."""
    text = line[len(_MARK) :]
    try:
        event = orjson.loads(text)
    except ValueError as error:
        event = _parse_lone_surrogates(text, line, str(error))
    if is_too_deep(text, event):
        raise _refused(f"a line with more than {DEEPEST} levels of lists and objects", line)
    return event


def _parse_lone_surrogates(text: bytes, line: bytes, problem: str) -> Any:
    """Parse JSON in which Python wrote lone surrogates, for names that are not UTF-8; replace them: no file can hold them."""
    try:
        if b"\\ud" in text:
            return orjson.loads(json_bytes(json.loads(text.decode())))
    except (ValueError, RecursionError) as error:
        problem = str(error)
    raise _refused(f"a marked line that is not JSON: {problem}", line)


def _refused(what: str, line: bytes) -> Refused:
    begin = clipped(in_one_line(line[: 4 * LONGEST].decode(errors="replace")))
    return Refused(f"the workload wrote {what}; the line begins: {begin}")


TAIL_LINES = 120
"""The number of the log's last lines that the launch's exit line keeps."""


class LaunchFile:
    """The writer of one launch as it happens; every line is on disk before the next one is read."""

    def __init__(self, path: Path, number: int = 1) -> None:
        """Create the file. `number`: which try of this launch it is. Raises FileExistsError if another process has made it."""
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
        """Append an event as the workload wrote it, with the time at which it came; telemetry comes from another thread.

        Raises Refused if the file is full (setting `launch_file_mb`), so that a runaway workload can't fill the disk.
        """
        with self._lock:
            if self._is_full():
                raise Refused(
                    f"the launch's file is full: {self._site.launch_file_mb} MB (setting launch_file_mb)", is_own=True
                )
            arrived = f', "{ARRIVED}": {time.monotonic()}}}'.encode()
            with disk_errors(self.path):
                lines.append_text(self._events, text[:-1] + arrived, self._end)

    def log(self, line: bytes) -> None:
        """Write an unmarked line to the log next to the file. Raises Refused if the log is full (setting `log_mb`)."""
        data = line.decode(errors="replace").rstrip("\n").encode() + b"\n"
        self._tail = [*self._tail[1 - TAIL_LINES :], data[:500].decode(errors="ignore").rstrip("\n")]
        if self._logged + len(data) > self._site.log_mb * MEGABYTE:
            raise Refused(f"the workload printed more than {self._site.log_mb} MB (setting log_mb)", is_own=True)
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


# Transport between nodes, from the output of the communication library. The words are NCCL's, which RCCL shares.
#
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug

MOST_PATHS = 64
_NETWORK = re.compile(rb"NCCL INFO Using network (.+)")
_DEVICES = re.compile(rb"NCCL INFO NET/IB : Using (.+?)(?:; OOB|$)")
_PATH = re.compile(rb"NCCL INFO Channel .+ via (NET/\S+)")
_WITHIN = re.compile(rb"NCCL INFO Channel .+ via ((?:P2P|SHM|C2C)\S*)")
_MULTICAST = re.compile(rb"NCCL INFO Connected NVLS")
_ROCE = re.compile(rb"/RoCE\b")


class TransportLog:
    """The transport that the log of one launch names. `library`: by which its ranks communicate.

    gloo prints nothing and uses TCP; with XCCL, whose log has other words, the network stays unknown.
    """

    def __init__(self, library: str) -> None:
        self._library = library
        self._network: str | None = "TCP" if library == "gloo" else None
        self._is_ethernet = False
        self._paths: set[str] = set()
        self._within: set[str] = set()

    def read(self, line: bytes) -> None:
        """Read one line of the log."""
        if b"NCCL INFO" not in line:
            return
        line = line.strip()
        if match := _NETWORK.search(line):
            self._network = match[1].decode(errors="replace").strip()
        elif match := _DEVICES.search(line):
            self._is_ethernet = bool(_ROCE.search(match[1]))
        elif (match := _PATH.search(line)) and len(self._paths) < MOST_PATHS:
            self._paths.add(match[1].decode(errors="replace"))
        elif (match := _WITHIN.search(line)) and len(self._within) < MOST_PATHS:
            self._within.add(match[1].decode(errors="replace"))
        elif _MULTICAST.search(line):
            self._within.add("NVLS")

    def found_within(self) -> dict[str, Any] | None:
        """Return the fields of the event "transport" of GPUs of one node; None if the log names no way between them."""
        paths = sorted(self._within | self._paths)
        return {"library": self._library, "network": None, "paths": paths, "interface": None} if paths else None

    def found(self, interface: str) -> dict[str, Any]:
        """Return the fields of the event "transport": the network in NCCL's word, but RoCE where its IB runs over Ethernet."""
        network = "RoCE" if self._network == "IB" and self._is_ethernet else self._network
        return {"library": self._library, "network": network, "paths": sorted(self._paths), "interface": interface or None}
