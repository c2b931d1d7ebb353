"""Runs launches for tests of the workload: imports PyTorch and the workload once, then forks the ranks of each launch.

    python rank_server.py BOX          BOX: the folder of bench.py

Requests and answers are lines of JSON: {"flags", "ranks", "before"} -> {"code", "out", "err"}. `before`: Python to run ahead of
the workload's main. A rank that fails ends the others, as torchrun does it; the code is then 1. What is forked has imported
what a fresh process would, and has set up nothing yet.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

GRACE_SECONDS = 30.0


def main(box):
    sys.path.insert(0, box)
    for line in sys.stdin:
        request = json.loads(line)
        _load(request["flags"])
        sys.stdout.write(json.dumps(_launch(**request)) + "\n")
        sys.stdout.flush()


def _load(flags):
    """Import what the flags need; what can't be imported is the launch's own failure."""
    import bench

    with contextlib.suppress(Exception, SystemExit):
        args = bench.parse(flags)
        removed = {name: os.environ[name] for name in bench.PRECISION_OVERRIDES if name in os.environ}
        bench.set_environment(args)
        os.environ.update(removed)  # each launch removes them, and says so
        bench.load(args)
    gc.collect()
    gc.freeze()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread would be lost in the forked ranks"


def _launch(flags, ranks, before):
    out, err = (os.memfd_create(name) for name in ("out", "err"))
    silent, held = os.pipe()  # the standard input of the ranks, which stays open
    port = _free_port()
    pids = [_fork(flags, before, _variables(rank, ranks, port), (silent, out, err)) for rank in range(ranks)]
    code = _ended(pids)
    texts = [os.pread(file, os.fstat(file).st_size, 0).decode() for file in (out, err)]
    for descriptor in (out, err, silent, held):
        os.close(descriptor)
    return {"code": code, "out": texts[0], "err": texts[1]}


def _variables(rank, ranks, port):
    """Return the variables of torchrun."""
    if ranks == 1:
        return {}
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in names.items()}}


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _fork(flags, before, variables, streams):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.environ.update(variables)
        _measure(flags, before)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _measure(flags, before):
    import bench

    exec(before, {})
    sys.argv = [bench.__file__, *flags]
    bench.main(flags)


def _ended(pids):
    """Return the exit code of one rank, negative for a signal; of several 0, or 1 if one fails."""
    running, codes, end = set(pids), [], None
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            running.discard(pid)
            codes.append(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status))
        if any(codes) and end is None:
            end = time.monotonic() + GRACE_SECONDS
            _signal(running, signal.SIGTERM)
        if end is not None and time.monotonic() > end:
            _signal(running, signal.SIGKILL)
        time.sleep(0.0 if pid else 0.01)
    return codes[0] if len(pids) == 1 else int(any(codes))


def _signal(pids, number):
    for pid in pids:
        os.kill(pid, number)


if __name__ == "__main__":
    main(sys.argv[1])
