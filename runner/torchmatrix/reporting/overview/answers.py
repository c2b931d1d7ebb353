"""The six answers that a page, a terminal and answers.json begin with, and the sentence above them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchmatrix.analysis import best, verdicts
from torchmatrix.analysis.intervals import SEEN_FROM
from torchmatrix.analysis.levels import WIDER
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import group_by
from torchmatrix.analysis.speedups import Since
from torchmatrix.analysis.verdicts import MeanRatio
from torchmatrix.core.formatting import is_known, none_for_nan, number_or_nan, printable
from torchmatrix.facts.environments import differences_in_words
from torchmatrix.matrix.factors import IN_FLOAT8
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers.data import ShownCell, ShownPair
from torchmatrix.reporting.overview.cells import Cells, grouped, span

AMP = ("amp", "amp-bf16", "tf32", "half", "bf16-weights", "bf16-master", *IN_FLOAT8)
COMPILE = "compile"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One answer. `figure`: shown large, with `interval`. `text`: the verdict in words; `note`: its subject.
    `chart`: the id of its chart. `value`, `low`, `high`, `unit`, `verdict`: the same for a program; NaN or "" is unknown.
    """

    name: str
    title: str
    figure: str
    interval: str = ""
    text: str = ""
    note: str = ""
    chart: str = ""
    value: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    unit: str = ""
    verdict: str = ""

    @property
    def large(self) -> str:
        """Return the figure with its interval."""
        return f"{self.figure} {self.interval}".strip()

    def as_record(self) -> dict[str, Any]:
        """Return the answer for JSON; unknown is null."""
        return none_for_nan(asdict(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """All answers. `lead`: one sentence; `rule`: how its cells were chosen; `warning`: what holds verdicts back; `doubts`:
    how many cells have which mark that leaves a doubt; both may be "".
    """

    lead: str
    each: tuple[Answer, ...]
    rule: str = ""
    warning: str = ""
    doubts: str = ""

    def in_words(self, width: int) -> str:
        """Return the sentence, then a line for each answer, in columns at most `width` characters wide."""
        columns = Table.grid(padding=(0, 2))
        columns.add_column(style="bold", no_wrap=True)
        columns.add_column(no_wrap=True)
        columns.add_column()
        for answer in self.each:
            columns.add_row(*(Text(printable(part)) for part in (answer.title, answer.large, answer.text)))
        written = StringIO()
        console = Console(width=max(60, width), file=written, color_system=None, highlight=False)
        console.print(*(Text(printable(line)) for line in (self.lead, self.warning) if line), columns, sep="\n")
        if self.doubts:
            console.print(Text(printable(f"doubtful: {self.doubts}")))
        return "\n".join(line.rstrip() for line in written.getvalue().splitlines())

    def as_record(self) -> dict[str, Any]:
        """Return the answers for JSON."""
        each = [answer.as_record() for answer in self.each]
        return {"lead": self.lead, "warning": self.warning or None, "doubts": self.doubts or None, "answers": each}


ONE_LAUNCH = "One launch each shows no differences: torchmatrix run makes three, without --fast or --launches 1."
ONE_LEFT = "One launch each shows no differences: others failed."
RULE = "The first answers are about the model that most stacks measured, on its most devices, whether or not it is the fastest."


def answers(cells: Cells, price_list: PriceList, since: Since | None, failed: Sequence[str], unread: int = 0) -> Answers:
    """Answer for the cells of one run or of several machines; `failed`: outcomes of the launches without a figure; `unread`:
    how many launch files can't be read.
    """
    top = cells.best(cells.chosen)
    if not cells.rows:
        return Answers(lead="No launch can be read." if unread else "No launch has ended.", each=())
    if top is None:
        if {*failed} == {"oom"}:
            what = words.every_cell(len(cells.rows))
            return Answers(
                lead=f'{what} ran out of memory. A smaller batch may fit: batch = "auto" finds the largest.', each=()
            )
        why = f": {words.counted(failed)}" if failed else ""
        return Answers(lead=f"No cell was measured{why}.", each=())
    ranked = ranking(cells, top)
    possible = [
        _fastest_answer(cells, ranked), _stack_answer(cells, ranked), _setting_answer(cells, AMP, "precision"),
        _setting_answer(cells, (COMPILE,), "compile"), _devices_answer(cells, top), _generation_answer(cells),
        _energy_answer(cells, price_list), _since_answer(since),
    ]  # fmt: skip
    each = tuple(answer for answer in possible if answer)
    return Answers(lead=_lead(cells, ranked), each=each, rule=RULE, warning=warning_of(cells))


def warning_of(cells: Cells, apart: float = 1.0) -> str:
    """Say what holds verdicts back: levels, launches that resemble each other, one launch each, figures that scatter; "" if
    nothing does. `apart`: of further ratios (apart_in_words).
    """
    warnings = [
        levels_in_words(cells.data.jump), RESEMBLE if cells.data.resemble else "", apart_in_words(max(apart, _apart(cells))),
        _of_one_launch([row for row in cells.rows if row.n]),
    ]  # fmt: skip
    return " ".join(filter(None, warnings))


def _apart(cells: Cells) -> float:
    """Return by what factor, at most, the ratio of two cells' figures is another one than their ratio of geometric means."""
    pairs = [pair for pair in cells.data.pairs if pair.over is not None and pair.ratio]
    return most_apart((cells.rows[pair.at].rate, cells.rows[pair.over].rate, pair.ratio) for pair in pairs)


def most_apart(figures: Iterable[tuple[float | None, float | None, float]]) -> float:
    """Return the largest factor between the ratio of two figures and the third number, their ratio of geometric means."""
    apart = [abs(math.log(at / over / ratio)) for at, over, ratio in figures if at and over and at > 0 < over and ratio > 0]
    return math.exp(max(apart, default=0.0))


NOTICED = 1.02
"""A ratio that is further from that of the figures beside it is told."""


def apart_in_words(factor: float) -> str:
    """Say that figures and ratios come from two statistics, where a reader would see it; "" if not."""
    if not factor > NOTICED:
        return ""
    return (
        "Figures and bars are medians of launches, ratios are of their geometric means: these launches scatter so much that "
        f"the two differ by up to {words.percent(factor - 1)} and may rank cells differently."
    )


def _of_one_launch(measured: Sequence[ShownCell]) -> str:
    """Say that figures of one launch each show no differences; "" where some cell has more."""
    if {row.n for row in measured} != {1}:
        return ""
    return ONE_LEFT if any(row.failed for row in measured) else ONE_LAUNCH


RESEMBLE = (
    "Successive launches of a cell resemble each other: intervals are too narrow, and verdicts too sure. Measure again at "
    "another time, or after another boot, and compare the runs."
)


def levels_in_words(jump: float) -> str:
    """Describe launches that may come in two levels; "" if there is no sign of any."""
    if not jump:
        return ""
    apart, most = (words.percent(math.expm1(size)) for size in (jump / WIDER, jump))
    return (
        f"Launches seem to come in two levels, {apart} apart. Fewer than {SEEN_FROM} launches of a cell don't show in which "
        f"they lie, so differences up to {most} are not told: measure again with --launches {SEEN_FROM}."
    )


def candidates(cells: Cells, top: ShownCell) -> list[ShownCell]:
    """Return all cells that `top` was picked from: of its model and mode, on as many devices."""
    names = ("model", "mode", "N")
    return [row for row in cells.rows if row.n and all(row.value(name) == top.value(name) for name in names)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The highest cell among its `candidates`, the fastest first. `equal`: the cell itself, then those that tests of the page
    don't show to be slower; a cell of one launch is none of them, and if `top` is one, it stands alone. `near`: those that
    only other pairs of the page show to be slower. `untested`: those that nothing compares with it, since one of the two has
    one launch, or was disturbed by other programs.
    """

    top: ShownCell
    candidates: tuple[ShownCell, ...]
    equal: tuple[ShownCell, ...]
    untested: tuple[ShownCell, ...]
    near: tuple[ShownCell, ...] = ()

    @property
    def only_higher(self) -> tuple[ShownCell, ...]:
        """Return the candidates with a higher figure that tests show to be slower (Cells.best)."""
        tested = {row.place for row in (*self.equal, *self.near, *self.untested)}
        return tuple(row for row in self.candidates if row.rate > self.top.rate and row.place not in tested)

    @property
    def is_fastest(self) -> bool:
        """Check whether the cell is shown to be faster than all other candidates."""
        return len(self.candidates) > 1 and len(self.equal) == 1 and not self.near and not self.untested


def ranking(cells: Cells, top: ShownCell) -> Ranking:
    """Return the candidates beside `top`, the highest of them."""
    ranked = tuple(sorted(candidates(cells, top), key=lambda row: -row.rate))
    others = [row for row in ranked if row.place != top.place]
    if cells.moments(top) is None:
        return Ranking(top=top, candidates=ranked, equal=(top,), untested=tuple(others))
    slower = _slower_stacks(cells, top)
    left = [row for row in cells.left(top, ranked) if row.place != top.place]
    equal = [row for row in left if row.stack not in slower and row.place not in cells.slower]
    return Ranking(
        top=top, candidates=ranked, equal=(top, *equal), near=tuple(row for row in left if row not in equal),
        untested=tuple(row for row in others if not verdicts.are_comparable(cells.moments(top), cells.moments(row))),
    )  # fmt: skip


def _slower_stacks(cells: Cells, top: ShownCell) -> set[int]:
    """Return the stacks that the means of all like pairs of the model show to be slower than the stack of `top`."""
    pairs = [
        pair for pair in pairs_of(cells, "stack") if all(cells.rows[pair.at].value(name) == top.value(name) for name in _OF_JOB)
    ]
    slower: set[int] = set()
    for stacks, group in group_by(pairs, lambda pair: (cells.rows[pair.at].stack, cells.rows[pair.over].stack)).items():
        verdict = mean_of(cells, group).verdict if top.stack in stacks else ""
        slower |= {stacks[0]} if verdict == "SLOWER" else {stacks[1]} if verdict == "FASTER" else set()
    return slower - {top.stack}


_OF_JOB = ("mode", "model", "gpu", "machine")


def _fastest_answer(cells: Cells, ranked: Ranking) -> Answer:
    """Answer with the stack where only one can be the fastest, else with the highest figure: no stack is ahead then."""
    top, several = ranked.top, len({cells.who(row) for row in ranked.candidates}) > 1
    is_ahead = several and {cells.who(row) for row in (*ranked.equal, *ranked.untested)} == {cells.who(top)}
    rate = words.with_unit(top.rate, f"{top.unit}/s")
    low, high = number_or_nan(top.low), number_or_nan(top.high)
    limits = words.rate_interval(top.rate, low, high)
    how = ", ".join([cells.model(top), cells.settings(top), *cells.varied_sizes(top, ranked.candidates), cells.place(top)])
    verdict, text = _against_others(cells, ranked)
    lone = "" if limits else f"{words.NO_INTERVAL[:1].upper()}{words.NO_INTERVAL[1:]}."
    return Answer(
        name="fastest", title="Fastest stack" if is_ahead else "Fastest measured" if len(ranked.candidates) > 1 else "Measured",
        figure=cells.who(top) if is_ahead else rate, interval="" if is_ahead else limits,
        text=" ".join(filter(None, (f"{rate} {limits}." if is_ahead and limits else "", lone, text))),
        note=how if is_ahead else f"{how}, {cells.who(top)}",
        chart="throughput", value=top.rate, low=low, high=high, unit=f"{top.unit}/s", verdict=verdict,
    )  # fmt: skip


def _stack_answer(cells: Cells, ranked: Ranking) -> Answer | None:
    """Answer what another stack brings to each model, the clearest difference large; None where the first answer says it, or no
    difference is shown.
    """
    pairs = pairs_of(cells, "stack")
    models = by_model(cells, pairs)
    means = [(cells.model(cells.rows[group[0].at]), _means_of_stacks(cells, group)) for group in models]
    shown = [item for _, each in means for item in each if item[0].verdict in ("FASTER", "SLOWER")]
    if not shown or (ranked.is_fastest and len({item[0].verdict for _, each in means for item in each}) == 1):
        return None
    mean, stack, base = max(shown, key=lambda item: abs(math.log(item[0].interval.value)))
    value = mean.interval
    parts = [_stacks_in_words(name, each) for name, each in sorted(means, key=lambda item: (mean, stack, base) not in item[1])]
    return Answer(
        name="stack", title="Another stack brings", figure=words.effect(value.value, value.low, value.high),
        interval=words.effect_interval(value.value, value.low, value.high), text=" ".join(parts), chart="settings",
        note=f"The large figure: {stack} instead of {base}. Geometric means of the pairs that differ in nothing else.",
        value=value.value, low=value.low, high=value.high, unit="×", verdict=mean.verdict,
    )  # fmt: skip


def _means_of_stacks(cells: Cells, pairs: Sequence[ShownPair]) -> list[tuple[MeanRatio, str, str]]:
    """Return what each stack brings over each other one, with the names of both."""
    groups = group_by(pairs, lambda pair: (cells.who(cells.rows[pair.at]), cells.who(cells.rows[pair.over])))
    return [(mean_of(cells, group), *names) for names, group in groups.items()]


def _stacks_in_words(model: str, means: Sequence[tuple[MeanRatio, str, str]]) -> str:
    """Write the effects on a model by their verdicts: "BERT-tiny: torch 2.5.1 faster than torch 1.12.1 (1.63×)."."""
    parts = []
    for (verdict, base), group in group_by(means, lambda item: (words.verdict_of(item[0]), item[2])).items():
        stacks = words.enumerated(stack for _, stack, _ in group)
        effects = span([mean.interval.value for mean, _, _ in group], words.effect)
        is_difference = group[0][0].verdict in ("FASTER", "SLOWER")
        parts.append(f"{stacks} {verdict} than {base} ({effects})" if is_difference else f"{verdict} from {base} to {stacks}")
    return f"{model}: {'; '.join(parts)}."


def _against_others(cells: Cells, ranked: Ranking) -> tuple[str, str]:
    """Return the verdict on the fastest cell against all others, and its text."""
    if len(ranked.candidates) == 1:
        return "", ""
    parts, top = [], ranked.top
    if names := _names_of(cells, ranked.equal[1:], top):
        parts.append(f"No difference shown from {names}.")
    elif ranked.is_fastest:
        others = [row for row in ranked.candidates if row.place != top.place]
        lead = best.over_the_others(
            cells.launched(top), [cells.launched(row) for row in others], cells.data.significance.differs
        )
        following = min(others, key=lambda row: cells.launched(top).over(cells.launched(row)).value)
        ahead = words.effect_with_interval(lead)
        parts.append(f"Faster than all others; the next is {_named(cells, following, top)} ({ahead}).")
    if names := _names_of(cells, ranked.only_higher, top):
        higher = words.enumerated(words.short(row.rate) for row in ranked.only_higher)
        parts.append(f"Slower by tests, though the figure is higher: {names} ({higher}).")
    if names := _names_of(cells, ranked.near, top):
        them = "it" if len(ranked.near) == 1 else "them"
        parts.append(f"No difference shown from {names} by its own pair; other pairs show {them} to be slower.")
    if names := _names_of(cells, ranked.untested, top):
        parts.append(f"Not tested against {names}{_why_not_against(cells, ranked)}.")
    is_open = len(ranked.equal) > 1 or ranked.near
    verdict = "FASTER" if ranked.is_fastest else "AMBIGUOUS" if is_open else "n/a"
    return verdict, " ".join(parts)


def _why_not_against(cells: Cells, ranked: Ranking) -> str:
    """Say why some were not tested against the highest; empty where each row says it."""
    if cells.moments(ranked.top) is None:
        return ""
    have_one = {cells.moments(row) is None for row in ranked.untested}
    return "" if len(have_one) > 1 else ": one launch" if have_one == {True} else ": disturbed by other programs"


def _names_of(cells: Cells, rows: Sequence[ShownCell], top: ShownCell) -> str:
    return words.enumerated(dict.fromkeys(_named(cells, row, top) for row in rows))


def _named(cells: Cells, row: ShownCell, top: ShownCell) -> str:
    """Name a cell compared with the fastest: its stack where that differs, then in which settings and sizes it differs; where
    nothing does, its devices.
    """
    settings, others = cells.settings(row).split(", "), cells.settings(top).split(", ")
    differs = [word for word in settings if word not in others]
    lacks = [] if differs else [f"without {word}" for word in others if word not in settings]
    sizes = [size for size in cells.sizes(row) if size not in cells.sizes(top)]
    if cells.who(row) != cells.who(top):
        every = ", ".join([*differs, *lacks, *sizes])
        return f"{cells.who(row)} ({every})" if every else cells.who(row)
    name = "the same " + ", ".join(lacks) if lacks else " + ".join(differs or sizes) or row.cell.rpartition("/")[2]
    return f"{name} ({', '.join(sizes)})" if sizes and (differs or lacks) else name


def pairs_of(cells: Cells, kind: str) -> list[ShownPair]:
    """Return the measured pairs of a kind, also those of models for which it is a negative control."""
    return [pair for pair in cells.data.pairs if pair.kind == kind and pair.ratio is not None]


def mean_of(cells: Cells, pairs: Sequence[ShownPair]) -> MeanRatio:
    """Return the geometric mean of pairs (best.mean_over)."""
    return cells.mean([(pair.at, pair.over, pair.ratio) for pair in pairs if pair.over is not None])


def by_model(cells: Cells, pairs: Sequence[ShownPair]) -> list[list[ShownPair]]:
    """Return the pairs by mode and model."""
    return grouped(pairs, lambda pair: tuple(cells.rows[pair.at].value(name) for name in ("mode", "model")))


def models_agree(means: Sequence[MeanRatio]) -> bool:
    """Check whether one mean may stand for these means of single models: they have one verdict, or their intervals have a
    ratio in common; without intervals, all of them are on one side of 1.
    """
    found = {mean.verdict for mean in means}
    if len(found) == 1 and found <= {"FASTER", "SLOWER", "SAME"}:
        return True
    if {"FASTER", "SLOWER"} <= found:
        return False
    limits = [mean.interval for mean in means]
    if all(is_known(limit.low) for limit in limits):
        return max(limit.low for limit in limits) <= min(limit.high for limit in limits)
    return min(limit.value for limit in limits) >= 1 or max(limit.value for limit in limits) <= 1


def _setting_answer(cells: Cells, kinds: Sequence[str], chart: str) -> Answer | None:
    """Answer what a setting brings, over all pairs that differ in nothing else; of `kinds` the first with the most pairs."""
    kind = max(kinds, key=lambda kind: len(pairs_of(cells, kind)))
    pairs = pairs_of(cells, kind)
    if not pairs:
        return None
    mean, (setting, baseline) = mean_of(cells, pairs), words.CONTRASTS[kind]
    each_model = [(cells.model(cells.rows[group[0].at]), mean_of(cells, group)) for group in by_model(cells, pairs)]
    if not models_agree([of_model for _, of_model in each_model]):
        ranked = sorted(each_model, key=lambda item: -item[1].interval.value)
        told = [f"{words.effect(each.interval.value)} {name} ({words.verdict_of(each)})" for name, each in ranked]
        return Answer(
            name=chart, title=words.brings(setting), figure=span([each.interval.value for _, each in ranked], words.effect),
            text=f"the throughput of {baseline}; it differs by model: {words.enumerated(told)}.",
            note="A geometric mean for each model; they differ, so there is none of all.", chart="settings", unit="×",
            verdict="AMBIGUOUS",
        )  # fmt: skip
    value = mean.interval
    limits = words.effect_interval(value.value, value.low, value.high)
    each = "" if mean.n == 1 else f", {span([mean.lowest, mean.highest], words.effect)} over {mean.n} pairs"
    verdict = words.verdict_of(mean) if limits else _why_untested(cells, pairs)
    note = "One pair of cells." if mean.n == 1 else "Geometric mean of the pairs that differ in nothing else."
    return Answer(
        name=chart, title=words.brings(setting), figure=words.effect(value.value, value.low, value.high), interval=limits,
        text=f"the throughput of {baseline}: {verdict}{each}.",
        note=note, chart="settings", value=value.value, low=value.low, high=value.high, unit="×", verdict=mean.verdict,
    )  # fmt: skip


def _why_untested(cells: Cells, pairs: Sequence[ShownPair]) -> str:
    is_single = all(cells.rows[place].n == 1 for pair in pairs for place in (pair.at, pair.over) if place is not None)
    return "one launch each, not tested" if is_single else "too few launches, not tested"


def scaled(cells: Cells, top: ShownCell) -> list[ShownCell]:
    """Return the cells on the most devices that have a speed-up over one: those of the model of `top` first."""
    rows = [row for row in cells.rows if row.S is not None]
    most = max((row.N for row in rows), default=0)
    return sorted((row for row in rows if most == row.N), key=lambda row: row.model != top.model)


def headline_of(rows: Sequence[ShownCell], top: ShownCell) -> ShownCell | None:
    """Return the one of the scaled cells that stands for all: `top`, or the first."""
    return next((row for row in rows if row.place == top.place), rows[0] if rows else None)


def _devices_answer(cells: Cells, top: ShownCell) -> Answer | None:
    """Answer what the most devices bring over one."""
    rows = scaled(cells, top)
    row = headline_of(rows, top)
    if row is None:
        return None
    count, efficiency = row.N, row.S / row.N
    noun = cells.device(row)
    limits = words.effect_interval(row.S, row.S_low, row.S_high)
    wrong = " Impossible: look for a wrong baseline." if row.impossible else ""
    gain = "" if row.S > 1 else " No gain: one alone does more."
    text = f"the work of one {noun}: {words.percent(efficiency)} efficiency.{gain}{wrong}"
    every = [other.S for other in rows]
    over = f" All {len(rows)} settings: {span(every, words.ratio)}." if len(rows) > 1 else ""
    return Answer(
        name="devices", title=f"{count} {noun}s bring", figure=words.effect(row.S, row.S_low, row.S_high), interval=limits,
        text=text,
        note=f"{cells.model(row)}, {cells.settings(row)}, {cells.who(row)}.{over}", chart="scaling", value=row.S,
        low=number_or_nan(row.S_low), high=number_or_nan(row.S_high), unit="×",
    )  # fmt: skip


def _generation_answer(cells: Cells) -> Answer | None:
    """Answer with the shortest median time per output token, and what all sequences of that cell get."""
    jobs = sorted(cells.jobs, key=lambda job: job[0] not in cells.chosen)
    timed = [[row for row in job if row.n and is_known(row.per_output_token_p50)] for job in jobs]
    rows = next((job for job in timed if job), [])
    if not rows:
        return None
    of_model = f"{cells.model(rows[0])}: " if len(timed) > 1 else ""
    shortest = f"The shortest of {len(rows)} cells, not tested."
    row = min(rows, key=lambda row: row.per_output_token_p50)
    seconds, low, high = (number_or_nan(row.value(f"per_output_token_p50{end}")) for end in ("", "_low", "_high"))
    each = f"{words.with_unit(1 / seconds, 'tokens/s')} for each sequence"
    decode = row.decode_rate
    every = f", {words.short(decode)} for all {row.bs}" if is_known(decode) and row.bs != 1 else ""
    return Answer(
        name="generation", title="A token takes", figure=words.milliseconds(seconds),
        interval=words.rate_interval(seconds, low, high), text=f"{of_model}{each}{every}. {shortest}",
        note=f"{cells.model(row)}, {cells.settings(row)}, batch {row.bs}, {cells.place(row)}, {cells.who(row)}.",
        chart="generation", value=seconds, low=low, high=high, unit="seconds",
    )  # fmt: skip


def _energy_answer(cells: Cells, price_list: PriceList) -> Answer | None:
    """Answer how many items a joule yields at most, and what a million of them costs."""
    row = most_economical(cells.chosen)
    if row is None:
        return None
    metered = [each for each in cells.chosen if _is_metered(each)]
    item = row.unit.removesuffix("s")
    money = f"A million {row.unit} cost {cost_in_words(row, price_list.currency)}." if cost_of_million(row) else ""
    how = f"{cells.model(row)}, {cells.settings(row)}, {cells.who(row)}, {cells.place(row)}."
    if not metered:
        value, low, high, unit = 1e6 * row.cost, *ends_of_million(row), f"{price_list.currency} per million {row.unit}"
        return Answer(
            name="energy", title="Least cost", figure=words.money(value, price_list.currency),
            interval=words.rate_interval(value, low, high), text=f"for a million {row.unit}, not tested.", note=how,
            chart="energy", value=value, low=number_or_nan(low), high=number_or_nan(high), unit=unit,
        )  # fmt: skip
    measured = sum(bool(each.n) for each in cells.chosen)
    read = (
        f"the most of {measured} cells"
        if len(metered) == measured
        else f"the most of the {len(metered)} of {measured} cells with a reading"
    )
    value, unit = row.per_joule, f"{row.unit}/J"
    low, high = row.per_joule_low, row.per_joule_high
    return Answer(
        name="energy", title="Per joule and price" if money else "Per joule", figure=words.with_unit(value, unit),
        interval=words.rate_interval(value, low, high), low=number_or_nan(low), high=number_or_nan(high),
        text=f"{read}: {words.with_unit(1 / value, 'J')} per {item}. {money}".strip(), note=how, chart="energy",
        value=value, unit=unit,
    )  # fmt: skip


def most_economical(rows: Sequence[ShownCell]) -> ShownCell | None:
    """Return the cell that yields most per joule; where none has a reading, the one whose items cost least; None without."""
    metered = [row for row in rows if _is_metered(row)]
    priced = [row for row in rows if cost_of_million(row)]
    return max(metered or priced, key=lambda row: row.per_joule if metered else -row.cost, default=None)


def _is_metered(row: ShownCell) -> bool:
    return bool(row.n) and is_known(row.per_joule)


def cost_of_million(row: ShownCell) -> float | None:
    """Return what a million items cost by the price list; None if that is unknown."""
    return 1e6 * float(row.cost) if row.n and is_known(row.cost) else None


def ends_of_million(row: ShownCell) -> tuple[float | None, float | None]:
    """Return both ends of the interval of what a million items cost; None without one."""
    low, high = (row.value(f"cost_{end}") for end in ("low", "high"))
    return (
        (1e6 * low, 1e6 * high) if is_known(low) and is_known(high) and low is not None and high is not None else (None, None)
    )


def cost_in_words(row: ShownCell, currency: str) -> str:
    """Write what a million items cost, with its interval."""
    cost = cost_of_million(row)
    if cost is None:
        return words.UNKNOWN
    return f"{words.money(cost, currency)} {words.rate_interval(cost, *ends_of_million(row))}".strip()


def _since_answer(since: Since | None) -> Answer | None:
    if since is None or not since.cells:
        return None
    slower, faster = since.count("SLOWER"), since.count("FASTER")
    parts = [f"{n} {word}" for n, word in ((slower, "slower"), (faster, "faster")) if n]
    more = [*parts[1:], *unchanged(since)]
    is_tested = since.count("SAME") + since.count("AMBIGUOUS") > 0
    return Answer(
        name="since", title="Since the last run", figure=parts[0] if parts else "none shown", interval="",
        text=" ".join(filter(None, (f"{', '.join(more)}." if more else "", since.shift))), chart="since",
        note=f"Since {since.run}. {what_else(since)}",
        value=float(slower + faster) if parts or is_tested else math.nan, unit="cells",
        verdict="SLOWER" if slower else "FASTER" if faster else "AMBIGUOUS" if is_tested else "n/a",
    )  # fmt: skip


def unchanged(since: Since) -> list[str]:
    """Return how many cells no difference was shown of, and how many could not be tested, each in words."""
    counts = {
        "with no difference shown": since.count("SAME") + since.count("AMBIGUOUS"), "disturbed": since.count("DISTURBED"),
        "not tested": since.count("n/a"),
    }  # fmt: skip
    return [f"{number} {what}" for what, number in counts.items() if number]


def what_else(since: Since) -> str:
    """Describe what differs between the two runs besides figures, such as "What else changed: host driver 575.57 → 580.65."."""
    changed = differences_in_words(since.environment).replace(" -> ", " → ")
    known = f"{since.compared.recorded} of {since.compared.of} known on both sides"
    return f"What else changed: {changed}." if changed else f"No recorded condition changed ({known})."


MOST_WORDS = 30


def _lead(cells: Cells, ranked: Ranking) -> str:
    """Return a sentence of at most MOST_WORDS about one cell, the highest, with all its settings: its figure, what it is beside
    others and, if there is room, how far it scales.
    """
    said, top = "".join(_lead_parts(cells, ranked)), ranked.top
    scales = f"; {cells.label(top, 'devices')} do {words.ratio(top.S)} the work of one." if top.S is not None else "."
    return said + (scales if len(f"{said}{scales}".split()) <= MOST_WORDS else ".")


def _lead_parts(cells: Cells, ranked: Ranking) -> Iterator[str]:
    """Yield the parts of the first sentence, but for how far it scales; where nothing varied, it is no advice."""
    top, slowest = ranked.top, ranked.candidates[-1]
    rate = words.with_unit(top.rate, f"{top.unit}/s")
    model, verb = cells.model(top), words.verb(cells.value(top, "mode"))
    sizes = cells.varied_sizes(top, ranked.candidates)
    how = f"with {words.enumerated([*cells.settings(top).split(', '), *sizes], 9)} on {cells.who(top)}"
    if len(ranked.candidates) == 1:
        yield f"{model} {verb} at {rate} {how}"
    elif cells.moments(top) is None:
        yield f"Highest: {model} {how}, {rate}; one launch: not tested"
    elif ranked.equal[1:]:
        yield f"{model} {verb} at {rate} {how}; no difference shown from {_others(cells, ranked.equal[1:], top)}"
    elif ranked.near:
        yield f"{model} {verb} at {rate} {how}"
    elif ranked.untested:
        yield f"{model} {verb} at {rate} {how}; not tested against {_others(cells, ranked.untested, top)}"
    else:
        yield f"{model} {verb} fastest {how}: {rate}"
        if top.rate / slowest.rate > WORTH_SAYING:
            yield f", {words.ratio(top.rate / slowest.rate)} the throughput of {_named(cells, slowest, top)}"


def _others(cells: Cells, others: Sequence[ShownCell], top: ShownCell) -> str:
    """Count the others, or name a single one."""
    return _named(cells, others[0], top) if len(others) == 1 else f"{len(others)} others"


WORTH_SAYING = 1.1
"""The fastest over the slowest, from which on the first sentence has it if a test shows that it is slower."""
