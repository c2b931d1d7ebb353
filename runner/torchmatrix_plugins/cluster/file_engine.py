"""Run launches in images that are files: the base of the engines for Apptainer and for Pyxis (Enroot).

A launch is a process of this user, as with the local engine, and ends with all that it started.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torchmatrix.core import assets, files
from torchmatrix.core.errors import BuildFailed, EngineUnusable, LaunchFailed
from torchmatrix.core.files import scratch, sha256_of, write_whole
from torchmatrix.engines import packages, processes
from torchmatrix.engines.containment import LIBRARIES, OWNER_VARIABLE, inherited_variables
from torchmatrix.engines.engine import (
    CACHE_FOLDERS,
    MODEL_FOLDER,
    WORKLOAD_FOLDER,
    Capabilities,
    Image,
    Isolation,
    LaunchSpec,
    Leftover,
    Log,
    Recipe,
    bench_command,
    pasted,
    visible_devices,
    with_hint,
    workload_environment,
)
from torchmatrix.engines.lockfile import StackLock, from_text
from torchmatrix.engines.processes import MARKS, NOWHERE, PLATFORM, UNLIMITED, LaunchResources, LocalExecution
from torchmatrix.machine.host import Host
from torchmatrix.machine.vendors import VENDORS
from torchmatrix.planning.fit import Disk

# Image files, for engines without a daemon: made where Docker answers, run where the folder is shared.
#
# FOLDER/STACK-ENVIRONMENT.ENDING: the image, without the workload
# FOLDER/STACK-ENVIRONMENT.json: what it is made of; written last, so that it marks a complete image

if TYPE_CHECKING:
    from torchmatrix.engines.docker import DockerEngine

Convert = Callable[[str, Path], list[str]]
"""Returns the command that writes the image with a tag of Docker's as a file at a path."""
_TEMPORARY = ("APPTAINER_TMPDIR", "SINGULARITY_TMPDIR", "ENROOT_TEMP_PATH")
"""Variables that name the folder where the programs unpack an image; a killed program leaves it there."""
NO_DOCKER = "no Docker answers here, which makes its images"


class ImageFiles:
    """Image files in `folder`; their names end in `ending`, such as .sif. `owner` marks the processes that make them."""

    def __init__(self, folder: Path, ending: str, convert: Convert, owner: str) -> None:
        self._folder, self._ending, self._convert, self._owner = folder, ending, convert, owner
        self._uses = processes.Uses()

    def has(self, recipe: Recipe) -> bool:
        """Check whether the image file and its facts are there."""
        return self._facts_path(recipe).exists() and self._path(recipe).exists()

    def image(self, recipe: Recipe, log: Log) -> Image:
        """Return the image, and make it if it isn't there. Raises BuildFailed."""
        self._uses.make(self._path(recipe), partial(self.has, recipe), partial(self._make, recipe, log))
        try:
            record = json.loads(self._facts_path(recipe).read_bytes())
            lock, facts = recipe.lock or from_text(record["lock"]), record["facts"] | {"locked": recipe.lock is not None}
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            path = self._facts_path(recipe)
            raise BuildFailed(f"{path} is damaged: {error}; remove it: the image is then made again") from None
        return Image(reference=str(self._path(recipe)), environment=recipe.environment, lock=lock, facts=facts)

    def why_not_made(self) -> str:
        """Return why no image can be made here; empty if one can."""
        from torchmatrix.engines.docker import containers_answer

        return "" if containers_answer() else NO_DOCKER

    def docker(self) -> "DockerEngine":
        """Return the Docker engine, which makes the images. Raises BuildFailed."""
        from torchmatrix.engines.docker import DockerEngine, connect

        if why := self.why_not_made():
            raise BuildFailed(why)
        return DockerEngine(connect())

    def leftovers(self, keep: Collection[str]) -> Iterator[Leftover]:
        """Yield the images of environments that are not in `keep`."""
        environments = {path: path.stem.rpartition("-")[2] for path in self._folder.glob(f"[!.]*{self._ending}")}
        return processes.left_files("image", environments, keep)

    def remove(self, name: str) -> str | None:
        """Remove an image and its facts; return why that could not be done."""
        return processes.remove_unused(Path(name), Path(name).with_suffix(".json"))

    def _make(self, recipe: Recipe, log: Log) -> None:
        made = self.docker().build_environment(recipe, log)
        path = self._path(recipe)
        part = path.with_name(f".{path.name}.part")
        try:
            self._convert_image(str(made.facts["tag"]), part, log)
            with part.open("rb") as file:
                facts: dict[str, Any] = {**made.facts, "file": str(path), "file_sha256": sha256_of(file)}
            part.replace(path)
            content = {"facts": facts, "lock": made.lock.text if made.lock else ""}
            write_whole(self._facts_path(recipe), json.dumps(content).encode())
        except OSError as error:
            raise BuildFailed(f"{error.filename or path}: {error.strerror}") from None
        finally:
            part.unlink(missing_ok=True)

    def _convert_image(self, tag: str, part: Path, log: Log) -> None:
        part.unlink(missing_ok=True)  # left by an attempt that was killed
        with scratch() as folder:
            variables = dict.fromkeys(_TEMPORARY, str(folder)) | os.environ | {OWNER_VARIABLE: self._owner}
            returncode, lines = packages.run_logged(self._convert(tag, part), log, variables, self._folder)
        if returncode or not part.exists():
            errors = [line for line in lines if "FATAL" in line or "ERROR" in line.upper()] or lines
            raise BuildFailed(f"{tag} can't be made a file: {errors[-1] if errors else f'exit code {returncode}'}")

    def _path(self, recipe: Recipe) -> Path:
        return self._folder / f"{recipe.stack}-{recipe.environment}{self._ending}"

    def _facts_path(self, recipe: Recipe) -> Path:
        return self._path(recipe).with_suffix(".json")


