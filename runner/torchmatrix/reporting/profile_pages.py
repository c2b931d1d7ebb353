"""Profiles -> HTML pages: where a cell's time goes, and why two cells differ."""

from collections.abc import Sequence
from typing import Any

from torchmatrix.analysis.why import Bar, Why
from torchmatrix.facts.profiles import TRACE
from torchmatrix.ground.formatting import figure
from torchmatrix.reporting import profiled, words
from torchmatrix.reporting.charts import step_parts
from torchmatrix.reporting.profiled import Seen
from torchmatrix.reporting.report import page
from torchmatrix.reporting.report.filters import utc


def of_profile(seen: Seen) -> str:
    """The page of one profile."""
    found, first = seen.side.shares, seen.side.shares.parts
    share = f"{100 * first[0].seconds / found.seconds:.0f} % of a profiled step" if first else ""
    answers = [f"{first[0].name} takes {share}." if first else "Nothing ran."]
    answers += [f"{found.gap_name[1:-1].capitalize()}: {100 * found.gap / found.seconds:.1f} % of a profiled step."]
    if seen.memory:
        answers += [f"Tensors take up to {words.with_unit(seen.memory.peak / 2**20, 'MiB')} in a step."]
    drawn = {
        "chart": step_parts.parts(found, "Where the time of a step goes"),
        "table": step_parts.table(found),
        "memory": step_parts.memory(seen.memory, "What tensors take while the steps run") if seen.memory else None,
    }
    return _page("Profile", seen.profile.cell, answers, drawn, [("", seen)])


def of_why(found: Why, sides: Sequence[Seen]) -> str:
    """The page of two cells: a waterfall from one step time to the other, and all bars as a table."""
    first, last = found.steps
    kind = "measured" if found.is_measured else "not measured in one run; without the profiler"
    steps = f"A step of A takes {words.milliseconds(first)}, of B {words.milliseconds(last)} ({kind})"
    most = [f"{bar.name} {words.more_milliseconds(bar.difference)}" for bar in found.bars[:3]]
    answers = [f"A: {found.a.cell}", f"B: {found.b.cell}", f"{steps}: {words.more_milliseconds(found.told)}."]
    answers += [f"Most of the difference of profiled steps, {words.more_milliseconds(found.profiled)}: {'; '.join(most)}."]
    drawn = {
        "chart": step_parts.waterfall(found, "From a step of A to a step of B"),
        "rows": [_row(found, bar) for bar in (*found.bars, found.gap)],
        "notes": list(profiled.notes(found)),
    }
    title = f"Where a step of B differs from one of A, {words.more_milliseconds(found.told)}"
    return _page("Why", title, answers, drawn, list(zip("AB", sides, strict=True)))


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


def _page(kicker: str, title: str, answers: Sequence[str], drawn: dict[str, Any], sides: Sequence[tuple[str, Seen]]) -> str:
    context = {
        "kicker": kicker,
        "title": title,
        "answers": answers,
        "sides": [_side(name, seen) for name, seen in sides],
        "slower": profiled.SLOWER,
        "has_kernels": any(row["by"] for row in drawn.get("rows", [])),
    }
    return page.render("profile.html.j2", **context, **drawn)


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
