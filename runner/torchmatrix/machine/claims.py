"""Which devices runs measure on: a file for each run, locked as long as its process lives."""

import fcntl
import math
import os
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import MsgspecError, Struct, json

from torchmatrix.core.errors import EngineUnusable
from torchmatrix.core.files import plain_open
from torchmatrix.core.formatting import as_text, clipped, count, in_one_line

_FOLDERS = ("/run/lock", "/dev/shm", "/tmp")
_PREFIX = "torchmatrix-"
_MOST_BYTES = 100_000
_LONGEST = 200
_MOST_MINUTES = 1e6


class Claim(Struct, frozen=True, kw_only=True):
    """The devices of a run. `gpus`: UUIDs; `cpus`: the logical CPUs that it may use; `ends`: unix seconds, by its estimate."""

    pid: int
    folder: str
    gpus: tuple[str, ...]
    cpus: tuple[int, ...]
    ends: float

    def shared_with(self, other: "Claim") -> str:
        """Return what both use, in words; empty for nothing."""
        if gpus := set(self.gpus) & set(other.gpus):
            return f"{len(gpus)} of its GPUs" if len(gpus) > 1 else "one of its GPUs"
        return "its CPUs" if set(self.cpus) & set(other.cpus) else ""


@contextmanager
def claimed(folder: Path, gpus: Collection[str], seconds: float, beside: bool | None = None) -> Iterator[None]:
    """Claim GPUs, and the CPUs that this process may use, for a run that takes about so many seconds.

    Raises EngineUnusable if another run, of whichever user, claims one of them, unless it may run `beside` that; None: the
    command has no option for it. Where no folder for claims can be written to, nothing is claimed.
    """
    own = Claim(
        pid=os.getpid(), folder=as_text(folder.absolute()), gpus=tuple(gpus), cpus=tuple(os.sched_getaffinity(0)),
        ends=time.time() + seconds,
    )  # fmt: skip
    with ExitStack() as stack:
        with suppress(OSError):  # a full disk, a folder that can't be written to: nothing is claimed
            place = _place()
            path = place / f"{_PREFIX}{own.pid}-{time.monotonic_ns()}.json"
            stack.enter_context(_held(path, json.encode(own)))
            # Of two that begin at once each sees the other: one of them, or both, give way.
            for other in () if beside else _others(path.name):
                if what := own.shared_with(other):
                    raise _taken(what, other, can_be_beside=beside is not None)
        yield


@contextmanager
def _held(path: Path, content: bytes) -> Iterator[None]:
    """Keep a file as long as the block lasts, locked from the moment at which others can see it. Raises OSError."""
    part = path.with_name(f".{path.name}")
    with plain_open(part, "xb") as file:
        try:
            os.fchmod(file.fileno(), 0o644)  # for runs of other users
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(content)
            file.flush()
            part.rename(path)
            yield
        finally:
            for name in (part, path):
                with suppress(OSError):
                    name.unlink()


def _places() -> tuple[str, ...]:
    """Return the folders of claims, by preference: root may write to one to which users can't."""
    named = os.environ.get("TORCHMATRIX_CLAIMS")
    return (named,) if named else _FOLDERS


def _place() -> Path:
    """Return the folder for a claim of this user. Raises OSError."""
    for folder in _places():
        if os.access(folder, os.W_OK | os.X_OK):
            return Path(folder)
    raise OSError(f"no folder of {', '.join(_places())} can be written to")


def _others(own: str) -> Iterator[Claim]:
    """Yield the claims of runs that go on. A file that nobody locks was left by a killed process, and goes if it is ours."""
    for path in sorted(path for place in _places() for path in Path(place).glob(f"{_PREFIX}*.json")):
        if path.name != own:
            with suppress(OSError, MsgspecError), plain_open(path, "rb") as file:
                if _is_locked(file.fileno()):
                    yield json.decode(file.read(_MOST_BYTES), type=Claim)
                elif os.fstat(file.fileno()).st_uid == os.getuid():
                    path.unlink()


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _taken(what: str, other: Claim, can_be_beside: bool) -> EngineUnusable:
    left = math.ceil(min(max(1.0, (other.ends - time.time()) / 60), _MOST_MINUTES))
    folder = clipped(in_one_line(other.folder), _LONGEST)
    return EngineUnusable(
        f"another run of torchmatrix measures on {what}: process {other.pid}, results in {folder}, by its estimate for another "
        f"{count(left, 'minute')}",
        hint="wait for it; or give each run devices and CPUs of its own (CUDA_VISIBLE_DEVICES, taskset)"
        + ("; --anyway measures beside it, and both disturb each other" if can_be_beside else ""),
    )
