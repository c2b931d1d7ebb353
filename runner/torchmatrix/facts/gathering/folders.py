"""A results folder as a source; or the folder of one host or one run."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchmatrix.facts.gathering.sources import LINK, LONGEST_FILE_BYTES, RECORD, Limits, Name, Offer, Sorting, Source
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.files import plain_bytes


def of_folder(folder: Path, limits: Limits) -> Source:
    """The facts below a folder; links are not followed. Raises BadInput."""
    root, found, lost = folder.resolve(), Sorting(label=str(folder), limits=limits), dict[Name, str]()
    base = root.parent if (root / RECORD).exists() else root  # of a run's folder, the name is the run's id
    if not os.access(root, os.R_OK | os.X_OK):
        raise BadInput(f"can't read {folder}", hint="fix its permissions")

    def refuse(error: OSError) -> None:
        found.refused[Path(error.filename).relative_to(base).as_posix()] = f"it can't be read: {error.strerror}"

    for place, folders, files in os.walk(root, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in (*files, *(name for name in folders if Path(place, name).is_symlink())):
            path = Path(place, name)
            try:
                state = path.lstat()
            except OSError as error:
                refuse(error)
                continue
            problem = None if stat.S_ISREG(state.st_mode) else LINK
            found.add(path.relative_to(base).as_posix(), Offer(size=state.st_size, changed_ns=state.st_mtime_ns), problem)

    def fetch(names: Iterable[Name]) -> Iterator[tuple[Name, bytes]]:
        for name in names:
            try:
                yield name, plain_bytes(base / name, LONGEST_FILE_BYTES)
            except OSError as error:
                lost[name] = f"it can't be read: {error.strerror}"

    return found.source(fetch, lost)
