"""Paths and addresses in texts: no absolute path of a machine stays and, on request, no private address."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from torchmatrix.ground import assets

_SEGMENT = r"""[^\s"'`<>|:;,()\[\]{}=*?&$!#\\/]+"""
_START = r"(?:(?<![\w./~…<])|(?<=-I)|(?<=-L))(?!//)"
"""Where a path can begin: not inside of a word, a relative path, an address or a closing tag; after a compiler's -I it can."""
_HOME = rf"(?:/[\w.@+-]{{1,255}}){{0,30}}?/(?:home|Users)/{_SEGMENT}|{_START}/root(?![\w.-])"
"""What is before a home is bounded: it is looked at again from each of its slashes."""
_URL = r"""[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s"'<>]*"""
_FILE = re.compile(r"(?i)\b(?:[a-z]+\+)?file://[^/\s]*(?=/)")
_ANCHORS = re.compile(r"(?:^|/)((?:site-packages|dist-packages|images/workload|\.cache/torchmatrix|lib/python[\d.]+)(?:/.*|$))")
"""What follows these is the same on every machine, and helps to understand an error."""
_BOX = re.compile(r"/(?:opt/workload|cache|dev/(?:kfd|dri|null|shm|nvidia[\w-]*))(?:/|$)")
"""Paths inside of our containers, and devices."""
_BARE = frozenset(("tmp", "proc", "sys", "dev", "etc", "usr", "opt", "var", "mnt", "srv", "run", "bin", "lib", "lib64"))
_PUBLIC = (
    "pypi.org", "pythonhosted.org", "pytorch.org", "docker.io", "docker.com", "nvcr.io", "nvidia.com", "amd.com", "ghcr.io",
    "quay.io", "github.com", "githubusercontent.com", "gitlab.com", "huggingface.co", "hf.co", "arxiv.org", "astral.sh",
    "python.org", "debian.org", "ubuntu.com", "kernel.org", "anaconda.org", "anaconda.com", "mcr.microsoft.com", "gcr.io",
)  # fmt: skip
"""Addresses that everybody uses, with everything below them; those in our presets and published figures are public too."""
_LOOPBACK = re.compile(r"(?:localhost|127\.[\d.]+|0\.0\.0\.0|\[?::1\]?)")
_AUTHORITY = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]{0,20}://(?:[^\s/"'<>]*@)?([^\s/"'<>?#@]+)""")
MOST_NESTED = 4
"""Addresses inside of each other; what is deeper is removed."""
_PSEUDONYM = re.compile(r"(?:host|mirror|user|IP)-\d+")


class Places:
    """Rewrites paths. `roots`: absolute folders and what replaces them ("." drops the folder).

    `is_hiding`: nothing between a home and the file's name stays, and `host_of` returns the pseudonym of a private address.
    """

    def __init__(self, roots: Mapping[str, str], is_hiding: bool, host_of: Callable[[str], str]) -> None:
        self._roots = {root.rstrip("/"): word for root, word in roots.items() if root.count("/") > 1}
        self._is_hiding = is_hiding
        self._host_of = host_of
        named = "|".join(re.escape(root) for root in sorted(self._roots, key=len, reverse=True)) or r"(?!)"
        below = rf"(?:/{_SEGMENT})*"
        self._pattern = re.compile(
            rf"(?P<url>{_URL})|{_START}(?P<root>{named})(?![\w.-])(?P<rest>{below})"
            rf"|(?P<home>{_HOME})(?P<below>{below})|{_START}(?P<path>(?:/{_SEGMENT})+)"
        )

    def text(self, text: str) -> str:
        """`text` without absolute paths."""
        if "/" not in text:
            return text
        return self._in(_FILE.sub("", text), MOST_NESTED)

    def _in(self, text: str, nested: int) -> str:
        return self._pattern.sub(lambda found: self._replaced(found, nested), text) if nested else "…"

    def _replaced(self, found: re.Match[str], nested: int) -> str:
        if found["url"]:
            return self._address(found["url"], nested - 1)
        if found["home"] or self._roots.get(found["root"] or "") == "~":
            return "~" + self._below_home(found["below"] or found["rest"] or "")
        return self._roots[found["root"]] + found["rest"] if found["root"] else _anchored(found["path"])

    def _below_home(self, rest: str) -> str:
        if not self._is_hiding or rest.count("/") < 2:
            return rest
        anchor = _ANCHORS.search(rest)
        return f"/{anchor[1]}" if anchor else f"/…/{rest.rpartition('/')[2]}"

    def _address(self, url: str, nested: int) -> str:
        """An address without the parts that name this site; with `is_hiding`, only the kind of a private address stays."""
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
        """HOST or HOST:PORT; a private host as its pseudonym."""
        host = _without_port(authority)
        return authority if is_public(host) else self._host_of(host) + authority[len(host) :]


def is_public(host: str) -> bool:
    """Whether this is the name of something that everybody uses, of this machine itself, or already a pseudonym."""
    plain = host.lower().rstrip(".")
    if not plain or _LOOPBACK.fullmatch(plain) or _PSEUDONYM.fullmatch(host):
        return True
    return any(plain == known or plain.endswith(f".{known}") for known in (*_PUBLIC, *_named_by_us()))


def hosts_in(text: str) -> Iterable[str]:
    """The hosts of all addresses in a text, without ports."""
    return map(_without_port, _AUTHORITY.findall(text))


def _without_port(authority: str) -> str:
    return re.sub(r":\d+$", "", authority)


@cache
def _named_by_us() -> frozenset[str]:
    """The hosts of the addresses in our presets and published figures."""
    files = [*assets.PRESETS.glob("*.toml"), *assets.PUBLISHED.glob("*.csv")]
    return frozenset(host.lower() for file in files for host in hosts_in(file.read_text(encoding="utf-8")))


def _anchored(path: str) -> str:
    """The part of an absolute path that reveals nothing about the machine."""
    if _BOX.match(path):
        return path
    name = path.rpartition("/")[2]
    if path.count("/") == 1 and (name in _BARE or len(name) < 3):
        return path
    anchor = _ANCHORS.search(path)
    return f"…/{anchor[1] if anchor else name}"
