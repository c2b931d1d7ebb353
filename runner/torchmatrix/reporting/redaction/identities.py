"""What identifies a machine or person in texts: devices, addresses, users, containers; and names once learnt."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from torchmatrix.reporting.redaction.names import Pseudonyms
from torchmatrix.reporting.redaction.places import hosts_in, is_public
from torchmatrix.reporting.redaction.secrets import GONE

_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_GPU = re.compile(
    rf"(?i)(?<![\w-])(?:GPU-[0-9a-f]{{16}}|PCI-[0-9a-f]{{4}}:[0-9a-f:.]{{7}}(?:-\d+)?"
    rf"|(?:(?:MIG-)?GPU-|MIG-)?{_UUID}(?:/\d+/\d+)?)(?![\w-])"
)
_PCI = re.compile(r"(?i)(?:(?<![\w:.])|(?<=PCI:))[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?(?![\w:])")
_MAC = re.compile(r"(?i)(?<![\w:.-])[0-9a-f]{2}(?:([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2}){4,18})(?![\w:-])")
_GUID = re.compile(r"(?i)(?<![\w:])[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?![\w:])")
_IPV4 = re.compile(r"(?<![\w.=-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])|(?<=[^=]=)(?<!VERSION=)\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])")
_IPV6 = re.compile(r"(?i)(?<![\w:.])(?=[0-9a-f]{0,4}:[0-9a-f]{0,4}:)([0-9a-f:.]{2,44}[0-9a-f:])(?:%\w{1,40})?(?![\w:])")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?!sha\d|\d)[A-Za-z][\w-]*(?:\.[\w-]+)*")
_HOST = re.compile(
    r"(?i)(?<![\w./-])(?=[a-z0-9-]*[0-9-]|[\w-]+\.[\w-]+\.)[a-z0-9][\w-]*(?:\.[\w-]+)*\.(?:local|lan|internal|intranet|corp|localdomain)(?![\w.-])"
)
_PROCESS = re.compile(r"process (\d+) \([^()\n]*, user ([^\s()]+)\)")
_CONTAINER = re.compile(r"(?i)(\bcontainers?\b[\"'/:= ]{1,4}(?:id[\"':= ]{1,3})?|/docker[/-])([0-9a-f]{12,64})(?!\w)")
_HOME_OF = re.compile(r"/(?:home|Users)/([^\s\"'`/:;,|<>()\\]+)")
_REGISTRY = re.compile(r"(?i)(?<![\w./@:-])([a-z0-9][\w-]*(?:\.[\w-]+)+(?::\d+)?|[a-z0-9][\w-]*:\d+)/[a-z0-9]")
_DOMAIN = re.compile(r"(?i)(?:\.[a-z][a-z0-9-]*)*")
_GOES_ON = re.compile(r"[A-Za-z0-9]")
_FILE_ENDS = (".json", ".jsonl", ".log", ".txt", ".csv", ".yaml", ".yml", ".toml", ".py", ".sh", ".so", ".lock")
_COMMON = frozenset((
    "root", "user", "users", "host", "hosts", "localhost", "admin", "bench", "build", "cpu", "gpu", "cuda", "docker", "torch",
    "pytorch", "python", "nvidia", "amd", "rocm", "test", "none", "null", "unknown", "n/a", "true", "false", "cache", "lib",
))  # fmt: skip
"""Names that are words: they are replaced in their own fields, not in texts."""
_SHORTEST, _SHORTEST_NUMBER = 3, 8
_SHORTEST_ADDRESS = 6
"""Of IPv6; "::2" is more likely a slice in Python."""


class Identities:
    """Replaces what it recognizes by its form, and every name passed to `know`."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names
        self._known: dict[str, tuple[str, str]] = {}
        self._beginnings: re.Pattern[str] | None = None
        self._lengths: dict[str, list[int]] = {}
        self._forms = (
            (_PROCESS, lambda found: f"process {found[1]} (a program, user {self.of('user', found[2])})"),
            (_CONTAINER, lambda found: found[1] + self.of("container", found[2][:12])),
            (_GPU, self._gpu),
            (_PCI, lambda found: self.of("PCI", found[0])),
            (_MAC, lambda found: self.of("MAC", found[0])),
            (_GUID, lambda found: self.of("MAC", found[0])),
            (_IPV4, self._ip),
            (_IPV6, self._ip),
            (_MAIL, lambda found: GONE),
            (_HOST, lambda found: self.of("host", found[0])),
        )

    def of(self, kind: str, name: str) -> str:
        """The pseudonym of a name."""
        return self._names.of(kind, _canonical(kind, name))

    def know(self, kind: str, name: str) -> None:
        """Learn a name, to be found in all texts in every spelling."""
        for word in {name, _canonical(kind, name)}:
            if len(word) >= (_SHORTEST_NUMBER if word.isdigit() else _SHORTEST) and word.casefold() not in _COMMON:
                self._known.setdefault(word.casefold(), (kind, name))
                self._beginnings = None

    def learn_from(self, text: str) -> None:
        """Learn the users and private hosts that a text shows."""
        for user in (*_HOME_OF.findall(text), *(user for _, user in _PROCESS.findall(text))):
            self.know("user", user)
        for host in hosts_in(text):
            if not is_public(host):
                self.know("mirror", host)

    def learn_image(self, reference: str) -> None:
        """Learn the registry of an image reference, if it is private."""
        for authority in _REGISTRY.findall(reference):
            host = re.sub(r":\d+$", "", authority)
            if not is_public(host):
                self.know("mirror", host)

    def text(self, text: str) -> str:
        """`text` with pseudonyms."""
        for pattern, replaced in self._forms:
            text = pattern.sub(replaced, text)
        return self._without_known(text) if self._known else text

    def _without_known(self, text: str) -> str:
        """`text` with pseudonyms for the known names: at each place the longest that begins there, however many there are."""
        shown, at = [], 0
        for found in self._places().finditer(text):
            begin = found.start()
            word = next(
                filter(None, (self._word(text, begin, size) for size in self._lengths.get(found[0].casefold(), ()))), None
            )
            if begin < at or word is None:
                continue
            kind, name = self._known[word.casefold()]
            domain = _DOMAIN.match(text, begin + len(word))
            tail = domain[0] if domain else ""
            shown += [text[at:begin], self.of(kind, name)]
            at = begin + len(word)
            if kind == "host" and not tail.endswith(_FILE_ENDS):  # the domain reveals whose machine it is
                at += len(tail)
        return "".join([*shown, text[at:]])

    def _places(self) -> re.Pattern[str]:
        """Where a known name can begin, by its first letter."""
        if self._beginnings is None:
            self._lengths = {letter: [] for letter in {word[0] for word in self._known}}
            for letter, size in sorted({(word[0], len(word)) for word in self._known}, reverse=True):
                self._lengths[letter].append(size)
            letters = "".join(map(re.escape, sorted(self._lengths)))
            self._beginnings = re.compile(rf"(?i)(?<![A-Za-z0-9])[{letters}]")
        return self._beginnings

    def _word(self, text: str, begin: int, size: int) -> str | None:
        """The known name of this size that stands here as a word."""
        word = text[begin : begin + size]
        return word if word.casefold() in self._known and not _GOES_ON.match(text, begin + size) else None

    def _gpu(self, found: re.Match[str]) -> str:
        is_gpu = found[0][:3].upper() in ("GPU", "MIG", "PCI") or found[0].casefold() in self._known
        return self.of("GPU" if is_gpu else "id", found[0])

    def _ip(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(found[0].partition("%")[0])
        except ValueError:
            return found[0]
        is_plain = address.is_loopback or address.is_unspecified or len(found[0]) < _SHORTEST_ADDRESS
        return found[0] if is_plain else self.of("IP", found[0])


def _canonical(kind: str, name: str) -> str:
    """One spelling: torch leaves out the "GPU-" of a UUID, drivers write a PCI domain with four or eight digits, the kernel
    leaves out the function."""
    if kind == "host":
        return name if name[:1].isdigit() else name.partition(".")[0]
    if kind == "PCI":
        domain, _, rest = name.partition(":")
        return f"{domain[-4:]}:{rest.partition('.')[0]}"
    return re.sub(r"(?i)^GPU-", "", name) if kind == "GPU" else name


def strings(value: Any, key: str = "", parent: Any = None) -> Iterator[tuple[Any, str, str]]:
    """Every text in a JSON value: (the object that contains it, its key, the text); texts in a list have the list's key."""
    if isinstance(value, str):
        yield parent, key, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from strings(member, str(name), value)
    elif isinstance(value, (list, tuple)):
        for member in value:
            yield from strings(member, key, parent)
