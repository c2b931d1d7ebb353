"""Drive a Docker daemon through the docker SDK: find, build, carry and remove images of static Dockerfiles, and launch them."""

import hashlib
import os
import re
import shlex
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
from docker.errors import APIError, DockerException
from docker.tls import TLSConfig
from requests import Response
from requests.exceptions import RequestException

from torchmatrix.core import __version__, assets, settings
from torchmatrix.core.errors import BuildFailed, EngineUnusable
from torchmatrix.core.formatting import clipped
from torchmatrix.engines import builders, containers, endpoints, packages, volumes
from torchmatrix.engines.caches import CacheFacts
from torchmatrix.engines.containers import DockerExecution, by_cdi, container_options, error_text
from torchmatrix.engines.containment import Limits, kernel_oom_kills, limits_of
from torchmatrix.engines.docker_images import DockerImages, answering, environment_tag_of, is_our_tag, tag_of
from torchmatrix.engines.endpoints import Endpoint
from torchmatrix.engines.engine import (
    Capabilities,
    Image,
    Isolation,
    LaunchSpec,
    Leftover,
    Log,
    Rebuild,
    Recipe,
    disk_of,
    requested_lock,
)
from torchmatrix.engines.lockfile import StackLock, from_text
from torchmatrix.engines.volumes import LABEL, Volume
from torchmatrix.machine.host import Host, seen_through
from torchmatrix.matrix.stacks import PYPI
from torchmatrix.planning.fit import Disk

INFO_KEYS = (
    "Name", "ServerVersion", "Driver", "OperatingSystem", "KernelVersion", "Architecture", "CgroupVersion", "DefaultRuntime",
    "NCPU", "MemTotal", "DockerRootDir",
)  # fmt: skip
"""The fields of `docker info` that are recorded."""
API_SECONDS = 120
_LISTS = re.compile(r"/(images|containers)/json$|/history$")
_OBJECTS = re.compile(r"/(info|version|json|create|wait)$|/volumes(/[^/]+)?$")
"""The paths of requests that are answered by a list of objects, or by one object. https://docs.docker.com/engine/api/"""


def connect(where: Endpoint | None = None, name: str = "Docker") -> docker.DockerClient:
    """Return a client of the daemon at `where`, or where Docker's own client finds one, that answered a ping.

    `name`: of the program that should answer. Raises EngineUnusable.
    """
    where = where or endpoints.endpoint()
    client = _client(where, name)
    try:
        weakref.finalize(client, client.api.close)  # whoever drops the client leaves no connection open
        client.api.hooks["response"].append(_check_answer)
        client.ping()
    except (DockerException, RequestException, OSError, ValueError) as error:
        raise _unanswered(where, name, error) from None
    return client


def _check_answer(answer: Response, *, stream: bool = False, **settings: object) -> None:
    """Raise DockerException for an answer that isn't what the SDK and this package take from it: an object, or a list of them.

    A proxy before a daemon, or a daemon that is being stopped, may answer anything.
    """
    path = urlsplit(answer.url).path
    kind = list if _LISTS.search(path) else dict if _OBJECTS.search(path) else None
    if kind is None or stream or not answer.ok or answer.request.method == "DELETE":
        return
    try:
        content = answer.json()
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, kind) or not all(isinstance(one, dict) for one in content if kind is list):
        raise DockerException(f"its answer to {path} is not what Docker would say")


def _client(where: Endpoint, name: str) -> docker.DockerClient:
    """Return a client with the certificates of its context; variables name those of the default context.

    Raises EngineUnusable. Docker's library checks no type in the configuration that it reads.
    """
    by_ssh, config = where.host.startswith("ssh://"), endpoints.config_file()
    if by_ssh and not find_spec("paramiko"):  # Docker's library asks for it, though the ssh program is run
        raise EngineUnusable(
            f"{name} at {where.in_words} can't be reached: that needs paramiko, which is not installed",
            hint="install it beside torchmatrix: pip install 'docker[ssh]'",
        )
    try:
        if where.context == endpoints.DEFAULT:
            variables = dict(os.environ) | {"DOCKER_HOST": where.host}
            return docker.from_env(timeout=API_SECONDS, use_ssh_client=by_ssh, environment=variables)
        return docker.DockerClient(where.host, timeout=API_SECONDS, use_ssh_client=by_ssh, tls=_tls(where))
    except (DockerException, RequestException, OSError) as error:
        raise _unanswered(where, name, error) from None
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        if not config.exists():
            raise _unanswered(where, name, error) from None
        raise EngineUnusable(
            f"no client for {name} at {where.in_words} can be made by {config}: {clipped(error_text(error))}",
            hint="mend that file, name another folder: DOCKER_CONFIG=DIR, or run without containers: --engine local",
        ) from None


