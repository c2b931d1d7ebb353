"""Audit a file: what can't be true, what contradicts itself, what a reader would take for something else. Pure.

Each check says the numbers that it used, and one that could not be made says why.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.gpu_specs import GpuFacts
from torchmatrix.analysis.published.audit import IMPOSSIBLE, SUSPECT, UNCLEAR
from torchmatrix.analysis.rows import group_by
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import are, as_text
from torchmatrix.core.formatting import figure as shown
from torchmatrix_plugins.foreign.results import BETWEEN_EVENTS, Case, ForeignFile, Requests

LITTLE, WITHIN, TOKENS = 0.05, 0.02, 0.01
"""By how much Little's law, sums of times and numbers of tokens may miss."""
FULL = 3
"""A closed loop of fewer requests than so many for each stream is filling and draining most of the time."""
EVENTS = 0.2
"""A mean gap between events above TPOT by this share: empty events, and rounding, explain less."""
PAST_PEAK = 1.02
"""Cards run a little above their vendor's boost clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What the user says of the machine and the model, where the file doesn't: None is unknown. `gpu`: a row of gpus.csv.
    `parameters`: those that each token uses. `bits`: of a weight."""

    gpu: GpuFacts | None = None
    gpus: int | None = None
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


Said: TypeAlias = tuple[str, str] | str
"""What a check says: a level and a reason, or why it could not be made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """All findings on some files, and the checks that were made and weren't."""

    findings: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...]
    made: int

    def as_record(self) -> dict[str, Any]:
        """Return it for --json."""
        return {**asdict(self), "checks_made": self.made}


def claim_of(gpu: str | None, parameters: float | None, bits: float | None) -> Claim:
    """Return what the user says: `gpu` as in published tables, such as "8x H100 SXM5 80GB". Raises BadInput."""
    named = gpu_specs.split_name(gpu) if gpu else None
    facts = gpu_specs.find_published(named.gpu) if named else None
    if gpu and facts is None:
        raise BadInput(f'no GPU is called "{gpu}", or several are', hint="as in gpus.csv: --gpu 'H100 SXM5 80GB'")
    for name, value in (("--parameters", parameters), ("--bits", bits)):
        if value is not None and not 0 < value < math.inf:
            raise BadInput(f"{name} {value:g} is not a number above 0", hint="such as --parameters 8.03e9 --bits 16")
    return Claim(gpu=facts, gpus=named.count if named else None, parameters=parameters, bits=bits)


def audit(files: Sequence[ForeignFile], claim: Claim) -> Audit:
    """Make every check that is of a case's kind on each case, and the one on several runs together."""
    findings: list[Finding] = []
    unchecked: list[Unchecked] = []
    made = 0
    top = os.path.commonpath([file.path.parent for file in files])
    for file in files:
        for case in file.cases:
            place = os.path.relpath(file.path, top) if len(files) > 1 or not case.name else ""
            label = ", ".join(filter(None, [as_text(place), case.name]))
            for name, said in _each(case, claim):
                missing = [one for one in said if isinstance(one, str)]
                made += not missing
                unchecked += [Unchecked(case=label, check=name, reason=reason) for reason in missing]
                findings += [
                    Finding(case=label, level=one[0], check=name, reason=one[1]) for one in said if isinstance(one, tuple)
                ]
    findings += _repeated(files)
    return Audit(findings=tuple(findings), unchecked=tuple(unchecked), made=made)


def _each(case: Case, claim: Claim) -> Iterator[tuple[str, list[Said]]]:
    """Yield each check of the case's kind by its name, with what it says."""
    if case.problems is not None:
        yield "the file itself", [(SUSPECT, text) for text in case.problems]
    if case.requests is not None and not case.figures:
        yield "failed requests", list(_failed(case, case.requests))
    elif case.requests is not None:
        for name, check in OF_REQUESTS.items():
            yield name, list(check(case, case.requests))
    for name, (quantities, limit) in OF_RATES.items():
        rate = next(filter(None, (case.figure(quantity, "", "mean") for quantity in quantities)), None)
        if rate is not None:
            yield name, list(limit(case, rate.value, claim))


