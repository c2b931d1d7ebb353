"""The images of a Docker daemon: find, identify, pull and measure them, and write them to an archive or read them from one."""

import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import docker
from docker.errors import APIError, DockerException, ImageLoadError, ImageNotFound
from requests.exceptions import RequestException

from torchmatrix.core import inputs, settings
from torchmatrix.core.errors import BadInput, BuildFailed, EngineLost
from torchmatrix.core.files import sha256_of
from torchmatrix.core.formatting import clipped, printable
from torchmatrix.core.toml_keys import shown
from torchmatrix.engines.containers import LOST_HINT, error_text
from torchmatrix.engines.engine import Log, Recipe
from torchmatrix.engines.lockfile import StackLock

# Verify an archive that `docker save` has written: does it hold exactly the listed images?
#
# Its files: https://github.com/opencontainers/image-spec/blob/main/image-layout.md and, for the same images,
# https://github.com/moby/docker-image-spec/blob/main/spec.md (manifest.json, repositories).

HINT = "don't import it; export it again with torchmatrix bundle export"
_NAME = "images.tar"
_BLOB = re.compile(r"(?:blobs/sha256/)?(?P<digest>[0-9a-f]{64})(?:\.json)?")
_LAYER = re.compile(r"[0-9a-f]{64}/(VERSION|json|layer\.tar)")
"""Names in archives of older daemons, where a layer that several images share is a link to the first one's."""
_LISTS = ("manifest.json", "index.json", "repositories", "oci-layout")
_MOST_MEMBERS = 20_000
_OURS = "torchmatrix/"


