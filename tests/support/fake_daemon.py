"""A daemon that answers as Docker does to whoever asks what it is and what it sees, at a socket or, over TLS, at a port."""

import json
import platform
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn, UnixStreamServer
from typing import Any

Sees = Callable[[str], tuple[int, str]]
"""A path that should be mounted -> status and message of the answer."""
NO_IMAGE = (404, "No such image: torchmatrix-0:latest")


def everything(path: str) -> tuple[int, str]:
    """Answer as a daemon that looks for the image first."""
    return NO_IMAGE


def nothing(path: str) -> tuple[int, str]:
    """Answer as a daemon on another machine."""
    return 400, f'invalid mount config for type "bind": bind source path does not exist: {path}'


def what_is_here(path: str) -> tuple[int, str]:
    """Answer as a daemon on this machine."""
    return NO_IMAGE if Path(path).exists() else nothing(path)


def forbidden(path: str) -> tuple[int, str]:
    """Answer as a proxy that lets only harmless requests pass."""
    return 403, "Forbidden"


@contextmanager
def daemon(
    where: Path | str, sees: Sees, certificate: Path | None = None, podman: bool = False, told: dict[str, str] | None = None
) -> Iterator[str]:
    """Yield a daemon's address. It says that it has this machine's name and kernel. `where`: its socket, or an IP address.

    `told`: other answers, as texts, by path.
    """
    info = {
        "Name": socket.gethostname(), "ID": "AAAA:BBBB", "KernelVersion": platform.release(), "OperatingSystem": "Other OS",
        "Architecture": "x86_64", "NCPU": 3, "MemTotal": 1 << 34,
    }  # fmt: skip
    components = [{"Name": "Podman Engine", "Version": "5.4.0"}] if podman else []
    answers: dict[str, Any] = {"/_ping": "OK", "/info": info}
    answers["/version"] = {"ApiVersion": "1.41", "Os": "linux", "Arch": "amd64", "Components": components}

    answers |= told or {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = re.sub(r"^/v[\d.]+|\?.*", "", self.path)
            self._answer(200, answers[path]) if path in answers else self._answer(404, {"message": "page not found"})

        do_HEAD = do_GET

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            options = request.get("DriverOpts")
            status, message = sees(options["device"] if options else request["HostConfig"]["Mounts"][0]["Source"])
            made = bool(options) and (status, message) == NO_IMAGE
            self._answer(201, {"Name": request["Name"]}) if made else self._answer(status, {"message": message})

        def do_DELETE(self) -> None:
            self._answer(204, "")

        def _answer(self, status: int, answer: Any) -> None:
            body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        def address_string(self) -> str:
            return "a client"

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with _Sockets(str(where), Handler) if isinstance(where, Path) else _Ports((where, 0), Handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"unix://{where}" if isinstance(where, Path) else f"tcp://{where}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def serve(where: Path, sees: Sees) -> None:
    """Be a process that is a daemon, until standard input ends; its address goes to standard output."""
    with daemon(where, sees) as host:
        print(host, flush=True)
        sys.stdin.read()


class _Quiet(ThreadingMixIn):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up or don't trust us: some tests provoke them."""


class _Sockets(_Quiet, UnixStreamServer):
    pass


class _Ports(_Quiet, TCPServer):
    pass
