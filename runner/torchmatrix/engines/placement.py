"""Whether a daemon runs on this machine: asked of the daemon, since names, kernels and addresses may be alike elsewhere.

A daemon that has started the container that this tool is in runs here. So does one that sees a folder which was just made in
this machine's memory (/dev/shm), and doesn't see one that wasn't: it is asked to mount both into something that it can't make.
Docker looks for what is to be mounted before it looks for the image; Podman does so when it makes a volume.
"""

import platform
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.types import Mount
from requests.exceptions import RequestException

_IN_MEMORY = Path("/dev/shm")
_NOT_THERE = re.compile(r"(?i)does not exist|no such file")
_OWN_CONTAINER = re.compile(r"containers/([0-9a-f]{64})/")
"""In the paths of the files that Docker and Podman mount into a container, such as its hostname."""


def is_here(client: docker.DockerClient, is_podman: bool) -> bool | None:
    """Whether the daemon runs on this machine; None if it doesn't tell."""
    ask = _seen_by_podman if is_podman else _seen_by_docker
    try:
        if client.info().get("KernelVersion") != platform.release():
            return False  # such as that of a virtual machine, which may be given folders of this one
        if _has_started_us(client):
            return True
        with tempfile.TemporaryDirectory(prefix="torchmatrix-", dir=_IN_MEMORY) as folder:
            there, nowhere = ask(client, folder), ask(client, f"{folder}/nothing")
    except (DockerException, RequestException, OSError):
        return None
    return there if there is None or nowhere is False else None


def _has_started_us(client: docker.DockerClient) -> bool:
    with suppress(NotFound):
        found = _OWN_CONTAINER.search(Path("/proc/self/mountinfo").read_text(errors="replace"))
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