# What requests to a server must agree with


def _failed(case: Case, asked: Requests) -> Iterator[Said]:
    if asked.failed is None:
        yield "the file doesn't say how many requests failed"
    elif not asked.ended:
        yield SUSPECT, "no request was made: there is no figure"
    elif asked.failed:
        others = "; times and rates are of the others only, which had less load" if asked.completed else ": there is no figure"
        yield SUSPECT, f"{asked.failed} of {asked.ended} requests failed{others}"


def _few(case: Case, asked: Requests) -> Iterator[Said]:
    """Check for percentiles that no request lies above; those of gaps between tokens are of many more."""
    if not asked.completed:
        yield "the file doesn't say how many requests completed"
        return
    names = {figure.statistic for figure in case.figures if figure.statistic[:1] == "p" and figure.quantity != "ITL"}
    few = [name for name in sorted(names) if asked.completed * (1 - _share(name)) < 1 - 1e-9]
    if few:
        needed = f"{few[0]} needs {1 / (1 - _share(few[0])):.0f}"
        yield (
            UNCLEAR,
            f"{', '.join(few)} of {asked.completed} requests {are(len(few))} little else than their maximum ({needed})",
        )


def _share(percentile: str) -> float:
    return float(f"0.{percentile[1:]}")


def _adds_up(case: Case, asked: Requests) -> Iterator[Said]:
    """Check latency = TTFT + (n − 1) × TPOT: of each request where its times are known, else of means of one length."""
    if asked.gaps and len(asked.gaps) == len(asked.latencies) == len(asked.ttfts):
        each = zip(asked.ttfts, asked.gaps, asked.latencies, strict=True)
        sums = [(ttft + math.fsum(gaps), latency) for ttft, gaps, latency in each]
        if off := [pair for pair in sums if _apart(*pair)]:
            parts, whole = (shown(1e3 * seconds) for seconds in off[0])
            yield IMPOSSIBLE, f"{len(off)} of {len(sums)} requests: TTFT and gaps are {parts} ms, the latency is {whole} ms"
        return
    ttft, tpot, latency = (case.figure(name, "mean") for name in ("TTFT", "TPOT", "latency"))
    if not (ttft and tpot and latency and asked.completed and asked.output_tokens):
        yield "mean TTFT, TPOT or latency, or the number of tokens, isn't in the file"
    elif asked.lengths and max(asked.lengths) != min(asked.lengths):
        yield "requests differ in length, so that means needn't add up"
    else:
        tokens = (asked.client_output or asked.output_tokens) / asked.completed
        with_first = "the first one included" in tpot.definition
        total = tokens * tpot.value if with_first else ttft.value + (tokens - 1) * tpot.value
        if _apart(total, latency.value):
            formula = "tokens × TPOT" if with_first else "TTFT + (tokens − 1) × TPOT"
            unless = "" if asked.lengths else ", unless requests differ in length"
            sentence = f"{formula} = {shown(total)} ms of {shown(tokens)} tokens, the mean latency is {shown(latency.value)} ms"
            yield IMPOSSIBLE if asked.lengths else SUSPECT, sentence + unless


def _apart(a: float, b: float) -> bool:
    return abs(a - b) > WITHIN * max(abs(a), abs(b))


