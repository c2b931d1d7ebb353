"""Brings runs of other machines into a results folder: from folders, archives, other machines by ssh, and published sites.

In: a results folder and words that name sources. Out: what came of each source. Every file is compared with what is here,
checked (checksum, header, place) and written whole; what is damaged, or contradicts what is here, is refused by name. What is
here stays, and nothing outside of the results folder is written, whatever a source says.

It is a part of the facts because it knows nothing but their format; it reads no tables and needs no engine. Open first:
taking.py, which takes one run. sources.py says what a source is; folders.py, archives.py, remote.py and sites.py make one;
placing.py finds the folder of a machine.
"""

import hashlib
import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct

from torchmatrix import __version__
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import hold_lock, opened
from torchmatrix.core.formatting import count
from torchmatrix.core.inputs import Malformed
from torchmatrix.facts.gathering import remote, sources
from torchmatrix.facts.gathering.importer import AlreadyHere, Brought, Places, Taken, runs_of, take
from torchmatrix.facts.gathering.sources import Limits, Source
from torchmatrix.facts.store import Results
from torchmatrix.facts.wire import Whole, decoded

# A published site as sources: one archive of facts per run, listed in site.json with size and digest.

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
        file = stack.enter_context(sources.nameless(temporary))
        _copy(label, file, min(facts.bytes, _LARGEST_ARCHIVE), facts.sha256, limits)
        return sources.of_file(file, label, temporary, stack, limits)
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
    with _open_site(address, hint) as stream:
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


def _open_site(address: str, hint: str) -> Any:
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


__all__ = ["Brought", "Limits", "gather"]

LOCK = ".gather.lock"
_USUAL = Limits()


def gather(
    results: Results,
    word: str,
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda line: None,
    limits: Limits = _USUAL,
) -> Brought:
    """Bring what is new in the source `word` into `results`; `tell` gets a line for every run that is looked at.

    `dry_run`: nothing is written, and new files are listed without a look into them. Raises BadInput or EngineUnusable if the
    source can't be read or the results can't be written; what came before stays. The same call then goes on.
    """
    brought = Brought(source=word)
    with ExitStack() as stack:
        if not dry_run:
            hint = "wait for it, or write elsewhere: --results DIR"
            stack.enter_context(hold_lock(results.root / LOCK, f"another gather fills {results.root}", hint))
        temporary = Path(tempfile.gettempdir()) if dry_run else results.root
        taken, places = Taken(results.root), Places(results)
        for digest, source in _opened(word, taken, temporary, stack, limits):
            if isinstance(source, AlreadyHere):
                brought.add(Brought(source=word, runs_here=list(source.runs), here=source.launches))
                continue
            part = _taken(source, places, dry_run, tell)
            brought.add(part)
            if digest and not dry_run:
                taken.add(digest, part)
    return brought


def _opened(
    word: str, taken: Taken, temporary: Path, stack: ExitStack, limits: Limits
) -> Iterator[tuple[str | None, Source | AlreadyHere]]:
    """The sources that a word names, each with the digest by which it can be known again."""
    path = Path(word)
    if is_site(word):
        yield from of_site(word, taken, temporary, limits)
    elif path.is_dir():
        yield None, sources.of_folder(path, limits)
    elif path.exists():
        digest = sources.digest_of(path, limits)
        yield digest, taken.find(digest) or sources.of_archive(path, temporary, stack, limits)
    elif remote.is_remote(word):
        yield None, remote.of_remote(word, stack, limits)
    else:
        hint = "name a folder of results, an archive of one, user@host:path, or the address of a published site"
        raise BadInput(f"there is no {word}", hint=hint)


def _taken(source: Source, places: Places, dry_run: bool, tell: Callable[[str], None]) -> Brought:
    brought = Brought(source=source.label, refused=dict(source.refused), others=source.others)
    runs = runs_of(source, brought)
    for number, run in enumerate(runs, start=1):
        tell(f"{number} of {len(runs)}: {run.folder}, {count(len(run.files), 'file')}")
        take(source, run, places, brought, dry_run)
    return brought
