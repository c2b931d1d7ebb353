"""Where a run of another machine goes in a results folder: HOST/RUN, so that neither machines nor runs are mixed."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.facts.events import most_bytes
from torchmatrix.facts.gathering.sources import RECORD
from torchmatrix.facts.lines import lines_of
from torchmatrix.facts.run_record import RunRecord, record_of
from torchmatrix.facts.store import IDENTITY_DIGITS, Results
from torchmatrix.ground.files import plain_bytes

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_DIGITS = (IDENTITY_DIGITS, 8, 12, 16)


@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """The first line of a run's record. `content`: its bytes with the end of the line; `host`: a name for its folder."""

    content: bytes
    host: str
    machine: str


def beginning_of(content: bytes, hint: str) -> Beginning | None:
    """How a record begins; None if it doesn't begin as one. `hint`: a name for its host if it tells none."""
    first, end, _ = content.partition(b"\n")
    found = lines_of(first)
    if not end or not found.events or found.events[0]["event"] != "run" or found.damage:
        return None
    record = record_of(found.events)
    return Beginning(
        content=first + end, host=_safe(record.host.get("name")) or _safe(hint) or "host", machine=_machine(record)
    )


class Places:
    """The runs and machines that a results folder has, as far as they were asked for."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._machines: dict[str, str | None] = {}

    def of(self, run: str, beginning: Beginning) -> Path:
        """The folder of a run that begins so: where it is already, else a new one in its machine's folder."""
        for place in self.all_of(run):
            if begins(place / RECORD, beginning.content):
                return place
        names = [beginning.host, *(f"{beginning.host}-{beginning.machine[:digits]}" for digits in _DIGITS)]
        free = next(name for name in names if self._is_free_for(name, beginning.machine) or name == names[-1])
        self._machines[free] = beginning.machine
        return self._results.root / free / run

    def all_of(self, run: str) -> list[Path]:
        """The folders of runs of this id, of whatever machine."""
        try:
            hosts = sorted(path for path in self._results.root.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        return [host / run for host in hosts if (host / run / RECORD).exists()]

    def _is_free_for(self, name: str, machine: str) -> bool:
        if name not in self._machines:
            self._machines[name] = self._machine_in(name)
        return self._machines[name] in (None, machine)

    def _machine_in(self, host: str) -> str | None:
        """Of the newest run in a host's folder that tells it, else of the newest; None if the folder has no runs."""
        records = (run.record for run in reversed(self._results.runs()) if run.path.parent.name == host)
        found = (record_of(lines_of(_first_line(record)).events) for record in records)
        newest = next(found, None)
        if newest is None:
            return None
        return newest.machine or next((record.machine for record in found if record.machine), None) or _machine(newest)


def begins(path: Path, content: bytes) -> bool:
    """Whether a file begins so."""
    try:
        return plain_bytes(path, most_bytes()).startswith(content)
    except OSError:
        return False


def machine_in(record: Path) -> str | None:
    """The identity that a run's record tells."""
    return record_of(lines_of(_first_line(record)).events).machine


def _first_line(path: Path) -> bytes:
    try:
        return plain_bytes(path, most_bytes()).partition(b"\n")[0]
    except OSError:
        return b""


def _machine(record: RunRecord) -> str:
    """Its machine's identity; for facts of earlier versions a hash of its hardware, which is all that they tell."""
    if record.machine:
        return record.machine
    gpus = sorted(str(gpu.get("uuid")) for gpu in record.host.get("gpus") or ())
    told = [record.host.get(name) for name in ("name", "cpu", "memory_bytes")]
    return hashlib.sha256(json.dumps([told, gpus]).encode()).hexdigest()[:16]


def _safe(name: object) -> str:
    return _UNSAFE.sub("-", str(name or ""))[:100].strip(".-")
