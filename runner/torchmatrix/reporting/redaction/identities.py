"""Identities of a machine or person in texts: devices, addresses, users, containers; and learnt names."""

import hashlib
import hmac
import ipaddress
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from torchmatrix.core import assets
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import disk_errors, locked_file, plain_bytes, write_whole
from torchmatrix.core.secrets import GONE

# Pseudonyms: the same for a name on every page of a results folder, stored with the facts and never published.

FILE, LOCK = ".pseudonyms.json", ".pseudonyms.lock"
VERSION = 1


class Pseudonyms:
    """Numbers for names, in the order in which they are first requested. `secret`: known to this results folder only."""

    def __init__(self, numbers: Mapping[str, Mapping[str, int]] | None = None, secret: str = "") -> None:
        self._numbers = {kind: dict(names) for kind, names in (numbers or {}).items()}
        self.secret = secret or secrets.token_hex(16)

    def of(self, kind: str, name: str) -> str:
        """Return a pseudonym such as host-1; upper and lower case count as the same.
        A machine's pseudonym is another identity: where facts of several sites come together, machine-1 would be many machines.
        """
        if kind == "machine":
            return hmac.new(self.secret.encode(), name.casefold().encode(), hashlib.sha256).hexdigest()[:16]
        numbers = self._numbers.setdefault(kind, {})
        return f"{kind}-{numbers.setdefault(name.casefold(), len(numbers) + 1)}"

    def kept(self) -> Iterator[tuple[str, str]]:
        """Yield the kind and the name of each pseudonym that was given."""
        for kind, names in self._numbers.items():
            yield from ((kind, name) for name in names)

    def save(self, root: Path) -> None:
        """Store the pseudonyms in a results folder, readable only by its owner. Raises EngineUnusable."""
        path = root / FILE
        content = {"version": VERSION, "secret": self.secret, "numbers": self._numbers}
        hint = "pseudonyms must stay the same from one publication to the next: make the results folder writable"
        with disk_errors(path, hint=hint), locked_file(root / LOCK, wait=True):
            self._refuse_others(load(root) if path.exists() else self)
            write_whole(path, json.dumps(content, indent=1).encode(), mode=0o600)

    def _refuse_others(self, stored: "Pseudonyms") -> None:
        """Raise EngineUnusable if pseudonyms that were stored meanwhile would change."""
        lost = any(self._numbers.get(kind, {}).get(name) != n for kind, of in stored._numbers.items() for name, n in of.items())
        if lost or stored.secret != self.secret:
            raise EngineUnusable(
                "another command has given pseudonyms meanwhile", hint="nothing was shown under others: the same command again"
            )


_MOST_BYTES = 64 << 20


def load(root: Path) -> Pseudonyms:
    """Load the pseudonyms of a results folder, if any. Raises BadInput if the file is damaged."""
    path = root / FILE
    try:
        content = json.loads(plain_bytes(path, _MOST_BYTES))
        return Pseudonyms({str(kind): dict(names) for kind, names in content["numbers"].items()}, str(content["secret"]))
    except FileNotFoundError:
        return Pseudonyms()
    except OSError as error:
        raise EngineUnusable(f"can't read {path}: {error.strerror}", hint="fix its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(
            f"{path} is damaged", hint="remove it: names then get new pseudonyms, so publish into a new folder"
        ) from None


# Paths and addresses in texts: absolute paths are removed and, on request, private addresses.