def _unanswered(where: Endpoint, name: str, error: Exception) -> EngineUnusable:
    return EngineUnusable(
        f"{name} does not answer at {where.in_words}: {error_text(error)}",
        hint=f"start {name}, set DOCKER_HOST, or run without containers: --engine local",
    )


def _tls(where: Endpoint) -> TLSConfig | bool:
    """Return the TLS settings of a context; False for a connection without TLS."""
    folder = where.certificates
    if folder is None or not where.host.startswith("tcp://"):
        return False
    authority, client = folder / "ca.pem", (str(folder / "cert.pem"), str(folder / "key.pem"))
    return TLSConfig(
        client_cert=client if Path(client[0]).exists() else None,
        ca_cert=str(authority) if authority.exists() else None,
        verify=where.verified,
    )


class DockerEngine:
    """Builds images and runs containers by a Docker daemon, or by Podman, which answers like one.

    `name`: docker or podman, whichever answers; also the command that recorded command lines begin with. `where`: the daemon's
    endpoint, if not where Docker's own client finds one.
    """

    capabilities = Capabilities(runs_images=True, isolates=True, build_seconds=300.0, has_own_groups=True)

    def __init__(self, client: docker.DockerClient, where: Endpoint | None = None) -> None:
        self._client = client
        self._where = where or endpoints.endpoint()
        self._images = DockerImages(client)
        self._limits: Limits | None = None
        with answering():
            self._daemon = client.version()
        self._podman = endpoints.podman_version(self._daemon)
        self.name = "podman" if self._podman else "docker"

    def facts(self) -> dict[str, Any]:
        """Return version, storage and runtimes of the daemon, for the record."""
        info = self._info()
        return {"engine": self.name, "client": docker.__version__, **{key: info.get(key) for key in INFO_KEYS}}

    def _info(self) -> dict[str, Any]:
        with answering():
            return dict(self._client.info())

    @property
    def store(self) -> DockerImages | None:
        """Return the daemon's images; None for Podman, whose archives have another layout than those that are checked."""
        return None if self._podman else self._images

    def version(self) -> str:
        """Return the daemon's version."""
        return str(self.facts().get("ServerVersion"))

    def machine(self, here: Host) -> Host:
        """Return the daemon's machine, as the daemon describes it. Raises EngineUnusable if containers can't have its GPUs."""
        info = self._info()
        info = {**info, "ID": None} if self._podman else info  # Podman's changes from answer to answer
        host = seen_through(here, info, self._is_here)
        if host.vendor == "nvidia" and self._podman:
            endpoints.refuse_without_cdi(self._podman)
        return host

    @cached_property
    def _is_here(self) -> bool | None:
        """Check whether the daemon runs on this machine, once; None: it doesn't tell."""
        return containers.is_daemon_here(self._client, bool(self._podman))

    def disk(self) -> Disk | None:
        """Return the data root's disk; it can't be seen if Docker runs on a machine of its own."""
        root = Path(self.facts().get("DockerRootDir") or "/nonexistent")
        return disk_of(root, "move Docker's data root to a larger disk")

    def why_not_built(self) -> str:
        """Return "": nothing keeps the daemon from building."""
        return ""

    def is_ready(self, recipe: Recipe) -> bool:
        """Check whether there is an image under the recipe's content-hash tag."""
        return self._images.has(tag_of(recipe))

    def is_stored(self, recipe: Recipe) -> bool:
        """Check for the same environment with another workload, or the vendor's image that the recipe only adds to."""
        if self._images.has(environment_tag_of(recipe)):
            return True
        return recipe.source == "image" and self._images.has(settings.load().image(str(recipe.base)))

    def resolve(self, recipe: Recipe, log: Log, *, fresh: bool = False) -> StackLock:
        """Resolve the base's digest, from its registry or from the daemon, and every package. Raises BuildFailed."""
        digest, image_id = self._images.identity(str(recipe.base), log, fresh)
        lock = replace(requested_lock(recipe, self.platform()), digest=digest, image_id=image_id)
        if recipe.source != "wheels":
            return lock
        resolved = packages.resolve(recipe.requires, str(recipe.index), lock.python, log, lock.platform)
        (installer,) = packages.resolve([packages.installer()], PYPI, lock.python, log, lock.platform)
        return replace(lock, packages=resolved, installer=installer)

    def platform(self) -> str:
        """Return the platform of the daemon's machine."""
        return f"{self._daemon['Os']}/{self._daemon['Arch']}"

    def build(self, recipe: Recipe, log: Log) -> Image:
        """Build the environment and the workload's image on it, or find them. Raises BuildFailed with Docker's last message."""
        tag = tag_of(recipe)
        with _build_errors():
            environment = self._ensure_environment(recipe, log)
            if not self._images.has(tag):
                arguments = {"ENVIRONMENT": environment}
                self._build(builders.workload_files(), "workload.Dockerfile", arguments, tag, _labels(recipe), log)
            return self._image(recipe, tag)

    def build_environment(self, recipe: Recipe, log: Log) -> Image:
        """Build the image without the workload, or find it. Raises BuildFailed as `build` does."""
        with _build_errors():
            return self._image(recipe, self._ensure_environment(recipe, log))

    def _ensure_environment(self, recipe: Recipe, log: Log) -> str:
        """Return the tag of the image without the workload; build it if it isn't there."""
        if recipe.dockerfile is None:
            raise BuildFailed("an interpreter of this machine can't be run in a container; use the local engine")
        tag = environment_tag_of(recipe)
        if not self._images.has(tag):
            self._build_environment(recipe, tag, log)
        return tag

    def _image(self, recipe: Recipe, tag: str) -> Image:
        attributes = self._client.images.get(tag).attrs
        lock = recipe.lock or from_text((attributes["Config"].get("Labels") or {}).get(f"{LABEL}.lock", ""))
        return Image(
            reference=attributes["Id"], environment=recipe.environment, lock=lock, facts=_facts(recipe, tag, attributes, lock)
        )

    def _build_environment(self, recipe: Recipe, tag: str, log: Log) -> None:
        """Build as the recipe's lock says, or a fresh resolution; the base is pulled first, so that its digest is known."""
        lock = recipe.lock or self.resolve(recipe, log)
        base = self._images.base(recipe, lock, log)
        labels = {**_labels(recipe), f"{LABEL}.lock": lock.text}
        files = builders.environment_files(recipe, lock)
        arguments = builders.environment_arguments(recipe, base)
        self._build(files, builders.dockerfile_of(recipe), arguments, tag, labels, log)

    def rebuild(self, recipe: Recipe, lock: StackLock, folder: Path) -> Rebuild:
        """Return the commands that build environment and workload, ready to paste, and their tag; write contexts to `folder`.

        They use the locked base, and our labels, so that `torchmatrix clean` finds what they make.
        """
        environment, tag, labels = environment_tag_of(recipe), tag_of(recipe), _labels(recipe)
        builders.write_context(builders.environment_files(recipe, lock), folder / "environment")
        builders.write_context(builders.workload_files(), folder / "workload")
        arguments = builders.environment_arguments(recipe, self._images.locked_base(recipe, lock))
        first = build_command(self.name, builders.dockerfile_of(recipe), arguments, environment, labels)
        second = build_command(self.name, "workload.Dockerfile", {"ENVIRONMENT": environment}, tag, labels)
        places = ((first, "environment"), (second, "workload"))
        commands = tuple(f"cd {shlex.quote(str(folder / place))} && {shlex.join(command)}" for command, place in places)
        return Rebuild(commands=commands, reference=tag)

    def start(self, image: Image, spec: LaunchSpec) -> DockerExecution:
        """Prepare an execution in a fresh container."""
        limits = self._find_limits()
        cache = self._open_cache(image, spec)
        started = (
            limits.as_facts() | cache.facts.as_facts() | Isolation(network="machine" if spec.rendezvous else "none").as_facts()
        )
        options = by_cdi(container_options(image, spec, limits, cache), self._cdi_devices(spec.gpus.vendor))
        options = endpoints.adapt_for_podman(options) if self._podman else options
        kills = kernel_oom_kills if self._is_here else lambda: 0  # another machine's kernel can't be seen
        return DockerExecution(self._client, options, started, cache, spec.model_file, self.name, kills)

    def _cdi_devices(self, vendor: str | None) -> list[str] | None:
        """Return the NVIDIA GPUs that the daemon knows by the Container Device Interface (Docker 28.2 and newer list them).

        Empty if NVIDIA's runtime is configured: then its hook passes GPUs on, as with older daemons. None for Podman, which
        knows GPUs by this interface only and doesn't list them.
        """
        if vendor != "nvidia":
            return []
        if self._podman:
            return None
        info = self._info()
        if "nvidia" in (info.get("Runtimes") or {}):
            return []
        return [str(device.get("ID")) for device in info.get("DiscoveredDevices") or [] if device.get("Source") == "cdi"]

    def _open_cache(self, image: Image, spec: LaunchSpec) -> Volume:
        """Return the compile cache; none if the daemon refuses it."""
        with answering():
            try:
                return volumes.open_volume(self._client, image.reference, image.environment, spec.cache, spec.owner)
            except APIError as error:
                return Volume(facts=CacheFacts(state="none", note=error_text(error)))

    def why_unlimited(self) -> str:
        """Return why launches have no limit: only if the kernel of the daemon's machine has no such limits."""
        return "" if self._find_limits().memory_bytes else "the daemon's kernel has no limits of memory"

    def _find_limits(self) -> Limits:
        """Return the limits that the daemon's machine can enforce, looked up once."""
        if self._limits is None:
            info = self._info()
            limits = limits_of(info.get("MemTotal") if info.get("MemoryLimit") else None)
            self._limits = limits if info.get("PidsLimit") else replace(limits, processes=None)
        return self._limits

    def sizes(self, images: Sequence[Image]) -> list[tuple[int, int]] | None:
        """Return the sizes, from the images' histories."""
        return self._images.sizes([image.reference for image in images])

    def remove_orphans(self, owner: str) -> list[str]:
        """Remove every container labelled with `owner`; the caller holds the owner's lock, so none is in use."""
        removed = []
        with answering():
            left = self._client.containers.list(all=True, filters={"label": f"{LABEL}.owner={owner}"})
        for container in left:
            with suppress(APIError):  # gone, or already being removed
                container.remove(force=True, v=True)
            removed.append(f"container {container.short_id}")
        return removed

    def leftovers(self, keep: Collection[str]) -> list[Leftover]:
        """Return images and volumes that carry our label; a user's image made from one of ours has inherited its own."""
        leftovers = []
        with answering():
            for image in self._client.images.list(filters={"label": f"{LABEL}.environment"}):
                names = [tag for tag in image.tags if is_our_tag(tag)] if image.tags else [str(image.id)]
                if names and image.labels.get(f"{LABEL}.environment") not in keep:
                    leftovers.append(Leftover(kind="image", name=names[0], bytes=image.attrs.get("Size")))
            for volume in self._client.volumes.list(filters={"label": LABEL}):
                if volumes.volume_environment(str(volume.name)) not in keep:
                    leftovers.append(Leftover(kind="volume", name=str(volume.name), bytes=None))
        return leftovers

    def remove(self, leftover: Leftover) -> str | None:
        """Remove without force: what a container uses stays."""
        try:
            if leftover.kind == "image":
                self._client.images.remove(leftover.name)
            else:
                return None if volumes.discard_volume(self._client, leftover.name) else "a container uses it"
        except (DockerException, RequestException, OSError) as error:
            return error_text(error)
        return None

    def _build(
        self, files: builders.Files, dockerfile: str, arguments: dict[str, str], tag: str, labels: dict[str, str], log: Log
    ) -> None:
        """Run one `docker build`, its lines logged. Raises BuildFailed with the step that failed and its message."""
        log("$ " + shlex.join(build_command(self.name, dockerfile, arguments, tag, {})))
        has_buildx = self.name == "docker" and builders.has_buildx(self._where)
        build = partial(builders.buildx, self._where) if has_buildx else partial(builders.classic, self._client)
        build(builders.Build(files=files, dockerfile=dockerfile, arguments=arguments, tag=tag, labels=labels), log)


