"""Profiles -> HTML pages: where a cell's time goes, and why two cells differ."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.core.formatting import UNKNOWN, clipped, count, figure, is_known, printable, without_nan
from torchmatrix.reporting import page, words
from torchmatrix.reporting.page import utc
from torchmatrix_plugins.profile import charts, profiles
from torchmatrix_plugins.profile.explanation import MOST_BARS, NOT_ATTRIBUTED, SCATTER, Bar, Measured, Side, Why, largest
from torchmatrix_plugins.profile.profiles import MEMORY, TRACE, Memory, Profile

# The output of `profile` and `why`: lines for the terminal and records for JSON.

NAME_WIDTH = 56
SLOWER = "the profiler slows steps down: read shares, not seconds"


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedCell:
    """One profiled cell: `side` has its shares; `memory`: None where no allocation was traced."""

    profile: Profile
    side: Side
    memory: Memory | None


def seen_in(profile: Profile, measured: Measured, kernels: bool) -> TracedCell:
    """Read the traces of a profile, by kernel or by operator. Raises Malformed."""
    shares = profiles.shares(profiles.parse(profile.trace()), kernels)
    side = Side(cell=profile.cell, shares=shares, plain=profile.plain_seconds, measured=measured)
    return TracedCell(profile=profile, side=side, memory=profiles.memory_of(profiles.parse(profile.trace(MEMORY))))


def times_in_words(side: Side, steps: int) -> str:
    """Write the time of a step with the profiler, without it, and as a run measured it."""
    slower = side.shares.seconds / side.plain - 1
    profiled = f"{_ms(side.shares.seconds)} profiled ({steps} steps), {_ms(side.plain)} without the profiler"
    return f"a step: {profiled}, so {100 * slower:+.0f} %; {_measured(side.measured)}"


def _measured(measured: Measured) -> str:
    if not measured.launches:
        return "not measured by a run"
    return f"measured {_ms(measured.seconds)} (median of {count(measured.launches, 'launch')}, run {measured.run})"


def shares_in_words(seen: TracedCell) -> str:
    """Write where the time of a step goes, and the gap."""
    shares = seen.side.shares
    kinds = "kernel" if shares.on_device else "operator"
    rows = [(part.name, part.seconds, _calls(part.calls)) for part in shares.parts[:MOST_BARS]]
    others = shares.parts[MOST_BARS:]
    rows += [(f"({len(others)} others)", sum(part.seconds for part in others), "")] if others else []
    rows += [(shares.gap_name, shares.gap, "")]
    lines = [seen.profile.cell, times_in_words(seen.side, seen.profile.steps), SLOWER, ""]
    lines += [f"{kinds:<{NAME_WIDTH}}  {'ms of a step':>12}  {'share':>7}  {'calls':>7}"]
    for name, seconds, calls in rows:
        named, share = f"{clipped(name, NAME_WIDTH):<{NAME_WIDTH}}", _percent(seconds / shares.seconds)
        lines.append(f"{named}  {figure(1e3 * seconds):>12}  {share:>7}  {calls:>7}")
    if seen.memory:
        beyond = "" if seen.memory.of_device else ", beyond what was allocated before"
        lines += ["", f"memory in a step: up to {seen.memory.peak / 2**20:.1f} MiB{beyond}"]
    return "\n".join(map(printable, lines))


def why_in_words(why: Why, sides: Sequence[TracedCell]) -> str:
    """Write the operators or kernels that make the difference, down to what isn't attributed."""
    a, b, steps = why.a, why.b, [side.profile.steps for side in sides]
    kinds = "kernel" if a.shares.on_device else "operator"
    lines = [f"A: {a.cell}", f"  {times_in_words(a, steps[0])}", f"B: {b.cell}", f"  {times_in_words(b, steps[1])}", ""]
    lines += [f"{kinds:<{NAME_WIDTH}}  {'A, ms':>9}  {'B, ms':>9}  {'B - A, ms':>10}  {'share':>7}  calls"]
    lines += [_bar_in_words(why, bar) for bar in largest(why)]
    lines += [_sum("profiled", (a.shares.seconds, b.shares.seconds), "100.0 %" if not why.is_scatter else "unknown")]
    lines += [_sum(NOT_ATTRIBUTED, None, "", why.not_attributed)]
    lines += [
        _sum("measured" if why.is_measured else "without the profiler", why.steps, ""),
        "",
        f"{SLOWER[0].upper()}{SLOWER[1:]}.",
        *notes(why),
    ]
    return "\n".join(map(printable, lines))