_SEGMENT = r"""[^\s"'`<>|:;,()\[\]{}=*?&$!#\\/]+"""
_AFTER = ("-I", "-L", "-B", "-F", "-isystem", "-iquote", r"\\n", r"\\r", r"\\t", r"\[\dm", r"\[\d\dm", r"\[\d;\d\dm")
"""What a path can follow without a gap: a compiler's options, escaped line breaks and tabs, a terminal's colours."""
_START = rf"(?:(?<![\w./~…<+-])|(?<=<)(?=/[^\s<>/]+/)|{'|'.join(f'(?<={text})' for text in _AFTER)})(?!//)"
"""Where a path can begin: not inside a word, a relative path, an address or a closing tag."""
_HOME = rf"(?:/+[\w.@+-]{{1,255}}){{0,30}}?/+(?:home|Users)/+{_SEGMENT}|{_START}/root(?![\w.-])"
"""The part before a home is bounded, because it is scanned again from each of its slashes."""
_URL = r"""[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s"'<>]*"""
_FILE = re.compile(r"(?i)\b(?:[a-z]+\+)?file://[^/\s]*(?=/)")
_ANCHORS = re.compile(r"(?:^|/)((?:site-packages|dist-packages|images/workload|\.cache/torchmatrix|lib/python[\d.]+)(?:/.*|$))")
"""The path from these on is the same on every machine, and helps to understand an error."""
_IN_CONTAINER = re.compile(r"/(?:opt/workload|cache|dev/(?:kfd|dri|null|shm|nvidia[\w-]*))(?:/|$)")
"""Paths inside torchmatrix's containers, and devices."""
_BARE = frozenset(("tmp", "proc", "sys", "dev", "etc", "usr", "opt", "var", "mnt", "srv", "run", "bin", "lib", "lib64"))
_PUBLIC = (
    "pypi.org", "pythonhosted.org", "pytorch.org", "docker.io", "docker.com", "nvcr.io", "nvidia.com", "amd.com", "ghcr.io",
    "quay.io", "github.com", "githubusercontent.com", "gitlab.com", "huggingface.co", "hf.co", "arxiv.org", "astral.sh",
    "python.org", "debian.org", "ubuntu.com", "kernel.org", "anaconda.org", "anaconda.com", "mcr.microsoft.com", "gcr.io",
)  # fmt: skip
"""Addresses that everybody uses, with everything below them; those in presets and published figures are public too."""
_LOOPBACK = re.compile(r"(?:localhost|127\.[\d.]+|0\.0\.0\.0|\[?::1\]?)")
_AUTHORITY = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]{0,20}://(?:[^\s/"'<>]*@)?([^\s/"'<>?#@]+)""")
MOST_NESTED = 4
"""Addresses inside each other; what is deeper is removed."""
_PSEUDONYM = re.compile(r"(?:host|mirror|user|IP)-\d+")


