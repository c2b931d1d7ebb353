"""Prints what the instrument's numbers are worth: one table, each figure beside its goal (row.py says when one is missed).

    python -m proof.table [--seed N] [--only WORDS] [--jobs K], in tests/ with PYTHONPATH=bench:../images/workload

A row is a claim of a module's CLAIMS. Ends with 1 if a goal is missed.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context

from proof import acceptance, deciding, gate, inference, reports, steady_state, work
from proof.row import SHARES, Claim, Row

CLAIMS: tuple[Claim, ...] = (
    *inference.CLAIMS,
    *reports.CLAIMS,
    *deciding.CLAIMS,
    *acceptance.CLAIMS,
    *gate.CLAIMS,
    *steady_state.CLAIMS,
    *work.CLAIMS,
)


def named(words: str) -> list[int]:
    """Return the places of the claims that say these words."""
    return [place for place, claim in enumerate(CLAIMS) if words in claim.what]


def rows(places: list[int], seed: int, jobs: int) -> Iterator[Row]:
    """Yield the rows in this order, each as soon as it and all before it are known."""
    with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
        parts: list[list[Future[list[float]]]] = [
            [pool.submit(_outcomes, place, seed, share) for share in range(SHARES)] for place in places
        ]
        try:
            for place, shares in zip(places, parts, strict=True):
                yield CLAIMS[place].row(part.result() for part in shares)
        finally:
            pool.shutdown(cancel_futures=True)


def _outcomes(place: int, seed: int, share: int) -> list[float]:
    return CLAIMS[place].outcomes(seed, share)


def line(row: Row) -> str:
    return f"{row.what:<90} {row.found:>9}  {row.goal:<26}{'' if row.holds else '  MISSED'}".rstrip()


def options(about: str | None, only: str) -> argparse.ArgumentParser:
    """Return the parser of the command line of this module and of mutants.py; `only`: what its words choose."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="WORDS", help=only)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="K", help="processes at once")
    return parser


def main() -> int:
    parser = options(__doc__, "rows that say this")
    args = parser.parse_args()
    places, begin, missed = named(args.only), time.monotonic(), 0
    if not places:
        parser.error(f"no row says {args.only}")
    for row in rows(places, args.seed, args.jobs):
        print(line(row), flush=True)
        missed += not row.holds
    verdict = f"{missed} of {len(places)} goals missed" if missed else f"all {len(places)} goals met"
    print(f"{verdict}; seed {args.seed}, {time.monotonic() - begin:.0f} s in {args.jobs} processes")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
