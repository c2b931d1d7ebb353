"""A published site as sources: one archive of facts per run, listed in site.json with size and digest."""

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urljoin, urlsplit

from torchmatrix import __version__
from torchmatrix.facts import checked
from torchmatrix.facts.checked import Malformed
from torchmatrix.facts.gathering import archives
from torchmatrix.facts.gathering.sources import Source
from torchmatrix.facts.gathering.taken import AlreadyHere, Taken
from torchmatrix.ground.errors import BadInput, EngineUnusable

LIST = "site.json"
FORMAT = 1
_LONGEST_LIST = 64 << 20
_LARGEST_ARCHIVE = 4 << 30
_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 20


def is_site(word: str) -> bool:
    """Whether this is the address of a site, or a folder that was published."""
    return urlsplit(word).scheme in ("http", "https") or (Path(word) / LIST).is_file()


def of_site(word: str, taken: Taken, temporary: Path) -> Iterator[tuple[str | None, Source | AlreadyHere]]:
    """Every run of a site with the digest of its archive; each can be read until the next one is asked for.

    Raises BadInput or EngineUnusable if the list can't be read or the site can't be reached any more. An archive that is
    damaged or not there is a source with a refusal.
    """
    base = _base(word)
    for run in _listed(base, word):
        try:
            facts = checked.part(run, "facts")
            address, digest = checked.text(facts, "address"), checked.text(facts, "sha256")
            size = checked.whole(facts, "bytes")
        except Malformed as why:
            yield None, _refused(urljoin(base, str(run.get("page"))), f"the site has no archive of its facts: {why}")
            continue
        if known := taken.find(digest):
            yield None, known
            continue
        with ExitStack() as stack:
            yield digest, _archive(base, address, size, digest, temporary, stack)


def _archive(base: str, address: str, size: int, digest: str, temporary: Path, stack: ExitStack) -> Source:
    label = urljoin(base, address)
    if not label.startswith(base) or ".." in unquote(address):
        return _refused(label, "it lies outside of the site")
    try:
        file = stack.enter_context(archives.nameless(temporary))
        _copy(label, file, min(size, _LARGEST_ARCHIVE), digest)
        return archives.of_file(file, label, temporary, stack)
    except BadInput as error:
        return _refused(label, str(error))
    except (OSError, HTTPException) as error:
        raise EngineUnusable(f"the connection to {label} ended: {error}", hint="the same command then goes on") from None


def _copy(address: str, file: IO[bytes], size: int, digest: str) -> None:
    """Raises BadInput if what comes isn't what the site tells."""
    seen = hashlib.sha256()
    with _opened(address) as stream:
        while chunk := stream.read(_CHUNK):
            seen.update(chunk)
            file.write(chunk)
            if file.tell() > size:
                break
    if file.tell() != size or seen.hexdigest() != digest:
        raise BadInput("it is not as large as the site says, or its digest differs", hint="publish the site again")


def _listed(base: str, word: str) -> list[dict[str, Any]]:
    hint = "name the address of the first page of a site that torchmatrix report --publish wrote"
    with _opened(urljoin(base, LIST), hint) as stream:
        content = stream.read(_LONGEST_LIST)
    try:
        told = json.loads(content)
        if checked.whole(told, "format") != FORMAT:
            raise Malformed(f"its format is {told['format']}")
        return checked.parts(told, "runs")
    except (ValueError, TypeError, AttributeError, RecursionError) as why:
        raise BadInput(f"{word} has no list of facts in {LIST} that this version can read: {why}", hint=hint) from None


def _base(word: str) -> str:
    """The address that all others are relative to; it ends with a slash."""
    if not urlsplit(word).scheme:
        return Path(word).resolve().as_uri() + "/"
    address = urlsplit(word)._replace(query="", fragment="").geturl()
    head, _, last = address.rpartition("/")
    return f"{head}/" if last.endswith((".html", ".json")) or not last else f"{address}/"


def _opened(address: str, hint: str = "check the address and the network; the same command then goes on") -> Any:
    request = urllib.request.Request(address, headers={"User-Agent": f"torchmatrix/{__version__}"})
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        raise BadInput(f"{address}: {error.code} {error.reason}", hint=hint) from None
    except (OSError, ValueError, HTTPException) as error:
        why = getattr(error, "reason", error)
        kind = BadInput if isinstance(why, FileNotFoundError) else EngineUnusable
        raise kind(f"can't reach {address}: {why}", hint=hint) from None


def _refused(name: str, why: str) -> Source:
    return Source(label=name, offers={}, fetch=lambda names: iter(()), refused={name: why})
