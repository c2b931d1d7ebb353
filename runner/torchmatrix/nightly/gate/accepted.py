"""Which slow-downs were accepted, and why: from then on the cell's baseline begins with the run in which it was accepted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from torchmatrix.facts import checked, lines
from torchmatrix.facts.launch import Unreadable
from torchmatrix.facts.store import Results, run_event
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.files import disk_errors, plain_open
from torchmatrix.nightly.gate.judged import Gate, Judged

KIND = "accepted"
ACCEPTABLE = ("suspected", "regression")
"""What failed or is missing has no level that could be accepted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """That `run` (started at `started`, unix seconds) is slower at a cell is accepted, `because` of something."""

    run: str
    started: float
    because: str


def path_of(results: Results, host: str) -> Path:
    """The record of one host: RESULTS/HOST/accepted.jsonl, a line for each cell."""
    return results.root / host / "accepted.jsonl"


def read(results: Results, host: str) -> dict[str, Accepted]:
    """By cell what was accepted last; nothing of a record that is damaged.

    A line that lacks a field, or whose run is still to come, accepts nothing: what is slower is told again.
    """
    found = {}
    for event in () if unreadable(results, host) else lines.read(path_of(results, host)).events:
        run, started, because, cell = (event.get(name) for name in ("run", "started", "because", "cell"))
        if event.get("event") == KIND and checked.is_number(started) and isinstance(cell, str):
            found[cell] = Accepted(run=str(run), started=float(started or 0), because=str(because))
    return {cell: one for cell, one in found.items() if not checked.is_to_come(one.started)}


def unreadable(results: Results, host: str) -> list[Unreadable]:
    """The record, if it is there and can't be trusted: then slow-downs that were accepted are told again."""
    path = path_of(results, host)
    damage = lines.read(path).damage
    return [Unreadable(path=path, reason=damage)] if damage else []


def slower(gate: Gate, globs: Sequence[str]) -> list[Judged]:
    """The slower cells that the globs name, each once. Raises BadInput for a glob that names none."""
    known = [one for one in gate.cells if one.verdict in ACCEPTABLE]
    for glob in globs:
        if not any(fnmatchcase(one.cell, glob) for one in known):
            listing = ", ".join(one.cell for one in known) or "none"
            raise BadInput(f"no slower cell matches {glob}", hint=f"slower cells of {gate.run}: {listing}")
    found = {one.cell: one for one in reversed(known) if any(fnmatchcase(one.cell, glob) for glob in globs)}
    return list(reversed(found.values()))


def accept(results: Results, gate: Gate, globs: Sequence[str], because: str) -> Mapping[str, Accepted]:
    """Record that the slower cells which the globs name are accepted as they are in the judged run; returns all that is.

    Raises BadInput where the record is damaged: what is added to it would not be read.
    """
    path, end = path_of(results, gate.host), lines.End()
    for damaged in unreadable(results, gate.host):
        raise BadInput(f"{path} is damaged: {damaged.reason}", hint="restore it, or move it away and accept all again")
    found = slower(gate, globs)
    with disk_errors(path), plain_open(path, "a+b", buffering=0) as file:
        file.seek(0)
        end.add(file.read())
        for one in found:
            event = run_event(
                KIND, cell=one.cell, run=gate.run, started=gate.started, because=because, metric=one.metric, ratio=one.ratio
            )
            lines.append(file, event, end)
    return read(results, gate.host)
