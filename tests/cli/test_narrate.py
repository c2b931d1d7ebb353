"""What is said of builds."""

import io
from pathlib import Path

from rich.console import Console

from torchmatrix.cli.narrate import Narrator
from torchmatrix.running.news import BuildFinished, BuildLine


def test_a_stack_was_built_if_its_build_said_something_however_long_that_took() -> None:
    said = io.StringIO()
    with Narrator(Console(file=said), [], {}) as narrator:
        narrator.tell(BuildLine(stack="edited", line="$ docker build ."))
        narrator.tell(BuildFinished(stack="edited", seconds=0.4, error=None, log=Path("x")))
        narrator.tell(BuildFinished(stack="found", seconds=3.0, error=None, log=Path("x")))
    assert narrator.ready == ["found"]
    assert "built" in said.getvalue() and "edited in 0 s" in said.getvalue() and "found" not in said.getvalue()
