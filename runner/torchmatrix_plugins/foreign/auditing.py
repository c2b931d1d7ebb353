"""Audit a file: what can't be true, what contradicts itself, what a reader would take for something else. Pure.

Each check says the numbers that it used, and one that could not be made says why.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.gpu_specs import GpuFacts
from torchmatrix.analysis.published.audit import IMPOSSIBLE, SUSPECT, UNCLEAR
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import figure as shown
from torchmatrix_plugins.foreign.results import Case, ForeignFile, Requests

LITTLE, WITHIN, TOKENS = 0.05, 0.02, 0.01
"""By how much Little's law, sums of times and numbers of tokens may miss."""
PAST_PEAK = 1.02
"""Cards run a little above their vendor's boost clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What the user says of the machine and the model, where the file doesn't: None is unknown. `gpu`: a row of gpus.csv.
    `parameters`: those that each token uses. `bits`: of a weight."""

    gpu: GpuFacts | None = None
    gpus: int = 1
    parameters: float | None = None
    bits: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A problem of a case: how sure (IMPOSSIBLE, SUSPECT, UNCLEAR), the check, and a sentence with the numbers that it used."""

    case: str
    level: str
    check: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """A check that could not be made, and why."""

    case: str
    check: str
    reason: str


Said: TypeAlias = "tuple[str, str] | str"
"""What a check says: a level and a reason, or why it could not be made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """All findings on some files, and the checks that were made and weren't."""

    findings: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...]
    made: int

    def as_record(self) -> dict[str, Any]:
        """Return it for --json."""
        return {
            "findings": [asdict(one) for one in self.findings], "unchecked": [asdict(one) for one in self.unchecked],
            "checks_made": self.made,
        }  # fmt: skip


def claim_of(gpu: str | None, parameters: float | None, bits: float | None) -> Claim:
    """Return what the user says: `gpu` as in published tables, such as "8x H100 SXM5 80GB". Raises BadInput."""
    named = gpu_specs.split_name(gpu) if gpu else None
    facts = gpu_specs.find_published(named.gpu) if named else None
    if gpu and facts is None:
        raise BadInput(
            f'no GPU is called "{gpu}", or several are', hint="reports/published/gpus.csv has the names: --gpu 'H100 SXM5 80GB'"
        )
    for name, value in (("--parameters", parameters), ("--bits", bits)):
        if value is not None and not 0 < value < math.inf:
            raise BadInput(
                f"{name} {value:g} is not a number above 0", hint=f"{name} 8.03e9" if name == "--parameters" else f"{name} 16"
            )
    return Claim(gpu=facts, gpus=(named.count if named else None) or 1, parameters=parameters, bits=bits)


def audit(files: Sequence[ForeignFile], claim: Claim) -> Audit:
    """Make every check on each case, and those on several runs together."""
    findings, unchecked, made = [], [], 0
    for file in files:
        for case in file.cases:
            label = " ".join(filter(None, [file.path.name if len(files) > 1 else "", case.name])) or file.path.name
            for name, check in CHECKS.items():
                said = list(check(case, claim))
                made += not any(isinstance(one, str) for one in said)
                findings += [
                    Finding(case=label, level=one[0], check=name, reason=one[1]) for one in said if not isinstance(one, str)
                ]
                unchecked += [Unchecked(case=label, check=name, reason=one) for one in said if isinstance(one, str) and one]
    findings += _repeated(files)
    return Audit(findings=tuple(findings), unchecked=tuple(unchecked), made=made)


NOT_ITS_KIND = ""
"""A check that has nothing to do with a case says this: it is neither made nor missing."""


def _own_words(case: Case, claim: Claim) -> Iterator[Said]:
    if case.problems is None:
        yield NOT_ITS_KIND
    yield from ((SUSPECT, f"it says: {text}") for text in case.problems or () if text)


def _failed(case: Case, claim: Claim) -> Iterator[Said]:
    asked = case.requests
    if asked is None:
        yield NOT_ITS_KIND
    elif asked.failed is None:
        yield "the file doesn't say how many requests failed"
    elif asked.failed:
        every = asked.failed + (asked.completed or 0)
        yield SUSPECT, f"{asked.failed} of {every} requests failed; times and rates are of the others only, which had less load"


def _few(case: Case, claim: Claim) -> Iterator[Said]:
    number = case.requests.completed if case.requests else None
    if case.requests is None:
        yield NOT_ITS_KIND
    elif number is None:
        yield "the file doesn't say how many requests completed"
    else:
        names = sorted({figure.statistic for figure in case.figures if figure.statistic[:1] == "p"}, key=_percent)
        few = [name for name in names if number * (1 - _percent(name) / 100) < 1 - 1e-9 and _quantity_of(case, name)]
        if few:
            needed = math.ceil(1 / (1 - _percent(few[0]) / 100) - 1e-6)
            yield (
                UNCLEAR,
                f"{', '.join(few)} of {number} requests {'is' if len(few) == 1 else 'are'} little else than their maximum ({few[0]} needs {needed})",
            )