def _littles_law(case: Case, asked: Requests) -> Iterator[Said]:
    """Check that rate × latency is the mean number of requests at once (J. D. C. Little, Oper. Res. 9 (1961), 383-387)."""
    rate, latency = case.figure("requests"), case.figure("latency", "mean")
    if rate is None or latency is None:
        yield "the mean latency, or the rate, isn't in the file"
    elif asked.concurrency is None:
        yield "the file doesn't say how many requests were sent at once"
    else:
        at_once = rate.value * latency.value / 1e3
        words = f"{shown(rate.value)} requests/s × {shown(latency.value)} ms = {shown(at_once)} at once"
        every = asked.ended
        most = min(asked.concurrency, every) if every else asked.concurrency
        drained = min(0.5, most / max(1, every))  # at the end fewer than all streams are busy
        if at_once > (1 + LITTLE) * most:
            yield IMPOSSIBLE, f"{words}, but at most {most:g} were sent at once"
        elif asked.is_closed_loop and asked.failed:
            yield f"{asked.failed} requests failed, after times that the file doesn't say"
        elif asked.is_closed_loop and every >= FULL * most and at_once < (1 - LITTLE - drained) * most:
            yield SUSPECT, f"{words} of {most:g}: the client left the server idle, or its clock is another one"


def _rate(case: Case, asked: Requests) -> Iterator[Said]:
    """Check the rate of requests against the one that was asked for: by chance it misses by three of its standard errors."""
    rate = case.figure("requests")
    if asked.rate is None or rate is None or not asked.completed:
        yield from () if asked.is_closed_loop else ("the file doesn't say at what rate requests were sent, or completed",)
    else:
        latency, margin = case.figure("latency", "mean"), LITTLE + 3 / math.sqrt(asked.completed)
        drain = latency.value / 1e3 if latency else 0.0  # after the last one was sent
        sending = asked.ended / max(1e-9, (asked.duration or asked.completed / rate.value) - drain)
        ended = rate.value * asked.ended / asked.completed
        if ended > (1 + margin) * asked.rate:
            yield SUSPECT, f"{shown(ended)} requests/s, {asked.rate:g} were asked for: the client sent more"
        elif sending < (1 - margin) * asked.rate:
            yield (
                SUSPECT,
                f"{shown(ended)} requests/s, {asked.rate:g} were asked for: the server or the client kept up with less",
            )


def _counted(case: Case, asked: Requests) -> Iterator[Said]:
    """Check totals over the duration against the rates."""
    if asked.duration is None:
        yield "the file doesn't say how long the run took"
        return
    output, prompts = asked.client_output or asked.output_tokens, asked.client_input or asked.input_tokens
    totals = {"requests": asked.completed, "output tokens": output, "input tokens": prompts}
    for name, total in totals.items():
        rate = case.figure(name)
        if rate and total is not None and _apart(rate.value, total / asked.duration):
            per_second = f"{total:,} {name} in {shown(asked.duration)} s are {shown(total / asked.duration)} per second"
            yield IMPOSSIBLE, f"{per_second}, not {shown(rate.value)}"


def _lengths(case: Case, asked: Requests) -> Iterator[Said]:
    if asked.asked_output is None and asked.asked_input is None:
        yield "the file doesn't say how many tokens were asked for"
    for word, total, each in (
        ("output", asked.output_tokens, asked.asked_output), ("input", asked.input_tokens, asked.asked_input),
    ):  # fmt: skip
        if each and total is not None and asked.completed and abs(total / asked.completed / each - 1) > TOKENS:
            yield SUSPECT, f"{shown(total / asked.completed)} {word} tokens per request, {each:g} were asked for"


def _one_token(case: Case, asked: Requests) -> Iterator[Said]:
    """Check for requests of one token, which have no time between tokens: vLLM counts it as 0 towards goodput."""
    short = sum(length <= 1 for length in asked.lengths)
    if not asked.lengths and not (asked.output_tokens and asked.completed):
        yield "the file doesn't say how many tokens came"
    elif short and case.figure("goodput"):
        yield SUSPECT, f"{short} of {len(asked.lengths)} requests gave one token, whose TPOT counts as 0: it meets any limit"
    elif (asked.output_tokens or 0) <= (asked.completed or 0) and not case.figure("TPOT", "mean"):
        yield UNCLEAR, "requests gave one token each: there is no time per further token, and a 0 in the file is none"


