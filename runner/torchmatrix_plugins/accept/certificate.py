"""An acceptance -> the certificate (one page), lines for the terminal, JSON, JUnit's XML and nccl-tests' JSON."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from xml.etree import ElementTree

from torchmatrix.analysis.centers import mean_of
from torchmatrix.analysis.intervals import Interval
from torchmatrix.core.errors import ExitCode
from torchmatrix.core.formatting import UNKNOWN, clipped, count, figure, is_known, printable, without_nan
from torchmatrix.core.secrets import cleaned
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.operations import BUS
from torchmatrix.facts.wire import ContainerReport
from torchmatrix.reporting import page, words
from torchmatrix.reporting.page import OURS, Brand, utc
from torchmatrix_plugins.accept import judging
from torchmatrix_plugins.accept.causes import Causes, causes_of, known, readings_of
from torchmatrix_plugins.accept.checks import Acceptance, Check
from torchmatrix_plugins.accept.judging import FAIL, NO_REFERENCE, PASS, UNDECIDED, Reference

_LEAST, _WIDEST = 0.7, 1.1
"""The ratios to a reference at the ends of a bar; what is beyond lies at an end."""


def exit_code(acceptance: Acceptance) -> ExitCode:
    """Return 0 if all checks passed, 5 if one failed, else 1: undecided, without a reference, not finished, or nothing was
    checked.
    """
    counts = acceptance.counts
    if counts[FAIL]:
        return ExitCode.REGRESSION
    is_whole = counts[PASS] == len(acceptance.checks) and not acceptance.unfinished
    return ExitCode.OK if counts[PASS] and is_whole else ExitCode.FINDINGS


def answer(acceptance: Acceptance) -> str:
    """Write the answer: how many checks passed, and the devices that failed, with the likeliest cause."""
    counts, every = acceptance.counts, len(acceptance.checks)
    if not every:
        return "Nothing was checked."
    rest = [f"{counts[verdict]} {_WORDS[verdict]}" for verdict in (FAIL, UNDECIDED, NO_REFERENCE) if counts[verdict]]
    sentence = f"{counts[PASS]} of {every} checks passed{''.join(f', {text}' for text in rest)}."
    if acceptance.unfinished:
        sentence += f" Not finished: {words.enumerated(acceptance.unfinished)}; the same command continues a run."
    for device, checks in sorted(_failed(acceptance).items(), key=lambda item: -len(item[1])):
        found = next((cause for check in checks if (causes := _causes(check)) for cause in causes.found), "")
        why = checks[0].judged.why or found
        sentence += f" {device} fails {len(checks)}{f': {clipped(printable(why))}' if why else ', no cause found'}."
    return sentence


def _failed(acceptance: Acceptance) -> dict[str, list[Check]]:
    """Return the checks that failed by device; that of a pair at the end that fails more often."""
    by_device: dict[str, list[Check]] = {}
    failed = acceptance.with_verdict(FAIL)
    times = Counter((check.machine, end) for check in failed for end in check.ends)
    for check in failed:
        worst = max(check.ends, key=lambda end: times[check.machine, end])
        by_device.setdefault(replace(check, device=worst).where, []).append(check)
    return by_device


def _causes(check: Check) -> Causes | None:
    """Return the causes of a check that failed by its figure; None of any other."""
    return causes_of(check) if check.judged.verdict == FAIL and not check.said else None


_WORDS = {FAIL: "failed", UNDECIDED: "undecided", NO_REFERENCE: "without a reference", PASS: "passed"}


def value_in_words(check: Check, interval: Interval) -> str:
    """Write a figure with its limits in the units of the field; that of a latency as a time."""
    if not is_known(interval.value):
        return UNKNOWN
    ends = [interval.low, interval.high] if is_known(interval.low) else []
    value, unit = interval.value, f"{check.unit}/s"
    if check.is_latency:
        value, ends, unit = 1e6 / value, [1e6 / end if end else math.inf for end in reversed(ends)], "µs"
    span = f" ({figure(ends[0])} to {figure(ends[1])})" if ends else ""
    return f"{figure(value)} {unit}{span}"


def ratio_in_words(check: Check) -> str:
    """Write a figure over its reference, with limits, and the bound."""
    judged, reference = check.judged, check.reference
    if reference is None or not is_known(judged.ratio.value):
        return judged.why
    ratio = judged.ratio
    text = f"{100 * ratio.value:.1f} % ({100 * ratio.low:.1f} to {100 * ratio.high:.1f}) of {reference.source}"
    text += f", bound {100 * judged.bound:.1f} %"
    more = f"; {judged.more} launches would decide" if judged.more else ""
    return f"{text}; {judged.why}{more}" if judged.why else text


def in_words(acceptance: Acceptance) -> Iterator[str]:
    """Yield the lines of the terminal: each check that didn't pass with its causes, then the answer."""
    for verdict in (FAIL, UNDECIDED, NO_REFERENCE):
        for check in acceptance.with_verdict(verdict):
            yield f"{verdict:<12}  {check.name}: {value_in_words(check, check.judged.figure)}"
            yield f"{'':12}  {ratio_in_words(check)}"
            if causes := _causes(check):
                yield from (f"{'':12}  likely: {cause}" for cause in causes.found)
                if not causes.found:
                    fine, unknown = ", ".join(causes.fine) or "nothing", ", ".join(causes.unknown) or "nothing"
                    yield f"{'':12}  no cause found; fine: {fine}; unknown: {unknown}"
    yield answer(acceptance)


