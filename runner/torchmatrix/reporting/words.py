"""The words for verdicts and outcomes, and the notation of figures: one table for page, terminal, Markdown, exports and script.
A number in a sentence has three significant digits, one in a table four (core.formatting.figure). U+202F, a narrow space that
does not break, stands between thousands and before a unit.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torchmatrix.analysis.intervals import NOTEWORTHY, SAME_WITHIN, Interval
from torchmatrix.core.formatting import HUGE, is_known
from torchmatrix.matrix.factors import CONTRASTED, IN_FLOAT8, MODES, NVFP4

if TYPE_CHECKING:
    from torchmatrix.analysis.verdicts import MeanRatio

THIN, SPACE = "\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}"
"""The space between thousands and before %, and that before words and after ±: many fonts draw the first too narrow there."""
UNKNOWN = "not known"
VERDICTS = {
    "FASTER": "faster",
    "SLOWER": "slower",
    "SAME": f"the same within {100 * SAME_WITHIN:g}{THIN}%",
    "AMBIGUOUS": "no difference shown",
    "DISTURBED": "disturbed",
    "n/a": "not tested",
}
"""The words for a ratio, by its corrected verdict."""
OUTCOMES = {
    "oom": "out of memory",
    "timeout": "time limit",
    "crashed": "crashed",
    "numerics": "wrong numbers",
    "unsupported": "not supported",
    "build-failed": "the build failed",
    "interrupted": "interrupted",
    "lost": "lost",
    "unlike": "other conditions",
}
"""The words for a launch's outcome, after "failed: "."""
NO_INTERVAL = "one launch: no interval"
NARROW = 0.04
"""The width of an interval below which a ratio has three decimals."""


def verdict(name: str, is_speed: bool = True) -> str:
    """Return the words of a verdict on a speed, or on another metric; "" for none."""
    return VERDICTS.get(name, "") if is_speed else {"FASTER": "better", "SLOWER": "worse"}.get(name, VERDICTS.get(name, ""))


def verdict_of(mean: "MeanRatio") -> str:
    """Return the words of the verdict on a mean; where its interval excludes 1 and there is none, why."""
    if mean.verdict == "AMBIGUOUS" and not mean.interval.low <= 1 <= mean.interval.high:
        is_small = abs(mean.interval.value - 1) <= NOTEWORTHY
        return f"apart by {100 * NOTEWORTHY:g}{THIN}% or less" if is_small else "perhaps two levels of launches"
    return verdict(mean.verdict)


def every_cell(cells: int) -> str:
    """Name all cells, of which there are so many: "All 4 cells"."""
    return {1: "The only cell", 2: "Both cells"}.get(cells, f"All {cells} cells")


def failed(outcome: str) -> str:
    """Write an outcome such as "failed: out of memory"; "not measured" where there is none yet."""
    return f"failed: {OUTCOMES.get(outcome, outcome)}" if outcome not in ("", "n/a", "ok") else "not measured"


def spaced(value: float, digits: int = 0) -> str:
    """Write a number with `digits` decimals, its thousands apart: 26 100."""
    return f"{value + 0.0:,.{digits}f}".replace(",", THIN)


def short(value: Any) -> str:
    """Write three significant digits: 26 100, 4.78, 0.258."""
    if not is_known(value):
        return UNKNOWN
    if value == 0 or abs(value) >= HUGE or abs(value) < 1e-4:
        return f"{value + 0.0:.3g}"
    rounded = float(f"{value:.3g}")
    return spaced(rounded, max(0, 2 - math.floor(math.log10(abs(rounded)))))


def ratio(value: Any) -> str:
    """Write a ratio as 1.23×, as 12.3× from 10 on."""
    return f"{value + 0.0:.{_decimals(value)}f}×" if is_known(value) else UNKNOWN


def _decimals(value: float) -> int:
    return 2 if 0.0995 <= abs(value) < 10 else 1 if 10 <= abs(value) < 100 else 0 if abs(value) >= 100 else 3


def effect(value: Any, low: float | None = None, high: float | None = None) -> str:
    """Write a ratio as 1.23×; 1.039× where its interval is narrower than two hundredths to each side."""
    return f"{value + 0.0:.{_places(value, low, high)}f}×" if is_known(value) else UNKNOWN


def _places(value: float, low: float | None, high: float | None) -> int:
    """Return the decimals of a ratio with this interval: a figure has those of its ±."""
    is_exact = low is not None and high is not None and is_known(low) and is_known(high) and 0 < high - low < NARROW
    return 3 if is_exact and abs(value) < 10 else _decimals(value)


