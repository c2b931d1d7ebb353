"""The compile caches of a daemon: one volume per stack and workload, sealed after the first launch.

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

from torchmatrix import __version__
from torchmatrix.engines.commands import CACHE_FOLDERS
from torchmatrix.engines.seals import BROKEN, DIFFERED, IN_USE, CacheFacts, of_archive

LABEL = "torchmatrix"
"""Prefix of our labels; nothing without them is ever touched."""
CACHE_VOLUME = "torchmatrix-cache-"
SEAL_VOLUME = "torchmatrix-seal-"
_WORK, _SEALED = CACHE_FOLDERS
NOT_KEPT = CacheFacts(state="none")
USER, GROUP = 65532, 65532
TMPFS = f"rw,exec,nosuid,uid={USER},gid={GROUP},size=8g"
"""It takes the mode of the image's folder, whatever mode is asked for, but not its owner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """The volume `name` of a launch's cache, in this state; "" if the cache isn't kept."""

    name: str = ""
    facts: CacheFacts = NOT_KEPT

    @property
    def flags(self) -> tuple[str, ...]:
        """Those of the box, which makes a cache of its own without them."""
        sealed = ("--sealed-cache", _SEALED) if self.facts.state == "sealed" else ()
        return ("--cache", _WORK, *sealed) if self.facts.state != "none" else ()

    @property
    def options(self) -> dict[str, Any]:
        """Of the container: a new cache is written, a sealed one is read only, and a tmpfs holds its copy."""
        if self.facts.state == "none":
            return {}
        if self.facts.state == "new":
            return {"mounts": [_mount(self.name, _WORK)]}
        return {"mounts": [_mount(self.name, _SEALED, read_only=True)], "tmpfs": {_WORK: TMPFS}}


def _mount(name: str, target: str, *, read_only: bool = False) -> Mount:
    return Mount(target=target, source=name, type="volume", read_only=read_only)


def environment_of(name: str) -> str:
    """The environment that a cache's volume belongs to; "" for a volume of an earlier version, which had several caches."""
    return name.removeprefix(CACHE_VOLUME).rpartition("-")[0]


def opened(client: docker.DockerClient, image: str, environment: str, cache: str, owner: str) -> Volume:
    """The volume of the cache `cache` of an environment, as the next launch may use it. Raises DockerException."""
    if not cache:
        return Volume()
    name = f"{CACHE_VOLUME}{environment}-{hashlib.sha256(cache.encode()).hexdigest()[:12]}"
    said = _seal(client, name)
    if said and said == _digest(client, image, name, owner):
        return Volume(name=name, facts=CacheFacts(state="sealed", sha256=said))
    if not discard(client, name):
        return Volume(facts=CacheFacts(state="none", note=IN_USE))
    client.volumes.create(name, labels={LABEL: __version__})  # one that a container's mount creates gets no label from Podman
    return Volume(name=name, facts=CacheFacts(state="new", note=DIFFERED if said else None))


def ended(client: docker.DockerClient, container: Container, volume: Volume, returncode: int) -> str | None:
    """Seal it after a complete first launch. Returns why a later launch can't count, if the sealed cache was changed."""
    if volume.facts.state == "sealed" and _digest_in(container, _SEALED) != volume.facts.sha256:
        return BROKEN  # found again by the next launch, which removes it: this container still holds it
    if volume.facts.state == "new" and returncode == 0:
        with suppress(DockerException, RequestException, OSError):  # it is then made again
            digest = _digest_in(container, _WORK)
            if digest:
                client.volumes.create(_seal_of(volume.name), labels={f"{LABEL}.seal": digest})
    return None


def discard(client: docker.DockerClient, name: str) -> bool:
    """Remove a cache, its seal first: without it the rest means nothing. False if a container uses it."""
    for one in (_seal_of(name), name):
        try:
            client.volumes.get(one).remove()
        except NotFound:
            continue
        except APIError as error:
            if error.status_code != 409:
                raise
            return False
    return True


def _seal_of(name: str) -> str:
    return SEAL_VOLUME + name.removeprefix(CACHE_VOLUME)


def _seal(client: docker.DockerClient, name: str) -> str | None:
    """The digest that a volume was sealed with."""
    try:
        labels = client.volumes.get(_seal_of(name)).attrs.get("Labels") or {}
    except NotFound:
        return None
    return labels.get(f"{LABEL}.seal")


def _digest(client: docker.DockerClient, image: str, name: str, owner: str) -> str | None:
    """Of a volume, through a container that never runs."""
    labels = {LABEL: __version__, f"{LABEL}.owner": owner}
    mounts = [_mount(name, _SEALED, read_only=True)]
    container = client.containers.create(image, ["true"], mounts=mounts, labels=labels, network_mode="none")
    try:
        return _digest_in(container, _SEALED)
    finally:
        container.remove(force=True)


def _digest_in(container: Container, folder: str) -> str | None:
    chunks, _ = container.get_archive(folder)
    try:
        return of_archive(chunks)
    except tarfile.TarError:
        return None
