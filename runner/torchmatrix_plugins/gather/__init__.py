"""Imports runs of other machines into a results folder: from folders, tar archives, and other machines by ssh.

In: a results folder and words that name sources. Out: the result of importing each source. Every file is compared with the one
that is here, checked (checksum, header, place) and written whole; a file that is damaged, or contradicts the one that is here,
is refused by name. Files that are here stay, and nothing outside of the results folder is written, whatever a source says.

It knows nothing but the facts' format; it reads no tables and needs no engine. Open
first: importer.py, which imports one run and finds its folder. sources.py declares what a source is and reads folders and
archives, remote.py reads other machines by ssh.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import hold_lock
from torchmatrix.core.formatting import count
from torchmatrix.core.toml_keys import shown
from torchmatrix.facts.store import Results
from torchmatrix_plugins.gather import remote, sources
from torchmatrix_plugins.gather.importer import ImportResult, Layout, import_run, runs_of
from torchmatrix_plugins.gather.sources import Limits, Source

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
        raise BadInput('"" names no source', hint="name a folder, an archive or a machine; . is this folder")
    with ExitStack() as stack:
        if not dry_run:
            hint = "wait for it, or write elsewhere: --results DIR"
            stack.enter_context(hold_lock(results.root / LOCK, f"another gather fills {results.root}", hint))
        temporary = Path(tempfile.gettempdir()) if dry_run else results.root
        source, layout = _open_source(word, temporary, stack, limits), Layout(results)
        brought = ImportResult(source=source.label, refused=dict(source.refused), others=source.others)
        runs = runs_of(source, brought)
        for number, run in enumerate(runs, start=1):
            tell(f"{number} of {len(runs)}: {run.folder}, {count(len(run.files), 'file')}")
            import_run(source, run, layout, brought, dry_run)
    return brought


def _open_source(word: str, temporary: Path, stack: ExitStack, limits: Limits) -> Source:
    path = Path(word)
    if os.access(path, os.X_OK) and (path / "site.json").exists():
        raise BadInput(f"{word} is a published site", hint="gather the facts that its runs offer: SITE/runs/*/facts.tar.gz")
    if path.is_dir():
        return sources.of_folder(path, limits)
    if path.exists():
        return sources.of_archive(path, temporary, stack, limits)
    if word.lower().startswith(("http://", "https://")):  # it may hold a password: it isn't shown
        raise BadInput(
            "gather reads no addresses", hint="download facts.tar.gz, which each run of a site offers, and gather that file"
        )
    if remote.is_remote(word):
        return remote.of_remote(word, stack, limits)
    raise BadInput(
        f'there is no file or folder "{shown(word)}"', hint="name a folder of results, a tar archive of one, or user@host:path"
    )
