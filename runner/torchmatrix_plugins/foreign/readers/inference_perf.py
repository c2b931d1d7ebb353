"""inference-perf: its lifecycle reports (JSON), and the report of llm-d 0.2 (YAML or JSON), which others write, too."""

from torchmatrix_plugins.foreign.document import Document, Fields
from torchmatrix_plugins.foreign.readers import serving
from torchmatrix_plugins.foreign.results import Case, Figure, ForeignFile, Requests

_TIMES = {
    "time_to_first_token": ("TTFT", serving.FIRST),
    "time_per_output_token": ("TPOT", "(last token − first) / (tokens − 1), over requests" + serving.CLIENTS),
    "inter_token_latency": ("ITL", "between tokens, over all gaps of all requests" + serving.CLIENTS),
    "request_latency": ("latency", serving.WHOLE),
}  # fmt: skip
_RATES = {
    "request": ("requests", serving.OVER_RUN), "input_token": ("input tokens", serving.BY_SERVER),
    "output_token": ("output tokens", serving.BY_CLIENT),
}  # fmt: skip
_NATIVE_RATES = {f"{word}s_per_sec": about for word, about in _RATES.items()}
_REPORT_RATES = {f"{word}_rate": about for word, about in _RATES.items()}
_P = {f"p{q}": (f"p{q}",) for q in (90, 95, 99)}


def read(document: Document) -> ForeignFile | None:
    """Read a report. Neither kind says the version of inference-perf; the report of llm-d says that of its schema."""
    fields = document.object
    if all(key in fields for key in ("load_summary", "successes", "failures")):
        return ForeignFile(path=document.path, tool="inference-perf", cases=(_native(fields),), tried=("0.7",))
    report = document.yaml or fields
    if report.part("results", "request_performance", "aggregate").data:
        return ForeignFile(
            path=document.path, tool="llm-d report", cases=(_report(report),), version=report.text("version"), tried=("0.2",),
            began=report.text("run", "time", "start"),
        )  # fmt: skip
    return None


def _native(fields: Fields) -> Case:
    good = fields.part("successes")
    keys = {"mean": ("mean",), "median": ("median",)} | _P
    figures = [
        figure for key, about in _TIMES.items() for figure in serving.times(good.part("latency", key), *about, "s", keys)
    ]
    figures += serving.rates(good.part("throughput"), _NATIVE_RATES)
    concurrency = fields.positive("load_summary", "concurrency")
    requests = Requests(
        completed=good.whole("count"), failed=fields.whole("failures", "count"),
        duration=fields.positive("benchmark_time_seconds"), concurrency=concurrency, is_closed_loop=concurrency is not None,
        rate=None if concurrency else fields.positive("load_summary", "requested_rate"),  # else it is the number of requests
        input_tokens=good.whole("prompt_tokens", "total"), output_tokens=good.whole("output_tokens", "total"),
        client_output=_total(good, "output_len"), cached_tokens=good.whole("prompt_tokens", "cached"),
    )  # fmt: skip
    name, work = serving.load(requests, requests.rate or (serving.ALL_AT_ONCE if concurrency else None))
    problems = []
    if wrong := good.whole("token_count_mismatches"):
        problems.append(f"of {wrong} requests {serving.OTHER_COUNTS}")
    load = fields.part("load_summary")
    if "requested_rate" not in load and "concurrency" not in load:
        problems.append("its rates are also over the time between stages; stage_N_lifecycle_metrics.json has each")
    return Case(name=name, work=work, figures=tuple(figures), requests=requests, problems=tuple(problems))


def _total(good: Fields, key: str) -> int | None:
    mean, count = good.number(key, "mean"), good.number("count")
    return None if mean is None or count is None else round(mean * count)


def _report(report: Fields) -> Case:
    whole = report.part("results", "request_performance", "aggregate")
    keys = {"mean": ("mean",), "median": ("p50",)} | _P
    figures: list[Figure] = []
    for key, about in _TIMES.items():
        part = whole.part("latency", key)
        figures += serving.times(part, *about, part.text("units").split("/")[0] or "s", keys)
    figures += serving.rates(whole.part("throughput"), _REPORT_RATES, "mean")
    total, failed = whole.whole("requests", "total"), whole.whole("requests", "failures")
    completed = total - failed if total is not None and failed is not None else None
    each = {key: whole.number("requests", f"{key}_length", "mean") for key in ("input", "output")}
    tokens = {key: round(value * completed) if value is not None and completed else None for key, value in each.items()}
    requests = Requests(completed=completed, failed=failed, input_tokens=tokens["input"], output_tokens=tokens["output"])
    _, work = serving.load(requests, None)
    return Case(work=work, figures=tuple(figures), requests=requests)
