"""What a source of facts is, whatever it is made of: files with sizes, read in any order; and which of them are facts."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torchmatrix.ground.errors import BadInput

LONGEST_FILE_BYTES = 64 << 20
"""A larger file is refused: no launch writes so much."""
DEEPEST = 24
_LONGEST_NAME = 200
RECORD = "run.jsonl"
_FACTS = re.compile(r"run\.jsonl|(?:round|batch|probe)[0-9]{1,9}-try[0-9]{1,9}\.(?:jsonl|log)")
_ENDINGS = (".jsonl", ".log")
_LOCK = re.compile(r"(?:.*/)?locks/[^/]+\.lock")
_HIDDEN_OR_ODD = re.compile(r"\.|.*[\\:*?\"<>|]", re.DOTALL)

_OF_A_MAC = "._"
"""Begins the name of what macOS keeps beside a file (AppleDouble, RFC 1740) in its archives and on disks of others."""

Name = str
"""The path of a file in its source, with slashes."""
Fetch = Callable[[Iterable[Name]], Iterator[tuple[Name, bytes]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a source may bring: so many files, all that are listed counted, and bytes.

    `seconds`: how long an answer may take, such as a list; what is long takes longer, by `slowest` bytes per second.
    """

    files: int = 1_000_000
    bytes: int = 64 << 30
    seconds: float = 600.0
    slowest: int = 16 << 10

    def seconds_for(self, size: int) -> float:
        """How long so many bytes may take."""
        return self.seconds + size / self.slowest


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One file of a source. `changed_ns`: when it was changed last, in unix nanoseconds; None: only its content tells."""

    size: int
    changed_ns: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A place with facts. `fetch`: the contents of these files, in their order; what can't be read is left out.

    `refused`: names of facts that can't be read, and why; `others`: how many files aren't facts. `lost`: why a file that was
    listed did not come, as far as `fetch` has found out.
    """

    label: str
    offers: Mapping[Name, Offer]
    fetch: Fetch
    refused: Mapping[Name, str] = field(default_factory=dict)
    others: int = 0
    lost: dict[Name, str] = field(default_factory=dict)


LINK = "it is a link or a device"
"""Why such a file is refused, whatever it is called: it may lead anywhere."""


@dataclass(kw_only=True, slots=True)
class Sorting:
    """Collects the names of a source while it is listed: what is offered, what is refused, what isn't a fact."""

    label: str
    limits: Limits
    offers: dict[Name, Offer] = field(default_factory=dict)
    refused: dict[Name, str] = field(default_factory=dict)
    others: int = 0
    _bytes: int = 0

    def add(self, name: Name, offer: Offer, problem: str | None = None) -> bool:
        """Take note of a file; whether it is offered. `problem`: why it can't be taken, whatever it is called.

        Raises BadInput beyond the limits.
        """
        last = name.rpartition("/")[2]
        if len(self.offers) + len(self.refused) + self.others >= self.limits.files:
            raise self._beyond(f"{self.limits.files:,} files")
        if last.startswith(_OF_A_MAC):
            self.others += 1
            return False
        if not is_lock(name) and (
            (not last.endswith(_ENDINGS) and problem != LINK)
            or (problem is None and not _FACTS.fullmatch(last) and _is_plain(name))
        ):
            self.others += 1
            return False
        why = problem or problem_of(name, offer.size)
        if why is None and name in self.offers:
            why = "it is there twice"
        if why is not None:
            self.refused[name] = why
            return False
        self.offers[name] = offer
        self._bytes += offer.size
        if self._bytes > self.limits.bytes:
            raise self._beyond(f"{self.limits.bytes >> 20:,} MiB")
        return True

    def _beyond(self, limit: str) -> BadInput:
        return BadInput(f"{self.label} has more than {limit}: nothing of it is taken", hint="gather its runs one by one")

    def source(self, fetch: Fetch, lost: dict[Name, str] | None = None) -> Source:
        """The source with what was found."""
        told = {"refused": self.refused, "others": self.others, "lost": {} if lost is None else lost}
        return Source(label=self.label, offers=self.offers, fetch=fetch, **told)  # type: ignore[arg-type]


def is_lock(name: Name) -> bool:
    """Whether it is what a stack of a run was made of, exactly: with it a gathered launch can be repeated."""
    return _LOCK.fullmatch(name) is not None


def problem_of(name: Name, size: int) -> str | None:
    """Why a file of this name and size is not taken, or None."""
    if not _is_plain(name):
        return "its name is not that of a file in a results folder"
    if size > LONGEST_FILE_BYTES:
        return f"it is larger than {LONGEST_FILE_BYTES >> 20} MiB"
    return None


def _is_plain(name: Name) -> bool:
    """Whether every part of a path can safely be a name here: no "..", nothing hidden, nothing that another system reads."""
    parts = name.split("/")
    return len(parts) <= DEEPEST and all(map(is_plain_part, parts))


def is_plain_part(part: str) -> bool:
    """Whether this can safely be the name of a file or folder."""
    return 0 < len(part) <= _LONGEST_NAME and part.isprintable() and not _HIDDEN_OR_ODD.match(part)
