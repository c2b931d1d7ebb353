"""AIPerf: profile_export_aiperf.json of a run. Its aggregates of several runs have no figure of each, so the runs are read."""

from datetime import datetime

from torchmatrix_plugins.foreign.document import Aggregate, Document, Fields
from torchmatrix_plugins.foreign.readers import serving
from torchmatrix_plugins.foreign.results import Case, ForeignFile, Requests

_KEYS = {"mean": ("avg",), "median": ("p50",), "p90": ("p90",), "p95": ("p95",), "p99": ("p99",)}
_TIMES = {
    "time_to_first_token": ("TTFT", serving.FIRST), "inter_token_latency": ("TPOT", serving.AFTER_FIRST),
    "inter_chunk_latency": ("ITL", serving.EVENTS), "request_latency": ("latency", serving.WHOLE),
}  # fmt: skip


def read(document: Document) -> ForeignFile | None:
    """Read a run. Raises Aggregate for an aggregate."""
    fields = document.object
    if "aiperf_version" not in fields:
        return None
    if "request_latency" not in fields and "metadata" in fields:
        runs = fields.text("metadata", "num_successful_runs")
        raise Aggregate(f"{document.path} sums up {runs} runs", hint="name the folder profile_runs beside it: each run is read")
    return ForeignFile(
        path=document.path, tool="AIPerf", cases=(_case(fields),), version=fields.text("aiperf_version"), tried=("0.13",),
        began=fields.text("start_time"),
    )  # fmt: skip


def _case(fields: Fields) -> Case:
    config = fields.part("input_config")
    of_server = config.flag("endpoint", "use_server_token_count")
    counted = serving.BY_SERVER if of_server else serving.BY_CLIENT
    rates = {
        "request_throughput": ("requests", serving.OVER_RUN), "output_token_throughput": ("output tokens", counted),
        "input_token_throughput": ("input tokens", counted), "total_token_throughput": ("all tokens", counted),
        "goodput": ("goodput", serving.GOOD),
    }  # fmt: skip
    figures = [
        figure for key, about in rates.items() for figure in serving.rates(fields.part(key), {"avg": about})
    ]  # fmt: skip
    for key, (quantity, definition) in _TIMES.items():
        by_client = serving.CLIENTS if quantity == "TPOT" and not of_server else ""
        figures += serving.times(fields.part(key), quantity, definition + by_client, fields.text(key, "unit") or "ms", _KEYS)
    phase = next((one for one in config.parts("phases") if one.text("kind") == "profiling"), Fields({}, fields.place))
    asked = next(iter(config.parts("datasets")), Fields({}, fields.place))
    concurrency, rate = phase.positive("concurrency"), phase.positive("rate") or phase.positive("request_rate")
    client = {word: fields.whole(f"total_{word}", "avg") for word in ("isl", "osl")}
    server = {
        word: fields.whole(f"total_usage_{key}_tokens", "avg") for word, key in (("isl", "prompt"), ("osl", "completion"))
    }
    requests = Requests(
        completed=fields.whole("request_count", "avg"), failed=fields.whole("error_request_count", "avg") or 0,
        duration=_window(fields), concurrency=concurrency, rate=rate, is_closed_loop=phase.text("type") == "concurrency",
        input_tokens=server["isl"] or client["isl"], output_tokens=server["osl"] or client["osl"],
        client_input=client["isl"], client_output=client["osl"], asked_input=_exact(asked, "isl"),
        asked_output=_exact(asked, "osl"), cached_tokens=fields.whole("usage_prompt_cached_tokens", "sum"),
    )  # fmt: skip
    name, work = serving.load(requests, rate or (serving.ALL_AT_ONCE if concurrency else None), phase.text("type"))
    work |= {"limits of goodput": None} if fields.positive("goodput", "avg") else {}
    setup = {
        "model": ", ".join(one.text("name") for one in config.parts("models", "items")),
        "endpoint": config.text("endpoint", "type"),
    }
    return Case(
        name=name,
        work=work,
        setup=setup,
        figures=tuple(figures),
        requests=requests,
        problems=tuple(_problems(fields, of_server)),
    )


def _window(fields: Fields) -> float | None:
    """Return the seconds that rates are over: from start to end, which benchmark_duration is shorter than."""
    try:
        begin, end = (datetime.fromisoformat(fields.text(key)) for key in ("start_time", "end_time"))
        return (end - begin).total_seconds()
    except (ValueError, TypeError):
        return None


def _exact(asked: Fields, key: str) -> float | None:
    return None if asked.positive("prompts", key, "stddev") else asked.positive("prompts", key, "mean")


def _problems(fields: Fields, of_server: bool) -> list[str]:
    problems = ["the run was cancelled"] if fields.flag("was_cancelled") else []
    server, client = fields.positive("total_usage_completion_tokens", "avg"), fields.positive("total_osl", "avg")
    if server and client and not of_server and server != client:
        problems.append(f"{client:,.0f} output tokens, {server:,.0f} of the server: {serving.OTHER_COUNTS}")
    return problems
