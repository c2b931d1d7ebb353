"""optimum-benchmark: benchmark_report.json, and benchmark.json, which holds the configuration, too."""

from collections.abc import Iterator

from torchmatrix_plugins.foreign.document import Document, Fields
from torchmatrix_plugins.foreign.results import Amount, Case, Figure, ForeignFile

TARGETS = {"prefill": "prefill", "decode": "decode", "forward": "latency", "call": "latency", "train": "step"}


def read(document: Document) -> ForeignFile | None:
    """Read one case."""
    whole = document.object
    report = whole.part("report") if "report" in whole else whole
    targets = [name for name in TARGETS if report.is_object(name) and "latency" in report.part(name)]
    if not targets or not ("report" in whole or {"load_model", "load", "per_token", "generate"} & {*report.data}):
        return None
    config = whole.part("config")
    shapes, tokens = config.part("scenario", "input_shapes"), config.whole("scenario", "generate_kwargs", "max_new_tokens")
    work: dict[str, Amount] = {"batch": shapes.number("batch_size"), "sequence length": shapes.number("sequence_length")}
    setup = {"model": config.text("backend", "model"), "backend": config.text("backend", "name")}
    setup["precision"] = config.text("backend", "dtype") or config.text("backend", "torch_dtype")
    figures = tuple(figure for name in targets for figure in _figures(report, name))
    case = Case(
        work=work | {"new tokens": tokens}, setup=setup, figures=figures, problems=tuple(_problems(report, tokens)),
        sequences=shapes.positive("batch_size"),
    )  # fmt: skip
    version = config.text("environment", "optimum_benchmark_version")
    return ForeignFile(path=document.path, tool="optimum-benchmark", cases=(case,), version=version, tried=("0.6",))


def _figures(report: Fields, name: str) -> Iterator[Figure]:
    part = report.part(name, "latency")
    scale = part.milliseconds(part.text("unit") or "s")
    for statistic, key in (("mean", "mean"), ("median", "p50"), ("p90", "p90"), ("p99", "p99")):
        if value := part.positive(key):
            yield Figure(quantity=TARGETS[name], statistic=statistic, value=value * scale, definition=_OVER)
    rate, per = report.positive(name, "throughput", "value"), report.text(name, "throughput", "unit")
    if rate and (quantity := _RATES.get((name, per))):
        yield Figure(quantity=quantity, value=rate, definition="batch, or its tokens after the first, / mean latency")


def _problems(report: Fields, tokens: int | None) -> Iterator[str]:
    """Yield what is known to be wrong of 0.6: times per token are summed up over all calls, and a rate has another unit."""
    gaps, calls = report.whole("per_token", "latency", "count"), report.whole("decode", "latency", "count")
    if gaps and calls and tokens and gaps != calls * (tokens - 1):
        yield f"per_token holds {gaps} times, but {calls} calls of {tokens} tokens have {calls * (tokens - 1)}: it isn't read"
    rate, samples = report.positive("generate", "throughput", "value"), report.positive("decode", "throughput", "value")
    if rate and samples and report.text("generate", "throughput", "unit") == "samples/s" and rate > samples / 2:
        yield "the unit of generate's throughput is samples/s, and its value that of tokens/s: it isn't read"


_OVER = "of the whole batch, over iterations in one process"
_RATES = {
    ("decode", "tokens/s"): "generation", ("prefill", "tokens/s"): "prompt processing", ("forward", "samples/s"): "inference",
    ("train", "samples/s"): "training",
}  # fmt: skip
