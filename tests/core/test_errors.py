"""What counts as a lack of the machine, and what it says."""

import pytest

from torchmatrix.core.errors import lack_of


class PanicException(BaseException):
    """As libraries in Rust raise it: of this name, and no Exception."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "not enough memory: can't start new thread"),
        (PanicException("assertion failed\n  left: 24\n right: 0"), "a library stopped: assertion failed left: 24 right: 0"),
        (OSError("no space"), "no space"),
    ],
    ids=["memory", "threads", "a panic", "disk"],
)
def test_a_lack_is_said_on_one_line_with_a_hint(error: BaseException, said: str) -> None:
    found = lack_of(error)
    assert found is not None and found[0] == said and found[1]


def test_other_errors_are_none() -> None:
    assert lack_of(ValueError("a mistake of ours")) is None and lack_of(SystemExit(3)) is None
