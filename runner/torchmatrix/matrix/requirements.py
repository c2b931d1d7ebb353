"""What a user may write as a Python requirement: a name with versions (PEP 508), or a name with the address of its file.

Requirements reach uv and pip in files of one requirement a line, where anything else could be an option or a path.
"""

import re

from packaging.requirements import InvalidRequirement, Requirement

from torchmatrix.ground.formatting import clipped, printable

_ADDRESS = re.compile(r"(git\+)?https://[A-Za-z0-9][A-Za-z0-9.-]*(:\d+)?/[^\s\\?&;]*")
LINE = re.compile(
    r"(?:[A-Za-z0-9][\w.-]*==[\w.!+-]+|(?P<named>[A-Za-z0-9][\w.-]* @ \S+))((?: --hash=sha(256|384|512):[0-9a-f]+)*)", re.ASCII
)
"""A locked requirement: one version, or one address, and the hashes of its files."""


def why_not(text: str) -> str | None:
    """Why a text can't be a requirement, in words that follow it; None if it can."""
    try:
        asked = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        return f"is not a requirement such as numpy<2 (PEP 508): {clipped(printable(str(error).partition(chr(10))[0]))}"
    if asked.url is not None and not _ADDRESS.fullmatch(asked.url):
        return "has an address other than https://… or git+https://…"
    return None


def why_not_locked(line: str) -> str | None:
    """As `why_not`, for one line of a lock."""
    found = LINE.fullmatch(line)
    if found is None:
        return "is not a locked requirement such as numpy==1.26.4 --hash=sha256:…"
    return why_not(found["named"]) if found["named"] else None
