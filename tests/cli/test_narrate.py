"""Progress on the terminal while stacks are built and cells are launched."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from support.records import write_run
from torchmatrix.cli.narrate import Narrator
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix.running.progress import (
    BuildFinished,
    BuildLine,
    LaunchFinished,
    LaunchPhase,
    LaunchStarted,
    ProgressEvent,
)

MATRIX = """
[[stack]]
name = "torch-2.7.1-built-here-for-cuda-12.8"
python = "/usr/bin/python3"
[[workload]]
model = "resnet50"
precision = "amp"
compile = true
channels_last = true
batch = 64
"""


@pytest.fixture
def cell(nvidia_host: Host) -> Cell:
    """Return a cell whose id is wider than a terminal."""
    return make_plan(matrix_file.parse(MATRIX), nvidia_host, Prerequisites(containers=False)).cells[-1]


def last_lines(cell: Cell, events: list[ProgressEvent], passed_seconds: float = 0.0) -> list[str]:
    """Return the last two lines on a terminal of 80 columns, `passed_seconds` after `events`."""
    output, now = io.StringIO(), [0.0]
    console = Console(file=output, force_terminal=True, width=80, color_system=None)
    with Narrator(console, [(cell, 1)], {cell.id: 100.0}, clock=lambda: now[0]) as narrator:
        for event in events:
            narrator.tell(event)
        now[0] = passed_seconds
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.getvalue())
    return [line.strip("\r") for line in plain.splitlines() if line.strip()][-2:]


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("hello", "importing PyTorch"),
        ("setup", "compiling, first step"),
        ("first-step", "warming up"),
        ("warm-up", "warming up"),
        ("warmed-up", "measuring"),
        ("precision", "checking numbers"),
        ("cooling down: 71 °C, wanted below 60 °C", "cooling down: 71 °C, wanted"),
    ],
)
def test_stack_model_and_what_happens_now_are_seen_at_80_columns(cell: Cell, phase: str, words: str) -> None:
    line, bar = last_lines(cell, [LaunchStarted(cell=cell, number=1), LaunchPhase(cell=cell, phase=phase)])
    assert len(cell.id) > 80 >= len(line)
    assert line.startswith("torch-2.7.1-built-here-for-cuda-12.8/") and words in line
    assert "0/1" in bar and "about 2 min left" in bar


def test_the_time_left_counts_down_between_events(cell: Cell) -> None:
    started: list[ProgressEvent] = [LaunchStarted(cell=cell, number=1)]
    assert "about 60 s left" in last_lines(cell, started, passed_seconds=40)[-1]
    assert "left" not in last_lines(cell, started, passed_seconds=400)[-1]


def test_a_cell_that_drifts_takes_as_long_in_its_other_rounds(tmp_path: Path, nvidia_host: Host) -> None:
    """Each launch is expected to take 100 s; the first launch of one cell takes 400 s, that of the other 100."""
    text = MATRIX.replace("compile = true", "compile = false").replace("[[stack]]", "[gpus]\nlists = [[0], [1]]\n[[stack]]")
    text = text.replace("[gpus]", "[gpus]\ncounts = []")
    first, second = make_plan(matrix_file.parse(text), nvidia_host, Prerequisites(containers=False)).cells
    (launch,) = write_run(tmp_path, [{}]).launches()
    output, launches = io.StringIO(), [(first, 1), (first, 2), (first, 3), (second, 1), (second, 2)]
    with Narrator(Console(file=output, width=200), launches, {first.id: 100.0, second.id: 100.0}) as narrator:
        for cell, seconds in ((first, 400.0), (second, 100.0)):
            narrator.tell(LaunchFinished(cell=cell, number=1, launch=launch, seconds=seconds))
    assert "(about 27 min left)" in output.getvalue(), "2 x 400 s, and 2 x 400 s as long as the other cell isn't known"
    assert "(about 15 min left)" in output.getvalue(), "2 x 400 s and 100 s"


@pytest.mark.parametrize(
    ("width", "is_terminal", "has_stack"),
    [(80, True, False), (120, True, True), (80, False, True)],
    ids=["narrow", "wide", "log"],
)
def test_lines_of_launches_begin_in_one_column_and_name_an_only_stack_where_there_is_room(
    tmp_path: Path, cell: Cell, width: int, is_terminal: bool, has_stack: bool
) -> None:
    (launch,) = write_run(tmp_path, [{}]).launches()
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=is_terminal, color_system=None)
    with Narrator(console, [(cell, n) for n in range(1, 11)], {cell.id: 1.0}) as narrator:
        for number in range(1, 11):
            narrator.tell(LaunchFinished(cell=cell, number=number, launch=launch, seconds=1.0))
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", output.getvalue())
    lines = [line.strip("\r") for line in plain.splitlines() if " ok " in line]
    assert len({line.index(" ok ") for line in lines}) == 1 and [line[:7] for line in (lines[0], lines[-1])] == [
        "[ 1/10]",
        "[10/10]",
    ]
    assert all((cell.stack.name in line) is has_stack and "/gpu" in line for line in lines)


def test_a_stack_was_built_if_its_build_printed_something_however_long_that_took() -> None:
    output = io.StringIO()
    with Narrator(Console(file=output), [], {}) as narrator:
        narrator.tell(BuildLine(stack="edited", line="$ docker build ."))
        narrator.tell(BuildFinished(stack="edited", seconds=0.4, error=None, log=Path("x")))
        narrator.tell(BuildFinished(stack="found", seconds=3.0, error=None, log=Path("x")))
    assert narrator.ready == ["found"]
    assert "built" in output.getvalue() and "edited in 0 s" in output.getvalue() and "found" not in output.getvalue()


def test_each_node_has_a_line_and_the_longest_node_is_the_time_left(nvidia_host: Host) -> None:
    text = MATRIX.replace("[[stack]]", "[gpus]\ncounts = []\nlists = [[0], [1]]\n[[stack]]")
    cells = make_plan(matrix_file.parse(text), nvidia_host, Prerequisites(containers=False)).cells
    launches = [(cells[0], 1), (cells[0], 2), (cells[0], 3), (cells[1], 1)]
    output, now = io.StringIO(), [0.0]
    console = Console(file=output, force_terminal=True, width=200, color_system=None)
    expected_seconds = dict.fromkeys((cell.id for cell in cells), 100.0)
    node_of = {cell.id: f"node{number}" for number, cell in enumerate(cells)}
    with Narrator(console, launches, expected_seconds, clock=lambda: now[0], node_of=node_of) as narrator:
        for cell in cells:
            narrator.tell(LaunchStarted(cell=cell, number=1))
            narrator.tell(LaunchPhase(cell=cell, phase="warmed-up"))
        now[0] = 40
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.getvalue())
    first, second, bar = [line.strip("\r") for line in plain.splitlines() if line.strip()][-3:]
    assert "/gpu0  round 1: measuring" in first and "/gpu1  round 1: measuring" in second
    assert "about 4 min left" in bar, "260 s on the first"
