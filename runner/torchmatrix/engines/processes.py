"""Run a launch as processes of this user: start it, read its output, and end it with everything that it started."""

import hashlib
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from platform import machine
from types import MappingProxyType, TracebackType
from typing import IO, Any

from torchmatrix.core import files
from torchmatrix.core.errors import BuildFailed, LaunchFailed
from torchmatrix.core.files import locked_file, remove_tree
from torchmatrix.engines import containment
from torchmatrix.engines.caches import LocalCache
from torchmatrix.engines.containment import OWNER_VARIABLE, ControlGroup, GroupPlace, Limits, kernel_oom_kills, limits_of
from torchmatrix.engines.engine import Exit, Image, LaunchSpec, Leftover, Line, Output, disk_of
from torchmatrix.machine.cpu import quota
from torchmatrix.machine.host import free_port
from torchmatrix.planning.fit import Disk

LAUNCH_VARIABLE = "TORCHMATRIX_LAUNCH"
"""The variable that marks the processes of a launch, so that processes that torchrun left behind are found."""
MARKS = (OWNER_VARIABLE, LAUNCH_VARIABLE)
GRACE_SECONDS = 10.0
"""Seconds between SIGTERM and SIGKILL when a launch is stopped."""
NOWHERE = GroupPlace()
UNLIMITED = Limits()


class LocalExecution:
    """The processes of a launch, below a supervisor that ends them all; in their own session, so that Ctrl-C reaches the
    tool first.
    """

    def __init__(
        self,
        command: list[str],
        variables: Mapping[str, str],
        owner: str,
        cache: LocalCache | None = None,
        place: GroupPlace = NOWHERE,
        limits: Limits = UNLIMITED,
        held: ExitStack | None = None,
        pasted: str | None = None,
        scratch: bool = False,
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Prepare to run `command`. `held`: what the launch needs as long as it runs; closed at its end. `pasted`: the
        command as a person can repeat it, if that isn't `command`. `scratch`: whether it gets a temporary folder of its
        own. `facts`: further ones for the record.
        """
        self._argv = command
        self._cache = cache
        self._held = held or ExitStack()
        self._scratch = scratch
        self._place, self._limits, self._owner = place, limits, owner
        self._group: ControlGroup | None = None
        self._token = uuid.uuid4().hex
        self._variables = {**variables, OWNER_VARIABLE: owner, LAUNCH_VARIABLE: self._token}
        self._process: subprocess.Popen[bytes] | None = None
        self._oom_kills = 0
        cache_facts = cache.facts.as_facts() if cache else {}
        self.started: Mapping[str, Any] = limits.as_facts() | cache_facts | dict(facts)
        shown = {k: v for k, v in variables.items() if k.endswith("VISIBLE_DEVICES")}
        self.command = pasted or " ".join([*(f"{k}={shlex.quote(v)}" for k, v in shown.items()), shlex.join(command)])

    def __enter__(self) -> "LocalExecution":
        try:
            self._start()
        except LaunchFailed:
            self._release()
            raise
        return self

    def _start(self) -> None:
        if shutil.which(self._argv[0]) is None:
            raise LaunchFailed(f"{self._argv[0]} can't be started: there is no such program")
        self._oom_kills = kernel_oom_kills()
        try:
            if self._scratch:
                self._variables["TMPDIR"] = str(self._held.enter_context(files.scratch()))
            self._group = containment.make_group(self._place, self._owner, self._limits) if self._place.folders else None
            self._process = containment.start_supervised(self._argv, self._variables, self._group)
        except OSError as error:
            raise LaunchFailed(f"{self._argv[0]} can't be started: {error.strerror}") from None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()
        assert self._process is not None
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
        self._release()

    def _release(self) -> None:
        if self._group:
            containment.remove_group(self._group)
        if self._cache:
            self._cache.release()
        self._held.close()

    def lines(self) -> Iterator[Line]:
        """Yield lines of both streams until the first process has ended and closed them (or left them to stray children)."""
        assert self._process is not None
        with selectors.DefaultSelector() as selector:
            output = Output()
            selector.register(self._process.stdout, selectors.EVENT_READ, "out")  # type: ignore[arg-type]
            selector.register(self._process.stderr, selectors.EVENT_READ, "err")  # type: ignore[arg-type]
            while selector.get_map():
                has_ended = self._process.poll() is not None  # asked first: what it wrote is then there to be read
                ready = selector.select(timeout=1.0)
                if not ready and has_ended:
                    break
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                    yield from output.add(key.data, data)
            yield from output.end()

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL after a grace period."""
        assert self._process is not None
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=GRACE_SECONDS)
        self._end()

    def wait(self) -> Exit:
        """Return the exit code of the first process; out of memory if the kernel has ended a process of the launch for it.

        Without a control group the kernel counts for the whole machine.
        """
        assert self._process is not None
        code = self._process.wait()
        problem = self._cache.finish(code) if self._cache else None
        kills = containment.oom_kills(self._group) if self._group else kernel_oom_kills() - self._oom_kills
        return Exit(returncode=code, oom_killed=code != 0 and kills > 0, problem=problem)

    def owns(self, pid: int) -> bool:
        """Check whether the process carries the launch's mark, or descends from it."""
        assert self._process is not None
        return f"{LAUNCH_VARIABLE}={self._token}".encode() in environment_of(pid) or self._process.pid in _ancestors(pid)

    def _end(self) -> None:
        """Let the supervisor end everything. If the supervisor itself was killed, the launch's mark identifies the
        processes it left.
        """
        assert self._process is not None
        containment.end_supervised(self._process)
        kill_marked(LAUNCH_VARIABLE, self._token)


