"""A site's own services for tests, on addresses of this machine: a package index (PEP 503); and stacks of invented wheels."""

import hashlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from support.vendors import plain_wheel, wheel
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Recipe
from torchmatrix.engines.packages import name_of
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.stacks import PYPI, Stack

OFFICIAL = "https://wheels.example/simple"
"""The index that the invented stack names; only a mirror of it can be reached."""
CLOSED = "http://127.0.0.1:9"
"""Nothing listens here."""
NO_NETWORK = {"HTTP_PROXY": CLOSED, "HTTPS_PROXY": CLOSED, "http_proxy": CLOSED, "https_proxy": CLOSED}
_WORKLOAD = '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 2\n'


class Index:
    """A package index of a folder of wheels. `asked`: the requested paths, answered or not yet."""

    def __init__(self, wheels: Path, hashes: bool) -> None:
        self.wheels, self.hashes = wheels, hashes
        self.asked: list[str] = []
        self._held, self._released = "", threading.Event()
        self.url = ""

    def hold(self, start: str) -> None:
        """Don't answer requests for paths with this prefix until `release`."""
        self._held, self._released = start, threading.Event()

    def release(self) -> None:
        self._held = ""
        self._released.set()

    def answer(self, path: str) -> bytes | None:
        """Return the body for a path, or for a whole URL (as proxies get it); None: not found."""
        self.asked.append(path)
        path = unquote(urlsplit(path).path)
        if self._held and path.startswith(self._held):
            self._released.wait()
        if path.startswith("/files/"):
            file = self.wheels / path.removeprefix("/files/")
            return file.read_bytes() if file.is_file() else None
        name = path.removeprefix("/simple/").strip("/")
        files = sorted(wheel for wheel in self.wheels.iterdir() if wheel.name.endswith((".whl", ".tar.gz")))
        links = [self._link(wheel) for wheel in files if not name or _name_of(wheel.name) == name]
        return f"<!doctype html>{''.join(links)}".encode() if links else None

    def _link(self, path: Path) -> str:
        fragment = f"#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}" if self.hashes else ""
        return f'<a href="/files/{path.name}{fragment}">{path.name}</a>'


def _name_of(file: str) -> str:
    """Return the package whose wheel or source a file is."""
    return name_of(file) if file.endswith(".whl") else file.rpartition("-")[0]


@contextmanager
def serving(wheels: Path, address: str = "127.0.0.1", certificate: Path | None = None, hashes: bool = True) -> Iterator[Index]:
    """Serve `wheels` until the block ends; over TLS with `certificate`, a PEM file that also holds the key."""
    index = Index(wheels, hashes)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = index.answer(self.path)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with _Server((address, 0), Handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        index.url = f"http{'s' if certificate else ''}://{address}:{server.server_port}/simple"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield index
        finally:
            index.release()
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up or don't trust us: some tests provoke them."""


def tiny_wheels(folder: Path, bytes_of_torch: int = 0, salt: str = "") -> Path:
    """Write wheels of the names and versions that the invented stack needs, a few lines each.

    `salt` makes their torch another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ballast = salt + "".join(hashlib.sha256(str(i).encode()).hexdigest() for i in range(bytes_of_torch // 64))
    wheel(folder, "torch", "2.5.1", {"torch/__init__.py": '__version__ = "2.5.1"\n', "torch/ballast.txt": ballast})
    plain_wheel(folder, "torchvision", "0.20.1", requires=("torch==2.5.1",))
    plain_wheel(folder, "transformers", "4.57.6", requires=("helper",))
    plain_wheel(folder, "helper", "1.0")
    plain_wheel(folder, "setuptools", "80.0")
    return folder


def tiny_matrix(name: str = "tiny", more: str = "", rest: str = "") -> str:
    """Return a matrix of the invented stack and a CPU workload; `more`: lines of the [[stack]], `rest`: further tables."""
    stack = f'[[stack]]\nname = "{name}"\ntorch = "2.5.1"\ncpu = true\nindex = "{OFFICIAL}"\n{more}'
    return f"[run]\nlaunches = 1\n[cpus]\ncounts = [1]\n{stack}{rest}{_WORKLOAD}"


def tiny_stack(text: str) -> tuple[Stack, Recipe]:
    """Return the first stack of a matrix and its own recipe."""
    stack = matrix_file.parse(text).stacks[0]
    return stack, recipes.recipes(stack)[0]


def mirrors(url: str) -> str:
    """Return TORCHMATRIX_MIRRORS with which `url` serves the invented index and PyPI."""
    return f"{OFFICIAL}={url},{PYPI}={url}"


@dataclass(frozen=True, kw_only=True)
class Authority:
    """A site's own certificate authority. `bundle`: the file to trust; `certificate`: a server's, with its key."""

    bundle: Path
    certificate: Path


def make_authority(folder: Path, addresses: list[str]) -> Authority:
    """Create an authority whose server's certificate is for `addresses`. Raise FileNotFoundError if there is no openssl."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(folder, "req", "-x509", *key, "-days", "2", "-subj", "/CN=site-ca", "-keyout", "ca.key", "-out", "ca.crt")
    _openssl(folder, "req", "-new", *key, "-subj", "/CN=site", "-keyout", "site.key", "-out", "site.csr")
    (folder / "names").write_text("subjectAltName=" + ",".join(f"IP:{address}" for address in addresses) + "\n")
    signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    _openssl(folder, "x509", "-req", "-in", "site.csr", *signing, "-out", "site.crt")
    (folder / "site.pem").write_text((folder / "site.key").read_text() + (folder / "site.crt").read_text())
    return Authority(bundle=folder / "ca.crt", certificate=folder / "site.pem")


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
