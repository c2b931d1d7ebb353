"""What the audit says of one figure: how sure it is, of which field, over which limit, and why."""

from dataclasses import dataclass

from torchmatrix.analysis.published.figures import Figure

IMPOSSIBLE, SUSPECT, UNCLEAR = "impossible", "suspect", "unclear"
LEVELS = {
    IMPOSSIBLE: "can't be true as stated",
    SUSPECT: "unlikely: look for a cause",
    UNCLEAR: "can't be judged well: something is unknown, coarse or from elsewhere",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """`row` and `column` as in figures.Figure; `cell` for a figure of ours. `level`: one of LEVELS.

    `field`: the figure's field that is meant and `value` what it says, "" if unknown (a throughput in `unit`). `reason` is a
    sentence, `limit` what was overstepped.
    """

    row: int
    column: str
    cell: str
    level: str
    field: str
    value: str
    unit: str
    limit: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """A figure that could not be held against a peak, and why. `row`, `column` and `cell` as in figures.Figure."""

    row: int
    column: str
    cell: str
    reason: str


def finding(figure: Figure, level: str, field: str, value: str, reason: str, limit: str) -> Finding:
    """About `figure`."""
    return Finding(
        row=figure.row,
        column=figure.column,
        cell=figure.cell,
        level=level,
        field=field,
        value=value,
        unit=figure.unit if field == "throughput" else "",
        limit=limit,
        reason=reason,
    )


def shown(figure: Figure) -> str:
    """Its throughput as written: with all its digits, without an exponent."""
    return f"{figure.throughput:.12g}"


def place(about: Figure | Finding | Unchecked) -> str:
    """The cell, or the row and, where a row has several figures, the column."""
    return about.cell or f"row {about.row}" + (f", {about.column}" if about.column else "")
