"""The engine whose images are files (image_files.py): what its programs have in common; apptainer.py and pyxis.py are those.

A launch is a process of this user, as with the local engine, and ends with all that it started.
"""

import subprocess
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from torchmatrix.engines.commands import CACHE_FOLDERS, MODEL_FOLDER, WORKLOAD_FOLDER, Isolation, bench_command, pasted
from torchmatrix.engines.engine import Capabilities, Image, LaunchSpec, Leftover, Log, Recipe
from torchmatrix.engines.hints import with_hint
from torchmatrix.engines.image_files import ImageFiles
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.engines.own_processes import PLATFORM, OwnProcesses
from torchmatrix.engines.processes import NOWHERE, UNLIMITED, LocalExecution
from torchmatrix.engines.supervised import LIBRARIES, inherited
from torchmatrix.ground import assets, files
from torchmatrix.ground.errors import LaunchFailed
from torchmatrix.machine.host import Host
from torchmatrix.planning.fit import Disk


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
                [*command(*binds), *flags], inherited([LIBRARIES]), spec.owner, cache, *limited,
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
