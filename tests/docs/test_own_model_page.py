"""The example of docs/own-model.md is measured as it stands there, by the command that the page names."""

import re
from pathlib import Path

import pytest

from support import invoke
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.running import reproduce

PAGE = Path(__file__).parents[2] / "docs" / "own-model.md"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Return a folder with the two files of the page."""
    for language, name in (("python", "tiny.py"), ("toml", "matrix.toml")):
        block = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert block and f"`{name}`" in PAGE.read_text()
        (tmp_path / name).write_text(block[1])
    return tmp_path


def test_the_example_fits_on_a_screen_and_is_planned(example: Path) -> None:
    assert len((example / "tiny.py").read_text().splitlines()) + len((example / "matrix.toml").read_text().splitlines()) <= 40
    done = invoke(example, "plan", "--engine", "local", "--where", "model=tiny.Tiny.*", "--where", "count=1")
    assert done.returncode == 0, done.stderr
    shown = re.search(r"tiny\.Tiny\.[0-9a-f]{8}", PAGE.read_text())
    assert shown and f"torch2.5.1-cpu/{shown[0]}-train-fp32-b4/cpu0" in done.stdout, "the id on the page is that of its file"
    assert f"torch2.5.1-cpu/{shown[0]}-infer-fp32-b4/cpu0" in done.stdout


@pytest.mark.thorough
def test_the_example_is_measured_and_repeated_although_its_file_is_gone(example: Path, real_python: str) -> None:
    matrix = example / "matrix.toml"
    matrix.write_text(matrix.read_text() + "compile = [false, true]\nsteps = 2\nwarmup_steps = 2\nwarmup_cap = 2\n")
    cells = ("*-fp32-b4/cpu0", "*-train-fp32-b4-compile/cpu0")
    done = invoke(example, "run", *cells, "--engine", "local", "--launches", "1", "--results", "results")
    assert done.returncode == 0, done.stderr
    (folder,) = Results(example / "results").runs()
    launches = {launch.cell: launch for launch in folder.launches()}
    assert len(launches) == 3 and {launch.outcome for launch in launches.values()} == {"ok"}
    assert all(launch.reference and launch.reference.proof == "full" for launch in launches.values())
    assert {launch.workload.unit for launch in launches.values()} == {"images"}
    (example / "tiny.py").unlink()
    inference = next(launch for launch in launches.values() if launch.workload.mode == "infer")
    again = reproduce.prepare(inference, example / "results", "local")
    assert [cell.id for cell in again.session.plan.cells] == [inference.cell]
    _reproduce_without_model_file(folder, inference.cell, example)


def _reproduce_without_model_file(folder: RunFolder, cell: str, example: Path) -> None:
    """Assert that reproducing from facts that lack the model's file is refused with that reason."""
    (folder.models / "tiny.py").unlink()
    done = invoke(example, "reproduce", cell, "--engine", "local", "--results", "results")
    assert done.returncode == 2 and "lacks the tiny.py that was measured" in done.stderr and "SHA-256" in done.stderr
