"""The packaged GitHub Action: its script in a job that only looks like one, and its file."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
ACTION = Path(__file__).parents[2] / "runner" / "action"


def run_job(folder: Path, **inputs: str) -> "subprocess.CompletedProcess[str]":
    """Run the script as a step of a job on pull request 7, with a `gh` that notes its words and the comment."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "gh").write_text(f'#!/bin/sh\necho "$@" >{folder}/words\ncat "$5" >{folder}/comment\nexit $GH_ENDS\n')
    (tools / "gh").chmod(0o755)
    (folder / "temporary").mkdir(exist_ok=True)
    environment = {
        **os.environ, "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": f"{folder}/temporary", "GITHUB_ACTION_PATH": str(ACTION), "GITHUB_STEP_SUMMARY": f"{folder}/summary",
        "MATRIX": "matrix.toml", "ENGINE": "local", "RESULTS": f"{folder}/kept", "BASELINE": "", "COMMENT": "true",
        "PULL_REQUEST": "7", "GH_ENDS": "0", **inputs,
    }  # fmt: skip
    return subprocess.run([ACTION / "run"], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_job_measures_comments_and_ends_as_the_gate_does(fake_matrix: Path) -> None:
    folder = fake_matrix.parent
    done = run_job(folder, BASELINE="last~1")
    assert done.returncode == 0, done.stderr
    assert (folder / "words").read_text().startswith("pr comment 7 --body-file ")
    comment = (folder / "comment").read_text()
    assert "| resnet50-train-fp32-b4-224px | cpu0 | fake |" in comment and (folder / "summary").read_text() == comment
    assert "Nothing to compare with yet." in comment
    (folder / "words").unlink()
    run_job(folder)
    done = run_job(folder, RESULTS=f"{folder}/fresh")  # in the same job
    assert done.returncode == 0 and "torchmatrix gate" not in (folder / "comment").read_text(encoding="utf-8")
    (folder / "words").unlink()
    (folder / "summary").unlink()
    done = run_job(folder, COMMENT="false", BASELINE="last~1", GH_ENDS="1")
    assert done.returncode == 0 and not (folder / "words").exists(), done.stderr
    assert "Nothing to compare with yet." not in (folder / "summary").read_text()


def test_a_comment_that_cannot_be_written_fails_nothing_and_a_run_without_figures_does(fake_matrix: Path) -> None:
    folder = fake_matrix.parent
    done = run_job(folder, GH_ENDS="1")
    assert done.returncode == 0 and "could not be written" in done.stderr
    fake_matrix.write_text("[[stack]]\nnope = 1\n", encoding="utf-8")
    (folder / "words").unlink()
    for results in ("other", "kept"):  # kept has an earlier run, whose figures are none of this one
        done = run_job(folder, RESULTS=f"{folder}/{results}")
        assert done.returncode == 2 and not (folder / "words").exists()


def test_no_input_is_text_of_a_script() -> None:
    action: dict[str, Any] = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
    (step,) = action["runs"]["steps"]
    assert "${{" not in step["run"] and {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]} <= {*step["env"].values()}
