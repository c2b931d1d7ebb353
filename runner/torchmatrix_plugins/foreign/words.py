"""Write a comparison and an audit of other tools' files for a terminal."""

from collections.abc import Iterator, Sequence

from torchmatrix.analysis.rows import group_by
from torchmatrix.analysis.verdicts import REASONS
from torchmatrix.core.formatting import count, figure, printable
from torchmatrix_plugins.foreign.auditing import Audit, Finding, Unchecked
from torchmatrix_plugins.foreign.comparing import UNSAID, Comparison, Ratio

_HEAD = ("", "A", "B", "", "A over B", "95 % interval", "runs", "verdict")


def comparison_in_words(comparison: Comparison, reasons: bool) -> str:
    """Write a line for each ratio; what is refused, unknown or different in set-up below."""
    lines: list[str] = []
    if any(row.unit in ("ms", "s", "us") for row in comparison.ratios):
        lines.append("of times the ratio is B's over A's: above 1, A is better in each line")
    for case, rows in group_by(comparison.ratios, lambda row: row.case).items():
        table = [(case or "figure", *_HEAD[1:]), *map(_columns, rows)]
        widths = [max(len(row[column]) for row in table) for column in range(len(_HEAD))]
        lines += ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
        if reasons:
            lines += [f"  {row.figure}: {row.verdict.verdict}: {REASONS[row.verdict.reason]}" for row in rows]
    if any(1 in row.runs for row in comparison.ratios):
        lines.append("one file of a side is a single run: no interval; name several by a folder or a quoted glob")
    lines += [f"doubtful: {text}" for text in comparison.doubts]
    for refused in comparison.refused:
        lines.append(f"not compared: {refused.case + ', ' if refused.case else ''}{refused.what}: {refused.why}")
    if comparison.only_one:
        lines.append(f"only on one side: {', '.join(comparison.only_one[:_MOST])}{_more(comparison.only_one)}")
    if comparison.unknown:
        lines.append(f"unknown, so perhaps not the same work: {', '.join(comparison.unknown)}")
    lines += ["", "set-up: A, then B" if comparison.setup else "set-up: no difference in what both say"]
    lines += [f"  {key}: {a}  |  {b}" for key, (a, b) in comparison.setup.items() if (a, b) != UNSAID]
    if unsaid := [key for key, both in comparison.setup.items() if both == UNSAID]:
        lines.append(f"  said by neither: {', '.join(unsaid)}")
    return "\n".join(map(printable, lines))


_MOST = 8


def _more(texts: Sequence[str]) -> str:
    return f" and {len(texts) - _MOST} more" if len(texts) > _MOST else ""


def _columns(row: Ratio) -> tuple[str, ...]:
    ratio = row.ratio
    interval = f"{_times(ratio.low)} to {_times(ratio.high)}" if ratio.low == ratio.low else "–"
    runs = str(row.runs[0]) if row.runs[0] == row.runs[1] else f"{row.runs[0]}, {row.runs[1]}"
    return row.figure, figure(row.a), figure(row.b), row.unit, f"{_times(ratio.value)}×", interval, runs, row.verdict.verdict


def _times(ratio: float) -> str:
    return f"{ratio:.3f}" if 1e-3 < ratio < 1e4 else f"{ratio:.3g}"


def audit_in_words(audit: Audit) -> str:
    """Write a line for each finding; those that cases share are one."""
    return "\n".join(map(printable, _findings(audit)))


def _findings(audit: Audit) -> Iterator[str]:
    for (level, check, reason), alike in group_by(audit.findings, lambda one: (one.level, one.check, one.reason)).items():
        yield f"{_cases(alike)}: {level}, {check}: {reason}"


def unchecked_in_words(audit: Audit) -> list[str]:
    """Write a line for each reason why checks could not be made, for stderr."""
    every = group_by(audit.unchecked, lambda one: (one.check, one.reason))
    return [printable(f"not checked: {check}, of {_cases(alike)}: {reason}") for (check, reason), alike in every.items()]


def _cases(alike: Sequence[Finding | Unchecked]) -> str:
    return alike[0].case if len(alike) == 1 else f"{alike[0].case} and {len(alike) - 1} more"


def result_in_words(audit: Audit, cases: int) -> str:
    """Write how many findings there are, and how many checks were made."""
    made = f"{count(audit.made, 'check')} made, {len(audit.unchecked)} not"
    return f"{count(cases, 'case')}: {count(len(audit.findings), 'finding')}; {made}"