def _ancestors(pid: int) -> Iterator[int]:
    """Yield the processes that a process descends from, nearest first."""
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            return
        yield pid


def kill_marked(variable: str, value: str) -> list[int]:
    """SIGKILL every process of this user whose environment holds variable=value; return their ids."""
    mark = f"{variable}={value}".encode()
    pids = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid() and mark in environment_of(int(entry.name)):
                pids.append(int(entry.name))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def environment_of(pid: int) -> list[bytes]:
    """Return the variables that a process was started with, as b"NAME=value"; none if it is gone or may not be read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


# Shared by the engines whose launches are processes of this user: control groups, ports, compile caches, orphans, leftovers.

PLATFORM = f"{sys.platform}/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(machine(), machine()) }"
"""This machine's platform, as container images name it."""
_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class LaunchResources:
    """Control groups, ports and compile caches of an engine. `folder`: what the engine keeps, its compile caches included."""

    def __init__(self, folder: Path) -> None:
        self.uses = Uses()
        self._folder = folder
        self._place: GroupPlace | None = None
        self._ports: set[int] = set()

    @property
    def groups(self) -> GroupPlace:
        """Return where control groups can be made, looked up once."""
        if self._place is None:
            self._place = containment.find_group_place()
        return self._place

    @property
    def limits(self) -> Limits:
        """Return the limits of a launch."""
        if not self.groups.folders:
            return UNLIMITED
        limit = quota().memory_bytes
        return limits_of(_MEMORY_BYTES if limit is None else min(limit, _MEMORY_BYTES))

    def disk(self) -> Disk | None:
        """Return the disk of the folder, or of the one that will contain it."""
        existing = next(path for path in (self._folder, *self._folder.parents) if path.exists())
        return disk_of(existing, "set TORCHMATRIX_CACHE to a folder on a larger disk")

    def port(self) -> int:
        """Return a free port that no earlier launch was given: one that starts meanwhile may not have taken its port yet."""
        port = next(port for port in iter(free_port, 0) if port not in self._ports)
        self._ports.add(port)
        return port

    def compile_cache(self, image: Image, spec: LaunchSpec) -> LocalCache:
        """Open the compile cache of a launch; an interpreter's, which its user may upgrade, is that of its versions."""
        versions = [str(image.facts[name]) for name in ("torch", "python") if name in image.facts]
        digest = hashlib.sha256(repr(versions).encode(errors="surrogateescape")).hexdigest()[:6]
        folder = self._folder / "compile" / (f"{image.environment}-{digest}" if versions else image.environment)
        with suppress(BuildFailed, OSError):  # the cache says why it can't be kept
            self.uses.make(folder, folder.is_dir, partial(folder.mkdir, parents=True, exist_ok=True))
        return LocalCache(folder, spec.cache)

    def remove_orphans(self, owner: str) -> list[str]:
        """End this user's processes that carry the mark of `owner`, and its groups; the caller holds the owner's lock."""
        groups = [f"control group {name}" for name in containment.remove_left_groups(self.groups, owner)]
        return groups + [f"process {pid}" for pid in kill_marked(OWNER_VARIABLE, owner)]

    def caches_left(self, keep: Collection[str]) -> list[Leftover]:
        """Return the compile caches of environments that are not in `keep`."""
        caches = {path: path.name.partition("-")[0] for path in (self._folder / "compile").glob("[!.]*")}
        return list(left_files("cache", caches, keep))


