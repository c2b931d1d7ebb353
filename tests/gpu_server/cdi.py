"""Engines that know GPUs by the Container Device Interface: Docker and Podman of Debian testing, in a separate folder."""

import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from invented_servers import uuid

from support.clean_engine import START_SECONDS, STOP_SECONDS, clean_engine, why_not

SUITE = "forky"
ROOT = """root=$1; shift
mount --bind "$root" "$root"
for place in proc sys dev tmp; do mount --rbind "/$place" "$root/$place"; done
exec chroot "$root" "$@" """
"""A shell script for a mount namespace: the daemon of another release sees this machine's kernel and temporary folders."""


@contextmanager
def newer_engines(folder: Path, gpus: range) -> Iterator[list[str]]:
    """Yield the command line that executes one of the engines; their GPUs are those of the eight H100 with the numbers `gpus`.

    Skips if Debian's packages can't be had.
    """
    if reason := why_not() or _no_packages():
        pytest.skip(reason)
    root = folder / "root"
    _install(root, folder / "mmdebstrap.log")
    (root / "etc/cdi").mkdir(parents=True)
    (root / "etc/cdi/nvidia.json").write_text(json.dumps(specification(gpus)))
    try:
        yield ["unshare", "--mount", "sh", "-c", ROOT, "sh", str(root)]
    finally:
        shutil.rmtree(root)


@contextmanager
def newer_docker(folder: Path, within: list[str]) -> Iterator[str]:
    """Yield the address of the newer Docker."""
    with clean_engine(folder / "dockerd.log", within) as host:
        yield host


@contextmanager
def podman(folder: Path, within: list[str]) -> Iterator[str]:
    """Yield the address at which Podman answers as Docker would. Its runtime is runc, which knows control groups v1, too."""
    with tempfile.TemporaryDirectory(prefix="tm-podman-") as place, (folder / "podman.log").open("w") as words:
        host = f"unix://{place}/podman.sock"
        docker = ["docker", "--host", host]
        options = ["--root", f"{place}/graph", "--runroot", f"{place}/run", "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        command = [*within, "podman", *options, "system", "service", "--time=0", host]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, start_new_session=True)
        try:
            end = time.monotonic() + START_SECONDS
            while subprocess.run([*docker, "info"], capture_output=True).returncode:
                assert process.poll() is None and time.monotonic() < end, (folder / "podman.log").read_text()
                time.sleep(0.2)
            yield host
        finally:
            for container in subprocess.run([*docker, "ps", "-aq"], capture_output=True, text=True).stdout.split():
                subprocess.run([*docker, "rm", "--force", "--volumes", container], capture_output=True)  # of a failed test
            process.terminate()  # its mounts end with its namespace
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def specification(gpus: range) -> dict[str, object]:
    """Return the nodes that `nvidia-ctk cdi generate --device-name-strategy=uuid` describes, without the driver's libraries."""
    devices = [{"name": uuid(number), "containerEdits": {"deviceNodes": [_node(f"nvidia{number}", number)]}} for number in gpus]
    return {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices}


def _node(name: str, minor: int) -> dict[str, object]:
    return {"path": f"/dev/{name}", "type": "c", "major": 195, "minor": minor, "permissions": "rw"}


def _no_packages() -> str | None:
    if shutil.which("mmdebstrap") is None or shutil.which("apt-get") is None:
        return "needs Debian's apt and mmdebstrap (tests/start-engine installs it)"
    try:
        urllib.request.urlopen(f"{_mirror()}/dists/{SUITE}/Release", timeout=20).close()
    except (OSError, ValueError) as error:
        return f"needs a newer Docker, and Debian's packages can't be reached: {error}"
    return None


def _mirror() -> str:
    """Return the address where this machine gets Debian's packages; "" if it has none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    addresses = subprocess.run(command, capture_output=True, text=True).stdout.split()
    return next((address.rstrip("/") for address in addresses if "security" not in address), "")


def _install(root: Path, log: Path) -> None:
    """Install the engines below `root`; the index of Debian testing expires after a week, also where a mirror is older."""
    command = [
        "mmdebstrap",
        "--variant=minbase",
        '--aptopt=Acquire::Check-Valid-Until "false"',
        "--include=docker.io,podman,runc,catatonit",
        SUITE,
        str(root),
        _mirror(),
    ]
    with log.open("w", encoding="utf-8") as words:
        subprocess.run(command, check=True, stdout=words, stderr=words)