def effect_with_interval(ratio: Interval) -> str:
    """Write a ratio and, where it has one, its interval."""
    ends = ratio.low, ratio.high
    return f"{effect(ratio.value, *ends)} {effect_interval(ratio.value, *ends)}".strip()


def effect_interval(value: float, low: float | None, high: float | None) -> str:
    """Write the interval for `effect`: ± where it is symmetric at the digits shown, else both ends. "" without one."""
    if not is_known(low) or not is_known(high) or low is None or high is None:
        return ""
    return _around(value, low, high, _places(value, low, high))


def share_interval(low: float | None, high: float | None) -> str:
    """Write both ends of a share, "36.5 to 36.7 %", of which a ± in per cent could be a part; "" without them, or if they are
    written alike.
    """
    if not is_known(low) or not is_known(high) or low is None or high is None:
        return ""
    ends = f"{100 * low:.1f}", percent(high, 1)
    return "" if ends[1].startswith(f"{ends[0]}{THIN}") else " to ".join(ends)


def change(value: Any) -> str:
    """Write a ratio as a change in per cent: +1.7 %, with a true minus sign."""
    if not is_known(value):
        return UNKNOWN
    text = f"{abs(100 * (value - 1)):.1f}"
    sign = "" if not float(text) else "+" if value > 1 else MINUS
    return f"{sign}{text}{THIN}%"


MINUS = "\N{MINUS SIGN}"


def _around(value: float, low: float, high: float, decimals: int) -> str:
    """Write ± or both ends, at the same digits as the value; one more digit where the half width would be 0."""
    up, down = high - value, value - low
    if f"{up:.{decimals}f}" == f"{down:.{decimals}f}":
        half = (up + down) / 2
        return f"±{SPACE}{half:.{decimals if float(f'{half:.{decimals}f}') else decimals + 1}f}"
    ends = (f"{end + 0.0:.{decimals}f}".replace("-", MINUS) for end in (low, high))
    return f"({' to '.join(ends)})"


def rate_interval(value: float, low: float | None, high: float | None) -> str:
    """Write a throughput's interval in per cent of it, ± 1.9 %; both ends where it is not symmetric. "" without one."""
    if low is None or high is None or not is_known(low) or not is_known(high) or not value:
        return ""
    up, down = 100 * (high / value - 1), 100 * (1 - low / value)
    decimals = 1 if up < 10 else 0
    if f"{up:.{decimals}f}" != f"{down:.{decimals}f}":
        return f"({short(low)} to {short(high)})"
    return f"±{SPACE}{up:.{decimals if float(f'{up:.{decimals}f}') else decimals + 1}f}{THIN}%"


def percent(value: Any, decimals: int = 0) -> str:
    """Write a share as 96 %."""
    return f"{100 * value + 0.0:.{decimals}f}{THIN}%".replace("-", MINUS) if is_known(value) else UNKNOWN


def money(value: Any, currency: str = "") -> str:
    """Write an amount to the cent; smaller ones with two significant digits."""
    if not is_known(value):
        return UNKNOWN
    return f"{currency}{SPACE if len(currency) > 1 else ''}{spaced(value, 2) if abs(value) >= 0.1 else f'{value:#.2g}'}"


def with_unit(value: Any, unit: str) -> str:
    """Write a figure in three digits and its unit."""
    return f"{short(value)}{SPACE}{unit}" if is_known(value) else UNKNOWN


def milliseconds(seconds: Any) -> str:
    """Write a time in three digits."""
    return with_unit(1e3 * seconds, "ms")


def more_milliseconds(seconds: float) -> str:
    """Write a difference of times with its sign, such as +1.23 ms."""
    return f"{MINUS if seconds < 0 else '+'}{milliseconds(abs(seconds))}" if is_known(seconds) else UNKNOWN


def model(name: str) -> str:
    """Return a model's name as its authors write it."""
    return _MODELS.get(name, name)


_MODELS = {
    "resnet18": "ResNet-18", "resnet34": "ResNet-34", "resnet50": "ResNet-50", "resnet101": "ResNet-101",
    "resnet152": "ResNet-152", "bert-tiny": "BERT-tiny", "bert-base": "BERT-base", "bert-large": "BERT-large",
    "bert-base-cased": "BERT-base", "bert-large-cased": "BERT-large", "bert-base-uncased": "BERT-base, uncased",
    "bert-large-uncased": "BERT-large, uncased", "vit_b_16": "ViT-B/16", "gpt2": "GPT-2",
}  # fmt: skip


