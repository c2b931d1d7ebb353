"""Apptainer (or Singularity): containers without a daemon, as clusters have them."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from torchmatrix.engines.commands import Isolation, box_environment, visible_devices
from torchmatrix.engines.engine import LaunchSpec
from torchmatrix.ground.errors import EngineUnusable

PROGRAMS = ("apptainer", "singularity")
"""The names of the program: Apptainer was called Singularity, and SingularityCE still is."""
CLOSED = ("--containall", "--cleanenv", "--no-privs")
"""Nothing of the machine inside: no folders, processes, variables; and no privileges, if root runs it."""
NO_NETWORK = ("--net", "--network", "none")
GPUS = {"nvidia": ("--nv",), "amd": ("--rocm",)}
"""They bring the driver's libraries and all GPUs' devices; a variable says which GPUs the launch uses."""
_FAST = ("--mksquashfs-args", "-comp gzip -Xcompression-level 1")
"""Takes a quarter of the time, for a file that is a tenth larger; every kernel and squashfuse reads it."""


def find() -> str | None:
    """The program, if it is here."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Apptainer:
    """The program at `path`."""

    name = "apptainer"
    ending = ".sif"

    def __init__(self, path: str) -> None:
        self._path = path
        self._why_networked: str | None = None

    def version(self) -> str:
        """Such as 1.4.5. Raises EngineUnusable."""
        return _said_by(self._path, "--version").split()[-1]

    def facts(self) -> dict[str, Any]:
        """Which program it is, and how it reads images."""
        return {"program": _said_by(self._path, "--version").split()[0], "mounts": _how_mounted()}

    def conversion(self, tag: str, path: Path) -> list[str]:
        """Docker's daemon gives the image."""
        fast = _FAST if _FAST[0] in _said_by(self._path, "build", "--help") else ()
        return [self._path, "build", "--disable-cache", *fast, str(path), f"docker-daemon:{tag}"]

    def why_unlimited(self) -> str:
        """They can be in a group: the container is a child of the command."""
        return ""

    def isolation(self, image: str, spec: LaunchSpec) -> Isolation:
        """No network, where that is allowed here: tried once, with the words of a refusal kept."""
        if spec.meeting:
            return Isolation(network="machine")
        if self._why_networked is None:
            words = [self._path, "exec", *CLOSED, *NO_NETWORK, image, "python3", "--version"]
            tried = subprocess.run(words, capture_output=True, encoding="utf-8", errors="replace", timeout=600, check=False)
            said = [line for line in tried.stderr.splitlines() if "FATAL" in line or "ERROR" in line]
            self._why_networked = said[-1] if tried.returncode and said else ""
        return Isolation(network="machine" if self._why_networked else "none", note=self._why_networked or None)

    def box(self, image: str, spec: LaunchSpec, scratch: Path, binds: Sequence[str], shared: Isolation) -> list[str]:
        """As closed as Docker's, of the user that runs it: no privileges, nobody else's processes, no variables or folders but
        the given ones, and no network unless that is shared. Pure.
        """
        variables = box_environment(spec.gpus.vendor, spec.meeting) | visible_devices(spec.gpus) | {"USER": "bench"}
        words = [self._path, "exec", *CLOSED, *(NO_NETWORK if shared.network == "none" else ())]
        words += [*GPUS.get(str(spec.gpus.vendor), ()), "--home", f"{scratch}:/tmp", "--pwd", "/tmp"]
        words += [part for bind in binds for part in ("--bind", bind)]
        return [*words, *(part for key, value in variables.items() for part in ("--env", f"{key}={value}")), image]


def _how_mounted() -> str:
    """How an ordinary user's image is read: mounted, or else unpacked for each launch, which takes long for a large one."""
    if os.geteuid() == 0 or shutil.which("squashfuse") or shutil.which("squashfuse_ll"):
        return "mounted"
    return "unpacked by each launch, unless the program is installed setuid; squashfuse would mount it"


@cache
def _said_by(*command: str) -> str:
    """What a command prints. Raises EngineUnusable."""
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineUnusable(f"{command[0]} can't be used: {error}", hint=f"see what `{' '.join(command)}` says") from None
