"""Credentials, found by their form or by the name before them: nothing that is shown may contain them."""

import re
from collections.abc import Callable
from functools import lru_cache

from torchmatrix.ground.credentials import SHAPES

GONE = "…"
"""Replaces what was removed."""
_VARIABLES = re.compile(r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|KEY")
_WORDS = "password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?"
_FIELDS = re.compile(rf"(?:^|[_.-])(?:{_WORDS}|authorization|cookie)(?:$|[_.-])", re.IGNORECASE)
_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"',;&)}\]]+)"""


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Whether a field or variable of this name holds a credential. For variables (in capitals) part of the name is enough."""
    return bool(_FIELDS.search(name) or (name.isupper() and _VARIABLES.search(name)))


def without_secrets(text: str) -> str:
    """`text` with "…" for every credential that its form or its name reveals."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def _assigned(found: re.Match[str]) -> str:
    return found[1] + found[2] + GONE if is_secret_name(found[1]) else found[0]


_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?(?:-----END \1PRIVATE KEY-----|\Z)", re.DOTALL), GONE),
    (re.compile(r"""(?i)\b([a-z][a-z0-9+.-]{0,20}://)[^\s/"'<>]*@"""), r"\1"),
    (
        re.compile(
            rf"""(?i)([?&;][\w.-]{{0,40}}(?:{_WORDS}|key|sig|signature|auth|code|session)[\w.-]{{0,40}}=)[^&\s"'#<>]+"""
        ),
        rf"\1{GONE}",
    ),
    (re.compile(r"""([?&][\w.-]+=)(?=[^&\s"'#<>]*[0-9])[\w%.+/=~-]{24,}"""), rf"\1{GONE}"),
    (re.compile(rf"\b(?:{'|'.join(SHAPES)})"), GONE),
    (re.compile(rf"""(?i)(authorization["']?\s*[:=]\s*["']?)(?:(?:basic|bearer|token)\s+)?{_VALUE}"""), rf"\1{GONE}"),
    (re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{16,}"), rf"\1{GONE}"),
    (re.compile(rf"(?<!\w)([A-Z][A-Z0-9_]*)(\s*[=:]\s*){_VALUE}"), _assigned),
    (re.compile(rf"(?<=\bENV )([A-Z][A-Z0-9_]*)(\s+){_VALUE}"), _assigned),
    (re.compile(rf"(?i)(--[\w-]{{0,40}}(?:{_WORDS})[\w-]{{0,40}})(\s+|=){_VALUE}"), rf"\1\2{GONE}"),
    (re.compile(rf"""(?i)(?<![\w-])([\w-]{{0,60}}(?:{_WORDS})["']?\s*[:=]\s*){_VALUE}"""), rf"\1{GONE}"),
)
