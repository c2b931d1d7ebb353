"""What the instrument's numbers are worth: one table, each figure beside its goal.

A row is a function of a module's ROWS.

PYTHONPATH=bench:../images/workload python -m proof.table, in tests/; ends with 1 if a goal is missed.
"""

import sys
import time
from collections.abc import Iterable, Iterator

from proof import gate, inference, steady_state, work
from proof.row import Row, RowFunction

ROWS: tuple[RowFunction, ...] = (*inference.ROWS, *gate.ROWS, *steady_state.ROWS, *work.ROWS)


def lines(rows: Iterable[RowFunction]) -> Iterator[tuple[str, bool]]:
    """One line per row, as soon as it is known, and whether its goal is met."""
    yield f"{'what':<78} {'found':>10}  {'goal':<10}", True
    for make in rows:
        begin = time.monotonic()
        row: Row = make()
        mark = "" if row.holds else "  MISSED"
        yield f"{row.what:<78} {row.found:>10}  {row.goal:<10} {time.monotonic() - begin:4.0f} s{mark}", row.holds


def main() -> int:
    missed = 0
    for line, holds in lines(ROWS):
        print(line, flush=True)
        missed += not holds
    print(f"{missed} of {len(ROWS)} goals missed" if missed else f"all {len(ROWS)} goals met")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
