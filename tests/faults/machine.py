"""Faults of the machine: disks that are full or read-only, limits of a process, clocks that jump."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from faults.checks import Finished, completed, completes, ended_as
from faults.workplace import LONGER, Workplace
from support import until

_DISK_BYTES = 4 << 20


def results_full(place: Workplace) -> int:
    """Fill the disk of the results at a random moment; once there is space, the run continues."""
    with _disk(place.folder / "results") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(_DISK_BYTES - (1 << 17)))
        _fill(ballast, place.random.randrange(0, 1 << 17, 512))
        ended_as(place.call(), 0, 4)
        finished = Finished(place)
        finished.check()
        ballast.unlink()
        completes(place)
        finished.check()
    return 1


def report_full(place: Workplace) -> int:
    """Fill the disk of the report: what was measured stays, and the old report too."""
    with _disk(place.folder / "reports") as disk:
        ballast = disk / "ballast"
        _fill(ballast, _DISK_BYTES)
        ended_as(place.call(), 4)
        ballast.unlink()
        completes(place)
    return 1


def caches_full(place: Workplace) -> int:
    """Fill the disk of the caches and of temporary files: caches may be missing, figures not."""
    place.variables["TMPDIR"] = str(place.folder / "cache")
    with _disk(place.folder / "cache") as disk:
        _fill(disk / "ballast", _DISK_BYTES)
        ended_as(place.call(), 0, 4)
        (disk / "ballast").unlink()
        completes(place)
    return 1


def results_read_only(place: Workplace) -> int:
    """Make the results read-only at a random moment."""
    with _disk(place.folder / "results") as disk:
        process = place.start(variables=LONGER)
        until(lambda: place.is_measuring, process)
        until(lambda: _remounted(disk, "ro"), process)
        ended_as(place.end(process), 0, 4)
        ended_as(place.call(), 4)
        ended_as(place.call("report"), 0)
        _remount(disk, "rw")
        completes(place)
    return 1


def home_read_only(place: Workplace) -> int:
    """Let nothing be written but the results and the report."""
    place.variables |= {"HOME": "/proc/self", "TORCHMATRIX_CACHE": "/proc/self/cache"}
    ended_as(place.call(), 0)
    completed(place)
    return 1


def few_files(place: Workplace) -> int:
    """Let few files be open at a time."""
    return _limited(place, resource.RLIMIT_NOFILE, place.random.randrange(6, 40))


def little_memory(place: Workplace) -> int:
    """Limit the address space, from too little for an import to almost enough."""
    return _limited(place, resource.RLIMIT_AS, place.random.randrange(100 << 20, 3 << 30))


def small_files(place: Workplace) -> int:
    """Limit the size of a file: of a launch, or of the report."""
    return _limited(place, resource.RLIMIT_FSIZE, place.random.randrange(1 << 10, 1 << 20))


def clock_jumps(place: Workplace, days: int) -> int:
    """Let the time of day jump during a run, which may be killed then; its continuation and the next are in the other time."""
    clock, library = place.folder / "clock", place.folder / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(Path(__file__).with_name("clock.c"))], check=True)
    clock.write_text("0")
    place.variables |= {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(clock)}
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring, process)
    clock.write_text(str(days * 86_400))
    if place.random.random() < 0.5:
        process.kill()
        place.end(process)
        ended_as(place.call(), 0)
    else:
        ended_as(place.end(process), 0)
    completed(place)
    assert len(place.results.runs()) == 1, "the interrupted run was not continued"
    ended_as(place.call(), 0)
    assert [run.read_record().complete for run in place.results.runs()] == [True, True]
    return 1


def _limited(place: Workplace, what: int, limit: int) -> int:
    """Run under a limit of the process: it may fail, in words; without the limit it is completed."""
    ended = place.call(preexec_fn=partial(resource.setrlimit, what, (limit, limit)))
    named = f"with a limit of {limit}: {ended.stderr}"
    assert "Traceback" not in ended.stderr or "torchmatrix" not in ended.stderr.partition("Traceback")[2], named
    Finished(place).check()
    completes(place)
    return 1


@contextmanager
def _disk(folder: Path) -> Iterator[Path]:
    """Mount a small disk of its own at `folder`."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(path: Path, size: int) -> None:
    """Add so many bytes to a file, or as many as the disk takes."""
    with path.open("ab", buffering=0) as file:
        try:
            while size > 0:
                size -= file.write(bytes(min(size, 1 << 16)))
        except OSError:
            return


def _remount(disk: Path, how: str) -> None:
    assert _remounted(disk, how), f"{disk} can't be made {how}"


def _remounted(disk: Path, how: str) -> bool:
    """Remount a disk: one with an open file can't be made read-only in the ordinary way."""
    return subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], capture_output=True).returncode == 0
