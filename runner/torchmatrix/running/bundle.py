"""A matrix to carry to a machine without network: images, wheels, lock and presets in one archive that proves itself whole.

The archive is a tar file. Its first member, bundle.json, lists every other one with its size and SHA-256, the images with their
ids, and what the machine must be like. Import reads all of it once before it changes anything.
"""

import hashlib
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from torchmatrix import __version__
from torchmatrix.engines import locked_stacks, packages
from torchmatrix.engines import recipes as stack_recipes
from torchmatrix.engines.choose import HOW_TO_HAVE_CONTAINERS
from torchmatrix.engines.engine import Engine, Recipe
from torchmatrix.ground import assets
from torchmatrix.ground.errors import BadInput, BuildFailed, EngineUnusable, NothingSelected
from torchmatrix.ground.settings import cache_folder
from torchmatrix.running.session import Session

VERSION = 1
INDEX, IMAGES, WHEELS = "bundle.json", "images.tar", "wheelhouse/"
_NAMES = re.compile(r"images\.tar|matrix\.(toml|lock)|presets/[\w.+-]+\.toml|wheelhouse/[\w.+!-]+\.whl")
"""What a bundle may hold; nothing of it can lie outside of the folders that an import writes to."""
_CUT = "copy the archive again; nothing was imported"


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """What an import put where."""

    folder: Path
    images: tuple[str, ...]
    wheelhouse: Path | None


def export(s: Session, matrix_path: Path, archive: Path, wheels: bool, tell: Callable[[str], None]) -> None:
    """Write the stacks of the session's plan, locked and built, into `archive`; it appears whole or not at all.

    `wheels`: with the wheels too, for the local engine on the other machine and for builds there.
    """
    recipes = _built_recipes(s)
    try:
        _write(s, recipes, matrix_path, archive, wheels, tell)
    except OSError as error:
        raise BadInput(f"can't write {archive}: {error.strerror or error}", hint="write it elsewhere, or free space") from None


def _write(
    s: Session, recipes: Sequence[Recipe], matrix_path: Path, archive: Path, wheels: bool, tell: Callable[[str], None]
) -> None:
    store = s.engines.builder.store
    with tempfile.TemporaryDirectory(prefix=".torchmatrix-", dir=archive.absolute().parent) as temporary:
        folder, ids = Path(temporary), dict[str, str]()
        if store:
            tell(f"saving the images of {', '.join(recipe.stack for recipe in recipes)}")
            ids = store.save(recipes, folder / IMAGES)
        if wheels or store is None:
            for recipe in recipes:
                _download(recipe, folder / WHEELS, tell)
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
        files |= {"matrix.toml": matrix_path, "matrix.lock": locked_stacks.path_beside(matrix_path)}
        files |= {f"presets/{path.name}": path for path in sorted(assets.PRESETS.glob("*.toml"))}
        index = {
            "version": VERSION,
            "tool": __version__,
            "platform": next(recipe.lock.platform for recipe in recipes if recipe.lock),
            "workload_hash": stack_recipes.workload_hash(),
            "images": ids,
            "files": {name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for name, path in files.items()},
        }
        part = folder / "archive.part"
        with tarfile.open(part, "w") as tar:
            _add(tar, INDEX, json.dumps(index, indent=1).encode())
            for name, path in files.items():
                tar.add(path, name, filter=_anonymous)
        part.replace(archive)


def _built_recipes(s: Session) -> list[Recipe]:
    """The locked recipes of the plan's stacks. Raises BadInput or NothingSelected where one isn't locked or built."""
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
        held = recipe.lock
        lines = [*held.packages, *([held.installer] if held.installer else [])]
        try:
            packages.download(lines, held.index, held.python, held.platform, folder, tell)
        except BuildFailed as failure:
            raise EngineUnusable(f"{recipe.stack}: {failure}", hint="check the network, or leave out --wheels") from None


def load(archive: Path, folder: Path, engine: Engine, force: bool) -> Imported:
    """Bring in what `export` wrote: images into the engine, wheels into the cache, matrix and lock into `folder`.

    Raises BadInput, with nothing changed, if the archive isn't whole or is for another machine.
    """
    index = _verified(archive)
    platform = engine.platform()
    if index["platform"] != platform:
        raise BadInput(f"{archive} is for {index['platform']}, this machine is {platform}", hint="export it on such a machine")
    if index["images"] and engine.store is None:
        raise EngineUnusable("the bundle contains images, and no container engine answers", hint=HOW_TO_HAVE_CONTAINERS)
    taken = [name for name in ("matrix.toml", "matrix.lock") if (folder / name).exists()]
    if taken and not force:
        raise BadInput(f"{folder} already has {' and '.join(taken)}", hint="name another folder with --into, or use --force")
    wheelhouse = cache_folder() / "wheelhouse"
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            if member.name == IMAGES and engine.store:
                engine.store.load(content, index["images"])
            elif member.name.startswith(WHEELS):
                _put(content, wheelhouse / PurePosixPath(member.name).name)
            elif member.name not in (INDEX, IMAGES):
                _put(content, folder / member.name)
    has_wheels = any(name.startswith(WHEELS) for name in index["files"])
    return Imported(folder=folder, images=tuple(index["images"]), wheelhouse=wheelhouse if has_wheels else None)


def _verified(archive: Path) -> dict[str, Any]:
    """The index of an archive whose every file was read and has its hash."""
    try:
        with tarfile.open(archive) as tar:
            first = tar.next()
            if first is None or first.name != INDEX:
                raise BadInput(f"{archive} is not a torchmatrix bundle", hint="make one: torchmatrix bundle export FILE")
            index = dict(json.loads(_content(tar, first).read()))
            if index.get("version") != VERSION:
                raise BadInput(f"{archive} has the version {index.get('version')}, not {VERSION}", hint="use its torchmatrix")
            found: dict[str, str] = {}
            for member in tar:
                if member.name in found:
                    raise ValueError(f"{member.name} is in it twice")
                found[member.name] = _digest(_content(tar, member))
            del found[INDEX]
        wanted = {str(name): entry["sha256"] for name, entry in index["files"].items()}
        if not isinstance(index["platform"], str) or not isinstance(index["images"], dict):
            raise ValueError("its index is none")
    except (tarfile.TarError, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadInput(f"{archive} is cut short or damaged: {error}", hint=_CUT) from None
    except OSError as error:
        raise BadInput(f"can't read {archive}: {error.strerror or error}", hint=_CUT) from None
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise BadInput(f"{archive} is cut short or damaged: {', '.join(wrong[:5])}", hint=_CUT)
    strange = sorted(name for name in wanted if not _NAMES.fullmatch(name))
    if strange:
        raise BadInput(f"{archive} contains files that no bundle has: {', '.join(strange[:5])}", hint="don't import it")
    return index


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(member)
    if content is None:
        raise ValueError(f"{member.name} is not a file")
    return content


def _put(content: IO[bytes], path: Path) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            while block := content.read(1 << 20):
                file.write(block)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise EngineUnusable(
            f"can't write {path}: {error.strerror}", hint="free space; then import again with --force"
        ) from None


def _digest(content: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := content.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return _digest(file)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    tar.addfile(info, io.BytesIO(data))


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the names of whoever exported it."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o644
    return info
