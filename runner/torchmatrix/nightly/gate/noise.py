"""Judge whether a night was slower than those before it, for all cells. The limits are learned from the cells' own nights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from torchmatrix.analysis.centers import central, median_of
from torchmatrix.analysis.intervals import NOTEWORTHY
from torchmatrix.analysis.pairs import pair
from torchmatrix.analysis.special import ndtri
from torchmatrix.nightly.gate import learned
from torchmatrix.nightly.gate.learned import RECENT, Array

MEMORY = 28
"""How many nights show how much a cell differs from night to night; those of the baseline, if they are more."""
ENOUGH = 3
"""With fewer nights, the scatter from night to night is unknown."""
STRAYS_FROM = 7
STRAY = 5.0
"""With this many nights or more, one that is further from its baseline than STRAY robust standard deviations (1.4826 times
the median absolute deviation) says nothing about the usual scatter (B. Iglewicz, D. C. Hoaglin: How to Detect and Handle
Outliers). They advise 3.5; with so few nights, that would take usual nights for strays and underestimate the scatter."""
FAR = 3.5
"""A slow night that was further below than so many standard deviations, and passed, is no baseline for later ones."""
LOW, MOST, MANY = 2.5, 0.5, 4
"""A night is slow as a whole if more than the share MOST of MANY cells or more are LOW standard deviations below."""
LEVEL = 3
"""So many slow nights in a row are a lower level, also if they were slow as a whole."""
EARLY = 0.05
"""As long as the scatter from night to night is unknown, a night must differ by more than this."""
SEEN = 0.8
"""The chance with which a night shows a loss of `Limits.detectable`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Night:
    """A cell in a run. `rates`: items per second of its ok launches; `value`: their median or mean, the night's figure."""

    run: str
    rates: tuple[float, ...]
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of a night: its ratio to `center` (items per second) is slower below `low`, faster above `high`; NaN: unknown.

    `nights`: the runs that make the center; `strays`: nights that were left out of the scatter; `rule`: where the limits come
    from, in words. `detectable`: the loss, as a fraction, that is found to be slower with the chance SEEN.
    """

    center: float
    low: float
    high: float
    nights: tuple[str, ...]
    strays: tuple[str, ...]
    rule: str
    detectable: float = math.nan

    def verdict(self, value: float) -> str:
        """Return slower, faster, ok, or n/a."""
        ratio = value / self.center
        return "n/a" if math.isnan(self.low) else "slower" if ratio < self.low else "faster" if ratio > self.high else "ok"


@dataclass(frozen=True, kw_only=True, slots=True)
class CellVerdict:
    """The verdict on a cell's newest night. `ratio`: over the baseline's center.

    `verdict`: ok; faster; suspected (slower, but not on enough nights); regression; new (without a baseline); n/a (too few
    launches). `why`: the reason for suspected or regression, in words. `before`: the ratios of the nights before it to the
    same baseline, if they were slower too.
    """

    verdict: str
    ratio: float
    limits: Limits | None
    before: tuple[float, ...] = ()
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """The judgement of each cell (row) on each night (column), each from the nights before it alone.

    `nights`: None where a cell has none; `logs`: logarithms of their values; `launches`: how many launches a night had;
    `squares`: the sum of their logarithms' squared deviations. `half`: how far the limits are from the `center` of the
    baseline; `scatter`, `freedom`: the scatter of single nights and its degrees of freedom; `size`: the scatter of a night
    with as few launches; `errors`: how far a night was off, scaled to a single night's scatter; `alike`: the correlation of a
    night with the next. `slow`: below the limit; `far`: so far below that the night is no baseline once it passed; `row`: how
    many slow nights in a row end here; `needed`: how many are a regression; `recent`: how many of the last RECENT were slow;
    `regressed`: the night is a regression.

    By night: `had`: how many cells had limits; `low`: how many of them were low; `whole`: the night was slow as a whole.

    Only for the last night: `used`: nights that may be a baseline for the next one; `baseline`: nights that make its center;
    `window`: nights that show the scatter; `strays`: nights of the window that are left out of the scatter.
    """

    nights: Sequence[Sequence[Night | None]]
    logs: Array
    launches: Array
    squares: Array
    center: Array
    half: Array
    scatter: Array
    size: Array
    freedom: Array
    errors: Array
    alike: Array
    slow: Array
    far: Array
    row: Array
    needed: Array
    recent: Array
    regressed: Array
    had: Array
    low: Array
    whole: Array
    used: Array
    baseline: Array
    window: Array
    strays: Array

    @property
    def single_nights(self) -> Array:
        """Mark nights that were slow as a whole, but not those from the LEVEL-th in a row on."""
        row = np.zeros(len(self.whole), int)
        for now in range(len(row)):
            row[now] = (row[now - 1] if now else 0) + 1 if self.whole[now] else 0
        return self.whole & (row < LEVEL)


def night(run: str, rates: Sequence[float], statistic: str = "median") -> Night:
    """Return the night of a cell whose ok launches had these rates, at least one."""
    return Night(run=run, rates=tuple(rates), value=central(rates, statistic))


def panel(nights: Sequence[Sequence[Night | None]], length: int, count: int = 7, tolerance: float = NOTEWORTHY) -> Panel:
    """Judge each of `length` nights, oldest first, of each cell against the median of the `count` nights before it.

    Slow nights in a row are no baseline for the next one, however many they are: it is judged by the nights before the first
    of them. Single nights that were FAR below and nights that were slow as a whole are no baseline either. From ENOUGH nights
    on, a night is slow on the logarithms below

        m - k · s · √(1 + v(n))

    and below 1 - `tolerance`. v(n) is the variance of the median m over that of a night; s the root mean square of what each
    of the last MEMORY nights was off from its own m, over √(1 + v). These are recursive residuals (R. L. Brown, J. Durbin,
    J. M. Evans, Journal of the Royal Statistical Society B 37 (1975), 149-192) with a median: unlike in a standard
    deviation, a lasting change of the level leaves a few strays and then no trace. s is moderated by that of all cells, and
    k such that two nights in a row of any cell lie below by learned.FALSE, given how alike nights are. With fewer nights it
    is half the width of Welch's interval of the ratio, from the launches of all these nights (see intervals), and at least
    EARLY.

    As many slow nights in a row, or of the last RECENT, as learned.needed says are a regression; LEVEL in a row where one of
    them was slow as a whole.
    """
    judged = _empty(nights, length)
    for now in range(judged.logs.shape[1]):
        _set_limits(judged, now, count)
        _judge_night(judged, now, count, tolerance)
    return judged


def _empty(nights: Sequence[Sequence[Night | None]], length: int) -> Panel:
    def each(value_of: Callable[[Night], float]) -> Array:
        values = [[value_of(night) if night else math.nan for night in row] for row in nights]
        return np.array(values, dtype=float).reshape(len(nights), length)

    logs = each(lambda night: math.log(night.value))
    names = ("center", "half", "scatter", "size", "freedom", "errors", "alike")
    numbers = {name: np.full(logs.shape, math.nan) for name in names}
    flags = {name: np.zeros(logs.shape, bool) for name in ("slow", "far", "regressed", "used", "baseline", "window", "strays")}
    counts = {name: np.zeros(logs.shape, int) for name in ("row", "recent", "needed")}
    by_night = {name: np.zeros(length, int) for name in ("low", "had")}
    return Panel(
        nights=nights,
        logs=logs,
        launches=each(lambda night: len(night.rates)),
        squares=each(lambda night: _squares([math.log(rate) for rate in night.rates])),
        whole=np.zeros(length, bool),
        **numbers,
        **flags,
        **counts,
        **by_night,
    )


def _squares(logs: Sequence[float]) -> float:
    mean = math.fsum(logs) / len(logs)
    return math.fsum((x - mean) ** 2 for x in logs)


def _set_limits(p: Panel, now: int, count: int) -> None:
    """Set the center and the limits for a night, from the nights before it."""
    p.baseline[:] = _last(p.used, count)
    p.window[:] = _last(p.used & ~np.isnan(p.errors), max(MEMORY, count))
    p.strays[:] = p.window & _are_strays(p.errors, p.window)
    p.center[:, now], v = _medians(p.logs, p.baseline), _variance_of_median(p.baseline)
    kept = p.window & ~p.strays
    p.alike[:, now] = alike = learned.likeness(p.errors, kept)
    amount = np.maximum(1, kept.sum(axis=1))
    variances = (np.where(kept, p.errors, 0.0) ** 2).sum(axis=1) / amount
    enough = p.used.sum(axis=1) >= ENOUGH
    variances, freedoms = learned.moderate(variances, np.maximum(1.0, amount * (1 - alike**2) / (1 + alike**2)), enough)
    p.scatter[enough, now] = np.sqrt(variances)[enough]
    p.size[enough, now] = np.sqrt(variances + _variance_of_fewer_launches(p, now))[enough]
    p.freedom[enough, now] = freedoms[enough]
    judged = ~np.isnan(p.logs[:, now]) & p.baseline.any(axis=1)
    p.half[:, now] = learned.factors(freedoms, v, alike, max(1, int(judged.sum()))) * p.size[:, now] * np.sqrt(1 + v)
    for cell in np.flatnonzero(judged & ~enough).tolist():
        if tonight := p.nights[cell][now]:
            p.half[cell, now] = max(_half_by_launches(_baseline(p, cell), tonight), -math.log1p(-EARLY))


def _judge_night(p: Panel, now: int, count: int, tolerance: float) -> None:
    """Mark the cells that were slow on a night or regressed, and the nights that later ones may be compared with."""
    there, before = ~np.isnan(p.logs[:, now]), np.arange(p.logs.shape[1]) <= now
    wide, least = np.sqrt(1 + _variance_of_median(p.baseline)), -math.log1p(-tolerance)
    off = p.logs[:, now] - p.center[:, now]
    p.errors[:, now] = off / wide
    p.slow[:, now] = slow = off < -np.maximum(p.half[:, now], least)
    p.far[:, now] = slow & (p.window.sum(axis=1) >= STRAYS_FROM) & (off < -FAR * p.size[:, now] * wide)
    p.had[now] = (there & ~np.isnan(p.size[:, now])).sum()
    p.low[now] = (off < -np.maximum(LOW * p.size[:, now] * wide, least)).sum()
    p.whole[now] = p.had[now] >= MANY and p.low[now] > MOST * p.had[now]
    row = p.row[:, now - 1] if now else np.zeros(len(there), int)
    p.row[:, now] = row = np.where(there, np.where(slow, row + 1, 0), row)
    p.regressed[:, now] = there & _are_regressions(p, now)
    so_few = slow & (p.used.sum(axis=1) < ENOUGH) & (row > max(1, count // 2))  # no level that many more could have left
    p.used[:] |= ((there & ~slow) | so_few)[:, None] & before & ~np.isnan(p.logs) & ~p.far & ~p.whole
    p.row[:, now] = np.where(so_few, 0, row)


def _are_regressions(p: Panel, now: int) -> Array:
    """Mark the cells that regressed. Only the first of slow nights in a row counts for how often nights are slow and pass."""
    row, judged = p.row[:, now], ~np.isnan(p.half + p.logs) & (np.arange(p.logs.shape[1]) <= now)
    singly = judged & ~p.whole
    singly[:, now] = False
    passed, cells = int((singly & p.slow & (p.row == 1)).sum()), max(1, int(judged[:, now].sum()))
    needed, often = learned.needed(passed, int(singly.sum()), cells)
    with_whole = (_last(judged, np.maximum(1, row)[:, None]) & p.whole).any(axis=1)
    p.needed[:, now] = np.where(with_whole, max(LEVEL, needed), needed)
    last = _last(judged, RECENT) & p.slow
    p.recent[:, now] = last.sum(axis=1)
    is_often = ((last & ~p.whole).sum(axis=1) >= often) | (p.recent[:, now] >= max(often, RECENT // 2))
    return np.asarray((p.slow[:, now] & (row >= p.needed[:, now])) | (is_often & (_last(judged, 2) & p.slow).any(axis=1)))


def verdict_on(p: Panel, cell: int, tolerance: float = NOTEWORTHY, strict: bool = False) -> CellVerdict:
    """Return the verdict on the last night of one of the panel's cells. `strict`: slower on one night is a regression."""
    tonight, row = p.nights[cell][-1], int(p.row[cell, -1])
    if tonight is None or math.isnan(p.center[cell, -1]):
        return CellVerdict(verdict="new", ratio=math.nan, limits=None)
    limits = _limits_tonight(p, cell, tonight, tolerance)
    slower = [earlier for earlier in p.nights[cell][:-1] if earlier][-(row - 1) :] if row > 1 else []
    before = tuple(earlier.value / limits.center for earlier in slower)
    verdict, why = limits.verdict(tonight.value), ""
    if p.regressed[cell, -1]:
        in_a_row = p.slow[cell, -1] and row >= p.needed[cell, -1]
        nights = f"{row} nights in a row" if in_a_row else f"{p.recent[cell, -1]} of the last {RECENT} nights"
        verdict, why = "regression", f"slower on {nights}"
    elif verdict == "slower" and strict:
        verdict, why = "regression", "slower on one night (--strict)"
    elif verdict == "slower":
        verdict, why = "suspected", _suspicion(p, row, int(p.needed[cell, -1]))
    return CellVerdict(verdict=verdict, ratio=tonight.value / limits.center, limits=limits, before=before, why=why)


