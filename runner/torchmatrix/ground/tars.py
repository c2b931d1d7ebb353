"""Tar archives of unknown origin."""

import tarfile
from typing import IO

_LONGEST_READ = 1 << 20
NOT_A_TAR = (tarfile.TarError, EOFError, ValueError, RecursionError, OverflowError)
"""What reading one raises for what is damaged or hostile: also for headers of headers without an end."""


def opened(file: IO[bytes]) -> tarfile.TarFile:
    """The archive at the file's position, never packed: what is packed could unpack to anything. Raises tarfile.TarError.

    What reads of it raises ValueError for a header of more than 1 MiB.
    """
    return tarfile.open(fileobj=_Bounded(file), mode="r:")  # type: ignore[call-overload, no-any-return]


def streamed(stream: IO[bytes], most: int) -> tarfile.TarFile:
    """As `opened`, of a stream that is read once, forwards, and no more than `most` bytes of it."""
    return opened(_Forwards(stream, most))  # type: ignore[arg-type]  # what tarfile needs of a file


def ends_well(tar: tarfile.TarFile) -> bool:
    """Whether zeros end what was read, as POSIX has it: tarfile takes a damaged header, and the file's end, for that too."""
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    return tar.fileobj.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)


def content_of(tar: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes | None:
    """What a plain file in an archive holds, one byte more than `most` at most; None for what is no plain file."""
    content = tar.extractfile(member) if member.isreg() and not member.issparse() else None
    if content is None:
        return None
    parts, left = [], most + 1
    while left > 0 and (part := content.read(min(left, _LONGEST_READ))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


class _Forwards:
    """A stream as a file whose place only moves forwards."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._most, self._place = stream, most, 0

    def read(self, size: int) -> bytes:
        if self._place + size > self._most + _LONGEST_READ:
            raise ValueError(f"it is longer than {self._most} bytes")
        data = self._stream.read(size)
        self._place += len(data)
        return data

    def seek(self, place: int) -> None:
        while self._place < place:
            if not self.read(min(place - self._place, _LONGEST_READ)):
                raise EOFError("it ends early")
        if self._place > place:
            raise ValueError("it can't be read backwards")

    def tell(self) -> int:
        return self._place

    def seekable(self) -> bool:
        return True


class _Bounded:
    """A file that is never read in large pieces: tarfile reads a header whole, however long it claims to be."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LONGEST_READ:
            raise ValueError(f"a header of {size} bytes")
        return self._file.read(size)