def as_record(acceptance: Acceptance, run: str) -> dict[str, Any]:
    """Return the verdicts as JSON has them."""
    checks = [_check_record(check) for check in acceptance.checks]
    record = {"run": run, "answer": answer(acceptance), "counts": acceptance.counts, "checks": checks,
              "notes": list(acceptance.notes), "unfinished": list(acceptance.unfinished)}  # fmt: skip
    return dict(without_nan(record))


def _check_record(check: Check) -> dict[str, Any]:
    judged, reference = check.judged, check.reference
    causes = _causes(check) or Causes(found=(), fine=(), unknown=())
    return {
        "name": check.name, "operation": check.operation, "devices": check.devices, "device": check.device,
        "count": check.count, "verdict": judged.verdict, "why": judged.why, "unit": f"{check.unit}/s",
        "launches": len(check.launches),
        **judged.figure.columns("value"), **judged.ratio.columns("ratio"), "bound": judged.bound,
        "launches_to_decide": judged.more, "limit": check.limit, "of_limit": check.of_limit, "key": dict(check.key),
        "reference": reference and _reference_record(reference, judged.figure.value / judged.ratio.value),
        "beside": [_reference_record(other, other.value) for other in check.beside],
        "causes": list(causes.found), "fine": list(causes.fine), "unknown": list(causes.unknown),
    }  # fmt: skip


def _reference_record(reference: Reference, value: float) -> dict[str, Any]:
    return {
        "kind": reference.kind, "value": value, "others": reference.others, "scatter": reference.scatter,
        "share": reference.share, "source": reference.source,
    }  # fmt: skip


def junit(acceptance: Acceptance, run: str) -> str:
    """Return JUnit's XML: a failed check is a failure, one that is undecided or has no reference is skipped, with why."""
    counts = acceptance.counts
    suite = ElementTree.Element(
        "testsuite", name=f"torchmatrix accept {run}", tests=str(len(acceptance.checks)), failures=str(counts[FAIL]),
        skipped=str(counts[UNDECIDED] + counts[NO_REFERENCE]), errors="0",
    )  # fmt: skip
    notes = [*acceptance.notes, *(f"{run} is not finished" for run in acceptance.unfinished)]
    if notes:
        told = ElementTree.SubElement(suite, "properties")
        for note in notes:
            ElementTree.SubElement(told, "property", name="note", value=_xml(note))
    for check in acceptance.checks:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(check.operation), name=_xml(check.name))
        verdict = check.judged.verdict
        said = f"{value_in_words(check, check.judged.figure)}; {ratio_in_words(check)}"
        if verdict == FAIL:
            node = ElementTree.SubElement(case, "failure", message=_xml(said))
            causes = _causes(check)
            node.text = _xml("\n".join(causes.found)) if causes else None
        elif verdict != PASS:
            ElementTree.SubElement(case, "skipped", message=_xml(f"{verdict}: {said}"))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Return a text without what XML 1.0 can't hold."""
    return printable(cleaned(text)).encode("utf-8", "backslashreplace").decode()