class Program(Protocol):
    """A program that runs image files. `ending`: of their names, such as .sif."""

    name: str
    ending: str

    def version(self) -> str:
        """Return the version that users know, such as 1.4.5. Raises EngineUnusable."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return further facts about the program for the record."""
        ...

    def conversion(self, tag: str, path: Path) -> list[str]:
        """Return the command that writes one of Docker's images as a file."""
        ...

    def why_unlimited(self) -> str:
        """Return why launches can't be put into our own control group; empty if they can be."""
        ...

    def isolation(self, image: str, spec: LaunchSpec) -> Isolation:
        """Return what a launch shares with the machine."""
        ...

    def command_prefix(self, image: str, spec: LaunchSpec, scratch: Path, binds: Sequence[str], shared: Isolation) -> list[str]:
        """Return the command prefix that runs a program in the image, in an isolated container with `scratch` as /tmp and home.

        `binds`: folders and files of the machine, as source:target or source:target:ro.
        """
        ...


class FileEngine:
    """An engine whose images and compile caches are in `folder`. `owner` marks the processes that it starts."""

    capabilities = Capabilities(runs_images=True, isolates=True, build_seconds=600.0)
    store = None

    def __init__(self, folder: Path, owner: str, program: Program) -> None:
        self.name = program.name
        self._program = program
        self._resources = LaunchResources(folder)
        self._images = ImageFiles(folder, program.ending, program.conversion, owner)

    def facts(self) -> dict[str, Any]:
        """Return the version, and the program's own facts, for the record."""
        return {"engine": self.name, "version": self.version(), **self._program.facts()}

    def version(self) -> str:
        """Return the program's version."""
        return self._program.version()

    def machine(self, here: Host) -> Host:
        """Return this machine."""
        return here

    def disk(self) -> Disk | None:
        """Return the disk of the engine's folder."""
        return self._resources.disk()

    def why_unlimited(self) -> str:
        """Return why no control groups can be made here."""
        return self._program.why_unlimited() or self._resources.groups.why_not

    def why_not_built(self) -> str:
        """Return why no image can be made here."""
        return self._images.why_not_made()

    def is_ready(self, recipe: Recipe) -> bool:
        """Check whether the image file is there."""
        return self._images.has(recipe)

    def is_stored(self, recipe: Recipe) -> bool:
        """Check whether the image file is there: it exists as a whole or not at all."""
        return self._images.has(recipe)

    def platform(self) -> str:
        """Return the platform of this machine."""
        return PLATFORM

    def resolve(self, recipe: Recipe, log: Log, *, fresh: bool = False) -> StackLock:
        """Resolve the recipe with Docker, which knows the base's digest. Raises BuildFailed."""
        return self._images.docker().resolve(recipe, log, fresh=fresh)

    def build(self, recipe: Recipe, log: Log) -> Image:
        """Let Docker build the environment and convert it to a file, or reuse the file. Raises BuildFailed."""
        return self._images.image(recipe, log)

    def sizes(self, images: Sequence[Image]) -> list[tuple[int, int]]:
        """Return the sizes of the files, which share nothing."""
        return [(size, size) for size in (Path(image.reference).stat().st_size for image in images)]

    def rebuild(self, recipe: Recipe, lock: StackLock, folder: Path) -> None:
        """Return None: the command of a launch names the file."""
        return None

    def start(self, image: Image, spec: LaunchSpec) -> LocalExecution:
        """Prepare an execution in a container of its own. Raises LaunchFailed if this machine can't prepare one."""
        with ExitStack() as held:
            try:
                scratch = held.enter_context(files.scratch())
                shared = self._program.isolation(image.reference, spec)
                program = bench_command("python3", str(WORKLOAD_FOLDER / spec.program), spec, self._resources.port())
            except (OSError, subprocess.SubprocessError) as error:
                raise LaunchFailed(with_hint(f"its container can't be prepared: {error}")) from None
            program += spec.model_flags(MODEL_FOLDER)
            cache = self._resources.compile_cache(image, spec)
            binds, flags = cache.container_binds(*CACHE_FOLDERS)

            def launch_command(*more: str) -> list[str]:
                prefix = self._program.command_prefix(image.reference, spec, scratch, [*binds_of(spec), *more], shared)
                return [*prefix, *program]

            limited = (
                (NOWHERE, UNLIMITED) if self._program.why_unlimited() else (self._resources.groups, self._resources.limits)
            )
            return LocalExecution(
                [*launch_command(*binds), *flags], inherited_variables([LIBRARIES]), spec.owner, cache, *limited,
                held=held.pop_all(), pasted=pasted(launch_command(), scratch), facts=shared.as_facts(),
            )  # fmt: skip

    def remove_orphans(self, owner: str) -> list[str]:
        """End this user's processes that carry the mark of `owner`; the caller holds the owner's lock."""
        return self._resources.remove_orphans(owner)

    def leftovers(self, keep: Collection[str]) -> list[Leftover]:
        """Return image files and compile caches that `keep` doesn't need."""
        return [*self._images.leftovers(keep), *self._resources.caches_left(keep)]

    def remove(self, leftover: Leftover) -> str | None:
        """Remove a file or a cache, unless another run is making it."""
        return self._images.remove(leftover.name)


