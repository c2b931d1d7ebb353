"""Runs as a static site: an index, and for each run a permalink with its report, its tables and its facts.

DIR/index.html                   the front page: machines, GPUs, models, newest nights and figures, all runs (front.py)
DIR/history.html, changes.xml    trends of several runs, and their changes of level as a feed (front.py)
DIR/site.json, newest.json       the runs (pages.py) and the newest figures (front.py) for programs
DIR/tables/                      the tables of a comparison of machines, *.csv and *.json (front.py)
DIR/badges/MACHINE/CELL.svg      the newest figure of each cell as an image (front.py)
DIR/runs/RUN/                    index.html, facts.tar.gz, tables/*.csv and *.json, run.json (pages.py)

All links are relative, so the folder works from disk and below any address. Everything is made from copies of the facts from
which `redaction` has removed what must not be shown. Publishing again adds and updates: a run whose facts are the same is not
written, pages of runs that are gone stay, and files of others are left alone. Each file appears complete.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.core import __version__, assets
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import files_below, locked_file, plain_bytes, scratch, write_whole
from torchmatrix.core.formatting import count
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting import redaction
from torchmatrix.reporting.page import APART, OURS, Brand
from torchmatrix.reporting.pages import PageRequest
from torchmatrix.reporting.redaction import Redaction
from torchmatrix.reporting.redaction.identities import Pseudonyms, load
from torchmatrix_plugins.publish import front, pages
from torchmatrix_plugins.publish.pages import PendingRun, rendered


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """The result of publishing: the first page, and the permalinks that were written or already up to date."""

    index: Path
    written: tuple[str, ...]
    kept: tuple[str, ...]


def page(asked: PageRequest) -> Path:
    """Write a site; return its first page. Raises as `publish` does."""
    site = publish(
        asked.results, asked.runs, asked.target, redact=asked.redact, with_messages=asked.with_messages, held=asked.prices,
        brand=asked.brand, tell=asked.tell,
    )  # fmt: skip
    asked.tell(f"{count(len(site.written), 'run')} written, {len(site.kept)} unchanged")
    return site.index


def publish(
    results: Results,
    runs: Sequence[RunFolder],
    target: Path,
    *,
    redact: bool,
    with_messages: bool = False,
    held: PriceList = NONE,
    brand: Brand = OURS,
    tell: Callable[[str], None] = lambda line: None,
) -> Site:
    """Put `runs` of `results` into the site at `target`, which is created if needed; `tell` gets a line for every run written.

    One command at a time publishes into a site; the next one waits.
    `redact`: with pseudonyms for hosts, users, devices and private addresses; a site is redacted or not, never half.
    `with_messages`: with what failed workloads, libraries and builds said.
    Raises BadInput if the folder isn't a site or was published the other way, EngineUnusable if it can't be written.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        pages.known_pages(target)  # refuse somebody else's folder before anything is written into it
        with _site_lock(target, tell):
            names = load(results.root)
            cleaner = redaction.for_results(results, redact, names, with_messages)
            held = held.redacted(redaction.of_texts(runs, cleaner))
            links = pages.permalinks_of(target, _publishable(runs, tell), names, cleaner, redact)
            written = list(_write_runs(target, links, cleaner, names, held, brand, tell))
            _write_front(target, results, links, cleaner, held, brand, names)
            redaction.tell_dropped(cleaner, tell)
    except OSError as error:
        hint = "free space or fix the permissions, then publish again"
        raise EngineUnusable(f"can't write {target}: {error.strerror or error}", hint=hint) from None
    kept = tuple(slug for slug in links.values() if slug not in written)
    return Site(index=target / "index.html", written=tuple(written), kept=kept)


