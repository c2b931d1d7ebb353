"""Locks, mirrors and wheelhouses with real uv: a package index on loopback with invented wheels, virtualenvs of them."""

import hashlib
import json
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import FAKE_PYTHON, PATIENCE_SECONDS, Command, processes_of, until
from support.sites import CLOSED, NO_NETWORK, OFFICIAL, Authority, Index, mirrors, serving, tiny_matrix, tiny_stack, tiny_wheels
from support.vendors import plain_wheel, wheel
from torchmatrix.core.errors import BuildFailed
from torchmatrix.core.settings import Settings
from torchmatrix.engines import lockfile, packages, recipes
from torchmatrix.engines.local import LocalEngine
from torchmatrix.facts.store import Results

Site = Callable[..., Settings]
FAKE_STACK = f'[[stack]]\nname = "fake"\npython = "{FAKE_PYTHON}"\naccelerator = "cpu"\n'
PACKAGES = ["helper==1.0", "setuptools==80.0", "torch==2.5.1", "torchvision==0.20.1", "transformers==4.57.6"]
LISTING = "import importlib.metadata as m; print(*sorted(d.name + '==' + d.version for d in m.distributions()))"


@pytest.fixture
def index(tmp_path: Path, site: Site) -> Iterator[Index]:
    """Serve the invented index, by way of this site's mirror of it; nothing else can be reached."""
    with serving(tiny_wheels(tmp_path / "wheels")) as served:
        site(TORCHMATRIX_MIRRORS=mirrors(served.url))
        (tmp_path / "matrix.toml").write_text(tiny_matrix())
        yield served


def installed(tmp_path: Path) -> list[str]:
    """Return what the one virtualenv of the cache holds."""
    (venv,) = (tmp_path / "cache" / "stacks").glob("[!.]*")
    return subprocess.check_output([str(venv / "bin" / "python"), "-c", LISTING], text=True).split()


def test_a_stack_is_locked_through_a_mirror_and_built_of_exactly_that_and_nothing_newer(
    torchmatrix: Command, index: Index, tmp_path: Path
) -> None:
    assert torchmatrix("lock").returncode == 0
    first = (tmp_path / "matrix.lock").read_text()
    held = lockfile.parse(first)["tiny"]
    assert held.index == OFFICIAL and "127.0.0.1" not in first, "the same lock means the same at another site"
    assert [line.partition(" ")[0] for line in held.packages] == PACKAGES
    assert held.packages and all(re.fullmatch(r"\S+ --hash=sha256:[0-9a-f]{64}", line) for line in held.packages)
    plain_wheel(index.wheels, "helper", "1.1")
    built = torchmatrix("build", "--locked")
    assert "build failed tiny: self-test: " in built.stderr, "a stack of invented wheels is built, and then found out"
    assert installed(tmp_path) == PACKAGES
    assert list(tmp_path.glob("cache/stacks/*/lib/*/site-packages/torch/__pycache__/__init__.*.pyc")), "no launch compiles it"
    assert any(path.startswith("/files/torch-") for path in index.asked)
    again = torchmatrix("lock")
    assert "locked      tiny: 5 packages; helper 1.0 -> 1.1" in again.stderr
    second = (tmp_path / "matrix.lock").read_text()
    differing = [pair for pair in zip(first.splitlines(), second.splitlines(), strict=True) if pair[0] != pair[1]]
    assert len(differing) == 1 and "helper==1.1" in differing[0][1], "one package, one line of the diff"


def test_a_file_that_changed_after_the_lock_is_a_failed_build_that_names_the_package(
    torchmatrix: Command, index: Index, tmp_path: Path
) -> None:
    assert torchmatrix("lock").returncode == 0
    plain_wheel(index.wheels, "transformers", "4.57.6", requires=("helper", "torch"))
    done = torchmatrix("run", "--locked", UV_CACHE_DIR=str(tmp_path / "another"))
    assert done.returncode == 1, done.stderr
    (run,) = Results(tmp_path / "results").runs()
    (launch,) = run.launches()
    assert launch.outcome == "build-failed" and "transformers" in str(launch.error) and "hash" in str(launch.error).lower()


