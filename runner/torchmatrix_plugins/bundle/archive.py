"""Carry a matrix to a machine without network: images, wheels, lock, presets and own models in one archive with checksums.

The archive is a tar file. Its first member, bundle.json, lists every other member with its size and SHA-256, the images with
their ids, and what the machine must be like. Import reads the whole archive once before it changes anything.
"""

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torchmatrix.core import __version__, assets, inputs
from torchmatrix.core.errors import BadInput, BuildFailed, EngineUnusable, NothingSelected
from torchmatrix.core.files import NotPlain, disk_errors, open_regular, replacing, resolve_links, scratch, sha256_of
from torchmatrix.core.formatting import clipped, printable
from torchmatrix.core.settings import cache_folder
from torchmatrix.core.toml_keys import shown
from torchmatrix.engines import packages
from torchmatrix.engines import recipes as stack_recipes
from torchmatrix.engines.choose import HOW_TO_HAVE_CONTAINERS
from torchmatrix.engines.engine import Engine, Recipe
from torchmatrix.engines.recipes import lock_path
from torchmatrix.running.session import Session

VERSION = 1
INDEX, IMAGES, WHEELS, OWN = "bundle.json", "images.tar", "wheelhouse/", "own/"
_NAMES = re.compile(
    r"images\.tar|matrix\.(toml|lock)|presets/[\w.+-]+\.toml|wheelhouse/[\w.+!-]+\.whl|own/(?:\w[\w.+-]*/)*\w[\w.+-]*\.(?:py|json)",
    re.ASCII,
)
"""The files that a bundle may hold; none can lie outside the folders that an import writes to."""
_TAG = re.compile(r"torchmatrix/[a-z0-9._-]+:[A-Za-z0-9._-]+")
MOST_FILES = 20_000
MOST_LETTERS = 240
"""The most characters of a file's name: disks take 255, and a file that is being written has a longer name."""
_CUT = "copy the archive again; nothing was imported"


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """The places and the images of an import."""

    folder: Path
    images: tuple[str, ...]
    wheelhouse: Path | None


def export(s: Session, matrix_path: Path, archive: Path, wheels: bool, tell: Callable[[str], None]) -> None:
    """Write the stacks of the session's plan, locked and built, into `archive`; it appears whole or not at all.

    `wheels`: with the wheels too, for the local engine on the other machine and for builds there.
    """
    recipes = _built_recipes(s)
    with disk_errors(archive, hint="write it elsewhere, or free space"):
        _write(s, recipes, matrix_path, archive, wheels, tell)


def _write(
    s: Session, recipes: Sequence[Recipe], matrix_path: Path, archive: Path, wheels: bool, tell: Callable[[str], None]
) -> None:
    store = s.engines.builder.store
    target = resolve_links(archive.absolute())
    with replacing(target) as file, scratch(target.parent) as folder:
        ids = dict[str, str]()
        if store:
            tell(f"saving the images of {', '.join(recipe.stack for recipe in recipes)}")
            ids = store.save(recipes, folder / IMAGES)
        if wheels or store is None:
            for recipe in recipes:
                _download(recipe, folder / WHEELS, tell)
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
        files |= {"matrix.toml": matrix_path, "matrix.lock": lock_path(matrix_path)}
        models = [workload.own for workload in s.matrix.workloads if workload.own]
        files |= {f"{OWN}{model.path}": matrix_path.parent / model.path for model in models}
        files |= {f"presets/{path.name}": path for path in sorted(assets.PRESETS.glob("*.toml"))}
        index = {
            "version": VERSION,
            "tool": __version__,
            "platform": next(recipe.lock.platform for recipe in recipes if recipe.lock),
            "workload_hash": stack_recipes.workload_hash(),
            "images": ids,
            "files": {name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for name, path in files.items()},
        }
        with tarfile.open(fileobj=file, mode="w") as tar:
            data = json.dumps(index, indent=1).encode()
            info = tarfile.TarInfo(INDEX)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
            for name, path in files.items():
                tar.add(path, name, filter=_anonymous)


def _built_recipes(s: Session) -> list[Recipe]:
    """Return the locked recipes of the plan's stacks. Raises BadInput or NothingSelected where one isn't locked or built."""
    stacks = [stack for stack in stack_recipes.stacks_of(s.plan.cells) if stack.source != "interpreter"]
    if not stacks:
        raise NothingSelected("no stack is selected", hint="torchmatrix plan lists the cells of this machine")
    missing = [stack.name for stack in stacks if stack.name not in s.locks]
    if missing:
        raise BadInput(f"not locked: {', '.join(missing)}", hint="torchmatrix lock, then torchmatrix build --locked")
    recipes = [stack_recipes.recipes(stack, s.locks[stack.name])[0] for stack in stacks]
    unbuilt = [stack.name for stack, recipe in zip(stacks, recipes, strict=True) if not s.engine_for(stack).is_ready(recipe)]
    if unbuilt:
        raise BadInput(f"not built: {', '.join(unbuilt)}", hint="torchmatrix build --locked")
    return recipes


