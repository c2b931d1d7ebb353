"""Faults of a container engine: a daemon of the attempt's own, with containers in which the tests' stand-in measures."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.models.containers import Container

from faults.checks import Finished, completed, completes, ended_as
from faults.interruptions import kill_and_complete
from faults.workplace import Workplace
from support import until
from support.clean_engine import clean_engine
from support.containers import COPY_PYTHON, context, vendor_image

KILLS = 5
"""In one attempt."""
_IMAGE = "torchmatrix-faults/stand-in:1"
_LONGER = f"FROM {_IMAGE}\nENV FAKE_SECONDS=0.5\n"
_MATRIX = f"""
[run]
launches = 3
[cpus]
counts = [1]
when = "always"
[[stack]]
name = "stand-in"
image = "{_IMAGE}"
accelerator = "cpu"
[[workload]]
device = "cpu"
model = "resnet50"
batch = 4
steps = 5
"""


@dataclass(kw_only=True)
class Daemon:
    """The attempt's own daemon. `folder`: where its socket is."""

    folder: Path
    client: docker.DockerClient

    @property
    def pid(self) -> int:
        return int((self.folder / "docker.pid").read_text())

    @property
    def containers(self) -> list[Container]:
        return list(self.client.containers.list(all=True, ignore_removed=True))

    def answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except Exception:
            return False


Fault = Callable[[Workplace, Daemon], int]


def on_own_daemon(place: Workplace, fault: Fault) -> int:
    """Start a daemon, make a stack's image in it and all that the stack needs, then do `fault`."""
    with clean_engine(place.folder / "dockerd.log") as host:
        client = docker.DockerClient(base_url=host)
        daemon = Daemon(folder=Path(host.removeprefix("unix://")).parent, client=client)
        _make_image(place, client, host)
        place.matrix.write_text(_MATRIX)
        place.variables["DOCKER_HOST"] = host
        place.command = ("run", "--engine", "docker")
        ended_as(place.call("build", "--engine", "docker"), 0)
        tried = fault(place, daemon)
        if daemon.answers():
            nothing_runs(daemon)
        client.close()
    return tried


def nothing_runs(daemon: Daemon) -> None:
    """Assert that no container was left, running or not."""
    assert not daemon.containers, f"containers were left: {daemon.containers}"


def tool_killed(place: Workplace, daemon: Daemon) -> int:
    """Kill the tool (-9) at random moments: the next run removes what it left."""
    return kill_and_complete(place, KILLS)


def interrupted(place: Workplace, daemon: Daemon) -> int:
    """Press Ctrl-C during a launch in a container."""
    process = _measuring(place, daemon)
    process.send_signal(signal.SIGINT)
    ended_as(place.end(process), 130)
    nothing_runs(daemon)
    completes(place)
    return 1


def daemon_frozen(place: Workplace, daemon: Daemon) -> int:
    """Freeze the daemon: it doesn't answer for a moment."""
    process = _measuring(place, daemon)
    os.kill(daemon.pid, signal.SIGSTOP)
    time.sleep(place.random.uniform(0.5, 3))
    os.kill(daemon.pid, signal.SIGCONT)
    ended_as(place.end(process), 0)
    completed(place)
    return 1


def daemon_killed(place: Workplace, daemon: Daemon) -> int:
    """Kill the daemon (-9) during a launch: the run stops; once there is a daemon again, it continues."""
    process = _measuring(place, daemon)
    words = Path(f"/proc/{daemon.pid}/cmdline").read_text(encoding="utf-8").rstrip("\0").split("\0")
    os.kill(daemon.pid, signal.SIGKILL)
    ended_as(place.end(process), 4)
    ended_as(place.call(), 4)
    Finished(place).check()
    with _started_again(place, daemon, words):
        completes(place)
        nothing_runs(daemon)
    return 1


