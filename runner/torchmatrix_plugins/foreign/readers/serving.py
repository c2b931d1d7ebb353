"""What clients of serving engines have in common: rates over the whole run, times of requests, percentiles."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchmatrix_plugins.foreign.document import Fields
from torchmatrix_plugins.foreign.results import BETWEEN_EVENTS, Amount, Figure, Requests

OVER_RUN = "completed / duration of the run"
BY_SERVER = "tokens as the server counts them / duration of the run"
BY_CLIENT = "tokens as the client's tokenizer counts them / duration of the run"
GOOD = "requests that meet all limits / duration of the run"
CLIENTS = ", tokens as the client's tokenizer counts them"
FIRST = "from sending to the first event with a token, over requests"
AFTER_FIRST = "(latency − TTFT) / (tokens − 1), over requests"
EVENTS = BETWEEN_EVENTS
WHOLE = "from sending to the last event, over requests"
OTHER_COUNTS = "the client's tokenizer counts other tokens than the server; rates per token and TPOT are by the former"
ALL_AT_ONCE = "all at once"
STATISTICS = ("mean", "median", "p90", "p95", "p99")


def rates(fields: Fields, names: Mapping[str, tuple[str, str]], *path: str) -> list[Figure]:
    """Return the rates of a run, by the key of each: its quantity, and its definition. `path`: leads on from the key."""
    values = ((quantity, definition, fields.positive(key, *path)) for key, (quantity, definition) in names.items())
    return [Figure(quantity=quantity, value=value, definition=definition) for quantity, definition, value in values if value]


def times(
    part: Fields, quantity: str, definition: str, unit: str, keys: Mapping[str, tuple[str, ...]] | None = None
) -> list[Figure]:
    """Return the figures of a time, by statistic. `keys`: where each statistic stands in the part, by its name here."""
    paths, scale = keys or {name: (name,) for name in STATISTICS}, part.milliseconds(unit) if part.data else 1.0
    found = ((statistic, part.positive(*path)) for statistic, path in paths.items())
    return [
        Figure(quantity=quantity, statistic=statistic, value=value * scale, definition=definition)
        for statistic, value in found
        if value
    ]


def flat(fields: Fields, key: str, quantity: str, definition: str, statistics: Iterable[str] = STATISTICS) -> list[Figure]:
    """Return the figures of a time whose keys are STATISTIC_KEY_ms, as vLLM and SGLang write them."""
    return times(fields, quantity, definition, "ms", {name: (f"{name}_{key}_ms",) for name in statistics})


def load(requests: Requests, rate: float | str | None, arrivals: str | None = None) -> tuple[str, dict[str, Amount]]:
    """Return the name of a load, and what decides how much work it is.

    `rate`: requests/s, or in words how else they were sent, such as ALL_AT_ONCE; None is unknown. `arrivals`: those of a rate.
    """
    concurrency, number = requests.concurrency, requests.completed
    work: dict[str, Amount] = {"concurrency": concurrency, "rate": rate}
    if concurrency is None and rate is not None:
        work["concurrency"] = "without a limit"
        if rate == ALL_AT_ONCE:
            work["requests at once"] = requests.ended or None
    if isinstance(rate, float):
        work["arrivals"] = arrivals
    totals = {"input tokens": requests.input_tokens, "output tokens": requests.output_tokens}
    work |= {f"{word} per request": total / number if total is not None and number else None for word, total in totals.items()}
    parts = [f"{rate:g} requests/s" if isinstance(rate, float) else "", f"concurrency {concurrency:g}" if concurrency else ""]
    return " ".join(filter(None, parts)) or str(rate or ""), work


def of_client(fields: Fields, rates_of: Mapping[str, tuple[str, str]], latency: str) -> list[Figure]:
    """Return the figures of a run, under the keys that vLLM's and SGLang's clients share. `latency`: their key of it."""
    return [
        *rates(fields, rates_of), *flat(fields, "ttft", "TTFT", FIRST), *flat(fields, "tpot", "TPOT", AFTER_FIRST),
        *flat(fields, "itl", "ITL", EVENTS), *flat(fields, latency, "latency", WHOLE),
    ]  # fmt: skip


def each_of(fields: Fields) -> dict[str, Any]:
    """Return the lists of Requests, of those that completed, as these clients write them; a failed one has no output."""
    lengths = fields.numbers("output_lens")
    done = [place for place, length in enumerate(lengths) if length > 0]

    def chosen(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[place] for place in done) if len(values) == len(lengths) else ()

    each = {"lengths": lengths, "ttfts": fields.numbers("ttfts"), "latencies": fields.numbers("latencies")}
    return {**{name: chosen(values) for name, values in each.items()}, "gaps": chosen(fields.lists("itls"))}
