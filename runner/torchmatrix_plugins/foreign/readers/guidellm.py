"""guidellm: the JSON report of `guidellm run` (or `guidellm benchmark run`)."""

from torchmatrix_plugins.foreign.document import MS, Document, Fields
from torchmatrix_plugins.foreign.readers import serving
from torchmatrix_plugins.foreign.results import Case, ForeignFile, Requests

KEYS = {name: (name,) for name in ("mean", "median")} | {q: ("percentiles", q) for q in ("p90", "p95", "p99")}
TIMES = (
    ("time_to_first_token_ms", "TTFT", serving.FIRST, "ms"),
    ("time_per_output_token_ms", "TPOT", "latency / tokens, the first one included, weighted by tokens", "ms"),
    ("inter_token_latency_ms", "ITL", "(latency − TTFT) / (tokens − 1), weighted by tokens", "ms"),
    ("request_latency", "latency", serving.WHOLE, "s"),
)


def read(document: Document) -> ForeignFile | None:
    """Read a report: a case for each benchmark (rate or number of streams)."""
    fields = document.object
    if "guidellm_version" not in fields.part("metadata") or "benchmarks" not in fields:
        return None
    asked = next(iter(fields.parts("config", "spec", "data")), Fields({}, document.name))
    cases = tuple(_case(part, asked) for part in fields.parts("benchmarks"))
    version, began = fields.text("metadata", "guidellm_version"), fields.parts("benchmarks")
    return ForeignFile(
        path=document.path, tool="guidellm", cases=cases, version=version, tried=("0.8",),
        began=began[0].text("start_time") if began else "",
    )  # fmt: skip


def _case(part: Fields, asked: Fields) -> Case:
    metrics = part.part("metrics")
    figures = [
        figure for key, quantity, definition, unit in TIMES
        for figure in serving.times(metrics.part(key, "successful"), quantity, definition, unit, KEYS)
    ]  # fmt: skip
    counted = serving.BY_SERVER if part.flag("config", "prefer_response_metrics") else serving.BY_CLIENT
    rates = {
        "requests_per_second": ("requests", serving.OVER_RUN),
        "output_tokens_per_second": ("output tokens", counted),
        "prompt_tokens_per_second": ("input tokens", counted),
    }
    figures += serving.rates(metrics, rates, "successful", "mean")
    strategy, requests = part.part("config", "strategy"), part.parts("requests", "successful")
    kind, is_exact = strategy.text("type_"), not asked.positive("output_tokens_stdev")
    concurrency = 1.0 if kind == "synchronous" else strategy.positive("streams") or strategy.positive("max_concurrency")
    rate = strategy.positive("rate") if kind in ("constant", "poisson") else None
    output, prompt = (metrics.number(f"{word}_token_count", "successful", "total_sum") for word in ("output", "prompt"))
    cached = [request.number("cached_tokens") for request in requests]
    lengths, ttfts, latencies = _each(requests)
    done = Requests(
        completed=metrics.whole("request_totals", "successful"), failed=metrics.whole("request_totals", "errored"),
        duration=part.positive("duration"), concurrency=concurrency, rate=rate,
        is_closed_loop=kind in ("concurrent", "synchronous") or (kind == "throughput" and concurrency is not None),
        input_tokens=None if prompt is None else int(prompt), output_tokens=None if output is None else int(output),
        asked_output=asked.positive("output_tokens") if is_exact else None,
        asked_input=asked.positive("prompt_tokens") if not asked.positive("prompt_tokens_stdev") else None,
        cached_tokens=None if None in cached or not cached else int(sum(value or 0 for value in cached)),
        lengths=lengths, ttfts=ttfts, latencies=latencies,
    )  # fmt: skip
    name, work = serving.load(done, rate or (serving.ALL_AT_ONCE if kind else None), kind)
    setup = {"model": part.text("config", "backend", "model"), "backend": part.text("config", "backend", "kind")}
    problems = tuple(warning.text("message") for warning in part.parts("warnings"))
    return Case(name=name, work=work, setup=setup, figures=tuple(figures), requests=done, problems=problems)


def _each(requests: list[Fields]) -> tuple[tuple[float, ...], ...]:
    """Return tokens, seconds to the first one and seconds in all, of each request; three times () unless all say them."""
    keys = ("output_tokens", "time_to_first_token_ms", "request_latency")
    columns = [[one.number(key) for one in requests] for key in keys]
    if not requests or any(value is None for column in columns for value in column):
        return (), (), ()
    lengths, first, whole = (tuple(value for value in column if value is not None) for column in columns)
    return lengths, tuple(value / MS["s"] for value in first), whole
