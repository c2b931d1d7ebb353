"""The engine whose images are files (image_files.py): what its programs have in common; apptainer.py and pyxis.py are those.

A launch is a process of this user, as with the local engine, and ends with all that it started.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torchmatrix.core import assets, files
from torchmatrix.core.errors import BuildFailed, EngineUnusable, LaunchFailed
from torchmatrix.core.files import scratch, sha256_of, write_whole
from torchmatrix.engines import packages, processes
from torchmatrix.engines.choose import containers_answer
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
    box_environment,
    pasted,
    visible_devices,
    with_hint,
)
from torchmatrix.engines.lockfile import StackLock, from_text
from torchmatrix.engines.processes import MARKS, NOWHERE, PLATFORM, UNLIMITED, LocalExecution, OwnProcesses
from torchmatrix.machine.host import Host
from torchmatrix.planning.fit import Disk

# Container images as plain files, for engines without a daemon: made where Docker answers, run where the folder is shared.
#
# FOLDER/STACK-ENVIRONMENT.ENDING the image, without the workload FOLDER/STACK-ENVIRONMENT.json what it is made of: written
# last, so that it stands for a whole image

if TYPE_CHECKING:
    from torchmatrix.engines.docker import DockerEngine

Convert = Callable[[str, Path], list[str]]
"""(the tag of one of Docker's images, a path) -> the command that writes that image as a file there."""
_TEMPORARY = ("APPTAINER_TMPDIR", "SINGULARITY_TMPDIR", "ENROOT_TEMP_PATH")
"""Where these programs unpack an image, which a killed one leaves."""
NO_DOCKER = "no Docker answers here, which makes its images"


class ImageFiles:
    """`folder`: where they are. `ending`: of their names, such as .sif. `owner`: marks what makes them."""

    def __init__(self, folder: Path, ending: str, convert: Convert, owner: str) -> None:
        self._folder, self._ending, self._convert, self._owner = folder, ending, convert, owner

    def has(self, recipe: Recipe) -> bool:
        """Whether the image is there, whole."""
        return self._facts_of(recipe).exists() and self._path(recipe).exists()

    def image(self, recipe: Recipe, log: Log) -> Image:
        """The image, which is made if it isn't there. Raises BuildFailed."""
        if not self.has(recipe):
            with processes.alone(self._path(recipe)):
                if not self.has(recipe):
                    self._make(recipe, log)
        try:
            said = json.loads(self._facts_of(recipe).read_bytes())
            lock, facts = recipe.lock or from_text(said["lock"]), said["facts"] | {"locked": recipe.lock is not None}
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            place = self._facts_of(recipe)
            raise BuildFailed(f"{place} is damaged: {error}; remove it: the image is then made again") from None
        return Image(reference=str(self._path(recipe)), environment=recipe.environment, lock=lock, facts=facts)

    def why_not_made(self) -> str:
        """Why no image can be made here; empty if one can."""
        return "" if containers_answer() else NO_DOCKER

    def docker(self) -> "DockerEngine":
        """Docker, which makes the images. Raises BuildFailed."""
        from torchmatrix.engines.docker import DockerEngine, connect

        if why := self.why_not_made():
            raise BuildFailed(why)
        return DockerEngine(connect())

    def left(self, keep: Collection[str]) -> Iterator[Leftover]:
        """Those of environments that are not in `keep`."""
        found = {path: path.stem.rpartition("-")[2] for path in self._folder.glob(f"[!.]*{self._ending}")}
        return processes.left_files("image", found, keep)

    def remove(self, name: str) -> str | None:
        """Remove an image and its facts; returns why that could not be done."""
        return processes.remove_unused(Path(name), Path(name).with_suffix(".json"))

    def _make(self, recipe: Recipe, log: Log) -> None:
        docker = self.docker()
        made = docker.build_environment(recipe, log)
        path = self._path(recipe)
        part = path.with_name(f".{path.name}.part")
        try:
            self._written(str(made.facts["tag"]), part, log)
            with part.open("rb") as file:
                facts: dict[str, Any] = {**made.facts, "file": str(path), "file_sha256": sha256_of(file)}
            part.replace(path)
            content = {"facts": facts, "lock": made.lock.text if made.lock else ""}
            write_whole(self._facts_of(recipe), json.dumps(content).encode())
        except OSError as error:
            raise BuildFailed(f"{error.filename or path}: {error.strerror}") from None
        finally:
            part.unlink(missing_ok=True)

    def _written(self, tag: str, part: Path, log: Log) -> None:
        part.unlink(missing_ok=True)  # of a try that was killed
        with scratch() as folder:
            variables = dict.fromkeys(_TEMPORARY, str(folder)) | os.environ | {OWNER_VARIABLE: self._owner}
            returncode, lines = packages.run_logged(self._convert(tag, part), log, variables, self._folder)
        if returncode or not part.exists():
            said = [line for line in lines if "FATAL" in line or "ERROR" in line.upper()] or lines
            raise BuildFailed(f"{tag} can't be made a file: {said[-1] if said else f'exit code {returncode}'}")

    def _path(self, recipe: Recipe) -> Path:
        return self._folder / f"{recipe.stack}-{recipe.environment}{self._ending}"

    def _facts_of(self, recipe: Recipe) -> Path:
        return self._path(recipe).with_suffix(".json")


class Program(Protocol):
    """What runs images that are files. `ending`: of their names, such as .sif."""

    name: str
    ending: str

    def version(self) -> str:
        """The version that users know, such as 1.4.5. Raises EngineUnusable."""
        ...

    def facts(self) -> dict[str, Any]:
        """What else belongs into the record."""
        ...

    def conversion(self, tag: str, path: Path) -> list[str]:
        """The command that writes one of Docker's images as a file."""
        ...

    def why_unlimited(self) -> str:
        """Why launches are in no control group of ours; empty if they can be."""
        ...

    def isolation(self, image: str, spec: LaunchSpec) -> Isolation:
        """What a launch shares with the machine."""
        ...

    def box(self, image: str, spec: LaunchSpec, scratch: Path, binds: Sequence[str], shared: Isolation) -> list[str]:
        """What stands before a program that runs in the image: a closed box, with `scratch` as /tmp and home.

        `binds`: folders and files of the machine, as source:target or source:target:ro.
        """
        ...


class FileEngine:
    """`folder`: of its images and compile caches. `owner`: marks what it starts."""

    capabilities = Capabilities(runs_images=True, isolates=True, build_seconds=600.0)
    store = None

    def __init__(self, folder: Path, owner: str, program: Program) -> None:
        self.name = program.name
        self._program = program
        self._own = OwnProcesses(folder)
        self._images = ImageFiles(folder, program.ending, program.conversion, owner)

    def facts(self) -> dict[str, Any]:
        """Version, and what the program says of itself, for the record."""
        return {"engine": self.name, "version": self.version(), **self._program.facts()}

    def version(self) -> str:
        """The program's."""
        return self._program.version()

    def machine(self, here: Host) -> Host:
        """This machine."""
        return here

    def disk(self) -> Disk | None:
        """That of its folder."""
        return self._own.disk()

    def why_unlimited(self) -> str:
        """Why no control groups can be made here."""
        return self._program.why_unlimited() or self._own.groups.why_not

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
        return [(size, size) for size in (Path(image.reference).stat().st_size for image in images)]

    def rebuild(self, recipe: Recipe, lock: StackLock, folder: Path) -> None:
        """None: the command of a launch names the file."""
        return None

    def start(self, image: Image, spec: LaunchSpec) -> LocalExecution:
        """An execution in a container of its own. Raises LaunchFailed if this machine can't prepare one."""
        with ExitStack() as held:
            try:
                scratch = held.enter_context(files.scratch())
                shared = self._program.isolation(image.reference, spec)
                program = bench_command("python3", str(WORKLOAD_FOLDER / spec.program), spec, self._own.port())
            except (OSError, subprocess.SubprocessError) as error:
                raise LaunchFailed(with_hint(f"its container can't be prepared: {error}")) from None
            program += spec.model_flags(MODEL_FOLDER)
            cache = self._own.compile_cache(image, spec)
            binds, flags = cache.bound(*CACHE_FOLDERS)

            def command(*more: str) -> list[str]:
                return [*self._program.box(image.reference, spec, scratch, [*binds_of(spec), *more], shared), *program]

            limited = (NOWHERE, UNLIMITED) if self._program.why_unlimited() else (self._own.groups, self._own.limits)
            return LocalExecution(
                [*command(*binds), *flags], inherited_variables([LIBRARIES]), spec.owner, cache, *limited,
                held=held.pop_all(), pasted=pasted(command(), scratch), facts=shared.as_facts(),
            )  # fmt: skip

    def remove_orphans(self, owner: str) -> list[str]:
        """End this user's processes that carry the mark of `owner`; the caller holds the owner's lock."""
        return self._own.remove_orphans(owner)

    def leftovers(self, keep: Collection[str]) -> list[Leftover]:
        """Its files and compile caches."""
        return [*self._images.left(keep), *self._own.caches_left(keep)]

    def remove(self, leftover: Leftover) -> str | None:
        """Remove a file or a cache, unless another run is making it."""
        return self._images.remove(leftover.name)


def binds_of(spec: LaunchSpec) -> list[str]:
    """What of the machine a launch needs inside, beside its compile cache: images/workload, the user's model, the network."""
    model = spec.model_file
    return [
        f"{assets.WORKLOAD}:{WORKLOAD_FOLDER}:ro",
        *([f"{model}:{MODEL_FOLDER / model.name}:ro"] if model else []),
        *(f"{path}:{path}" for path in (spec.meeting.devices if spec.meeting else ())),
    ]


# Apptainer (or Singularity): containers without a daemon, as clusters have them.

APPTAINER_PROGRAMS = ("apptainer", "singularity")
"""The names of the program: Apptainer was called Singularity, and SingularityCE still is."""
APPTAINER_CLOSED = ("--containall", "--cleanenv", "--no-privs")
"""Nothing of the machine inside: no folders, processes, variables; and no privileges, if root runs it."""
NO_NETWORK = ("--net", "--network", "none")
GPUS = {"nvidia": ("--nv",), "amd": ("--rocm",)}
"""They bring the driver's libraries and all GPUs' devices; a variable says which GPUs the launch uses."""
_FAST = ("--mksquashfs-args", "-comp gzip -Xcompression-level 1")
"""Takes a quarter of the time, for a file that is a tenth larger; every kernel and squashfuse reads it."""


def find_apptainer() -> str | None:
    """The program, if it is here."""
    return next((found for name in APPTAINER_PROGRAMS if (found := shutil.which(name))), None)


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
            words = [self._path, "exec", *APPTAINER_CLOSED, *NO_NETWORK, image, "python3", "--version"]
            tried = subprocess.run(words, capture_output=True, encoding="utf-8", errors="replace", timeout=600, check=False)
            said = [line for line in tried.stderr.splitlines() if "FATAL" in line or "ERROR" in line]
            self._why_networked = said[-1] if tried.returncode and said else ""
        return Isolation(network="machine" if self._why_networked else "none", note=self._why_networked or None)

    def box(self, image: str, spec: LaunchSpec, scratch: Path, binds: Sequence[str], shared: Isolation) -> list[str]:
        """As closed as Docker's, of the user that runs it: no privileges, nobody else's processes, no variables or folders but
        the given ones, and no network unless that is shared. Pure.
        """
        variables = box_environment(spec.gpus.vendor, spec.meeting) | visible_devices(spec.gpus) | {"USER": "bench"}
        words = [self._path, "exec", *APPTAINER_CLOSED, *(NO_NETWORK if shared.network == "none" else ())]
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


# Pyxis: containers as steps of a Slurm job (srun --container-image), run by Enroot.
#
# The srun of a launch is a process of this user. What it starts belongs to Slurm's daemon, which ends it with the job; it
# carries the launch's mark, and is ended with the launch.

PYXIS_PROGRAM = "enroot"
PYXIS_CLOSED = ("--container-readonly", "--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint")
PYXIS_SHARED = Isolation(network="machine", note="Pyxis shares the machine's network and processes with the container")
_SHELL = 'PATH=/opt/torchmatrix/bin:/opt/stack/bin:$PATH exec env "$@"'
"""Inside: a login shell of Enroot's has reset PATH, and Slurm has said which GPUs the whole job has."""


def is_enroot_here() -> bool:
    """Whether Enroot is."""
    return shutil.which(PYXIS_PROGRAM) is not None


class Pyxis:
    """`job`: the variables of the job that this process is in, or those outside of jobs."""

    name = "pyxis"
    ending = ".sqsh"

    def __init__(self, job: Mapping[str, str] = os.environ) -> None:
        self._job = job

    def version(self) -> str:
        """Enroot's, such as 4.1.2. Raises EngineUnusable."""
        try:
            said = subprocess.run(
                [PYXIS_PROGRAM, "version"], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise EngineUnusable(
                f"{PYXIS_PROGRAM} can't be used: {error}", hint=f"see what `{PYXIS_PROGRAM} version` says"
            ) from None
        return said.strip()

    def facts(self) -> dict[str, Any]:
        """Whose version it is."""
        return {"program": PYXIS_PROGRAM}

    def conversion(self, tag: str, path: Path) -> list[str]:
        """Docker's command line gives the image."""
        return [PYXIS_PROGRAM, "import", "--output", str(path), f"dockerd://{tag}"]

    def why_unlimited(self) -> str:
        """What runs is no child of ours."""
        return "a launch has the limits of its Slurm job"

    def isolation(self, image: str, spec: LaunchSpec) -> Isolation:
        """Newer releases can do without the network; whether that works depends on each node's hooks of Enroot's."""
        self._remove_earlier_life()
        return PYXIS_SHARED

    def box(self, image: str, spec: LaunchSpec, scratch: Path, binds: Sequence[str], shared: Isolation) -> list[str]:
        """A step on this node, which takes what the job has of it: with no folders but the given ones, and the box's variables
        alone. Pure.
        """
        words = [
            "srun",
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            "--mem=0",
            "--mpi=none",
            "--cpu-bind=none",
            "--kill-on-bad-exit=1",
        ]
        words += [f"--nodelist={self._job['SLURMD_NODENAME']}"] if "SLURMD_NODENAME" in self._job else []
        words += [f"--cpus-per-task={self._job['SLURM_CPUS_ON_NODE']}"] if "SLURM_CPUS_ON_NODE" in self._job else []
        words += [f"--export={','.join(MARKS)}", f"--container-image={image}", *PYXIS_CLOSED, "--container-workdir=/tmp"]
        words += [f"--container-mounts={','.join([f'{scratch}:/tmp', *binds])}", "sh", "-c", _SHELL, "box"]
        variables = box_environment(spec.gpus.vendor, spec.meeting) | visible_devices(spec.gpus)
        return [*words, *(f"{key}={value}" for key, value in (variables | {"USER": "bench", "HOME": "/tmp"}).items())]

    def _remove_earlier_life(self) -> None:
        """Remove the containers of this job that a node which died left on its disk: the job runs again under the same number,
        and Pyxis refuses to make a container that is there.
        """
        if not int(self._job.get("SLURM_RESTART_COUNT", "0")) or "SLURM_JOB_ID" not in self._job:
            return
        there = subprocess.run(
            [PYXIS_PROGRAM, "list"], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=False
        ).stdout.split()
        for name in there:
            if name.startswith(f"pyxis_{self._job['SLURM_JOB_ID']}."):
                subprocess.run([PYXIS_PROGRAM, "remove", "--force", name], capture_output=True, timeout=600, check=False)
