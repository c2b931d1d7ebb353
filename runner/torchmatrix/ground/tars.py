"""Tar archives of unknown origin."""

import tarfile
from typing import IO

_LONGEST_READ = 1 << 20


def opened(file: IO[bytes]) -> tarfile.TarFile:
    """The archive at the file's position, never packed: what is packed could unpack to anything. Raises tarfile.TarError.

    What reads of it raises ValueError for a header of more than 1 MiB.
    """
    return tarfile.open(fileobj=_Bounded(file), mode="r:")  # type: ignore[call-overload, no-any-return]


class _Bounded:
    """A file that is never read in large pieces: tarfile reads a header whole, however long it claims to be."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LONGEST_READ:
            raise ValueError(f"a header of {size} bytes")
        return self._file.read(size)
