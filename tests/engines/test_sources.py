"""The source of a package is a program: nothing of it runs on this machine, whatever a matrix or a lock asks for."""

import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from support import Command
from support.sites import OFFICIAL, Index, mirrors, serving, tiny_matrix, tiny_wheels
from torchmatrix.core.errors import BuildFailed
from torchmatrix.core.settings import Settings
from torchmatrix.engines import lockfile, packages
from torchmatrix.engines.local import LocalEngine

Site = Callable[..., Settings]


class Trap:
    """A package without a wheel whose setup.py writes a file. `project`: its folder; `archive`: its source distribution."""

    def __init__(self, folder: Path) -> None:
        self.proof = folder / "it-ran"
        self.project, self.archive = folder / "evil", folder / "evil-1.0.tar.gz"
        self.project.mkdir()
        setup = (
            f'open({str(self.proof)!r}, "w").write("ran")\nfrom setuptools import setup\nsetup(name="evil", version="1.0")\n'
        )
        (self.project / "setup.py").write_text(setup)
        subprocess.run(["git", "init", "--quiet"], cwd=self.project, check=True)
        subprocess.run(["git", "add", "setup.py"], cwd=self.project, check=True)
        commit = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org", "commit", "--quiet", "--message", "all"]
        subprocess.run(commit, cwd=self.project, check=True)
        (self.project / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
        with tarfile.open(self.archive, "w:gz") as tar:
            for path in sorted(self.project.glob("[!.]*")):
                info = tarfile.TarInfo(f"evil-1.0/{path.name}")
                info.size = path.stat().st_size
                tar.addfile(info, io.BytesIO(path.read_bytes()))


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    (tmp_path / "trap").mkdir()
    return Trap(tmp_path / "trap")


@pytest.fixture
def index(tmp_path: Path, site: Site, trap: Trap) -> Iterator[Index]:
    """Serve an index that has the trap's source, and wheels of all else."""
    wheels = tiny_wheels(tmp_path / "wheels")
    (wheels / trap.archive.name).write_bytes(trap.archive.read_bytes())
    with serving(wheels) as served:
        site(TORCHMATRIX_MIRRORS=mirrors(served.url))
        (tmp_path / "matrix.toml").write_text(tiny_matrix(more='packages = ["evil"]\n'))
        yield served


@pytest.mark.parametrize("engine", ["docker", "local"])
@pytest.mark.parametrize(
    "requirement", ["evil", "evil @ file://{archive}", "evil @ file://{project}", "evil @ git+file://{project}"]
)
def test_resolving_runs_no_source(index: Index, trap: Trap, engine: str, requirement: str) -> None:
    """Resolve as both engines do: for a container's platform, and for an interpreter of this machine."""
    wanted = requirement.format(archive=trap.archive, project=trap.project)
    platform = "linux/amd64" if engine == "docker" else LocalEngine(trap.project, "").platform()
    with pytest.raises(BuildFailed) as caught:
        packages.resolve([wanted], OFFICIAL, "3.11", lambda line: None, platform)
    assert "evil" in str(caught.value) and "only wheels are used" in str(caught.value)
    assert not trap.proof.exists()


def test_no_verb_runs_a_source_from_an_index(torchmatrix: Command, index: Index, trap: Trap) -> None:
    for words in (["plan"], ["lock"], ["build"], ["run"]):
        done = torchmatrix(*words)
        assert "Traceback" not in done.stderr
        assert words == ["plan"] or ("evil" in done.stderr and done.returncode in (1, 2, 4)), (words, done.stderr)
    assert not trap.proof.exists()


def test_a_lock_can_name_nothing_that_runs_here(torchmatrix: Command, index: Index, trap: Trap, tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(tiny_matrix())
    assert torchmatrix("lock").returncode == 0
    whole = (tmp_path / "matrix.lock").read_text()
    for line in (f"evil @ file://{trap.project}", f"-e {trap.project}", "-r /etc/passwd", "evil==1.0 --no-binary=:all:"):
        (tmp_path / "matrix.lock").write_text(whole.replace("packages = [\n", f'packages = [\n    "{line}",\n'))
        done = torchmatrix("build", "--locked")
        assert done.returncode == 2 and "matrix.lock" in done.stderr and "hint: " in done.stderr
    digest = "a" * 64
    line = f"evil==1.0 --hash=sha256:{digest}"
    (tmp_path / "matrix.lock").write_text(whole.replace("packages = [\n", f'packages = [\n    "{line}",\n'))
    done = torchmatrix("build", "--locked")
    assert done.returncode == 1 and "evil" in done.stderr, done.stderr
    assert not trap.proof.exists() and lockfile.parse(whole)


def test_settings_of_uv_in_the_folder_of_a_matrix_do_not_apply(torchmatrix: Command, index: Index, tmp_path: Path) -> None:
    """A cloned folder could otherwise name an index of its own for every package."""
    (tmp_path / "matrix.toml").write_text(tiny_matrix())
    (tmp_path / "uv.toml").write_text('[[index]]\nurl = "http://127.0.0.1:9/theirs"\n')
    done = torchmatrix("lock")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("requirement", "code", "message"),
    [
        ("evil @ file://{archive}", 2, "has an address other than https://"),
        ("evil @ file://{project}", 2, "has an address other than https://"),
        ("evil @ git+file://{project}", 2, "has an address other than https://"),
        ("{project}", 2, "is not a requirement such as numpy<2"),
        ("-e {project}", 2, "is not a requirement such as numpy<2"),
        ("evil", None, "only wheels are used"),
    ],
)
def test_resolving_for_containers_runs_no_source(
    torchmatrix: Command, client: docker.DockerClient, small: str, own: str, index: Index, trap: Trap, tmp_path: Path,
    requirement: str, code: int | None, message: str,
) -> None:  # fmt: skip
    wanted = requirement.format(archive=trap.archive, project=trap.project)
    (tmp_path / "matrix.toml").write_text(tiny_matrix(own, f'base = "{small}"\npackages = ["{wanted}"]\n'))
    for verb in ("lock", "build"):
        done = torchmatrix(verb, engine="docker")
        assert message in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code if code else done.returncode in (1, 2, 4)
        assert code is None or ("line 11, [[stack]] 1, packages: " in done.stderr and "\nhint: " in done.stderr)
    assert not trap.proof.exists() and client.images.list(filters={"label": f"torchmatrix.stack={own}"}) == []