@contextmanager
def _site_lock(target: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the site; its lock names nobody, since it may be published too."""
    try:
        lock = locked_file(target / ".lock")
    except BlockingIOError:
        tell(f"waiting for another command that publishes into {target}")
        lock = locked_file(target / ".lock", wait=True)
    with lock:
        yield


def _publishable(runs: Sequence[RunFolder], tell: Callable[[str], None]) -> list[RunFolder]:
    """Return the runs that may be published, and tell which are left out."""
    reasons = [(run, _why_not(run)) for run in runs]
    for run, why in reasons:
        if why:
            tell(f"left out: {run.path}{why}")
    return [run for run, why in reasons if why is None]


def _why_not(run: RunFolder) -> str | None:
    """Return why a run can't be published: a link may lead to what nobody meant to publish; a record must be a plain file."""
    if run.path.is_symlink() or run.path.parent.is_symlink() or run.record.is_symlink():
        return " is a symbolic link"
    return None if run.record.is_file() else ": its run.jsonl is not a plain file"


def _write_runs(
    target: Path,
    links: Mapping[RunFolder, str],
    cleaner: Redaction,
    names: Pseudonyms,
    price_list: PriceList,
    brand: Brand,
    tell: Callable[[str], None],
) -> Iterator[str]:
    """Write the folders of the runs whose facts or renderers changed since the last time; yield their permalinks."""
    prints = {run: _fingerprint(run, cleaner, price_list, brand) for run in links}
    due = [(number, run) for number, run in enumerate(links, start=1) if not _is_published(target, links[run], prints[run])]
    for _, run in due:  # a name that one of them tells may stand in the texts of another
        cleaner.learn_run(run)
    with scratch() as temporary:
        copies = (_waiting(number, run, links[run], cleaner, temporary / str(number)) for number, run in due)
        for item, summary, files in rendered(copies, len(due), price_list, brand):
            names.save(item.run.path.parent.parent)  # before anything is shown under them
            identity = {"key": pages.key_of(item.run, names), "fingerprint": prints[item.run]}
            about = identity | {"redacted": cleaner.enabled, "tool": __version__, "sizes": _sizes(files)} | summary
            if cleaner.enabled and not pages.read_page(target / pages.RUNS / item.slug).get("redacted"):
                _clear(target, f"{pages.RUNS}/{item.slug}", files)
            for name, content in {**files, pages.ABOUT: _json(about)}.items():  # the last marks the folder as complete
                put(target, f"{pages.RUNS}/{item.slug}/{name}", content)
            shutil.rmtree(item.place)
            unread = summary["unreadable"]
            left_out = (
                f", {count(unread, 'file')} can't be read: its page names {'it' if unread == 1 else 'them'}" if unread else ""
            )
            tell(f"{item.number} of {len(links)}: {item.slug}{left_out}")
            yield item.slug


def _is_published(target: Path, slug: str, fingerprint: str) -> bool:
    folder = target / pages.RUNS / slug
    about = pages.read_page(folder)
    return about.get("fingerprint") == fingerprint and _is_whole(folder, about)


def _sizes(files: Mapping[str, bytes]) -> dict[str, int]:
    return {name: len(content) for name, content in files.items()}


def _is_whole(folder: Path, about: Mapping[str, Any]) -> bool:
    """Check whether each file that a publication wrote is still there, in its size."""
    sizes = about.get("sizes")
    try:
        return isinstance(sizes, dict) and all((folder / name).lstat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _waiting(number: int, run: RunFolder, slug: str, cleaner: Redaction, place: Path) -> PendingRun:
    return PendingRun(number=number, run=run, slug=slug, copy=redaction.staged(run, cleaner, place), place=place)


def _write_front(
    target: Path, results: Results, links: Mapping[RunFolder, str], cleaner: Redaction, price_list: PriceList, brand: Brand,
    names: Pseudonyms,
) -> None:  # fmt: skip
    """Write the files at the root, if any run or the choice of runs changed since; site.json comes last."""
    entries, before = pages.known_pages(target), pages.state_of(target)
    prints = sorted((slug, str(about.get("fingerprint"))) for slug, about in entries.items())
    made_from = hashlib.sha256(
        repr((prints, sorted(links.values()), _ways(cleaner), brand, _hash_of_sources())).encode()
    ).hexdigest()
    listed = pages.runs_for_programs(target, entries, cleaner.enabled)
    is_same = before.get("fingerprint") == made_from and before.get("runs") == listed["runs"]
    if is_same and _is_whole(target, before):
        return
    files = front.files(results, links, entries, cleaner, price_list, brand, names.secret)
    for name, content in files.items():
        put(target, name, content)
    drawn = [name for name in before.get("sizes") or () if name.startswith(f"{APART}/")]
    for name in {front.HISTORY, front.HISTORY_DATA, *front.MACHINE_TABLES, *drawn} - files.keys():
        remove(target, name)  # it is from earlier runs, perhaps published another way
    if before.get("redacted") != cleaner.enabled:
        for folder in (front.FOLDER, APART):
            _clear(target, folder, files)
    if cleaner.enabled:
        pages.refuse_bare(target, entries)
    badges = {name for name in (*files, *(before.get("badges") or ())) if name.endswith(".svg") and (target / name).exists()}
    put(target, pages.STATE, _json(listed | {"badges": sorted(badges), "fingerprint": made_from, "sizes": _sizes(files)}))


def put(target: Path, name: str, content: bytes) -> None:
    """Write a complete file into the site, unless it already has this content. Raises BadInput where a link leads elsewhere."""
    path = target / name
    _refuse_links(target, path)
    with suppress(OSError):
        if plain_bytes(path, len(content)) == content:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def _clear(target: Path, folder: str, files: Mapping[str, bytes]) -> None:
    """Remove what a publication of another kind has left in a run's or the badges' folder; `files`: those written now.
    They may have names from the root of the site or of the folder.
    """
    if (target / folder).is_dir():
        for path in files_below(target / folder):
            name = path.relative_to(target).as_posix()
            if name not in files and name.removeprefix(f"{folder}/") not in files:
                remove(target, name)


def remove(target: Path, name: str) -> None:
    """Remove a file of the site; nothing outside of `target`, whatever its site.json says."""
    path = target / name
    if ".." not in path.parts and path.is_relative_to(target):
        _refuse_links(target, path)
        path.unlink(missing_ok=True)


def _refuse_links(target: Path, path: Path) -> None:
    """Raise BadInput for a symbolic link inside the site, which may lead anywhere: nothing is read or written through one."""
    for part in (path, *path.parents):
        if part == target:
            return
        if part.is_symlink():
            raise BadInput(f"{part} is a symbolic link", hint="remove it: publishing follows none inside of the site")


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _ways(cleaner: Redaction) -> tuple[bool, bool]:
    """Return what pages of the same facts depend on."""
    return cleaner.enabled, cleaner.with_messages


def _fingerprint(run: RunFolder, cleaner: Redaction, price_list: PriceList, brand: Brand) -> str:
    """Return a hash that changes with any file of the run's facts, with the options, and with the renderers."""
    files = sorted((path.relative_to(run.path).as_posix(), path.stat()) for path in run.path.rglob("*") if path.is_file())
    facts = [(name, status.st_size, status.st_mtime_ns) for name, status in files]
    return hashlib.sha256(
        repr((facts, _ways(cleaner), sorted(map(repr, price_list.prices.values())), brand, _hash_of_sources())).encode()
    ).hexdigest()


@cache
def _hash_of_sources() -> str:
    """Hash torchmatrix's own sources, templates and published figures."""
    folders = {Path(__file__).parents[2]: "*.py", assets.TEMPLATES: "*", assets.PUBLISHED: "*.csv"}
    paths = [path for folder, glob in folders.items() for path in sorted(folder.rglob(glob)) if path.is_file()]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