def notes(why: Why) -> Iterator[str]:
    """Yield how far the attribution can be trusted."""
    yield "Shares are parts of the profiled difference."
    if why.is_scatter:
        yield "The profiled steps differ by less than 2 %, which is within the scatter of single launches: no shares are given."
    if why.is_doubtful:
        plain, profiled = words.more_milliseconds(why.told), words.more_milliseconds(why.profiled)
        yield (
            f"The profiler changes the difference from {plain} to {profiled}: more than half of it is not attributed, so the "
            "bars say little about steps without the profiler."
        )


def _bar_in_words(why: Why, bar: Bar) -> str:
    calls = " → ".join(map(_calls, bar.calls)) if is_known(bar.calls[0]) else ""
    return _line(bar.name, bar.seconds, bar.difference, _percent(why.share(bar)), calls)


def _sum(name: str, seconds: tuple[float, float] | None, share: str, difference: float = math.nan) -> str:
    return _line(name, seconds, seconds[1] - seconds[0] if seconds else difference, share, "")


def _line(name: str, seconds: tuple[float, float] | None, difference: float, share: str, calls: str) -> str:
    both = [figure(1e3 * side) for side in seconds] if seconds else ["", ""]
    change = _difference(difference)
    named = f"{clipped(name, NAME_WIDTH):<{NAME_WIDTH}}"
    return f"{named}  {both[0]:>9}  {both[1]:>9}  {change:>10}  {share:>7}  {calls}".rstrip()


def _calls(number: float) -> str:
    """Write how often something was called in a step, which is seldom no whole number; with three digits, whole from 100 on."""
    if not is_known(number):
        return UNKNOWN
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _difference(seconds: float) -> str:
    """Write milliseconds with their sign and three digits; whole from 100 on."""
    return f"{1e3 * seconds:+.0f}" if abs(seconds) >= 0.1 else f"{1e3 * seconds:+.3g}"


def _ms(seconds: float) -> str:
    return f"{figure(1e3 * seconds)} ms" if is_known(seconds) else "not measured"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if is_known(share) else "unknown"


def profile_record(seen: TracedCell) -> dict[str, Any]:
    """Return the record of a profile; seconds are of a step."""
    shares = seen.side.shares
    parts = [
        {"name": part.name, "seconds": part.seconds, "calls": part.calls, "launched_by": part.by or None}
        for part in shares.parts
    ]
    return dict(
        without_nan(
            {
                **_side_record(seen.side),
                "torch": seen.profile.torch,
                "command": seen.profile.command,
                "profiled_unix_seconds": seen.profile.unix_seconds,
                "steps": seen.profile.steps,
                "of": "kernels" if shares.on_device else "operators",
                "parts": parts,
                "gap": {"name": shares.gap_name, "seconds": shares.gap, "share": shares.gap / shares.seconds},
                "memory_peak_bytes": seen.memory.peak if seen.memory else None,
                "trace": str(seen.profile.path_of(TRACE)),
                "memory_trace": str(seen.profile.path_of(MEMORY)),
            }
        )
    )


def why_record(why: Why, sides: Sequence[TracedCell]) -> dict[str, Any]:
    """Return all bars, which add up with the gap to the profiled difference; seconds are of a step, differences B minus A."""
    bars = [_bar_record(why, bar) | {"launched_by": bar.by or None, "calls": bar.calls} for bar in why.bars]
    record = {
        "a": profile_record(sides[0]),
        "b": profile_record(sides[1]),
        "measured_in": why.a.measured.run or None,
        "difference_seconds": why.told,
        "profiled_difference_seconds": why.profiled,
        "not_attributed_seconds": why.not_attributed,
        "bars": bars,
        "gap": _bar_record(why, why.gap),
        "notes": list(notes(why)),
    }
    return dict(without_nan(record))


def _bar_record(why: Why, bar: Bar) -> dict[str, Any]:
    return {"name": bar.name, "seconds": bar.seconds, "difference_seconds": bar.difference, "share": why.share(bar)}


def _side_record(side: Side) -> dict[str, Any]:
    return {
        "cell": side.cell,
        "profiled_seconds": side.shares.seconds,
        "plain_seconds": side.plain,
        "measured_seconds": side.measured.seconds,
        "measured_launches": side.measured.launches,
        "run": side.measured.run or None,
    }


