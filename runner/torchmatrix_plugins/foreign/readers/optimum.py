"""optimum-benchmark: benchmark_report.json, and benchmark.json, which holds the configuration, too."""

from torchmatrix_plugins.foreign.document import MS, Document, Fields
from torchmatrix_plugins.foreign.results import Amount, Case, Figure, ForeignFile

TARGETS = {"prefill": "prefill", "decode": "decode", "forward": "latency", "call": "latency", "train": "step"}
_RATES = {
    "tokens/s": {"prefill": "prompt processing", "decode": "generation"},
    "samples/s": {"forward": "inference", "train": "training"},
}


def read(document: Document) -> ForeignFile | None:
    """Read one case."""
    whole = document.object
    report = whole.part("report") if "report" in whole else whole
    if not any("latency" in report.part(name) for name in TARGETS if isinstance(report.data.get(name), dict)):
        return None
    if "report" not in whole and "load_model" not in report and "load" not in report and "per_token" not in report:
        return None
    config = whole.part("config") if "config" in whole else Fields({}, document.name)
    scenario = config.part("scenario")
    work: dict[str, Amount] = {"batch": scenario.number("input_shapes", "batch_size")}
    work |= {"sequence length": scenario.number("input_shapes", "sequence_length")}
    work |= {"new tokens": scenario.number("generate_kwargs", "max_new_tokens")}
    setup = {"model": config.text("backend", "model"), "backend": config.text("backend", "name")}
    setup["precision"] = config.text("backend", "dtype") or config.text("backend", "torch_dtype")
    figures = tuple(figure for name in TARGETS for figure in _figures(report, name))
    return ForeignFile(
        path=document.path, tool="optimum-benchmark", cases=(Case(work=work, setup=setup, figures=figures),),
        version=config.text("environment", "optimum_benchmark_version"), tried=("0.6",),
    )  # fmt: skip


def _figures(report: Fields, name: str) -> list[Figure]:
    part = report.part(name, "latency")
    unit, figures = part.text("unit") or "s", []
    for statistic, key in (("mean", "mean"), ("median", "p50"), ("p90", "p90"), ("p99", "p99")):
        if value := part.positive(key):
            definition = "of the whole batch, over iterations in one process"
            figures.append(
                Figure(quantity=TARGETS[name], statistic=statistic, value=value * MS.get(unit, MS["s"]), definition=definition)
            )
    rate, per = report.positive(name, "throughput", "value"), report.text(name, "throughput", "unit")
    if rate and (quantity := _RATES.get(per, {}).get(name)):
        figures.append(Figure(quantity=quantity, value=rate, definition="work of an iteration / mean latency"))
    return figures
