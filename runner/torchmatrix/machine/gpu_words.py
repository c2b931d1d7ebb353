"""The words of a GPU's name: drivers, vendors and people spell one name in many ways, and a word more may be another GPU."""

import re

_SPELLINGS = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"[™®]|\((?:tm|r)\)", ""),
        (r"\bmax[- ]?([pq])\b", r"max\1"),
        (r"(?<=\d)[ -]?gi?b\b", "gb"),
        (r"(?<![\w.])(\d{1,4})g(?![\w.])", r"\1gb"),  # neither A10G nor 1g.10gb
        (r"\b(geforce|rtx|gtx|quadro|radeon)(?=\d)", r"\1 "),
        (r"(?<=\b\d{4})(ti|[dm])?(super)?\b", r" \1 \2 "),
        (r"(?<=\d)(?=(?:sxm|pcie|nvl|oam)\d?\b)", " "),
    )
)
_WORD = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+)*")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)gb|(?:hbm|gddr)\w+")
_FORM = re.compile(r"sxm\d?|pcie|oam|gen\d")
SILENT = frozenset(
    (
        "nvidia", "geforce", "tesla", "amd", "instinct", "rtx", "gpu", "gpus", "card", "cards", "generation", "edition",
        "founders", "fe", "lhr", "oc", "nvlink", "gen3", "gen4", "gen5",
    )
)  # fmt: skip
"""Words that people add or leave out without meaning another GPU."""
MEMORY_TOLERANCE = 0.10
"""Drivers keep up to 9 % of a GPU's memory for themselves (ECC, firmware); its sister models differ by more."""


def words(text: str) -> tuple[str, ...]:
    """Such as ("nvidia", "a100", "sxm4", "80gb"), in lower case; "RTX4090Ti" is rtx, 4090 and ti."""
    plain = text.casefold()
    for pattern, instead in _SPELLINGS:
        plain = pattern.sub(instead, plain)
    return tuple(_WORD.findall(plain))


def gib(word: str) -> float | None:
    """The size that a word such as "80gb" means, in GiB, as vendors write it; None if it means none."""
    found = _MEMORY.fullmatch(word)
    return float(found[1]) if found and found[1] else None


def memory_error(size_gib: float, memory_bytes: int) -> float:
    """How far the memory that a driver reports is from a size, as a fraction of the latter."""
    return abs(memory_bytes / 2**30 - size_gib) / size_gib


def names_whole(part: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """Does `part` of the words of a GPU's name say which model it is? What it leaves out is its maker, memory or form."""
    rest = set(name) - set(part) - SILENT
    return not SILENT.issuperset(part) and all(_MEMORY.fullmatch(word) or _FORM.fullmatch(word) for word in rest)
