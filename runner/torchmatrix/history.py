"""Trends -> one self-contained HTML file: what changed and since when, a chart and a table row per cell, the runs."""

import math
import time
from collections.abc import Sequence
from typing import Any

import jinja2

from torchmatrix import __version__, assets, report, tables
from torchmatrix.charts_trend import MOST_RULES, MOST_RUNS, trend_svg
from torchmatrix.definitions import DEFINITIONS
from torchmatrix.trends import Change, Trend, differences_in_words, never_launched

MOST_CHARTS = 40
"""Cells with a chart, those with the largest newest change first; the others stand in the tables, and the page says so."""
MOST_HEADLINES = 8
MOST_ROWS = 400
"""Rows of the table of runs, the newest; all are in `torchmatrix history --json`."""


def render(trends: Sequence[Trend]) -> str:
    """The page of these trends. Everything from the facts is escaped."""
    runs = _runs(trends)
    charts, left_out = _charts(trends)
    context = {
        "version": __version__,
        "hosts": list(dict.fromkeys(trend.host for trend in trends)),
        "headlines": _headlines(trends),
        "first": runs[-1] if runs else None,
        "last": runs[0] if runs else None,
        "count": len(runs),
        "runs": runs[:MOST_ROWS],
        "cells": len(trends),
        "changes": sum(len(trend.changes) for trend in trends),
        "not_ok": sum(run["not_ok"] for run in runs),
        "charts": charts,
        "left_out": left_out,
        "most_runs": MOST_RUNS if len(runs) > MOST_RUNS else None,
        "most_rules": MOST_RULES,
        "groups": _groups(trends),
        "never": never_launched(trends),
        "definitions": DEFINITIONS,
    }
    return _environment().get_template("history.html.j2").render(context)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(assets.TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figure": report.figure,
        "signed": _signed,
        "day": _day,
        "since": tables.change_in_words,
        "differences": lambda found: differences_in_words(found, most=6),
    }
    return environment


def _signed(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{100 * value:+.1f} %"


def _day(seconds: float) -> str:
    return "n/a" if math.isnan(seconds) else time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _headlines(trends: Sequence[Trend]) -> list[str]:
    """The newest changes of level, each as a sentence; or that there is none."""
    found = [(change, trend) for trend in trends for change in trend.changes]
    if not found:
        return ["No cell changed its level." if trends else "Nothing has been launched."]
    found.sort(key=lambda pair: (pair[0].started, _size(pair[0])), reverse=True)
    lines = [f"{trend.cell}, {tables.change_in_words(change)}" for change, trend in found[:MOST_HEADLINES]]
    more = len(found) - len(lines)
    return lines + ([f"{more} older changes stand with their cells below."] if more else [])


def _charts(trends: Sequence[Trend]) -> tuple[list[dict[str, Any]], int]:
    """Charts with their titles, and how many cells that could have one have none."""
    ranked = sorted((trend for trend in trends if len(trend.measured) > 1), key=_weight, reverse=True)
    drawn = [{"title": _title(trend), "cell": trend.cell, "svg": trend_svg(trend)} for trend in ranked[:MOST_CHARTS]]
    return [chart for chart in drawn if chart["svg"]], max(0, len(ranked) - MOST_CHARTS)


def _weight(trend: Trend) -> tuple[float, float]:
    """By the newest change of level; without one by the last figure over the first."""
    newest = _size(trend.changes[-1]) if trend.changes else 0.0
    return newest, abs(trend.change)


def _size(change: Change) -> float:
    return abs(math.log(change.ratio.value))


def _title(trend: Trend) -> str:
    """The answer as a sentence."""
    unit = f" {trend.unit}/s" if trend.unit else ""
    if not trend.changes:
        return f"The same level in {len(trend.measured)} runs: {report.figure(trend.last)}{unit} in the last"
    newest = trend.changes[-1]
    said = differences_in_words(newest.environment, most=2)
    cause = f", when {said}" if said and newest.environment_run == newest.run else ""
    return f"{_signed(newest.ratio.value - 1)} since {_day(newest.started)}{cause}: {report.figure(trend.last)}{unit}"


def _groups(trends: Sequence[Trend]) -> list[dict[str, Any]]:
    """The launched cells of each workload on each host."""
    found: dict[tuple[str, str], list[Trend]] = {}
    for trend in trends:
        if trend.is_launched:
            found.setdefault((trend.host, str(trend.workload)), []).append(trend)
    return [{"host": host, "workload": workload, "trends": group} for (host, workload), group in found.items()]


def _runs(trends: Sequence[Trend]) -> list[dict[str, Any]]:
    """The runs, newest first: how many cells were measured, not ok, skipped, and what had changed."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for trend in trends:
        for row in trend.rows:
            new = {"host": row["host"], "run": row["run"], "started": row["started"]}
            counts = {"measured": 0, "not_ok": 0, "skipped": 0, "environment": {}, "changes": 0}
            run = found.setdefault((row["host"], row["run"]), new | counts)
            kind = "measured" if row["n"] else "skipped" if row["outcome"] == "skipped" else "not_ok"
            run[kind] += 1
            run["environment"] |= row["environment"]
        for change in trend.changes:
            found[trend.host, change.run]["changes"] += 1
    return sorted(found.values(), key=lambda run: (run["started"], run["run"]), reverse=True)
