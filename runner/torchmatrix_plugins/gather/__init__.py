"""Imports runs of other machines into a results folder: from folders, archives, other machines by ssh, and published sites.

In: a results folder and words that name sources. Out: the result of importing each source. Every file is compared with the one
that is here, checked (checksum, header, place) and written whole; a file that is damaged, or contradicts the one that is here,
is refused by name. Files that are here stay, and nothing outside of the results folder is written, whatever a source says.

It knows nothing but the facts' format; it reads no tables and needs no engine. Open
first: importer.py, which imports one run and finds its folder. sources.py declares what a source is and reads folders and
archives, remote.py reads other machines by ssh; this file reads sites.
"""

import hashlib
import json
import os
import re
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urljoin, urlsplit

from msgspec import Struct

from torchmatrix.core import __version__
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import hold_lock, open_regular
from torchmatrix.core.formatting import count
from torchmatrix.core.inputs import Malformed, short_json
from torchmatrix.facts.store import Results
from torchmatrix.facts.wire import Whole, decoded
from torchmatrix_plugins.gather import remote, sources
from torchmatrix_plugins.gather.importer import AlreadyHere, ImportResult, Layout, Ledger, import_run, runs_of
from torchmatrix_plugins.gather.sources import Limits, Source

# Published sites: one archive of facts per run, listed in site.json with size and digest

LIST = "site.json"
FORMAT = 1
_LONGEST_LIST = 64 << 20
_LARGEST_ARCHIVE = 4 << 30
_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 20
_AGAIN = "check the address and the network; the same command then goes on"


def is_site(word: str) -> bool:
    """Check whether `word` is the address of a site, or a folder that was published."""
    return _is_address(word) or (Path(word) / LIST).is_file()


def _is_address(word: str) -> bool:
    return word.lower().startswith(("http://", "https://"))


def _joined(base: str, address: str) -> str:
    """Return an address of a site. Raises Malformed for what is none, such as half a bracket or a NUL."""
    try:
        joined = urljoin(base, address)
        urlsplit(joined)
        if "\0" in unquote(joined) or not joined.isprintable():
            raise ValueError
    except ValueError:
        raise Malformed(f"{short_json(address)} is no address") from None
    return joined


class _Archive(Struct, frozen=True, kw_only=True):
    """The archive of a run, as the list of a site names it."""

    address: str
    sha256: str
    bytes: Whole


class _List(Struct, frozen=True, kw_only=True):
    """The list of a site."""

    format: Whole
    runs: list[dict[str, Any]] = []


def of_site(word: str, ledger: Ledger, temporary: Path, limits: Limits) -> Iterator[tuple[str | None, Source | AlreadyHere]]:
    """Yield every run of a site with the digest of its archive; each can be read until the next one is requested.

    Raises BadInput or EngineUnusable if the list can't be read or the site can't be reached any more. An archive that is
    damaged or not there is a source with a refusal.
    """
    base = _base_address(word)
    for run in _read_list(base, word, limits):
        try:
            facts = decoded(run.get("facts") or {}, _Archive)
            label = _joined(base, facts.address)
        except Malformed as why:
            yield (
                None,
                _refused(f"{base}{short_json(run.get('page')).strip(chr(34))}", f"the site has no archive of its facts: {why}"),
            )
            continue
        if already_here := ledger.find(facts.sha256):
            yield None, already_here
            continue
        with ExitStack() as stack:
            yield facts.sha256, _download(base, label, facts, temporary, stack, limits)


def _download(base: str, label: str, facts: _Archive, temporary: Path, stack: ExitStack, limits: Limits) -> Source:
    if not label.startswith(base) or ".." in unquote(facts.address):
        return _refused(label, "it lies outside of the site")
    try:
        file = stack.enter_context(sources.nameless(temporary))
        size, digest = min(facts.bytes, _LARGEST_ARCHIVE), hashlib.sha256()
        for chunk in _chunks(label, size, limits):
            digest.update(chunk)
            file.write(chunk)
        if file.tell() != size or digest.hexdigest() != facts.sha256:
            return _refused(label, "it is not as large as the site says, or its digest differs")
        return sources.of_file(file, label, temporary, stack, limits)
    except BadInput as error:
        return _refused(label, str(error))
    except (OSError, HTTPException) as error:
        raise EngineUnusable(f"the connection to {label} ended: {error}", hint="the same command then goes on") from None


def _chunks(address: str, most: int, limits: Limits, hint: str = _AGAIN) -> Iterator[bytes]:
    """Yield the content of an address, little more than `most` bytes of it. Raises EngineUnusable if that takes too long."""
    begin, came = time.monotonic(), 0
    with _open_site(address, hint) as stream:
        while came <= most and (chunk := stream.read1(_CHUNK)):
            came += len(chunk)
            yield chunk
            if time.monotonic() - begin > limits.seconds_for(came):
                raise EngineUnusable(f"{address}: {came} bytes came in {time.monotonic() - begin:.0f} s", hint=_AGAIN)


