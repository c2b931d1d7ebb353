"""A verb's exit code: from the facts or from what running returned, never from what was printed."""

from collections.abc import Collection, Mapping, Sequence

from torchmatrix.ground.errors import ExitCode


def of_launches(outcomes: Mapping[str, int]) -> ExitCode:
    """`outcomes`: the number of launches by outcome."""
    from torchmatrix.facts.launch import UNLIKE

    return ExitCode.OK if set(outcomes) <= {"ok", UNLIKE} else ExitCode.CELL_NOT_OK


def of_batches(found: Sequence[int | None]) -> ExitCode:
    """`found`: the largest batches; None if none fits or it could not be found out."""
    return ExitCode.OK if found and all(found) else ExitCode.CELL_NOT_OK


def of_failures(failed: Collection[object] | int) -> ExitCode:
    """`failed`: the stacks that couldn't be built or locked, or the things that couldn't be removed."""
    return ExitCode.CELL_NOT_OK if failed else ExitCode.OK