class Places:
    """Rewrites paths. `roots`: absolute folders and their replacements ("." drops the folder).
    `is_hiding`: nothing between a home and the file's name stays, and `host_of` returns the pseudonym of a private address.
    """

    def __init__(self, roots: Mapping[str, str], is_hiding: bool, host_of: Callable[[str], str]) -> None:
        self._roots = {root.rstrip("/"): word for root, word in roots.items() if root.count("/") > 1}
        self._is_hiding = is_hiding
        self._host_of = host_of
        named = "|".join(re.escape(root) for root in sorted(self._roots, key=len, reverse=True)) or r"(?!)"
        below = rf"(?:/+{_SEGMENT})*"
        self._pattern = re.compile(
            rf"(?P<url>{_URL})|{_START}(?P<root>{named})(?![\w.-])(?P<rest>{below})"
            rf"|(?P<home>{_HOME})(?P<below>{below})|{_START}(?P<path>(?:/+{_SEGMENT})+)"
        )

    def text(self, text: str) -> str:
        """Return `text` without absolute paths."""
        if "/" not in text:
            return text
        return self._in(_FILE.sub("", text), MOST_NESTED)

    def _in(self, text: str, nested: int) -> str:
        return self._pattern.sub(lambda match: self._replaced(match, nested), text) if nested else "…"

    def _replaced(self, match: re.Match[str], nested: int) -> str:
        if match["url"]:
            return self._address(match["url"], nested - 1)
        if match["home"] or self._roots.get(match["root"] or "") == "~":
            return "~" + self._below_home(match["below"] or match["rest"] or "")
        return self._roots[match["root"]] + match["rest"] if match["root"] else _anchored(match["path"])

    def _below_home(self, written: str) -> str:
        rest = _SLASHES.sub("/", written)
        if not self._is_hiding or rest.count("/") < 2:
            return rest
        anchor = _ANCHORS.search(rest)
        return f"/{anchor[1]}" if anchor else f"/…/{rest.rpartition('/')[2]}"

    def _address(self, url: str, nested: int) -> str:
        """Remove the parts of an address that name this site; with `is_hiding`, only the kind of a private address stays."""
        scheme, _, rest = url.partition("://")
        place, question, query = rest.partition("?")
        authority, slash, path = place.partition("/")
        shown = self.authority(authority) if self._is_hiding else authority
        if self._is_hiding and (shown != authority or _PSEUDONYM.fullmatch(_without_port(authority))):
            return f"{scheme}://{shown}{slash}{'…' if path or query else ''}"
        if slash and not scheme.lower().endswith(("http", "https")):
            path = self._in(f"/{path}", nested).removeprefix("/")
        return f"{scheme}://{authority}{slash}{path}{question}{self._in(query, nested) if '/' in query else query}"

    def authority(self, authority: str) -> str:
        """Return HOST or HOST:PORT; a private host as its pseudonym."""
        host = _without_port(authority)
        return authority if is_public(host) else self._host_of(host) + authority[len(host) :]


def is_public(host: str) -> bool:
    """Check whether this is the name of something that everybody uses, of this machine itself, or a pseudonym."""
    plain = host.lower().rstrip(".")
    if not plain or _LOOPBACK.fullmatch(plain) or _PSEUDONYM.fullmatch(host):
        return True
    return any(plain == domain or plain.endswith(f".{domain}") for domain in (*_PUBLIC, *_shipped_hosts()))


def hosts_in(text: str) -> Iterable[str]:
    """Return the hosts of all addresses in a text, without ports."""
    return map(_without_port, _AUTHORITY.findall(text))


def _without_port(authority: str) -> str:
    return re.sub(r":\d+$", "", authority)


@cache
def _shipped_hosts() -> frozenset[str]:
    """Return the hosts of the addresses in the presets and published figures of this package."""
    files = [*assets.PRESETS.glob("*.toml"), *assets.PUBLISHED.glob("*.csv")]
    return frozenset(host.lower() for file in files for host in hosts_in(file.read_text(encoding="utf-8")))


_SLASHES = re.compile("/+")


def _anchored(written: str) -> str:
    """Return the part of an absolute path that reveals nothing about the machine."""
    path = _SLASHES.sub("/", written)
    if _IN_CONTAINER.match(path):
        return path
    name = path.rpartition("/")[2]
    if path.count("/") == 1 and (name in _BARE or len(name) < 3):
        return path
    anchor = _ANCHORS.search(path)
    return f"…/{anchor[1] if anchor else name}"


