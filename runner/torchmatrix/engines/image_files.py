"""Container images as plain files, for engines without a daemon: made where Docker answers, run where the folder is shared.

FOLDER/STACK-ENVIRONMENT.ENDING    the image, without the workload
FOLDER/STACK-ENVIRONMENT.json      what it is made of: written last, so that it stands for a whole image
"""

import json
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmatrix.engines import packages, processes
from torchmatrix.engines.choose import containers_answer
from torchmatrix.engines.containment import OWNER_VARIABLE
from torchmatrix.engines.engine import Image, Leftover, Log, Recipe
from torchmatrix.engines.lockfile import from_text
from torchmatrix.ground.errors import BuildFailed
from torchmatrix.ground.files import scratch, sha256_of, write_whole

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
