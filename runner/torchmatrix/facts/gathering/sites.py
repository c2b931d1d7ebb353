"""A published site as sources: one archive of facts per run, listed in site.json with size and digest."""

import hashlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct

from torchmatrix import __version__
from torchmatrix.facts.checked import Malformed
from torchmatrix.facts.gathering import archives
from torchmatrix.facts.gathering.sources import Limits, Source
from torchmatrix.facts.gathering.taken import AlreadyHere, Taken
from torchmatrix.facts.wire import Whole, decoded
from torchmatrix.ground.errors import BadInput, EngineUnusable
from torchmatrix.ground.files import opened

LIST = "site.json"
FORMAT = 1
_LONGEST_LIST = 64 << 20
_LARGEST_ARCHIVE = 4 << 30
_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 20
_AGAIN = "check the address and the network; the same command then goes on"


def is_site(word: str) -> bool:
    """Whether this is the address of a site, or a folder that was published."""
    return urlsplit(word).scheme in ("http", "https") or (Path(word) / LIST).is_file()


class _Archive(Struct, frozen=True, kw_only=True):
    """The archive of a run, as the list of a site names it."""

    address: str
    sha256: str
    bytes: Whole


class _List(Struct, frozen=True, kw_only=True):
    """The list of a site."""

    format: Whole
    runs: list[dict[str, Any]] = []


def of_site(word: str, taken: Taken, temporary: Path, limits: Limits) -> Iterator[tuple[str | None, Source | AlreadyHere]]:
    """Every run of a site with the digest of its archive; each can be read until the next one is asked for.

    Raises BadInput or EngineUnusable if the list can't be read or the site can't be reached any more. An archive that is
    damaged or not there is a source with a refusal.
    """
    base = _base(word)
    for run in _listed(base, word, limits):
        try:
            facts = decoded(run.get("facts") or {}, _Archive)
        except Malformed as why:
            yield None, _refused(urljoin(base, str(run.get("page"))), f"the site has no archive of its facts: {why}")
            continue
        if known := taken.find(facts.sha256):
            yield None, known
            continue
        with ExitStack() as stack:
            yield facts.sha256, _archive(base, facts, temporary, stack, limits)


def _archive(base: str, facts: _Archive, temporary: Path, stack: ExitStack, limits: Limits) -> Source:
    label = urljoin(base, facts.address)
    if not label.startswith(base) or ".." in unquote(facts.address):
        return _refused(label, "it lies outside of the site")
    try:
        file = stack.enter_context(archives.nameless(temporary))
        _copy(label, file, min(facts.bytes, _LARGEST_ARCHIVE), facts.sha256, limits)
        return archives.of_file(file, label, temporary, stack, limits)
    except BadInput as error:
        return _refused(label, str(error))
    except (OSError, HTTPException) as error:
        raise EngineUnusable(f"the connection to {label} ended: {error}", hint="the same command then goes on") from None


def _copy(address: str, file: IO[bytes], size: int, digest: str, limits: Limits) -> None:
    """Raises BadInput if what comes isn't what the site tells."""
    seen = hashlib.sha256()
    for chunk in _chunks(address, size, limits):
        seen.update(chunk)
        file.write(chunk)
    if file.tell() != size or seen.hexdigest() != digest:
        raise BadInput("it is not as large as the site says, or its digest differs", hint="publish the site again")


def _chunks(address: str, most: int, limits: Limits, hint: str = _AGAIN) -> Iterator[bytes]:
    """What comes from there, little more than `most` bytes of it. Raises EngineUnusable if that takes too long."""
    begin, came = time.monotonic(), 0
    with _opened(address, hint) as stream:
        while came <= most and (chunk := stream.read1(_CHUNK)):
            came += len(chunk)
            yield chunk
            if time.monotonic() - begin > limits.seconds_for(came):
                raise EngineUnusable(f"{address}: {came} bytes came in {time.monotonic() - begin:.0f} s", hint=_AGAIN)


def _listed(base: str, word: str, limits: Limits) -> list[dict[str, Any]]:
    hint = "name the address of the first page of a site that torchmatrix report --publish wrote"
    content = b"".join(_chunks(urljoin(base, LIST), _LONGEST_LIST, limits, hint))
    try:
        told = decoded(json.loads(content), _List)
        if told.format != FORMAT:
            raise Malformed(f"its format is {told.format}")
        return told.runs
    except (ValueError, TypeError, AttributeError, RecursionError) as why:
        raise BadInput(f"{word} has no list of facts in {LIST} that this version can read: {why}", hint=hint) from None


def _base(word: str) -> str:
    """The address that all others are relative to; it ends with a slash."""
    if not urlsplit(word).scheme:
        return Path(word).resolve().as_uri() + "/"
    address = urlsplit(word)._replace(query="", fragment="").geturl()
    head, _, last = address.rpartition("/")
    return f"{head}/" if last.endswith((".html", ".json")) or not last else f"{address}/"


def _opened(address: str, hint: str) -> Any:
    parts = urlsplit(address)
    if parts.scheme == "file":
        try:
            return opened(Path(unquote(parts.path)))
        except OSError as error:
            raise BadInput(f"can't read {unquote(parts.path)}: {error.strerror}", hint=hint) from None
    request = urllib.request.Request(address, headers={"User-Agent": f"torchmatrix/{__version__}"})
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        raise BadInput(f"{address}: {error.code} {error.reason}", hint=hint) from None
    except (OSError, ValueError, HTTPException) as error:
        why = getattr(error, "reason", error)
        raise EngineUnusable(f"can't reach {address}: {why}", hint=hint) from None


def _refused(name: str, why: str) -> Source:
    return Source(label=name, offers={}, fetch=lambda names: iter(()), refused={name: why})
