"""How far the facts in a results folder vouch for themselves: which files of launches match their checksums."""

from dataclasses import dataclass
from pathlib import Path

from torchmatrix.facts import lines, old_facts
from torchmatrix.facts.events import most_bytes
from torchmatrix.facts.launch import Unreadable
from torchmatrix.facts.reading import launch_files, launch_of
from torchmatrix.facts.store import Results
from torchmatrix.ground.files import plain_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """Numbers of launch files: `verified`: checksums match; `unverified`: of earlier versions, which wrote none.

    `unreadable`: the others, and what can't be read of the runs' records.
    """

    verified: int
    unverified: int
    unreadable: tuple[Unreadable, ...]


def verified(results: Results) -> Verified:
    """Of all launches of all runs. Reads every file, but parses only its first and last line."""
    counts, unreadable = {True: 0, False: 0}, []
    for run in results.runs():
        unreadable += [Unreadable(path=run.record, reason=problem) for problem in run.read_record().problems]
        for path in launch_files(run.path):
            found = _verified(path)
            if isinstance(found, Unreadable):
                unreadable.append(found)
            else:
                counts[found] += 1
    return Verified(verified=counts[True], unverified=counts[False], unreadable=tuple(unreadable))


def _verified(path: Path) -> bool | Unreadable:
    try:
        found = lines.ends_of(plain_bytes(path, most_bytes()))
    except OSError as error:
        return Unreadable(path=path, reason=error.strerror or str(error))
    damage = found.damage_of_launch
    launch = Unreadable(path=path, reason=damage) if damage else launch_of(path, found.events, found.verified)
    if isinstance(launch, Unreadable):
        return launch
    why = old_facts.misnamed(path, launch.round, launch.number)
    return Unreadable(path=path, reason=why) if why else launch.verified
