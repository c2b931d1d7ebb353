"""Apptainer (or Singularity): containers without a daemon, as clusters have them; its images are files (image_files.py).

A launch is a process of this user, as with the local engine, and ends with all that it started.
"""

import os
import shutil
import subprocess
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from torchmatrix.engines.commands import (
    CACHE_FOLDERS,
    MODEL_FOLDER,
    WORKLOAD_FOLDER,
    bench_command,
    box_environment,
    isolation,
    pasted,
    visible_devices,
)
from torchmatrix.engines.engine import Capabilities, Image, LaunchSpec, Leftover, Log, Recipe
from torchmatrix.engines.image_files import ImageFiles
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.engines.own_processes import PLATFORM, OwnProcesses
from torchmatrix.engines.processes import LocalExecution
from torchmatrix.ground import assets, files
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.machine.host import Host
from torchmatrix.planning.fit import Disk

PROGRAMS = ("apptainer", "singularity")
"""The names of the program: Apptainer was called Singularity, and SingularityCE still is."""
CLOSED = ("--containall", "--cleanenv", "--no-privs")
"""Nothing of the machine inside: no folders, processes, variables; and no privileges, if root runs it."""
NO_NETWORK = ("--net", "--network", "none")
GPUS = {"nvidia": ("--nv",), "amd": ("--rocm",)}
"""They bring the driver's libraries and all GPUs' devices; a variable says which GPUs the launch uses."""
_FAST = ("--mksquashfs-args", "-comp gzip -Xcompression-level 1")
"""Takes a quarter of the time, for a file that is a tenth larger; every kernel and squashfuse reads it."""


class ApptainerEngine:
    """`folder`: of its images and compile caches. `owner`: marks what it starts."""

    name = "apptainer"
    capabilities = Capabilities(runs_images=True, isolates=True, build_seconds=600.0)
    store = None

    def __init__(self, folder: Path, owner: str, program: str) -> None:
        self._folder, self._program = folder, program
        self._own = OwnProcesses(folder)
        self._network_note: str | None = None
        self._images = ImageFiles(folder, ".sif", self._conversion, owner)

    def facts(self) -> dict[str, Any]:
        """Version and how images are mounted, for the record."""
        return {"engine": self.name, "version": self.version(), "mounts": how_mounted()}

    def version(self) -> str:
        """Such as "apptainer version 1.4.5"."""
        return _said_by(self._program, "--version").strip()

    def machine(self, here: Host) -> Host:
        """This machine."""
        return here

    def disk(self) -> Disk | None:
        """That of its folder, or of the one that will contain it."""
        return self._own.disk()

    def why_unlimited(self) -> str:
        """Why no control groups can be made here."""
        return self._own.groups.why_not

    def why_not_built(self) -> str:
        """Why it can't make an image."""
        return self._images.why_not_made()

    def is_ready(self, recipe: Recipe) -> bool:
        """Whether the file is there."""
        return self._images.has(recipe)

    def is_stored(self, recipe: Recipe) -> bool:
        """A file is there as a whole or not at all."""
        return self._images.has(recipe)

    def platform(self) -> str:
        """Of this machine."""
        return PLATFORM

    def resolve(self, recipe: Recipe, log: Log, *, fresh: bool = False) -> StackLock:
        """By Docker, which knows the base's digest. Raises BuildFailed."""
        return self._images.docker().resolve(recipe, log, fresh=fresh)

    def build(self, recipe: Recipe, log: Log) -> Image:
        """Let Docker build the environment, and make it a file; or find the file. Raises BuildFailed."""
        return self._images.image(recipe, log)

    def sizes(self, images: Sequence[Image]) -> list[tuple[int, int]]:
        """Of the files, which share nothing."""
        return self._images.sizes(images)

    def rebuild(self, recipe: Recipe, lock: StackLock, folder: Path) -> None:
        """None: the command of a launch names the file."""
        return None

    def start(self, image: Image, spec: LaunchSpec) -> LocalExecution:
        """An execution in a container of its own."""
        held = ExitStack()
        scratch = held.enter_context(files.scratch())
        cache = self._own.compile_cache(image, spec)
        note = self._why_networked(image.reference)
        network = "none" if not note and not spec.meeting else "machine"
        binds, flags = cache.bound(*CACHE_FOLDERS)
        program = bench_command("python3", str(WORKLOAD_FOLDER / spec.program), spec, self._own.port())
        program += spec.model_flags(MODEL_FOLDER)

        def command(*more: str) -> list[str]:
            return [self._program, *options(spec, scratch, network, more), image.reference, *program]

        return LocalExecution(
            [*command(*binds), *flags], {}, spec.owner, cache, self._own.groups, self._own.limits,
            held=held, pasted=pasted(command(), scratch), facts=isolation(network, note or None),
        )  # fmt: skip

    def _why_networked(self, reference: str) -> str:
        """Why a container can't do without the machine's network here, in the program's words; empty if it can. Tried once."""
        if self._network_note is None:
            tried = subprocess.run(
                [self._program, "exec", *CLOSED, *NO_NETWORK, reference, "python3", "--version"],
                capture_output=True,
                text=True,
                timeout=600,
            )
            said = [line for line in tried.stderr.splitlines() if "FATAL" in line or "ERROR" in line]
            self._network_note = said[-1] if tried.returncode and said else ""
        return self._network_note

    def close(self) -> None:
        """Nothing is kept: each launch has a container of its own."""

    def remove_orphans(self, owner: str) -> list[str]:
        """End this user's processes that carry the mark of `owner`; the caller holds the owner's lock."""
        return self._own.remove_orphans(owner)

    def leftovers(self, keep: Collection[str]) -> list[Leftover]:
        """Its files and compile caches."""
        return [*self._images.left(keep), *self._own.caches_left(keep)]

    def remove(self, leftover: Leftover) -> str | None:
        """Remove a file or a cache, unless another run is making it."""
        return self._images.remove(leftover.name)

    def _conversion(self, tag: str, path: Path) -> list[str]:
        fast = _FAST if _FAST[0] in _said_by(self._program, "build", "--help") else ()
        return [self._program, "build", "--disable-cache", *fast, str(path), f"docker-daemon:{tag}"]


