"""Texts of a bench at its end: a table of what was tried and what held, and one line."""

from collections.abc import Mapping

from faults.bench import Bench


def in_words(bench: Bench, lacking: Mapping[str, str]) -> str:
    """Return a row per kind: tried, held, seconds of all attempts; then what was left out, and why."""
    rows = [("kind of fault", "tried", "held", "seconds"), *(_row(bench, kind.name) for kind in bench.kinds if bench.of(kind))]
    wide = max(len(row[0]) for row in rows)
    lines = [f"{name:<{wide}}  {tried:>9}  {held:>9}  {seconds:>7}" for name, tried, held, seconds in rows]
    lines += [f"not reached in {bench.seconds:g} s: {kind.name}" for kind in bench.kinds if not bench.of(kind)]
    return "\n".join([*lines, *(f"skipped: {name}: {why}" for name, why in lacking.items())])


def last_line(bench: Bench, lacking: Mapping[str, str]) -> str:
    """Return the bench in one line."""
    faults = [kind for kind in bench.kinds if not kind.is_input and bench.of(kind)]
    inputs, skipped = f"{bench.inputs:,} bad inputs", f", {len(lacking)} skipped" if lacking else ""
    return f"faults: {len(faults)} kinds, {inputs}, {len(bench.failures)} not held{skipped}, seed {bench.seed}"


def _row(bench: Bench, name: str) -> tuple[str, str, str, str]:
    results = [result for attempt, result in bench.made if attempt.kind == name]
    held = sum(result.tried for result in results if not result.failure)
    return name, f"{sum(r.tried for r in results):,}", f"{held:,}", f"{sum(r.seconds for r in results):.0f}"
