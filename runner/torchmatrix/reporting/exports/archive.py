"""The facts of a run as one tar.gz, the same bytes for the same facts: no owner, no time, sorted."""

import gzip
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchmatrix.facts.store import RunFolder
from torchmatrix.ground.files import files_below

MOST_PACKING = 40
"""Facts that exceed the limit by more than this factor are not even tried: they compress to about a tenth."""
_FACTS = (".jsonl", ".lock")


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """`data`: None if it would be larger than allowed. `facts_bytes`: the uncompressed size of all files."""

    data: bytes | None
    facts_bytes: int


class _Full(Exception):
    """More was written than is allowed."""


class _Limited(io.BytesIO):
    """A file that refuses to grow beyond the limit."""

    def __init__(self, limit_bytes: int | None) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self._limit_bytes is not None and self.tell() + len(data) > self._limit_bytes:
            raise _Full
        return super().write(data)


def facts_archive(run: RunFolder, limit_bytes: int | None = None, logs: bool = False) -> Archive:
    """run.jsonl, every launch's file and the locks (`logs`: what was printed too), below a folder with the run's id."""
    paths = _files(run, logs)
    whole = sum(path.stat().st_size for path in paths)
    if limit_bytes is not None and whole > MOST_PACKING * limit_bytes:
        return Archive(data=None, facts_bytes=whole)
    file = _Limited(limit_bytes)
    try:
        _pack(run, paths, file)
    except _Full:
        return Archive(data=None, facts_bytes=whole)
    return Archive(data=file.getvalue(), facts_bytes=whole)


def _files(run: RunFolder, logs: bool) -> list[Path]:
    endings = (*_FACTS, ".log") if logs else _FACTS
    return [path for path in files_below(run.path) if path.suffix in endings]


def _pack(run: RunFolder, paths: list[Path], file: IO[bytes]) -> None:
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in paths:
            data = path.read_bytes()
            info = tarfile.TarInfo(f"{run.id}/{path.relative_to(run.path).as_posix()}")
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
