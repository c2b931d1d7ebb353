"""Scratch folders: removed at the end, and by the next command if theirs was killed."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from torchmatrix.ground.files import scratch

HOLDS = """
import sys
from torchmatrix.ground.files import scratch
with scratch() as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_scratch_folder_is_there_in_the_block_only(tmp_path: Path) -> None:
    with scratch() as folder:
        (folder / "file").touch()
        assert list(tmp_path.iterdir()) == [folder]
    assert not list(tmp_path.iterdir())


def test_what_a_killed_command_left_is_removed_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "torchmatrix-clone").mkdir()
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        theirs = Path(other.stdout.readline().strip())
        with scratch():
            assert (theirs / "file").exists(), "a living command's folder stays"
        other.kill()
        other.wait()
        assert theirs.exists()
        with scratch():
            assert not theirs.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["torchmatrix-clone"]
