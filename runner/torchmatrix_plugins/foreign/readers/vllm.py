"""vLLM: the files of `vllm bench serve` (also with --append-result), `latency` and `throughput`."""

from torchmatrix_plugins.foreign.document import Document, Fields
from torchmatrix_plugins.foreign.readers import serving
from torchmatrix_plugins.foreign.results import Case, Figure, ForeignFile, Requests

RATES = {
    "request_throughput": ("requests", serving.OVER_RUN),
    "request_goodput": ("goodput", serving.GOOD),
    "output_throughput": ("output tokens", serving.BY_SERVER),
    "total_token_throughput": ("all tokens", serving.BY_SERVER),
}


def read(document: Document) -> ForeignFile | None:
    """Read what `vllm bench` wrote. It never says its version."""
    objects, first = document.objects, (document.objects or (document.object,))[0]
    if all(key in first for key in ("request_throughput", "total_token_throughput", "burstiness", "num_prompts")):
        cases = tuple(_serve(fields) for fields in objects)
    elif all(key in document.object for key in ("avg_latency", "latencies", "percentiles")):
        cases = (_latency(document.object),)
    elif all(key in document.object for key in ("elapsed_time", "num_requests", "total_num_tokens", "tokens_per_second")):
        cases = (_throughput(document.object),)
    else:
        return None
    return ForeignFile(path=document.path, tool="vLLM", cases=cases, tried=("0.32",), began=first.text("date"))


def _serve(fields: Fields) -> Case:
    figures = serving.of_client(fields, RATES, "e2el")
    asked, completed, failed = (fields.whole(key) for key in ("num_prompts", "completed", "failed"))
    rate, concurrency, bursts = fields.number("request_rate"), fields.positive("max_concurrency"), fields.number("burstiness")
    if failed is None and asked is not None and completed is not None:
        failed = max(0, asked - completed)  # of clients that derive from an earlier one
    ramp = fields.text("ramp_up_strategy")  # which takes no rate
    load = f"{ramp} ramp, {fields.text('ramp_up_start_rps')} to {fields.text('ramp_up_end_rps')} requests/s" if ramp else rate
    requests = Requests(
        completed=completed, failed=failed, duration=fields.positive("duration"), rate=rate, concurrency=concurrency,
        is_closed_loop=load is None and concurrency is not None, input_tokens=fields.whole("total_input_tokens"),
        output_tokens=fields.whole("total_output_tokens"), tokens_per_step=fields.positive("spec_decode_acceptance_length"),
        **serving.each_of(fields),
    )  # fmt: skip
    if requests.latencies and not any(figure.quantity == "latency" for figure in figures):
        mean = 1e3 * sum(requests.latencies) / len(requests.latencies)
        figures.append(Figure(quantity="latency", statistic="mean", value=mean, definition=serving.WHOLE))
    name, work = serving.load(
        requests, load or serving.ALL_AT_ONCE, "poisson" if bursts == 1 else f"gamma, burstiness {bursts}"
    )
    if fields.positive("request_goodput"):
        work["limits of goodput"] = None
    setup = {"model": fields.text("model_id"), "backend": fields.text("backend"), "label": fields.text("label")}
    return Case(name=name, work=work, setup=setup, figures=tuple(figures), requests=requests)


def _latency(fields: Fields) -> Case:
    times = [("mean", fields.positive("avg_latency")), ("median", fields.positive("percentiles", "50"))]
    times += [(f"p{q}", fields.positive("percentiles", q)) for q in ("90", "99")]
    figures = tuple(
        Figure(quantity="latency", statistic=name, value=1e3 * value, definition="one batch in process, over iterations")
        for name, value in times
        if value
    )
    work = dict.fromkeys(("batch", "input tokens", "output tokens"))
    return Case(name="latency", work=work, setup={"model": fields.text("model_id")}, figures=figures)


def _throughput(fields: Fields) -> Case:
    definition = "prompts and output of all requests in process / elapsed time"
    rates = {"requests_per_second": ("requests", definition), "tokens_per_second": ("all tokens", definition)}
    work = {"requests": fields.whole("num_requests"), "all tokens": fields.whole("total_num_tokens")}
    return Case(
        name="throughput", work=work, setup={"model": fields.text("model_id")}, figures=tuple(serving.rates(fields, rates))
    )
