"""Bad days of clusters: a network that is cut, a shared folder that shows late what was written."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Cable:
    """A network between this machine and a place (a network namespace) that holds a node alone, until it is cut."""

    place: str
    here: str
    there: str

    def lay(self) -> None:
        end = f"{self.place}-end"
        _ip(f"netns add {self.place}")
        _ip(f"link add {self.place} type veth peer name {end}")
        _ip(f"link set {end} netns {self.place}")
        _ip(f"addr add {self.here}/24 dev {self.place}")
        _ip(f"-n {self.place} addr add {self.there}/24 dev {end}")
        for where, device in (("", self.place), (f"-n {self.place} ", end), (f"-n {self.place} ", "lo")):
            _ip(f"{where}link set {device} up")

    @property
    def around(self) -> Sequence[str]:
        """Return what runs a command there."""
        return ("nsenter", f"--net=/run/netns/{self.place}")  # ip netns exec would hide the cgroups, too

    def cut(self) -> None:
        _ip(f"link set {self.place} down")

    def mend(self) -> None:
        _ip(f"link set {self.place} up")

    def remove(self) -> None:
        _ip(f"link del {self.place}")
        _ip(f"netns del {self.place}")


@contextmanager
def laid() -> Iterator[Cable]:
    """Yield a cable, for as long as it is needed."""
    network = f"10.203.{os.getpid() % 256}"
    cable = Cable(place=f"tm{os.getpid()}", here=f"{network}.1", there=f"{network}.2")
    cable.lay()
    try:
        yield cable
    finally:
        cable.remove()


@contextmanager
def late(shared: Path, seconds: float) -> Iterator[Sequence[str]]:
    """Share a folder that shows what a node writes only after some seconds, as NFS may do. Yield what runs its daemon."""
    theirs = shared.with_name(f"{shared.name} of the node")
    for folder in (shared, theirs):
        folder.mkdir()
    over = threading.Event()

    def keep_up() -> None:
        while not over.wait(0.1):
            _copy(shared, theirs, 0.0)
            _copy(theirs, shared, seconds)

    thread = threading.Thread(target=keep_up)
    thread.start()
    try:
        yield ("unshare", "--mount", "sh", "-c", f'mount --bind "{theirs}" "{shared}" && exec "$@"', "sh")
    finally:
        over.set()
        thread.join()


def _copy(folder: Path, other: Path, seconds: float) -> None:
    """Copy the files that have not changed for so many seconds and that the other folder lacks."""
    for path in sorted(folder.rglob("*")):
        there = other / path.relative_to(folder)
        with suppress(FileNotFoundError):  # it was a temporary file
            if path.is_dir():
                there.mkdir(parents=True, exist_ok=True)
            elif not there.exists() and path.stat().st_mtime + seconds <= time.time():
                part = there.with_name(f"{there.name}.copy")
                shutil.copyfile(path, part)
                part.rename(there)


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)
