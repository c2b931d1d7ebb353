"""Options of a cell's container, and its life from start to removal."""

import io
import platform
import re
import secrets
import shlex
import socket
import struct
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit
from docker.utils.socket import STDOUT, frames_iter
from requests.exceptions import RequestException

from torchmatrix.core import __version__
from torchmatrix.core.errors import EngineLost, LaunchFailed
from torchmatrix.core.files import text_of
from torchmatrix.engines import volumes
from torchmatrix.engines.containment import OOM_SCORE_ADJ, Limits, kernel_oom_kills
from torchmatrix.engines.engine import (
    MODEL_FOLDER,
    WORKLOAD_FOLDER,
    Exit,
    Image,
    LaunchSpec,
    Line,
    Output,
    Rendezvous,
    bench_command,
    with_hint,
    workload_environment,
)
from torchmatrix.engines.volumes import LABEL, Volume
from torchmatrix.machine.vendors import VENDORS
from torchmatrix.planning.plan import GpuSet

USER = f"{volumes.USER}:{volumes.GROUP}"
STOP_SECONDS = 10
UNLIMITED = Limits()
NO_CACHE = Volume()
CDI_KIND = "nvidia.com/gpu"
"""The kind of the devices that `nvidia-ctk cdi generate` describes: nvidia.com/gpu=UUID."""
LOST_HINT = "check that it runs (docker info, podman info); the same command then continues"


def device_options(gpus: GpuSet) -> dict[str, Any]:
    """Return the docker SDK options that give a container exactly these devices. Pure.

    NVIDIA: a device request by UUID, since indices differ between NVML and CUDA. AMD and Intel: the render node of each GPU
    (for AMD /dev/kfd, too), with the numeric groups that own them. CPU: the cores of the slots.
    """
    if gpus.vendor == "nvidia":
        request = DeviceRequest(driver="nvidia", device_ids=[gpu.uuid for gpu in gpus.gpus], capabilities=[["gpu"]])
        return {"device_requests": [request]}
    if gpus.vendor in VENDORS:
        nodes = [*VENDORS[gpus.vendor].nodes, *(gpu.render_node for gpu in gpus.gpus if gpu.render_node)]
        groups = sorted({group for gpu in gpus.gpus for group in gpu.groups})
        return {"devices": [f"{node}:{node}:rw" for node in nodes], "group_add": [str(group) for group in groups]}
    return {"cpuset_cpus": ",".join(gpus.cpus)} if gpus.cpus else {}


def by_cdi(options: dict[str, Any], discovered: Collection[str] | None) -> dict[str, Any]:
    """Return `options` with the NVIDIA GPUs as devices of the Container Device Interface, if all are among `discovered`;
    else unchanged. Pure.

    `discovered`: the names of all devices that the daemon found; None for Podman, which can't list its devices, and
    takes GPUs only by CDI.
    """
    requests = options.get("device_requests", ())
    names = [f"{CDI_KIND}={uuid}" for request in requests for uuid in request["DeviceIDs"]]
    if not names or not (discovered is None or set(names) <= set(discovered)):
        return options
    return options | {"device_requests": [DeviceRequest(driver="cdi", device_ids=names)]}


def communication_options(gpus: GpuSet) -> dict[str, Any]:
    """Return shared memory, and for several GPUs the limits that NCCL and RCCL need (a daemon may refuse to raise limits)."""
    options: dict[str, Any] = {"shm_size": "8g"}
    if gpus.vendor != "cpu" and gpus.count > 1:
        options["ulimits"] = [Ulimit(name="memlock", soft=-1, hard=-1), Ulimit(name="stack", soft=67108864, hard=67108864)]
    return options


def limit_options(limits: Limits) -> dict[str, Any]:
    """Return the container's limits; without swap, which would slow a launch down instead of ending it."""
    options: dict[str, Any] = {"oom_score_adj": OOM_SCORE_ADJ, "ulimits": [Ulimit(name="core", soft=0, hard=0)]}
    options["log_config"] = LogConfig(type="json-file", config={"max-size": f"{limits.log_mb}m", "max-file": "1"})
    if limits.memory_bytes:
        options |= {"mem_limit": limits.memory_bytes, "memswap_limit": limits.memory_bytes}
    return options | ({"pids_limit": limits.processes} if limits.processes else {})


