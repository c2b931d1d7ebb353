"""What the units of published throughputs mean: items per second, of all GPUs or of each, or the time of a step."""

import re
from dataclasses import dataclass

_OF_EACH = re.compile(r"(?i)[ _]*(/|\bper\b|_per_|-per-)[ _]*(gpus?|devices?|cards?|accelerators?|chips?|gcds?|ranks?)\b")
_PER_SECOND = re.compile(r"(?i)([a-z]*)[ _]*(/|per|_per_)[ _]*s(ec(ond)?s?)?")
_ABBREVIATED = {"ips": "", "fps": "images", "qps": "", "tps": "tokens", "wps": "tokens"}
_TIME = re.compile(
    r"(?i)(([mµun]?s|[a-z]*sec(ond)?s?|min(ute)?s?|hours?|h)([ _]*(/|per)[ _]*[a-z]+)?|[a-z]+[ _]*time|latency|duration)"
)
_NOUNS = {
    "images": ("image", "images", "img", "imgs", "frame", "frames"),
    "sequences": ("sequence", "sequences", "seq", "seqs", "sentence", "sentences"),
    "tokens": ("token", "tokens", "tok", "toks", "word", "words"),
    "clips": ("clip", "clips", "video", "videos"),
    "": ("", "sample", "samples", "example", "examples", "item", "items", "inference", "inferences", "request", "requests",
         "query", "queries"),
}  # fmt: skip
"""Words for what is processed; "": for items of whatever kind."""
RATE, TIME, UNKNOWN = "items per second", "a time", "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """What a unit says. `kind`: RATE, TIME or UNKNOWN; `items`: a key of _NOUNS, "" for any; `of_each`: per GPU."""

    kind: str
    items: str
    of_each: bool


def meaning(text: str) -> Unit:
    """Return what a unit means, such as "images/s/GPU" or "ms/step"; UNKNOWN for a missing or another one."""
    rest, times = _OF_EACH.subn("", text.strip())
    rest = rest.strip()
    if rest.lower() in _ABBREVIATED:
        return Unit(kind=RATE, items=_ABBREVIATED[rest.lower()], of_each=times > 0)
    match = _PER_SECOND.fullmatch(rest)
    nouns = [items for items, words in _NOUNS.items() if match and match[1].lower() in words]
    if nouns:
        return Unit(kind=RATE, items=nouns[0], of_each=times > 0)
    return Unit(kind=TIME if _TIME.fullmatch(rest) else UNKNOWN, items="", of_each=times > 0)
