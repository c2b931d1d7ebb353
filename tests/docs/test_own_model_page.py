"""The example of docs/own-model.md is measured as it stands there, by the command that the page names."""

import re
from pathlib import Path

import pytest

from support import invoke
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.running import reproduce

PAGE = Path(__file__).parents[2] / "docs" / "own-model.md"


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with the two files of the page."""
    for language, name in (("python", "tiny.py"), ("toml", "matrix.toml")):
        block = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert block and f"`{name}`" in PAGE.read_text()
        (tmp_path / name).write_text(block[1])
    return tmp_path


def test_the_example_fits_on_a_screen_and_is_planned(beside: Path) -> None:
    assert len((beside / "tiny.py").read_text().splitlines()) + len((beside / "matrix.toml").read_text().splitlines()) <= 40
    done = invoke(beside, "plan", "--engine", "local", "--where", "model=tiny.Tiny.*", "--where", "count=1")
    assert done.returncode == 0, done.stderr
    shown = re.search(r"tiny\.Tiny\.[0-9a-f]{8}", PAGE.read_text())
    assert shown and f"torch2.5.1-cpu/{shown[0]}-train-fp32-b4/cpu0" in done.stdout, "the id on the page is that of its file"
    assert f"torch2.5.1-cpu/{shown[0]}-infer-fp32-b4/cpu0" in done.stdout


@pytest.mark.thorough
def test_the_example_is_measured_and_repeated_although_its_file_is_gone(beside: Path, real_python: str) -> None:
    matrix = beside / "matrix.toml"
    matrix.write_text(matrix.read_text() + "compile = [false, true]\nsteps = 2\nwarmup_steps = 2\nwarmup_cap = 2\n")
    cells = ("*-fp32-b4/cpu0", "*-train-fp32-b4-compile/cpu0")
    done = invoke(beside, "run", *cells, "--engine", "local", "--launches", "1", "--results", "results")
    assert done.returncode == 0, done.stderr
    (folder,) = Results(beside / "results").runs()
    launches = {launch.cell: launch for launch in folder.launches()}
    assert len(launches) == 3 and {launch.outcome for launch in launches.values()} == {"ok"}
    assert all(launch.reference and launch.reference.proof == "full" for launch in launches.values())
    assert {launch.workload.unit for launch in launches.values()} == {"images"}
    (beside / "tiny.py").unlink()
    one = next(launch for launch in launches.values() if launch.workload.mode == "infer")
    again = reproduce.prepare(one, beside / "results", "local")
    assert [cell.id for cell in again.session.plan.cells] == [one.cell]
    _repeat_from_what_is_gathered(folder, one.cell, beside)


def _repeat_from_what_is_gathered(folder: RunFolder, cell: str, beside: Path) -> None:
    """Facts that came without the file say so."""
    (folder.models / "tiny.py").unlink()
    done = invoke(beside, "reproduce", cell, "--engine", "local", "--results", "results")
    assert done.returncode == 2 and "lacks the tiny.py that was measured" in done.stderr and "SHA-256" in done.stderr
