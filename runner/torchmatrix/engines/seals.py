"""The seal of a compile cache: a digest of all that a launch would execute from it.

The first launch of a stack and workload compiles into an empty cache, which is then sealed. Later launches get a copy of it.
The digest covers names and contents; a cache that holds anything but folders and plain files is never sealed.
"""

import hashlib
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from torchmatrix.ground.files import sha256_of

COMPLETE = "complete"
"""The file with which the box says that the cache is that of a complete launch."""
BROKEN = "the compile cache was changed while the launch ran: it is thrown away, and the next launch compiles again"
DIFFERED = "it differed from its seal and was thrown away"
IN_USE = "another launch is using it"


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFacts:
    """`state`: new (this launch fills it), sealed (it is only read) or none (not kept). `note`: why no seal could be used."""

    state: str
    sha256: str | None = None
    note: str | None = None

    def as_facts(self) -> dict[str, Any]:
        """The field of a launch's header under `started`."""
        return {"compile_cache": {"state": self.state, "sha256": self.sha256, "note": self.note}}


def of_folder(folder: Path) -> str | None:
    """The digest of a folder; None if it can't be sealed. Raises OSError."""
    entries: list[tuple[str, str]] = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return None
        if path.is_file():
            with path.open("rb") as file:
                entries.append((name, sha256_of(file)))
        else:
            entries.append((name, "folder"))
    return _sealed(entries)


def of_archive(chunks: Iterable[bytes]) -> str | None:
    """The digest of the folder in a tar archive, the first part of each name left out; None if it can't be sealed.

    Raises tarfile.TarError.
    """
    entries: list[tuple[str, str]] = []
    with tarfile.open(fileobj=cast("IO[bytes]", _Stream(iter(chunks))), mode="r|") as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if not (member.isfile() or member.isdir()):
                return None
            if member.isfile():
                file = archive.extractfile(member)
                assert file is not None
                entries.append((name, sha256_of(file)))
            elif name:
                entries.append((name, "folder"))
    return _sealed(entries)


def _sealed(entries: list[tuple[str, str]]) -> str | None:
    if COMPLETE not in dict(entries):
        return None
    lines = "".join(f"{digest} {name!r}\n" for name, digest in sorted(entries))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


class _Stream:
    """Chunks as a file that tarfile can read from front to back."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; fewer only at the end."""
        parts, missing = [], size
        while missing and (data := self._rest or next(self._chunks, b"")):
            parts.append(data[:missing])
            self._rest = data[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)
