"""Shared by tests of containers: a small base, a registry, and contexts for builds by hand."""

import io
import socket
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import docker

from support import FAKE_PYTHON
from support.vendors import plain_wheel, torch_wheel
from torchmatrix.matrix import catalog

BRIDGE = "172.17.0.1"
"""This machine's address for containers in Docker's default network, unless the daemon is configured otherwise."""


COPY_PYTHON = """set -e; mkdir -p $to/tmp $to/usr/bin $to/usr/lib $to/usr/lib64 $to/etc; cp /etc/passwd $to/etc; \
    cd $to; ln -s usr/bin usr/lib usr/lib64 .; system=/usr/lib/$(uname -m)-linux-gnu; \
    stdlib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))'); \
    programs=$(for name in sh cat chmod chown env head mkdir printf rm tail python3; do command -v $name; done | grep /); \
    libraries=$(ldd $programs $stdlib/lib-dynload/*.so | grep -o '/[^ ]*[.]so[^ :]*' | sort -u); \
    for file in $programs $libraries $(for one in gcc_s m dl pthread rt; do ls $system/lib$one.so.[0-9]; done); do \
      [ ! -e $file ] || cp -L --parents $file $to; done; \
    cp -a --parents $stdlib $to; [ ! -d /usr/share/python-wheels ] || cp -a --parents /usr/share/python-wheels $to; \
    rm -rf $to$stdlib/config-* $to$stdlib/test; printf '#!/bin/sh\\n' > $to/usr/bin/g++; chmod 755 $to/usr/bin/g++
"""
"""A shell script that fills the folder $to with the system's Python, a shell, and a dummy compiler: a base for containers."""
SMALL = f"""
FROM python:3.11-slim-bookworm AS all
RUN to=/small; {COPY_PYTHON}FROM scratch
COPY --from=all /small /
ENV PATH=/usr/local/bin:/usr/bin:/bin
CMD ["python3"]
"""
"""A container base of a few tens of megabytes: Python, a shell, and a dummy compiler."""


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A registry of container images at `address`, such as 127.0.0.1:5001."""

    address: str
    client: docker.DockerClient

    def push(self, image: str, name: str) -> str:
        """Push a local image as `name` ("vendors/torch:1"), forget that name here, and return its digest."""
        repository, _, tag = f"{self.address}/{name}".rpartition(":")
        self.client.images.get(image).tag(repository, tag)
        list(self.client.api.push(repository, tag=tag, stream=True, decode=True))
        digest = str(self.client.images.get_registry_data(f"{repository}:{tag}").id)
        self.client.images.remove(f"{repository}:{tag}")
        return digest

    def forget(self, name: str, digest: str) -> None:
        """Delete the image with this `digest`."""
        url = f"http://{self.address}/v2/{name}/manifests/{digest}"
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).close()


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def remove_images(client: docker.DockerClient, stack: str) -> None:
    """Remove all images of a stack, as `torchmatrix clean` would."""
    for image in client.images.list(filters={"label": f"torchmatrix.stack={stack}"}):
        for tag in image.tags:
            client.images.remove(tag, force=True)


def context(dockerfile: str, wheels: Path) -> io.BytesIO:
    """Return a build context of a Dockerfile and the folder wheels/."""
    buffer = io.BytesIO()
    parts = {"Dockerfile": dockerfile.encode()} | {f"wheels/{p.name}": p.read_bytes() for p in sorted(wheels.iterdir())}
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    buffer.seek(0)
    return buffer


STAND_IN = """
import os, sys, time

if sys.orig_argv[1:] == ["/opt/torchmatrix/vendor_guard.py", "record"] and os.path.exists("/slow"):
    time.sleep(5)
script = next((word for word in sys.orig_argv if word.startswith("/opt/workload/")), "")
if script.endswith("selftest.py"):
    print('@matrix {"event": "self-test", "losses": {}, "compiled": false, "vendor": null}', flush=True)
    os._exit(0)
if script:
    os.execv(sys.executable, [sys.executable, "-S", "/stand-in", *sys.orig_argv[1:]])
"""
"""A sitecustomize.py that answers for the workload: with it a container measures known times, and needs no PyTorch.

If there is a file /slow, an image is built slowly."""


def vendor_image(client: docker.DockerClient, base: str, folder: Path, tag: str, number: int) -> None:
    """Build an image of an invented vendor on `base`, in which the tests' stand-in answers.

    Its file /which contains `number`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch_wheel(folder)
    plain_wheel(folder, "numpy", "1.26.4")
    name, version = catalog.load().vendor_packages[0].split("==")
    plain_wheel(folder, name, version)
    (folder / "sitecustomize.py").write_text(STAND_IN)
    (folder / "stand-in").write_bytes(FAKE_PYTHON.read_bytes())
    site = "$(python3 -c 'import site; print(site.getsitepackages()[0])')"
    text = f"FROM {base}\nCOPY wheels/ /wheels/\nRUN for w in /wheels/*.whl; do python3 -m zipfile -e $w {site}; done\n"
    text += (
        f"RUN cat /wheels/sitecustomize.py > {site}/sitecustomize.py; cat /wheels/stand-in > /stand-in; chmod 644 /stand-in\n"
    )
    file = context(f"{text}RUN echo {number} > /which\n", folder)
    client.images.build(fileobj=file, custom_context=True, tag=tag, rm=True, forcerm=True)


def listing(client: docker.DockerClient, reference: str) -> list[str]:
    """Return the packages of an image's Python, such as ["torch==2.5.1"]."""
    code = "import importlib.metadata as m; print(*sorted(d.name + '==' + d.version for d in m.distributions()))"
    return str(client.containers.run(reference, ["python3", "-c", code], remove=True, network_mode="none").decode()).split()