def binds_of(spec: LaunchSpec) -> list[str]:
    """Return the binds of a launch, besides its compile cache: images/workload, the user's model, and the network's devices."""
    model = spec.model_file
    return [
        f"{assets.WORKLOAD}:{WORKLOAD_FOLDER}:ro",
        *([f"{model}:{MODEL_FOLDER / model.name}:ro"] if model else []),
        *(f"{path}:{path}" for path in (spec.rendezvous.devices if spec.rendezvous else ())),
    ]


# Apptainer (or Singularity): containers without a daemon, common on clusters.

APPTAINER_PROGRAMS = ("apptainer", "singularity")
"""The names of the program: Apptainer was called Singularity, and SingularityCE still is."""
APPTAINER_CLOSED = ("--containall", "--cleanenv", "--no-privs")
"""Options that keep the machine's folders, processes and variables out, and privileges too, if root runs it."""
NO_NETWORK = ("--net", "--network", "none")
_FAST = ("--mksquashfs-args", "-comp gzip -Xcompression-level 1")
"""A compression that takes a quarter of the time, for a file that is a tenth larger; every kernel and squashfuse reads it."""


def find_apptainer() -> str | None:
    """Return the path of Apptainer or Singularity; None if neither is installed."""
    return next((path for name in APPTAINER_PROGRAMS if (path := shutil.which(name))), None)


