"""Which archives were taken whole, by digest, so that they aren't read again: RESULTS/.gathered.json, which may be deleted."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmatrix.facts.events import most_bytes
from torchmatrix.facts.gathering.brought import Brought
from torchmatrix.facts.gathering.sources import RECORD
from torchmatrix.ground.files import plain_bytes, write_whole

FILE = ".gathered.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class AlreadyHere:
    """An archive that was taken before: its runs, as HOST/RUN, and how many launches it brought."""

    runs: tuple[str, ...]
    launches: int


class Taken:
    """Which archives were taken whole into a results folder, by digest."""

    def __init__(self, root: Path) -> None:
        self._root, self._file = root, root / FILE
        self._known: dict[str, Any] = {}
        with suppress(OSError, ValueError, TypeError, RecursionError):
            self._known = dict(json.loads(plain_bytes(self._file, most_bytes())))

    def find(self, digest: str) -> AlreadyHere | None:
        """What an archive of this digest brought, if all of it is still here."""
        with suppress(LookupError, TypeError, ValueError, AttributeError):
            runs, launches = tuple(map(str, self._known[digest]["runs"])), int(self._known[digest]["launches"])
            folders = [self._root / run for run in runs]
            here = sum(1 for folder in folders for _ in folder.rglob("*-try*.jsonl"))
            if runs and here >= launches and all((folder / RECORD).exists() for folder in folders):
                return AlreadyHere(runs=runs, launches=launches)
        return None

    def add(self, digest: str, brought: Brought) -> None:
        """Remember an archive, if all of it was taken."""
        if not brought.refused and brought.launches:
            self._known[digest] = {"runs": brought.runs + brought.runs_here, "launches": brought.launches}
            with suppress(OSError):
                write_whole(self._file, json.dumps(self._known, indent=0).encode())
