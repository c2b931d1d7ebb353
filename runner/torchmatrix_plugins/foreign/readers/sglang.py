"""SGLang: the JSON lines of `bench_serving`; each line is a run."""

from torchmatrix_plugins.foreign.document import Document, Fields
from torchmatrix_plugins.foreign.readers import serving
from torchmatrix_plugins.foreign.results import Case, ForeignFile, Requests

RATES = {
    "request_throughput": ("requests", serving.OVER_RUN),
    "input_throughput": ("input tokens", serving.BY_CLIENT),
    "output_throughput": ("output tokens", "tokens as asked for, or as the server counts them / duration of the run"),
    "total_throughput": ("all tokens", "tokens as asked for, or as the server counts them / duration of the run"),
}


def read(document: Document) -> ForeignFile | None:
    """Read what `bench_serving` wrote. Its version is the server's, where that is SGLang."""
    objects = document.objects
    if not objects or not all(
        "total_output_tokens_retokenized" in fields and "random_range_ratio" in fields for fields in objects
    ):
        return None
    version = objects[0].text("server_info", "version")
    return ForeignFile(path=document.path, tool="SGLang", cases=tuple(map(_case, objects)), version=version, tried=("0.5",))


def _case(fields: Fields) -> Case:
    figures = serving.of_client(fields, RATES, "e2e_latency")
    rate, concurrency = fields.data.get("request_rate"), fields.positive("max_concurrency")
    open_loop = fields.positive("request_rate") if not isinstance(rate, str) else None
    exact = fields.text("dataset_name").startswith("random") and fields.number("random_range_ratio") == 1
    each, sent = serving.each_of(fields), len(fields.numbers("output_lens"))
    requests = Requests(
        completed=fields.whole("completed"), duration=fields.positive("duration"), concurrency=concurrency, rate=open_loop,
        failed=sent - len(each["lengths"]) if sent else None,
        is_closed_loop=open_loop is None and rate != "trace" and bool(concurrency),
        input_tokens=fields.whole("total_input_tokens"), output_tokens=fields.whole("total_output_tokens"),
        asked_input=fields.positive("random_input_len") if exact else None,
        asked_output=fields.positive("random_output_len") if exact else None,
        cached_tokens=fields.whole("cache_report", "total_cached_tokens"), tokens_per_step=fields.positive("accept_length"),
        **each,
    )  # fmt: skip
    name, work = serving.load(requests, open_loop or ("as traced" if rate == "trace" else serving.ALL_AT_ONCE), "poisson")
    setup = {"backend": fields.text("backend"), "tag": fields.text("tag"), "model": fields.text("server_info", "model_path")}
    return Case(name=name, work=work, setup=setup, figures=tuple(figures), requests=requests)
