"""A link inside a results folder: what lies behind it isn't ours. It is told, and nothing there is written or removed."""

import json
import shutil
from pathlib import Path

import pytest

from support import Command
from support.records import nights, write_run
from torchmatrix.core.errors import EngineUnusable
from torchmatrix.facts.store import Results, keep_model

READING = ("report", "report --machines", "history", "gate", "export {out} --no-charts", "audit last", "compare last last~1")


def content(folder: Path) -> dict[str, object]:
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Return a folder of the user's own, with files whose names could be ours."""
    folder = tmp_path / "elsewhere"
    write_run(folder, [{"rate": 100.0}], run="20250101T000000Z")
    for name in ("thesis.txt", "removed/a/b/builds/my.log", "models/config.json", "20260101T000000Z/builds/x.log"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("precious")
    return folder


@pytest.mark.parametrize("part", ["fake", "fake/resnet50-train-fp32-b4-224px", "fake/resnet50-train-fp32-b4-224px/cpu0"])
def test_launches_behind_a_link_are_named_and_none_is_made_there(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path, part: str
) -> None:
    assert torchmatrix("run", "*cpu0").returncode == 0
    (run,) = Results(tmp_path / "results").runs()
    for path in run.path.rglob("round2*"):
        path.unlink()
    record = run.record.read_bytes().splitlines(keepends=True)
    run.record.write_bytes(b"".join(line for line in record if b'"run-exit"' not in line))
    moved = tmp_path / "moved"
    shutil.move(run.path / part, moved)
    (run.path / part).symlink_to(moved)
    before = content(moved)
    done = torchmatrix("run", "*cpu0")
    assert done.returncode == 4 and "is a link, and nothing is written through one" in done.stderr, done.stderr
    assert "--new" in done.stderr and content(moved) == before
    assert torchmatrix("report").returncode == 0
    page = (tmp_path / "reports/index.html").read_text(encoding="utf-8")
    assert part in page and "it is a symbolic link" in page


@pytest.mark.parametrize("link", [".cache", ".hidden", ".cache/.cache", ".cache/testhost", ".cache/elsewhere"])
def test_no_verb_that_reads_writes_behind_a_link_or_takes_it_for_a_machine(
    torchmatrix: Command, tmp_path: Path, elsewhere: Path, link: str
) -> None:
    for run in nights(3):
        write_run(tmp_path / "results", [{"rate": 100.0}, {"rate": 101.0}], run=run)
    place = tmp_path / "results" / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere)
    before = content(elsewhere)
    for words in READING:
        verb, *more = words.format(out=tmp_path / "out").split()
        done = torchmatrix(verb, *more)
        assert done.returncode in (0, 2, 3, 5) and "Traceback" not in done.stderr, (words, done.stderr)
        assert content(elsewhere) == before, words
    rows = json.loads(torchmatrix("history", "--json").stdout)
    assert "20250101T000000Z" not in json.dumps(rows) and place.is_symlink()


@pytest.mark.parametrize("link", ["nightly", "nightly/removed", "nightly/removed/testhost"])
def test_runs_are_not_removed_through_a_link(torchmatrix: Command, tmp_path: Path, elsewhere: Path, link: str) -> None:
    for run in nights(4):
        write_run(tmp_path / "results", [{"rate": 100.0}], run=run)
    place = tmp_path / "results" / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(elsewhere)
    before = content(elsewhere)
    done = torchmatrix("clean", "--runs", "--host", "testhost", "--keep", "2", "--yes")
    assert content(elsewhere) == before
    assert len(Results(tmp_path / "results").runs()) == 4
    assert "is a link, and nothing is written through one" in done.stdout + done.stderr
    assert "removed testhost" not in done.stdout
    assert done.returncode == 1 and "0 of 4 runs removed" in done.stderr, "what wasn't removed isn't counted"


@pytest.mark.parametrize("link", [".cache", ".cache/models", ".cache/models/mine"])
def test_a_model_is_not_kept_behind_a_link(tmp_path: Path, elsewhere: Path, link: str) -> None:
    results = Results(tmp_path / "results")
    place = results.root / link
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere / "models" if link.endswith("mine") else elsewhere)
    before = content(elsewhere)
    with pytest.raises(EngineUnusable, match="is a link"):
        keep_model(results.profiled_models, "mine/config.json", b"{}")
    assert content(elsewhere) == before


@pytest.mark.parametrize("kind", ["a file", "a link to nothing", "a link to itself"])
def test_doctor_says_of_results_what_run_says(torchmatrix: Command, fake_matrix: Path, kind: str) -> None:
    results = fake_matrix.parent / "results"
    if kind == "a file":
        results.touch()
    else:
        results.symlink_to("/nonexistent/deep" if kind == "a link to nothing" else results)
    doctor, run = torchmatrix("doctor"), torchmatrix("run")
    assert "can be written" not in doctor.stdout and f"{results} can't be written" in doctor.stdout
    assert doctor.returncode == run.returncode == 4
