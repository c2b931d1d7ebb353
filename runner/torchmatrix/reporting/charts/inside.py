"""Inside launches -> charts: where the time goes, how much steps vary, temperature, clock and power over time."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.time_split import PHASES, QUANTILES
from torchmatrix.analysis.traces import Trace
from torchmatrix.reporting.charts import INK, PALETTE, Chart, Charts, traced, words
from torchmatrix.reporting.charts.drawing import BELOW, GREY, ROW, WIDTH, caption, captions, colour, finish, on, row

MOST_PHASES = 3
MOST_STEPS = 4
MOST_ROWS = 16
"""The most rows in one chart of phases or steps, the same number for each stack."""
_PHASE_COLOURS = [PALETTE[6], PALETTE[3], PALETTE[7], PALETTE[5], PALETTE[1], PALETTE[0], PALETTE[4]]
_REACH = 2.0
"""The longest step is drawn only up to this many times the 99th percentile."""


def charts(
    phases: pd.DataFrame, steps: pd.DataFrame, traces: Sequence[Trace], traces_left_out: int, stacks: Sequence[str]
) -> Charts:
    """For each model and mode the phases of its cells, for each workload its stacks' step times, and the traces.

    `phases` and `steps` as of the module phases, `traces` and `traces_left_out` as of traces.traces, `stacks` all stacks.
    """
    by_model = [rows for _, rows in phases.groupby(["model", "mode"], sort=False)]
    by_workload = [rows for _, rows in steps.groupby(["workload", "devices"], sort=False)]
    by_workload.sort(key=lambda rows: -_unevenness(rows).max())
    found = [_phases(number, rows) for number, rows in enumerate(by_model[:MOST_PHASES], 1)]
    found += [_steps(number, rows, stacks) for number, rows in enumerate(by_workload[:MOST_STEPS], 1)]
    found += [traced.chart(number, trace) for number, trace in enumerate(traces, 1)]
    drawn = [*by_model[:MOST_PHASES], *by_workload[:MOST_STEPS]]
    rest = sum(map(len, [*by_model[MOST_PHASES:], *by_workload[MOST_STEPS:]])) + sum(
        len(rows) - len(_shown(rows)) for rows in drawn
    )
    return Charts(charts=tuple(found), left_out=rest + traces_left_out)


def _shown(rows: pd.DataFrame) -> pd.DataFrame:
    each = max(1, MOST_ROWS // rows["stack"].nunique())
    return rows.groupby("stack", sort=False).head(each).head(MOST_ROWS)


def _left_out(rows: pd.DataFrame) -> str:
    more = len(rows) - len(_shown(rows))
    return f" {more} more cells are left out." if more else ""


def _phases(number: int, rows: pd.DataFrame) -> Chart:
    shown = _shown(rows)
    columns = {"stack": "stack", "workload": "workload", "devices": "devices", "cache": "compile cache",
               **{phase: f"{phase} in s" for phase in PHASES}, "total": "whole launch in s", "n": "launches"}  # fmt: skip
    return Chart(
        id=f"inside-phases-{number}-{words.slug(rows['model'].iloc[0], rows['mode'].iloc[0])}",
        section="inside",
        title=_phases_title(rows),
        note=f"{DEFINITIONS['phases']}{_left_out(rows)}",
        spec=_phases_spec(shown),
        table=shown[list(columns)].rename(columns=columns).reset_index(drop=True),
    )


def _phases_title(rows: pd.DataFrame) -> str:
    """The share of time that is measured, and what takes most of the rest."""
    model, mode = rows["model"].iloc[0], rows["mode"].iloc[0]
    sums = {phase: float(rows[phase].sum()) for phase in PHASES if phase != "measure" and rows[phase].notna().any()}
    most = max(sums, key=lambda phase: sums[phase])
    named = "the engine, start, end and proofs" if most == "the rest" else most
    totals, shares = rows["total"].dropna(), (rows["measure"] / rows["total"]).dropna()
    if totals.empty:
        return f"Launches of {model} ({mode}): most of the time outside the timed windows goes to {named}"
    length = _from_to(totals.min(), totals.max(), "s")
    share = _from_to(100 * shares.min(), 100 * shares.max(), "%")
    return f"A launch of {model} ({mode}) takes {length}, of which {share} is timed; most of the rest goes to {named}"


def _from_to(low: float, high: float, unit: str) -> str:
    least, most = f"{low:.3g}", f"{high:.3g}"
    return f"{least} {unit}" if least == most else f"{least} to {most} {unit}"


def _phases_spec(rows: pd.DataFrame) -> dict[str, Any]:
    cells = rows.to_dict("records")
    lines = [_phases_line(number, cell) for number, cell in enumerate(cells)]
    parts = [part for number, cell in enumerate(cells) for part in _parts(number, cell)]
    scale = alt.Scale(range=[0, WIDTH - 6], nice=False)
    x = alt.X("start:Q", scale=scale, title="seconds since the launch started", axis=alt.Axis(tickCount=6, grid=False))
    key = alt.Legend(title=None, orient="top", columns=4, symbolType="square", symbolSize=90)
    color = alt.Color("phase:N", scale=alt.Scale(domain=list(PHASES), range=_PHASE_COLOURS), legend=key)
    tips = [alt.Tooltip("phase:N"), alt.Tooltip("seconds:N", title="median")]
    bars = on("parts").mark_bar(height=12, yOffset=BELOW, stroke=INK, strokeWidth=0.4)
    layers = [*captions(lines), bars.encode(y=row(len(lines)), x=x, x2=alt.X2("stop:Q"), color=color, tooltip=tips)]
    return finish(alt.layer(*layers, width=WIDTH, height=alt.Step(ROW)), rows=lines, parts=parts)


def _phases_line(number: int, cell: Any) -> dict[str, Any]:
    cache = f" · {cell['cache']} cache" if cell["cache"] else ""
    total = cell["total"]
    length = "n/a" if math.isnan(total) else f"{total:.3g} s, {100 * cell['measure'] / total:.2g} % timed"
    settings = cell["workload"].removeprefix(f"{cell['model']}-{cell['mode']}-")  # which the title says
    return caption(number, f"{cell['stack']} · {settings} · {cell['devices']}{cache}", length)


def _parts(number: int, cell: Any) -> list[dict[str, Any]]:
    """The phases in order; unknown ones are left out."""
    found, start = [], 0.0
    for phase in PHASES:
        seconds = cell[phase]
        if seconds > 0:
            found.append(
                {"row": number, "phase": phase, "start": start, "stop": start + seconds, "seconds": f"{seconds:.3g} s"}
            )
            start += seconds
    return found


def _unevenness(steps: pd.DataFrame) -> "pd.Series[float]":
    return steps["p99"] / steps["p50"]


def _steps(number: int, rows: pd.DataFrame, stacks: Sequence[str]) -> Chart:
    shown, first = _shown(rows), rows.iloc[0]
    columns = {"stack": "stack", "steps": "steps", "launches": "launches"}
    table = shown[list(columns)].join(1e3 * shown[list(QUANTILES)].add_suffix(" in ms"))
    return Chart(
        id=f"inside-steps-{number}-{words.slug(first['workload'], first['devices'])}",
        section="inside",
        title=_steps_title(rows),
        note=f"{DEFINITIONS['steps']}{_left_out(rows)}",
        spec=_steps_spec(shown, stacks),
        table=table.rename(columns=columns).reset_index(drop=True),
    )


def _steps_title(rows: pd.DataFrame) -> str:
    """How far slow steps are from the median. Fewer than 100 steps have no 99th percentile, so the slowest counts."""
    few = rows["steps"].min() < 100
    slow = rows.assign(slow=rows["max" if few else "p99"] / rows["p50"]).sort_values("slow", kind="stable")
    even, *_, uneven = [*words.rows_of(slow), words.rows_of(slow)[-1]]
    what = f"{'All' if few else '99 of 100'} steps of {even.workload} on {even.devices} take at most {words.times(even.slow)} ×"
    if len(rows) == 1:
        return f"{what} their median of {1e3 * even.p50:.4g} ms ({even.stack})"
    return f"{what} their median on {even.stack}, {words.times(uneven.slow)} × on {uneven.stack}"


def _steps_spec(rows: pd.DataFrame, stacks: Sequence[str]) -> dict[str, Any]:
    top = min(rows["max"].max(), _REACH * rows["p99"].max())
    shown = [_step_row(number, cell, top) for number, cell in enumerate(words.rows_of(rows))]
    low, high = 1e3 * rows["p1"].min(), 1e3 * top
    scale = alt.Scale(domain=[max(0.0, low - (high - low) / 20), high], range=[6, WIDTH - 6], clamp=True, nice=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, title="milliseconds per step", axis=alt.Axis(tickCount=6, grid=False))

    tips = [alt.Tooltip(f"{name}:Q", format=".4g", title=f"{name} in ms") for name in QUANTILES]
    base = on("rows").encode(y=row(len(shown)), tooltip=[alt.Tooltip("label:N", title="stack"), *tips])
    color = alt.Color("label:N", legend=None, scale=colour(stacks, rows["stack"]))
    layers = [
        base.mark_rule(strokeWidth=2, yOffset=BELOW, color=GREY).encode(x=x("p1"), x2=alt.X2("p99:Q")),
        base.mark_bar(height=7, yOffset=BELOW).encode(x=x("p5"), x2=alt.X2("p95:Q"), color=color),
        base.mark_bar(height=13, yOffset=BELOW).encode(x=x("p25"), x2=alt.X2("p75:Q"), color=color),
        base.mark_tick(thickness=2, size=15, yOffset=BELOW, color=INK).encode(x=x("p50")),
        base.mark_point(filled=True, size=22, opacity=1, yOffset=BELOW, color=INK).encode(x=x("max")),
    ]
    return finish(alt.layer(*captions(shown), *layers, width=WIDTH, height=alt.Step(ROW)), rows=shown)


def _step_row(number: int, cell: Any, top: float) -> dict[str, Any]:
    """In milliseconds. If the longest step lies outside the chart, a text gives it."""
    far = f", longest {1e3 * cell.max:.3g} »" if cell.max > top else ""
    said = f"median {1e3 * cell.p50:.4g} ms, p99 {words.times(cell.p99 / cell.p50)} ×{far}"
    return caption(number, cell.stack, said) | {name: 1e3 * getattr(cell, name) for name in QUANTILES}
