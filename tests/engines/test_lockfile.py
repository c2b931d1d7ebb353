"""matrix.lock as text: whole or refused, line by line comparable; what counts as drift from it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.engines import lockfile, recipes
from torchmatrix.engines.lockfile import StackLock

ONE = StackLock(
    name="torch2.5.1-cpu", platform="linux/amd64", python="3.11", base="python:3.11-slim-bookworm", digest="sha256:" + "a" * 64,
    index="https://pypi.org/simple", installer="uv==0.9 --hash=sha256:11", requires=("torch==2.5.1",),
    packages=("numpy==2.0 --hash=sha256:22 --hash=sha256:33", "torch==2.5.1 --hash=sha256:44"),
)  # fmt: skip
TWO = StackLock(name="vendor", platform="linux/amd64", base="vendor:1", image_id="sha256:" + "b" * 64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    lock = tmp_path / "matrix.lock"
    lockfile.write(lock, [TWO, ONE])
    return lock


def test_what_was_written_is_read_back_and_its_identity_is_its_text(path: Path) -> None:
    assert lockfile.read(path) == {ONE.name: ONE, TWO.name: TWO}
    assert lockfile.from_text(ONE.text) == ONE and lockfile.from_text("") is None and lockfile.from_text(ONE.text[:40]) is None
    assert replace(ONE, python="3.12").sha256 != ONE.sha256 == replace(ONE).sha256
    assert list(path.parent.iterdir()) == [path], "no part of it is left beside it"


def test_a_lock_cut_anywhere_is_refused_and_never_read_as_less(path: Path) -> None:
    whole = path.read_text(encoding="utf-8")
    for end in range(len(whole.rstrip())):
        path.write_text(whole[:end], encoding="utf-8")
        with pytest.raises(BadInput, match=r"matrix\.lock (is not a complete lock|is cut short|has the version)") as caught:
            lockfile.read(path)
        assert "torchmatrix lock" in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 1", "version = 2", "has the version 2, not 1"),
        ('    "vendor",\n', "", "badly merged: vendor"),
        ('name = "vendor"', 'name = "torch2.5.1-cpu"', "badly merged: vendor"),
        ('    "vendor",\n', '    "vendor",\n    "third",\n', "badly merged: third"),
        ("packages = []", 'packages = "torch"', "packages is not a list of texts"),
        ("packages = []", "packages = [3]", "packages is not a list of texts"),
        ("packages = []", "", "packages is missing"),
        ("packages = []", 'packages = []\ncolour = "red"', "colour"),
        ('python = "3.11"', "python = 3.11", "python is not text"),
        ('stacks = [\n    "torch2.5.1-cpu",\n    "vendor",\n]', "stacks = 2", "is not a complete lock file"),
        ("version = 1", "<<<<<<< HEAD", "is not a complete lock file"),
    ],
)
def test_a_lock_that_somebody_edited_or_merged_badly_is_refused(path: Path, old: str, new: str, message: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        lockfile.read(path)


def test_no_file_is_an_empty_lock_and_an_unreadable_one_is_none(tmp_path: Path) -> None:
    assert lockfile.read(tmp_path / "none.lock") == {}
    (tmp_path / "binary.lock").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="can't read"):
        lockfile.read(tmp_path / "binary.lock")
    with pytest.raises(EngineUnusable, match="can't write"):
        lockfile.write(tmp_path / "no" / "such.lock", [ONE])


def test_one_changed_package_is_one_changed_line(path: Path) -> None:
    before = path.read_text(encoding="utf-8").splitlines()
    newer = replace(ONE, packages=("numpy==2.1 --hash=sha256:55", ONE.packages[1]))
    lockfile.write(path, [newer, TWO])
    after = path.read_text(encoding="utf-8").splitlines()
    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new] == [
        (f"    {json.dumps(ONE.packages[0])},", f"    {json.dumps(newer.packages[0])},")
    ]
    assert recipes.lock_changes(ONE, newer) == ["numpy 2.0 -> 2.1"]


@pytest.mark.parametrize(
    ("changed", "changes"),
    [
        ({"platform": "linux/arm64"}, ["platform: linux/amd64 in the lock, linux/arm64 now"]),
        ({"python": "3.12"}, ["Python: 3.11 in the lock, 3.12 now"]),
        ({"base": "other:1"}, ["base image: python:3.11-slim-bookworm in the lock, other:1 now"]),
        ({"index": ""}, ["index: https://pypi.org/simple in the lock, none now"]),
        ({"requires": ("torch==2.6.0",)}, ["packages: torch==2.5.1 in the lock, torch==2.6.0 now"]),
        ({"packages": (), "digest": "", "installer": ""}, []),
    ],
)
def test_drift_is_named_by_what_was_asked_for_then_and_now(changed: dict[str, object], changes: list[str]) -> None:
    assert lockfile.drift(ONE, replace(ONE, **changed)) == changes  # type: ignore[arg-type]


def test_the_very_python_that_was_used_is_no_drift_from_the_version_that_is_asked_for() -> None:
    assert lockfile.drift(replace(ONE, python="3.11.7"), ONE) == []
    assert lockfile.drift(replace(ONE, python="3.1"), ONE) and lockfile.drift(replace(ONE, python="3.110"), ONE)


@pytest.mark.parametrize(
    ("new", "changes"),
    [
        (ONE, []),
        (replace(ONE, digest="sha256:" + "c" * 64), ["base sha256:aaaaaaaaaaaa -> sha256:cccccccccccc"]),
        (replace(ONE, packages=ONE.packages[1:]), ["without numpy"]),
        (replace(ONE, packages=(*ONE.packages, "six==1 --hash=sha256:66")), ["with six 1"]),
        (replace(ONE, packages=("numpy==2.0 --hash=sha256:99", ONE.packages[1])), ["hashes"]),
    ],
)
def test_what_a_new_lock_changes_is_told(new: StackLock, changes: list[str]) -> None:
    assert recipes.lock_changes(ONE, new) == changes and recipes.lock_changes(None, new) == ["new"]


def test_a_lock_of_300_stacks_is_read(tmp_path: Path) -> None:
    packages = tuple(f"package-{number}==1.{number} --hash=sha256:{number:064x}" for number in range(100))
    locks = [StackLock(name=f"s{number}", platform="linux/amd64", packages=packages) for number in range(300)]
    lockfile.write(tmp_path / "matrix.lock", locks)
    assert len(lockfile.read(tmp_path / "matrix.lock")) == 300
