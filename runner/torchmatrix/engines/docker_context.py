"""Where Docker answers, found as Docker's own client finds it.

DOCKER_HOST, else the context that DOCKER_CONTEXT or `docker context use` names, else the default socket:
https://docs.docker.com/engine/manage-resources/contexts/. The SDK's ContextAPI is no help: it takes a context that it doesn't
find for the default one, and looks for contexts in the current folder where there is no config.json.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.ground.files import content_of

DEFAULT = "default"
"""The context that is made of DOCKER_HOST and its like."""
SOCKET = Path("/var/run/docker.sock")
_HINT = "docker context ls shows which there are; choose another with DOCKER_CONTEXT or docker context use"


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where a daemon answers: `host`, such as unix:///var/run/docker.sock, and the context that says so.

    `certificates`: the folder with ca.pem, cert.pem and key.pem of a context, or None; `verified`: whether the daemon's own is
    checked. The default context's stand in the variables DOCKER_CERT_PATH and DOCKER_TLS_VERIFY.
    """

    host: str
    context: str = DEFAULT
    certificates: Path | None = None
    verified: bool = True

    @property
    def in_words(self) -> str:
        """For a reader."""
        return self.host if self.context == DEFAULT else f"{self.host} (context {self.context})"

    @property
    def is_missing(self) -> bool:
        """Whether nobody said where it is, and there is no default socket."""
        return not is_asked() and self.context == DEFAULT and not Path(self.host.removeprefix("unix://")).exists()

    @property
    def variables(self) -> dict[str, str]:
        """With which Docker's client uses it, too."""
        return {"DOCKER_HOST": self.host} if self.context == DEFAULT else {"DOCKER_CONTEXT": self.context}


def is_asked() -> bool:
    """Whether this command was told where Docker is."""
    return bool(os.environ.get("DOCKER_HOST") or os.environ.get("DOCKER_CONTEXT"))


def endpoint() -> Endpoint:
    """The endpoint in use. Raises EngineUnusable if its context isn't there or can't be read."""
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    if (folder / "config.json").is_fifo():  # Docker's library waits for its writer
        raise EngineUnusable(f"{folder / 'config.json'} is a pipe", hint="remove it, or name another folder: DOCKER_CONFIG=DIR")
    if said := os.environ.get("DOCKER_HOST"):
        return Endpoint(host=said)
    name = os.environ.get("DOCKER_CONTEXT") or _current(folder / "config.json")
    return Endpoint(host=f"unix://{default_socket()}") if name in ("", DEFAULT) else _of_context(folder / "contexts", name)


def default_socket(machines: Path = SOCKET) -> Path:
    """The machine's socket; where that can't be used and this user runs a rootless daemon, the socket of that one."""
    sockets = (machines, Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}") / "docker.sock")
    return next((path for path in sockets if os.access(path, os.R_OK | os.W_OK)), machines)


def _current(config: Path) -> str:
    """What `docker context use` wrote; Docker's client, too, takes a file that it can't read for an empty one."""
    try:
        return str(json.loads(config.read_bytes()).get("currentContext") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def _of_context(contexts: Path, name: str) -> Endpoint:
    folder = hashlib.sha256(name.encode(errors="replace")).hexdigest()
    path = contexts / "meta" / folder / "meta.json"
    try:
        said: dict[str, Any] = json.loads(content_of(path))["Endpoints"]["docker"]
        host, skip = said.get("Host") or f"unix://{default_socket()}", bool(said.get("SkipTLSVerify"))
    except FileNotFoundError:
        raise EngineUnusable(f'Docker has no context "{name}"', hint=_HINT) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise EngineUnusable(f'Docker\'s context "{name}" says no endpoint: {path}', hint=_HINT) from None
    certificates = contexts / "tls" / folder / "docker"
    return Endpoint(
        host=str(host), context=name, certificates=certificates if certificates.is_dir() else None, verified=not skip
    )