def verify_saved(archive: IO[bytes], ids: Mapping[str, str]) -> None:
    """Raise BadInput unless the archive tags just the keys of `ids`, each as the image of that id.

    Every blob is verified against its digest here; the layers of older archives are verified by the daemon.
    """
    try:
        with inputs.open_tar(archive) as tar:
            lists, blobs = _read_members(tar)
            missing = {layer for entry in lists["manifest.json"] for layer in entry["Layers"]} - set(tar.getnames())
        digests = _digests_by_tag(lists)
    except (tarfile.TarError, EOFError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise BadInput(f"{_NAME} is damaged: {clipped(printable(str(error)), 200)}", hint=HINT) from None
    if missing:
        raise BadInput(f"{_NAME} is incomplete: it lacks the layer {shown(min(missing))}", hint=HINT)
    if other := sorted(digests.keys() - ids.keys()):
        raise BadInput(f"{_NAME} contains {shown(other[0])}, which the bundle does not list", hint=HINT)
    for tag, image_id in ids.items():
        if image_id.removeprefix("sha256:") not in digests.get(tag, set()) & blobs:
            raise BadInput(f"{_NAME} does not contain {shown(tag)} as the image that the bundle lists", hint=HINT)


def _read_members(tar: tarfile.TarFile) -> tuple[dict[str, Any], set[str]]:
    """Return the lists by name, and the digests of the blobs, each verified."""
    lists: dict[str, Any] = {}
    blobs: set[str] = set()
    for number, member in enumerate(tar):
        if number > _MOST_MEMBERS:
            raise ValueError(f"more than {_MOST_MEMBERS:,} files")
        if member.isdir() or _is_older_layer(member):
            continue
        content = tar.extractfile(member) if member.isreg() and not member.issparse() else None
        if content is None:
            raise ValueError(f"{member.name} is not a plain file")
        if member.name in _LISTS:
            if member.size > inputs.LARGE_FILE_BYTES or member.name in lists:
                raise ValueError(f"{member.name} is too large, or in it twice")
            lists[member.name] = inputs.json_of(content.read(), f"{_NAME}, {member.name}", hint=HINT)
        elif match := _BLOB.fullmatch(member.name):
            if sha256_of(content) != match["digest"]:
                raise ValueError(f"{member.name} has another digest")
            blobs.add(match["digest"])
        else:
            raise ValueError(f"{member.name} is no part of an image")
    return lists, blobs


def _is_older_layer(member: tarfile.TarInfo) -> bool:
    shared = member.issym() and _LAYER.fullmatch(member.linkname.removeprefix("../"))
    return bool(_LAYER.fullmatch(member.name) and (shared or (member.isreg() and not member.issparse())))


def _digests_by_tag(lists: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the digests by which the lists know each tag: of its configuration (its id) or, with containerd, its manifest."""
    digests: dict[str, set[str]] = {}
    for entry in lists["manifest.json"]:
        if not entry["RepoTags"]:
            raise ValueError("an image without a tag")
        for tag in entry["RepoTags"]:
            digests.setdefault(str(tag), set()).add(str(entry["Config"]).rpartition("/")[2].removesuffix(".json"))
    for entry in lists.get("index.json", {}).get("manifests", ()):
        if name := (entry.get("annotations") or {}).get("io.containerd.image.name"):
            digests.setdefault(str(name).removeprefix("docker.io/"), set()).add(str(entry["digest"]).removeprefix("sha256:"))
    for repository, tags in lists.get("repositories", {}).items():
        for tag in tags:
            digests.setdefault(f"{repository}:{tag}", set())
    return digests


@contextmanager
def answering() -> Iterator[None]:
    """Turn a broken connection to the daemon into the engine's failure, with a hint."""
    try:
        yield
    except (DockerException, RequestException, OSError) as error:
        raise EngineLost(f"the container engine stopped answering: {error_text(error)}", hint=LOST_HINT) from None


class DockerImages:
    """The images of one daemon, and what registries know about them."""

    def __init__(self, client: docker.DockerClient) -> None:
        self._client = client

    def identity(self, reference: str, log: Log, fresh: bool) -> tuple[str, str]:
        """Return (digest, "") for an image from a registry, ("", id) for any other."""
        here = settings.load().image(reference)
        if fresh:
            with suppress(DockerException, RequestException, OSError):  # no registry has it, or none answers
                return str(self._client.images.get_registry_data(here).id), ""
        if not self.has(here):
            self._pull(here, log)
        digests = self._digests(here)
        return (digests[0], "") if digests else ("", str(self._client.images.get(here).id))

    def _digests(self, reference: str) -> list[str]:
        """Return the digests under which registries know an image of this daemon; those of its own repository first."""
        own_repository = settings.full_reference(repository(reference))
        pairs = [name.split("@") for name in self._client.images.get(reference).attrs.get("RepoDigests") or ()]
        pairs.sort(key=lambda pair: settings.full_reference(pair[0]) != own_repository)
        return [digest for _, digest in pairs]

    def base(self, recipe: Recipe, lock: StackLock, log: Log) -> str:
        """Return the reference to build on: the locked one. Raises BuildFailed."""
        base = self.locked_base(recipe, lock)
        if lock.digest and not self.has(base):
            self._pull(base, log)
        if not lock.digest:
            image_id = self._client.images.get(base).id if self.has(base) else "missing"
            if image_id != lock.image_id:
                locked = f"{lock.image_id} in the lock, and came from no registry"
                raise BuildFailed(f"base image {base} is {image_id} here, but {locked}")
        return base

    def locked_base(self, recipe: Recipe, lock: StackLock) -> str:
        """Return the base by digest; by name if this daemon knows the digest only from another registry."""
        here = settings.load().image(str(recipe.base))
        by_digest = f"{repository(here)}@{lock.digest}"
        if not lock.digest or (not self.has(by_digest) and self.has(here) and lock.digest in self._digests(here)):
            return here
        return by_digest

    def _pull(self, reference: str, log: Log) -> None:
        """Pull through the daemon, with the credentials of the user's own store. Raises BuildFailed."""
        log(f"$ docker pull {reference}")
        name, _, tag = reference.partition("@")
        if not tag:
            name = repository(reference)
            tag = reference.removeprefix(name).removeprefix(":") or "latest"
        try:
            for chunk in self._client.api.pull(name, tag=tag, stream=True, decode=True):
                if "error" in chunk:
                    raise BuildFailed(f"base image {reference}: {chunk['error']}")
                if not chunk.get("progress"):
                    log(" ".join(str(chunk[key]) for key in ("id", "status") if key in chunk))
        except (DockerException, RequestException, OSError) as error:
            raise BuildFailed(f"base image {reference}: {error_text(error)}") from None

    def has(self, reference: str) -> bool:
        with answering():
            try:
                self._client.images.get(reference)
            except ImageNotFound:
                return False
            except APIError as error:
                if error.is_client_error():  # not a valid reference: a pull reports that in Docker's words
                    return False
                raise
        return True

    def sizes(self, references: Sequence[str]) -> list[tuple[int, int]]:
        """Return the bytes of each image, and how many of them no earlier image has.

        Both come from the histories: steps that are equal from the first one on are on disk once.
        """
        counted: set[tuple[object, ...]] = set()
        sizes = []
        with answering():
            for reference in references:
                steps = self._client.images.get(reference).history()[::-1]
                keys = [tuple((s["CreatedBy"], s["Created"], s["Size"]) for s in steps[: i + 1]) for i in range(len(steps))]
                new = sum(step["Size"] for step, key in zip(steps, keys, strict=True) if key not in counted)
                counted.update(keys)
                sizes.append((sum(step["Size"] for step in steps), new))
        return sizes

    def save(self, recipes: Sequence[Recipe], path: Path) -> dict[str, str]:
        """Write the built images of `recipes` into one archive, layers once; return the images' ids by tag."""
        tags = [tag for recipe in recipes for tag in (environment_tag_of(recipe), tag_of(recipe))]
        api = self._client.api
        with answering():
            ids = {tag: str(self._client.images.get(tag).id) for tag in tags}
            url = f"{api.base_url}/v{api.api_version}/images/get"
            with api.get(url, params={"names": tags}, stream=True) as answer, path.open("wb") as file:
                answer.raise_for_status()
                shutil.copyfileobj(answer.raw, file, 1 << 20)
        return ids

    def load(self, archive: IO[bytes], ids: Mapping[str, str], force: bool) -> None:
        """Load what `save` wrote, and nothing else (see ImageStore). Raises BadInput or EngineLost."""
        begin = archive.tell()
        verify_saved(archive, ids)
        archive.seek(begin)
        taken = [(tag, image_id) for tag, image_id in self._ids(ids).items() if image_id != ids[tag]]
        if taken and not force:
            tag, image_id = taken[0]
            message = f"the tag {tag} exists: it is {image_id} here, and {ids[tag]} in the bundle"
            raise BadInput(message, hint="move it to the image of the bundle with --force")
        try:
            self._client.images.load(archive)
        except ImageLoadError as error:
            raise BadInput(f"Docker refuses the images of the bundle: {error_text(error)}", hint=HINT) from None
        except (DockerException, RequestException, OSError) as error:
            raise EngineLost(f"the container engine stopped answering: {error_text(error)}", hint=LOST_HINT) from None
        loaded = self._ids(ids)
        if wrong := [tag for tag, image_id in ids.items() if loaded.get(tag) != image_id]:
            raise EngineLost(
                f"Docker did not load {', '.join(wrong)} as exported", hint="see the daemon's log; is its disk full?"
            )

    def _ids(self, tags: Iterable[str]) -> dict[str, str]:
        """Return the ids of the images that are here, by tag."""
        with answering():
            return {tag: str(self._client.images.get(tag).id) for tag in tags if self.has(tag)}


def tag_of(recipe: Recipe) -> str:
    """Return the tag of the image with the workload."""
    return f"{_repository(recipe)}:{recipe.content}"


def environment_tag_of(recipe: Recipe) -> str:
    """Return the tag of the image without the workload."""
    return f"{_repository(recipe)}:environment-{recipe.environment}"


def is_our_tag(tag: str) -> bool:
    """Check whether a tag is one that a recipe gives; Podman puts a registry before it."""
    return tag.removeprefix("localhost/").removeprefix("docker.io/").startswith(_OURS)


def _repository(recipe: Recipe) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", recipe.stack.lower().replace(".", "_dot_")).replace("-dot-", ".").strip("-.")
    return f"{_OURS}{name}"


def repository(reference: str) -> str:
    """Return an image reference without tag and digest; a port is not a tag."""
    name = reference.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
