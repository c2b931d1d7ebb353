"""Profiles -> HTML pages: where a cell's time goes, and why two cells differ."""

from collections.abc import Sequence
from typing import Any

from torchmatrix.analysis.profiles.why import Bar, Why
from torchmatrix.facts.profiles import TRACE
from torchmatrix.ground.numbers import figure, signed_milliseconds
from torchmatrix.reporting import profiled
from torchmatrix.reporting.charts import Chart, step_parts
from torchmatrix.reporting.profiled import Seen
from torchmatrix.reporting.report import page
from torchmatrix.reporting.report.filters import utc


def of_profile(seen: Seen) -> str:
    """The page of one profile."""
    found, first = seen.side.shares, seen.side.shares.parts
    share = f"{100 * first[0].seconds / found.seconds:.0f} % of a profiled step" if first else ""
    answers = [f"{first[0].name} takes {share}." if first else "Nothing ran."]
    answers += [f"{found.gap_name[1:-1].capitalize()}: {100 * found.gap / found.seconds:.1f} % of a profiled step."]
    charts = [step_parts.parts(found, "Where the time of a step goes")]
    if seen.memory:
        answers += [f"Tensors take up to {figure(seen.memory.peak / 2**20)} MiB in a step."]
        charts += [step_parts.memory(seen.memory, "What tensors take while the steps run")]
    return _page("Profile", seen.profile.cell, answers, charts, [("", seen)], [], [])


def of_why(found: Why, sides: Sequence[Seen]) -> str:
    """The page of two cells: a waterfall from one step time to the other, and all bars as a table."""
    first, last = found.steps
    kind = "measured" if found.is_measured else "not measured in one run; without the profiler"
    steps = f"A step of A takes {figure(1e3 * first)} ms, of B {figure(1e3 * last)} ms ({kind})"
    most = [f"{bar.name} {signed_milliseconds(bar.difference)}" for bar in found.bars[:3]]
    answers = [f"A: {found.a.cell}", f"B: {found.b.cell}", f"{steps}: {signed_milliseconds(found.told)}."]
    answers += [f"Most of the difference of profiled steps, {signed_milliseconds(found.profiled)}: {'; '.join(most)}."]
    charts = [step_parts.waterfall(found, "From a step of A to a step of B")]
    rows, named = [_row(found, bar) for bar in (*found.bars, found.gap)], list(zip("AB", sides, strict=True))
    title = f"Where a step of B differs from one of A, {signed_milliseconds(found.told)}"
    return _page("Why", title, answers, charts, named, rows, list(profiled.notes(found)))


def _row(found: Why, bar: Bar) -> dict[str, Any]:
    return {
        "name": bar.name,
        "by": bar.by,
        "a": figure(1e3 * bar.seconds[0]),
        "b": figure(1e3 * bar.seconds[1]),
        "difference": f"{1e3 * bar.difference:+.3f}",
        "share": found.share(bar),
        "calls": [figure(calls) for calls in bar.calls],
    }


def _page(
    kicker: str, title: str, answers: Sequence[str], charts: Sequence[Chart], sides: Sequence[tuple[str, Seen]],
    rows: Sequence[dict[str, Any]], notes: Sequence[str],
) -> str:  # fmt: skip
    context = {
        "kicker": kicker,
        "title": title,
        "answers": answers,
        "gallery_of": {"charts": [page.shown(chart) for chart in charts], "left_out": 0},
        "sides": [_side(name, seen) for name, seen in sides],
        "rows": rows,
        "notes": notes,
        "slower": profiled.SLOWER,
        "has_kernels": any(row["by"] for row in rows),
    }
    return page.render("profile.html.j2", **context)


def _side(name: str, seen: Seen) -> dict[str, Any]:
    one, held = seen.side, seen.profile
    return {
        "name": name,
        "cell": one.cell,
        "torch": held.torch,
        "profiled": figure(1e3 * one.shares.seconds),
        "plain": figure(1e3 * one.plain),
        "slower": f"{100 * (one.shares.seconds / one.plain - 1):+.0f} %",
        "measured": figure(1e3 * one.measured.seconds),
        "launches": one.measured.launches,
        "run": one.measured.run,
        "gap_name": one.shares.gap_name[1:-1],
        "gap": f"{100 * one.shares.gap / one.shares.seconds:.1f} %",
        "steps": held.steps,
        "when": utc(held.unix_seconds),
        "host": held.host,
        "command": held.command,
        "trace": str(held.path_of(TRACE)),
    }
