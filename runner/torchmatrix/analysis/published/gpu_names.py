"""GPUs as people write them in tables ("LambdaCloud 8x A100 80GB SXM4", "2xRTX3090") -> how many of which, on what machine."""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.gpu_specs import GpuFacts
from torchmatrix.machine.host_gpus import SILENT, name_words

_BRANDS = "nvidia|geforce|quadro|tesla|titan|rtx|gtx|amd|instinct|radeon|pro|ada"
_MODELS = r"(?:gh|gb|mi|[abhltv])\d{1,4}[xs]?|\d{4}"
_NAME = rf"(?<!\w)(?:(?:{_BRANDS})\s?){{0,6}}(?P<model>{_MODELS})"
_FORMS = r"ti|super|ada|pcie|sxm\d?|nvl|gen\d|xtx?|blackwell|workstation|(?:hbm|gddr)\w+|\d+ ?gb"
_COUNTS_BEFORE = (r"N\s?x", r"x\s?N", r"N (?:gpus?|cards?):?", "^N")
_COUNTS_AFTER = (r"x\s?N", r"N\s?x", "N (?:gpus?|cards?)")
"""How people write the number N of GPUs beside a name."""
_NO_LANES = r"(?<!gen\d)(?<!gen \d)(?<!\d\.0)(?!(?<=pcie) ?x ?16\b)"
"""What follows the generation of a link is how wide that is."""
_PRODUCTS = re.compile(
    r"laptop|notebook|mobile|maxq|maxp|ti|super|d|mig|ada|nvl|pcie|vgpu|grid|gcds?|xcds?|[cdtq]px|partitions?|slices?|half"
    r"|quarter|\d+g\.\d+gb|\d{1,2}[qc]"
)
"""Words that make it another GPU, or a part of one, wherever they stand."""
_SHARE = re.compile(r"(?<![\w/])\d{1,2}/\d{1,2}(?![\w/])")


def _row() -> re.Pattern[str]:
    """A row's name in parts. Words that follow a GPU's at once are a part of it: one that nobody knows may name another GPU."""
    numbers = itertools.count()

    def any_of(counts: Iterable[str]) -> str:
        return "|".join(count.replace("N", rf"(?P<count{next(numbers)}>\d{{1,4}})") for count in counts)

    gpu = rf"{_NAME}(?:\s?(?:{_FORMS})(?![a-z]))*(?!\w)"
    tail = r"(?: (?!x ?\d|\d{1,4} ?x(?!\w)|\d+ (?:gpus?|cards?)\b|\d+ ?w\b|(?:on|in|at|with)\b)[\w.]+)*"
    before = rf"(?P<before>.*?)(?:(?<![\w.])(?<!\d[,/])(?:{any_of(_COUNTS_BEFORE)})\)?\s?\(?)?"
    after = rf"(?:{_NO_LANES}\s?[(,]?\s?(?:{any_of(_COUNTS_AFTER)})\)?(?!\w)(?P<more>{tail}))?(?P<after>.*)"
    return re.compile(f"{before}(?P<gpu>{gpu}{tail}){after}", re.IGNORECASE | re.DOTALL)


