"""A separate Docker daemon that can give containers GPUs which aren't there, and images that print what they were given."""

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import kfd_tree
import pytest
from invented_servers import EIGHT_H100, EIGHT_MI300X, SLICED_A100, Server
from stand_ins import RENDER_GROUP, SOURCES, start

from support.clean_engine import clean_engine, why_not
from support.containers import SMALL, context, vendor_image

IMAGE = "gpu-server/userland:1"
VENDOR_IMAGE = "gpu-server/vendor:1"
BASE = "python:3.11-slim-bookworm"


@contextmanager
def daemon(folder: Path) -> Iterator[str]:
    """Yield the daemon's address; its GPUs are eight H100 (GPU 0 of which is also there in slices) and eight MI300X."""
    if reason := why_not():
        pytest.skip(reason)
    slices = {number: facts for number, facts in SLICED_A100.devices.items() if "slice_of" in facts}
    both = Server(name="both", vendor="nvidia", machine={}, devices={**EIGHT_H100.devices, **slices})
    kfd_tree.write(EIGHT_MI300X, folder / "sys")
    minors = " ".join(str(facts["render"]) for facts in EIGHT_MI300X.devices.values())
    variables = {
        **start(both, folder / "server").environment,
        "PATH": f"{SOURCES / 'docker'}:{os.environ['PATH']}",
        "TREE": str(folder / "sys"),
        "AMDGPU": "6.12.12",
        "RENDER_MINORS": minors,
        "RENDER_GROUP": str(RENDER_GROUP),
    }
    del variables["LD_LIBRARY_PATH"]
    within = ["unshare", "--mount", "sh", "-c", kfd_tree.NAMESPACE, "sh"]
    with clean_engine(folder / "dockerd.log", within, variables) as host:
        yield host


def give_userland(client: docker.DockerClient, folder: Path) -> None:
    """Make IMAGE."""
    client.api.import_image_from_data(_userland(folder), repository=IMAGE.split(":")[0], tag="1")


def give_vendor_image(client: docker.DockerClient, folder: Path, scenario: Path) -> None:
    """Make VENDOR_IMAGE, whose stand-in for the workload names the GPUs of `scenario` whose nodes the container has."""
    other = docker.from_env()
    try:
        base = other.images.get(BASE)
    except docker.errors.DockerException:
        pytest.skip(f"needs an engine that has {BASE} (tests/start-engine)")
    client.images.load(b"".join(base.save(named=BASE)))
    client.images.build(fileobj=io.BytesIO(SMALL.encode()), tag="gpu-server/small:1", rm=True, forcerm=True)
    folder.mkdir()
    shutil.copy(scenario, folder / "scenario")
    vendor_image(client, "gpu-server/small:1", folder, "gpu-server/plain:1", 1)
    text = "FROM gpu-server/plain:1\nENV GPU_SERVER_SCENARIO=/wheels/scenario\n"
    client.images.build(fileobj=context(text, folder), custom_context=True, tag=VENDOR_IMAGE, rm=True, forcerm=True)


def _userland(folder: Path) -> bytes:
    """Return a tar archive with one static program, /usr/bin/python3."""
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    program = folder / "python3"
    subprocess.run([compiler, "-static", "-O1", "-o", str(program), str(SOURCES / "docker/python3.c")], check=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(program, "usr/bin/python3")
    return buffer.getvalue()