def _quantity_of(case: Case, statistic: str) -> bool:
    return any(figure.statistic == statistic and figure.quantity != "ITL" for figure in case.figures)


def _percent(name: str) -> float:
    digits = name[1:]
    return float(f"{digits[:2]}.{digits[2:]}") if digits.isdigit() else float(digits or 0)


def _adds_up(case: Case, claim: Claim) -> Iterator[Said]:
    """Check E2E = TTFT + (n − 1) × TPOT: for each request where its times are known, else for means of one length."""
    asked = case.requests
    if asked is None:
        yield NOT_ITS_KIND
        return
    if asked.gaps and asked.latencies and len(asked.gaps) == len(asked.latencies) == len(asked.ttfts):
        sums = [ttft + math.fsum(gaps) for ttft, gaps in zip(asked.ttfts, asked.gaps, strict=True)]
        off = [place for place, (total, whole) in enumerate(zip(sums, asked.latencies, strict=True)) if _apart(total, whole)]
        if off:
            place = off[0]
            yield (
                IMPOSSIBLE,
                f"{len(off)} of {len(sums)} requests: TTFT and gaps sum to {shown(1e3 * sums[place])} ms, the latency is "
                f"{shown(1e3 * asked.latencies[place])} ms",
            )
        return
    parts = [case.figure(name, "mean") for name in ("TTFT", "TPOT", "latency")]
    if not all(parts) or not asked.completed or not asked.output_tokens:
        yield "mean TTFT, TPOT or latency, or the number of tokens, isn't in the file"
        return
    if asked.lengths and max(asked.lengths) != min(asked.lengths):
        yield "requests differ in length, so that means needn't add up"
        return
    ttft, tpot, latency = (part.value for part in parts if part)
    tokens = asked.output_tokens / asked.completed
    included = any(part and "the first one included" in part.definition for part in parts)
    total = tokens * tpot if included else ttft + (tokens - 1) * tpot
    if _apart(total, latency):
        formula = "tokens × TPOT" if included else "TTFT + (tokens − 1) × TPOT"
        level = IMPOSSIBLE if asked.lengths else SUSPECT
        what = "" if asked.lengths else ", unless requests differ in length"
        yield level, f"{formula} = {shown(total)} ms of {shown(tokens)} tokens, the mean latency is {shown(latency)} ms{what}"


def _apart(a: float, b: float) -> bool:
    return abs(a - b) > WITHIN * max(abs(a), abs(b))


def _littles_law(case: Case, claim: Claim) -> Iterator[Said]:
    """Check that rate × latency is the mean number of requests at once (J. D. C. Little, Oper. Res. 9 (1961), 383-387)."""
    asked, rate, latency = case.requests, case.figure("requests"), case.figure("latency", "mean")
    if asked is None:
        yield NOT_ITS_KIND
    elif rate is None or latency is None:
        yield "the mean latency, or the rate, isn't in the file"
    elif asked.concurrency is None:
        yield "the file doesn't say how many requests were sent at once"
    else:
        at_once = rate.value * latency.value / 1e3
        words = f"{shown(rate.value)} requests/s × {shown(latency.value)} ms = {shown(at_once)} at once"
        if at_once > (1 + LITTLE) * asked.concurrency:
            yield IMPOSSIBLE, f"{words}, but at most {asked.concurrency:g} were sent at once"
        elif asked.is_closed_loop and asked.completed and at_once < (1 - LITTLE - _drained(asked)) * asked.concurrency:
            yield SUSPECT, f"{words} of {asked.concurrency:g}: the client left the server idle, or its clock is another one"


def _drained(asked: Requests) -> float:
    """Return the share of a run in which fewer than all streams are busy at the end: at most one request of each."""
    return min(0.5, (asked.concurrency or 1) / max(1, asked.completed or 1))


def _rate(case: Case, claim: Claim) -> Iterator[Said]:
    """Check the rate of requests against the one that was asked for: by chance it misses by three of its standard errors."""
    asked, rate = case.requests, case.figure("requests")
    if asked is None or asked.rate is None:
        yield NOT_ITS_KIND
    elif rate is None or not asked.completed:
        yield "the file doesn't say at what rate requests completed"
    elif abs(rate.value / asked.rate - 1) > LITTLE + 3 / math.sqrt(asked.completed):
        why = "the server kept up with less" if rate.value < asked.rate else "the client sent more than it was asked to"
        yield SUSPECT, f"{shown(rate.value)} requests/s, {asked.rate:g} were asked for: {why}"


