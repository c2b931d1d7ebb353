"""What the proofs need: the real stack, one CPU for all that is measured, and the bare loop beside it."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def real_python() -> str:
    """The interpreter of the real stack, built once per machine."""
    import bare_loop

    return bare_loop.built_python()


@pytest.fixture(scope="session")
def one_cpu() -> Iterator[int]:
    """This process and all that it starts keep to the machine's last CPU, so that a launch has one thread."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    yield max(before)
    os.sched_setaffinity(0, before)
