"""Profiles on disk: a profiler's traces of a cell's steps. In a folder of their own, so that no reader of results meets one.

profiles/HOST/CELL/STAMP/profile.json       what was profiled and where, and how long steps took with the profiler and without
profiles/HOST/CELL/STAMP/trace.json.gz      the traced steps, as Chrome's trace format has them
profiles/HOST/CELL/STAMP/memory.json.gz     a few more steps, with what they allocate
"""

import glob
import json
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct, field

from torchmatrix.core import inputs
from torchmatrix.core.errors import EngineUnusable
from torchmatrix.core.files import plain_bytes, write_whole
from torchmatrix.core.inputs import Malformed
from torchmatrix.facts.wire import Moment, OneOrMore, decoded

VERSION = 1
MOST_PACKED_BYTES = 256 * 2**20
MOST_BYTES = 2 * 2**30
"""The largest size of one trace, packed and unpacked."""
RECORD, TRACE, MEMORY = "profile.json", "trace", "memory"
_MOST_RECORD_BYTES = 8 * 2**20
Positives = Annotated[tuple[Annotated[float, Meta(gt=0, le=1e300)], ...], Meta(min_length=1)]
"""A positive number of each rank."""


class Profile(Struct, frozen=True, kw_only=True):
    """One profile. `plain`, `profiled`: seconds of all steps, without the profiler and with it, of each rank.

    `work`: the work of a step, by name: model, mode, batch, number of devices, image size and sequence length.
    `named`: whether kernels that were compiled for a CPU have names.
    `environment`, `workload_hash`: of the image and of the workload's program, as a launch's header has them.
    """

    folder: Path
    cell: str
    stack: str
    torch: str | None = None
    host: str
    machine: str | None = None
    environment: str | None = None
    workload_hash: str | None = None
    work: dict[str, Any]
    unix_seconds: Moment
    steps: OneOrMore
    plain: Positives = field(name="plain_seconds")
    profiled: Positives = field(name="profiled_seconds")
    named: bool = False
    command: str

    @property
    def plain_seconds(self) -> float:
        """Return the seconds of a step on the slowest rank, without the profiler."""
        return float(max(self.plain)) / self.steps

    @property
    def profiled_seconds(self) -> float:
        """Return the seconds of a step on the slowest rank, with the profiler."""
        return float(max(self.profiled)) / self.steps

    def trace(self, name: str = TRACE, most_bytes: int = MOST_BYTES) -> bytes:
        """Read the JSON of a trace. Raises Malformed, also if it unpacks to more than `most_bytes`."""
        path = self.path_of(name)
        try:
            return _unpack(plain_bytes(path, MOST_PACKED_BYTES), most_bytes)
        except (OSError, zlib.error) as error:
            raise Malformed(f"{path} can't be read: {error}") from None

    def path_of(self, name: str = TRACE) -> Path:
        """Return the path of a trace."""
        return self.folder / f"{name}.json.gz"


def save(root: Path, host: str, record: Mapping[str, Any], traces: Mapping[str, bytes]) -> Profile:
    """Save a new profile next to the older ones of its cell. `traces`: packed, by name. Raises EngineUnusable."""
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
    """Return the newest profile of a cell on this machine by this workload's program.

    Profiles that can't be read, or whose time is still to come, are left out.
    """
    profiles = []
    for path in root.glob(f"*/{glob.escape(cell)}/*/{RECORD}"):
        with suppress(Malformed):
            profile = read(path.parent)
            is_of_program = profile.machine == machine and profile.workload_hash == workload_hash
            if is_of_program and not inputs.is_to_come(profile.unix_seconds):
                profiles.append(profile)
    return max(profiles, key=lambda profile: profile.unix_seconds, default=None)


def read(folder: Path) -> Profile:
    """Read the profile in a folder. Raises Malformed."""
    path = folder / RECORD
    try:
        record = orjson.loads(plain_bytes(path, _MOST_RECORD_BYTES))
    except (OSError, ValueError) as error:
        raise Malformed(f"{path} can't be read: {error}") from None
    if not isinstance(record, dict) or record.get("profile") != VERSION:
        raise Malformed(f"{path} is no profile that this version reads")
    return decoded({**record, "folder": folder}, Profile)


def _unpack(packed: bytes, most: int) -> bytes:
    """Unpack at most `most` bytes. Raises OSError for data that is cut off or larger, zlib.error for data not packed."""
    unpack = zlib.decompressobj(wbits=31)
    data = unpack.decompress(packed, most)
    if unpack.unconsumed_tail or not unpack.eof:
        raise OSError(f"it is cut off, or unpacks to more than {most:,} bytes")
    return data
