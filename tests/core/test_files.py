"""Files are written whole, and never where a planted link leads; scratch folders go, also those of a killed command."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import full_device
from torchmatrix.core.files import plain_open, replacing, scratch, write_to, write_whole

HOLDS = """
import sys
from torchmatrix.core.files import scratch
with scratch() as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""
WRITES = """
import sys
from pathlib import Path
from torchmatrix.core.files import replacing
with replacing(Path(sys.argv[1])) as file:
    print("half way", flush=True)
    sys.stdin.read()
"""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_scratch_folder_is_there_in_the_block_only(tmp_path: Path) -> None:
    with scratch() as folder:
        (folder / "file").touch()
        assert list(tmp_path.iterdir()) == [folder]
    assert not list(tmp_path.iterdir())


def test_a_scratch_folder_goes_however_deep_it_is_and_what_its_links_lead_to_stays(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").touch()
    deep = "import os, sys\nos.chdir(sys.argv[1])\nfor _ in range(3000):\n os.mkdir('d')\n os.chdir('d')\nos.chmod('.', 0)"
    with scratch() as folder:
        (folder / "link").symlink_to(tmp_path / "victim")
        (folder / "d").touch(mode=0o400)
        (folder / "below").mkdir()
        subprocess.run([sys.executable, "-c", deep, folder / "below"], check=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["victim", "file"]


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


def test_a_scratch_folder_in_a_place_of_its_own_outlives_no_second_command_there(tmp_path: Path) -> None:
    holds = HOLDS.replace("scratch()", f"scratch(Path({str(tmp_path)!r}))").replace(
        "import sys", "import sys; from pathlib import Path"
    )
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and Path(other.stdout.readline().strip()).parent == tmp_path
        other.kill()
    with scratch(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_a_written_file_is_whole_and_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"one")
    (tmp_path / "usual").touch()
    assert (tmp_path / "a").read_bytes() == b"one" and mode_of(tmp_path / "a") == mode_of(tmp_path / "usual")
    (tmp_path / "a").chmod(0o640)
    write_whole(tmp_path / "a", b"two")
    write_whole(tmp_path / "b", b"secret", mode=0o600)
    assert (tmp_path / "a").read_bytes() == b"two" and mode_of(tmp_path / "a") == 0o640 and mode_of(tmp_path / "b") == 0o600
    assert names_in(tmp_path) == ["a", "b", "usual"]


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    for error in (OSError("full"), KeyboardInterrupt(), ValueError()):
        with pytest.raises(type(error)), replacing(tmp_path / "a") as file:
            file.write(b"half of it")
            raise error
    assert (tmp_path / "a").read_text() == "old" and names_in(tmp_path) == ["a"]


@pytest.mark.parametrize("name", [".a.part", ".a.0.part", ".a.1.part"])
def test_no_link_that_was_planted_beside_a_file_is_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / name).symlink_to("precious")
    write_whole(tmp_path / "a", b"new")
    write_to(tmp_path / "a", b"newer")
    assert (tmp_path / "a").read_text() == "newer" and (tmp_path / "precious").read_text() == "mine"
    assert names_in(tmp_path) == [name, "a", "precious"]


def test_what_a_killed_writer_left_is_removed_by_the_next_one_and_a_living_writers_file_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITES, str(tmp_path / "a")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdout.readline()
        write_whole(tmp_path / "a", b"mine")
        (theirs,) = tmp_path.glob("*.part")
        assert theirs.exists(), "a living writer's file stays"
        other.kill()
        other.wait()
        assert theirs.exists()
        write_whole(tmp_path / "a", b"mine again")
    assert names_in(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "mine again"


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    texts = [str(number).encode() * 100_000 for number in range(4)]

    def write(text: bytes) -> None:
        for _ in range(20):
            write_whole(tmp_path / "a", text)

    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(write, texts))
    assert (tmp_path / "a").read_bytes() in texts and names_in(tmp_path) == ["a"]


def test_where_a_link_leads_is_written_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "page").write_text("old")
    (tmp_path / "near").symlink_to("place/far")
    (tmp_path / "place" / "far").symlink_to("page")
    write_to(tmp_path / "near", b"new")
    assert (tmp_path / "place" / "page").read_text() == "new" and (tmp_path / "near").is_symlink()
    assert names_in(tmp_path / "place") == ["far", "page"] and (tmp_path / "place" / "far").is_symlink()
    (tmp_path / "new").symlink_to(tmp_path / "place" / "not there yet")
    write_to(tmp_path / "new", b"first")
    assert (tmp_path / "place" / "not there yet").read_text() == "first"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="symbolic links"):
        write_to(tmp_path / "round", b"never")


def test_where_no_link_is_followed_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a").symlink_to("precious")
    write_whole(tmp_path / "a", b"new")
    assert not (tmp_path / "a").is_symlink() and (tmp_path / "precious").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make another user's link")
def test_another_users_link_in_a_public_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o1777)
    (public / "a").symlink_to(tmp_path / "precious")
    os.chown(public / "a", 12345, 12345, follow_symlinks=False)
    with pytest.raises(OSError, match=r"another user|denied"):
        write_to(public / "a", b"new")
    os.chown(public / "a", 0, 0, follow_symlinks=False)
    write_to(public / "a", b"new")
    assert (tmp_path / "precious").read_text() == "new"


def test_a_pipe_or_a_device_gets_the_content_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device"):  # nobody reads it, and nobody waits
        write_to(pipe, b"never")
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_to(pipe, b"all of it")
    assert os.read(reading, 100) == b"all of it"
    os.close(reading)
    full = full_device(tmp_path)
    (tmp_path / "link").symlink_to(full)
    for name in (full, tmp_path / "link"):
        with pytest.raises(OSError, match=r"No space left|denied"):
            write_to(name, b"too much")
    assert stat.S_ISFIFO(pipe.lstat().st_mode) and full.is_char_device() and (tmp_path / "link").is_symlink()
    assert not list(tmp_path.glob(".*"))


def test_an_open_stream_of_the_process_is_written_where_it_stands(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b", buffering=0) as file:
        file.write(b"before ")
        for folder in ("/dev/fd", "/proc/self/fd"):
            write_to(Path(folder, str(file.fileno())), b"page ")
        file.write(b"after")
    assert (tmp_path / "log").read_bytes() == b"before page page after" and names_in(tmp_path) == ["log"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_plain_file_is_never_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a")
    file_type = stat.S_IFMT((tmp_path / "a").lstat().st_mode)
    with pytest.raises(OSError, match=r"plain file|directory"):
        write_whole(tmp_path / "a", b"new")
    assert stat.S_IFMT((tmp_path / "a").lstat().st_mode) == file_type and names_in(tmp_path) == ["a"]


@pytest.mark.parametrize("mode", ["a", "a+b", "r"])
def test_a_file_of_ours_is_not_opened_through_a_link_nor_as_a_pipe(tmp_path: Path, mode: str) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "link").symlink_to("precious")
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=r"symbolic link|plain file"):
            plain_open(tmp_path / name, mode)
    os.close(reading)
    with plain_open(tmp_path / "precious", mode) as file:
        assert file.fileno() > 2
