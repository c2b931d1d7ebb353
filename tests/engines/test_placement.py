"""Detection whether a daemon runs on this machine: what it sees decides, not what it is called or how it was reached."""

import subprocess
import sys
from pathlib import Path

import docker
import pytest

from support.fake_daemon import Sees, daemon, everything, forbidden, nothing, what_is_here
from torchmatrix.engines.containers import is_daemon_here
from torchmatrix.engines.docker import DockerEngine, connect
from torchmatrix.engines.endpoints import Endpoint
from torchmatrix.machine.host import detect

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("podman", [False, True])
@pytest.mark.parametrize("where", ["socket", "port"])
@pytest.mark.parametrize(("sees", "here"), [(what_is_here, True), (nothing, False), (everything, None), (forbidden, None)])
def test_a_daemon_is_here_if_it_sees_what_only_this_machine_has(
    tmp_path: Path, sees: Sees, here: bool | None, where: str, podman: bool
) -> None:
    paths: list[str] = []

    def answer(path: str) -> tuple[int, str]:
        paths.append(path)
        return sees(path)

    with daemon(tmp_path / "d.sock" if where == "socket" else "127.0.0.1", answer, podman=podman) as host:
        assert is_daemon_here(connect(Endpoint(host=host)), podman) is here
    assert len(paths) == 2 and not any(Path(path).exists() for path in paths)


def test_a_daemon_that_sees_little_of_this_machine_is_here_if_its_own_process_listens_at_the_socket(tmp_path: Path) -> None:
    (tmp_path / "dockerd").symlink_to(Path(sys.executable).resolve())
    program = (
        f"import fake_daemon, pathlib; fake_daemon.serve(pathlib.Path({str(tmp_path / 'd.sock')!r}), fake_daemon.forbidden)"
    )
    with subprocess.Popen(
        [tmp_path / "dockerd", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(TESTS / "support")},
    ) as process:
        assert process.stdin and process.stdout
        host = process.stdout.readline().decode().strip()
        assert is_daemon_here(connect(Endpoint(host=host)), False) is True
        process.stdin.close()


def test_a_daemon_that_doesn_t_tell_is_taken_for_another_machine_and_that_is_said(tmp_path: Path) -> None:
    here = detect()
    with daemon(tmp_path / "d.sock", forbidden) as host:
        where = Endpoint(host=host)
        there = DockerEngine(connect(where), where).machine(here)
    assert there is not here and there.machine != here.machine and there.vendor is None
    assert "doesn't tell whether it runs on this machine" in there.notes[-1]


def test_a_real_daemon_of_this_machine_tells_that_it_is_and_keeps_nothing(client: docker.DockerClient) -> None:
    before = [len(client.containers.list(all=True)), len(client.volumes.list()), len(client.images.list())]
    here = detect()
    assert DockerEngine(client).machine(here) is here
    assert before == [len(client.containers.list(all=True)), len(client.volumes.list()), len(client.images.list())]