def _read_list(base: str, word: str, limits: Limits) -> list[dict[str, Any]]:
    hint = "name the address of the first page of a site that torchmatrix report --publish wrote"
    content = b"".join(_chunks(urljoin(base, LIST), _LONGEST_LIST, limits, hint))
    try:
        site = decoded(json.loads(content), _List)
        if site.format != FORMAT:
            raise Malformed(f"its format is {site.format}")
        return site.runs
    except (ValueError, TypeError, AttributeError, RecursionError) as why:
        raise BadInput(f"{word} has no list of facts in {LIST} that this version can read: {why}", hint=hint) from None


def _shown(word: str) -> str:
    """Return a source as it may be shown: of an address not what follows ? and #, in which a token may stand."""
    return re.split(r"[?#]", word, maxsplit=1)[0] if _is_address(word) else word


def _base_address(word: str) -> str:
    """Return the address that all others are relative to; it ends with a slash."""
    if not _is_address(word):
        return Path(word).resolve().as_uri() + "/"
    try:
        parts = urlsplit(word)._replace(query="", fragment="")
        address = parts.geturl()
    except ValueError as why:
        raise BadInput(f"{word} is no address: {why}", hint="name the first page of a site, or its folder") from None
    if "@" in parts.netloc:
        raise BadInput("an address with a name or password can't be read", hint="gather from the site's folder, or an archive")
    head, _, last = address.rpartition("/")
    return f"{head}/" if last.endswith((".html", ".json")) or not last else f"{address}/"


def _open_site(address: str, hint: str) -> Any:
    parts = urlsplit(address)
    if parts.scheme == "file":
        path = Path(os.fsdecode(unquote_to_bytes(parts.path)))
        try:
            return open_regular(path)
        except OSError as error:
            raise BadInput(f"can't read {path}: {error.strerror}", hint=hint) from None
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


__all__ = ["ImportResult", "Limits", "gather"]

LOCK = ".gather.lock"
_USUAL = Limits()


def gather(
    results: Results,
    word: str,
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda line: None,
    limits: Limits = _USUAL,
) -> ImportResult:
    """Import what is new in the source `word` into `results`; `tell` gets a line for every run of the source.

    `dry_run`: nothing is written, and new files are listed without being read. Raises BadInput or EngineUnusable if the
    source can't be read or the results can't be written; what came before stays. The same call then goes on.
    """
    if not word:
        raise BadInput('"" names no source', hint="name a folder, an archive, a machine or a site; . is this folder")
    brought = ImportResult(source=_shown(word))
    with ExitStack() as stack:
        if not dry_run:
            hint = "wait for it, or write elsewhere: --results DIR"
            stack.enter_context(hold_lock(results.root / LOCK, f"another gather fills {results.root}", hint))
        temporary = Path(tempfile.gettempdir()) if dry_run else results.root
        ledger, layout = Ledger(results.root), Layout(results)
        for digest, source in _open_sources(word, ledger, temporary, stack, limits):
            if isinstance(source, AlreadyHere):
                brought.add(ImportResult(source=brought.source, runs_here=list(source.runs), here=source.launches))
                continue
            part = ImportResult(source=source.label, refused=dict(source.refused), others=source.others)
            runs = runs_of(source, part)
            for number, run in enumerate(runs, start=1):
                tell(f"{number} of {len(runs)}: {run.folder}, {count(len(run.files), 'file')}")
                import_run(source, run, layout, part, dry_run)
            brought.add(part)
            if digest and not dry_run:
                ledger.add(digest, part)
    return brought


def _open_sources(
    word: str, ledger: Ledger, temporary: Path, stack: ExitStack, limits: Limits
) -> Iterator[tuple[str | None, Source | AlreadyHere]]:
    """Yield the sources that a word names, each with the digest by which the ledger remembers it."""
    path = Path(word)
    if is_site(word):
        yield from of_site(word, ledger, temporary, limits)
    elif path.is_dir():
        yield None, sources.of_folder(path, limits)
    elif path.exists():
        digest = sources.digest_of(path, limits)
        yield digest, ledger.find(digest) or sources.of_archive(path, temporary, stack, limits)
    elif remote.is_remote(word):
        yield None, remote.of_remote(word, stack, limits)
    else:
        hint = "name a folder of results, an archive of one, user@host:path, or the address of a published site"
        raise BadInput(f"there is no {word}", hint=hint)
