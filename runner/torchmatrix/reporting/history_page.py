"""Trends -> one self-contained HTML file: what changed and when, a chart and a table row per cell, the runs."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.history import Change, Trend, never_launched
from torchmatrix.analysis.rows import group_by
from torchmatrix.core.formatting import UNKNOWN
from torchmatrix.facts.environments import Differences, differences_in_words
from torchmatrix.reporting import page, terminal, words
from torchmatrix.reporting.charts import lines as drawing

MOST_HEADLINES = 8
MOST_ROWS = 400
"""The most rows in the table of runs, the newest; `torchmatrix history --json` has them all."""
_DEFINED_TERMS = ("throughput", "interval", "trend", "level")


def render(trends: Sequence[Trend], links: Mapping[str, str] | None = None) -> str:
    """Render the page of these trends. `links`: label -> relative address of a file next to the page."""
    runs, (charts, left_out) = runs_of(trends), drawing.charts(trends)
    context = {
        "hosts": list(dict.fromkeys(trend.host for trend in trends)),
        "headlines": _headlines(trends),
        "first": runs[-1]["day"] if runs else UNKNOWN,
        "last": runs[0]["day"] if runs else UNKNOWN,
        "count": len(runs),
        "metric": trends[0].metric.title if trends else "",
        "runs": runs[:MOST_ROWS],
        "cells": len(trends),
        "changes": sum(len(trend.changes) for trend in trends),
        "not_ok": sum(run["not_ok"] for run in runs),
        "charts": charts,
        "left_out": left_out,
        "groups": _groups(trends),
        "never": never_launched(trends),
        "definitions": {name: DEFINITIONS[name] for name in _DEFINED_TERMS},
        "links": links or {},
    }
    return page.render("history.html.j2", **context)


def _headlines(trends: Sequence[Trend]) -> list[str]:
    """Return the newest changes of level, one sentence per run that has any; or a sentence that there is none."""
    launched = sum(trend.is_launched for trend in trends)
    if not launched:
        return ["Nothing has been launched."]
    runs = list(changes_by_run(trends).values())
    several = len({trend.host for trend in trends}) > 1
    lines = [_headline_of_page(pairs, launched, several) for pairs in runs[:MOST_HEADLINES]]
    more = len(runs) - len(lines)
    lines += [f"The changes in {more} older runs are listed with their cells below."] if more else []
    return lines or ["No cell changed its level."]


def changes_by_run(trends: Sequence[Trend]) -> dict[tuple[str, str], list[tuple[Trend, Change]]]:
    """Group the changes of level by the host and the run in which they began, newest first."""
    changes = [(trend, change) for trend in trends for change in trend.changes]
    by_run = group_by(changes, lambda pair: (pair[0].host, pair[1].run))
    return dict(sorted(by_run.items(), key=lambda item: item[1][0][1].started, reverse=True))


def _headline_of_page(pairs: Sequence[tuple[Trend, Change]], cells: int, several: bool) -> str:
    """Return the headline of a run with the command that shows more; `several`: whether the page has more than one host."""
    trend, first = pairs[0]
    place, folder = (f"{trend.host}: ", f"{trend.host}/") if several else ("", "")
    return f"{place}{headline(pairs, cells)} More: torchmatrix compare {folder}{first.before} {folder}{first.run}"


def headline(pairs: Sequence[tuple[Trend, Change]], cells: int) -> str:
    """Describe what changed in one run, and what else was different then. `cells`: how many were launched."""
    trend, first = pairs[0]
    number = len(pairs)
    what = trend.cell if number == 1 else words.every_cell(cells) if number == cells else f"{number} of {cells} cells"
    together: Differences = {}
    for _, change in pairs:
        together |= change.environment
    known = f"{first.compared.recorded} of {first.compared.of} conditions known"
    changed = differences_in_words(together).replace(" -> ", " → ")
    cause = f"What changed then: {changed}." if changed else f"Nothing recorded changed then ({known})."
    return f"{what} {_became(trend, [change.ratio.value for _, change in pairs])} on {_day(first.started)}. {cause}"


def _became(trend: Trend, ratios: Sequence[float]) -> str:
    """Write by how much levels changed, such as "became 5 to 6 % slower"; ratios on both sides of 1 with their signs."""
    least, most = min(ratios), max(ratios)
    if least < 1 < most:
        return f"changed by {words.change(least)} to {words.change(most)}"
    sizes = sorted({f"{100 * abs(ratio - 1):.2g}" for ratio in (least, most)}, key=float)
    direction = (
        ("slower" if trend.is_worse(least) else "faster") if trend.metric.is_speed else "lower" if least < 1 else "higher"
    )
    return f"became {' to '.join(sizes)}{words.THIN}% {direction}"


def _groups(trends: Sequence[Trend]) -> list[dict[str, Any]]:
    """Group the launched cells by workload and host."""
    launched = (trend for trend in trends if trend.is_launched)
    groups = group_by(launched, lambda trend: (trend.host, str(trend.workload)))
    return [{"host": host, "workload": workload, "cells": list(map(_cell, each))} for (host, workload), each in groups.items()]


def _cell(trend: Trend) -> dict[str, Any]:
    return {
        "id": trend.cell,
        "measured": len(trend.measured),
        "runs": len(trend.rows),
        "first": trend.shown(trend.first),
        "last": trend.shown(trend.last),
        "unit": trend.shown_unit,
        "change": words.change(1 + trend.change),
        "changes": [terminal.change_in_words(change) for change in reversed(trend.changes)],
        "newest": trend.rows[-1],
    }


def runs_of(trends: Sequence[Trend]) -> list[dict[str, Any]]:
    """Return the runs, newest first: how many cells were measured, disturbed, not ok and skipped, and what had changed."""
    by_id: dict[tuple[str, str], dict[str, Any]] = {}
    for trend in trends:
        for row in trend.rows:
            if (row.host, row.run) not in by_id:
                identity = {"host": row.host, "run": row.run, "started": row.started, "day": _day(row.started)}
                counts = {"measured": 0, "disturbed": 0, "not_ok": 0, "skipped": 0, "ok": 0, "new_levels": 0, "environment": {}}
                by_id[row.host, row.run] = identity | counts
            run = by_id[row.host, row.run]
            run["measured" if row.n else row.outcome if row.outcome in ("skipped", "ok") else "not_ok"] += 1
            run["disturbed"] += row.disturbed > 0
            run["environment"] |= row.environment
        for change in trend.changes:
            by_id[trend.host, change.run]["new_levels"] += 1
    starts = {key: -math.inf if math.isnan(run["started"]) else run["started"] for key, run in by_id.items()}
    runs = [by_id[key] for key in sorted(by_id, key=lambda key: (starts[key], key[1]), reverse=True)]
    return [run | {"changed": differences_in_words(run["environment"], most=6)} for run in runs]


def _day(seconds: float) -> str:
    return UNKNOWN if math.isnan(seconds) else time.strftime("%Y-%m-%d", time.gmtime(seconds))
