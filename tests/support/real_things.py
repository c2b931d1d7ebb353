"""Fixtures of real things: a stack of real PyTorch, a container engine, a registry, a certificate authority."""

import fcntl
import getpass
import io
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import docker
import pytest

from support import NEWEST_MATRIX, REAL_MATRIX
from support.containers import BRIDGE, SMALL, Registry, free_port, remove_images
from support.sites import Authority, make_authority
from torchmatrix.core.errors import EngineUnusable
from torchmatrix.engines import packages, recipes
from torchmatrix.engines.docker import DockerEngine, connect
from torchmatrix.matrix.stacks import PYPI

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@pytest.fixture(scope="session")
def real_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of the stack's virtualenv, as its launches record it."""
    return _python_of(["resnet18"], tmp_path_factory)


@pytest.fixture(scope="session")
def runtimes_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the same with ONNX Runtime, OpenVINO and torchao."""
    more = 'mode = "infer"\nruntime = ["onnxruntime", "openvino", "torchao-int8"]\n'
    return _python_of(["resnet18"], tmp_path_factory, more)


@pytest.fixture(scope="session")
def newest_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of the newest torch."""
    return _python_of(["resnet18", "bert-tiny"], tmp_path_factory, text=NEWEST_MATRIX)


@pytest.fixture(scope="session")
def newest_python_with_torchao(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of the newest torch, with torchao."""
    return _python_of(["resnet18", "bert-tiny"], tmp_path_factory, 'precision = "fp8"\n', NEWEST_MATRIX)


def _python_of(models: list[str], tmp_path_factory: pytest.TempPathFactory, more: str = "", text: str = REAL_MATRIX) -> str:
    from torchmatrix.engines.choose import choose
    from torchmatrix.facts.store import Results
    from torchmatrix.matrix import matrix_file

    text += f'[[workload]]\ndevice = "cpu"\nmodel = {json.dumps(models)}\nbatch = 1\n{more}'
    (stack,) = matrix_file.parse(text).stacks
    local = choose("local", Results(tmp_path_factory.mktemp("results")).owner).local
    lost = recipes.unreachable_indexes(recipes.indexes_to_probe([stack]))
    return local.build(recipes.choose_recipe(stack, local, lost), lambda line: None).reference


@pytest.fixture(scope="session")
def python_with_models(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of the same stack where workloads need timm and diffusers."""
    return _python_of(["timm.resnet50d", "unet-tiny"], tmp_path_factory)


@pytest.fixture
def real_matrix(tmp_path: Path, real_python: str) -> Path:
    """Write a matrix of that stack; a test appends its workloads."""
    path = tmp_path / "matrix.toml"
    path.write_text(REAL_MATRIX)
    return path


@pytest.fixture(scope="session")
def client() -> Iterator[docker.DockerClient]:
    """Yield a daemon that answers, or skip and say why."""
    if "DOCKER_HOST" not in os.environ and not Path("/var/run/docker.sock").exists():
        pytest.skip("no container engine: no Docker socket and no DOCKER_HOST (tests/start-engine starts one)")
    try:
        client = connect()
    except EngineUnusable as error:
        pytest.skip(f"no container engine: {error}")
    with (Path(tempfile.gettempdir()) / f"torchmatrix-test-engine.{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several tests count what the engine holds: a second suite waits for the first
        yield client
    client.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return a certificate authority that nobody else trusts."""
    try:
        return make_authority(tmp_path_factory.mktemp("tls"), ["127.0.0.1", BRIDGE])
    except FileNotFoundError:
        pytest.skip("making a certificate needs openssl")


@pytest.fixture(scope="session")
def small(client: docker.DockerClient) -> Iterator[str]:
    """Yield the small base, under a name that no registry and no other process has."""
    tag = f"torchmatrix-test/small:{uuid.uuid4().hex[:8]}"
    client.images.build(fileobj=io.BytesIO(SMALL.encode()), tag=tag, rm=True, forcerm=True)
    yield tag
    client.images.remove(tag, force=True)


@pytest.fixture(scope="session")
def registry(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Yield a registry of our own on loopback, which Docker uses without TLS."""
    folder = tmp_path_factory.mktemp("registry")
    address = f"127.0.0.1:{free_port()}"
    settings = f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: '{address}'}}\n"
    settings += f"storage: {{filesystem: {{rootdirectory: '{folder}'}}, delete: {{enabled: true}}}}\n"
    (folder / "config.yml").write_text(settings)
    try:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(folder / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except FileNotFoundError:
        pytest.skip("no docker-registry (Debian's package of that name)")
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://{address}/v2/").close()
                break
            except OSError:
                time.sleep(0.1)
        yield Registry(address=address, client=client)
        for image in client.images.list():
            for reference in (*image.tags, *image.attrs["RepoDigests"]):
                if reference.startswith(f"{address}/"):
                    with suppress(docker.errors.ImageNotFound):  # it was removed with the previous reference
                        client.images.remove(reference)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def own(client: docker.DockerClient) -> Iterator[str]:
    """Yield the name of a stack that nobody else has; its images are removed after the test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    yield name
    remove_images(client, name)


@pytest.fixture(scope="session")
def uv_wheel(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of uv, which installs packages in a container, from PyPI."""
    folder, platform = tmp_path_factory.mktemp("uv"), DockerEngine(client).platform()
    if recipes.unreachable_indexes([PYPI]):
        pytest.skip("PyPI does not answer: no wheel of uv for the container")
    lines = packages.resolve([packages.installer()], PYPI, "3.11", lambda line: None, platform)
    packages.download(lines, PYPI, "3.11", platform, folder, lambda line: None)
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], str]]:
    """Start a real sshd with keys of its own on a free port; yield what makes the address of a folder. End it by process id."""
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no sshd: tests/install-packages openssh-client openssh-server")
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "own"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "own.pub", folder / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "AuthorizedKeysFile": folder / "authorized",
        "PidFile": "none", "StrictModes": "no", "UsePAM": "no", "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no", "PermitRootLogin": "prohibit-password",
    }  # fmt: skip
    (folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    options = {"UserKnownHostsFile": folder / "known", "IdentityFile": folder / "own", "IdentitiesOnly": "yes"}
    (folder / "config").write_text("Host *\n" + "".join(f" {key} {value}\n" for key, value in options.items()))
    monkeypatch.setenv("TORCHMATRIX_SSH", f"ssh -F {folder / 'config'}")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # it insists, without ever using it here
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    try:
        _wait_for(port, process)
        yield lambda path: f"ssh://{getpass.getuser()}@127.0.0.1:{port}{path}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.skip("sshd doesn't start here")
