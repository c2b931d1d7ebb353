"""Profiles on disk: what a profiler saw of a cell's steps. In a folder of their own, so that no reader of results meets one.

profiles/HOST/CELL/STAMP/profile.json       what was profiled and where, and how long steps took with the profiler and without
profiles/HOST/CELL/STAMP/trace.json.gz      the traced steps, as Chrome's trace format has them
profiles/HOST/CELL/STAMP/memory.json.gz     a few more steps, with what they allocate
"""

import json
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from torchmatrix.facts import checked
from torchmatrix.facts.checked import Malformed, Record
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.files import plain_bytes, write_whole

VERSION = 1
MOST_PACKED_BYTES = 256 * 2**20
MOST_BYTES = 2 * 2**30
"""Of one trace, packed and unpacked."""
RECORD, TRACE, MEMORY = "profile.json", "trace", "memory"
_MOST_RECORD_BYTES = 8 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """One profile. `plain_seconds`, `profiled_seconds`: of a step, without the profiler and with it, on the slowest rank.

    `work`: what a step does, by name: model, mode, batch, number of devices, image size and sequence length.
    `named`: whether kernels that were compiled for a CPU have names.
    `environment`, `workload_hash`: of the image and of the box's program, as a launch's header has them.
    """

    folder: Path
    cell: str
    stack: str
    torch: str | None
    host: str
    machine: str | None
    environment: str | None
    workload_hash: str | None
    work: Mapping[str, Any]
    unix_seconds: float
    steps: int
    plain_seconds: float
    profiled_seconds: float
    named: bool
    command: str

    def trace(self, name: str = TRACE, most_bytes: int = MOST_BYTES) -> bytes:
        """The JSON of a trace. Raises Malformed, also if it unpacks to more than `most_bytes`."""
        path = self.path_of(name)
        try:
            return _unpacked(plain_bytes(path, MOST_PACKED_BYTES), most_bytes)
        except (OSError, zlib.error) as error:
            raise Malformed(f"{path} can't be read: {error}") from None

    def path_of(self, name: str = TRACE) -> Path:
        """Where a trace is."""
        return self.folder / f"{name}.json.gz"


def save(root: Path, host: str, record: Mapping[str, Any], traces: Mapping[str, bytes]) -> Profile:
    """Keep a new profile beside the older ones of its cell. `traces`: packed, by name. Raises EngineUnusable."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(record["unix_seconds"]))
    folder = root / host / record["cell"] / stamp
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, packed in traces.items():
            write_whole(folder / f"{name}.json.gz", packed)
        write_whole(folder / RECORD, json.dumps({"profile": VERSION, "host": host, **record}, indent=1).encode())
    except OSError as error:
        raise EngineUnusable(
            f"can't write {folder}: {error.strerror}", hint="free space, or write elsewhere: --profiles DIR"
        ) from None
    return read(folder)


def newest(root: Path, cell: str, machine: str | None, workload_hash: str) -> Profile | None:
    """The newest profile of a cell on this machine by this workload's program.

    One that can't be read, or whose time is still to come, isn't one.
    """
    found = []
    for path in root.glob(f"*/{_escaped(cell)}/*/{RECORD}"):
        with suppress(Malformed):
            found.append(read(path.parent))
    own = [one for one in found if one.machine == machine and one.workload_hash == workload_hash]
    own = [one for one in own if not checked.is_to_come(one.unix_seconds)]
    return max(own, key=lambda one: one.unix_seconds, default=None)


def read(folder: Path) -> Profile:
    """The profile in a folder. Raises Malformed."""
    path = folder / RECORD
    try:
        record = orjson.loads(plain_bytes(path, _MOST_RECORD_BYTES))
    except (OSError, ValueError) as error:
        raise Malformed(f"{path} can't be read: {error}") from None
    if not isinstance(record, dict) or record.get("profile") != VERSION:
        raise Malformed(f"{path} is no profile that this version reads")
    return _profile(folder, record)


def _profile(folder: Path, record: Record) -> Profile:
    steps = checked.whole(record, "steps")
    work = record.get("work")
    if steps < 1 or not isinstance(work, dict):
        raise Malformed(f"{folder / RECORD}: no steps, or nothing of what they do")
    return Profile(
        folder=folder,
        cell=checked.text(record, "cell"),
        stack=checked.text(record, "stack"),
        torch=checked.text_or_none(record, "torch"),
        host=checked.text(record, "host"),
        machine=checked.text_or_none(record, "machine"),
        environment=checked.text_or_none(record, "environment"),
        workload_hash=checked.text_or_none(record, "workload_hash"),
        command=checked.text(record, "command"),
        work=work,
        unix_seconds=checked.moment(record, "unix_seconds"),
        steps=steps,
        plain_seconds=_of_a_step(record, "plain_seconds", steps),
        profiled_seconds=_of_a_step(record, "profiled_seconds", steps),
        named=checked.flag(record, "named"),
    )


def _of_a_step(record: Record, name: str, steps: int) -> float:
    """By the slowest rank."""
    ranks = record.get(name)
    if not isinstance(ranks, list) or not ranks or not all(checked.is_number(one) and one > 0 for one in ranks):
        raise Malformed(f"{name} is not a list of seconds")
    return float(max(ranks)) / steps


def _unpacked(packed: bytes, most: int) -> bytes:
    """Raises OSError for what is cut off or unpacks to more, zlib.error for what was not packed."""
    unpack = zlib.decompressobj(wbits=31)
    data = unpack.decompress(packed, most)
    if unpack.unconsumed_tail or not unpack.eof:
        raise OSError(f"it is cut off, or unpacks to more than {most:,} bytes")
    return data


def _escaped(cell: str) -> str:
    """An id as a pattern of itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in cell)