def _counted(case: Case, claim: Claim) -> Iterator[Said]:
    """Check totals over the duration against the rates."""
    asked = case.requests
    if asked is None:
        yield NOT_ITS_KIND
        return
    if asked.duration is None:
        yield "the file doesn't say how long the run took"
        return
    for name, total in (
        ("requests", asked.completed),
        ("output tokens", asked.output_tokens),
        ("input tokens", asked.input_tokens),
    ):
        rate = case.figure(name)
        if rate and total is not None and _apart(rate.value, total / asked.duration):
            yield (
                IMPOSSIBLE,
                f"{total:,} {name} in {shown(asked.duration)} s are {shown(total / asked.duration)} per second, not {shown(rate.value)}",
            )


def _lengths(case: Case, claim: Claim) -> Iterator[Said]:
    asked = case.requests
    if asked is None:
        yield NOT_ITS_KIND
        return
    if asked.asked_output is None and asked.asked_input is None:
        yield "the file doesn't say how many tokens were asked for"
    pairs = (("output", asked.output_tokens, asked.asked_output), ("input", asked.input_tokens, asked.asked_input))
    for word, total, each in pairs:
        if each and total is not None and asked.completed and abs(total / asked.completed / each - 1) > TOKENS:
            yield SUSPECT, f"{shown(total / asked.completed)} {word} tokens per request, {each:g} were asked for"


def _one_token(case: Case, claim: Claim) -> Iterator[Said]:
    """Check for requests of one token, which have no time between tokens: vLLM counts it as 0 towards goodput."""
    asked = case.requests
    if asked is None:
        yield NOT_ITS_KIND
        return
    if not asked.lengths and not (asked.output_tokens and asked.completed):
        yield "the file doesn't say how many tokens came"
        return
    short = sum(length <= 1 for length in asked.lengths)
    if short and case.figure("goodput"):
        yield SUSPECT, f"{short} of {len(asked.lengths)} requests gave one token, whose TPOT counts as 0: it meets any limit"
    elif asked.output_tokens and asked.completed and asked.output_tokens <= asked.completed and not case.figure("TPOT", "mean"):
        yield UNCLEAR, "requests gave one token each: there is no time per further token, and a 0 in the file is none"


def _cached(case: Case, claim: Claim) -> Iterator[Said]:
    asked = case.requests
    if asked is None:
        yield NOT_ITS_KIND
    elif asked.cached_tokens is None:
        yield "the file doesn't say how many prompt tokens came from the server's cache"
    elif asked.input_tokens and asked.cached_tokens > TOKENS * asked.input_tokens:
        share = asked.cached_tokens / asked.input_tokens
        yield (
            SUSPECT,
            f"{asked.cached_tokens:,} of {asked.input_tokens:,} prompt tokens ({share:.0%}) came from the server's cache",
        )


def _roof(case: Case, claim: Claim) -> Iterator[Said]:
    """Check that weights aren't read faster than memory gives them: each step of generation reads them all once."""
    asked, rate = case.requests, case.figure("generation", "", "mean") or case.figure("output tokens")
    if rate is None:
        yield NOT_ITS_KIND
        return
    gpu, gpus = _gpu_of(case, claim)
    size = case.weight_bytes or (claim.parameters * claim.bits / 8 if claim.parameters and claim.bits else None)
    at_once = 1.0 if case.weight_bytes else asked.concurrency if asked else None
    if gpu is None or not gpu.bandwidth_gb_per_second:
        yield "the GPU isn't known: --gpu NAME"
    elif size is None:
        yield "the bytes of the weights aren't known: --parameters N --bits N"
    elif at_once is None:
        yield "how many requests were sent at once isn't known"
    else:
        steps = (asked.tokens_per_step if asked and asked.tokens_per_step else 1.0) * at_once
        roof = 1e9 * gpu.bandwidth_gb_per_second * gpus / size * steps
        words = (
            f"{gpus} × {gpu.name} read {shown(size / 1e9)} GB of weights at most {shown(roof / steps)} times a second: at most "
        )
        if rate.value > PAST_PEAK * roof:
            yield (
                IMPOSSIBLE,
                f"{words}{shown(roof)} tokens/s of {at_once:g} at once, not {shown(rate.value)}, unless a step gives several tokens or uses a part of the weights",
            )


