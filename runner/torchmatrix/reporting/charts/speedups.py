"""Tables of ratios -> dots with intervals: stacks over a baseline; settings over what they replace."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.intervals import Interval, difference_verdict
from torchmatrix.analysis.ratios import geometric_means
from torchmatrix.matrix.factors import CONTRASTED
from torchmatrix.reporting.charts import Chart, Charts, words
from torchmatrix.reporting.charts.forest import Line, forest

MOST_STACKS = 5
"""The most stacks with a chart of their own; the chart of the means has them all."""
MOST_PAIRS = 20
"""The most rows in one chart, the same number for each stack; means are over all rows."""
_SETTINGS = {pair.name: pair.words for factor in CONTRASTED for pair in factor.contrasts}


def charts(speedups: pd.DataFrame, settings: pd.DataFrame, stacks: Sequence[str]) -> Charts:
    """One chart of all stacks' means, one of each stack over its baseline, one of each setting.

    `speedups` as of ratios.speedup_table, `settings` as of ratios.settings_table, `stacks` all stacks in their order. Without
    any numbers there is nothing to draw.
    """
    if not (_known(speedups).any() or _known(settings).any()):
        return Charts()
    others = _against_others(speedups)
    by_stack = [rows for _, rows in others.groupby(["stack", "baseline"], sort=False) if _known(rows).any()]
    by_stack.sort(key=lambda rows: rows["baseline"].iloc[0] != _usual(others))
    by_setting = [(str(name), rows) for name, rows in settings.groupby("setting", sort=False)]
    found = [_all_stacks(others, stacks)] if len(others) and len(by_stack) != 1 else []
    found += [_one_stack(number, rows, stacks) for number, rows in enumerate(by_stack[:MOST_STACKS], 1)]
    found += [_one_setting(name, rows, stacks) for name, rows in by_setting]
    drawn = [*by_stack[:MOST_STACKS], *(rows for _, rows in by_setting)]
    return Charts(charts=tuple(found), left_out=sum(map(_hidden, drawn)) + sum(map(len, by_stack[MOST_STACKS:])))


def _against_others(speedups: pd.DataFrame) -> pd.DataFrame:
    """Without the baselines themselves. If the usual baseline failed, the next stack is the baseline, and the failed one is
    not compared with it."""
    others = speedups[speedups["stack"] != speedups["baseline"]]
    some = others.groupby(["stack", "baseline"])["ratio"].transform("count") > 0
    elsewhere = others.groupby("stack")["ratio"].transform("count") > 0
    return others[some | ~(elsewhere | others["stack"].isin(others["baseline"][some]))]


def _usual(others: pd.DataFrame) -> str:
    """The baseline of most ratios."""
    return str(others[_known(others)]["baseline"].mode().iloc[0])


def _known(pairs: pd.DataFrame) -> "pd.Series[bool]":
    return pairs["ratio"].notna()


def _drawn(pairs: pd.DataFrame) -> pd.DataFrame:
    """Those with a ratio, as many of each stack."""
    known = pairs[_known(pairs)]
    return known.groupby("stack", sort=False).head(max(1, MOST_PAIRS // max(1, known["stack"].nunique())))


def _hidden(pairs: pd.DataFrame) -> int:
    return int(_known(pairs).sum()) - len(_drawn(pairs))


def _all_stacks(pairs: pd.DataFrame, stacks: Sequence[str]) -> Chart:
    means = words.rows_of(geometric_means(pairs, ["stack", "baseline"]))
    reasons = pairs.groupby(["stack", "baseline"])["why"].agg(words.counted)
    title = f"No two stacks can be compared: {words.counted(pairs['why'])}"
    if _known(pairs).any():
        means.sort(key=lambda mean: mean.baseline != _usual(pairs))
        best = max((mean for mean in means if mean.baseline == _usual(pairs) and mean.n), key=lambda mean: float(mean.ratio))
        title = _mean_title(best.stack, best.baseline, best)
        if best.ratio < 1:
            title = f"No stack is faster than {best.baseline} on average; the next: {title}"
    lines = [_mean_line(f"{m.stack} over {m.baseline}", m, reasons[m.stack, m.baseline]) for m in means]
    note = f"{DEFINITIONS['geometric_mean']} A stack that fails where others succeed has a mean over other cells."
    return _chart("speedup-stacks", title, note, lines, stacks)


def _one_stack(number: int, pairs: pd.DataFrame, stacks: Sequence[str]) -> Chart:
    (mean,) = words.rows_of(geometric_means(pairs, ["stack", "baseline"]))
    lines = [_mean_line("geometric mean", mean)] if mean.n > 1 else []
    lines += [*map(_pair_line, words.rows_of(_drawn(pairs))), *_failed_lines(pairs)]
    note = f"{DEFINITIONS['speedup']} {DEFINITIONS['ratio_interval']} {DEFINITIONS['geometric_mean']}{_left_out(pairs)}"
    slug = f"speedup-stack-{number}-{words.slug(mean.stack)}"
    return _chart(slug, _title(mean.stack, mean.baseline, mean, pairs), note, lines, stacks)


def _one_setting(name: str, pairs: pd.DataFrame, stacks: Sequence[str]) -> Chart:
    """The mean of all, then for each stack its mean and its pairs."""
    own, other = _SETTINGS[name]
    (mean,) = words.rows_of(geometric_means(pairs, ["setting"]))
    lines = [_mean_line("geometric mean of all", mean)] if mean.n > 1 else []
    shown = _drawn(pairs)
    for stack, rows in pairs.groupby("stack", sort=False):
        (own_mean,) = words.rows_of(geometric_means(rows, ["stack"]))
        several = pairs["stack"].nunique() > 1
        lines += [_mean_line(str(stack), own_mean, words.counted(rows["why"]))] if several else []
        lines += [_pair_line(pair) for pair in words.rows_of(shown[shown["stack"] == stack])]
        lines += _failed_lines(rows) if own_mean.n or not several else []
    note = f"{DEFINITIONS['setting']} {DEFINITIONS['ratio_interval']} {DEFINITIONS['geometric_mean']}{_left_out(pairs)}"
    return _chart(f"speedup-setting-{words.slug(name)}", _title(own, other, mean, pairs), note, lines, stacks)


def _left_out(pairs: pd.DataFrame) -> str:
    more = _hidden(pairs)
    return f" {more} more pairs appear in the means only." if more else ""


def _title(own: str, other: str, mean: Any, pairs: pd.DataFrame) -> str:
    """One pair: its ratio. Several: their mean. None: the reasons."""
    if mean.n == 0:
        return f"{own} can’t be compared with {other}: {words.counted(pairs['why'])}"
    if mean.n > 1:
        return _mean_title(own, other, mean)
    (pair,) = words.rows_of(pairs.dropna(subset=["ratio"]))
    failed = f"; {mean.failed} more without a ratio" if mean.failed else ""
    what, found = f"{pair.workload} on {pair.devices}", Interval(value=pair.ratio, low=pair.low, high=pair.high)
    return words.compared(own, other, pair.mode, what, found) + failed


def _mean_title(own: str, other: str, mean: Any) -> str:
    found = Interval(value=mean.ratio, low=mean.low, high=mean.high)
    few = ", too few for an interval" if mean.n > 1 else ""
    limits = few if math.isnan(mean.low) else f", 95 % interval {words.span(mean.low, mean.high)}"
    failed = f"; {mean.failed} more without a ratio" if mean.failed else ""
    basis = f"({_mean_of(mean.n)}{limits}{failed})"
    verdict = difference_verdict(found)
    if verdict == "SAME":
        return f"{own} and {other} are equally fast: {words.times(mean.ratio)} × {basis}"
    if verdict == "AMBIGUOUS":
        return f"Unclear whether {own} is faster than {other} on average: {words.times(mean.ratio)} × {basis}"
    return f"{own} is {words.times(mean.ratio)} × as fast as {other} {basis}"


def _mean_of(n: int) -> str:
    return f"geometric mean of {n} cells" if n > 1 else "one cell"


def _mean_line(label: str, mean: Any, why: str = "") -> Line:
    """`why` stands where there is no mean."""
    counts = _mean_of(mean.n) + (f", {mean.failed} without a ratio" if mean.failed else "")
    said = _words(mean) if mean.n else why
    return Line(label=label, words=said, value=mean.ratio, low=mean.low, high=mean.high, stack=None, counts=counts)


def _pair_line(pair: Any) -> Line:
    label, counts = f"{pair.workload} · {pair.devices}", f"{pair.n} and {pair.baseline_n} launches"
    return Line(
        label=label, words=_words(pair), value=pair.ratio, low=pair.low, high=pair.high, stack=pair.stack, counts=counts
    )


def _failed_lines(pairs: pd.DataFrame) -> list[Line]:
    """One line for all pairs that have no ratio, with the reasons."""
    failed = pairs[~_known(pairs)]
    if failed.empty:
        return []
    label, said = f"without a ratio: {len(failed)}", words.counted(failed["why"])
    return [
        Line(label=label, words=said, value=math.nan, low=math.nan, high=math.nan, stack=None, counts=f"{len(failed)} cells")
    ]


def _words(found: Any) -> str:
    """Such as 1.31 (1.27 to 1.35)."""
    limits = "" if math.isnan(found.low) else f" ({words.span(found.low, found.high)})"
    return f"{words.times(found.ratio)}{limits}"


def _chart(slug: str, title: str, note: str, lines: Sequence[Line], stacks: Sequence[str]) -> Chart:
    rows = [
        {
            "what": line.label,
            "stack": line.stack or "",
            "times as fast": line.value,
            "95 % from": line.low,
            "95 % to": line.high,
            "of": line.counts,
            "no ratio because": line.words if math.isnan(line.value) else "",
        }
        for line in lines
    ]
    return Chart(id=slug, section="speedup", title=title, note=note, spec=forest(lines, stacks), table=pd.DataFrame(rows))
