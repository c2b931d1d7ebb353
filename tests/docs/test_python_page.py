"""docs/python.md and torchmatrix.read: the examples run, and frames are the tables of `torchmatrix export`."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import torchmatrix
from golden import cases
from support import invoke
from support.records import write_run
from torchmatrix.core.errors import BadInput

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    cases()["nights"](tmp_path / "results")
    return tmp_path / "results"


def test_the_examples_of_the_page_run_as_they_stand(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(results.parent)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    best, ratio, over_time = names["best"], names["ratio"], names["over_time"]
    jobs = names["measured"].groupby(["model", "mode", "precision"])
    assert len(best) == jobs.ngroups > 1 and best.items_per_second.tolist() == jobs.items_per_second.max().tolist()
    assert ratio.low < ratio.value < ratio.high
    assert all((bar > 0).all() for bar in names["bars"])
    assert len(over_time) == 14 and over_time.notna().all().all()
    assert " over " in capsys.readouterr().out


def test_a_frame_is_the_exported_table(results: Path) -> None:
    exported = invoke(results.parent, "export", "tables", "--format", "parquet", "--no-charts")
    assert exported.returncode == 0, exported.stderr
    run = torchmatrix.read(results).run()
    for name in ("cells", "launches", "scaling", "stacks", "failures"):
        expected, frame = pd.read_parquet(results.parent / "tables" / f"{name}.parquet"), run.table(name)
        pd.testing.assert_frame_equal(frame, expected.astype(frame.dtypes.to_dict()), check_exact=True)
        assert frame.attrs["run"] == run.id and set(frame.attrs["meanings"]) == set(frame.columns)
    changed = run.cells
    changed["items_per_second"] = 0.0
    assert (run.cells.items_per_second > 0).all(), "each frame is a new one"


def test_runs_are_told_apart_and_what_is_not_there_is_an_error(results: Path) -> None:
    runs = torchmatrix.read(results)
    assert len(runs) == 14 == len(list(runs)) and runs.run().id == list(runs)[-1].id
    launches = runs.table("launches")
    assert list(launches.columns[:3]) == ["host", "run", "started"] and launches.run.nunique() == 14
    assert len(launches) == sum(len(run.launches) for run in runs) and str(launches.started.dt.tz) == "UTC"
    assert len(runs.table("cells", "last")) == len(runs.run().cells)
    cell = runs.run().cells.cell.iloc[0]
    assert runs.run().cell(cell).estimate().value == runs.run().cells.items_per_second.iloc[0]
    for wrong in (
        lambda: torchmatrix.read(results / "none"), lambda: runs.run("nobody"), lambda: runs.run().table("cell"),
        lambda: runs.run().cell(cell + "x"), lambda: runs.table("cells", "last-0d"),
    ):  # fmt: skip
        with pytest.raises(BadInput):
            wrong()


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    cases()["broken"](tmp_path / "results")
    run = torchmatrix.read(tmp_path / "results").run()
    assert run.unreadable and not run.complete


def test_importing_torchmatrix_loads_no_pandas() -> None:
    code = "import sys, torchmatrix; assert 'pandas' not in sys.modules; torchmatrix.read"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_left_out_or_gone_is_told(results: Path) -> None:
    (first, *_) = sorted(results.glob("*/*"))
    shutil.copytree(first, first.parent / "copied")
    with pytest.warns(UserWarning, match="1 folder of .* left out"):
        runs = torchmatrix.read(results)
    assert list(runs.left_out.values()) == [f"it is a copy of {first.parent.name}/{first.name}"] and len(runs) == 14
    run = runs.run()
    shutil.rmtree(results)
    with pytest.raises(BadInput, match="is gone"):
        _ = run.cells
    assert not results.exists()


def test_a_run_of_the_future_leaves_started_a_time(results: Path) -> None:
    write_run(results, [{"rate": 1.0}], run="20990101T000000Z", unix_seconds=4e9)
    started = torchmatrix.read(results).table("cells").started
    assert str(started.dt.tz) == "UTC" and started.isna().any() and started.notna().any()