def _download(recipe: Recipe, folder: Path, tell: Callable[[str], None]) -> None:
    if recipe.source == "wheels" and recipe.lock:  # what was added to a vendor's image is in it
        lock = recipe.lock
        lines = [*lock.packages, *([lock.installer] if lock.installer else [])]
        try:
            packages.download(lines, lock.index, lock.python, lock.platform, folder, tell)
        except BuildFailed as failure:
            raise EngineUnusable(f"{recipe.stack}: {failure}", hint="check the network, or leave out --wheels") from None


def load(archive: Path, folder: Path, engine: Engine, force: bool) -> Imported:
    """Import what `export` wrote: images into the engine, wheels into the cache, matrix and lock into `folder`.

    Raises BadInput, with nothing changed, if the archive isn't whole or is for another machine.
    """
    with _open(archive) as file:
        return _load(file, archive, folder, engine, force)


_DAMAGE = (tarfile.TarError, EOFError, ValueError, LookupError, OverflowError)
"""What reading an archive raises that is cut, damaged, or changes meanwhile."""


def _load(file: IO[bytes], archive: Path, folder: Path, engine: Engine, force: bool) -> Imported:
    index = _verify(file, archive)
    platform = engine.platform()
    if index["platform"] != platform:
        raise BadInput(f"{archive} is for {index['platform']}, this machine is {platform}", hint="export it on such a machine")
    if index["images"] and engine.store is None:
        raise EngineUnusable(
            f"the bundle contains Docker's images, which {engine.name} can't load", hint=HOW_TO_HAVE_CONTAINERS
        )
    if missing := [name for name in ("matrix.toml", "matrix.lock") if name not in index["files"]]:
        raise BadInput(f"{archive} is incomplete: it has no {missing[0]}", hint=_CUT)
    if index["images"] and IMAGES not in index["files"]:
        raise BadInput(f"{archive} is incomplete: it lists images, but has no {IMAGES}", hint=_CUT)
    wheelhouse = cache_folder() / "wheelhouse"
    places = _places(index["files"], folder, wheelhouse)
    _refuse_obstacles(places, index["files"], folder, force)
    try:
        with _members(file) as tar:
            if index["images"] and engine.store:  # first: if they are refused, nothing is written
                engine.store.load(_content(tar, tar.getmember(IMAGES)), index["images"], force)
            for name, place in places.items():
                _refuse_obstacles({name: place}, index["files"], folder, force)  # what has come there meanwhile
                _write_member(_content(tar, tar.getmember(name)), place, index["files"][name]["sha256"])
    except _DAMAGE as error:
        raise _changed(archive, error) from None
    has_wheels = any(name.startswith(WHEELS) for name in index["files"])
    return Imported(folder=folder, images=tuple(index["images"]), wheelhouse=wheelhouse if has_wheels else None)


def _places(files: Mapping[str, Any], folder: Path, wheelhouse: Path) -> dict[str, Path]:
    """Return where an import writes each file of a bundle but the images. Raises BadInput if one would lie below another."""
    places = {
        name: wheelhouse / name.removeprefix(WHEELS) if name.startswith(WHEELS) else folder / name.removeprefix(OWN)
        for name in files
        if name != IMAGES
    }
    if below := [name for name, place in places.items() if not set(places.values()).isdisjoint(place.parents)]:
        raise BadInput(f"the bundle has a file below another file: {shown(below[0])}", hint="don't import it")
    return places


def _refuse_obstacles(places: Mapping[str, Path], files: Mapping[str, Any], folder: Path, force: bool) -> None:
    """Raise BadInput, before anything is written, for another file in a place, unless forced, or what can't be replaced."""
    ours = {name: place for name, place in places.items() if not name.startswith(WHEELS)}
    taken = [name for name, place in ours.items() if _is_there(place) and not _is_same(place, files[name]["sha256"])]
    if taken and not force:
        names = " and ".join(name.removeprefix(OWN) for name in taken[:5])
        raise BadInput(f"{folder} already has {names}", hint="name another folder with --into, or use --force")
    for place in places.values():
        inner = next(path for path in (place, *place.parents) if _is_there(path))
        if not (inner.is_dir() if inner != place else place.is_file() or place.is_symlink()):
            raise BadInput(f"{inner} is in the way", hint="move it away, or name another folder with --into")


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def _is_same(path: Path, sha256: str) -> bool:
    """Check whether a path is a plain file with this content."""
    try:
        return not path.is_symlink() and _sha256(path) == sha256
    except OSError:
        return False


def _open(archive: Path) -> IO[bytes]:
    """Open the archive once, so that what was verified is what is loaded. Raises BadInput for what is no file."""
    try:
        return open_regular(archive)
    except NotPlain as error:
        raise BadInput(f"can't read {archive}: it is {error.kind}, not a file", hint="name a bundle") from None
    except OSError as error:
        raise BadInput(f"can't read {archive}: {error.strerror or error}", hint=_CUT) from None