def _suspicion(p: Panel, row: int, needed: int) -> str:
    night = f"the whole night was slow: {p.low[-1]} of {p.had[-1]} figures; " if p.whole[-1] else ""
    if (row, needed) == (1, 2):
        return "slower for the first night; a second one makes it a regression"
    return f"{night}slower on {row} night{'s' if row > 1 else ''} in a row; {needed} make it a regression"


def verdict_against_run(p: Panel, cell: int, named: Night, tolerance: float = NOTEWORTHY, strict: bool = False) -> CellVerdict:
    """Return the verdict against a named run, which is none of the panel's nights.

    The limits are half the width of Welch's interval of the ratio of the launches, or, if that is more, what the panel's
    nights show of how much the cell differs from night to night, with a baseline of one night.
    """
    last = [(place, night) for place, night in enumerate(p.nights[cell]) if night][-2:]
    judged = [(night, _limits_to_run(p, cell, place, named, night, tolerance)) for place, night in last]
    (tonight, limits), before = judged[-1], judged[:-1]
    slow = [night.value / named.value for night, earlier in before if earlier.verdict(night.value) == "slower"]
    verdict, why = limits.verdict(tonight.value), ""
    if verdict == "slower" and (slow or strict):
        verdict, why = "regression", f"slower on {len(slow) + 1} nights in a row" if slow else "slower on one night (--strict)"
    elif verdict == "slower":
        verdict, why = "suspected", "slower for the first night; a second one makes it a regression"
    return CellVerdict(verdict=verdict, ratio=tonight.value / named.value, limits=limits, before=tuple(slow), why=why)


