"""`run --engine slurm` where Slurm's commands answer late, wrongly or not at all: no launch is lost, or made twice."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from support import FAKE_PYTHON, cache_in, invoke, slurm_cluster
from support.slurm_cluster import Cluster
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results
from torchmatrix_plugins.cluster import job_system, slurm

pytestmark = pytest.mark.skipif(bool(slurm_cluster.why_not()), reason=slurm_cluster.why_not())
MATRIX = f"""
[run]
launches = 1
{slurm_cluster.FAKE_STACK}
model = "resnet18"
batch = 2
steps = 5
windows = 2
"""
SETTINGS = '[slurm]\nlauncher = "bare"\nexclusive = false\n'
IS_FIRST = '[[ "$*" == *jobs/1-* ]] && mkdir "$HERE/first" 2>/dev/null'
"""Holds for the first command that submits launches."""
IS_BEGUN = 'ls "$HERE"/results/*/*/*/*/*/round1-try1.jsonl >/dev/null 2>&1'
KEPT = 'cat >"$HERE/script.$$"; exec <"$HERE/script.$$"'
"""Keeps what is submitted, to submit it again."""
Run = Callable[[str, str], "CompletedProcess[str]"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster.started(tmp_path_factory.mktemp("slurm"), nodes=1) as started:
        yield started


@pytest.fixture
def run(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs one launch of three seconds where one of Slurm's commands is a script, which knows $REAL."""
    python, programs = tmp_path / "slow" / "python", tmp_path / "programs"
    for folder in (python.parent, programs):
        folder.mkdir()
    python.write_text(FAKE_PYTHON.read_text().replace("ITEM_SECONDS = 0.0001", "ITEM_SECONDS = 0.1"))
    python.chmod(0o755)
    (tmp_path / "settings.toml").write_text(SETTINGS)
    (tmp_path / "matrix.toml").write_text(MATRIX.format(python=python))
    monkeypatch.setattr(job_system, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(slurm, "ANSWER_SECONDS", 2.0)
    monkeypatch.setenv("HERE", str(tmp_path))
    path = os.environ["PATH"]

    def start(command: str, script: str) -> "CompletedProcess[str]":
        (programs / command).write_text(f'#!/bin/bash\nREAL="env PATH={path} {command}"\n{script}\nexec $REAL "$@"\n')
        (programs / command).chmod(0o755)
        variables = {"TORCHMATRIX_SETTINGS": str(tmp_path / "settings.toml"), "TORCHMATRIX_CACHE": cache_in(tmp_path)}
        return invoke(tmp_path, "run", "--engine", "slurm", PATH=f"{programs}:{path}", **cluster.variables, **variables)

    return start


def launches(folder: Path) -> list[Launch]:
    return [launch for run_folder in Results(folder / "results").runs() for launch in run_folder.launches()]


ODD: dict[str, tuple[str, str]] = {
    "squeue prints nothing": (
        "squeue",
        f"""if {IS_BEGUN} && [ $(ls "$HERE"/silent* | wc -l) -lt 12 ]; then mktemp "$HERE"/silentXXX; exit 0; fi >/dev/null""",
    ),
    "sbatch is late": (
        "sbatch",
        f"""{KEPT}
        if {IS_FIRST}; then (sleep 2.2; $REAL "$@" <"$HERE/script.$$") >/dev/null 2>&1 & sleep 9; fi""",
    ),
    "sbatch submits twice": (
        "sbatch", f"""{KEPT}
        if {IS_FIRST}; then $REAL --hold "$@" <"$HERE/script.$$" >/dev/null; fi""",
    ),
    "sbatch submits and is killed": ("sbatch", f"""if {IS_FIRST}; then $REAL "$@" >/dev/null; kill -9 $$; fi"""),
    "sbatch submits and fails": ("sbatch", f"""if {IS_FIRST}; then $REAL "$@" >/dev/null; echo "no log" >&2; exit 1; fi"""),
}  # fmt: skip
"""Scripts in the place of one of Slurm's commands."""


@pytest.mark.representative
@pytest.mark.parametrize(("command", "script"), ODD.values(), ids=ODD)
def test_a_launch_is_made_once_whatever_slurm_s_commands_answer(
    tmp_path: Path, cluster: Cluster, run: Run, command: str, script: str
) -> None:
    done = run(command, script)
    assert done.returncode == 0, done.stderr
    assert [(launch.outcome, launch.number) for launch in launches(tmp_path)] == [("ok", 1)]
    assert len(list(tmp_path.glob("results/.slurm/*/jobs/*.json"))) == 1, "it was submitted again"
    assert not cluster.jobs()


def test_a_scheduler_that_does_not_say_whether_a_job_is_there_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_system, "POLL_SECONDS", 0.01)
    program, notes = tmp_path / "scontrol", list[str]()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    system = slurm.Slurm(slurm.SlurmSettings(), notes.append)
    for answer, is_there in (
        ("echo JobId=3 JobState=COMPLETED; echo JobId=1 JobState=RUNNING", True),
        ("echo JobId=3 JobState=COMPLETED", False),
        ('echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1', False),
        ('echo "Job 1_0 not found"; exit 1', False),
    ):
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
        assert system.has("1_0") is is_there, answer
    monkeypatch.setattr(job_system, "PATIENCE_POLLS", 5)
    for answer in ("exit 0", 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1', "kill -9 $$"):
        program.write_text(f"#!/bin/sh\n{answer}\n")
        with pytest.raises(job_system.Unanswered, match=re.escape("whether there is a job 1_0")):
            system.has("1_0")
