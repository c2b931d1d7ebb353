"""Contain the processes of a launch: limits, control groups, and a supervisor that ends them with this tool."""

import atexit
import hashlib
import io
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

from torchmatrix.core import assets, settings
from torchmatrix.core.files import text_of
from torchmatrix.engines import supervisor
from torchmatrix.machine import masks

# The limits of a launch: generous, so that none changes the figure of a launch that ends by itself.

OOM_SCORE_ADJ = 1000
"""The highest value: if the machine runs out of memory, the kernel ends the launch before anything else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """`memory_bytes` of all processes of a launch together, without swap; `processes`: how many, threads included.

    None: the engine can't limit it here. `log_mb`: how much of the output the engine itself keeps, in megabytes. Core dumps
    are never written.
    """

    memory_bytes: int | None = None
    processes: int | None = None
    log_mb: int = 20

    def as_facts(self) -> dict[str, Any]:
        """Return the fields of a launch's header under `started`."""
        return {
            "memory_bytes": self.memory_bytes,
            "processes": self.processes,
            "core_bytes": 0,
            "oom_score_adj": OOM_SCORE_ADJ,
        }


def limits_of(machine_memory_bytes: int | None) -> Limits:
    """Return the limits of a launch: the site's share of a machine's memory, and its number of processes."""
    site = settings.load()
    memory = int(machine_memory_bytes * site.memory_share) if machine_memory_bytes else None
    return Limits(memory_bytes=memory, processes=site.processes, log_mb=site.log_mb)


