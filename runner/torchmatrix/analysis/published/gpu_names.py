"""GPUs as people write them in tables ("LambdaCloud 8x A100 80GB SXM4", "2xRTX3090") -> how many of which, on what machine."""

import re
from dataclasses import dataclass
from functools import cache

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.gpu_specs import GpuFacts

_BRANDS = "nvidia|geforce|quadro|tesla|titan|rtx|gtx|amd|instinct|radeon|pro|ada"
_MODELS = r"(?:gh|gb|mi|[abhltv])\d{1,4}[xs]?|\d{4}"
_FORMS = r"ti|super|ada|pcie|sxm\d?|nvl|gen\d|xtx?|blackwell|workstation|max-?q|\d+ ?gb"
_GPU = re.compile(
    rf"(?:(?<![\w.])(?P<count>\d{{1,4}}) ?x ?|(?<!\w))"
    rf"(?P<gpu>(?:(?:{_BRANDS}) ?)*(?:{_MODELS})(?: ?(?:{_FORMS})(?![a-z]))*)(?!\w)",
    re.IGNORECASE,
)
_COUNT = re.compile(r"(\d+) ?x ?(.+)", re.IGNORECASE)
_SILENT = frozenset(("nvidia", "geforce", "tesla", "amd", "instinct", "rtx", "gen4", "gen5"))
"""Words that people add or leave out without meaning another GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """`gpu`: as written, without what stands around it. `count`: None if not said. `rest`: the words around it, "" if none."""

    gpu: str
    count: int | None
    rest: str


def split(text: str) -> Named:
    """The number, the GPU and the rest of a row's name; a text in which no GPU can be seen is the GPU as a whole."""
    if find(text):
        return Named(gpu=text, count=None, rest="")
    plain = " ".join(text.replace("_", " ").replace("-", " ").split())
    if found := _GPU.search(plain):
        rest = f"{plain[: found.start()]} {plain[found.end() :]}"
        return Named(gpu=found["gpu"], count=int(found["count"]) if found["count"] else None, rest=" ".join(rest.split()))
    counted = _COUNT.fullmatch(plain)
    return Named(gpu=counted[2], count=int(counted[1]), rest="") if counted else Named(gpu=text, count=None, rest="")


def find(text: str) -> GpuFacts | None:
    """The GPU of gpus.csv that is called `text` there, by drivers, or in other words; never a guess: None if several fit.

    In other words: the same words in any order, with or without those in _SILENT and, if only one size exists, the memory.
    """
    exact = next((facts for facts in gpu_specs.load() if facts.name == text), None)
    known = exact or gpu_specs.find(text, None)
    if known:
        return known
    fitting = _by_words().get(_words(text), ())
    return fitting[0] if len(fitting) == 1 else None


@cache
def _by_words() -> dict[frozenset[str], list[GpuFacts]]:
    found: dict[frozenset[str], list[GpuFacts]] = {}
    for facts in gpu_specs.load():
        own, memory = _words(facts.name), f"{facts.memory_gb:g}gb"
        for words in {own, own | {memory}, own - {memory}}:
            found.setdefault(words, []).append(facts)
    return found


def _words(text: str) -> frozenset[str]:
    apart = re.sub(r"\b(rtx|gtx)(?=\d)", r"\1 ", text.lower().replace("-", " "))
    apart = re.sub(r"\b(\d{4})(?=ti|super)", r"\1 ", apart)
    return frozenset(re.sub(r"(\d) gb\b", r"\1gb", apart).split()) - _SILENT