_PRECISIONS = {
    "fp32": "fp32", "tf32": "TF32", "amp": "AMP", "amp-bf16": "AMP bf16", "half": "float16 weights",
    "bf16-weights": "bfloat16 weights", "bf16-master": "bfloat16, fp32 master weights",
    **{name: recipe.label for name, recipe in IN_FLOAT8.items()}, NVFP4: "NVFP4",
}  # fmt: skip
CONTRASTS = {pair.name: pair.words for factor in CONTRASTED for pair in factor.contrasts} | {
    "amp": ("AMP", "fp32"), "amp-bf16": ("AMP bf16", "fp32"),
}  # fmt: skip
"""The labels of both settings, by the name of the pair."""


def brings(setting: str) -> str:
    """Write what a setting does, such as "AMP brings", "bfloat16 weights bring"."""
    return f"{setting} bring{'' if setting.endswith('weights') or '+' in setting else 's'}"


def precision(name: str) -> str:
    """Return a precision as charts call it."""
    return _PRECISIONS.get(name, name)


def mode(name: str) -> str:
    """Return the noun for a mode: training, inference."""
    return MODES[name].noun if name in MODES else name


def verb(mode: str) -> str:
    """Return what a model does in a mode, such as "trains" or "runs inference"."""
    return MODES[mode].verb if mode in MODES else f"runs {mode}"


_STACK = re.compile(r"torch(\d+(?:\.\d+)+)(?:-(?:cpu|(xpu)|cu(\d+)(\d)|rocm([\d.]+)))?")


def stacks(names: Iterable[str]) -> dict[str, str]:
    """Return the labels of stacks: torch2.7.1-cu128 is "torch 2.7.1", with its build if a release has several."""
    every = list(dict.fromkeys(names))
    releases = {name: match for name in every if (match := _STACK.fullmatch(name))}
    builds = Counter(match[1] for match in releases.values())
    brief = {name: f"torch {match[1]}{_build(match) if builds[match[1]] > 1 else ''}" for name, match in releases.items()}
    return {name: brief.get(name, name) for name in every}


def _build(stack: re.Match[str]) -> str:
    _, xpu, major, minor, rocm = stack.groups()
    if major:
        return f", CUDA {major}.{minor}"
    return f", ROCm {rocm}" if rocm else ", XPU" if xpu else ", CPU"


def more(number: int, what: str = "") -> str:
    """Count what is left out, such as "3 more models"; "" for nothing."""
    return f"{number} more {what}".rstrip() if number > 0 else ""


def enumerated(names: Iterable[str], most: int = 3) -> str:
    """Join names such as "a, b and 4 more"."""
    every = list(names)
    if len(every) > most:
        every = [*every[: most - 1], f"{len(every) - most + 1} more"]
    return " and ".join([", ".join(every[:-1]), every[-1]]) if len(every) > 1 else "".join(every)


_DEVICES = re.compile(r"(gpu|cpu)([0-9]+(?:\+[0-9]+)*)(?:@([0-9]+)nodes)?")


def devices(label: str) -> str:
    """Write a label of devices: "GPU 0", "8 GPUs" (the first eight), "2 GPUs (1, 3)", "4 core groups on 2 nodes"."""
    match = _DEVICES.fullmatch(label)
    if not match:
        return label
    noun, indices = "GPU" if match[1] == "gpu" else "core group", match[2].split("+")
    if len(indices) == 1 and not match[3]:
        return f"{noun} {indices[0]}"
    which = "" if indices == [str(place) for place in range(len(indices))] else f" ({', '.join(indices)})"
    place = f" on {match[3]} nodes" if match[3] else ""
    return f"{len(indices) * int(match[3] or 1)} {noun}s{which}{place}"


def counted(outcomes: Iterable[str]) -> str:
    """Count outcomes, such as "3 × out of memory, 1 × crashed"."""
    return ", ".join(f"{number} × {OUTCOMES.get(outcome, outcome)}" for outcome, number in Counter(outcomes).most_common())


def slug(*texts: object) -> str:
    """Return an id: [a-z0-9-]. Names that differ in other characters only get the same id, so callers add a number."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(map(str, texts)).lower()).strip("-")[:60].strip("-")
