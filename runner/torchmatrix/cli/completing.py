"""What the shell may complete besides verbs and options: cells, stacks, presets, runs. Nothing if nothing is known."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchmatrix.ground.errors import ToolError

MOST = 200
"""Nobody reads a longer list."""


def cells(ctx: Any, incomplete: str) -> list[str]:
    """Ids of the matrix's cells, including those that this machine skips."""
    from torchmatrix.machine import host
    from torchmatrix.matrix import matrix_file
    from torchmatrix.planning.fit import Supplies
    from torchmatrix.planning.plan import make_plan

    def ids() -> list[str]:
        made = make_plan(matrix_file.load(_path(ctx, "matrix")), host.detect(), Supplies(containers=True))
        return [cell.id for cell in (*made.cells, *(skip.cell for skip in made.skips))]

    return _beginning(incomplete, ids)


def stacks(ctx: Any, incomplete: str) -> list[str]:
    from torchmatrix.matrix import matrix_file

    return _beginning(incomplete, lambda: [stack.name for stack in matrix_file.load(_path(ctx, "matrix")).stacks])


def presets(incomplete: str) -> list[str]:
    from torchmatrix.matrix import variants

    return _beginning(incomplete, variants.preset_names)


def runs(ctx: Any, incomplete: str) -> list[str]:
    """`last` and `last~1`, then the runs, newest first."""
    from torchmatrix.facts.store import Results

    def words() -> list[str]:
        return ["last", "last~1", *(run.id for run in reversed(Results(_path(ctx, "results")).runs()))]

    return _beginning(incomplete, words)


def runs_and_machines(ctx: Any, incomplete: str) -> list[str]:
    """Machines by their labels, then as `runs`."""
    from torchmatrix.analysis import machines
    from torchmatrix.facts.store import Results

    def labels() -> list[str]:
        return [machine.label for machine, _ in machines.grouped(Results(_path(ctx, "results")).runs())]

    return [*_beginning(incomplete, labels), *runs(ctx, incomplete)]


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Completes one of a few fixed words."""
    return lambda incomplete: _beginning(incomplete, lambda: words)


def metrics(incomplete: str) -> list[str]:
    from torchmatrix.analysis.metrics import BY_NAME

    return _beginning(incomplete, lambda: BY_NAME)


def _path(ctx: Any, name: str) -> Path:
    """The option that was typed before, or its default."""
    from torchmatrix.cli import options

    return Path(ctx.params.get(name) or {"matrix": options.MATRIX, "results": options.RESULTS}[name])


def _beginning(incomplete: str, words: Callable[[], Iterable[str]]) -> list[str]:
    with suppress(ToolError):  # the verb reports a broken matrix; completion doesn't
        return [word for word in words() if word.startswith(incomplete)][:MOST]
    return []
