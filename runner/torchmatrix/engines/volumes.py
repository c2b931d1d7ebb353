"""Keep the compile caches of a daemon: one volume per stack and workload, sealed after the first launch.

A seal is a second, empty volume, whose label has the digest: it is made at once or not at all, can't be changed, and no
container ever has it. The contents are read through the daemon, which may run on another machine.
"""

import hashlib
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.types import Mount
from requests.exceptions import RequestException

from torchmatrix.core import __version__
from torchmatrix.engines.caches import BROKEN, DIFFERED, IN_USE, CacheFacts, digest_of_archive
from torchmatrix.engines.engine import CACHE_FOLDERS

LABEL = "torchmatrix"
"""Prefix of our labels; nothing without them is ever touched."""
CACHE_VOLUME = "torchmatrix-cache-"
SEAL_VOLUME = "torchmatrix-seal-"
_WORK, _SEALED = CACHE_FOLDERS
NOT_KEPT = CacheFacts(state="none")
USER, GROUP = 65532, 65532
TMPFS = f"rw,exec,nosuid,uid={USER},gid={GROUP},size=8g"
"""The tmpfs takes the mode of the image's folder, whatever mode is requested, but not its owner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """The volume `name` of a launch's cache, in this state; "" if the cache isn't kept."""

    name: str = ""
    facts: CacheFacts = NOT_KEPT

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the workload's flags, without which it makes a cache of its own."""
        sealed = ("--sealed-cache", _SEALED) if self.facts.state == "sealed" else ()
        return ("--cache", _WORK, *sealed) if self.facts.state != "none" else ()

    @property
    def options(self) -> dict[str, Any]:
        """Return the container's options: a new cache is written, a sealed one is read-only, and a tmpfs holds its copy."""
        if self.facts.state == "none":
            return {}
        if self.facts.state == "new":
            return {"mounts": [_mount(self.name, _WORK)]}
        return {"mounts": [_mount(self.name, _SEALED, read_only=True)], "tmpfs": {_WORK: TMPFS}}


def _mount(name: str, target: str, *, read_only: bool = False) -> Mount:
    return Mount(target=target, source=name, type="volume", read_only=read_only)


def volume_environment(name: str) -> str:
    """Return the environment that a cache's volume belongs to; "" for a volume of an earlier version, with several caches."""
    return name.removeprefix(CACHE_VOLUME).rpartition("-")[0]


def open_volume(client: docker.DockerClient, image: str, environment: str, cache: str, owner: str) -> Volume:
    """Return the volume of an environment's cache `cache`, as the next launch may use it. Raises DockerException."""
    if not cache:
        return Volume()
    name = f"{CACHE_VOLUME}{environment}-{hashlib.sha256(cache.encode()).hexdigest()[:12]}"
    seal = _volume_seal(client, name)
    if seal and seal == _volume_digest(client, image, name, owner):
        return Volume(name=name, facts=CacheFacts(state="sealed", sha256=seal))
    if not discard_volume(client, name):
        return Volume(facts=CacheFacts(state="none", note=IN_USE))
    client.volumes.create(name, labels={LABEL: __version__})  # one that a container's mount creates gets no label from Podman
    return Volume(name=name, facts=CacheFacts(state="new", note=DIFFERED if seal else None))


def seal_volume(client: docker.DockerClient, container: Container, volume: Volume, returncode: int) -> str | None:
    """Seal the volume after a complete first launch. Return why a later launch can't count, if the sealed cache was changed."""
    if volume.facts.state == "sealed" and _digest_in_container(container, _SEALED) != volume.facts.sha256:
        return BROKEN  # the next launch removes the cache: this container still holds it
    if volume.facts.state == "new" and returncode == 0:
        with suppress(DockerException, RequestException, OSError):  # it is then made again
            digest = _digest_in_container(container, _WORK)
            if digest:
                client.volumes.create(_seal_name(volume.name), labels={f"{LABEL}.seal": digest})
    return None


def discard_volume(client: docker.DockerClient, name: str) -> bool:
    """Remove a cache, its seal first: without the seal the rest means nothing. Return False if a container uses it."""
    for volume in (_seal_name(name), name):
        try:
            client.volumes.get(volume).remove()
        except NotFound:
            continue
        except APIError as error:
            if error.status_code != 409:
                raise
            return False
    return True


def _seal_name(name: str) -> str:
    return SEAL_VOLUME + name.removeprefix(CACHE_VOLUME)


def _volume_seal(client: docker.DockerClient, name: str) -> str | None:
    """Return the digest that a volume was sealed with."""
    try:
        labels = client.volumes.get(_seal_name(name)).attrs.get("Labels") or {}
    except NotFound:
        return None
    return labels.get(f"{LABEL}.seal")


def _volume_digest(client: docker.DockerClient, image: str, name: str, owner: str) -> str | None:
    """Compute the digest of a volume, through a container that never runs."""
    labels = {LABEL: __version__, f"{LABEL}.owner": owner}
    mounts = [_mount(name, _SEALED, read_only=True)]
    container = client.containers.create(image, ["true"], mounts=mounts, labels=labels, network_mode="none")
    try:
        return _digest_in_container(container, _SEALED)
    finally:
        container.remove(force=True)


def _digest_in_container(container: Container, folder: str) -> str | None:
    chunks, _ = container.get_archive(folder)
    try:
        return digest_of_archive(chunks)
    except tarfile.TarError:
        return None
