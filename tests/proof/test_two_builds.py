"""One lock, built in two engines that held nothing before: the same packages, the same files, the same workload. Ten minutes.

The daemons are started one after the other, each with an empty data root, so that nothing can come from a cache and there is
disk for one stack at a time. Nothing that is measured may differ; what else does is printed. Two engines stand for two
machines: the kernel and the CPU are the same, and so is Debian's archive, which gives g++ where the base has none and which no
lock holds.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import docker
import pytest

from support import REAL_MATRIX, clean_engine
from torchmatrix.facts.launch import Launch, last_tries
from torchmatrix.facts.store import Results
from torchmatrix.matrix import matrix_file

NAME = "twice"
MATRIX = (
    REAL_MATRIX.replace("counts = [1, 2]", 'counts = [1]\nwhen = "always"')
    + f"""name = "{NAME}"
[[workload]]
device = "cpu"
model = "resnet18"
batch = 2
image_size = 64
steps = 20
warmup_steps = 2
warmup_cap = 4
"""
)
FREE_BYTES = 12 << 30
LIST_PACKAGES = """
import json
from importlib.metadata import distributions
print(json.dumps(sorted([d.metadata["Name"], d.version] for d in distributions())))
"""


@dataclass(frozen=True, kw_only=True)
class Built:
    """Build that one engine made of the lock.

    `files`: SHA-256, or what else it is, by path; `distributions`: names and versions.
    """

    image: dict[str, Any]
    files: dict[str, str]
    distributions: list[list[str]]
    launches: list[Launch]
    seconds: float


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Built]]:
    """Return the folder with the matrix, its lock and two folders of results; and what was built."""
    why = clean_engine.why_not()
    if why:
        pytest.skip(why)
    if shutil.disk_usage(tempfile.gettempdir()).free < FREE_BYTES:
        pytest.skip(f"{tempfile.gettempdir()} has less than {FREE_BYTES >> 30} GiB free for an engine with one stack")
    folder = tmp_path_factory.mktemp("two-builds")
    (folder / "matrix.toml").write_text(MATRIX)
    with neighbour_untouched(folder):
        return folder, [build(folder, name) for name in ("first", "second")]


@contextmanager
def neighbour_untouched(folder: Path) -> Iterator[None]:
    """Assert that containers of this machine's own daemon, if it has one with our base image, reach it before and after."""
    base = base_image()
    here = os.environ.get("DOCKER_HOST", "unix://").startswith("unix://")
    if not here or subprocess.run(["docker", "image", "inspect", base], capture_output=True).returncode:
        yield
        return
    words = ["docker", "network", "inspect", "bridge", "--format", "{{json (index .IPAM.Config 0)}}"]
    network = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    gateway = network.get("Gateway") or str(next(ip_network(network["Subnet"]).hosts()))  # a daemon's first start names none
    server = ThreadingHTTPServer((gateway, 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    code = f"import urllib.request as r; r.urlopen('http://{gateway}:{server.server_port}/matrix.toml', timeout=20)"
    ask = ["docker", "run", "--rm", base, "python3", "-c", code]
    try:
        subprocess.run(ask, check=True)
        yield
        subprocess.run(ask, check=True)
    finally:
        server.shutdown()
        server.server_close()


def base_image() -> str:
    (stack,) = matrix_file.parse(MATRIX).stacks
    return str(stack.base)


def build(folder: Path, name: str) -> Built:
    """Lock if nobody has, build, look into the image and measure, all in an engine of its own."""
    with clean_engine.clean_engine(folder / f"{name}.log") as host:
        bring_base(host)
        torchmatrix = partial(command, folder, host, folder / f"cache-{name}", f"results-{name}")
        if not (folder / "matrix.lock").exists():
            torchmatrix("lock")
        begin = time.monotonic()
        torchmatrix("build", "--locked")
        seconds = time.monotonic() - begin
        torchmatrix("run", "--locked", "--launches", "2", "--output", f"{name}.html")
        (run,) = (run for run in Results(folder / f"results-{name}").runs() if list(run.launches()))
        launches = last_tries(run.launches())
        client = docker.DockerClient(base_url=host, timeout=600)
        try:
            image = client.images.get(launches[0].image.id).attrs
            listed = client.containers.run(image["Id"], ["python3", "-c", LIST_PACKAGES], remove=True)
            files = dict(read_files(client, image["Id"]))
        finally:
            client.close()
        built = Built(image=image, files=files, distributions=json.loads(listed), launches=launches, seconds=seconds)
    print(f"{name} engine: built and tested in {seconds:.0f} s; {len(files)} files; image {image['Id'][:19]}")
    return built


def bring_base(host: str) -> None:
    """Copy the base from this machine's own daemon, if that has it, under the same id; else it is pulled when it is needed."""
    with subprocess.Popen(["docker", "save", base_image()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as saved:
        subprocess.run(["docker", "--host", host, "load"], stdin=saved.stdout, capture_output=True)


def command(folder: Path, host: str, cache: Path, results: str, *words: str) -> str:
    """Run the real command against one engine; return its standard output."""
    where = ["--engine", "docker", "--results", results]
    variables = {**os.environ, "DOCKER_HOST": host, "TORCHMATRIX_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-m", "torchmatrix", *words, *where], cwd=folder, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, f"torchmatrix {' '.join(words)}: {done.stderr[-3000:]}"
    return done.stdout


def read_files(client: docker.DockerClient, image: str) -> Iterator[tuple[str, str]]:
    """Yield (path, what it is) for all that the image holds, read from outside: nothing is mounted over it."""
    container = client.containers.create(image, ["true"])
    try:
        with tarfile.open(fileobj=Stream(container.export()), mode="r|") as tar:
            for member in tar:
                yield member.name, describe(tar, member)
    finally:
        container.remove(force=True)


class Stream:
    """Blocks of bytes as a file that can be read once."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, left = [self._rest], size - len(self._rest)
        while left > 0 and (block := next(self._blocks, b"")):
            parts.append(block)
            left -= len(block)
        data = b"".join(parts)
        self._rest = data[size:]
        return data[:size]


def describe(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    """Return the kind, rights and owner of a member, and its content's SHA-256 or where it leads; no times."""
    facts = f"{member.type!r} {member.mode:o} {member.uid}:{member.gid}"
    file = tar.extractfile(member) if member.isreg() else None
    if file is None:
        return f"{facts} {member.linkname}"
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return f"{facts} {digest.hexdigest()}"


def differing(a: dict[str, str], b: dict[str, str]) -> list[str]:
    return sorted(path for path in a.keys() | b.keys() if a.get(path) != b.get(path))


def test_both_images_hold_what_the_lock_says(twice: tuple[Path, list[Built]]) -> None:
    folder, (first, second) = twice
    labels = [built.image["Config"]["Labels"]["torchmatrix.lock"] for built in (first, second)]
    assert labels[0] == labels[1] and labels[0] in (folder / "matrix.lock").read_text()
    assert first.distributions == second.distributions and ["torch", "2.5.1"] in [
        [name, version.partition("+")[0]] for name, version in first.distributions
    ]
    print(f"{len(first.distributions)} distributions, the same in both")


def test_every_file_of_the_environment_is_the_same(twice: tuple[Path, list[Built]]) -> None:
    _, (first, second) = twice
    different = differing(first.files, second.files)
    kinds = Counter(f"/{'/'.join(path.split('/')[:2])}/**{Path(path).suffix}" for path in different)
    ours = [path for path in first.files if path.startswith(("opt/stack/", "opt/workload/"))]
    print(f"{len(ours)} files of stack and workload; of all {len(first.files)} {len(different)} differ: {dict(kinds)}")
    assert len(ours) > 10_000
    assert not [path for path in different if path.startswith(("opt/stack", "opt/workload"))]


def test_the_launches_on_both_are_the_same_work(twice: tuple[Path, list[Built]]) -> None:
    folder, (first, second) = twice
    launches = [*first.launches, *second.launches]
    assert [launch.outcome for launch in launches] == ["ok"] * 4
    assert len({launch.workload_hash for launch in launches}) == 1
    assert all(launch.image.facts["locked"] for launch in launches)
    assert len({launch.image.facts["lock_sha256"] for launch in launches}) == 1
    words = [sys.executable, "-m", "torchmatrix", "compare", "results-first", "results-second", "--json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    comparison = json.loads(done.stdout)
    (row,) = comparison["rows"]
    assert row["refused"] is None and row["launches"] == [2, 2]
    assert set(comparison["environment"]) <= {"image"}, "the images' ids hold the times of their builds"
    print(f"compare: {row['verdict']}, ratio {row['ratio']:.3f}; the environments differ in {comparison['environment']}")
