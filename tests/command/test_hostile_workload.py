"""A broken or hostile workload process costs its own launches, with the reason: not the run, the folder or a later command."""

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support import FAKE_PYTHON, Command
from support.records import write_run
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results

HOSTILE = Path(__file__).parents[1] / "hostile_python"
FLOODS = {
    "long-line": "longer than 1 MB (setting line_mb)",
    "endless-text-line": "longer than 1 MB (setting line_mb)",
    "full-file": "full: 2 MB (setting launch_file_mb)",
    "full-log": "more than 1 MB (setting log_mb)",
    "full-log-err": "more than 1 MB (setting log_mb)",
}
KINDS = tuple(runpy.run_path(str(HOSTILE), run_name="kinds")["KINDS"])
LIMITS = {"TORCHMATRIX_LAUNCH_FILE_MB": "2", "TORCHMATRIX_LOG_MB": "1"}


@pytest.fixture
def hostile_matrix(fake_matrix: Path, tmp_path: Path) -> Callable[..., None]:
    """Return a function that adds a stack with a hostile workload of each of `kinds` to the stand-in's matrix."""

    def add(*kinds: str) -> None:
        text = fake_matrix.read_text(encoding="utf-8").replace("launches = 2", "launches = 1")
        for kind in kinds:
            python = tmp_path / f"python-{kind}"
            python.write_text(f'#!/bin/sh\nHOSTILE={kind} exec {sys.executable} {HOSTILE} "$@"\n')
            python.chmod(0o755)
            text += f'[[stack]]\nname = "{kind}"\npython = "{python}"\naccelerator = "cpu"\n'
        fake_matrix.write_text(text, encoding="utf-8")

    return add


def launches(folder: Path) -> dict[str, Launch]:
    """Return the launches of the last run, by stack."""
    return {launch.stack.name: launch for launch in Results(folder / "results").runs()[-1].launches()}


def test_each_hostile_workload_costs_its_own_launch_and_the_run_goes_on(
    torchmatrix: Command, hostile_matrix: Callable[..., None], tmp_path: Path
) -> None:
    hostile_matrix(*KINDS, *FLOODS)
    done = torchmatrix("run", "*cpu0", **LIMITS)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "\x1b" not in done.stderr
    assert "1 ok" in done.stderr and f"{len(KINDS) + len(FLOODS)} crashed" in done.stderr
    recorded = launches(tmp_path)
    good = recorded.pop("fake")
    assert good.outcome == "ok" and good.verified and len(recorded) == len(KINDS) + len(FLOODS) >= 18
    for kind, launch in recorded.items():
        assert launch.outcome == "crashed" and launch.verified and not launch.windows, kind
        assert FLOODS.get(kind, "the workload wrote ") in str(launch.error) or kind == "hello-list", (kind, launch.error)
        assert launch.path.stat().st_size < 3_000_000, kind
        log = launch.path.with_suffix(".log")
        assert not log.exists() or log.stat().st_size <= 1_000_000, kind
    page = (tmp_path / "reports/index.html").read_text()
    assert "10000</b> images/s" in page and page.count('<span class="tag">crashed</span>') >= len(recorded)


@pytest.mark.parametrize("what", ["truncate -cs 0", "rm -f"])
def test_a_launch_whose_file_somebody_else_changes_ends_the_run_and_is_measured_again(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path, what: str
) -> None:
    program, harmful = tmp_path / "python", tmp_path / "harmful"
    program.write_text(
        f'#!/bin/sh\n{FAKE_PYTHON} "$@" || exit\n'
        f"[ -e {harmful} ] && for file in {tmp_path}/results/*/*/*/*/*/round*.jsonl; do {what} $file; done\nexit 0\n"
    )
    program.chmod(0o755)
    harmful.touch()
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8").replace(str(FAKE_PYTHON), str(program)), encoding="utf-8")
    done = torchmatrix("run", "*cpu0")
    assert done.returncode == 4 and "what else writes into the results" in done.stderr and "images/s" not in done.stdout
    harmful.unlink()
    done = torchmatrix("run", "*cpu0")
    assert done.returncode == 0, done.stderr
    assert "2 ok" in done.stderr and len(Results(tmp_path / "results").runs()) == 1


def test_later_commands_on_that_folder_work_and_its_facts_stay(
    torchmatrix: Command, hostile_matrix: Callable[..., None], tmp_path: Path
) -> None:
    hostile_matrix("deep", "own-exit", "ok-failure")
    assert torchmatrix("run", "*cpu0").returncode == 1
    before = {path: path.read_bytes() for path in tmp_path.glob("results/*/*/**/*.jsonl")}
    for words, code in (
        (("run", "*cpu0"), 1),
        (("report",), 0),
        (("history",), 0),
        (("gate",), 5),  # what crashes now as it did before is no regression, but a launch without a number is one
        (("doctor",), 0),
        (("compare", "fake", "fake"), 0),
    ):
        done = torchmatrix(*words)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), (words, done.stdout, done.stderr)
    assert len(Results(tmp_path / "results").runs()) == 2
    assert before == {path: path.read_bytes() for path in before}


def test_a_folder_with_foreign_files_is_read_and_they_are_named(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "results", [{"rate": 100.0}, {"rate": 101.0}, {"rate": 102.0}])
    first = run.launches()[0].path
    first.with_name("round1-try1 (copy).jsonl").write_bytes(first.read_bytes())
    first.with_name("round5-try1.jsonl").mkdir()
    os.mkfifo(first.with_name("round6-try1.jsonl"))
    first.with_name("round7-try1.jsonl").symlink_to("/dev/zero")
    with first.with_name("round8-try1.jsonl").open("wb") as large:
        large.truncate(1_000_000_000)
    first.with_name("round9-try1.jsonl").write_text("null\n")
    other = tmp_path / "results/testhost/20260102T000000Z"
    other.mkdir()
    os.mkfifo(other / "run.jsonl")
    reasons = {
        "round1-try1 (copy).jsonl": "its name is not that of a launch file",
        "round5-try1.jsonl": "Is a directory",
        "round6-try1.jsonl": "it is not a plain file",
        "round7-try1.jsonl": "it is a symbolic link",
        "round8-try1.jsonl": "it is larger than 128 MB",
        "round9-try1.jsonl": "it has no header",
    }
    output = torchmatrix("doctor").stdout
    assert all(f"{name}: {reason}" in output for name, reason in reasons.items())
    assert f"{other / 'run.jsonl'}: it is not a plain file" in output
    done = torchmatrix("report", run.id)
    page = (tmp_path / "reports/index.html").read_text()
    assert done.returncode == 0 and all(name in page and reason in page for name, reason in reasons.items())
    for words in (("history",), ("gate",), ("compare", run.id, run.id), ("report", "--publish", str(tmp_path / "site"))):
        done = torchmatrix(*words)
        assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2, 3, 6), (words, done.stderr)