class Apptainer:
    """The program at `path`."""

    name = "apptainer"
    ending = ".sif"

    def __init__(self, path: str) -> None:
        self._path = path
        self._why_networked: str | None = None

    def version(self) -> str:
        """Return the version, such as 1.4.5. Raises EngineUnusable."""
        return _output_of(self._path, "--version").split()[-1]

    def facts(self) -> dict[str, Any]:
        """Return which program it is, and how it reads images."""
        return {"program": _output_of(self._path, "--version").split()[0], "mounts": _mount_method()}

    def conversion(self, tag: str, path: Path) -> list[str]:
        """Return the build command, which takes the image from Docker's daemon."""
        fast = _FAST if _FAST[0] in _output_of(self._path, "build", "--help") else ()
        return [self._path, "build", "--disable-cache", *fast, str(path), f"docker-daemon:{tag}"]

    def why_unlimited(self) -> str:
        """Return "": the container is a child of the command, so it can be put into a control group."""
        return ""

    def isolation(self, image: str, spec: LaunchSpec) -> Isolation:
        """Return no network, where this machine allows that: tried once; the error message of a refusal becomes the note."""
        if spec.rendezvous:
            return Isolation(network="machine")
        if self._why_networked is None:
            command = [self._path, "exec", *APPTAINER_CLOSED, *NO_NETWORK, image, "python3", "--version"]
            tried = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=600, check=False)
            errors = [line for line in tried.stderr.splitlines() if "FATAL" in line or "ERROR" in line]
            self._why_networked = errors[-1] if tried.returncode and errors else ""
        return Isolation(network="machine" if self._why_networked else "none", note=self._why_networked or None)

    def command_prefix(self, image: str, spec: LaunchSpec, scratch: Path, binds: Sequence[str], shared: Isolation) -> list[str]:
        """Return a command that isolates as Docker's container does, for the user that runs it: no privileges, nobody else's
        processes, no variables or folders but the given ones, and no network unless that is shared. Pure.
        """
        variables = workload_environment(spec.gpus.vendor, spec.rendezvous) | visible_devices(spec.gpus) | {"USER": "bench"}
        # All GPUs' devices come with the driver's libraries; a variable says which GPUs the launch uses.
        gpu_options = VENDORS[spec.gpus.vendor].apptainer if spec.gpus.vendor in VENDORS else ()
        command = [self._path, "exec", *APPTAINER_CLOSED, *(NO_NETWORK if shared.network == "none" else ())]
        command += [*gpu_options, "--home", f"{scratch}:/tmp", "--pwd", "/tmp"]
        command += [part for bind in binds for part in ("--bind", bind)]
        return [*command, *(part for key, value in variables.items() for part in ("--env", f"{key}={value}")), image]


def _mount_method() -> str:
    """Return how an ordinary user's image is read: mounted, or unpacked for each launch, which takes long for a large one."""
    if os.geteuid() == 0 or shutil.which("squashfuse") or shutil.which("squashfuse_ll"):
        return "mounted"
    return "unpacked by each launch, unless the program is installed setuid; squashfuse would mount it"


@cache
def _output_of(*command: str) -> str:
    """Return what a command prints. Raises EngineUnusable."""
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineUnusable(f"{command[0]} can't be used: {error}", hint=f"see what `{' '.join(command)}` says") from None


# Pyxis: containers as steps of a Slurm job (srun --container-image), run by Enroot.
#
# The srun of a launch is a process of this user. The processes that it starts belong to Slurm's daemon, which ends them with
# the job; they carry the launch's mark, and are ended with the launch.

PYXIS_PROGRAM = "enroot"
PYXIS_CLOSED = ("--container-readonly", "--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint")
PYXIS_SHARED = Isolation(network="machine", note="Pyxis shares the machine's network and processes with the container")
_SHELL = 'PATH=/opt/torchmatrix/bin:/opt/stack/bin:$PATH exec env "$@"'
"""The shell command in the container: Enroot's login shell has reset PATH, and Slurm's variables name the whole job's GPUs."""