_NCCL = {
    "all-reduce": "all_reduce_perf", "all-gather": "all_gather_perf", "reduce-scatter": "reduce_scatter_perf",
    "all-to-all": "alltoall_perf", "send-receive": "sendrecv_perf",
}  # fmt: skip


def nccl_tests(acceptance: Acceptance) -> list[dict[str, Any]]:
    """Return the collectives as nccl-tests' -J writes them, a document each: microseconds and GB/s, of the in-place operation
    for an all-reduce, else of the one out of place. What nccl-tests says and torchmatrix doesn't know is left out.
    """
    documents = []
    for check in acceptance.checks:
        if check.model in _NCCL and check.outcome == "ok":
            size = int(check.launches[-1].workload.bytes or 0)
            if not size:
                continue
            ranks, in_place = check.count, check.model == "all-reduce"
            value = check.judged.figure.value
            seconds = size * BUS[check.model](ranks) / 1e9 / value
            timed = {"time": 1e6 * seconds, "alg_bw": size / seconds / 1e9, "bus_bw": value, "nwrong": 0}
            result = {"size": size, "count": size // 4, "type": "float", "redop": _reduces(check)}
            documents.append(
                {
                    "args": [_NCCL[check.model]],
                    "config": {"ranks": ranks},
                    "results": [result | {"in_place" if in_place else "out_of_place": timed}],
                }
            )
    return documents


def _reduces(check: Check) -> str:
    """Return what a collective does with numbers: an average with NCCL, whose sums would grow to infinity."""
    if check.model == "all-reduce":
        return "avg" if check.launches[-1].devices.gpus else "sum"
    return "sum" if check.model == "reduce-scatter" else "none"


# The page


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A check as the page shows it. `short`: its ratio without words, or why there is none. `bar`: in percent of its width: the
    interval's ends, the point, the bound. `causes`: of one that failed. `more`: which others failed with it.
    """

    name: str
    verdict: str
    value: str
    short: str
    bound: str
    ratio: str
    of_limit: str
    bar: tuple[float, ...] | None
    causes: Causes | None
    more: str = ""


def _line(check: Check) -> Line:
    judged, ratio = check.judged, check.judged.ratio
    has_bar = is_known(ratio.value) and is_known(judged.bound)
    short = f"{100 * ratio.value:.1f} % ({100 * ratio.low:.1f} to {100 * ratio.high:.1f})" if has_bar else judged.why
    return Line(
        name=check.name, verdict=judged.verdict, value=value_in_words(check, judged.figure), short=short,
        bound=f"{100 * judged.bound:.1f} %" if has_bar else UNKNOWN, ratio=ratio_in_words(check),
        of_limit=f"{100 * check.of_limit:.0f} %" if is_known(check.of_limit) else UNKNOWN,
        bar=tuple(_placed(end) for end in (ratio.low, ratio.high, ratio.value, judged.bound)) if has_bar else None,
        causes=_causes(check),
    )  # fmt: skip


def _failed_lines(acceptance: Acceptance) -> Iterator[Line]:
    """Yield the checks that failed, those farthest below their reference first; of a GPU's pairs only the first."""
    more: dict[int, str | None] = {}
    for device, checks in _failed(acceptance).items():
        pairs = [id(check) for check in checks if check.is_of_pair]
        more |= dict.fromkeys(pairs)
        if len(pairs) > 1:
            more[pairs[0]] = f"So are {len(pairs) - 1} further directions of {device}."
        elif pairs:
            more[pairs[0]] = ""
    for check in acceptance.with_verdict(FAIL):
        if (text := more.get(id(check), "")) is not None:
            yield replace(_line(check), more=text)


def _placed(ratio: float) -> float:
    """Return the place of a ratio on a bar, in percent of its width."""
    return 100 * (min(_WIDEST, max(_LEAST, ratio)) - _LEAST) / (_WIDEST - _LEAST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """An operation's figures of all devices at the same moment, each over the median. `cells`: device, text and verdict."""

    operation: str
    cells: Sequence[tuple[str, str, str]]


def _strips(checks: Sequence[Check]) -> list[Strip]:
    groups: dict[tuple[str, ...], list[Check]] = {}
    for check in checks:
        if check.place is not None and check.ratio is not None:
            stack = f", {check.stack}" if check.names_stack else ""
            groups.setdefault((f"{check.operation}{stack}", check.machine, check.devices), []).append(check)
    return [
        Strip(
            operation=operation,
            cells=[(c.where, f"{100 * math.exp(c.ratio.log):.1f} %", c.judged.verdict) for c in group if c.ratio],
        )
        for (operation, *_), group in groups.items()
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Peers:
    """What each GPU of a machine copied into the memory of each other one, in pairs. `rows`: a GPU, and per other one a text
    with its verdict; both empty where nothing was measured.
    """

    operation: str
    names: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, str]]]]


