"""Methods of measuring a run: the number of launches, the state of the device, the steps, the statistic of the headline."""

from dataclasses import dataclass, replace

from torchmatrix.core.errors import BadInput

FAST_LAUNCHES = 1
RIGOROUS_LAUNCHES = 5
AB_LAUNCHES = 5
"""The fewest rounds of an A/B that requests no number."""
ADAPTIVE_MINIMUM = 5
ADAPTIVE_MAXIMUM = 30
CONFIRMING = 3
"""Launches per cell with --until 1%: the fewest before a decision, the most, and the number after the decision.

A rule that stops when it sees what it wants covers less than it claims; launches after the decision make up for it. Simulated
for 1 % and a scatter of 0.3 to 3 %: 94 to 96 %, instead of 92 to 95 % without them (tests/analysis/test_simulation.py).
"""
DECIDED = "decided"
"""The `until` that ends when the comparisons of the report are decided."""
FEWEST_TO_DECIDE, DECIDING = 3, 5
"""The launches per cell before the first decision, at least, and those that may follow (docs/method-comparing.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """A method. `name`: steady, cold, aime or sustained. `launches`: per cell; then at most so many `further` ones, until each
    interval is `until` (a ratio) wide, or, without that, until the comparisons of the report are decided.

    `cold_compiles`: how many launches of each compiled cell compile from an empty cache first; the others share one.
    `start_below_celsius`: a launch waits until its devices are cooler, `cool_down_seconds` at most. `steps`: this many per
    window, one window, whatever the workload says. `warm_seconds`: the least length of the warm-up, the length of the only
    window, and how long all devices of the machine are heated before the first launch. `statistic`: median or mean over
    launches. `warms_up`: where the step time drifts, the warm-up goes on until it is steady; else the drift is only reported.
    """

    name: str = "steady"
    launches: int = 3
    statistic: str = "median"
    start_below_celsius: float | None = None
    cool_down_seconds: float = 600.0
    steps: int | None = None
    warm_seconds: float | None = None
    warms_up: bool = True
    further: int = 0
    until: float | None = None
    budget_seconds: float | None = None
    cold_compiles: int = 0


METHODS = {
    "steady": Method(),
    "cold": Method(name="cold", start_below_celsius=50.0, warms_up=False),
    "aime": Method(name="aime", start_below_celsius=50.0, steps=50, statistic="mean", warms_up=False),
    "sustained": Method(name="sustained", warm_seconds=60.0),
}
"""steady: warm up until the step time doesn't drift, and say whether temperature and clock did. cold: begin each launch below a
temperature. aime: as AIME measures, 50 steps from below 50 °C, the mean of 3 (https://github.com/aime-team/pytorch-benchmarks).
sustained: as steady, on a machine that is hot all over: the speed of hardware in permanent use."""
DECIDES_THE_NUMBER = ("name", "statistic", "start_below_celsius", "steps", "parallel", "fork")
"""The fields in which two recorded methods must not differ if their numbers are to be compared. `parallel` and
`fork`, which only launches of earlier versions have: it was measured while launches ran on other devices, or forked from a
process that had imported PyTorch."""


def named(name: str) -> Method:
    """Return the method of that name. Raises BadInput."""
    if name not in METHODS:
        raise BadInput(f'unknown method "{name}"', hint=f"methods: {', '.join(METHODS)}")
    return METHODS[name]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The command line's changes of the method; None keeps the matrix's setting, but for `at_least` so many launches.

    `until`: such as "1%", or DECIDED.
    """

    method: str | None = None
    launches: int | None = None
    fast: bool = False
    rigorous: bool = False
    until: str | None = None
    budget_minutes: float | None = None
    cold_compiles: int | None = None
    at_least: int = 1

    def applied(self, given: Method) -> Method:
        """Return the method `given` with the changes. Raises BadInput for contradictions."""
        options = {"--launches": self.launches, "--fast": self.fast, "--rigorous": self.rigorous, "--until": self.until}
        chosen_options = [option for option, value in options.items() if value not in (None, False)]
        if len(chosen_options) > 1:
            raise BadInput(f"{' and '.join(chosen_options)} contradict each other", hint="choose one number of launches")
        chosen = given
        if self.method:
            kept = ("launches", "further", "until", "cool_down_seconds", "cold_compiles")
            chosen = replace(named(self.method), **{name: getattr(given, name) for name in kept})
        if self.cold_compiles is not None:
            chosen = replace(chosen, cold_compiles=self.cold_compiles)
        if fixed := self.launches or (FAST_LAUNCHES if self.fast else RIGOROUS_LAUNCHES if self.rigorous else 0):
            chosen = replace(chosen, launches=fixed, further=0, until=None)
        elif self.until is not None:
            chosen = until(chosen, self.until)
        if self.budget_minutes is not None and not chosen.further:
            raise BadInput("--budget works only with --until", hint="--until 1% --budget 120")
        budget = None if self.budget_minutes is None else 60 * self.budget_minutes
        return replace(chosen, launches=fixed or max(chosen.launches, self.at_least), budget_seconds=budget)


def until(given: Method, text: str) -> Method:
    """Return the method with further launches until what `text` says: a percentage or DECIDED. Raises BadInput."""
    if text == DECIDED:
        return replace(given, launches=max(given.launches, FEWEST_TO_DECIDE), further=DECIDING, until=None)
    try:
        ratio = float(text.removesuffix("%")) / 100
    except ValueError:
        ratio = 0.0
    if not text.endswith("%") or not 0 < ratio < 1:
        hint = f'the half-width of the interval to reach, such as 1%, or "{DECIDED}"'
        raise BadInput(f"until {text!r} is not a percentage", hint=hint)
    return replace(given, launches=ADAPTIVE_MINIMUM, further=ADAPTIVE_MAXIMUM - ADAPTIVE_MINIMUM, until=ratio)
