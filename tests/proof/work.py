"""Rows on the proof of work: launches of the real stack that don't do their work, and launches that do."""

import itertools
from collections.abc import Callable, Iterable
from functools import partial

import honest
import sabotaged
from boxes import bench
from proof.row import Row, RowFunction

import bare_loop
from torchmatrix.ground.errors import ToolError


def row(what: str, judge: Callable[[str], Iterable[bool]]) -> Row:
    """`judge`: launches under an interpreter with PyTorch, and whether each ended as it must."""
    try:
        python = bare_loop.built_python()
    except ToolError as error:
        return Row(what=f"{what} ({error})", found="n/a", goal="all", holds=False)
    found = list(judge(python))
    return Row(what=what, found=f"{sum(found)} of {len(found)}", goal="all", holds=all(found))


def caught(python: str) -> Iterable[bool]:
    """Each sabotaged launch must end as numerics, for its reason."""
    return (one.is_caught(*one.launch(python)[:2]) for one in sabotaged.EVERY)


def proven(python: str) -> Iterable[bool]:
    """tests/bench/honest.py counts hundreds of them, on any interpreter."""
    for model, mode, precision, ranks in itertools.product(honest.MODELS, ("train", "infer"), ("fp32", "amp-bf16"), (1, 2)):
        code, events, _ = bench(python, *model, "--mode", mode, "--precision", precision, processes=ranks)
        yield honest.verdict(code, events)[0] == "ok"


ROWS: tuple[RowFunction, ...] = (
    partial(row, "work: sabotaged launches that end as numerics, for the right reason", caught),
    partial(row, "work: honest launches that are proven", proven),
)
