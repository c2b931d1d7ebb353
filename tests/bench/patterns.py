"""Names regular expressions and functions that take more than linear time: `python tests/bench/patterns.py [CHARACTERS]`.

Every compiled pattern of the tool, and the functions that read text from a workload or from other machines, get texts made of
the pattern's own characters, repeated. One that takes more than three times as long for twice the text is named, with the text.
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
from torchmatrix.core.secrets import without_secrets
from torchmatrix.reporting.redaction import Pseudonyms, Redaction

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
    """Yield all compiled patterns of the tool's modules, by name."""
    for module in pkgutil.walk_packages(torchmatrix.__path__, "torchmatrix."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(import_module(module.name)).items():
            yield from ((f"{module.name}.{name}", pattern) for pattern in _within(value))


def _within(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list)):
        for member in value:
            yield from _within(member)
    elif isinstance(value, dict):
        yield from _within([*value.keys(), *value.values()])


def pieces(pattern: re.Pattern[Any]) -> list[str]:
    """Return texts of which many may keep a pattern busy: its characters, its words, and two of them."""
    text = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        words = dict.fromkeys(_words(sre_parse.parse(text, pattern.flags & re.VERBOSE)))
    short = [word for word in words if word][:14]
    return [*short, *("".join(pair) for pair in product(short, repeat=2))]


def _words(parsed: Any) -> Iterator[str]:
    """Yield runs of literal characters, and a character of each class, of a parsed pattern."""
    run = ""
    for operator, value in parsed:
        if operator is sre_constants.LITERAL:
            run += chr(value)
            continue
        yield run
        run = ""
        if operator is sre_constants.IN:
            yield from (chr(at[1] if at[0] is sre_constants.LITERAL else at[1][0]) for at in value if at[0] in _LETTERS)
            yield from "a0 "
        for member in value[1] if operator is sre_constants.BRANCH else value if isinstance(value, tuple) else ():
            if isinstance(member, sre_parse.SubPattern):
                yield from _words(member)
    yield run


_LETTERS = (sre_constants.LITERAL, sre_constants.RANGE)


def used(name: str, pattern: re.Pattern[Any]) -> Callable[[str], object]:
    """Return a function that does with a text what the tool's sources do with the pattern."""
    call = rf"\b{re.escape(name.rpartition('.')[2])}\.(search|match|fullmatch|finditer|findall|sub|split)\("
    methods = sorted(set(re.findall(call, SOURCES))) or ["search"]

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
    """Yield the functions that read text from a workload or from other machines."""
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


def slow(do: Callable[[str], object], piece: str, characters: int) -> str | None:
    """Return how long a text of so many characters takes and one of twice as many, if that is too long; also if it fails."""
    text = piece * (characters // len(piece))
    for end in ("", "\x01"):
        if (twice := seconds(do, text * 2 + end)) > SLOW_SECONDS and (once := seconds(do, text + end)) * SUSPICIOUS < twice:
            return f"{once:.3f} s, twice the text {twice:.3f} s"
    return None


def main(characters: int) -> int:
    compiled = dict(patterns())
    print(f"{len(compiled)} patterns")
    tried = [(name, used(name, pattern), pieces(pattern)) for name, pattern in compiled.items()]
    tried += [(name, do, list(PIECES)) for name, do in functions()]
    count = 0
    for name, do, texts in tried:
        for piece in texts:
            if problem := slow(do, piece, characters):
                count += 1
                print(f"{name}: {piece!r}: {problem}", flush=True)
                break
    print(f"{count} of {len(tried)} take more than linear time")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else LETTERS))