def _peers(checks: Sequence[Check]) -> list[Peers]:
    tables: dict[tuple[str, ...], dict[tuple[str, ...], Check]] = {}
    for check in checks:
        if check.is_of_pair:
            stack = f", {check.stack}" if check.names_stack else ""
            tables.setdefault((f"{check.title}{stack}", check.machine), {})[check.ends] = check
    return [
        Peers(
            operation=f"{machine}: {title}" if next(iter(table.values())).is_of_several else title,
            names=(names := sorted({end for ends in table for end in ends}, key=lambda name: int(name.lstrip("gpu")))),
            rows=[(row, [_direction(table.get((row, column))) for column in names]) for row in names],
        )
        for (title, machine), table in tables.items()
    ]


def _direction(check: Check | None) -> tuple[str, str]:
    return (figure(check.value), check.judged.verdict) if check else ("", "")


def render(acceptance: Acceptance, runs: Sequence[str], command: str, brand: Brand = OURS) -> str:
    """Render the certificate. `runs`: their ids."""
    launches = [launch for check in acceptance.checks for launch in check.launches]
    started = min((launch.unix_seconds for launch in launches), default=math.nan)
    ordered = [check for verdict in judging.VERDICTS for check in acceptance.with_verdict(verdict)]
    devices = ", ".join(dict.fromkeys(map(page.hardware, acceptance.hosts.values())))
    return page.render(
        "accept.html.j2",
        brand=brand,
        title=f"{devices}: {count(len(acceptance.checks), 'check')}",
        answer=answer(acceptance),
        counts={verdict: number for verdict, number in acceptance.counts.items() if number},
        when=utc(started),
        failed=[*_failed_lines(acceptance)],
        lines=[_line(check) for check in ordered if not check.is_of_pair],
        directions=sum(check.is_of_pair for check in ordered),
        references=list(dict.fromkeys(check.reference.source for check in ordered if check.reference)),
        published=_published(acceptance.checks),
        published_decides=any(check.reference and check.reference.kind == judging.PUBLISHED for check in ordered),
        strips=_strips(acceptance.checks),
        peers=_peers(acceptance.checks),
        course=[
            row
            for machine in acceptance.hosts
            for row in _course(machine if len(acceptance.hosts) > 1 else "", acceptance.launches_of(machine))
        ],
        record=[row for machine, host in acceptance.hosts.items() for row in _record(host, acceptance.launches_of(machine))],
        notes=acceptance.notes,
        command=command,
        runs=runs,
        wrongly=f"{100 * judging.WRONGLY:g}",
    )


