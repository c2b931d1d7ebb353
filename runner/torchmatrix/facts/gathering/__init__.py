"""Brings runs of other machines into a results folder: from folders, archives, other machines by ssh, and published sites.

In: a results folder and words that name sources. Out: what came of each source. Every file is compared with what is here,
checked (checksum, header, place) and written whole; what is damaged, or contradicts what is here, is refused by name. What is
here stays, and nothing outside of the results folder is written, whatever a source says.

It is a part of the facts because it knows nothing but their format; it reads no tables and needs no engine. Open first:
taking.py, which takes one run. sources.py says what a source is; folders.py, archives.py, remote.py and sites.py make one;
placing.py finds the folder of a machine.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from torchmatrix.facts.gathering import archives, folders, remote, sites
from torchmatrix.facts.gathering.brought import Brought
from torchmatrix.facts.gathering.placing import Places
from torchmatrix.facts.gathering.sources import Limits, Source
from torchmatrix.facts.gathering.taken import AlreadyHere, Taken
from torchmatrix.facts.gathering.taking import runs_of, take
from torchmatrix.facts.store import Results
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.files import hold_lock
from torchmatrix.ground.formatting import count

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
    if sites.is_site(word):
        yield from sites.of_site(word, taken, temporary, limits)
    elif path.is_dir():
        yield None, folders.of_folder(path, limits)
    elif path.exists():
        digest = archives.digest_of(path, limits)
        yield digest, taken.find(digest) or archives.of_archive(path, temporary, stack, limits)
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
