"""Podman, which answers as Docker's daemon does: where, and what it does otherwise."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchmatrix.engines import container_caches
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.matrix.catalog import version_key

SOCKET = Path("/run/podman/podman.sock")
"""The machine's."""
WITH_CDI = (5, 4)
"""From this version on, it heeds requests for devices that come through Docker's API; before, it ignores them silently."""
_FOR_ALL = "rw,exec,nosuid,mode=1777,size=8g"


def address() -> str:
    """Where it answers: by its own variable CONTAINER_HOST, else a socket of the machine's or of this user's, else DOCKER_HOST.

    Raises EngineUnusable.
    """
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    sockets = [SOCKET, own / "podman" / "podman.sock"]
    here = next((f"unix://{path}" for path in sockets if os.access(path, os.R_OK | os.W_OK)), "")
    found = os.environ.get("CONTAINER_HOST") or here or os.environ.get("DOCKER_HOST")
    if not found:
        raise EngineUnusable("Podman has no socket here", hint="systemctl start podman.socket, or set CONTAINER_HOST")
    if found.startswith("ssh://"):
        raise EngineUnusable(f"Podman can't be used by way of {found}", hint="run torchmatrix on that machine")
    return found


def version_in(said: Mapping[str, Any]) -> str:
    """The version of Podman, from the answer to GET /version of Docker's API; empty if that is not Podman's."""
    parts = {part.get("Name"): part.get("Version") for part in said.get("Components") or ()}
    return str(parts.get("Podman Engine") or "")


def refuse_without_cdi(version: str) -> None:
    """Raises EngineUnusable for a version that would start containers without the GPUs that they should have."""
    if version_key(version) < WITH_CDI:
        raise EngineUnusable(
            f"Podman {version} gives containers no NVIDIA GPU through Docker's API",
            hint="Podman 5.4 and newer do; or use Docker, or run without containers: --engine local",
        )


def adapted(options: Mapping[str, Any]) -> dict[str, Any]:
    """A container's options as Podman understands them: its tmpfs takes no owner; instead every user may write to it."""
    tmpfs = {path: _FOR_ALL if how == container_caches.TMPFS else how for path, how in options["tmpfs"].items()}
    return {**options, "tmpfs": tmpfs}
