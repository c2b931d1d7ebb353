"""A launch of several processes: a stand-in server beside its client, in a real container without network and without one."""

import json
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from support import archive_of, processes_of
from torchmatrix.core import assets
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.engine import Companion, Engine, Exit, Image, LaunchSpec
from torchmatrix.engines.local import LocalEngine
from torchmatrix.planning.plan import GpuSet

SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            print("no memory for the weights", flush=True)
            os._exit(3)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(sorted(os.sched_getaffinity(0))).encode())
print("@matrix not from the workload", flush=True)
http.server.HTTPServer(("127.0.0.1", int(os.environ["TORCHMATRIX_PORT"])), Handler).serve_forever()
"""
CLIENT = """
import os, socket, sys, time, urllib.request
server = "http://127.0.0.1:" + os.environ["TORCHMATRIX_PORT"]
while True:
    try:
        cpus = urllib.request.urlopen(server).read().decode()
        break
    except OSError:
        time.sleep(0.05)
print("served by", cpus, flush=True)
if sys.argv[1] == "outside":
    try:
        socket.create_connection(("1.1.1.1", 80), 2)
    except OSError as error:
        print(error.strerror, flush=True)
if sys.argv[1] == "fail":
    sys.exit(7)
if sys.argv[1] == "break":
    try:
        urllib.request.urlopen(server + "/die")
    except OSError:
        pass
if sys.argv[1] in ("break", "wait"):
    time.sleep(1000)
"""

Start = Callable[[str], tuple[Engine, Image, LaunchSpec]]


def spec_of(what: str, program: str = "bench.py") -> LaunchSpec:
    """Return a client that does `what` after the server has answered it, beside that server on CPU 0."""
    server = Companion(role="server", command=("-c", SERVER), cpus=(0,))
    return LaunchSpec(
        arguments=(what,), processes=1, gpus=GpuSet(indices=(0,), vendor="cpu"), cache="", owner=f"test-{uuid.uuid4().hex}",
        program=program, companions=(server,),
    )  # fmt: skip


@pytest.fixture(scope="module")
def served(client: docker.DockerClient, small: str) -> Iterator[Image]:
    """Build an image whose workload is CLIENT."""
    tag = f"torchmatrix-test/served:{uuid.uuid4().hex[:8]}"
    files = {name: (assets.WORKLOAD / name).read_text() for name in ("beside.py", "channel.py")} | {"bench.py": CLIENT}
    context = archive_of({"Dockerfile": f"FROM {small}\nCOPY *.py /opt/workload/\n"} | files)
    client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True)
    yield Image(reference=tag, environment=uuid.uuid4().hex[:12])
    client.images.remove(tag, force=True)


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.xdist_group("containers")), "local"])
def launch(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Return what makes the engine, the image and the launch of a client that does something."""
    if request.param == "docker":
        engine, image = DockerEngine(request.getfixturevalue("client")), request.getfixturevalue("served")
        return lambda what: (engine, image, spec_of(what))
    for name in ("beside.py", "channel.py"):
        shutil.copy(assets.WORKLOAD / name, tmp_path)
    (tmp_path / "bench.py").write_text(CLIENT)
    local = LocalEngine(tmp_path / "cache", "test")
    image = Image(reference=sys.executable, environment="e")
    return lambda what: (local, image, spec_of(what, str(tmp_path / "bench.py")))


def ended(engine: Engine, image: Image, spec: LaunchSpec) -> tuple[list[str], list[str], Exit]:
    """Return what a launch wrote to stdout and to stderr, and how it ended; check that nothing is left of it."""
    with engine.start(image, spec) as execution:
        lines = [(stream, line.decode().rstrip("\n")) for stream, line in execution.lines()]
        end = execution.wait()
    assert_nothing_left(engine, spec)
    return [line for stream, line in lines if stream == "out"], [line for stream, line in lines if stream == "err"], end


def assert_nothing_left(engine: Engine, spec: LaunchSpec) -> None:
    assert engine.remove_orphans(spec.owner) == []
    assert not processes_of(f"TORCHMATRIX_OWNER={spec.owner}".encode())


def test_a_client_reaches_its_server_and_ends_the_launch(launch: Start) -> None:
    out, err, end = ended(*launch("serve"))
    assert end.returncode == 0 and out == ["served by [0]"], err
    assert "[server] @matrix not from the workload" in err, "a companion's output is log text"


def test_a_server_that_dies_first_is_the_crash_of_the_launch_in_its_own_words(launch: Start) -> None:
    out, err, end = ended(*launch("break"))
    assert end.returncode == 1 and out[0] == "served by [0]", err
    failure = json.loads(out[-1].removeprefix("@matrix "))
    assert (failure["event"], failure["kind"]) == ("failure", "crashed")
    assert failure["message"].splitlines()[0] == "server ended with 3 before the workload ended"
    assert failure["message"].splitlines()[-1] == "no memory for the weights" and "[server] no memory for the weights" in err


def test_a_client_that_fails_ends_the_launch_with_its_own_code(launch: Start) -> None:
    out, err, end = ended(*launch("fail"))
    assert end.returncode == 7 and out == ["served by [0]"], err


def test_a_launch_that_is_stopped_leaves_neither_client_nor_server(launch: Start) -> None:
    engine, image, spec = launch("wait")
    with engine.start(image, spec) as execution:
        lines = execution.lines()
        assert any(line.startswith(b"served") for _, line in lines)
        threading.Thread(target=execution.stop).start()
        list(lines)
        assert execution.wait().returncode != 0
    assert_nothing_left(engine, spec)


def test_an_interrupted_launch_leaves_neither_client_nor_server(launch: Start) -> None:
    engine, image, spec = launch("wait")
    with pytest.raises(KeyboardInterrupt), engine.start(image, spec) as execution:
        assert any(line.startswith(b"served") for _, line in execution.lines())
        raise KeyboardInterrupt
    assert_nothing_left(engine, spec)


def test_a_container_reaches_its_server_and_nothing_outside(client: docker.DockerClient, served: Image) -> None:
    out, err, _ = ended(DockerEngine(client), served, spec_of("outside"))
    assert out == ["served by [0]", "Network is unreachable"], err


def test_the_next_start_removes_client_and_server_of_a_killed_tool(launch: Start) -> None:
    engine, image, spec = launch("wait")
    with engine.start(image, spec) as execution:
        assert any(line.startswith(b"served") for _, line in execution.lines())
        assert engine.remove_orphans(spec.owner)
        assert_nothing_left(engine, spec)
