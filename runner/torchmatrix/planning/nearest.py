"""A selection that matches nothing -> the ids, or values, that may have been meant. Pure."""

import re
from collections.abc import Collection, Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache

from torchmatrix.planning.plan import Cell, values_of

MOST = 3
_WILD = re.compile(r"[*?/]+|\[[^\]]*\]")


def misses(cells: Sequence[Cell], globs: Iterable[str], where: Iterable[str]) -> dict[str, list[str]]:
    """Each glob and each condition that matches none of `cells`, with what is nearest to it: ids, or conditions."""
    ids = [cell.id for cell in cells]
    found = {glob: nearest_ids(glob, ids) for glob in globs if not any(fnmatchcase(one, glob) for one in ids)}
    for condition in where:
        key, _, value = condition.partition("=")
        values = values_of(cells, key)
        if not any(fnmatchcase(own, value) for own in values):
            found[condition] = [f"{key}={own}" for own in nearest_words(value, values)]
    return {asked: near for asked, near in found.items() if near}


def nearest_ids(glob: str, ids: Iterable[str], most: int = MOST) -> list[str]:
    """The ids most like `glob`, the nearest first.

    A glob is compared piece by piece, since it is usually much shorter than an id: each piece between its wildcards counts
    by the piece of the id whose beginning it resembles most.
    """
    wanted = [piece for piece in (piece.strip("-") for piece in _WILD.split(glob.lower())) if piece]
    scored = sorted((-_likeness(wanted, one), place, one) for place, one in enumerate(ids))
    return [one for _, _, one in scored[:most]]


def nearest_words(word: str, words: Collection[str], most: int = MOST) -> list[str]:
    """Those of `words` that are most like `word`; a few of them all where none is."""
    found = get_close_matches(_WILD.sub("", word), sorted(words), n=most, cutoff=0.4)
    return found or sorted(words)[:most]


def _likeness(wanted: Sequence[str], one: str) -> float:
    pieces = _pieces(one)
    return sum(max(_ratio(piece, own[: len(piece) + more]) for own in pieces for more in (0, 1, 2)) for piece in wanted)


def _pieces(one: str) -> list[str]:
    """The id, the parts between slashes, and each run of words of a part."""
    found = {one.lower(): None}
    for part in one.lower().split("/"):
        words = part.split("-")
        runs = ("-".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1))
        found |= dict.fromkeys(runs)
    return list(found)


@lru_cache(maxsize=100_000)
def _ratio(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b).ratio()
