"""Find the daemon of Docker or Podman, by context, variable and socket, and adapt requests to Podman."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmatrix.core.errors import EngineUnusable
from torchmatrix.core.files import content_of
from torchmatrix.core.settings import home_folder

# Docker's endpoint, found as Docker's own client finds it.
#
# DOCKER_HOST, else the context that DOCKER_CONTEXT or `docker context use` names, else the default socket:
# https://docs.docker.com/engine/manage-resources/contexts/. The SDK's ContextAPI is no help: it takes a context that it doesn't
# find for the default one, and looks for contexts in the current folder where there is no config.json.

DEFAULT = "default"
"""The context that DOCKER_HOST and related variables define."""
DOCKER_SOCKET = Path("/var/run/docker.sock")
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
        """Return the endpoint in words."""
        return self.host if self.context == DEFAULT else f"{self.host} (context {self.context})"

    @property
    def is_missing(self) -> bool:
        """Check whether neither a variable nor a context names a daemon, and there is no default socket."""
        return not is_asked() and self.context == DEFAULT and not Path(self.host.removeprefix("unix://")).exists()

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables with which Docker's client uses this endpoint, too."""
        return {"DOCKER_HOST": self.host} if self.context == DEFAULT else {"DOCKER_CONTEXT": self.context}


def is_asked() -> bool:
    """Check whether a variable of this command names the daemon."""
    return bool(os.environ.get("DOCKER_HOST") or os.environ.get("DOCKER_CONTEXT"))


def config_file() -> Path:
    """Return the path of the configuration of Docker's client."""
    return Path(os.environ.get("DOCKER_CONFIG") or home_folder() / ".docker") / "config.json"


def endpoint() -> Endpoint:
    """Return the endpoint in use. Raises EngineUnusable if its context isn't there or can't be read."""
    if config_file().is_fifo():  # Docker's library waits for its writer
        raise EngineUnusable(f"{config_file()} is a pipe", hint="remove it, or name another folder: DOCKER_CONFIG=DIR")
    if host := os.environ.get("DOCKER_HOST"):
        return Endpoint(host=host)
    name = os.environ.get("DOCKER_CONTEXT") or _current_context(config_file())
    contexts = config_file().parent / "contexts"
    return Endpoint(host=f"unix://{default_socket()}") if name in ("", DEFAULT) else _read_context(contexts, name)


def default_socket(machines: Path = DOCKER_SOCKET) -> Path:
    """Return the machine's socket; where that can't be used and this user runs a rootless daemon, the socket of that one."""
    sockets = (machines, Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}") / "docker.sock")
    return next((path for path in sockets if os.access(path, os.R_OK | os.W_OK)), machines)


def _current_context(config: Path) -> str:
    """Return the context that `docker context use` wrote; like Docker's client, take an unreadable file for an empty one."""
    try:
        return str(json.loads(config.read_bytes()).get("currentContext") or "")
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


def _read_context(contexts: Path, name: str) -> Endpoint:
    folder = hashlib.sha256(name.encode(errors="replace")).hexdigest()
    path = contexts / "meta" / folder / "meta.json"
    try:
        settings: dict[str, Any] = json.loads(content_of(path))["Endpoints"]["docker"]
        host, skip = settings.get("Host") or f"unix://{default_socket()}", bool(settings.get("SkipTLSVerify"))
    except FileNotFoundError:
        raise EngineUnusable(f'Docker has no context "{name}"', hint=_HINT) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise EngineUnusable(f'Docker\'s context "{name}" says no endpoint: {path}', hint=_HINT) from None
    certificates = contexts / "tls" / folder / "docker"
    return Endpoint(
        host=str(host), context=name, certificates=certificates if certificates.is_dir() else None, verified=not skip
    )


# Podman, which answers like Docker's daemon: its address, and its differences.

PODMAN_SOCKET = Path("/run/podman/podman.sock")
"""The machine's socket, as opposed to a user's."""
WITH_CDI = (5, 4)
"""The first version that heeds requests for devices through Docker's API; earlier ones ignore them silently."""
_TMPFS_FOR_ALL = "rw,exec,nosuid,mode=1777,size=8g"


def podman_address() -> str:
    """Return Podman's address: its own variable CONTAINER_HOST, else the machine's or this user's socket, else DOCKER_HOST.

    Raises EngineUnusable.
    """
    user_folder = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    sockets = [PODMAN_SOCKET, user_folder / "podman" / "podman.sock"]
    socket = next((f"unix://{path}" for path in sockets if os.access(path, os.R_OK | os.W_OK)), "")
    address = os.environ.get("CONTAINER_HOST") or socket or os.environ.get("DOCKER_HOST")
    if not address:
        raise EngineUnusable("Podman has no socket here", hint="systemctl start podman.socket, or set CONTAINER_HOST")
    if address.startswith("ssh://"):
        raise EngineUnusable(f"Podman can't be used by way of {address}", hint="run torchmatrix on that machine")
    return address


def podman_version(answer: Mapping[str, Any]) -> str:
    """Return Podman's version, from the answer to GET /version of Docker's API; empty if that is not Podman's."""
    parts = {part.get("Name"): part.get("Version") for part in answer.get("Components") or ()}
    return str(parts.get("Podman Engine") or "")


def refuse_without_cdi(version: str) -> None:
    """Raise EngineUnusable for a version that would start containers without the GPUs that they should have."""
    from torchmatrix.matrix.catalog import version_key

    if version_key(version) < WITH_CDI:
        raise EngineUnusable(
            f"Podman {version} gives containers no NVIDIA GPU through Docker's API",
            hint="Podman 5.4 and newer do; or use Docker, or run without containers: --engine local",
        )


def adapt_for_podman(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's options as Podman understands them: its tmpfs takes no owner; instead every user may write to it."""
    from torchmatrix.engines import volumes  # with Docker's library, which choosing an engine doesn't need

    tmpfs = {path: _TMPFS_FOR_ALL if mode == volumes.TMPFS else mode for path, mode in options["tmpfs"].items()}
    return {**options, "tmpfs": tmpfs}