def _members(file: IO[bytes]) -> tarfile.TarFile:
    file.seek(0)
    return inputs.open_tar(file)


def _verify(file: IO[bytes], archive: Path) -> dict[str, Any]:
    """Return the index of an archive after reading every file and comparing its hash."""
    try:
        with _members(file) as tar:
            index = _read_index(tar, archive)
            hashes: dict[str, str] = {}
            for member in tar:
                if member.name in hashes:
                    raise ValueError(f"{shown(member.name)} is in it twice")
                if len(hashes) > MOST_FILES:
                    raise ValueError(f"more than {MOST_FILES:,} files")
                hashes[member.name] = sha256_of(_content(tar, member))
            del hashes[INDEX]
    except _DAMAGE as error:
        raise BadInput(f"{archive} is cut short or damaged: {clipped(printable(str(error)), 200)}", hint=_CUT) from None
    except OSError as error:
        raise BadInput(f"can't read {archive}: {error.strerror or error}", hint=_CUT) from None
    wanted = {name: entry["sha256"] for name, entry in index["files"].items()}
    wrong = sorted(name for name in wanted.keys() | hashes.keys() if wanted.get(name) != hashes.get(name))
    if wrong:
        raise BadInput(f"{archive} is cut short or damaged: {', '.join(map(shown, wrong[:5]))}", hint=_CUT)
    strange = sorted(name for name in wanted if not _NAMES.fullmatch(name) or _is_too_long(name))
    if strange:
        listing = ", ".join(map(shown, strange[:5]))
        raise BadInput(f"{archive} contains files that no bundle has: {listing}", hint="don't import it")
    return index


def _is_too_long(name: str) -> bool:
    """Check whether a name, or a part of it, is longer than any of ours, and than disks take."""
    return len(name) > 1_000 or max(map(len, name.split("/"))) > MOST_LETTERS


def _read_index(tar: tarfile.TarFile, archive: Path) -> dict[str, Any]:
    """Return the first member's content, checked. Raises BadInput, or ValueError saying what is wrong."""
    first = tar.next()
    if first is None or first.name != INDEX:
        raise BadInput(f"{archive} is not a torchmatrix bundle", hint="make one: torchmatrix bundle export FILE")
    if first.size > inputs.LARGE_FILE_BYTES:
        raise ValueError(f"{INDEX} is larger than {inputs.LARGE_FILE_BYTES >> 20} MiB")
    index = inputs.json_of(_content(tar, first).read(), f"{archive}, {INDEX}", hint=_CUT)
    if not isinstance(index, dict):
        raise ValueError(f"{INDEX} is no table")
    if index.get("version") != VERSION:
        version = shown(json.dumps(index.get("version")))
        raise BadInput(f"{archive} has the version {version}, not {VERSION}", hint="use its torchmatrix")
    files, images = index.get("files"), index.get("images")
    if not isinstance(index.get("platform"), str) or not isinstance(files, dict) or not isinstance(images, dict):
        raise ValueError(f"{INDEX} lacks platform, files or images")
    _check_entries(files, images)
    return index


def _check_entries(files: dict[str, Any], images: dict[str, Any]) -> None:
    """Raise ValueError saying what is wrong in the index."""
    for name, entry in files.items():
        if not isinstance(entry, dict) or not _is_text(entry.get("sha256"), r"[0-9a-f]{64}"):
            raise ValueError(f"{INDEX} has no hash of {shown(name)}")
    for tag, image_id in images.items():
        if not _TAG.fullmatch(tag) or not _is_text(image_id, r"sha256:[0-9a-f]+"):
            raise ValueError(f"{INDEX} lists an image that is none of ours: {shown(tag)}")


def _is_text(value: object, pattern: str) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(member) if member.isreg() and not member.issparse() else None
    if content is None:
        raise ValueError(f"{shown(member.name)} is not a plain file")
    return content


def _write_member(content: IO[bytes], path: Path, sha256: str) -> None:
    """Write a file whole or not at all; only if it still is what was verified."""
    digest = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            while block := content.read(1 << 20):
                digest.update(block)
                file.write(block)
            if digest.hexdigest() != sha256:
                raise _changed(path, "other bytes")
    except OSError as error:
        raise EngineUnusable(
            f"can't write {path}: {error.strerror}", hint="free space; then import again with --force"
        ) from None


def _changed(path: Path, why: object) -> BadInput:
    reason = clipped(printable(str(why)), 200)
    return BadInput(f"{path.name} changed while the bundle was imported: {reason}", hint="import it again with --force")


def _sha256(path: Path) -> str:
    with open_regular(path) as file:
        return sha256_of(file)


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the user and group of whoever exported the file."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o644
    return info