def test_an_index_without_hashes_still_gives_a_lock_with_one_for_every_file(
    torchmatrix: Command, index: Index, tmp_path: Path
) -> None:
    index.hashes = False
    done = torchmatrix("lock")
    assert done.returncode == 0, done.stderr
    packages = lockfile.read(tmp_path / "matrix.lock")["tiny"].packages
    assert packages and all("--hash=sha256:" in line for line in packages)


DRIFTS = [
    ("cpu = true\n", 'cpu = true\npackages = ["tiny-extra==2"]\n', "packages: none in the lock, tiny-extra==2 now"),
    (OFFICIAL, "https://other.example/simple", "index: https://wheels.example/simple in the lock, https://other"),
    ("cpu = true\n", 'cpu = true\npython = "3.9"\n', "Python: 3.11 in the lock, 3.9 now"),
    ('name = "tiny"', 'name = "renamed"', "not in the lock: renamed"),
]


def test_drift_from_the_lock_is_refused_by_name_before_anything_is_built(
    torchmatrix: Command, index: Index, tmp_path: Path
) -> None:
    assert torchmatrix("lock").returncode == 0
    text = (tmp_path / "matrix.toml").read_text()
    for verb, (old, new, message) in zip(("build", "run", "build", "run"), DRIFTS, strict=True):
        (tmp_path / "matrix.toml").write_text(text.replace(old, new))
        done = torchmatrix(verb, "--locked")
        assert done.returncode == 2 and message in done.stderr and "\nhint: torchmatrix lock" in done.stderr
    assert not (tmp_path / "cache" / "stacks").exists() and not (tmp_path / "results").exists()
    assert message in torchmatrix("plan").stderr, "without --locked it is a note"


def test_the_lock_of_another_architecture_is_refused(torchmatrix: Command, index: Index, tmp_path: Path) -> None:
    assert torchmatrix("lock").returncode == 0
    path = tmp_path / "matrix.lock"
    here = LocalEngine(tmp_path, "").platform()
    path.write_text(path.read_text().replace(here, "linux/riscv64"))
    done = torchmatrix("build", "--locked")
    assert done.returncode == 2 and f"platform: linux/riscv64 in the lock, {here} now" in done.stderr


def test_a_damaged_lock_is_refused_and_locking_everything_mends_it(torchmatrix: Command, index: Index, tmp_path: Path) -> None:
    path = tmp_path / "matrix.lock"
    path.write_text("<<<<<<< HEAD\nversion = 1\n")
    for words in (["run", "--locked"], ["lock", "tiny"], ["plan"]):
        done = torchmatrix(*words)
        assert done.returncode == 2 and "is not a complete lock file" in done.stderr and "torchmatrix lock" in done.stderr
    done = torchmatrix("lock")
    assert done.returncode == 0 and "replaced: " in done.stderr and set(lockfile.read(path)) == {"tiny"}


def test_what_the_matrix_no_longer_has_leaves_the_lock_and_a_stack_that_fails_keeps_its_entry(
    torchmatrix: Command, index: Index, tmp_path: Path
) -> None:
    text = tiny_matrix()
    other = tiny_matrix("other").partition("[cpus]\ncounts = [1]\n")[2].partition("[[workload]]")[0]
    (tmp_path / "matrix.toml").write_text(text + other)
    assert torchmatrix("lock").returncode == 0
    before = lockfile.read(tmp_path / "matrix.lock")
    assert set(before) == {"tiny", "other"}
    (tmp_path / "matrix.toml").write_text(text + other.replace("cpu = true\n", 'cpu = true\npackages = ["no-such==1"]\n'))
    done = torchmatrix("lock")
    assert done.returncode == 1 and "not locked  other: " in done.stderr and "no-such" in done.stderr
    assert lockfile.read(tmp_path / "matrix.lock") == before
    (tmp_path / "matrix.toml").write_text(text)
    assert "removed     other" in torchmatrix("lock").stderr
    assert set(lockfile.read(tmp_path / "matrix.lock")) == {"tiny"}