def _mfu(case: Case, claim: Claim) -> Iterator[Said]:
    """Check that no more is computed than the GPUs can: two operations per parameter and token."""
    rates = [case.figure(name, "", "mean") for name in ("all tokens", "prompt processing", "output tokens")]
    rate = next(filter(None, rates), None)
    if rate is None:
        yield NOT_ITS_KIND
        return
    gpu, gpus = _gpu_of(case, claim)
    parameters = case.parameters or claim.parameters
    bits = claim.bits or (8 * case.weight_bytes / case.parameters if case.weight_bytes and case.parameters else None)
    peak = _peak(gpu, bits) if gpu and bits else None
    if gpu is None:
        yield "the GPU isn't known: --gpu NAME"
    elif parameters is None or bits is None:
        yield "the model isn't known: --parameters N --bits N"
    elif peak is None:
        yield f"no peak of {gpu.name} is known for {bits:g} bits"
    else:
        used = 2 * parameters * rate.value / (peak * gpus)
        if used > 1:
            yield (
                IMPOSSIBLE,
                f"2 × {shown(parameters / 1e9)} × 10⁹ parameters × {shown(rate.value)} tokens/s are {used:.2f} times the peak of {gpus} × "
                f"{gpu.name} ({shown(peak / 1e12)} TFLOP/s), unless prompts came from a cache or a part of the weights is used",
            )


def _peak(gpu: GpuFacts, bits: float) -> float | None:
    """Return the highest peak that weights of so many bits can be computed at."""
    names = ("fp8", "amp", "amp-bf16") if bits <= 8.5 else ("amp", "amp-bf16") if bits <= 16.5 else ("tf32", "fp32")
    return max(filter(None, (gpu_specs.peak_flops(gpu, name) for name in names)), default=None)


def _bus(case: Case, claim: Claim) -> Iterator[Said]:
    """Check that no more crosses the links than they carry, one way. Switches that reduce halve the traffic of an all-reduce."""
    rate = case.figure("bus bandwidth", "mean")
    if rate is None:
        yield NOT_ITS_KIND
        return
    gpu, _ = _gpu_of(case, claim)
    if gpu is None or not gpu.link_gb_per_second:
        yield "the GPU, or the bandwidth of its links, isn't known, or ranks are on several hosts: --gpu NAME"
        return
    one_way = gpu.link_gb_per_second
    words = f"{shown(rate.value)} GB/s of bus bandwidth, the links of {gpu.name} carry {shown(one_way)} one way"
    reduces = str(case.work.get("operation", "")).replace("_", "-") == "all-reduce"
    if rate.value > PAST_PEAK * one_way * (2 if reduces else 1):
        yield IMPOSSIBLE, words
    elif rate.value > PAST_PEAK * one_way:
        yield UNCLEAR, f"{words}: only switches that reduce (NVLS) explain it, and then it isn't what the links carried"


def _gpu_of(case: Case, claim: Claim) -> tuple[GpuFacts | None, int]:
    if claim.gpu:
        return claim.gpu, claim.gpus
    return (gpu_specs.find(case.device, None) if case.device else None), case.devices or 1


CHECKS: dict[str, Callable[[Case, Claim], Iterator[Said]]] = {
    "the tool itself": _own_words, "failed requests": _failed, "percentiles": _few, "sum of times": _adds_up,
    "Little's law": _littles_law, "rate": _rate, "totals": _counted, "lengths": _lengths, "one token": _one_token, "cache": _cached,
    "bandwidth": _roof, "MFU": _mfu, "links": _bus,
}  # fmt: skip
"""Each check by its name. It yields what it finds, or one sentence on why it couldn't be made, or NOT_ITS_KIND."""


def _repeated(files: Sequence[ForeignFile]) -> Iterator[Finding]:
    """Look for a cache that the first run filled: TTFT falls from the first run to all later ones, and TPOT doesn't."""
    by_name: dict[str, list[Case]] = {}
    for file in files:
        for case in file.cases:
            by_name.setdefault(case.name, []).append(case)
    for name, cases in by_name.items():
        ttfts = [figure.value for case in cases if (figure := case.figure("TTFT", "median", "mean"))]
        tpots = [figure.value for case in cases if (figure := case.figure("TPOT", "median", "mean"))]
        if len(ttfts) < 2 or len(tpots) != len(ttfts):
            continue
        if max(ttfts[1:]) < FALLS * ttfts[0] and max(tpots[1:]) > FALLS * tpots[0]:
            reason = (
                f"TTFT falls from {shown(ttfts[0])} ms in the first run to {shown(max(ttfts[1:]))} ms and less in the later ones, "
                f"and TPOT doesn't ({shown(tpots[0])}, then {shown(min(tpots[1:]))} to {shown(max(tpots[1:]))} ms): the same prompts again "
                "come from the server's prefix cache"
            )
            yield Finding(case=name, level=SUSPECT, check="cache", reason=reason)


FALLS = 0.7
"""A TTFT below this share of the first run's has another cause than scatter."""
