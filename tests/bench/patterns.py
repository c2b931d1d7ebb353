"""Which regular expressions, and what is made of them, take more than linear time: `python tests/bench/patterns.py [LETTERS]`.

Every compiled pattern of the tool, and the functions that read text from a workload or from other machines, get texts made of
the pattern's own letters, repeated. One that takes more than three times as long for twice the text is named, with the text.
"""

import pkgutil
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import sre_constants
    import sre_parse

sys.path.insert(0, str(Path(__file__).parents[1]))

import torchmatrix
from torchmatrix.core import credentials, formatting
from torchmatrix.reporting.redaction import Pseudonyms, Redaction
from torchmatrix.reporting.redaction.secrets import without_secrets

LETTERS = 5_000
SLOW_SECONDS = 0.02
"""For twice the text: what is faster can't be told from noise, and harms nobody."""
SUSPICIOUS = 3.0
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in Path(torchmatrix.__path__[0]).rglob("*.py"))
PIECES = (
    'site-packages/', '../', 'lib/python3/', '/home', '/home/u', '?a=', '&a=', 'http://a?', 'a://', 'ssh://a/b://', '0:',
    '::', 'a:', 'a.', '1.', '-', '--token-', 'token ', 'token,', "token='", "'token', ", 'key=', 'password:',
    'password="', '\\"', 'eyJ', 'eyJa.', 'sk-', '-----BEGIN PRIVATE KEY-----', '-----BEGIN ', 'Cookie: ',
    'Authorization: ', 'bearer ', 'Basic ', 'ENV A ', 'docker login ', 'mysql -u ', 'echo a ', '-u a:',
    'login a password ', 'container ', 'process 1 (', 'a@', '@', '%3D', '\x1b[31m', '[', '(', '\n', ' ', '\\n', '|\n ',
    'name: TOKEN, ', '/root', 'A=', 'é', '\x00',
)  # fmt: skip
"""What functions get: pieces of what they look for."""


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """All compiled patterns of the tool's modules, by name."""
    for found in pkgutil.walk_packages(torchmatrix.__path__, "torchmatrix."):
        if found.name.endswith("__main__"):
            continue
        for name, value in vars(import_module(found.name)).items():
            yield from ((f"{found.name}.{name}", pattern) for pattern in _within(value))


def _within(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list)):
        for member in value:
            yield from _within(member)
    elif isinstance(value, dict):
        yield from _within([*value.keys(), *value.values()])


def pieces(pattern: re.Pattern[Any]) -> list[str]:
    """Texts of which many may keep a pattern busy: its letters, its words, and two of them."""
    text = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        words = dict.fromkeys(_words(sre_parse.parse(text, pattern.flags & re.VERBOSE)))
    short = [word for word in words if word][:14]
    return [*short, *("".join(pair) for pair in product(short, repeat=2))]


def _words(parsed: Any) -> Iterator[str]:
    """Runs of literal letters, and a letter of each class, of a parsed pattern."""
    run = ""
    for kind, value in parsed:
        if kind is sre_constants.LITERAL:
            run += chr(value)
            continue
        yield run
        run = ""
        if kind is sre_constants.IN:
            yield from (chr(one[1] if one[0] is sre_constants.LITERAL else one[1][0]) for one in value if one[0] in _LETTERS)
            yield from "a0 "
        for member in value[1] if kind is sre_constants.BRANCH else value if isinstance(value, tuple) else ():
            if isinstance(member, sre_parse.SubPattern):
                yield from _words(member)
    yield run


_LETTERS = (sre_constants.LITERAL, sre_constants.RANGE)


def used(name: str, pattern: re.Pattern[Any]) -> Callable[[str], object]:
    """Does with a text what the tool's sources do with the pattern."""
    own = rf"\b{re.escape(name.rpartition('.')[2])}\.(search|match|fullmatch|finditer|findall|sub|split)\("
    methods = sorted(set(re.findall(own, SOURCES))) or ["search"]

    def use(text: str) -> None:
        given = text.encode() if isinstance(pattern.pattern, bytes) else text
        for method in methods:
            if method == "sub":
                pattern.sub(given[:0], given)
            elif method == "finditer":
                list(pattern.finditer(given))
            else:
                getattr(pattern, method)(given)

    return use


def functions() -> Iterator[tuple[str, Callable[[str], object]]]:
    """What reads text from a workload or from other machines."""
    yield "without_secrets", without_secrets
    yield "line_of_first", credentials.line_of_first
    yield "printable", formatting.printable

    def redacted(text: str) -> str:
        clean = Redaction(enabled=True, roots={"/srv/lab/results": "results"}, names=Pseudonyms())
        clean.know("host", "gpubox7")
        clean.learn({"image": text, "error": text})
        return clean.text(text)

    yield "Redaction", redacted


def seconds(do: Callable[[str], object], text: str) -> float:
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        do(text)
        best = min(best, time.process_time() - begin)
        if best > 1:
            break
    return best


def slow(do: Callable[[str], object], piece: str, letters: int) -> str | None:
    """How long it takes for a text of so many letters and one of twice as many, if that is too long; also if it fails."""
    text = piece * (letters // len(piece))
    for end in ("", "\x01"):
        if (twice := seconds(do, text * 2 + end)) > SLOW_SECONDS and (once := seconds(do, text + end)) * SUSPICIOUS < twice:
            return f"{once:.3f} s, twice the text {twice:.3f} s"
    return None


def main(letters: int) -> int:
    known = dict(patterns())
    print(f"{len(known)} patterns")
    tried = [(name, used(name, pattern), pieces(pattern)) for name, pattern in known.items()]
    tried += [(name, do, list(PIECES)) for name, do in functions()]
    count = 0
    for name, do, own in tried:
        for piece in own:
            if told := slow(do, piece, letters):
                count += 1
                print(f"{name}: {piece!r}: {told}", flush=True)
                break
    print(f"{count} of {len(tried)} take more than linear time")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else LETTERS))
