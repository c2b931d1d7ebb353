"""What came of a source: runs and launches, new or already here, and what was refused and why."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(kw_only=True, slots=True)
class Brought:
    """One source. `launches`: how many files of launches are new, updated (they had grown) or already here.

    `runs` and `runs_here`: as HOST/RUN, those that got something new and those that did not. `unverified`: how many of the new
    and updated launches have no checksums. `refused`: what was not taken and why, by name; `lost`: which of that was listed,
    but never came. `others`: files that are no facts.
    """

    source: str
    runs: list[str] = field(default_factory=list)
    runs_here: list[str] = field(default_factory=list)
    new: int = 0
    updated: int = 0
    here: int = 0
    unverified: int = 0
    bytes: int = 0
    others: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    @property
    def launches(self) -> int:
        """All that are here now."""
        return self.new + self.updated + self.here

    def add(self, other: "Brought") -> None:
        """Add what came of a part of this source."""
        self.runs += other.runs
        self.runs_here += other.runs_here
        self.refused |= other.refused
        self.lost += other.lost
        for name in ("new", "updated", "here", "unverified", "bytes", "others"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
