"""Run the workload beside other processes, such as a server: ``python beside.py PORT JSON COMMAND...``, the workload's command.

PORT: a free port of the loopback, which all of them find in TORCHMATRIX_PORT. JSON: a list of {"role", "command", "variables",
"cpus"}. All start together, so the workload polls until a server answers. What the others print goes to stderr, prefixed by
their role. They are ended when the workload ends, whose exit is this program's; one that ends earlier fails the launch.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress

from channel import Channel

PATIENCE_SECONDS = 5
LOG_LINES = 20


def start(command, cpus=(), variables=None, **streams):
    """Start a command in a session of its own, so that it can be ended with all that it started. Raises OSError."""
    process = subprocess.Popen(command, env=dict(os.environ, **(variables or {})), start_new_session=True, **streams)
    if cpus:
        os.sched_setaffinity(process.pid, cpus)
    return process


def copy(stream, role, last):
    """Copy a process's output to stderr by line; keep the last lines."""
    for line in iter(lambda: stream.readline(1 << 16), b""):
        last.append(line.decode(errors="replace").rstrip("\n"))
        os.write(2, b"[" + role.encode() + b"] " + line.rstrip(b"\n") + b"\n")


def end(process):
    """End a process and its children: first by SIGTERM, then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)


def main():
    """Run all processes; return the exit code of the workload, negative for a signal, or 1 if another one ended before it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    os.environ["TORCHMATRIX_PORT"] = sys.argv[1]
    out, channel, others, workload = os.dup(1), Channel(0), [], None
    try:
        for other in json.loads(sys.argv[2]):
            process = start(
                other["command"], other["cpus"], other["variables"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            last = deque(maxlen=LOG_LINES)
            reader = threading.Thread(target=copy, args=(process.stdout, other["role"], last), daemon=True)
            reader.start()
            others.append((other["role"], process, last, reader))
        workload = start(sys.argv[3:], stdout=out)
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if workload.poll() != 0:
            for role, process, last, reader in others:
                if process.poll() is not None:
                    reader.join(PATIENCE_SECONDS)
                    reason = "%s ended with %d before the workload ended" % (role, process.returncode)
                    channel.emit_failure("crashed", "\n".join([reason, *last]))
                    return 1
        return workload.returncode
    finally:
        for process in [workload] * bool(workload) + [process for _, process, _, _ in others]:
            end(process)
        for _, _, _, reader in others:
            reader.join(PATIENCE_SECONDS)


if __name__ == "__main__":
    code = main()
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)