_AT_ENDS = 0.25
"""The share of a device's launches that its course begins, and ends, with."""


def _course(machine: str, launches: Sequence[Launch]) -> Iterator[tuple[str, str]]:
    """Yield for each GPU of a machine how its clock and its temperature went in the timed windows, from the first launches to
    the last, and how many memory errors were counted meanwhile.
    """
    each: dict[int, list[list[dict[str, Any]]]] = {}
    for launch in sorted({launch.path: launch for launch in launches}.values(), key=lambda launch: launch.unix_seconds):
        for place, number in enumerate(launch.devices.indices):
            if readings := readings_of(launch, place):
                each.setdefault(number, []).append(readings)
    for number, of_launches in sorted(each.items()):
        few = max(1, round(_AT_ENDS * len(of_launches)))
        begin, end = (list(chain.from_iterable(part)) for part in (of_launches[:few], of_launches[-few:]))
        every = list(chain.from_iterable(of_launches))
        parts = [
            _went(begin, end, every, "sm_clock_mhz", "MHz", min),
            _went(begin, end, every, "temperature_celsius", "°C", max),
        ]
        for kind in ("corrected", "uncorrected"):
            if counts := known(every, f"ecc_{kind}"):
                parts.append(f"{max(counts) - min(counts):.0f} {kind} memory errors")
        yield f"{machine} gpu{number}".strip(), ", ".join(filter(None, parts))


def _went(
    begin: Sequence[dict[str, Any]], end: Sequence[dict[str, Any]], every: Sequence[dict[str, Any]], key: str, unit: str,
    worst: Callable[[Sequence[float]], float],
) -> str:  # fmt: skip
    values = [known(part, key) for part in (begin, end, every)]
    if not all(values):
        return ""
    least = "at least" if worst is min else "at most"
    return f"{mean_of(values[0]):.0f} → {mean_of(values[1]):.0f} {unit} ({least} {worst(values[2]):.0f})"


def _published(checks: Sequence[Check]) -> list[str]:
    """Return the published figures of the operations that were checked, each once."""
    return list(
        dict.fromkeys(
            f"{check.title}: {figure(other.value)} {check.unit}/s, {other.source}"
            for check in checks for other in check.beside if other.kind == judging.PUBLISHED
        )
    )  # fmt: skip


def _record(host: Mapping[str, object], launches: Sequence[Launch]) -> Iterator[tuple[str, str]]:
    """Yield what is known of the machine and of the software."""
    named = {
        "machine": "name", "board": "board", "firmware": "firmware", "CPU": "cpu", "kernel": "kernel", "system": "os",
        "driver": "driver", "CUDA of the driver": "cuda_driver", "governor": "governor", "NUMA nodes": "numa_nodes",
    }  # fmt: skip
    yield from ((word, str(host[key])) for word, key in named.items() if host.get(key) not in (None, ""))
    gpus = [gpu for gpu in host.get("gpus") or () if isinstance(gpu, Mapping)]  # type: ignore[attr-defined]
    for word, key in (
        ("power limits", "power_limit_watts"),
        ("links", "pcie"),
        ("IOMMU", "iommu"),
        ("ACS redirects at", "acs"),
        ("VBIOS", "vbios"),
        ("memory repairs", "repairs"),
    ):
        values = [str(gpu[key]) for gpu in gpus if gpu.get(key) is not None]
        if values:
            yield word, ", ".join(f"{values.count(value)} × {value}" for value in dict.fromkeys(values))
    reported = next((launch.reported for launch in launches if launch.reported), ContainerReport())
    for word, value in (("PyTorch", reported.torch), ("NCCL", reported.nccl), ("Python", reported.python)):
        if value:
            yield word, str(value)
    yield "cooling", "not read"