def of_profile(seen: TracedCell) -> str:
    """Render the page of one profile."""
    shares, first = seen.side.shares, seen.side.shares.parts
    share = f"{100 * first[0].seconds / shares.seconds:.0f} % of a profiled step" if first else ""
    answers = [f"{first[0].name} takes {share}." if first else "Nothing ran."]
    answers += [f"{shares.gap_name[1:-1].capitalize()}: {100 * shares.gap / shares.seconds:.1f} % of a profiled step."]
    if seen.memory:
        answers += [f"Tensors take up to {words.with_unit(seen.memory.peak / 2**20, 'MiB')} in a step."]
    drawn = {
        "chart": charts.parts(shares, "Where the time of a step goes"),
        "table": charts.table(shares),
        "memory": charts.memory(seen.memory, "What tensors take while the steps run") if seen.memory else None,
    }
    return _page("Profile", seen.profile.cell, answers, drawn, [("", seen)])


def of_why(why: Why, sides: Sequence[TracedCell]) -> str:
    """Render the page of two cells: a waterfall from one step time to the other, and all bars as a table."""
    first, last = why.steps
    kind = "measured" if why.is_measured else "not measured in one run; without the profiler"
    steps = f"A step of A takes {words.milliseconds(first)}, of B {words.milliseconds(last)} ({kind})"
    most = [f"{bar.name} {words.more_milliseconds(bar.difference)}" for bar in why.bars[:3]]
    answers = [f"A: {why.a.cell}", f"B: {why.b.cell}", f"{steps}: {words.more_milliseconds(why.told)}."]
    answers += [f"Most of the difference of profiled steps, {words.more_milliseconds(why.profiled)}: {'; '.join(most)}."]
    drawn = {
        "chart": charts.waterfall(why, "From a step of A to a step of B"),
        "rows": [_row(why, bar) for bar in (*why.bars, why.gap)],
        "notes": list(notes(why)),
    }
    return _page("Why", _title(first, last), answers, drawn, list(zip("AB", sides, strict=True)))


def _title(first: float, last: float) -> str:
    """Say by how much a step of B is shorter or longer than one of A; both in seconds."""
    share = last / first - 1
    if abs(share) < SCATTER:
        return f"Steps of A and B differ by less than {100 * SCATTER:g}{words.THIN}%"
    size = f"{100 * abs(share):.2g}{words.THIN}% {'longer' if share > 0 else 'shorter'}"
    return f"A step of B is {size} than one of A: {words.milliseconds(first)} → {words.milliseconds(last)}"


def _row(why: Why, bar: Bar) -> dict[str, Any]:
    return {
        "name": bar.name,
        "by": bar.by,
        "a": figure(1e3 * bar.seconds[0]),
        "b": figure(1e3 * bar.seconds[1]),
        "difference": _difference(bar.difference),
        "share": why.share(bar),
        "calls": list(map(_calls, bar.calls)),
    }


def _page(
    kicker: str, title: str, answers: Sequence[str], drawn: dict[str, Any], sides: Sequence[tuple[str, TracedCell]]
) -> str:
    empty: dict[str, Any] = {"table": None, "memory": None, "rows": [], "notes": []}
    context = {
        **empty,
        "kicker": kicker,
        "title": title,
        "answers": answers,
        "sides": [_side(name, cell) for name, cell in sides],
        "slower": SLOWER,
        "has_kernels": any(row["by"] for row in drawn.get("rows", [])),
    }
    return page.render("profile.html.j2", **(context | drawn))


def _side(name: str, seen: TracedCell) -> dict[str, Any]:
    side, profile = seen.side, seen.profile
    return {
        "name": name,
        "cell": side.cell,
        "torch": profile.torch,
        "profiled": figure(1e3 * side.shares.seconds),
        "plain": figure(1e3 * side.plain),
        "slower": f"{100 * (side.shares.seconds / side.plain - 1):+.0f} %",
        "measured": figure(1e3 * side.measured.seconds),
        "launches": side.measured.launches,
        "run": side.measured.run,
        "gap_name": side.shares.gap_name[1:-1],
        "gap": f"{100 * side.shares.gap / side.shares.seconds:.1f} %",
        "steps": profile.steps,
        "when": utc(profile.unix_seconds),
        "host": profile.host,
        "command": profile.command,
        "trace": str(profile.path_of(TRACE)),
    }