def left_files(kind: str, environments: dict[Path, str], keep: Collection[str]) -> Iterator[Leftover]:
    """Yield the folders and files of `environments` whose environment is not in `keep`, by name."""
    for path, environment in sorted(environments.items()):
        if environment not in keep:
            yield Leftover(kind=kind, name=str(path), bytes=_size(path))


def lock_of(path: Path) -> Path:
    """Return the lock file that whoever makes or removes `path` holds meanwhile."""
    return path.with_name(f".{path.name}.lock")


class Uses:
    """What an engine uses of a cache that other runs share: locked while the engine is there, so that nobody removes it."""

    def __init__(self) -> None:
        self._held: set[Path] = set()

    def make(self, path: Path, is_ready: Callable[[], bool], make: Callable[[], None]) -> None:
        """Make `path` unless it is ready, one tool at a time, and use it from now on. Raises BuildFailed."""
        if path not in self._held:
            # A cache of somebody else may have no lock that can be opened: that user alone can remove what is in it.
            with suppress(BuildFailed), _locked(_use_of(path), shared=True, wait=True) as lock:
                weakref.finalize(self, os.close, os.dup(lock.fileno()))
                self._held.add(path)
        if not is_ready():
            with _locked(lock_of(path), wait=True):
                if not is_ready():  # whoever waited finds it made
                    make()


def _use_of(path: Path) -> Path:
    """Return the lock file that all who use `path` share, and that whoever removes it holds alone."""
    return path.with_name(f".{path.name}.used")


def _locked(file: Path, **how: bool) -> IO[bytes]:
    """Open and lock a file as locked_file does. Raises BuildFailed; BlockingIOError if it shouldn't wait."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return locked_file(file, **how)
    except BlockingIOError:
        raise
    except OSError as error:
        raise BuildFailed(f"can't write {file.parent}: {error.strerror}") from None


def remove_unused(path: Path, *mark: Path) -> str | None:
    """Remove a folder or a file, unless a run makes or uses it; return why that could not be done.

    `mark`: files without which it means nothing, and which go first.
    """
    try:
        with _locked(lock_of(path)), _locked(_use_of(path)):
            for file in mark:
                file.unlink(missing_ok=True)
            remove_tree(path) if path.is_dir() else path.unlink()
    except BlockingIOError:
        return "a run makes it or uses it"
    except BuildFailed as failure:
        return str(failure)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _size(path: Path) -> int:
    """Return the bytes on disk of a file, or of the files below a folder; hard links count once."""
    sizes: dict[tuple[int, int], int] = {}
    inside = (Path(root) / name for root, _, names in os.walk(path) for name in names)
    for file in inside if path.is_dir() else (path,):
        with suppress(OSError):
            status = file.lstat()
            sizes[(status.st_dev, status.st_ino)] = status.st_blocks * 512
    return sum(sizes.values())
