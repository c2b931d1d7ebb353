"""Since the last run: each cell a dot, and a row for each that changed."""

from torchmatrix.analysis.speedups import Changed, Since
from torchmatrix.reporting import words
from torchmatrix.reporting.charts.rows import Chart, Panel
from torchmatrix.reporting.charts.rows import Row as Dot
from torchmatrix.reporting.charts.ticks import round_values
from torchmatrix.reporting.overview import answers
from torchmatrix.reporting.overview.cells import Cells

MOST_ROWS = 12


def chart(cells: Cells, found: Since | None) -> Chart | None:
    """None without an earlier run that shares a cell."""
    if found is None or not found.cells:
        return None
    ratios = [one.ratio.value for one in found.cells]
    changed = sorted((one for one in found.cells if one.verdict in ("SLOWER", "FASTER")), key=lambda one: one.ratio.value)
    reach = max(0.02, *(abs(ratio - 1) for ratio in ratios), *(abs(end - 1) for one in changed for end in _ends(one))) * 1.05
    names = {row["cell"]: row for row in cells.rows}
    every = Dot(label=f"all {len(ratios)} cells", strokes=tuple(ratios), value=None, figures=("", ""), shape="dot")
    rows = [every, *(_row(cells, names, one) for one in changed[:MOST_ROWS])]
    more = [f"{len(changed) - MOST_ROWS} more changed" if len(changed) > MOST_ROWS else ""]
    more += [f"{found.missing} cells without a figure in one of the two" if found.missing else ""]
    more += [f"{found.refused} cells did other work" if found.refused else ""]
    ticks = tuple((value, words.change(value)) for value in round_values(1 - reach, 1 + reach, 5))
    return Chart(
        id="since",
        title=_title(found),
        sub=f"Each stroke is a cell: its throughput over that in run {found.run}. Verdicts allow for {len(ratios)} "
        "comparisons. They are about these two runs; runs of one machine may differ, too. "
        f"{answers.what_else(found)}",
        panels=((Panel(title="", rows=tuple(rows), low=1 - reach, high=1 + reach, kind="forest since", ticks=ticks),),),
        more="; ".join(filter(None, more)),
    )  # fmt: skip


def _title(found: Since) -> str:
    slower, faster = found.count("SLOWER"), found.count("FASTER")
    rest = len(found.cells) - slower - faster
    parts = [f"{slower} slower" if slower else "", f"{faster} faster" if faster else "", f"{rest} with no difference shown"]
    return f"Since the last run: {', '.join(part for part in parts if part)}"


def _ends(one: Changed) -> tuple[float, ...]:
    return tuple(end for end in (one.ratio.low, one.ratio.high) if end == end)


def _row(cells: Cells, names: dict[str, dict[str, object]], one: Changed) -> Dot:
    row = names.get(one.cell)
    label = f"{cells.model(row)}, {cells.settings(row)}, {cells.who(row)}, {cells.label(row, 'devices')}" if row else one.cell
    ends = _ends(one) or (None, None)
    limits = words.effect_interval(one.ratio.value, *ends)
    return Dot(
        label=label, value=one.ratio.value, low=ends[0], high=ends[-1], shape="dot",
        colour=-1 if one.verdict == "SLOWER" else -2,
        figures=(f"{words.effect(one.ratio.value)} {limits}".strip(), words.verdict(one.verdict)), note=one.cell,
    )  # fmt: skip
