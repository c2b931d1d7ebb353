"""An empty Docker daemon beside the machine's own one, for as long as a `with` block lasts. Needs root.

It has its own folder, socket, containerd namespaces and network bridge, and doesn't touch the packet filter: the few rules that
its containers need are added here, by name, and removed again, so that another daemon's network stays as it is. A second daemon
with `bridge=none` in the same network namespace would remove docker0.
"""

import ipaddress
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 60


def why_not() -> str | None:
    """Return what this machine lacks for a separate daemon, or None."""
    if os.geteuid() != 0:
        return "a separate daemon needs root"
    missing = [name for name in ("dockerd", "docker", "ip", "iptables") if shutil.which(name) is None]
    return f"a separate daemon needs {', '.join(missing)} (tests/start-engine installs it)" if missing else None


@contextmanager
def clean_engine(log: Path, within: Sequence[str] = (), variables: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the DOCKER_HOST of a fresh daemon, whose output goes to `log`; end it by process id and remove its data.

    `within`: a command that executes the command behind it, in which the daemon is started. `variables`: for the daemon.
    """
    with ExitStack() as stack:
        stack.enter_context(_ends_in_order())
        # Its name becomes a containerd namespace, which takes fewer names than a folder: mkdtemp's "-_" isn't one.
        folder = Path(tempfile.gettempdir(), f"tm-engine-{secrets.token_hex(4)}")
        folder.mkdir(mode=0o700)
        stack.callback(_remove, folder)
        bridge = stack.enter_context(_bridge(f"tm-{os.getpid()}{secrets.token_hex(2)}"))
        host = f"unix://{folder}/docker.sock"
        stack.enter_context(_daemon(folder, bridge, host, log, within, variables or {}))
        stack.callback(_remove_containers, host)
        yield host


@contextmanager
def _ends_in_order() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, so that the daemon and its network never stay behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _bridge(name: str) -> Iterator[str]:
    """Yield a bridge with a free subnet whose containers reach what this machine reaches, but can't be reached."""
    network = _free_network()
    path = Path("/proc/sys/net/ipv4/ip_forward")
    forwarded = path.read_text(encoding="utf-8")
    rules = [
        ["nat", "POSTROUTING", "-s", str(network), "!", "-o", name, "-j", "MASQUERADE"],
        ["filter", "FORWARD", "-i", name, "-j", "ACCEPT"],
        ["filter", "FORWARD", "-o", name, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"],
    ]
    with ExitStack() as stack:
        _call("ip", "link", "add", name, "type", "bridge")
        stack.callback(_call, "ip", "link", "delete", name)
        _call("ip", "address", "add", f"{network[1]}/{network.prefixlen}", "dev", name)
        _call("ip", "link", "set", name, "up")
        path.write_text("1", encoding="utf-8")
        stack.callback(path.write_text, forwarded)
        for table, chain, *rule in rules:
            _call("iptables", "--wait", "-t", table, "-I", chain, *rule)
            stack.callback(_call, "iptables", "--wait", "-t", table, "-D", chain, *rule)
        yield name


def _free_network() -> ipaddress.IPv4Network:
    """Return a private subnet that no route of this machine touches."""
    routes = json.loads(_call("ip", "-json", "-4", "route"))
    used = [ipaddress.ip_network(route["dst"]) for route in routes if route["dst"] != "default"]
    candidates = ipaddress.ip_network("10.213.0.0/16").subnets(new_prefix=24)
    return next(network for network in candidates if not any(network.overlaps(other) for other in used))


@contextmanager
def _daemon(
    folder: Path, bridge: str, host: str, log: Path, within: Sequence[str], variables: Mapping[str, str]
) -> Iterator[None]:
    name = folder.name
    places = ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/run", "--pidfile", f"{folder}/docker.pid"]
    containerd = ["--containerd-namespace", name, "--containerd-plugins-namespace", f"plugins.{name}"]
    network = ["--bridge", bridge, "--iptables=false", "--ip6tables=false", "--ip-masq=false"]
    nothing_else = ["--config-file", f"{folder}/daemon.json"]
    (folder / "daemon.json").write_text("{}")
    with log.open("a", encoding="utf-8") as words:
        process = subprocess.Popen(
            [*within, "dockerd", "--host", host, *nothing_else, *places, *containerd, *network],
            env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True,
        )  # fmt: skip
    try:
        end = time.monotonic() + START_SECONDS
        while subprocess.run(["docker", "--host", host, "info"], capture_output=True).returncode:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"dockerd did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # its containerd dies with it
            process.wait()


def _remove_containers(host: str) -> None:
    """Remove what a failed test left running: it would outlive the daemon, as it outlives a killed one."""
    ids = subprocess.run(["docker", "--host", host, "ps", "-aq"], capture_output=True, text=True).stdout.split()
    if ids:
        subprocess.run(["docker", "--host", host, "rm", "--force", "--volumes", *ids], capture_output=True)


def _end_orphans(name: str) -> None:
    """End the containers of our containerd namespace whose daemon was killed: each is the child of a shim that names it."""
    for shim in (path for path in Path("/proc").iterdir() if path.name.isdigit()):
        with suppress(OSError):  # it may have ended by itself
            words = (shim / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name.startswith("containerd-shim") and name in words:
                for pid in (shim / "task" / shim.name / "children").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                os.kill(int(shim.name), signal.SIGKILL)


def _remove(folder: Path) -> None:
    """Remove first what a killed daemon left behind."""
    _end_orphans(folder.name)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    for place in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", place], capture_output=True)
    shutil.rmtree(folder)


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