_ROW, _MODEL = _row(), re.compile(rf"{_NAME}(?!\w)", re.IGNORECASE)
_COUNTED = re.compile(r"(?P<count>\d{1,4}) ?x (?P<gpu>.+)", re.IGNORECASE)
_HOSTS = r"(?:nodes?|servers?|machines?|hosts?)"
_ANOTHER_COUNT = re.compile(
    rf"(?<!\w)(?:\d+ ?x|x ?\d{{1,4}}|per {_HOSTS}|0*(?:[2-9]|[1-9]\d{{1,3}}) {_HOSTS})(?!\w)", re.IGNORECASE
)
"""Of several nodes one can't tell whether they have so many GPUs each or together."""
_IN_WORDS = re.compile(
    r"(?<!\w)(?:dual|two|three|four|quad|five|six|seven|eight|sixteen|pair|multi)(?!\w)"
    r"|\(\d{1,4}\)|\[\d{1,4}\]|[:#] ?\d{1,4}(?!\w)",
    re.IGNORECASE,
)
"""Perhaps of GPUs."""
_GLUED = ((r"[×✕*]", "x"), (r"(?<![\w.])(\d{1,4}x(?=[a-z])|\d{1,3}x(?=\d))", r"\1 "), (r"(?<=[\dsx])x(?=\d{1,4}(?!\w))", " x"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """`gpu`: as written, without what stands around it. `count`: None if not said, or said in more than one way (`is_unclear`).

    `rest`: the words around it, "" if none.
    """

    gpu: str
    count: int | None
    rest: str
    is_unclear: bool = False


def split(text: str) -> Named:
    """The number, the GPU and the rest of a row's name; a text in which no GPU can be seen, or two, is the GPU as a whole."""
    if find(text):
        return Named(gpu=text, count=None, rest="")
    plain = _plain(text)
    if counted := None if (row := _ROW.fullmatch(plain)) else _COUNTED.fullmatch(plain):
        return Named(gpu=counted["gpu"], count=int(counted["count"]), rest="")
    if row is None or _is_another(rest := f"{row['before']} {row['after']}", row["model"]):
        return Named(gpu=text, count=None, rest="")
    counts = {int(said) for name, said in row.groupdict().items() if name.startswith("count") and said}
    is_unclear = len(counts) > 1 or bool(_ANOTHER_COUNT.search(rest)) or (not counts and bool(_IN_WORDS.search(rest)))
    others = [*filter(_PRODUCTS.fullmatch, name_words(rest)), *_SHARE.findall(rest)]
    return Named(
        gpu=_spaced(" ".join((row["gpu"] + (row["more"] or ""), *others))),
        count=counts.pop() if counts and not is_unclear else None,
        rest=_spaced(rest),
        is_unclear=is_unclear,
    )


def _plain(text: str) -> str:
    """Words apart: by a tab where an underscore stands, after which a note may follow as well as a part of the name."""
    plain = _spaced(text.replace("-", " ")).replace("_", "\t")
    for pattern, instead in _GLUED:
        plain = re.sub(pattern, instead, plain, flags=re.IGNORECASE)
    return plain


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _is_another(rest: str, model: str) -> bool:
    """Does the rest of a row's name hold another GPU? Short words (v2, a1) are none, bare numbers only in 3090/4090."""
    others = [found for found in _MODEL.finditer(rest) if len(found["model"]) > 2]
    others = [one for one in others if not one.group().isdigit() or rest[: one.start()].rstrip().endswith(("/", "+", "&"))]
    return any(found["model"].casefold() != model.casefold() for found in others)


def find(text: str) -> GpuFacts | None:
    """The GPU of gpus.csv that is called `text` there, by drivers, or in other words; never a guess: None if several fit.

    In other words: the same words in any order, with or without those that are SILENT, the kind of memory and, if only one size
    exists, its size.
    """
    exact = next((facts for facts in gpu_specs.load() if facts.name == text), None)
    known = exact or gpu_specs.find(text, None)
    if known:
        return known
    fitting = _by_words().get(_telling(text), ())
    return fitting[0] if len(fitting) == 1 else None


@cache
def _by_words() -> dict[frozenset[str], list[GpuFacts]]:
    found: dict[frozenset[str], list[GpuFacts]] = {}
    for facts in gpu_specs.load():
        own, size, kind = _telling(facts.name), f"{facts.memory_gb:g}gb", facts.memory_type.casefold()
        sizes = {own, own | {size}, own - {size}}
        for telling in {*sizes, *(one | {kind} for one in sizes), *map(_telling, facts.driver_names)}:
            found.setdefault(telling, []).append(facts)
    return found


def _telling(text: str) -> frozenset[str]:
    return frozenset(name_words(text)) - SILENT
