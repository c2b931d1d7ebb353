"""How the credentials of well-known services look, so that they are found wherever text leaves this machine."""

import re

SHAPES = (
    r"gh[opsur]_[A-Za-z0-9]{20,}", r"github_pat_\w{20,}", r"glpat-[\w-]{16,}", r"hf_[A-Za-z0-9]{16,}", r"nvapi-[\w-]{16,}",
    r"sk-[\w-]{20,}", r"xox[abprs]-[\w-]{10,}", r"AKIA[0-9A-Z]{16}", r"AIza[\w-]{30,}", r"pypi-[\w-]{20,}",
    r"npm_[A-Za-z0-9]{30,}", r"dckr_pat_[\w-]{20,}", r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}",
)  # fmt: skip
"""How the tokens of well-known services begin, and JSON Web Tokens."""
_SURE = re.compile(rf"\b(?:{'|'.join(SHAPES)})|-----BEGIN [A-Z ]*PRIVATE KEY-----|://[^\s/\"'<>@:]+:[^\s/\"'<>@]+@")


def line_of_first(text: str) -> int | None:
    """The line (from 1) of the first text that is surely a credential: a token, a private key, a password in an address."""
    found = _SURE.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else None