def container_options(image: Image, spec: LaunchSpec, limits: Limits = UNLIMITED, cache: Volume = NO_CACHE) -> dict[str, Any]:
    """Return all arguments of the SDK's `containers.create`. Pure.

    No privileges: an ordinary user, no capabilities, no way to gain any, no network unless several nodes take part, a read-only
    root with a tmpfs for /tmp and the compile cache of its own stack and workload; and `limits`.
    """
    arguments = bench_command("python3", str(WORKLOAD_FOLDER / spec.program), spec, 29500)
    limited, communication = limit_options(limits), communication_options(spec.gpus)
    storage = {"mounts": [], "tmpfs": {}} | cache.options
    return {
        "image": image.reference,
        "command": [*arguments, *spec.model_flags(MODEL_FOLDER), *cache.flags],
        "environment": workload_environment(spec.gpus.vendor, spec.rendezvous) | {"USER": "bench"},
        "labels": {LABEL: __version__, f"{LABEL}.owner": spec.owner},
        "user": USER,
        "init": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "network_mode": "host" if spec.rendezvous else "none",
        "read_only": True,
        "tmpfs": {"/tmp": "rw,exec,nosuid,mode=1777,size=8g", **storage["tmpfs"]},
        "mounts": storage["mounts"],
        **_with_fabric(device_options(spec.gpus), spec.rendezvous),
        **limited,
        **communication,
        "ulimits": [*limited["ulimits"], *communication.get("ulimits", ())],
    }


def _with_fabric(options: dict[str, Any], rendezvous: Rendezvous | None) -> dict[str, Any]:
    """Return `options` with the devices of the network beside those of the cell."""
    fabric = [f"{path}:{path}:rw" for path in rendezvous.devices] if rendezvous else []
    return options | ({"devices": [*options.get("devices", ()), *fabric]} if fabric else {})


def _volume_argument(mount: Mount) -> str:
    """Return a -v argument: a sealed cache is read-only; a new one becomes an unnamed volume, so that a pasted command leaves
    the kept one alone.
    """
    return f"{mount['Source']}:{mount['Target']}:ro" if mount["ReadOnly"] else str(mount["Target"])


def _gpu_arguments(request: DeviceRequest) -> list[str]:
    if request["Driver"] == "cdi":
        return [part for name in request["DeviceIDs"] for part in ("--device", name)]
    return ["--gpus", '"device=' + ",".join(request["DeviceIDs"]) + '"']


def run_command(options: dict[str, Any], model_file: Path | None = None, program: str = "docker") -> str:
    """Return the command of Docker's or Podman's `program` with the same effect as container_options, ready to paste."""
    arguments = [program, "run", "--rm", "--init", "--user", options["user"], "--network", options["network_mode"]]
    arguments += ["--read-only", "--cap-drop", "ALL", "--security-opt", options["security_opt"][0]]
    arguments += ["--shm-size", options["shm_size"], "--oom-score-adj", str(options["oom_score_adj"])]
    limits = {"--memory": "mem_limit", "--memory-swap": "memswap_limit", "--pids-limit": "pids_limit"}
    arguments += [part for flag, key in limits.items() if key in options for part in (flag, str(options[key]))]
    arguments += ["--log-driver", options["log_config"].type]
    arguments += [part for key, value in options["log_config"].config.items() for part in ("--log-opt", f"{key}={value}")]
    arguments += [part for path, how in options["tmpfs"].items() for part in ("--tmpfs", f"{path}:{how}")]
    arguments += [part for mount in options["mounts"] for part in ("-v", _volume_argument(mount))]
    arguments += ["-v", f"{model_file}:{MODEL_FOLDER / model_file.name}:ro"] if model_file else []
    arguments += [part for key, value in options["environment"].items() for part in ("-e", f"{key}={value}")]
    arguments += [part for limit in options.get("ulimits", ()) for part in ("--ulimit", f"{limit['Name']}={limit['Soft']}")]
    arguments += [part for request in options.get("device_requests", ()) for part in _gpu_arguments(request)]
    arguments += [part for device in options.get("devices", ()) for part in ("--device", device)]
    arguments += [part for group in options.get("group_add", ()) for part in ("--group-add", group)]
    arguments += ["--cpuset-cpus", options["cpuset_cpus"]] if "cpuset_cpus" in options else []
    return shlex.join([*arguments, options["image"], *options["command"]])


