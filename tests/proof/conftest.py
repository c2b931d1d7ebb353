"""Fixtures of the proofs: the real stack, one CPU for all that is measured, and the bare loop beside it."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def real_python() -> str:
    """Return the interpreter of the real stack, built once per machine."""
    import bare_loop

    return bare_loop.built_python()


@pytest.fixture(scope="session")
def one_cpu() -> Iterator[int]:
    """Keep this process and all that it starts to the machine's last CPU, so that a launch has one thread."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    yield max(before)
    os.sched_setaffinity(0, before)