def is_enroot_here() -> bool:
    """Check whether Enroot is installed."""
    return shutil.which(PYXIS_PROGRAM) is not None


class Pyxis:
    """Pyxis in a Slurm job. `job`: the variables of the job that this process is in, or those outside of jobs."""

    name = "pyxis"
    ending = ".sqsh"

    def __init__(self, job: Mapping[str, str] = os.environ) -> None:
        self._job = job

    def version(self) -> str:
        """Return Enroot's version, such as 4.1.2. Raises EngineUnusable."""
        return _output_of(PYXIS_PROGRAM, "version").strip()

    def facts(self) -> dict[str, Any]:
        """Return the program that the version belongs to."""
        return {"program": PYXIS_PROGRAM}

    def conversion(self, tag: str, path: Path) -> list[str]:
        """Return the import command, which takes the image from Docker's command line."""
        return [PYXIS_PROGRAM, "import", "--output", str(path), f"dockerd://{tag}"]

    def why_unlimited(self) -> str:
        """Return the reason: the processes in the container are no children of ours."""
        return "a launch has the limits of its Slurm job"

    def isolation(self, image: str, spec: LaunchSpec) -> Isolation:
        """Return what a launch shares. Newer releases can do without the network; whether that works depends on Enroot's hooks
        on each node.
        """
        self._remove_stale_containers()
        return PYXIS_SHARED

    def command_prefix(self, image: str, spec: LaunchSpec, scratch: Path, binds: Sequence[str], shared: Isolation) -> list[str]:
        """Return the command of a step on this node, which takes all that the job has of the node: with no folders but the
        given ones, and only the workload's variables. Pure.
        """
        command = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none"]
        command += ["--cpu-bind=none", "--kill-on-bad-exit=1"]
        command += [f"--nodelist={self._job['SLURMD_NODENAME']}"] if "SLURMD_NODENAME" in self._job else []
        command += [f"--cpus-per-task={self._job['SLURM_CPUS_ON_NODE']}"] if "SLURM_CPUS_ON_NODE" in self._job else []
        command += [f"--export={','.join(MARKS)}", f"--container-image={image}", *PYXIS_CLOSED, "--container-workdir=/tmp"]
        command += [f"--container-mounts={','.join([f'{scratch}:/tmp', *binds])}", "sh", "-c", _SHELL, "box"]
        variables = workload_environment(spec.gpus.vendor, spec.rendezvous) | visible_devices(spec.gpus)
        return [*command, *(f"{key}={value}" for key, value in (variables | {"USER": "bench", "HOME": "/tmp"}).items())]

    def _remove_stale_containers(self) -> None:
        """Remove the containers of this job that a node which died left on its disk: the job runs again under the same number,
        and Pyxis refuses to make a container that is there.
        """
        if not int(self._job.get("SLURM_RESTART_COUNT", "0")) or "SLURM_JOB_ID" not in self._job:
            return
        containers = subprocess.run(
            [PYXIS_PROGRAM, "list"], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=False
        ).stdout.split()
        for name in containers:
            if name.startswith(f"pyxis_{self._job['SLURM_JOB_ID']}."):
                subprocess.run([PYXIS_PROGRAM, "remove", "--force", name], capture_output=True, timeout=600, check=False)


# What --engine names: each takes the folder for its files and the owner of what it starts.


def apptainer(folder: Path, owner: str) -> FileEngine:
    """Return the engine of Apptainer or Singularity. Raises EngineUnusable where neither is installed."""
    program = find_apptainer()
    if program is None:
        raise EngineUnusable("there is no apptainer (or singularity) here", hint="install it, or load its module")
    return FileEngine(folder, owner, Apptainer(program))


def pyxis(folder: Path, owner: str) -> FileEngine:
    """Return the engine of Pyxis. Raises EngineUnusable where Enroot isn't installed."""
    if not is_enroot_here():
        raise EngineUnusable("there is no enroot here", hint="Pyxis needs it on each node, and where images are made")
    return FileEngine(folder, owner, Pyxis())