def _limits_tonight(p: Panel, cell: int, tonight: Night, tolerance: float) -> Limits:
    """Return the limits for the last night."""
    baseline, size = _baseline(p, cell), float(p.size[cell, -1])
    if math.isnan(size):
        return _limits(baseline, float(p.half[cell, -1]), tolerance, _launches_in_words(baseline, tonight, p.half[cell, -1]))
    wide = size * math.sqrt(1 + float(_variance_of_median(p.baseline)[cell]))
    return _limits(baseline, float(p.half[cell, -1]), tolerance, _rule_in_words(p, cell, -1), _stray_nights(p, cell), wide)


def _limits_to_run(p: Panel, cell: int, place: int, named: Night, tonight: Night, tolerance: float) -> Limits:
    half, size = _half_by_launches([named], tonight), float(p.size[cell, place])
    if not math.isnan(size):
        cells = max(1, int((~np.isnan(p.logs[:, place])).sum()))
        k = learned.factors(p.freedom[[cell], place], np.ones(1), p.alike[[cell], place], cells)[0]
        learnt = float(k * size * math.sqrt(2))
        if not half > learnt:
            return _limits(
                [named], learnt, tolerance, _rule_in_words(p, cell, place), _stray_nights(p, cell), size * math.sqrt(2)
            )
    return _limits([named], half, tolerance, _launches_in_words([named], tonight, half))


