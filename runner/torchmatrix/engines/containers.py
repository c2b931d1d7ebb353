"""Containers: the options of a cell's container, and its life from start to removal."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import docker
from docker.errors import APIError, DockerException
from docker.models.containers import Container
from docker.types import DeviceRequest, Mount, Ulimit
from docker.utils.socket import STDOUT, frames_iter
from requests.exceptions import RequestException

from torchmatrix import __version__
from torchmatrix.engines.engine import Exit, Image, LaunchSpec, bench_command, box_environment
from torchmatrix.engines.hints import with_hint
from torchmatrix.ground.errors import EngineLost, LaunchFailed
from torchmatrix.planning.plan import GpuSet

LABEL = "torchmatrix"
"""Prefix of our labels; nothing without them is ever touched."""
CACHE_VOLUME = "torchmatrix-cache-"
USER = "65532:65532"
STOP_SECONDS = 10
LOST_HINT = "check that the daemon runs (docker info); the same command then continues"


def device_options(gpus: GpuSet) -> dict[str, Any]:
    """(vendor, GpuSet) -> the docker SDK options that give a container exactly these devices. Pure.

    NVIDIA: a device request by UUID, since indices differ between NVML and CUDA. AMD: /dev/kfd and the render node of
    each GPU, with the numeric groups that own them. CPU: the cores of the slots.
    """
    if gpus.vendor == "nvidia":
        request = DeviceRequest(driver="nvidia", device_ids=[gpu.uuid for gpu in gpus.gpus], capabilities=[["gpu"]])
        return {"device_requests": [request]}
    if gpus.vendor == "amd":
        nodes = ["/dev/kfd", *(gpu.render_node for gpu in gpus.gpus if gpu.render_node)]
        groups = sorted({group for gpu in gpus.gpus for group in gpu.groups})
        return {"devices": [f"{node}:{node}:rw" for node in nodes], "group_add": [str(group) for group in groups]}
    return {"cpuset_cpus": ",".join(gpus.cpus)} if gpus.cpus else {}


def communication_options(gpus: GpuSet) -> dict[str, Any]:
    """Shared memory, and for several GPUs the limits that NCCL and RCCL need (a daemon may refuse to raise limits)."""
    options: dict[str, Any] = {"shm_size": "8g" if gpus.vendor != "cpu" else "1g"}
    if gpus.vendor != "cpu" and len(gpus.indices) > 1:
        options["ulimits"] = [Ulimit(name="memlock", soft=-1, hard=-1), Ulimit(name="stack", soft=67108864, hard=67108864)]
    return options


def container_options(image: Image, spec: LaunchSpec) -> dict[str, Any]:
    """All arguments of the SDK's `containers.create`. Pure.

    No privileges: an ordinary user, no capabilities, no way to gain any, no network, a read-only root with a tmpfs for
    /tmp and one named volume for compile caches.
    """
    arguments = bench_command("python3", f"/opt/workload/{spec.program}", spec, 29500)
    volume = f"{CACHE_VOLUME}{image.environment}"
    return {
        "image": image.reference,
        "command": [*arguments, "--cache", f"/cache/{spec.cache}"],
        "environment": box_environment(spec.gpus.vendor) | {"USER": "bench"},
        "labels": {LABEL: __version__, f"{LABEL}.owner": spec.owner},
        "user": USER,
        "init": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "network_mode": "none",
        "read_only": True,
        "tmpfs": {"/tmp": "rw,exec,nosuid,mode=1777,size=8g"},
        "mounts": [Mount(target="/cache", source=volume, type="volume", labels={LABEL: __version__})],
        **device_options(spec.gpus),
        **communication_options(spec.gpus),
    }


def run_command(options: dict[str, Any]) -> str:
    """The `docker run` command with the same effect as container_options, ready to paste."""
    words = ["docker", "run", "--rm", "--init", "--user", options["user"], "--network", options["network_mode"]]
    words += ["--read-only", "--cap-drop", "ALL", "--security-opt", options["security_opt"][0]]
    words += ["--shm-size", options["shm_size"]]
    words += [part for path, how in options["tmpfs"].items() for part in ("--tmpfs", f"{path}:{how}")]
    words += [part for mount in options["mounts"] for part in ("-v", f"{mount['Source']}:{mount['Target']}")]
    words += [part for key, value in options["environment"].items() for part in ("-e", f"{key}={value}")]
    words += [part for limit in options.get("ulimits", ()) for part in ("--ulimit", f"{limit['Name']}={limit['Soft']}")]
    for request in options.get("device_requests", ()):
        words += ["--gpus", '"device=' + ",".join(request["DeviceIDs"]) + '"']
    words += [part for device in options.get("devices", ()) for part in ("--device", device)]
    words += [part for group in options.get("group_add", ()) for part in ("--group-add", group)]
    words += ["--cpuset-cpus", options["cpuset_cpus"]] if "cpuset_cpus" in options else []
    return shlex.join([*words, options["image"], *options["command"]])


class DockerExecution:
    """One container, removed on every path out of the `with` block."""

    def __init__(self, client: docker.DockerClient, options: dict[str, Any]) -> None:
        self._client = client
        self._options = options
        self._container: Container | None = None
        self._socket: Any = None
        self._frames: Iterator[tuple[int, bytes]] = iter(())
        self.command = run_command(options)

    def __enter__(self) -> "DockerExecution":
        try:
            with _launch_errors(self._client):
                self._start_with_limits()
        except BaseException:
            self._remove()
            raise
        return self

    def _start_with_limits(self) -> None:
        """A daemon that may not raise limits runs the launch without them; NCCL then reports what it lacks."""
        try:
            self._start(self._options)
        except APIError as error:
            if "ulimits" not in self._options or "rlimit" not in str(error):
                raise
            self._remove()
            self._start({k: v for k, v in self._options.items() if k != "ulimits"})

    def _start(self, options: dict[str, Any]) -> None:
        """Create, attach, start: in this order no output is missed."""
        self._container = self._client.containers.create(**options)
        self._socket = self._client.api.attach_socket(str(self._container.id), params={"stdout": 1, "stderr": 1, "stream": 1})
        self._frames = frames_iter(self._socket, tty=False)  # type: ignore[no-untyped-call]
        self._container.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines of both streams until the container ends."""
        rest = {"out": b"", "err": b""}
        while (frame := self._next_frame()) is not None:
            name = "out" if frame[0] == STDOUT else "err"
            *complete, rest[name] = (rest[name] + frame[1]).split(b"\n")
            yield from ((name, line.decode(errors="replace")) for line in complete)
        yield from ((name, line.decode(errors="replace")) for name, line in rest.items() if line)

    def _next_frame(self) -> tuple[int, bytes] | None:
        with _launch_errors(self._client):
            return next(self._frames, None)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL, sent by the daemon."""
        assert self._container is not None
        with suppress(APIError):
            self._container.stop(timeout=STOP_SECONDS)

    def wait(self) -> Exit:
        """The exit code, and the daemon's statement about memory; exit code 137 alone may be any SIGKILL."""
        assert self._container is not None
        with _launch_errors(self._client):
            code = int(self._container.wait()["StatusCode"])
            self._container.reload()
        return Exit(returncode=code, oom_killed=bool(self._container.attrs["State"].get("OOMKilled")))

    def owns(self, pid: int) -> bool:
        """Whether the process is in the container's control group, as the kernel of this machine sees it."""
        try:
            groups = Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            return False
        return self._container is not None and str(self._container.id) in groups

    def _remove(self) -> None:
        """Close the stream and remove the container; if the daemon is gone, the next start finds it by its label."""
        if self._socket is not None:
            _close_stream(self._socket)
            self._socket = None
        if self._container is not None:
            with suppress(DockerException, RequestException, OSError):
                self._container.remove(force=True, v=True)


def _close_stream(stream: Any) -> None:
    """Close what attach_socket returned: the SDK hangs the HTTP response on it and, on a Unix socket, wraps the real socket."""
    for part in (getattr(stream, "_response", None), stream, getattr(stream, "_sock", None)):
        with suppress(OSError, ValueError):
            if part is not None:
                part.close()


@contextmanager
def _launch_errors(client: docker.DockerClient) -> Iterator[None]:
    """Turn a daemon's error into the failure of this one launch; if the daemon itself is gone, end the run."""
    try:
        yield
    except (DockerException, RequestException, OSError) as error:
        try:
            client.ping()
        except (DockerException, RequestException, OSError):
            raise EngineLost(f"Docker stopped answering: {words(error)}", hint=LOST_HINT) from None
        raise LaunchFailed(with_hint(words(error))) from None


def words(error: Exception) -> str:
    """Docker's own explanation, without the HTTP around it."""
    text = getattr(error, "explanation", None) or str(error)
    return " ".join(str(text).split())
