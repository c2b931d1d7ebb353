"""Run one command and end everything that it started. A program of its own, which needs the standard library alone:

    python -I -S supervisor.py OOM_SCORE_ADJ GROUPS COMMAND...

GROUPS: the folders of the control groups that the command is started in, one in each line; may be empty.

Orphans of the command become children of this process (PR_SET_CHILD_SUBREAPER), whatever session, group or environment they
gave themselves. The supervisor kills them all once the command has ended, or once its own standard input is closed: then
whoever started it has ended. It only signals its own children, whose ids nobody else can have before it has reaped them.
SIGTERM is passed on to the command's process group. The supervisor ends as the command did: with its exit code, or by its
signal.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE_SECONDS = 10.0
"""How long to try to end what is left: a process that the kernel holds (a hanging GPU) can't be ended at all."""


def main(oom_score_adj: str, groups: str, *command: str) -> NoReturn:
    """Run `command` to its end, and leave nothing of it."""
    supervise(lambda: execute(command), oom_score_adj, groups.splitlines())


def supervise(become: Callable[[], NoReturn], oom_score_adj: str, groups: list[str]) -> NoReturn:
    """Run `become`, in a process of its own that it ends or replaces, to its end, and leave nothing of it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    child = start(become, oom_score_adj, groups, (woken, wake))
    signal.signal(signal.SIGTERM, lambda number, frame: pass_on(child))
    status = watch(child, woken)
    for group in groups:
        end_group(group)
    if not end_all():
        print("error: some processes of the launch could not be ended", file=sys.stderr)
    leave_like(signal.SIGKILL if status is None else status)


def start(become: Callable[[], NoReturn], oom_score_adj: str, groups: list[str], descriptors: tuple[int, ...]) -> int:
    """Start the first process, in a session and control groups of its own, without our `descriptors` and handlers; it
    ends with this one. Return its id.
    """
    supervisor, child = os.getpid(), os.fork()
    if child:
        return child
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in descriptors:
            os.close(descriptor)
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)
        Path("/proc/self/oom_score_adj").write_text(oom_score_adj, encoding="utf-8")
        for group in groups:
            Path(group, "cgroup.procs").write_text("0", encoding="utf-8")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    except OSError as error:
        fail("the launch", error)
    become()


def execute(command: tuple[str, ...]) -> NoReturn:
    """Replace this process by the command."""
    try:
        os.execvp(command[0], command)
    except OSError as error:
        fail(command[0], error)


def fail(what: str, error: OSError) -> NoReturn:
    """End this process, which could not become what it should."""
    os.write(2, f"error: {what} can't be started: {error.strerror}\n".encode())
    os._exit(127)


def watch(child: int, woken: int) -> int | None:
    """Wait until `child` has ended, and return its wait status, or until standard input is closed, and return None."""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        for pid, status in reaped():
            if pid == child:
                return status
        if 0 in ready and not os.read(0, 1):
            return None


def reaped() -> Iterator[tuple[int, int]]:
    """Yield (id, wait status) of every child that has ended. Raises ChildProcessError if there is no child any more."""
    while (child := os.waitpid(-1, os.WNOHANG))[0]:
        yield child


def pass_on(child: int) -> None:
    """Send SIGTERM to the group of `child`."""
    try:
        os.killpg(child, signal.SIGTERM)
    except ProcessLookupError:
        return


def end_group(group: str) -> None:
    """End the processes of a control group, which can't start others meanwhile."""
    try:
        for name, word in (("pids.max", "0"), ("cgroup.kill", "1")):
            if Path(group, name).exists():
                Path(group, name).write_text(word, encoding="utf-8")
        for pid in Path(group, "cgroup.procs").read_text(encoding="utf-8").split():
            kill(int(pid))
    except OSError:  # it is gone
        return


def end_all() -> bool:
    """Kill children until there are none: those of a killed child become ours. Return whether that succeeded in time."""
    end = time.monotonic() + PATIENCE_SECONDS
    try:
        while time.monotonic() < end:
            for _ in reaped():
                continue
            for pid in children():
                kill(pid)
            time.sleep(0.002)
    except ChildProcessError:
        return True
    return False


def children() -> list[int]:
    """Return the ids of all children, as /proc has them."""
    ids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == os.getpid():
            ids.append(int(folder.name))
    return ids


def kill(pid: int) -> None:
    """Send SIGKILL; a program that has changed its user may be out of reach."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def leave_like(status: int) -> NoReturn:
    """End with the exit code, or by the signal, of a wait status."""
    sys.stderr.flush()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
