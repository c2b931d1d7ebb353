"""Errors that name what the machine lacks: which ones count, and their message."""

import pytest

from torchmatrix.core.errors import lack_of


class PanicException(BaseException):
    """An error like those of libraries in Rust: of this name, and no Exception."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "not enough memory: can't start new thread"),
        (PanicException("assertion failed\n  left: 24\n right: 0"), "a library stopped: assertion failed left: 24 right: 0"),
        (OSError("no space"), "no space"),
        (FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"), "no temporary folder can be written"),
        (FileNotFoundError(2, "No such file or directory", "/results/run"), "/results/run is missing"),
    ],
    ids=["memory", "threads", "a panic", "disk", "temporary", "removed"],
)
def test_what_the_machine_lacks_is_named_on_one_line_with_a_hint(error: BaseException, message: str) -> None:
    lack = lack_of(error)
    assert lack is not None and lack[0] == message and lack[1]


def test_other_errors_are_none() -> None:
    assert lack_of(ValueError("a mistake of ours")) is None and lack_of(SystemExit(3)) is None
