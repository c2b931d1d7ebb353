"""Pyxis: containers as steps of a Slurm job (srun --container-image), run by Enroot; images are files (image_files.py).

A launch is a srun that is a process of this user, as with the local engine. What it starts belongs to Slurm's daemon, which
ends it with the job; it carries the launch's mark, and is ended with the launch.
"""

import os
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
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
from torchmatrix.engines.processes import MARKS, LocalExecution
from torchmatrix.ground import assets, files
from torchmatrix.ground.errors import EngineUnusable
from torchmatrix.machine.host import Host
from torchmatrix.planning.fit import Disk

PROGRAM = "enroot"
Variables = Mapping[str, str]
_SHELL = 'PATH=/opt/torchmatrix/bin:/opt/stack/bin:$PATH exec env "$@"'
"""Inside: a login shell of Enroot's has reset PATH, and Slurm has said which GPUs the whole job has."""
_SHARED = "Pyxis shares the machine's network and processes with the container"
CLOSED = ("--container-readonly", "--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint")


class PyxisEngine:
    """`folder`: of its images and compile caches. `owner`: marks what it starts."""

    name = "pyxis"
    capabilities = Capabilities(runs_images=True, isolates=True, build_seconds=600.0)
    store = None

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._own = OwnProcesses(folder)
        self._images = ImageFiles(folder, ".sqsh", _conversion, owner)

    def facts(self) -> dict[str, Any]:
        """Version, for the record."""
        return {"engine": self.name, "version": self.version()}

    def version(self) -> str:
        """Enroot's, such as "enroot 4.1.2"."""
        try:
            said = subprocess.run([PROGRAM, "version"], capture_output=True, text=True, timeout=60, check=True).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise EngineUnusable(f"{PROGRAM} can't be used: {error}", hint=f"see what `{PROGRAM} version` says") from None
        return f"{PROGRAM} {said.strip()}"

    def machine(self, here: Host) -> Host:
        """This machine."""
        return here

    def disk(self) -> Disk | None:
        """That of its folder, or of the one that will contain it."""
        return self._own.disk()

    def why_unlimited(self) -> str:
        """A job's limits are Slurm's."""
        return "a launch has the limits of its Slurm job"

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
        """An execution as a step of this job; outside of jobs, as a job of its own."""
        _remove_earlier_life(os.environ)
        held = ExitStack()
        scratch = held.enter_context(files.scratch())
        cache = self._own.compile_cache(image, spec)
        binds, flags = cache.bound(*CACHE_FOLDERS)
        program = bench_command("python3", str(WORKLOAD_FOLDER / spec.program), spec, self._own.port())
        program += spec.model_flags(MODEL_FOLDER)

        def command(*more: str) -> list[str]:
            return ["srun", *options(spec, image.reference, scratch, more, os.environ), *inside(spec), *program]

        return LocalExecution(
            [*command(*binds), *flags], {}, spec.owner, cache, held=held, pasted=pasted(command(), scratch),
            facts=isolation("machine", _SHARED),
        )  # fmt: skip

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


def is_here() -> bool:
    """Whether Enroot is."""
    return shutil.which(PROGRAM) is not None


def options(spec: LaunchSpec, image: str, scratch: Path, more: Sequence[str], variables: Variables) -> list[str]:
    """srun's for a launch on this node, which takes what the job has of it: a box as closed as Pyxis can make it. Pure.

    No folders but these: images/workload and the user's model to be read only, `scratch` as /tmp, and `more`. No variables but
    the marks of the launch and Slurm's own. `variables`: those of the job.
    """
    binds = [f"{assets.WORKLOAD}:{WORKLOAD_FOLDER}:ro", f"{scratch}:/tmp", *more]
    binds += [f"{path}:{path}" for path in spec.meeting.devices] if spec.meeting else []
    binds += [f"{spec.model_file}:{MODEL_FOLDER / spec.model_file.name}:ro"] if spec.model_file else []
    words = ["--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=1"]
    words += [f"--nodelist={variables['SLURMD_NODENAME']}"] if "SLURMD_NODENAME" in variables else []
    words += [f"--cpus-per-task={variables['SLURM_CPUS_ON_NODE']}"] if "SLURM_CPUS_ON_NODE" in variables else []
    words += [f"--export={','.join(MARKS)}", f"--container-image={image}", *CLOSED, "--container-workdir=/tmp"]
    return [*words, f"--container-mounts={','.join(binds)}"]


def inside(spec: LaunchSpec) -> list[str]:
    """What runs the program in the container: with the box's variables alone, and the Python of the stack. Pure."""
    own = box_environment(spec.gpus.vendor, spec.meeting) | visible_devices(spec.gpus) | {"USER": "bench", "HOME": "/tmp"}
    return ["sh", "-c", _SHELL, "box", *(f"{key}={value}" for key, value in own.items())]


def _remove_earlier_life(variables: Variables) -> None:
    """Remove the containers of this job that a node which died left on its disk: the job runs again under the same number, and
    Pyxis refuses to make a container that is there.
    """
    if int(variables.get("SLURM_RESTART_COUNT", "0")) and "SLURM_JOB_ID" in variables:
        left = subprocess.run([PROGRAM, "list"], capture_output=True, text=True, timeout=60, check=False).stdout.split()
        for name in left:
            if name.startswith(f"pyxis_{variables['SLURM_JOB_ID']}."):
                subprocess.run([PROGRAM, "remove", "--force", name], capture_output=True, timeout=600, check=False)


def _conversion(tag: str, path: Path) -> list[str]:
    return [PROGRAM, "import", "--output", str(path), f"dockerd://{tag}"]
