"""A results folder as a source; or the folder of one host or one run."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from torchmatrix.facts.gathering.sources import LINK, LONGEST_FILE_BYTES, RECORD, Name, Offer, Sorting, Source
from torchmatrix.ground.errors import BadInput


def of_folder(folder: Path) -> Source:
    """The facts below a folder; links are not followed. Raises BadInput."""
    root, found = folder.resolve(), Sorting()
    base = root.parent if (root / RECORD).exists() else root  # of a run's folder, the name is the run's id
    if not os.access(root, os.R_OK | os.X_OK):
        raise BadInput(f"can't read {folder}", hint="fix its permissions")
    for place, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in (*files, *(name for name in folders if Path(place, name).is_symlink())):
            path = Path(place, name)
            with suppress(OSError):  # it has gone
                state = path.lstat()
                problem = None if stat.S_ISREG(state.st_mode) else LINK
                found.add(path.relative_to(base).as_posix(), Offer(size=state.st_size, changed_ns=state.st_mtime_ns), problem)

    def fetch(names: Iterable[Name]) -> Iterator[tuple[Name, bytes]]:
        for name in names:
            with suppress(FileNotFoundError):
                yield name, _content(base / name)

    return found.source(str(folder), fetch)


def _content(path: Path) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return file.read(LONGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}", hint="fix its permissions") from None