_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_GPU = re.compile(
    rf"(?i)(?<![\w-])(?:GPU-[0-9a-f]{{16}}|PCI-[0-9a-f]{{4}}:[0-9a-f:.]{{7}}(?:-\d+)?"
    rf"|(?:(?:MIG-)?GPU-|MIG-)?{_UUID}(?:/\d+/\d+)?)(?![\w-])"
)
_PCI = re.compile(r"(?i)(?:(?<![\w:.])|(?<=PCI:))[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?(?![\w:])")
_MAC = re.compile(r"(?i)(?<![\w:.-])[0-9a-f]{2}(?:([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2}){4,18})(?![:-]?\w)")
_GUID = re.compile(r"(?i)(?<![\w:])[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?![\w:])")
_V4 = r"\d{1,3}(?:\.\d{1,3}){3}"
_PRIVATE = r"(?=10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.)"
_IPV4 = re.compile(
    rf"(?:(?<![\w.=-])|(?<=[^=]=)(?<!VERSION=)|(?<=[a-z][_-]){_PRIVATE}|(?<=\d-){_PRIVATE}){_V4}(?!\w|\.\w|-(?!{_V4}))"
)
"""Four numbers; versions have them, too, so that behind a name or a number only private addresses count."""
_IPV6 = re.compile(
    r"(?i)(?:(?<![\w:.])|(?<=\w:)(?=fe[89ab]|f[cd]))(?=[0-9a-f]{0,4}:[0-9a-f]{0,4}:)([0-9a-f:.]{2,44}[0-9a-f:])(?:%\w{1,40})?(?![\w:])"
)
_MAIL = re.compile(r"(?:(?<![\w/])…|(?<![\w.+-])[\w.+-]{1,64})@(?!sha\d|\d)[A-Za-z][\w-]*(?:\.[\w-]+)*")
_HOST = re.compile(
    r"(?i)(?<![\w./-])(?=[a-z0-9-]*[0-9-]|[\w-]+\.[\w-]+\.)[a-z0-9][\w-]*(?:\.[\w-]+)*\.(?:local|lan|internal|intranet|corp|localdomain)(?![\w.-])"
)
_PROCESS = re.compile(r"process (\d+) \([^()\n]*, user ([^\s()]+)\)")
_CONTAINER = re.compile(
    r"(?i)(\bcontainers?(?:[_-]?id)?\b[\"'/:= ]{1,4}(?:id[\"':= ]{1,3})?|/docker[/-])([0-9a-f]{12,64})(?!\w)"
    r"|(?<=[/-])(?<!sha256-)(?P<id>[0-9a-f]{64})(?!\w)"
)
_HOME_OF = re.compile(r"/(?:home|Users)/([^\s\"'`/:;,|<>()\\]+)")
_USER_OF = re.compile(r"ssh://([^\s/@:]+)@")
_BY_SSH = re.compile(r"\b(?:ssh|scp|sftp|rsync)\b[^\n@]{0,100}?\s([\w.-]+)@([\w.-]*\w)")
_REGISTRY = re.compile(r"(?i)(?<![\w./@:-])([a-z0-9][\w-]*(?:\.[\w-]+)+(?::\d+)?|[a-z0-9][\w-]*:\d+)/[a-z0-9]")
_DOMAIN = re.compile(r"(?i)(?:\.[a-z][a-z0-9-]*)*")
_GOES_ON = re.compile(r"[A-Za-z0-9]")
_FILE_ENDS = (".json", ".jsonl", ".log", ".txt", ".csv", ".yaml", ".yml", ".toml", ".py", ".sh", ".so", ".lock")
_COMMON = frozenset((
    "root", "user", "users", "host", "hosts", "localhost", "admin", "bench", "build", "cpu", "gpu", "cuda", "docker", "torch",
    "pytorch", "python", "nvidia", "amd", "rocm", "test", "none", "null", "unknown", "n/a", "true", "false", "cache", "lib",
))  # fmt: skip
"""Names that are common words: they are replaced in their own fields, not in texts."""
_SHORTEST, _SHORTEST_NUMBER = 3, 8
_SHORTEST_ADDRESS = 6
"""Fewest characters of an IPv6 address; "::2" is more likely a slice in Python."""