class DockerExecution:
    """One container, removed on every path out of the `with` block. `kills` counts the processes that its machine's kernel has
    ended for memory.
    """

    def __init__(
        self,
        client: docker.DockerClient,
        options: dict[str, Any],
        started: Mapping[str, Any] | None = None,
        cache: Volume = NO_CACHE,
        model_file: Path | None = None,
        program: str = "docker",
        kills: Callable[[], int] = kernel_oom_kills,
    ) -> None:
        self._client = client
        self._kills = kills
        self._model_file = model_file
        self._cache = cache
        self.started = started or {}
        self._options = options
        self._container: Container | None = None
        self._oom_kills = 0
        self._socket: Any = None
        self._frames: Iterator[tuple[int, bytes]] = iter(())
        self.command = run_command(options, model_file, program)

    def __enter__(self) -> "DockerExecution":
        try:
            with _launch_errors(self._client):
                self._start_with_limits()
        except BaseException:
            self._remove()
            raise
        return self

    def _start_with_limits(self) -> None:
        """Start, and start again without raised limits if the daemon may not raise them; NCCL then reports what it lacks."""
        try:
            self._start(self._options)
        except APIError as error:
            lowered = [limit for limit in self._options["ulimits"] if limit["Soft"] == 0]
            if lowered == self._options["ulimits"] or "rlimit" not in str(error):
                raise
            self._remove()
            self._start(self._options | {"ulimits": lowered})

    def _start(self, options: dict[str, Any]) -> None:
        """Create, attach, start: in this order no output is missed."""
        if self._model_file:
            options = options | {"mounts": [*options["mounts"], Mount(target=str(MODEL_FOLDER), source=None, type="volume")]}
        self._container = self._client.containers.create(**options)
        if self._model_file:
            self._container.put_archive(str(MODEL_FOLDER), _archive_of(self._model_file))
        self._socket = self._client.api.attach_socket(str(self._container.id), params={"stdout": 1, "stderr": 1, "stream": 1})
        self._frames = frames_iter(self._socket, tty=False)  # type: ignore[no-untyped-call]
        self._oom_kills = self._kills()
        self._container.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def lines(self) -> Iterator[Line]:
        """Yield lines of both streams until the container ends."""
        output = Output()
        while (frame := self._next_frame()) is not None:
            yield from output.add("out" if frame[0] == STDOUT else "err", frame[1])
        yield from output.end()

    def _next_frame(self) -> tuple[int, bytes] | None:
        with _launch_errors(self._client):  # which must not cover the `yield` above
            return next(self._frames, None)

    def stop(self) -> None:
        """Let the daemon send SIGTERM, then SIGKILL."""
        assert self._container is not None
        with suppress(APIError):
            self._container.stop(timeout=STOP_SECONDS)

    def wait(self) -> Exit:
        """Return the exit code, and the daemon's statement about memory; exit code 137 alone may be any SIGKILL.

        The daemon only reports the container's own limit. If the whole machine ran out of memory, its kernel's count went up.
        """
        assert self._container is not None
        with _launch_errors(self._client):
            code = int(self._container.wait()["StatusCode"])
            self._container.reload()
            problem = volumes.seal_volume(self._client, self._container, self._cache, code)
        reported = bool(self._container.attrs["State"].get("OOMKilled"))
        oom_killed = reported or (code != 0 and self._kills() > self._oom_kills)
        return Exit(returncode=code, oom_killed=oom_killed, problem=problem)

    def owns(self, pid: int) -> bool:
        """Check whether the process is in the container's control group, as this machine's kernel sees it."""
        try:
            groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
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


