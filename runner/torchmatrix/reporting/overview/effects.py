"""One forest plot of everything that was varied: precision, compilation, memory format, versions, runtimes, every factor."""

import fnmatch
import math
from collections.abc import Sequence
from dataclasses import replace

from torchmatrix.analysis.rows import Row
from torchmatrix.matrix.factors import CONTRASTED
from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import Chart, Panel
from torchmatrix.reporting.charts.rows import Row as Dot
from torchmatrix.reporting.charts.ticks import round_values
from torchmatrix.reporting.overview import answers
from torchmatrix.reporting.overview.cells import Cells, grouped, span

MOST_ROWS, MOST_STROKES = 10, 40
_IDLE = {pair.name: factor.idle_for for factor in CONTRASTED for pair in factor.contrasts}
_ORDER = [pair.name for factor in CONTRASTED for pair in factor.contrasts]
_LEAST = 1.1
"""The scale reaches at least this far to both sides of 1."""


def chart(cells: Cells) -> Chart | None:
    """None where no pair of cells differs in one setting only."""
    kinds = sorted({pair["kind"] for pair in cells.data.pairs if pair["ratio"] is not None}, key=_rank)
    if not kinds:
        return None
    rows = [row for kind in kinds for row in _rows(cells, kind)]
    ends = [end for row in rows for end in (row.value, row.low, row.high, *row.strokes) if end]
    high = max(_LEAST, *(min(end, 100.0) for end in ends)) * 1.03
    low = min(1 / _LEAST, *(max(end, 0.01) for end in ends)) / 1.03
    panel = Panel(
        title="", rows=tuple(rows), low=low, high=high, is_log=True, kind="forest", ticks=_ticks(low, high)
    )  # fmt: skip
    return Chart(
        id="settings", title=_title(cells, kinds),
        sub="Throughput with a setting over throughput without it, all else equal; logarithmic scale. A thin stroke is a pair "
        "of cells, the diamond their geometric mean with its interval over launches.",
        panels=((panel,),),
        more=_left_out(cells, kinds),
    )  # fmt: skip


def _rank(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _title(cells: Cells, kinds: Sequence[str]) -> str:
    """The settings by what they bring."""
    told = [
        (kind, answers.mean_of(cells, own)) for kind in kinds if kind != "stack" and (own := _without_controls(cells, kind))
    ]
    moved = [(kind, mean) for kind, mean in told if mean.verdict in ("FASTER", "SLOWER")]
    if told and all(mean.verdict == "n/a" for _, mean in told):
        named = [f"{words.CONTRASTS[kind][0]} {words.effect(mean.interval.value)}" for kind, mean in told[:3]]
        return f"{', '.join(named)}: too few launches, not tested"
    if not moved:
        stacks = _rows_of_stacks(cells, answers.pairs_of(cells, "stack"))
        shown = [f"{row.label} {words.effect(row.value)}" for row in stacks if row.is_best or row.colour < 0]
        said = "No difference shown for any setting" if told else "What another stack brings"
        return f"{said}; another stack: {', '.join(shown[:2])}" if told and shown else said
    moved.sort(key=lambda one: -abs(math.log(one[1].interval.value)))
    named = [f"{words.CONTRASTS[kind][0]} {words.effect(mean.interval.value)}" for kind, mean in moved[:3]]
    return f"Largest effect first: {', '.join(named)}"


def _without_controls(cells: Cells, kind: str) -> list[Row]:
    return [pair for pair in answers.pairs_of(cells, kind) if not _is_control(cells, kind, pair)]


def _is_control(cells: Cells, kind: str, pair: Row) -> bool:
    model = cells.value(cells.rows[pair["at"]], "model")
    return any(fnmatch.fnmatchcase(model, glob) for glob in _IDLE.get(kind, ()))


def _rows(cells: Cells, kind: str) -> list[Dot]:
    """A head, a row for each model (of stacks: each stack), and one for all of them."""
    pairs = answers.pairs_of(cells, kind)
    if kind == "stack":
        return _rows_of_stacks(cells, pairs)
    own, other = words.CONTRASTS[kind]
    by_model = grouped(pairs, lambda pair: tuple(cells.rows[pair["at"]][name] for name in ("mode", "model")))
    found = [_row(cells, some, _name(cells, kind, some)) for some in by_model[:MOST_ROWS]]
    if len(by_model) > 1 and (real := _without_controls(cells, kind)):
        found.append(_row(cells, real, f"all {len(by_model)} models" if len(real) == len(pairs) else "all but the control"))
    return _headed(found, f"{own} instead of {other}")


def _left_out(cells: Cells, kinds: Sequence[str]) -> str:
    """How many models have no row of their own; their pairs are among those of all models."""
    models = [{cells.rows[pair["at"]]["model"] for pair in answers.pairs_of(cells, kind)} for kind in kinds if kind != "stack"]
    most = max((len(one) for one in models), default=0) - MOST_ROWS
    return f"rows of {most} more models, whose pairs are counted" if most > 0 else ""


def _headed(rows: list[Dot], head: str) -> list[Dot]:
    return [replace(rows[0], head=head), *rows[1:]]


def _name(cells: Cells, kind: str, pairs: Sequence[Row]) -> str:
    control = " (control: no convolutions)" if _is_control(cells, kind, pairs[0]) else ""
    return f"{cells.model(cells.rows[pairs[0]['at']])}{control}"


def _rows_of_stacks(cells: Cells, pairs: Sequence[Row]) -> list[Dot]:
    found: list[Dot] = []
    for some in grouped(pairs, lambda pair: cells.rows[pair["over"]]["stack"]):
        base = cells.stack(cells.rows[some[0]["over"]])
        stacks = grouped(some, lambda pair: tuple(cells.rows[pair["at"]][name] for name in ("gpu", "machine", "stack")))
        rows = [_row(cells, own, cells.who(cells.rows[own[0]["at"]])) for own in stacks[:MOST_ROWS]]
        found += _headed(rows, f"another stack instead of {base}")
    return found


def _row(cells: Cells, pairs: Sequence[Row], label: str) -> Dot:
    mean = answers.mean_of(cells, pairs)
    value = mean.interval
    limits = words.effect_interval(value.value, value.low, value.high)
    spread = f"{mean.n} pairs, {span([mean.lowest, mean.highest], words.effect)}" if mean.n > 1 else "1 pair"
    has_limits = not math.isnan(value.low)
    return Dot(
        label=label, value=value.value, low=value.low if has_limits else None, high=value.high if has_limits else None,
        strokes=tuple(pair["ratio"] for pair in pairs[:MOST_STROKES]) if mean.n > 1 else (), shape="diamond",
        figures=(f"{words.effect(value.value)} {limits}".strip(), words.verdict(mean.verdict), spread),
        is_best=mean.verdict == "FASTER", colour=-1 if mean.verdict == "SLOWER" else 0,
    )  # fmt: skip


def _ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """1 and round ratios on both sides."""
    return tuple((value, "the same" if value == 1 else f"{value:g}×") for value in round_values(low, high, is_log=True))