def container_paused(place: Workplace, daemon: Daemon) -> int:
    """Pause a container for a moment."""
    process, container = _struck(place, daemon, Container.pause)
    time.sleep(place.random.random())
    container.unpause()
    ended_as(place.end(process), 0)
    completed(place)
    return 1


def container_frozen(place: Workplace, daemon: Daemon) -> int:
    """Pause a container for good: the launch ends at its time-out."""
    place.matrix.write_text(_MATRIX.replace("launches = 3", "launches = 2\ntimeout_minutes = 0.1"))
    process, _ = _struck(place, daemon, Container.pause)
    ended_as(place.end(process), 1)
    completed(place, "timeout", "ok")
    return 1


def container_killed(place: Workplace, daemon: Daemon) -> int:
    """Kill a container: its launch has crashed, and the others are measured."""
    process, _ = _struck(place, daemon, Container.kill)
    ended_as(place.end(process), 1)
    completed(place, "crashed", "ok")
    return 1


def container_removed(place: Workplace, daemon: Daemon) -> int:
    """Remove a container under a launch: it has crashed, and the others are measured."""
    process, _ = _struck(place, daemon, lambda container: container.remove(force=True))
    ended_as(place.end(process), 1)
    completed(place, "crashed", "ok")
    return 1


def image_removed(place: Workplace, daemon: Daemon) -> int:
    """Remove the stack's image between a kill -9 and the continuation: it is built again."""
    process = _measuring(place, daemon)
    process.kill()
    place.end(process)
    for container in daemon.containers:
        container.remove(force=True)
    for image in daemon.client.images.list(filters={"label": "torchmatrix.stack=stand-in"}):
        daemon.client.images.remove(str(image.id), force=True)
    completes(place)
    return 1


def _measuring(place: Workplace, daemon: Daemon) -> "subprocess.Popen[str]":
    """Start a run and wait until its launch is under way in a container."""
    process = place.start()
    until(lambda: place.is_measuring and daemon.containers, process)
    return process


def _struck(place: Workplace, daemon: Daemon, blow: Callable[[Container], object]) -> "tuple[subprocess.Popen[str], Container]":
    """Return a run, and the container of a launch after the blow; on a busy machine a launch may end before it is struck."""
    process = _measuring(place, daemon)
    struck: list[Container] = []

    def strikes() -> bool:
        for container in daemon.containers:
            with suppress(docker.errors.APIError):
                blow(container)
                struck.append(container)
                return True
        return False

    until(strikes, process)
    return process, struck[0]


def _make_image(place: Workplace, client: docker.DockerClient, host: str) -> None:
    """Make the stand-in's image, from the system's own Python: no registry is needed."""
    root = place.folder / "root"
    root.mkdir()
    system = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    subprocess.run(["sh", "-c", f"to={root}; {COPY_PYTHON}"], env=system, check=True, capture_output=True)
    packed = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    base = "torchmatrix-faults/base:1"
    words = ["docker", "--host", host, "import", "-c", "ENV PATH=/usr/local/bin:/usr/bin:/bin", "-", base]
    subprocess.run(words, stdin=packed.stdout, check=True, capture_output=True)
    packed.wait()
    wheels = place.folder / "wheels"
    vendor_image(client, base, wheels, _IMAGE, 1)
    client.images.build(fileobj=context(_LONGER, wheels), custom_context=True, tag=_IMAGE, rm=True, forcerm=True)


@contextmanager
def _started_again(place: Workplace, daemon: Daemon, words: list[str]) -> Iterator[None]:
    """Start the daemon again, with the command that it had, until the end of the block."""
    for name in ("docker.pid", "run/containerd/containerd.pid"):  # they name the killed, who are there until they are reaped
        (daemon.folder / name).unlink(missing_ok=True)
    with (place.folder / "dockerd-again.log").open("w") as log:
        again = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, text=True)
    try:
        until(lambda: daemon.answers() or again.poll() is not None)
        assert again.poll() is None, (place.folder / "dockerd-again.log").read_text()[-2000:]
        yield
    finally:
        again.terminate()
        again.wait()