def background(tmp_path: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torchmatrix", *words, "--engine", "local"]
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_kill_9_during_lock_leaves_the_old_lock(torchmatrix: Command, index: Index, tmp_path: Path) -> None:
    assert torchmatrix("lock").returncode == 0
    path = tmp_path / "matrix.lock"
    before = path.read_bytes()
    plain_wheel(index.wheels, "helper", "1.1")
    index.asked.clear()
    index.hold("/simple/torch/")
    process = background(tmp_path, "lock")
    until(lambda: "/simple/torch/" in index.asked, process=process)
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    assert path.read_bytes() == before
    index.release()
    assert torchmatrix("lock").returncode == 0 and path.read_bytes() != before


def test_ctrl_c_during_a_build_leaves_no_process_and_no_half_virtualenv(
    torchmatrix: Command, index: Index, tmp_path: Path
) -> None:
    assert torchmatrix("lock").returncode == 0
    index.asked.clear()
    index.hold("/simple/torch/")
    process = background(tmp_path, "build", "--locked")
    until(lambda: "/simple/torch/" in index.asked, process=process)
    owner = f"TORCHMATRIX_OWNER={Results(tmp_path / 'results').owner}".encode()
    assert processes_of(owner)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130 and "interrupted" in stderr and "Traceback" not in stderr
    until(lambda: not processes_of(owner))
    assert not list((tmp_path / "cache").rglob("torchmatrix-lock.toml"))
    index.release()
    assert "build failed tiny: self-test: " in torchmatrix("build", "--locked").stderr
    assert "torch==2.5.1" in installed(tmp_path)


def test_a_stack_that_fails_its_self_test_costs_only_its_own_cells(torchmatrix: Command, index: Index, tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(tiny_matrix(rest=FAKE_STACK))
    done = torchmatrix("run")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    (run,) = Results(tmp_path / "results").runs()
    launches = {launch.stack.name: launch for launch in run.launches()}
    assert {name: launch.outcome for name, launch in launches.items()} == {"tiny": "build-failed", "fake": "ok"}
    assert "self-test: " in str(launches["tiny"].error)
    assert "torch==2.5.1" in run.lock_of("tiny").read_text(), "what was built is on record all the same"


def test_a_disk_that_fills_up_in_the_middle_of_a_build_is_a_failed_build_and_the_next_one_works(
    index: Index, site: Site, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        tiny_wheels(index.wheels, bytes_of_torch=4_000_000)
        _, recipe = tiny_stack(tiny_matrix())
        engine = LocalEngine(disk, "test-full-disk")
        with pytest.raises(BuildFailed, match="No space left on device"):
            engine.build(recipe, lambda line: None)
        assert not engine.is_ready(recipe)
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        image = engine.build(recipe, lambda line: None)
        assert engine.is_ready(recipe) and image.lock and len(image.lock.packages) == 5
    finally:
        del engine  # it holds locks on its cache as long as it is there
        subprocess.run(["umount", str(disk)], check=True)


def test_a_wheelhouse_replaces_every_index(torchmatrix: Command, index: Index, site: Site, tmp_path: Path) -> None:
    site(TORCHMATRIX_MIRRORS=mirrors(CLOSED), TORCHMATRIX_WHEELHOUSE=index.wheels, **NO_NETWORK)
    assert torchmatrix("lock").returncode == 0
    done = torchmatrix("build", "--locked")
    assert "build failed tiny: self-test: " in done.stderr, done.stderr
    assert "helper==1.0" in installed(tmp_path) and not index.asked
    (index.wheels / "helper-1.0-py3-none-any.whl").unlink()
    done = torchmatrix("build", "--locked", TORCHMATRIX_CACHE=str(tmp_path / "b"), UV_CACHE_DIR=str(tmp_path / "c"))
    assert done.returncode == 1 and "helper" in done.stderr


def test_wheels_are_downloaded_for_another_machine_each_as_locked(index: Index, tmp_path: Path) -> None:
    _, recipe = tiny_stack(tiny_matrix())
    held = LocalEngine(tmp_path, "").resolve(recipe, lambda line: None)

    def download(folder: str) -> list[str]:
        packages.download(held.packages, held.index, held.python, held.platform, tmp_path / folder, lambda line: None)
        return sorted(path.name for path in (tmp_path / folder).iterdir())

    assert download("all") == sorted(path.name for path in index.wheels.iterdir())
    plain_wheel(index.wheels, "setuptools", "80.0", requires=("helper",))
    with pytest.raises(BuildFailed, match="setuptools"):
        download("changed")
    assert not list((tmp_path / "changed").glob("setuptools*"))


def test_the_sites_own_certificate_authority_is_trusted_where_it_is_set_and_only_there(
    site: Site, authority: Authority, tmp_path: Path
) -> None:
    _, recipe = tiny_stack(tiny_matrix())
    engine = LocalEngine(tmp_path / "cache", "test-ca")
    with serving(tiny_wheels(tmp_path / "wheels"), certificate=authority.certificate) as served:
        site(TORCHMATRIX_MIRRORS=mirrors(served.url))
        assert recipes.unreachable_indexes([OFFICIAL]) == {OFFICIAL}
        with pytest.raises(BuildFailed, match=r"(?i)certificate"):
            engine.build(recipe, lambda line: None)
        site(TORCHMATRIX_CA_BUNDLE=authority.bundle)
        assert recipes.unreachable_indexes([OFFICIAL]) == set()
        image = engine.build(recipe, lambda line: None)
        assert image.lock
        packages.download(image.lock.packages, OFFICIAL, "3.11", engine.platform(), tmp_path / "carried", lambda line: None)
        assert len(list((tmp_path / "carried").iterdir())) == 5


def test_a_nightly_is_pinned_by_address_and_hash_locked_and_refused_where_the_file_is_another(
    torchmatrix: Command, site: Site, authority: Authority, tmp_path: Path
) -> None:
    wheels = tiny_wheels(tmp_path / "wheels")
    cpython = f"cp3{sys.version_info.minor}"
    names = [
        f"torch-2.99.0.dev20260102+cpu-{cpython}-{cpython}-linux_{platform.machine()}.whl",
        "torchvision-0.30.0.dev1+cpu-py3-none-any.whl",
    ]
    for name in names:
        package, version, *_ = name.split("-")
        plain_wheel(tmp_path, package, version).rename(wheels / name)
    sums = [hashlib.sha256((wheels / name).read_bytes()).hexdigest() for name in names]
    with serving(wheels, certificate=authority.certificate) as served:
        site(TORCHMATRIX_MIRRORS=mirrors(served.url), TORCHMATRIX_CA_BUNDLE=authority.bundle)
        files = served.url.replace("/simple", "/files")
        pins = [f"{files}/{name.replace('+', '%2B')}#sha256={digest}" for name, digest in zip(names, sums, strict=True)]
        tiny = tiny_matrix(more='transformers = "4.57.6"\n')
        matrix = tiny.replace('torch = "2.5.1"\ncpu = true\n', f"wheels = {json.dumps(pins)}\n")
        (tmp_path / "matrix.toml").write_text(matrix)
        assert torchmatrix("lock").returncode == 0
        held = lockfile.parse((tmp_path / "matrix.lock").read_text())["tiny"]
        wanted = [f"{name.partition('-')[0]} @ {pin}" for name, pin in zip(names, pins, strict=True)]
        assert held.requires[:2] == tuple(wanted) and held.python.startswith(f"3.{sys.version_info.minor}")
        locked = [line for line in held.packages if line.startswith("torch")]
        assert locked == [want.replace("#sha256=", " --hash=sha256:") for want in wanted]
        built = torchmatrix("build", "--locked")
        assert "build failed tiny: self-test: " in built.stderr and "torch==2.99.0.dev20260102+cpu" in installed(tmp_path)
        wheel(tmp_path, "torch", "2.99.0.dev20260102+cpu", {"torch/__init__.py": "other = 1\n"}).rename(wheels / names[0])
        for folder in ("cache", "uv"):
            shutil.rmtree(tmp_path / folder)
        done = torchmatrix("build", "--locked")
        assert done.returncode == 1 and "build failed tiny: " in done.stderr and "hash mismatch" in done.stderr.lower()
