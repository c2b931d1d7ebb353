"""Rows on the proof of work: launches of the real stack that don't do their work, and launches that do."""

import itertools

import honest
import sabotaged
from boxes import bench
from proof.row import Row, RowFunction

import bare_loop
from torchmatrix.ground.errors import ToolError


def sabotage() -> Row:
    """Each must end as numerics, for its reason."""
    what = "work: sabotaged launches that end as numerics, for the right reason"
    try:
        python = bare_loop.built_python()
    except ToolError as error:
        return _unknown(what, error)
    results = [(one, *one.launch(python)[:2]) for one in sabotaged.EVERY]
    caught = sum(one.is_caught(code, events) for one, code, events in results)
    return Row(what=what, found=f"{caught} of {len(results)}", goal="all", holds=caught == len(results))


def honesty() -> Row:
    """tests/bench/honest.py counts hundreds of them, on any interpreter."""
    what = "work: honest launches that are proven"
    try:
        python = bare_loop.built_python()
    except ToolError as error:
        return _unknown(what, error)
    kinds = itertools.product(honest.MODELS, ("train", "infer"), ("fp32", "amp-bf16"), (1, 2))
    found = [
        honest.verdict(*bench(python, *model, "--mode", mode, "--precision", precision, processes=ranks)[:2])[0]
        for model, mode, precision, ranks in kinds
    ]
    return Row(what=what, found=f"{found.count('ok')} of {len(found)}", goal="all", holds=set(found) == {"ok"})


def _unknown(what: str, error: ToolError) -> Row:
    return Row(what=f"{what} ({error})", found="n/a", goal="all", holds=False)


ROWS: tuple[RowFunction, ...] = (sabotage, honesty)
