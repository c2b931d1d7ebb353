"""What engines share whose launches are processes of this user: groups, ports, compile caches, orphans, what they left."""

import fcntl
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import machine

from torchmatrix.engines import cgroups
from torchmatrix.engines.cgroups import Place
from torchmatrix.engines.engine import Image, LaunchSpec, Leftover, disk_of
from torchmatrix.engines.limits import Limits, limits_of
from torchmatrix.engines.local_caches import LocalCache, remove_tree
from torchmatrix.engines.processes import UNLIMITED, kill_marked
from torchmatrix.engines.supervised import OWNER_VARIABLE
from torchmatrix.ground.errors import BuildFailed
from torchmatrix.ground.files import plain_open
from torchmatrix.machine.cpu import quota
from torchmatrix.machine.host import free_port
from torchmatrix.planning.fit import Disk

PLATFORM = f"{sys.platform}/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(machine(), machine()) }"
"""Of this machine, as container images name it."""
_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class OwnProcesses:
    """`folder`: what the engine keeps; its compile caches are below it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place: Place | None = None
        self._ports: set[int] = set()

    @property
    def groups(self) -> Place:
        """Where control groups can be made, looked up once."""
        if self._place is None:
            self._place = cgroups.find()
        return self._place

    @property
    def limits(self) -> Limits:
        """Those of a launch."""
        if not self.groups.folders:
            return UNLIMITED
        ours = quota().memory_bytes
        return limits_of(_MEMORY_BYTES if ours is None else min(ours, _MEMORY_BYTES))

    def disk(self) -> Disk | None:
        """That of the folder, or of the one that will contain it."""
        there = next(path for path in (self._folder, *self._folder.parents) if path.exists())
        return disk_of(there, "set TORCHMATRIX_CACHE to a folder on a larger disk")

    def port(self) -> int:
        """A free port that no earlier launch was given: one that starts meanwhile may not have taken its own yet."""
        port = next(port for port in iter(free_port, 0) if port not in self._ports)
        self._ports.add(port)
        return port

    def compile_cache(self, image: Image, spec: LaunchSpec) -> LocalCache:
        """The hold of a launch on its cache."""
        return LocalCache(self._folder / "compile" / image.environment, spec.cache)

    def remove_orphans(self, owner: str) -> list[str]:
        """End this user's processes that carry the mark of `owner`, and its groups; the caller holds the owner's lock."""
        groups = [f"control group {name}" for name in cgroups.remove_left(self.groups, owner)]
        return groups + [f"process {pid}" for pid in kill_marked(OWNER_VARIABLE, owner)]

    def caches_left(self, keep: Collection[str]) -> list[Leftover]:
        """The compile caches of environments that are not in `keep`."""
        caches = {path: path.name for path in (self._folder / "compile").glob("[!.]*")}
        return list(left("cache", caches, keep))


def left(kind: str, found: dict[Path, str], keep: Collection[str]) -> Iterator[Leftover]:
    """Those of the folders and files `found` whose environment is not in `keep`, by name."""
    for path, environment in sorted(found.items()):
        if environment not in keep:
            yield Leftover(kind=kind, name=str(path), bytes=_size(path))


def lock_of(path: Path) -> Path:
    """What whoever makes or removes `path` holds meanwhile."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """One tool at a time makes `path`: another run with other results may share the cache. Whoever waited finds it made.

    Raises BuildFailed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = plain_open(lock_of(path), "a")
    except OSError as error:
        raise BuildFailed(f"can't write {path.parent}: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove(path: Path, *mark: Path) -> str | None:
    """Remove a folder or a file, unless another run is making it; returns why that could not be done.

    `mark`: files without which it means nothing, and which go first.
    """
    try:
        with plain_open(lock_of(path), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for file in mark:
                file.unlink(missing_ok=True)
            remove_tree(path) if path.is_dir() else path.unlink()
    except BlockingIOError:
        return "another run is building it"
    except OSError as error:
        return error.strerror or str(error)
    return None


def _size(place: Path) -> int:
    """Bytes on disk of a file, or below a folder; hard links count once."""
    seen: dict[tuple[int, int], int] = {}
    inside = (Path(root) / name for root, _, names in os.walk(place) for name in names)
    for path in inside if place.is_dir() else (place,):
        with suppress(OSError):
            status = path.lstat()
            seen[(status.st_dev, status.st_ino)] = status.st_blocks * 512
    return sum(seen.values())
