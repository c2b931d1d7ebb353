"""Runs as a static site: an index, and for each run a permalink with its report, its tables and its facts.

DIR/index.html  history.html  site.json  runs/RUN/index.html  runs/RUN/facts.tar.gz  runs/RUN/tables/*.csv  runs/RUN/run.json

All links are relative, so the folder works from disk and below any address. Everything is made from copies of the facts from
which `redaction` has removed what must not be shown. Publishing again adds and updates: a run whose facts are the same is not
written, pages of runs that are gone stay, and files that aren't ours are left alone. Each file appears complete.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torchmatrix import __version__
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.ground import assets
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.files import write_whole
from torchmatrix.reporting import redaction
from torchmatrix.reporting.redaction import Redaction
from torchmatrix.reporting.redaction.names import Pseudonyms, load
from torchmatrix.reporting.site import pages, permalinks


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What publishing made: the first page, and the permalinks that were written or already up to date."""

    index: Path
    written: tuple[str, ...]
    kept: tuple[str, ...]


def publish(
    results: Results,
    runs: Sequence[RunFolder],
    target: Path,
    *,
    redact: bool,
    held: PriceList = NONE,
    tell: Callable[[str], None] = lambda line: None,
) -> Site:
    """Put `runs` of `results` into the site at `target`, which is created if needed; `tell` gets a line for every run written.

    `redact`: with pseudonyms for hosts, users, devices and private addresses; a site is redacted or not, never half.
    Raises BadInput if the folder isn't a site or was published the other way, EngineUnusable if it can't be written.
    """
    names = load(results.root)
    cleaner = redaction.for_results(results, redact, names)
    try:
        target.mkdir(parents=True, exist_ok=True)
        links = permalinks.of(target, runs, names, cleaner, redact)
        written = []
        for number, (run, slug) in enumerate(links.items(), start=1):
            if _write_run(run, slug, target, cleaner, names, held):
                written.append(slug)
                tell(f"{number} of {len(links)}: {slug}")
        _write_index(target, results, links, cleaner, redact)
    except OSError as error:
        hint = "free space or fix the permissions, then publish again"
        raise EngineUnusable(f"can't write {target}: {error.strerror or error}", hint=hint) from None
    kept = tuple(slug for slug in links.values() if slug not in written)
    return Site(index=target / "index.html", written=tuple(written), kept=kept)


def _write_run(run: RunFolder, slug: str, target: Path, cleaner: Redaction, names: Pseudonyms, held: PriceList) -> bool:
    """Write a run's folder, if its facts or what makes pages of them changed since.

    Its run.json comes last: it marks the folder as complete.
    """
    folder = target / permalinks.RUNS / slug
    made_from = _fingerprint(run, cleaner.enabled, held)
    if permalinks.read(folder).get("fingerprint") == made_from and (folder / "index.html").exists():
        return False
    with tempfile.TemporaryDirectory(prefix="torchmatrix-site-") as temporary:
        summary, files = pages.of_run(redaction.staged(run, cleaner, Path(temporary)), held)
    names.save(run.path.parent.parent)  # before anything is shown under them
    identity = {
        "key": permalinks.key_of(run, names),
        "fingerprint": made_from,
        "redacted": cleaner.enabled,
        "tool": __version__,
    }
    for name, content in {**files, permalinks.ABOUT: _json(identity | summary)}.items():
        put(folder / name, content)
    return True


def _write_index(target: Path, results: Results, links: Mapping[RunFolder, str], cleaner: Redaction, redact: bool) -> None:
    known = permalinks.known(target)
    put(target / permalinks.STATE, _json({"redacted": redact, "runs": len(known)}))
    history = pages.history(results, links, cleaner)
    if history is None:
        (target / "history.html").unlink(missing_ok=True)  # of earlier runs, perhaps published another way
    else:
        put(target / "history.html", history)
    put(target / "index.html", pages.listing(known, has_history=history is not None, redacted=redact))


def put(path: Path, content: bytes) -> None:
    """Write a complete file, unless it already has this content."""
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _fingerprint(run: RunFolder, redacted: bool, held: PriceList) -> str:
    """A hash that changes with any file of the run's facts, with the options, and with the code that makes the pages."""
    files = sorted((path.relative_to(run.path).as_posix(), path.stat()) for path in run.path.rglob("*") if path.is_file())
    facts = [(name, status.st_size, status.st_mtime_ns) for name, status in files]
    return hashlib.sha256(repr((facts, redacted, sorted(map(repr, held.prices.values())), _makers())).encode()).hexdigest()


@cache
def _makers() -> str:
    """A hash of our own sources, templates and published figures."""
    folders = {Path(__file__).parents[2]: "*.py", assets.TEMPLATES: "*", assets.PUBLISHED: "*.csv"}
    paths = [path for folder, glob in folders.items() for path in sorted(folder.rglob(glob)) if path.is_file()]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
