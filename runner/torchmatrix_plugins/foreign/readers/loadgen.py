"""MLPerf's LoadGen: mlperf_log_summary.txt, which says neither version nor date."""

import re
from collections.abc import Iterator

from torchmatrix_plugins.foreign.document import MS, Document
from torchmatrix_plugins.foreign.results import ESTIMATED, Amount, Case, Figure, ForeignFile

_LINE = re.compile(r"^ *\*? *(.+?) *: *(\S.*?) *$")
_PERCENTILE = re.compile(r"(\d+(?:\.\d+)?)(?:th)? percentile latency \(ns\)")
_ESTIMATE = re.compile(r"Early stopping (\d+(?:\.\d+)?)th percentile estimate")
_RATES = {
    "Completed samples per second": ("samples", "completed / duration"),
    "Samples per second": ("samples", "completed / duration"),
    "Completed tokens per second": ("output tokens", "as the system under test counts them / duration"),
    "Tokens per second": ("output tokens", "as the system under test counts them / duration"),
}  # fmt: skip


def read(document: Document) -> ForeignFile | None:
    """Read a summary."""
    if "MLPerf Results Summary" not in document.text[:500]:
        return None
    said: dict[str, str] = {}
    for line in document.text.splitlines():
        if match := _LINE.match(line):
            said.setdefault(match[1], match[2])
    scenario, samples = said.get("Scenario", ""), _number(said.get("samples_per_query"))
    work: dict[str, Amount] = {"scenario": scenario or None, "mode": said.get("Mode")}
    if scenario == "Server":
        work["asked queries/s"] = _number(said.get("target_qps"))
    if scenario != "Offline":
        work["samples per query"] = samples
    case = Case(
        name=scenario, work=work, setup={"system under test": said.get("SUT name", "")},
        figures=tuple(_figures(said, scenario)), problems=tuple(_problems(said)),
    )  # fmt: skip
    return ForeignFile(path=document.path, tool="LoadGen", cases=(case,), tried=("6.0",))


def _figures(said: dict[str, str], scenario: str) -> Iterator[Figure]:
    for key, (quantity, definition) in _RATES.items():
        if value := _number(said.get(key)):
            yield Figure(quantity=quantity, value=value, definition=f"{definition}, {scenario}")
    definition = f"of a query, {scenario}"
    if mean := _number(said.get("Mean latency (ns)")):
        yield Figure(quantity="latency", statistic="mean", value=mean * MS["ns"], definition=definition)
    seen = set()
    for key, text in said.items():
        estimate = _ESTIMATE.fullmatch(key)
        match = estimate or _PERCENTILE.fullmatch(key)
        if match and (value := _number(text)):
            percent = float(match[1])
            name = "median" if percent == 50 else f"p{percent:g}".replace(".", "")
            name = f"{ESTIMATED} {name}" if estimate else name
            if name not in seen:
                seen.add(name)
                yield Figure(quantity="latency", statistic=name, value=value * MS["ns"], definition=definition)


def _problems(said: dict[str, str]) -> Iterator[str]:
    if (result := said.get("Result is", "")) != "VALID":
        missed = [
            key.removesuffix(" satisfied").lower() for key, text in said.items() if text == "NO" and key.endswith(" satisfied")
        ]
        yield f"the result is {result or 'not stated'}" + (f": not satisfied: {', '.join(missed)}" if missed else "")
    if said.get("Mode") not in (None, "PerformanceOnly"):
        yield f"the mode is {said['Mode']}"


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
