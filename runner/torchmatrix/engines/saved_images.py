"""An archive of images as `docker save` writes it: does it hold exactly the images that somebody lists?

Its files: https://github.com/opencontainers/image-spec/blob/main/image-layout.md and, for the same images,
https://github.com/moby/docker-image-spec/blob/main/spec.md (manifest.json, repositories).
"""

import re
import tarfile
from collections.abc import Iterable, Mapping
from typing import IO, Any

from torchmatrix.ground import inputs, tars
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.files import sha256_of
from torchmatrix.ground.formatting import clipped, printable
from torchmatrix.ground.toml_keys import shown

HINT = "don't import it; export it again with torchmatrix bundle export"
_NAME = "images.tar"
_BLOB = re.compile(r"(?:blobs/sha256/)?(?P<digest>[0-9a-f]{64})(?:\.json)?")
_LAYER = re.compile(r"[0-9a-f]{64}/(VERSION|json|layer\.tar)")
"""Of archives of older daemons, where a layer that several images share is a link to the first one's."""
_LISTS = ("manifest.json", "index.json", "repositories", "oci-layout")
_MOST_MEMBERS = 20_000


def verify(archive: IO[bytes], ids: Mapping[str, str]) -> None:
    """Raise BadInput unless the archive tags just the keys of `ids`, each as the image of that id.

    Every blob is verified against its digest here; the layers of older archives are verified by the daemon.
    """
    try:
        with tars.opened(archive) as tar:
            lists, blobs = _content(tar)
            missing = {layer for entry in lists["manifest.json"] for layer in entry["Layers"]} - set(tar.getnames())
        told = _told(lists)
    except (tarfile.TarError, EOFError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise BadInput(f"{_NAME} is damaged: {clipped(printable(str(error)), 200)}", hint=HINT) from None
    if missing:
        raise BadInput(f"{_NAME} is incomplete: it lacks the layer {shown(min(missing))}", hint=HINT)
    if other := sorted(told.keys() - ids.keys()):
        raise BadInput(f"{_NAME} contains {shown(other[0])}, which the bundle does not list", hint=HINT)
    for tag, its_id in ids.items():
        if its_id.removeprefix("sha256:") not in told.get(tag, set()) & blobs:
            raise BadInput(f"{_NAME} does not contain {shown(tag)} as the image that the bundle lists", hint=HINT)


def _content(tar: tarfile.TarFile) -> tuple[dict[str, Any], set[str]]:
    """The lists by name, and the digests of the blobs, each verified."""
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
        elif found := _BLOB.fullmatch(member.name):
            if sha256_of(content) != found["digest"]:
                raise ValueError(f"{member.name} has another digest")
            blobs.add(found["digest"])
        else:
            raise ValueError(f"{member.name} is no part of an image")
    return lists, blobs


def _is_older_layer(member: tarfile.TarInfo) -> bool:
    shared = member.issym() and _LAYER.fullmatch(member.linkname.removeprefix("../"))
    return bool(_LAYER.fullmatch(member.name) and (shared or (member.isreg() and not member.issparse())))


def _told(lists: Mapping[str, Any]) -> dict[str, set[str]]:
    """The digests by which the lists know each tag: of its configuration (its id) or, with containerd, its manifest."""
    told: dict[str, set[str]] = {}
    for entry in lists["manifest.json"]:
        if not entry["RepoTags"]:
            raise ValueError("an image without a tag")
        for tag in entry["RepoTags"]:
            told.setdefault(str(tag), set()).add(str(entry["Config"]).rpartition("/")[2].removesuffix(".json"))
    for entry in lists.get("index.json", {}).get("manifests", ()):
        for tag in _names(entry.get("annotations") or {}):
            told.setdefault(tag, set()).add(str(entry["digest"]).removeprefix("sha256:"))
    for repository, tags in lists.get("repositories", {}).items():
        for tag in tags:
            told.setdefault(f"{repository}:{tag}", set())
    return told


def _names(annotations: Mapping[str, Any]) -> Iterable[str]:
    name = annotations.get("io.containerd.image.name")
    return [str(name).removeprefix("docker.io/")] if name else []
