"""What a verb makes of files and folders that its user may not read. Root is tested without the right to read everything."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.records import nights, write_run

PLAIN = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
Invoked = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def plainly(tmp_path: Path) -> Invoked:
    """Return what runs a verb in tmp_path, without root's right to read every file."""
    if not shutil.which(PLAIN[0]) or subprocess.run([*PLAIN, "true"], capture_output=True).returncode:
        pytest.skip("setpriv can't give up rights here")

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [*PLAIN, sys.executable, "-m", "torchmatrix", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    return run


@pytest.mark.parametrize("what", ["launch", "cell", "record"])
def test_what_cannot_be_read_is_named_and_the_rest_is_reported(plainly: Invoked, tmp_path: Path, what: str) -> None:
    launches = [{"rate": 100.0}, {"rate": 100.1}, {"rate": 90.0, "stack": "stack-b"}]
    other = write_run(tmp_path / "results", launches, folder="other", machine="b")
    for run in nights(2):
        made = write_run(tmp_path / "results", launches, run=run, machine="a")
    (launch,) = made.path.glob("stack-b/**/round1*.jsonl")
    path = {"launch": launch, "cell": made.path / "stack-b", "record": made.record}[what]
    path.chmod(0)
    try:
        export = ("tables", "--no-charts", "--force")
        for words in (
            ("report",), ("report", "--redact"), ("report", "--machines"), ("report", "--machines", "--redact"),
            ("export", "last", *export), ("export", "last", *export, "--redact"), ("export", "--machines", *export),
            ("export", "--machines", *export, "--redact"), ("compare", str(made.path), str(other.path)), ("audit", "last"),
        ):  # fmt: skip
            if what == "record" and "--machines" in words:
                continue  # the night before stands for the machine
            done = plainly(*words)
            assert done.returncode in (0, 1) and str(path) in done.stderr and "can't be read" in done.stderr, (
                words,
                done.stderr,
            )
        done = plainly("report", "--publish", "site")
        assert done.returncode == 0 and "1 file can't be read: its page names it" in done.stderr
    finally:
        path.chmod(0o700)


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_source_that_cannot_be_entered_hides_no_other(plainly: Invoked, tmp_path: Path, mode: int) -> None:
    for host in ("bad", "good"):
        write_run(tmp_path / "source", [{"rate": 100.0}], folder=host)
    (tmp_path / "source/bad").chmod(mode)
    try:
        done = plainly("gather", "source", "--results", "target")
        assert done.returncode == 1 and "bad" in done.stdout + done.stderr and (tmp_path / "target/good").is_dir()
        (tmp_path / "source").chmod(0)
        done = plainly("gather", "source", "--results", "target")
        assert done.returncode == 2 and "can't read source" in done.stderr
    finally:
        (tmp_path / "source").chmod(0o700)
        (tmp_path / "source/bad").chmod(0o700)


def test_a_folder_that_is_none_is_named(plainly: Invoked, tmp_path: Path) -> None:
    write_run(tmp_path / "results", [{"rate": 100.0}])
    (tmp_path / "unmounted").symlink_to(tmp_path / "nowhere")
    done = plainly("report", "--output", "unmounted/page.html")
    assert done.returncode == 4 and "unmounted is no folder, or a link that leads to none" in done.stderr
