"""What a result file of another tool says, in one form for all tools: cases, figures and their definitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """What a figure is of: its unit here, and whether more of it is better."""

    unit: str
    more_is_better: bool = False


QUANTITIES = {
    "requests": Quantity(unit="requests/s", more_is_better=True),
    "goodput": Quantity(unit="requests/s", more_is_better=True),
    "output tokens": Quantity(unit="tokens/s", more_is_better=True),
    "input tokens": Quantity(unit="tokens/s", more_is_better=True),
    "all tokens": Quantity(unit="tokens/s", more_is_better=True),
    "prompt processing": Quantity(unit="tokens/s", more_is_better=True),
    "generation": Quantity(unit="tokens/s", more_is_better=True),
    "prompt and generation": Quantity(unit="tokens/s", more_is_better=True),
    "TTFT": Quantity(unit="ms"),
    "TPOT": Quantity(unit="ms"),
    "ITL": Quantity(unit="ms"),
    "latency": Quantity(unit="ms"),
    "prefill": Quantity(unit="ms"),
    "decode": Quantity(unit="ms"),
    "training": Quantity(unit="samples/s", more_is_better=True),
    "inference": Quantity(unit="samples/s", more_is_better=True),
    "step": Quantity(unit="ms"),
    "samples": Quantity(unit="samples/s", more_is_better=True),
    "time": Quantity(unit="s"),
    "algorithm bandwidth": Quantity(unit="GB/s", more_is_better=True),
    "bus bandwidth": Quantity(unit="GB/s", more_is_better=True),
    "bandwidth": Quantity(unit="GB/s", more_is_better=True),
    "collective": Quantity(unit="us"),
    "memory latency": Quantity(unit="ns"),
}  # fmt: skip
"""Each quantity, under the name that tables show. Figures are of one kind if quantity, statistic and definition are."""


Amount: TypeAlias = str | float | None
"""What decides how much work a case is: a number or a word; None is unknown."""
BETWEEN_EVENTS = "between events, over all gaps of all requests"
ESTIMATED = "estimated"
"""The beginning of a statistic that the tool estimates to lie above the one it saw."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A figure of a case: above 0, in the unit of its quantity.

    `statistic`: mean, median, p99, …; "" for a rate over the whole run. `definition`: what was divided by what, in the words of
    the field; figures with other definitions are never compared. `runs`: the figures of fresh processes or repeated runs that
    the file itself holds; of one run it is empty, as repetitions within a process say nothing of another process.
    """

    quantity: str
    value: float
    statistic: str = ""
    definition: str = ""
    runs: tuple[float, ...] = ()

    @property
    def unit(self) -> str:
        """Return its unit."""
        return QUANTITIES[self.quantity].unit

    @property
    def name(self) -> str:
        """Return statistic and quantity."""
        return f"{self.statistic} {self.quantity}".strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Requests:
    """The requests to a server in one run. Times in seconds; None and () are what the file doesn't say.

    `completed` and `failed`: numbers of requests. `duration`: from the first one's start to the last one's end. `concurrency`:
    the most that were sent at once, by what was asked. `rate`: the requests/s that were asked for. `is_closed_loop`: whether
    the next one was sent as soon as one ended.
    `input_tokens` and `output_tokens`: of all completed ones together; `asked_input` and `asked_output`: of each.
    `client_input`, `client_output`: the same as the client's tokenizer counts them, where the file's rates are by that.
    `cached_tokens`: prompt tokens that the server had in its cache. `lengths`, `ttfts`, `latencies`: output tokens, time to the
    first one and whole time of each completed request, in one order; `gaps`: the times between its events.
    `tokens_per_step`: those that speculative decoding accepted at once, on average.
    """

    completed: int | None = None
    failed: int | None = None
    duration: float | None = None
    concurrency: float | None = None
    rate: float | None = None
    is_closed_loop: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    asked_input: float | None = None
    asked_output: float | None = None
    client_input: int | None = None
    client_output: int | None = None
    cached_tokens: int | None = None
    lengths: tuple[float, ...] = ()
    ttfts: tuple[float, ...] = ()
    latencies: tuple[float, ...] = ()
    gaps: tuple[tuple[float, ...], ...] = ()
    tokens_per_step: float | None = None

    @property
    def ended(self) -> int:
        """Return the number of requests that completed or failed, as far as the file says."""
        return (self.completed or 0) + (self.failed or 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One benchmark of a file. `work`: what decides how much is done, by name; two cases are the same work if all of it is
    equal, and a value of None is unknown. `setup`: what it was done with (model, server, device, …).

    `weight_bytes`: that each step of generation reads at least. `sequences`: how many it generates at once, of a tool without
    requests. `device`: a GPU's name, and `devices` their number.
    `problems`: what the file itself says against its figures; None of a tool whose files say nothing of the kind.
    """

    name: str = ""
    work: Mapping[str, Amount] = field(default_factory=dict)
    setup: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[Figure, ...] = ()
    requests: Requests | None = None
    weight_bytes: float | None = None
    sequences: float | None = None
    parameters: float | None = None
    device: str = ""
    devices: int | None = None
    problems: tuple[str, ...] | None = None

    def figure(self, quantity: str, *statistics: str) -> Figure | None:
        """Return the figure of a quantity by the first of these statistics that it has."""
        each = {figure.statistic: figure for figure in self.figures if figure.quantity == quantity}
        return next((each[statistic] for statistic in statistics or ("",) if statistic in each), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignFile:
    """What one file says. `version`: of the tool, "" if it doesn't say. `tried`: the versions whose files were tried with the
    reader, as they begin; () of a tool whose versions say nothing of its files. `began`: a text that sorts by time, "" if
    unknown.
    """

    path: Path
    tool: str
    cases: tuple[Case, ...]
    version: str = ""
    tried: tuple[str, ...] = ()
    began: str = ""

    @property
    def note(self) -> str:
        """Return what a reader must know of its version; "" for one that was tried."""
        if not self.tried:
            return ""
        if not self.version:
            return f"{self.tool}'s file doesn't say its version; read as {self.tried[0]} writes it"
        if any(f"{self.version}.".startswith(f"{tried}.") for tried in self.tried):
            return ""
        return f"{self.tool} {self.version} wasn't tried; read as {self.tried[0]} writes it"
