"""Metrics: every figure of a launch that is compared, judged, tabulated and drawn, by name. A new one is one entry in MORE.

From it follow a column of the tables of launches and cells with its meaning, `compare --metric`, a bar in the explorers, an aim
of `advise`, and, where it is `gated`, the nightly verdict.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean
from typing import Any

from torchmatrix.analysis import gpu_specs, sharing, watched
from torchmatrix.core.errors import BadInput
from torchmatrix.facts.launch import Launch, measured_items, throughput
from torchmatrix.facts.wire import END_TO_END, LATENCY, Roof

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}


class Read:
    """A launch, and values that several figures use."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    @cached_property
    def rate(self) -> float:
        """Return items per second."""
        return throughput(self.launch)

    @cached_property
    def seen(self) -> watched.Watched:
        """Return what the telemetry shows."""
        return watched.summarize(self.launch)

    @cached_property
    def shared(self) -> sharing.Shared:
        """Return how it shared its CPUs, and whether others disturbed it."""
        return sharing.shared_by(self.launch)

    @cached_property
    def served(self) -> dict[str, list[float]]:
        """Return the seconds of its requests by kind, the shortest first."""
        return {kind: _served(self.launch, kind) for kind in OF_REQUESTS}

    @cached_property
    def pieces(self) -> dict[str, list[float]]:
        """Return by phase the seconds of each piece of an ok launch, all ranks together, the shortest first."""
        seconds = defaultdict[str, list[float]](list)
        for stream in self.launch.streams if self.launch.is_ok else ():
            seconds[stream.phase] += stream.seconds
        return defaultdict(list, {phase: sorted(times) for phase, times in seconds.items()})

    @cached_property
    def paces(self) -> dict[tuple[str, int], float]:
        """Return the mean seconds of an ok launch's pieces by phase and rank."""
        seconds = defaultdict[tuple[str, int], list[float]](list)
        for stream in self.launch.streams if self.launch.is_ok else ():
            seconds[stream.phase, stream.rank] += stream.seconds
        return {key: fmean(times) for key, times in seconds.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A metric. `of`: its value for a launch, NaN if it has none; `column`: its key in rows of launches and cells; `exported`:
    the name of that column in files. A cell has the median of its launches.

    `unit`: as stored ({unit}: the items' name); in tables as `shown_unit`, `times` as much. `more_is_better`: else less is.
    `gated`: whether `gate` judges it; `drawn`: whether explorers have it. `definition`: its key in the glossary; `meaning`:
    that of the column.
    """

    name: str
    title: str
    unit: str
    shown_unit: str
    of: Callable[[Read], float]
    column: str
    exported: str
    definition: str = ""
    meaning: str = ""
    times: float = 1.0
    more_is_better: bool = True
    gated: bool = False
    drawn: bool = False

    @property
    def is_speed(self) -> bool:
        """Check whether it is a rate or a time: of two, one is faster. Of others, such as the cost, one is better."""
        return self.unit.endswith("/s") or self.unit == "seconds"

    def speed(self, value: float) -> float:
        """Return a value that grows as the metric gets better: the value, or where less is better its inverse."""
        return value if self.more_is_better else 1 / value if value else math.nan

    def said(self, unit: str) -> str:
        """Return the unit of tables for a workload's items."""
        return self.shown_unit.format(unit=unit)

    def in_currency(self, currency: str) -> "Metric":
        """Return the metric with the name of the currency in its units, if it is money."""
        if not currency or self.column != COST.column:
            return self
        return replace(self, unit=currency, shown_unit=self.shown_unit.replace(self.unit, currency))

    def value(self, launch: Launch) -> float:
        """Return the value of a launch that isn't a row yet."""
        return self.of(Read(launch))


def _served(launch: Launch, kind: str) -> list[float]:
    """Return the seconds of each request of one kind that an ok launch served, all ranks together, the shortest first."""
    if not launch.is_ok:
        return []
    return sorted(seconds for requests in launch.requests if requests.kind == kind for seconds in requests.seconds)


def percentile(ordered: Sequence[float], share: int) -> float:
    """Return the nearest rank: the least value that `share` per cent of all don't exceed (ISO 3534-1: sample quantile).

    NaN for fewer values than show one beyond it: 2 for the median, 10 for the 90th, 100 for the 99th; 1 for the largest.
    """
    fewest = 100 / (100 - share) if share < 100 else 1
    return ordered[math.ceil(share * len(ordered) / 100) - 1] if len(ordered) >= fewest else math.nan


def _milliseconds(
    name: str, title: str, share: str, of: Callable[[Read], Sequence[float]], meaning: str, **more: Any
) -> Metric:
    """Return the metric of a share (such as p50) of the seconds that `of` gives, the shortest first."""
    words = {"max": "longest"}.get(share, share)
    return Metric(
        name=f"{name}_{share}", title=f"{title} ({words})", unit="seconds", shown_unit="ms", times=1000.0,
        of=lambda read: percentile(of(read), PERCENTILES[share]), more_is_better=False, column=f"{name}_{share}",
        exported=f"{name}_{share}_seconds", meaning=meaning.format(words), **more,
    )  # fmt: skip


def _requests(kind: str, definition: str, title: str) -> list[Metric]:
    return [
        _milliseconds(
            definition, title, share, lambda read: read.served[kind], f"{title} ({{}}) of this launch's requests",
            definition=definition, gated=share == "p50", drawn=share in ("p50", "p99"),
        )
        for share in PERCENTILES
    ]  # fmt: skip


def _energy(read: Read) -> float:
    """Return joules per item."""
    return read.seen.energy_joules / measured_items(read.launch) if read.launch.windows else math.nan


def inverse(value: float) -> float:
    """Return the inverse; NaN of 0 and of what is unknown."""
    return 1 / value if value and not math.isnan(value) else math.nan


def peak(read: Read, phase: str = "warm") -> float:
    """Return the bytes of the largest process: cold up to the end of the first step, warm during the timed windows."""
    return max((float(max(process.peak_bytes)) for process in read.launch.memory if process.phase == phase), default=math.nan)


PREFILL, DECODE = "prefill", "decode"
"""Phases of a generation: the prompt is read at once, then come tokens one after the other."""


def _rate(phase: str, read: Read) -> float:
    """Return the items per second of a phase of all ranks, while nothing else is done; NaN without it."""
    streams = [stream for stream in read.launch.streams if stream.phase == phase] if read.launch.is_ok else []
    ranks = {stream.rank for stream in streams}
    pieces = [[stream for stream in streams if stream.rank == rank] for rank in ranks]
    rates = [sum(sum(s.items) for s in of_rank) / sum(sum(s.seconds) for s in of_rank) for of_rank in pieces]
    return sum(rates) if rates else math.nan


def _per_token(read: Read) -> list[float]:
    """Return for each request (end to end − time to first token) / (output tokens − 1), the shortest first."""
    spent: dict[tuple[int, int], list[float]] = {}
    for stream in read.launch.streams if read.launch.is_ok else ():
        for request, seconds in zip(stream.requests, stream.seconds, strict=False):
            if stream.phase == DECODE:
                spent.setdefault((stream.rank, request), []).append(seconds)
    return sorted(map(fmean, spent.values()))


def _per_device(read: Read, of: Callable[[Roof, float], float], phase: str) -> float:
    """Return the mean over the ranks of a figure `of` a rank's roof and the mean seconds of its pieces; NaN without a roof."""
    paces = read.paces
    figures = [of(roof, paces[phase, roof.rank]) for roof in read.launch.roofs if (phase, roof.rank) in paces]
    return fmean(figures) if figures else math.nan


def _bandwidth(roof: Roof, seconds: float) -> float:
    """Return the bytes/s that a step of decode reads at least."""
    return (roof.weight_bytes + roof.cache_bytes) / seconds


def _of_data_sheet(read: Read) -> float:
    """Return the bandwidth of decode over that of the devices' data sheet; NaN where it isn't known, or they differ."""
    seen = {(device.name or "", device.memory_bytes) for device in read.launch.seen_devices}
    facts = gpu_specs.find(*seen.pop()) if len(seen) == 1 else None
    peak = facts.bandwidth_gb_per_second if facts else None
    return _per_device(read, _bandwidth, DECODE) / (peak * 1e9 / facts.devices_per_card) if facts and peak else math.nan


_SHARE = {"unit": "fraction", "shown_unit": "%", "times": 100.0}
_OF_ROOFS: tuple[tuple[str, str, str, Callable[[Read], float], Mapping[str, Any]], ...] = (
    ("decode_bandwidth", "bandwidth of decode",
     "bytes that a step reads at least (weights, of experts those touched, and the cache by depth) over its time, per device",
     lambda read: _per_device(read, _bandwidth, DECODE), {"unit": "bytes/s", "shown_unit": "GB/s", "times": 1e-9}),
    ("decode_of_roof", "bandwidth over roof", "the same over the most that the device did in the same launch",
     lambda read: _per_device(read, lambda roof, s: _bandwidth(roof, s) / roof.limit_bytes_per_second, DECODE), _SHARE),
    ("decode_of_data_sheet", "bandwidth over data sheet", "the same over the bandwidth of the device's data sheet",
     _of_data_sheet, _SHARE),
    ("prefill_flops", "FLOP/s of prefill", "FLOPs that the prompts need at least (by formula) over its time, per device",
     lambda read: _per_device(read, lambda roof, s: roof.prefill_flops / s, PREFILL),
     {"unit": "FLOP/s", "shown_unit": "TFLOP/s", "times": 1e-12}),
    ("prefill_of_roof", "prefill over roof", "the same over that of a product of square matrices in the same launch",
     lambda read: _per_device(read, lambda roof, s: roof.prefill_flops / s / roof.product_flops_per_second, PREFILL), _SHARE),
    ("least_token_seconds", "least time per output token", "what a step of decode reads at least over that most",
     lambda read: _per_device(read, lambda roof, _: _bandwidth(roof, roof.limit_bytes_per_second), DECODE),
     {"unit": "seconds", "shown_unit": "ms", "times": 1e3, "more_is_better": False}),
    ("user_rate", "per user", "tokens/s that one user sees: the inverse of the median time per output token",
     lambda read: inverse(percentile(_per_token(read), PERCENTILES["p50"])),
     {"unit": "tokens/s", "shown_unit": "tokens/s"}),
)  # fmt: skip


_OF_TOKENS: tuple[tuple[str, str, str, Callable[[Read], list[float]], tuple[str, ...]], ...] = (
    ("first_token", "time to first token", "from the prompt on the device to its last logits ({})",
     lambda read: read.pieces[PREFILL], ("p50", "p99")),
    ("per_output_token", "time per output token",
     "(end to end - time to first token) / (output tokens - 1), over requests ({})", _per_token, ("p50", "p90", "p99")),
    ("token_step", "step of decode", "one token of each sequence, over steps ({})",
     lambda read: read.pieces[DECODE], ("p50", "p99")),
)  # fmt: skip


_UNITS_IN_FILES = {
    "bytes/s": "_bytes_per_second", "fraction": "_fraction", "FLOP/s": "_per_second", "tokens/s": "_tokens_per_second",
}  # fmt: skip


def _of_generation() -> Iterator[Metric]:
    """Yield the metrics of a generation's phases, whose pieces are timed alone."""
    for phase in (PREFILL, DECODE):
        yield Metric(
            name=f"{phase}_rate", title=phase, unit="tokens/s", shown_unit="tokens/s", of=partial(_rate, phase), drawn=True,
            column=f"{phase}_rate", exported=f"{phase}_tokens_per_second",
            meaning=f"tokens of all ranks' {phase} over its time, each piece timed alone",
        )  # fmt: skip
    for name, title, meaning, values, shares in _OF_TOKENS:
        for share in shares:
            gated = share == "p50" and name != "token_step"
            yield _milliseconds(name, title, share, values, meaning, drawn=True, gated=gated)
    for name, title, meaning, of, units in _OF_ROOFS:
        end = _UNITS_IN_FILES.get(units["unit"], "")
        yield Metric(
            name=name, title=title, of=of, column=name, exported=f"{name}{end}", meaning=meaning, drawn=True, **units
        )  # fmt: skip


THROUGHPUT = Metric(
    name="throughput", title="throughput", unit="{unit}/s", shown_unit="{unit}/s", of=lambda read: read.rate,
    definition="throughput", column="throughput", exported="items_per_second", gated=True, drawn=True,
    meaning="items of all processes in the timed windows over the wall time of the slowest",
)  # fmt: skip
OF_REQUESTS = {
    LATENCY: tuple(_requests(LATENCY, "latency", "latency")),
    END_TO_END: tuple(_requests(END_TO_END, "end_to_end", "end-to-end latency")),
}
"""The metrics of requests by their kind."""
OF_ALL_REQUESTS = frozenset(metric for some in OF_REQUESTS.values() for metric in some)
PERCENTILED = frozenset({
    *(metric.column for metric in OF_ALL_REQUESTS), *(f"{name}_{share}" for name, *_, shares in _OF_TOKENS for share in shares),
})  # fmt: skip
"""The columns of percentiles, which a launch has only if it served enough requests."""
MEMORY = Metric(
    name="memory", title="peak memory", unit="bytes", shown_unit="GiB", times=2**-30, of=peak, more_is_better=False,
    column="peak_bytes", exported="peak_memory_bytes", drawn=True,
    meaning="of the largest process in the timed windows; allocated on a GPU, resident on a CPU",
)  # fmt: skip
ENERGY = Metric(
    name="energy", title="energy per item", unit="J", shown_unit="J", of=_energy, more_is_better=False,
    definition="energy", column="energy_per_item", exported="joules_per_item",
)  # fmt: skip
PER_JOULE = Metric(
    name="per_joule", title="per joule", unit="{unit}/J", shown_unit="{unit} per joule", of=lambda read: inverse(_energy(read)),
    definition="per_joule", column="per_joule", exported="items_per_joule", drawn=True,
    meaning="the inverse: items per second and watt",
)  # fmt: skip
COST = Metric(
    name="cost", title="cost", unit="currency", shown_unit="currency per million {unit}", times=1e6, more_is_better=False,
    of=lambda read: math.nan, definition="cost", column="cost_per_item", exported="cost_per_item", drawn=True,
)  # fmt: skip
"""Known with a price list only, which sets it in rows of launches (prices.charge)."""
PLACED = (THROUGHPUT, *OF_REQUESTS[LATENCY], *OF_REQUESTS[END_TO_END], PER_JOULE, ENERGY, COST, MEMORY)
"""Metrics that have their place among the other columns of tables."""
MORE = (
    Metric(
        name="first_step", title="time to first step", unit="seconds", shown_unit="s", more_is_better=False, drawn=True,
        of=lambda read: read.launch.phases.get("first-step", math.nan), column="first_step_seconds",
        exported="first_step_seconds", meaning="first step, with compilation if there is any",
    ),
    Metric(
        name="per_joule_and_device", title="per joule and device", unit="{unit}/J", shown_unit="{unit} per joule and device",
        of=lambda read: inverse(_energy(read)) / read.launch.devices.count, column="per_joule_and_device", drawn=True,
        exported="items_per_joule_per_device", meaning="items per joule of all devices, over their number",
    ),
    *_of_generation(),
)  # fmt: skip
"""Metrics that tables have behind the others. An entry is all that a metric needs."""
METRICS = (*PLACED, *MORE)
BY_NAME = {metric.name: metric for metric in METRICS}
GATED = tuple(metric for metric in METRICS if metric.gated)


def latency_of(mode: str) -> Metric:
    """Return the latency that a user of this mode waits for: of a request, or in generation the time per output token."""
    return BY_NAME["per_output_token_p50"] if mode == "generate" else OF_REQUESTS[LATENCY][0]


def named(name: str) -> Metric:
    """Return the metric of this name. Raises BadInput if there is none."""
    if name not in BY_NAME:
        raise BadInput(f'unknown metric "{name}"', hint=f"one of {', '.join(BY_NAME)}")
    return BY_NAME[name]