def _limits(
    baseline: Sequence[Night],
    half: float,
    tolerance: float,
    rule: str,
    strays: tuple[str, ...] = (),
    size: float = math.nan,
) -> Limits:
    """Return limits. `half`: the width to either side, on logarithms; NaN: unknown. `size`: scatter of tonight and center."""
    is_known = not math.isnan(half)
    low = min(math.exp(-half), 1 - tolerance) if is_known else math.nan
    return Limits(
        center=math.exp(median_of([math.log(night.value) for night in baseline])),
        low=low,
        high=max(math.exp(half), 1 + tolerance) if is_known else math.nan,
        nights=tuple(night.run for night in baseline),
        strays=strays,
        rule=rule,
        detectable=1 - low * math.exp(-float(ndtri(SEEN)) * size),
    )


def _baseline(p: Panel, cell: int) -> list[Night]:
    return [night for night, is_in in zip(p.nights[cell], p.baseline[cell], strict=True) if is_in and night]


def _stray_nights(p: Panel, cell: int) -> tuple[str, ...]:
    """Return the runs of nights within the window that are left out, but not the slow ones that tonight continues."""
    out = p.strays[cell] | ((p.far[cell] | p.whole) & ~_last(~np.isnan(p.logs), p.row[:, -1:])[cell])
    first = int(p.window[cell].argmax())
    return tuple(night.run for place, night in enumerate(p.nights[cell]) if night and place >= first and out[place])