def _events(case: Case, asked: Requests) -> Iterator[Said]:
    """Check for events of several tokens, whose gaps are no times between tokens."""
    per_event = _tokens_per_event(case)
    if per_event is None:
        yield "mean TPOT, or the gaps between events, aren't in the file"
    elif per_event > 1 + EVENTS:
        words = f"ITL is {shown(per_event)} times TPOT: events come with several tokens, which the server gathers or decodes"
        yield UNCLEAR, f"{words} at once (speculative decoding), so that ITL is no time between tokens"


def _tokens_per_event(case: Case) -> float | None:
    tpot, gap = case.figure("TPOT", "mean"), case.figure("ITL", "mean")
    return gap.value / tpot.value if tpot and gap and gap.definition == BETWEEN_EVENTS else None


def _cached(case: Case, asked: Requests) -> Iterator[Said]:
    if asked.cached_tokens is None:
        yield "the file doesn't say how many prompt tokens came from the server's cache"
    elif asked.input_tokens and asked.cached_tokens > TOKENS * asked.input_tokens:
        share = asked.cached_tokens / asked.input_tokens
        yield (
            SUSPECT,
            f"{asked.cached_tokens:,} of {asked.input_tokens:,} prompt tokens ({share:.0%}) came from the server's cache",
        )


OF_REQUESTS: Mapping[str, Callable[[Case, Requests], Iterator[Said]]] = {
    "failed requests": _failed, "percentiles": _few, "sum of times": _adds_up, "Little's law": _littles_law, "rate": _rate,
    "totals": _counted, "lengths": _lengths, "short outputs": _one_token, "events": _events,
    "cache": _cached,
}  # fmt: skip
"""Each check of requests by its name: it yields what it finds, or one sentence on why it couldn't be made."""

# What a GPU can't exceed


def _roof(case: Case, rate: float, claim: Claim) -> Iterator[Said]:
    """Check that weights aren't read faster than memory gives them: each step of generation reads them all once."""
    asked, (gpu, gpus) = case.requests, _gpu_of(case, claim)
    size = case.weight_bytes or (claim.parameters * claim.bits / 8 if claim.parameters and claim.bits else None)
    at_once = case.sequences or (asked.concurrency if asked else None)
    if gpu is None or not gpu.bandwidth_gb_per_second:
        yield UNKNOWN_GPU
    elif size is None:
        yield "the bytes of the weights aren't known: --parameters N --bits N"
    elif at_once is None:
        yield "how many requests were sent at once isn't known"
    else:
        steps = 1e9 * gpu.bandwidth_gb_per_second * gpus / size
        several = (asked.tokens_per_step if asked else None) or max(1.0, _tokens_per_event(case) or 1.0)
        roof = steps * at_once * several
        if rate > PAST_PEAK * roof:
            words = f"{gpus} × {gpu.name} read {shown(size / 1e9)} GB of weights at most {shown(steps)} times a second"
            limit = f"{shown(roof)} tokens/s of {at_once:g} at once, not {shown(rate)}"
            yield IMPOSSIBLE, f"{words}: at most {limit}, unless a step gives several tokens or uses a part of the weights"


def _mfu(case: Case, rate: float, claim: Claim) -> Iterator[Said]:
    """Check that no more is computed than the GPUs can: two operations per parameter and token."""
    gpu, gpus = _gpu_of(case, claim)
    parameters = case.parameters or claim.parameters
    bits = claim.bits or (8 * case.weight_bytes / case.parameters if case.weight_bytes and case.parameters else None)
    peak = _peak(gpu, bits) if gpu and bits else None
    if gpu is None:
        yield UNKNOWN_GPU
    elif parameters is None or bits is None:
        yield "the model isn't known: --parameters N --bits N"
    elif peak is None:
        yield f"no peak of {gpu.name} is known for {bits:g} bits"
    elif (used := 2 * parameters * rate / (peak * gpus)) > 1:
        work = f"2 × {shown(parameters / 1e9)} × 10⁹ parameters × {shown(rate)} tokens/s"
        limit = f"{used:.2f} times the peak of {gpus} × {gpu.name} ({shown(peak / 1e12)} TFLOP/s)"
        yield IMPOSSIBLE, f"{work} are {limit}, unless prompts came from a cache or a part of the weights is used"


