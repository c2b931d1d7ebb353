"""An archive as a source: tar, tar.gz, zip, or a report that carries one; told by its content, never unpacked by its names.

A compressed tar is first unpacked into a nameless temporary file in the results folder, since gzip can't be read in any order.
"""

import base64
import gzip
import io
import lzma
import re
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from torchmatrix.facts.gathering.sources import LINK, LONGEST_FILE_BYTES, Limits, Name, Offer, Sorting, Source
from torchmatrix.ground import tars
from torchmatrix.ground.errors import BadInput, EngineUnusable
from torchmatrix.ground.files import opened, sha256_of
from torchmatrix.ground.formatting import clipped, in_one_line

MOST_PACKING = 300
"""Facts compress to about a tenth: what unpacks to more than so many times its size is no archive of facts."""
FREE_BYTES = 256 << 20
"""Up to this size any archive is unpacked."""
_CHUNK = 1 << 20
_NOT_A_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, NotImplementedError, RuntimeError)
_CARRIED = re.compile(rb'download="[^"]*facts\.tar\.gz" href="data:application/gzip;base64,([A-Za-z0-9+/=]+)"')
_LARGEST_PAGE = 256 << 20
_HINT = "it is a .tar, .tar.gz or .zip of a results folder, facts.tar.gz of a site, or a report that carries its facts"


def digest_of(path: Path, limits: Limits) -> str:
    """SHA-256 of a file's content. Raises BadInput; also for one that is far larger than all that a source may bring."""
    most = max(FREE_BYTES, 2 * limits.bytes)  # names and padding count, too
    try:
        with opened(path) as file:
            if file.seek(0, 2) > most:
                raise BadInput(f"{path} is larger than {most >> 20:,} MiB: it is no archive of facts", hint=_HINT)
            file.seek(0)
            return sha256_of(file)
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}", hint="fix its permissions") from None


def of_archive(path: Path, temporary: Path, stack: ExitStack, limits: Limits) -> Source:
    """The facts in an archive, which `stack` closes. `temporary`: a folder for nameless files. Raises BadInput."""
    try:
        file = stack.enter_context(opened(path))
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}", hint="fix its permissions") from None
    return of_file(file, str(path), temporary, stack, limits)


def of_file(file: IO[bytes], label: str, temporary: Path, stack: ExitStack, limits: Limits) -> Source:
    """As of_archive, for an open file."""
    found = Sorting(label=label, limits=limits)
    file.seek(0)
    head = file.read(4)
    file.seek(0)
    try:
        if head[:2] == b"PK":
            return _zip(stack.enter_context(zipfile.ZipFile(file)), found)
        if head.lstrip()[:1] == b"<":
            file = _within_page(file)
            head = file.read(2)
        if head[:2] == b"\x1f\x8b":
            file = _unpacked(file, label, temporary, stack)
        return _tar(stack.enter_context(tars.opened(file)), found)
    except (*tars.NOT_A_TAR, *_NOT_A_ZIP) as error:
        raise BadInput(f"{label} is no archive of facts, or it is damaged: {error}", hint=_HINT) from None


@contextmanager
def nameless(folder: Path) -> Iterator[IO[bytes]]:
    """A temporary file that is gone with this process, however it ends. Raises EngineUnusable."""
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    except OSError as error:
        raise EngineUnusable(f"can't write {folder}: {error.strerror}", hint="free space or fix the permissions") from None
    with file:
        yield file


def _within_page(file: IO[bytes]) -> IO[bytes]:
    """The archive of facts that a report carries; empty if it carries none."""
    found = _CARRIED.search(file.read(_LARGEST_PAGE))
    return io.BytesIO(base64.b64decode(found[1]) if found else b"")


def _unpacked(file: IO[bytes], label: str, temporary: Path, stack: ExitStack) -> IO[bytes]:
    packed_bytes = file.seek(0, 2)
    file.seek(0)
    found = stack.enter_context(nameless(temporary))
    limit = max(FREE_BYTES, MOST_PACKING * packed_bytes)
    with gzip.GzipFile(fileobj=file) as packed:
        while chunk := _next_chunk(packed, label):
            if found.tell() + len(chunk) > limit:
                raise BadInput(f"{label} unpacks to more than {limit >> 20} MiB: it is no archive of facts", hint=_HINT)
            try:
                found.write(chunk)
            except OSError as error:
                raise EngineUnusable(f"can't unpack {label} in {temporary}: {error.strerror}", hint="free space") from None
    found.seek(0)
    return found


def _next_chunk(packed: gzip.GzipFile, label: str) -> bytes:
    try:
        return packed.read(_CHUNK)
    except OSError as error:  # gzip's own complaints are OSErrors
        raise BadInput(f"{label} is damaged: {error}", hint="copy it again") from None


def _tar(tar: tarfile.TarFile, found: Sorting) -> Source:
    members, lost = dict[Name, tarfile.TarInfo](), dict[Name, str]()
    for member in tar:
        if not member.isdir():
            problem = None if member.isreg() and not member.issparse() else LINK
            name = member.name.removeprefix("./")
            if found.add(name, Offer(size=member.size), problem):
                members[name] = member
    if not tars.ends_well(tar):
        found.refused[found.label] = "it is damaged, or cut off: what came after its last readable file is missing"

    def fetch(names: Iterable[Name]) -> Iterator[tuple[Name, bytes]]:
        for name in names:
            try:
                content = tars.content_of(tar, members[name], LONGEST_FILE_BYTES)
            except (*tars.NOT_A_TAR, OSError) as error:
                lost[name] = _damaged(error)
                continue
            if content is not None:
                yield name, content

    return found.source(fetch, lost)


def _zip(archive: zipfile.ZipFile, found: Sorting) -> Source:
    """Old versions of .NET write backslashes, which no zip file has (APPNOTE 4.4.17.1): they are slashes.

    https://learn.microsoft.com/dotnet/framework/migration-guide/mitigation-ziparchiveentry-fullname-path-separator
    """
    members, lost = dict[Name, zipfile.ZipInfo](), dict[Name, str]()
    for member in archive.infolist():
        kind, name = member.external_attr >> 28, member.filename.replace("\\", "/").removeprefix("./")
        problem = None if kind in (0, 8) else LINK
        if problem is None and member.flag_bits & 1:
            problem = "it is encrypted"
        if problem is None and member.file_size > max(FREE_BYTES >> 8, MOST_PACKING * member.compress_size):
            problem = f"it unpacks to more than {MOST_PACKING} times its size"
        if not name.endswith("/") and found.add(name, Offer(size=member.file_size), problem):
            members[name] = member

    def fetch(names: Iterable[Name]) -> Iterator[tuple[Name, bytes]]:
        for name in names:
            try:
                with archive.open(members[name]) as content:
                    data = content.read(LONGEST_FILE_BYTES + 1)
            except (*_NOT_A_ZIP, OSError) as error:
                lost[name] = _damaged(error)
                continue
            yield name, data

    return found.source(fetch, lost)


def _damaged(error: Exception) -> str:
    return f"the archive is damaged there: {clipped(in_one_line(str(error)))}"