def find() -> str | None:
    """The program, if it is here."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def options(spec: LaunchSpec, scratch: Path, network: str, more: Sequence[str]) -> list[str]:
    """The verb of Apptainer and its options for a launch: a closed box, as with Docker, of the user that runs it. Pure.

    No privileges, nobody else's processes, no variables but the given ones, no folders but these: images/workload and the
    user's model to be read only, `scratch` as /tmp, and `more`. `network`: none or machine.
    """
    variables = box_environment(spec.gpus.vendor, spec.meeting) | visible_devices(spec.gpus) | {"USER": "bench"}
    binds = [f"{assets.WORKLOAD}:{WORKLOAD_FOLDER}:ro", *more]
    binds += [f"{path}:{path}" for path in spec.meeting.devices] if spec.meeting else []
    binds += [f"{spec.model_file}:{MODEL_FOLDER / spec.model_file.name}:ro"] if spec.model_file else []
    words = ["exec", *CLOSED, *(NO_NETWORK if network == "none" else ()), *GPUS.get(str(spec.gpus.vendor), ())]
    words += ["--home", f"{scratch}:/tmp", "--pwd", "/tmp"]
    words += [part for bind in binds for part in ("--bind", bind)]
    return words + [part for key, value in variables.items() for part in ("--env", f"{key}={value}")]


def how_mounted() -> str:
    """How an ordinary user's image is read: mounted, or else unpacked for each launch, which takes long for a large one."""
    if os.geteuid() == 0 or shutil.which("squashfuse") or shutil.which("squashfuse_ll"):
        return "mounted"
    return "unpacked by each launch, unless the program is installed setuid; squashfuse would mount it"


@cache
def _said_by(*command: str) -> str:
    """What a command prints. Raises EngineUnusable."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineUnusable(f"{command[0]} can't be used: {error}", hint=f"see what `{' '.join(command)}` says") from None
