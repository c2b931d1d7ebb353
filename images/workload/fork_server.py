"""A fork server: imports torch and the libraries once, then forks a process for each launch that the host asks for.

    python fork_server.py DESCRIPTOR SUPERVISOR

DESCRIPTOR is one end of a pair of Unix sockets (SOCK_SEQPACKET), the host has the other. SUPERVISOR is the program that ends
all that a launch has started (runner/torchmatrix/engines/supervisor.py); each launch has its own, forked as well.

The server has one thread, so that none is lost in a fork, and touches no device, so that each launch sets up its own; it checks
both before each fork. Messages are JSON objects, and each is answered:

- ``{"load": FLAGS}``: import what a launch with these flags needs -> ``{"problem": why it can't be forked, or null}``
- ``{"fork": FLAGS, "variables": {…}, "oom_score_adj": …, "groups": […]}``, with descriptors of its standard input, output and
  error -> ``{"pid": of its supervisor}``
- ``{"ended": PID}`` -> ``{"status": wait status, or null while it runs}``; only asked, a process id is free for others again
"""

import array
import contextlib
import gc
import importlib.util
import json
import os
import socket
import sys
import tempfile
import traceback

import bench

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
MESSAGE_BYTES = 1 << 16
STANDARD = 3


def main(descriptor, supervisor):
    server = Server(_module(supervisor))
    # NumPy's OpenBLAS starts its threads when it is imported; no launch computes with it.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with socket.socket(fileno=int(descriptor)) as control:
        while True:
            request, descriptors = _received(control)
            if request is None:
                return
            control.send(json.dumps(server.answer(control, request, descriptors)).encode())


def _module(path):
    spec = importlib.util.spec_from_file_location("supervisor", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def _received(control):
    """A request and the descriptors that came along; None if the host has closed its end."""
    ancillary = socket.CMSG_SPACE(STANDARD * array.array("i").itemsize)
    data, messages, _, _ = control.recvmsg(MESSAGE_BYTES, ancillary)
    descriptors = array.array("i")
    for level, kind, content in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content)
    return (json.loads(data.decode()) if data else None), list(descriptors)


class Server:
    """What is loaded, and the environment that launches begin with."""

    def __init__(self, supervisor):
        self._supervisor = supervisor
        self._environment = dict(os.environ)
        self._threads = None

    def answer(self, control, request, descriptors):
        if "load" in request:
            return {"problem": self._load(request["load"])}
        if "fork" in request:
            return {"pid": self._fork(control, request, descriptors)}
        return {"status": _status(request["ended"])}

    def _load(self, flags):
        """Import as a launch would; what it can't import is its own failure. Returns why it can't be forked."""
        with contextlib.suppress(Exception, SystemExit):
            args = bench.parse(flags)
            if self._threads not in (None, args.threads):
                return "libraries were loaded for %d threads, not %d" % (self._threads, args.threads)
            self._threads = args.threads
            bench.set_environment(args)
            bench.load(args)
        gc.collect()
        gc.freeze()  # else the first collection of each launch would copy all pages
        return problem()

    def _fork(self, control, request, descriptors):
        pid = os.fork()
        if pid:
            for descriptor in descriptors:
                os.close(descriptor)
            return pid
        try:
            control.close()
            os.setsid()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            environment = dict(self._environment, **request["variables"])
            self._supervisor.supervise(
                lambda: _measure(request["fork"], environment), request["oom_score_adj"], request["groups"]
            )
        finally:
            os._exit(1)


def problem(devices=DEVICES):
    """Why this process must not be forked, or None. `devices`: how the paths of devices begin."""
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        return "the libraries have started %d threads" % (threads - 1)
    with os.scandir("/proc/self/fd") as entries:
        opened = [_target(entry.path) for entry in entries]
    touched = sorted(path for path in opened if path.startswith(devices))
    return "the libraries have opened %s" % touched[0] if touched else None


def _target(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _measure(flags, environment):
    """A launch, as `python bench.py` would do it; ends the process with its exit code."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # what an import has found is the server's own, not this launch's
    sys.argv = [bench.__file__, *flags]
    code = 1
    try:
        bench.main(flags)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        bench.leave(code)


def _status(pid):
    found, status = os.waitpid(pid, os.WNOHANG)
    return status if found else None


if __name__ == "__main__":
    main(*sys.argv[1:])