def _peak(gpu: GpuFacts, bits: float) -> float | None:
    """Return a peak that no product with weights of so many bits exceeds: of a type without one in gpus.csv (int8, FP4), twice
    that of the type with twice the bits."""
    wide = {name: gpu_specs.peak_flops(gpu, name) for name in ("fp8", "amp", "amp-bf16", "tf32", "fp32")}
    full = max(filter(None, (wide["tf32"], wide["fp32"])), default=None)
    half = max(filter(None, (wide["amp"], wide["amp-bf16"])), default=full)
    eight = max(filter(None, (wide["fp8"], 2 * half if half else None)), default=None)
    return full if bits > 16.5 else half if bits > 8.5 else eight if bits > 4.5 or eight is None else 2 * eight


def _bus(case: Case, rate: float, claim: Claim) -> Iterator[Said]:
    """Check that no more crosses the links than they carry, one way. Switches that reduce halve an all-reduce's traffic."""
    gpu, _ = _gpu_of(case, claim)
    if gpu is None or not gpu.link_gb_per_second:
        yield f"its links aren't known, or ranks are on several hosts; {UNKNOWN_GPU}"
        return
    limit, reduces = PAST_PEAK * gpu.link_gb_per_second, case.work.get("operation") == "all-reduce"
    words = f"{shown(rate)} GB/s of bus bandwidth, the links of {gpu.name} carry {shown(gpu.link_gb_per_second)} one way"
    if rate > limit * (2 if reduces else 1):
        yield IMPOSSIBLE, words
    elif rate > limit:
        yield UNCLEAR, f"{words}: only switches that reduce (NVLS) explain it, and then it isn't what the links carried"


UNKNOWN_GPU = "the GPU isn't known: --gpu NAME"


def _gpu_of(case: Case, claim: Claim) -> tuple[GpuFacts | None, int]:
    if claim.gpu:
        return claim.gpu, claim.gpus or case.devices or 1
    return (gpu_specs.find(case.device, None) if case.device else None), case.devices or 1


OF_RATES: Mapping[str, tuple[tuple[str, ...], Callable[[Case, float, Claim], Iterator[Said]]]] = {
    "bandwidth": (("generation", "output tokens"), _roof),
    "MFU": (("all tokens", "prompt processing", "output tokens"), _mfu),
    "links": (("bus bandwidth",), _bus),
}
"""Each limit by its name: the quantities of which the first that a case has is held against it."""

# Several runs


def _repeated(files: Sequence[ForeignFile]) -> Iterator[Finding]:
    """Look for a cache that the first run filled: TTFT falls from the first run to all later ones, and TPOT doesn't."""
    every = [case for file in files for case in file.cases if case.requests and case.requests.cached_tokens != 0]
    for cases in group_by(every, lambda case: (case.name, *case.work.items(), *case.setup.items())).values():
        ttfts = [figure.value for case in cases if (figure := case.figure("TTFT", "median", "mean"))]
        tpots = [figure.value for case in cases if (figure := case.figure("TPOT", "median", "mean"))]
        if len(ttfts) == len(tpots) > 1 and max(ttfts[1:]) < FALLS * ttfts[0] and max(tpots[1:]) > FALLS * tpots[0]:
            falls = (
                f"TTFT falls from {shown(ttfts[0])} ms in the first run to {shown(max(ttfts[1:]))} ms and less in later ones"
            )
            steady = f"TPOT doesn't ({shown(tpots[0])}, then {shown(min(tpots[1:]))} to {shown(max(tpots[1:]))} ms)"
            reason = f"{falls}, and {steady}, as if the same prompts came from the server's prefix cache"
            yield Finding(case=cases[0].name, level=SUSPECT, check="cache", reason=reason)


FALLS = 0.7
"""A TTFT below this share of the first run's has another cause than scatter."""