def _rule_in_words(p: Panel, cell: int, place: int) -> str:
    words = f"{int(p.window[cell].sum()) + 1} nights scatter by {100 * float(p.scatter[cell, place]):.2g} %"
    moderated = f", moderated by {p.had[place]} cells" if p.had[place] > 2 else ""
    alike = f", a night is like the next by {p.alike[cell, place]:.1f}" if p.alike[cell, place] >= 0.1 else ""
    return words + moderated + alike


def _half_by_launches(nights: Sequence[Night], tonight: Night) -> float:
    interval = pair(tonight.rates, [rate for night in nights for rate in night.rates]).interval
    return math.log(interval.high / interval.low) / 2


def _launches_in_words(nights: Sequence[Night], tonight: Night, half: float) -> str:
    words = f"the scatter of {len(tonight.rates)} and {sum(len(night.rates) for night in nights)} launches"
    return words + (", which is unknown: two of each are needed" if math.isnan(half) else "; how nights differ is unknown")


def _last(flags: Array, count: int | Array) -> Array:
    """Keep the last `count` flags that are set in each row."""
    return np.asarray(flags & (flags[:, ::-1].cumsum(axis=1)[:, ::-1] <= count))


def _medians(values: Array, which: Array) -> Array:
    """Return the median of the values in `which` for each row; NaN without any."""
    ordered, n = np.sort(np.where(which, values, math.inf), axis=1), which.sum(axis=1)
    places = (np.maximum(n - 1, 0) // 2, np.minimum(n // 2, values.shape[1] - 1))
    low, high = (np.take_along_axis(ordered, place[:, None], axis=1)[:, 0] for place in places)
    return np.where(n > 0, low / 2 + high / 2, math.nan)


def _variance_of_median(which: Array) -> Array:
    """Return the variance of the median of n normal values over that of one: π / 2n (P. S. Laplace, 1818); for n < 3, 1 / n."""
    n = np.maximum(1, which.sum(axis=1))
    return np.asarray(np.where(n < 3, 1 / n, math.pi / (2 * n)))


def _are_strays(errors: Array, window: Array) -> Array:
    reach = np.maximum(STRAY * 1.4826 * _medians(np.abs(errors), window), math.log1p(NOTEWORTHY))
    return np.asarray((window.sum(axis=1) >= STRAYS_FROM)[:, None] & (np.abs(errors) > reach[:, None]))


def _variance_of_fewer_launches(p: Panel, now: int) -> Array:
    """Return the variance that a night's logarithm gains if it has fewer launches than nights of the baseline on average."""
    amount, several = p.launches[:, now], p.baseline & (p.launches > 1)
    usual = np.where(p.baseline, p.launches, 0.0).sum(axis=1) / np.maximum(1, p.baseline.sum(axis=1))
    freedom = np.where(several, p.launches - 1, 0.0).sum(axis=1)
    variance = np.where(several, p.squares, 0.0).sum(axis=1) / np.maximum(1.0, freedom)
    fewer = (amount < usual) & (freedom > 0)
    return np.where(fewer, variance * (1 / np.where(fewer, amount, 1.0) - 1 / np.where(fewer, usual, 1.0)), 0.0)