class Identities:
    """Replaces identities that it recognizes by their form, and every name passed to `know`."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names
        self._known: dict[str, tuple[str, str]] = {}
        self._beginnings: re.Pattern[str] | None = None
        self._lengths: dict[str, list[int]] = {}
        self._forms = (
            (_PROCESS, lambda match: f"process {match[1]} (a program, user {self.of('user', match[2])})"),
            (_CONTAINER, lambda match: (match[1] or "") + self.of("container", (match[2] or match["id"])[:12])),
            (_GPU, self._gpu),
            (_PCI, lambda match: self.of("PCI", match[0])),
            (_MAC, lambda match: self.of("MAC", match[0])),
            (_GUID, lambda match: self.of("MAC", match[0])),
            (_IPV4, self._ip),
            (_IPV6, self._ip),
            (_MAIL, lambda match: GONE),
            (_HOST, lambda match: self.of("host", match[0])),
        )

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name."""
        return self._names.of(kind, _canonical(kind, name))

    def know(self, kind: str, name: str) -> None:
        """Learn a name, to be found in all texts in every spelling."""
        for word in {name, _canonical(kind, name)}:
            if len(word) >= (_SHORTEST_NUMBER if word.isdigit() else _SHORTEST) and word.casefold() not in _COMMON:
                self._known.setdefault(word.casefold(), (kind, name))
                self._beginnings = None

    def learn_from(self, text: str) -> None:
        """Learn the users and private hosts that a text shows."""
        for user in (*_HOME_OF.findall(text), *(user for _, user in _PROCESS.findall(text)), *_USER_OF.findall(text)):
            self.know("user", user)
        for user, host in _BY_SSH.findall(text):
            self.know("user", user)
            self.know("host", host)
        for host in hosts_in(text):
            if not is_public(host):
                self.know("mirror", host)

    def learn_image(self, reference: str) -> None:
        """Learn the registry of an image reference, if it is private."""
        for authority in _REGISTRY.findall(reference):
            if not is_public(host := _without_port(authority)):
                self.know("mirror", host)

    def text(self, text: str) -> str:
        """Return `text` with pseudonyms."""
        for pattern, replaced in self._forms:
            text = pattern.sub(replaced, text)
        return self._without_names(text) if self._known else text

    def _without_names(self, text: str) -> str:
        """Replace the known names: at each place the longest that begins there, however many there are."""
        shown, at = [], 0
        for match in self._starts().finditer(text):
            begin, sizes = match.start(), self._lengths.get(match[0].casefold(), ())
            word = next(filter(None, (self._word(text, begin, size) for size in sizes)), None)
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

    def _starts(self) -> re.Pattern[str]:
        """Match the places where a known name can begin, by its first character."""
        if self._beginnings is None:
            self._lengths = {}
            for first, size in sorted({(word[0], len(word)) for word in self._known}, reverse=True):
                self._lengths.setdefault(first, []).append(size)
            characters = "".join(map(re.escape, sorted(self._lengths)))
            self._beginnings = re.compile(rf"(?i)(?<![A-Za-z0-9])[{characters}]")
        return self._beginnings

    def _word(self, text: str, begin: int, size: int) -> str | None:
        """Return the known name of this size that stands here as a word."""
        word = text[begin : begin + size]
        return word if word.casefold() in self._known and not _GOES_ON.match(text, begin + size) else None

    def _gpu(self, match: re.Match[str]) -> str:
        is_gpu = match[0][:3].upper() in ("GPU", "MIG", "PCI") or match[0].casefold() in self._known
        return self.of("GPU" if is_gpu else "id", match[0])

    def _ip(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(match[0].partition("%")[0])
        except ValueError:
            return match[0]
        is_plain = address.is_loopback or address.is_unspecified or len(match[0]) < _SHORTEST_ADDRESS
        return match[0] if is_plain else self.of("IP", match[0])


def _canonical(kind: str, name: str) -> str:
    """Return a name's one spelling: torch leaves out the "GPU-" of a UUID, drivers write a PCI domain with four or eight
    digits, the kernel leaves out the function.
    """
    if kind == "host":
        return name if name[:1].isdigit() else name.partition(".")[0]
    if kind == "PCI":
        domain, _, rest = name.partition(":")
        return f"{domain[-4:]}:{rest.partition('.')[0]}"
    return re.sub(r"(?i)^GPU-", "", name) if kind == "GPU" else name
