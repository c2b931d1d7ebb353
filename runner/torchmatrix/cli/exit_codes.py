"""What a verb's exit code says of what it did: from the facts or from what running returned, never from what was narrated."""

from collections.abc import Collection, Mapping, Sequence

from torchmatrix.ground.errors import ExitCode


def of_launches(outcomes: Mapping[str, int]) -> ExitCode:
    """`outcomes`: how many launches ended how."""
    return ExitCode.OK if set(outcomes) <= {"ok"} else ExitCode.CELL_NOT_OK


def of_batches(found: Sequence[int | None]) -> ExitCode:
    """The largest batches; None where none fits or none could be told."""
    return ExitCode.OK if found and all(found) else ExitCode.CELL_NOT_OK


def of_failures(failed: Collection[object] | int) -> ExitCode:
    """Stacks that couldn't be built or locked, things that couldn't be removed."""
    return ExitCode.CELL_NOT_OK if failed else ExitCode.OK