def kernel_oom_kills() -> int:
    """Return how many processes this machine's kernel has ended for memory, in any control group; 0 if it doesn't say."""
    try:
        counts = dict(line.split() for line in Path("/proc/vmstat").read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return 0
    return int(counts.get("oom_kill", 0))


# Control groups of the kernel: they limit all processes of a launch without a container together, and count those that were
# ended for memory.
#
# Version 2 (https://docs.kernel.org/admin-guide/cgroup-v2.html): a group may have processes or groups, not both. So a launch's
# group is made beside the tool's own, unless that has limits, which the launch would escape. Version 1: it is made inside.
# Limits of single processes are no substitute: a process of CUDA reserves far more address space than it uses memory.

_PREFIX = "torchmatrix-"
_CONTROLLERS = ("memory", "pids")


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupPlace:
    """Where groups can be made: one folder (version 2), or one of each controller (version 1). `why_not`: why there is none."""

    folders: tuple[Path, ...] = ()
    why_not: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlGroup:
    """The group of one launch."""

    folders: tuple[Path, ...]


def find_group_place(process: Path = Path("/proc/self")) -> GroupPlace:
    """Find where this process may make groups, by making one. `process`: its folder of /proc."""
    try:
        groups = dict(_own_groups(process))
        if "memory" in groups:  # version 1: inside this process's group, of each controller
            folders = tuple(_mount_point(process, "cgroup", name) / groups[name].lstrip("/") for name in _CONTROLLERS)
        else:
            folders = (_group_above(process, groups[""]),)
        place = GroupPlace(folders=folders)
        remove_group(make_group(place, "", Limits(memory_bytes=1 << 30, processes=64)))
    except KeyError:
        return GroupPlace(why_not="the kernel has no control groups for memory and processes")
    except OSError as error:
        return GroupPlace(why_not=f"{error.filename}: {error.strerror}")
    return place


def _own_groups(process: Path) -> Iterator[tuple[str, str]]:
    """Yield (controller, group) of the process; the controller of version 2 is "". Raises OSError."""
    for line in (process / "cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, group


def _mount_point(process: Path, kind: str, option: str) -> Path:
    """Return the mount point of a hierarchy. Raises KeyError."""
    for line in (process / "mounts").read_text(encoding="utf-8").splitlines():
        _, mount_point, filesystem, options, *_ = line.split()
        if filesystem == kind and option in options.split(","):
            return Path(mount_point)
    raise KeyError(option)


def _group_above(process: Path, group: str) -> Path:
    """Return the group above this process's own (version 2). Raises OSError if it can't limit, or its group would be
    escaped.
    """
    folder = _mount_point(process, "cgroup2", "rw") / group.lstrip("/")
    parent = folder.parent if group != "/" else folder
    enabled = (parent / "cgroup.subtree_control").read_text(encoding="utf-8").split()
    if lacking := [name for name in _CONTROLLERS if name not in enabled]:
        raise OSError(0, f"{' and '.join(lacking)} can't be limited there", str(parent))
    if parent != folder and (limit := _limit_of(folder)):
        raise OSError(0, f"the launch would escape {limit}", str(folder))
    if not os.access(parent / "cgroup.procs", os.W_OK):
        raise OSError(0, "processes can't be moved there", str(parent))
    return parent


def _limit_of(group: Path) -> str:
    """Return the name of a limit that the group has itself, other than of processes; empty if it has none."""
    unlimited = {"memory.max": "max", "memory.high": "max", "cpu.max": "max", "cpuset.cpus": "", "cpuset.mems": ""}
    limits = (name for name, none in unlimited.items() if (text_of(group / name) or none).split(" ")[0] != none)
    return next(limits, "")


def make_group(place: GroupPlace, owner: str, limits: Limits) -> ControlGroup:
    """Make a group with these limits, without swap. Raises OSError, with nothing left."""
    name = f"{_prefix_of(owner)}{uuid.uuid4().hex[:12]}"
    group = ControlGroup(folders=tuple(folder / name for folder in place.folders))
    try:
        for folder in group.folders:
            folder.mkdir()
        _apply_limits(group, limits)
    except OSError:
        remove_group(group)
        raise
    return group


def _apply_limits(group: ControlGroup, limits: Limits) -> None:
    first, last = group.folders[0], group.folders[-1]
    memory = str(limits.memory_bytes)
    unified = first == last
    (first / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(memory, encoding="utf-8")
    (last / "pids.max").write_text(str(limits.processes), encoding="utf-8")
    swap = first / ("memory.swap.max" if unified else "memory.memsw.limit_in_bytes")
    if swap.exists():  # only where the kernel counts swap
        swap.write_text("0" if unified else memory, encoding="utf-8")


def oom_kills(group: ControlGroup) -> int:
    """Return how many processes of the group the kernel has ended for memory."""
    text = text_of(group.folders[0] / "memory.events") or text_of(group.folders[0] / "memory.oom_control") or ""
    return int(dict(line.split() for line in text.splitlines()).get("oom_kill", 0))


def remove_group(group: ControlGroup) -> None:
    """End the group's processes, and remove it. Processes that the kernel holds stay, with their group."""
    end = time.monotonic() + supervisor.PATIENCE_SECONDS
    for folder in group.folders:
        while folder.exists() and time.monotonic() < end:
            with suppress(OSError):  # its last processes are still ending
                folder.rmdir()
                break
            supervisor.end_group(str(folder))
            time.sleep(0.01)


def remove_left_groups(place: GroupPlace, owner: str) -> list[str]:
    """Remove the groups that a killed tool has left; return their names. Nobody else may use `owner` meanwhile."""
    left = sorted({path.name for folder in place.folders for path in folder.glob(f"{_prefix_of(owner)}*")})
    for name in left:
        remove_group(ControlGroup(folders=tuple(folder / name for folder in place.folders)))
    return left


def _prefix_of(owner: str) -> str:
    return f"{_PREFIX}{hashlib.sha256(owner.encode()).hexdigest()[:12]}-"


# Starting and ending commands below a supervisor.

OWNER_VARIABLE = "TORCHMATRIX_OWNER"
"""The variable that marks our processes, as labels mark containers, so that what a killed run left behind is found."""


def start_supervised(
    argv: Sequence[str], variables: Mapping[str, str], group: ControlGroup | None
) -> "subprocess.Popen[bytes]":
    """Start the command below a supervisor, in a session of its own. Raises OSError."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__, str(OOM_SCORE_ADJ), "\n".join(group_folders(group)), *argv],
        env=_clean_environment() | dict(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def supervised_command(argv: Sequence[str], given: IO[bytes] | None = None) -> list[str]:
    """Return the words that run a command below a supervisor; closing its standard input ends it and all that it started.

    `given`: what the command reads instead; whoever starts it passes that descriptor on.
    """
    reading = ["sh", "-c", f'exec "$@" </proc/self/fd/{given.fileno()}', "sh"] if given else []
    score = Path("/proc/self/oom_score_adj").read_text(encoding="utf-8").strip()
    return [sys.executable, "-I", "-S", supervisor.__file__, score, "", *reading, *argv]


def group_folders(group: ControlGroup | None) -> list[str]:
    """Return the folders of a control group, if there is one."""
    return [str(folder) for folder in group.folders] if group else []


def end_supervised(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """Let a supervisor end all processes below it."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(timeout=2 * supervisor.PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:  # a process that the kernel holds can't be ended; nobody waits for it for ever
        process.kill()
        process.wait()


@contextmanager
def ended_at_exit(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> Iterator[None]:
    """End a supervised command also where this process ends: builds run in threads, which an interruption ends silently."""
    end = partial(end_supervised, process)
    atexit.register(end)
    try:
        yield
    finally:
        atexit.unregister(end)


@contextmanager
def _supervised(
    argv: Sequence[str], *, variables: Mapping[str, str] | None = None, folder: Path | None = None,
    given: IO[bytes] | None = None,
) -> "Iterator[subprocess.Popen[bytes]]":  # fmt: skip
    """Start a command as supervised_command says, with both of its outputs in one; at the end wait for it. Raises OSError."""
    with subprocess.Popen(
        supervised_command(argv, given), pass_fds=[given.fileno()] if given else (), env=variables, cwd=folder,
        start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process, ended_at_exit(process):  # fmt: skip
        yield process


def run(
    argv: Sequence[str], on_line: Callable[[str], None], *, variables: Mapping[str, str], folder: Path | None = None,
    given: IO[bytes] | None = None,
) -> int:  # fmt: skip
    """Run a command with these variables alone; pass on each line of both its outputs; return its exit code. Raises OSError.

    However this process ends, the command ends with it. `given`: what it reads.
    """
    with _supervised(argv, variables=variables, folder=folder, given=given) as process:
        assert process.stdout is not None
        with io.TextIOWrapper(process.stdout, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                on_line(line.rstrip())
    return process.returncode


def answer_of(argv: Sequence[str], seconds: float) -> tuple[int, str]:
    """Run a command below a supervisor; return its exit code and the begin of its output. Raises OSError, TimeoutExpired."""
    begin = time.monotonic()
    with _supervised(argv) as process:
        limit = threading.Timer(seconds, end_supervised, [process])
        limit.daemon = True
        limit.start()
        assert process.stdout is not None
        output = process.stdout.read(MOST_ANSWER_BYTES)
        if len(output) == MOST_ANSWER_BYTES:
            end_supervised(process)
        code = process.wait()
        limit.cancel()
    if time.monotonic() - begin >= seconds:
        raise subprocess.TimeoutExpired(argv, seconds)
    return code, output.decode(errors="replace")


MOST_ANSWER_BYTES = 1 << 20
"""How much of a command's output is kept as its answer; beyond it, the command is ended."""

_FOREIGN = ("PYTHON", "APPTAINER", "SINGULARITY", *masks.VARIABLES)
_KEPT = ("APPTAINER_TMPDIR", "SINGULARITY_TMPDIR")
LIBRARIES = "LD_LIBRARY_PATH"
"""Names the folders where programs of this machine may find their libraries."""


def _clean_environment() -> dict[str, str]:
    """Return the user's environment without what would leak into the stack: another installation, another choice of GPUs,
    more folders or variables for its container, and whatever changes results.
    """
    return {
        key: value
        for key, value in os.environ.items()
        if key in _KEPT
        or not (key.startswith(_FOREIGN) or key == "VIRTUAL_ENV" or key.endswith("_VISIBLE_DEVICES") or changes_results(key))
    }


def inherited_variables(names: Sequence[str]) -> dict[str, str]:
    """Return the user's variables of these names, or patterns such as KMP_*."""
    return {key: value for key, value in os.environ.items() if any(fnmatchcase(key, name) for name in names)}


def withheld_variables(names: Sequence[str]) -> list[str]:
    """List the user's variables that change results and match none of `names`."""
    return sorted(key for key in os.environ if changes_results(key) and key not in inherited_variables(names))


def changes_results(name: str) -> bool:
    """Check whether a variable of that name changes what a launch computes, or how fast, by images/workload/variables.json."""
    patterns = _variable_patterns()
    return _matches(name, patterns["acting"]) and not _matches(name, patterns["idle"])


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(name.startswith(pattern) if pattern.endswith("_") else name == pattern for pattern in patterns)


@cache
def _variable_patterns() -> dict[str, list[str]]:
    return dict(json.loads((assets.WORKLOAD / "variables.json").read_text(encoding="utf-8")))