@contextmanager
def _build_errors() -> Iterator[None]:
    """Turn what the daemon or the SDK raises into a failed build."""
    try:
        yield
    except (DockerException, RequestException, OSError) as error:
        raise BuildFailed(error_text(error)) from None


def _facts(recipe: Recipe, tag: str, attributes: dict[str, Any], lock: StackLock | None) -> dict[str, Any]:
    """Return the image fields of a launch's header."""
    dockerfile = str(recipe.dockerfile)
    return {
        "kind": recipe.source,
        "tag": tag,
        "id": attributes["Id"],
        "digests": attributes.get("RepoDigests") or [],
        "dockerfile": dockerfile,
        "dockerfile_sha256": hashlib.sha256((assets.IMAGES / dockerfile).read_bytes()).hexdigest(),
        "arguments": dict(recipe.arguments),
        "base": recipe.base,
        "base_digest": (lock.digest or lock.image_id) if lock else None,
        "index": recipe.index,
        "lock_sha256": lock.sha256 if lock else None,
        "locked": recipe.lock is not None,
        "size_bytes": attributes.get("Size"),
    }


def _labels(recipe: Recipe) -> dict[str, str]:
    return {LABEL: __version__, f"{LABEL}.stack": recipe.stack, f"{LABEL}.environment": recipe.environment}


def build_command(program: str, dockerfile: str, arguments: dict[str, str], tag: str, labels: Mapping[str, str]) -> list[str]:
    """Return the `docker build` or `podman build` command with the same effect, in the folder of its context."""
    options = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
    options += [part for key, value in labels.items() for part in ("--label", f"{key}={value}")]
    return [program, "build", "-f", dockerfile, *options, "-t", tag, "."]


def containers_answer() -> bool:
    """Check whether a container engine answers."""
    try:
        connect().close()
    except EngineUnusable:
        return False
    return True