def _archive_of(file: Path) -> bytes:
    """Return a file as a tar archive; root owns the file, so that a launch, which isn't root, can only read it.

    The archive is sent through the daemon, which may run on another machine, into a volume that ends with the container.
    """
    content, buffer = file.read_bytes(), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(file.name)
        info.size, info.mode = len(content), 0o444
        archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


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
            raise EngineLost(f"the container engine stopped answering: {error_text(error)}", hint=LOST_HINT) from None
        raise LaunchFailed(with_hint(error_text(error))) from None


def error_text(error: Exception) -> str:
    """Return Docker's own explanation, without the HTTP around it; of a connection that failed, what the system says."""
    causes = [cause.strerror for cause in _causes(error) if isinstance(cause, OSError) and cause.errno and cause.strerror]
    text = getattr(error, "explanation", None) or (causes[-1] if causes else str(error))
    return " ".join(str(text).split())


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised for: libraries wrap those of a socket several times."""
    while error:
        yield error
        error = error.__cause__ or error.__context__


# Whether a daemon runs on this machine: the daemon must tell, since names, kernels and addresses may be equal elsewhere.
#
# A daemon runs here if its own process listens at a socket of this machine, if it has started the container that this tool is
# in, or if it sees a folder that was just made in this machine's memory (/dev/shm), but not one that doesn't exist: it is asked
# to mount each into a container or volume that it can't make. Docker looks for the source of a mount before it looks for the
# image; Podman does so when it makes a volume.

_IN_MEMORY = Path("/dev/shm")
_SOCKET_SECONDS = 10.0
_NOT_THERE = re.compile(r"(?i)does not exist|no such file")
_OWN_CONTAINER = re.compile(r"containers/([0-9a-f]{64})/")
"""Finds the id in the paths of the files that Docker and Podman mount into a container, such as its hostname."""
_DAEMONS = ("dockerd", "podman", "docker-desktop-")
"""Prefixes of process names. That of Docker Desktop sees little of a WSL distribution, but listens in it and has its kernel."""


def is_daemon_here(client: docker.DockerClient, is_podman: bool) -> bool | None:
    """Check whether the daemon runs on this machine; None if it doesn't tell."""
    sees = _podman_sees if is_podman else _docker_sees
    try:
        if client.info().get("KernelVersion") != platform.release():
            return False  # the kernel of a virtual machine, for instance, which may see folders of this machine
        if _listens_here(client) or _has_started_us(client):
            return True
        with tempfile.TemporaryDirectory(prefix="torchmatrix-", dir=_IN_MEMORY) as folder:
            sees_folder, sees_nothing = sees(client, folder), sees(client, f"{folder}/nothing")
    except (DockerException, RequestException, OSError):
        return None
    return sees_folder if sees_folder is None or sees_nothing is False else None


def _listens_here(client: docker.DockerClient) -> bool:
    """Check whether the process that made the socket is a daemon, and no relay such as ssh or systemd."""
    path = getattr(client.api.adapters.get("http+docker://"), "socket_path", None)
    if path is None:
        return False
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SOCKET_SECONDS)
        connection.connect(path)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        process, _, _ = struct.unpack("3i", credentials)
    return (text_of(Path(f"/proc/{process}/comm")) or "").startswith(_DAEMONS)


def _has_started_us(client: docker.DockerClient) -> bool:
    with suppress(NotFound):
        match = _OWN_CONTAINER.search(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
        return match is not None and client.containers.get(match[1]).id == match[1]
    return False


def _docker_sees(client: docker.DockerClient, folder: str) -> bool | None:
    options = client.api.create_host_config(mounts=[Mount(target="/seen", source=folder, type="bind")])
    try:
        container = client.api.create_container(f"torchmatrix-{secrets.token_hex(16)}", host_config=options)
    except NotFound:
        return True  # no such image
    except APIError as error:
        return False if _NOT_THERE.search(str(error.explanation)) else None
    client.api.remove_container(container["Id"], force=True)
    return None


def _podman_sees(client: docker.DockerClient, folder: str) -> bool | None:
    name = f"torchmatrix-{secrets.token_hex(16)}"
    try:
        client.api.create_volume(name, driver="local", driver_opts={"type": "bind", "o": "bind", "device": folder})
    except APIError as error:
        return False if _NOT_THERE.search(str(error.explanation)) else None
    client.api.remove_volume(name)
    return True
