"""Whether a daemon runs on this machine: asked of the daemon, since names, kernels and addresses may be alike elsewhere.

A daemon whose own process listens at a socket of this machine runs here, and so does one that has started the container that
this tool is in, or that sees a folder which was just made in this machine's memory (/dev/shm), and doesn't see one that wasn't:
it is asked to mount both into something that it can't make.
Docker looks for what is to be mounted before it looks for the image; Podman does so when it makes a volume.
"""

import platform
import re
import secrets
import socket
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.types import Mount
from requests.exceptions import RequestException

from torchmatrix.ground.files import text_of

_IN_MEMORY = Path("/dev/shm")
_SOCKET_SECONDS = 10.0
_NOT_THERE = re.compile(r"(?i)does not exist|no such file")
_OWN_CONTAINER = re.compile(r"containers/([0-9a-f]{64})/")
"""In the paths of the files that Docker and Podman mount into a container, such as its hostname."""
_DAEMONS = ("dockerd", "podman", "docker-desktop-")
"""Names of processes. Docker Desktop's daemon sees little of a distribution of WSL, but listens in it and has its kernel."""


def is_here(client: docker.DockerClient, is_podman: bool) -> bool | None:
    """Whether the daemon runs on this machine; None if it doesn't tell."""
    ask = _seen_by_podman if is_podman else _seen_by_docker
    try:
        if client.info().get("KernelVersion") != platform.release():
            return False  # such as that of a virtual machine, which may be given folders of this one
        if _listens_here(client) or _has_started_us(client):
            return True
        with tempfile.TemporaryDirectory(prefix="torchmatrix-", dir=_IN_MEMORY) as folder:
            there, nowhere = ask(client, folder), ask(client, f"{folder}/nothing")
    except (DockerException, RequestException, OSError):
        return None
    return there if there is None or nowhere is False else None


def _listens_here(client: docker.DockerClient) -> bool:
    """Whether the process that made the socket is a daemon, and no relay such as ssh or systemd."""
    path = getattr(client.api.adapters.get("http+docker://"), "socket_path", None)
    if path is None:
        return False
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(_SOCKET_SECONDS)
        asked.connect(path)
        process, _, _ = struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return (text_of(Path(f"/proc/{process}/comm")) or "").startswith(_DAEMONS)


def _has_started_us(client: docker.DockerClient) -> bool:
    with suppress(NotFound):
        found = _OWN_CONTAINER.search(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
        return found is not None and client.containers.get(found[1]).id == found[1]
    return False


def _seen_by_docker(client: docker.DockerClient, folder: str) -> bool | None:
    options = client.api.create_host_config(mounts=[Mount(target="/seen", source=folder, type="bind")])
    try:
        made = client.api.create_container(f"torchmatrix-{secrets.token_hex(16)}", host_config=options)
    except NotFound:
        return True  # no such image
    except APIError as error:
        return False if _NOT_THERE.search(str(error.explanation)) else None
    client.api.remove_container(made["Id"], force=True)
    return None


def _seen_by_podman(client: docker.DockerClient, folder: str) -> bool | None:
    name = f"torchmatrix-{secrets.token_hex(16)}"
    try:
        client.api.create_volume(name, driver="local", driver_opts={"type": "bind", "o": "bind", "device": folder})
    except APIError as error:
        return False if _NOT_THERE.search(str(error.explanation)) else None
    client.api.remove_volume(name)
    return True
