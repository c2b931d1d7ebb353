"""Run launches without containers: in one virtualenv per stack under a cache folder, or an interpreter that has PyTorch."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torchmatrix.core import __version__, assets, settings
from torchmatrix.core.errors import BadInput, BuildFailed
from torchmatrix.core.files import write_whole
from torchmatrix.core.formatting import clipped
from torchmatrix.engines import containment, packages, processes
from torchmatrix.engines.containment import LIBRARIES, OWNER_VARIABLE, changes_results, inherited_variables, withheld_variables
from torchmatrix.engines.engine import (
    Capabilities,
    Image,
    Isolation,
    LaunchSpec,
    Leftover,
    Log,
    Recipe,
    bench_command,
    requested_lock,
    visible_devices,
    workload_environment,
)
from torchmatrix.engines.lockfile import StackLock, of_stack
from torchmatrix.engines.processes import PLATFORM, LaunchResources, LocalExecution
from torchmatrix.machine.host import Host
from torchmatrix.planning.fit import Disk

_VERSION = "import platform, sys; sys.stdout.buffer.write(platform.python_version().encode())"
INSPECTION_SECONDS = 300.0
NOT_STARTED = 127
"""The exit code of a supervisor whose command can't be started, as of a shell."""


class LocalEngine:
    """Runs launches as processes of this user. `cache`: the folder of virtualenvs and compile caches."""

    name = "local"
    capabilities = Capabilities(runs_images=False, isolates=False, build_seconds=90.0)
    store = None

    def __init__(self, cache: Path, owner: str) -> None:
        self._cache = cache
        self._owner = owner
        self._resources = LaunchResources(cache)

    def facts(self) -> dict[str, Any]:
        """Return engine and version, for the record."""
        return {"engine": self.name, "version": __version__}

    def version(self) -> str:
        """Return this tool's own version."""
        return __version__

    def machine(self, here: Host) -> Host:
        """Return this machine."""
        return here

    def disk(self) -> Disk | None:
        """Return the disk of the cache folder, or of the folder that will contain it."""
        return self._resources.disk()

    def why_not_built(self) -> str:
        """Return "": nothing keeps the engine from building."""
        return ""

    def is_ready(self, recipe: Recipe) -> bool:
        """Check whether a virtualenv's mark, which is written last, or an interpreter exists."""
        if recipe.source == "interpreter":
            return Path(recipe.arguments["PYTHON"]).exists()
        return self._mark(recipe).exists() and (self._venv(recipe) / "bin" / "python").exists()

    def is_stored(self, recipe: Recipe) -> bool:
        """Check as `is_ready` does: a virtualenv exists completely or not at all."""
        return self.is_ready(recipe)

    def build(self, recipe: Recipe, log: Log) -> Image:
        """Make the virtualenv (or check the interpreter). Raises BuildFailed with the last lines of the log."""
        if recipe.source == "image":
            raise BuildFailed("a vendor's image needs a container engine")
        lock = None
        if recipe.source == "interpreter":
            python = recipe.arguments["PYTHON"]
        else:
            python = str(self._venv(recipe) / "bin" / "python")
            make = partial(self._make_virtualenv, recipe, log)
            self._resources.uses.make(self._venv(recipe), partial(self.is_ready, recipe), make)
            try:
                lock = of_stack(self._mark(recipe))
            except BadInput as why:
                raise BuildFailed(f"{why}; remove {self._venv(recipe)}, and it is made again") from None
        facts = {
            "kind": recipe.source,
            "index": recipe.index,
            "requires": recipe.requires,
            "lock_sha256": lock.sha256 if lock else None,
            "locked": recipe.lock is not None,
        }
        if recipe.source == "interpreter":
            facts |= _inspect_interpreter(python)
        return Image(reference=python, environment=recipe.environment, lock=lock, facts=facts)

    def platform(self) -> str:
        """Return the platform of this machine."""
        return PLATFORM

    def resolve(self, recipe: Recipe, log: Log, *, fresh: bool = False) -> StackLock:
        """Resolve every package, for the recipe's own Python on this machine. Raises BuildFailed."""
        if recipe.source != "wheels":
            raise BuildFailed("needs a container engine, which knows the image's digest")
        resolved = packages.resolve(recipe.requires, str(recipe.index), str(recipe.python), log, PLATFORM)
        return replace(requested_lock(recipe, PLATFORM), packages=resolved)

    def sizes(self, images: Sequence[Image]) -> list[tuple[int, int]] | None:
        """Return None: uv links the files of virtualenvs to its own cache."""
        return None

    def rebuild(self, recipe: Recipe, lock: StackLock, folder: Path) -> None:
        """Return None: the command of a launch names the virtualenv's Python."""
        return None

    def start(self, image: Image, spec: LaunchSpec) -> LocalExecution:
        """Prepare an execution of the workload under the image's Python."""
        # The user's variables that reach a launch: those of the settings, and what a user's own interpreter may need.
        names = (*settings.load().variables, *(() if image.lock else (LIBRARIES,)))
        cache = self._resources.compile_cache(image, replace(spec, cache=_cache_name(spec.cache, names)))
        command = bench_command(image.reference, str(assets.WORKLOAD / spec.program), spec, self._resources.port())
        variables = (
            inherited_variables(names) | workload_environment(spec.gpus.vendor, spec.rendezvous) | visible_devices(spec.gpus)
        )
        model_flags = spec.model_flags(spec.model_file.parent) if spec.model_file else ()
        return LocalExecution(
            [*command, *model_flags, *cache.flags], variables, spec.owner, cache, self._resources.groups,
            self._resources.limits, scratch=True,
            facts=Isolation(network="machine").as_facts() | _variable_facts(names),
        )  # fmt: skip

    def why_unlimited(self) -> str:
        """Return why no control groups can be made here."""
        return self._resources.groups.why_not

    def remove_orphans(self, owner: str) -> list[str]:
        """End this user's processes that carry the mark of `owner`, and its groups; the caller holds the owner's lock."""
        return self._resources.remove_orphans(owner)

    def leftovers(self, keep: Collection[str]) -> list[Leftover]:
        """Return virtualenvs and compile caches under the cache folder that `keep` doesn't need."""
        stacks = {path: path.name.rpartition("-")[2] for path in (self._cache / "stacks").glob("[!.]*")}
        return [*processes.left_files("virtualenv", stacks, keep), *self._resources.caches_left(keep)]

    def remove(self, leftover: Leftover) -> str | None:
        """Remove the folder, unless a run makes it or uses it."""
        return processes.remove_unused(Path(leftover.name))

    def _uv(self, arguments: list[str], log: Log) -> list[str]:
        """Run uv, marked as ours. Raises BuildFailed with uv's own message."""
        return packages.run_uv(arguments, log, {OWNER_VARIABLE: self._owner})

    def _create_virtualenv(self, venv: Path, recipe: Recipe, log: Log) -> None:
        """Try the stack's own Python version first; then any suitable one, unless the user or a lock insists on it."""
        ranges = () if recipe.lock else (recipe.python_range,)
        requests = [request for request in (recipe.python, *ranges) if request]
        for request in requests:
            try:
                self._uv(["venv", "--no-project", "--python", request, str(venv)], log)
                return
            except BuildFailed:
                if request == requests[-1]:
                    raise

    def _venv(self, recipe: Recipe) -> Path:
        return self._cache / "stacks" / f"{recipe.stack}-{recipe.environment}"

    def _mark(self, recipe: Recipe) -> Path:
        return self._venv(recipe) / "torchmatrix-lock.toml"

    def _make_virtualenv(self, recipe: Recipe, log: Log) -> None:
        venv = self._venv(recipe)
        shutil.rmtree(venv, ignore_errors=True)
        python = str(venv / "bin" / "python")
        try:
            self._create_virtualenv(venv, recipe, log)
            lock = recipe.lock or self._resolve_for(recipe, python, log)
            requirements = venv / "torchmatrix-requirements.txt"
            requirements.write_text("".join(f"{line}\n" for line in lock.packages), encoding="utf-8")
            options = ["--python", python, "--no-deps", *packages.WHEELS_ONLY, "--requirement", str(requirements)]
            options += ["--compile-bytecode"]  # the workload writes none, and each process would compile all that it imports
            self._uv(["pip", "install", *options, *packages.index_options(str(recipe.index))], log)
            write_whole(self._mark(recipe), lock.text.encode())  # a virtualenv with a mark is a ready one
        except OSError as error:
            shutil.rmtree(venv, ignore_errors=True)
            raise BuildFailed(f"can't write {venv}: {error.strerror}") from None
        except BuildFailed:
            shutil.rmtree(venv, ignore_errors=True)
            raise

    def _resolve_for(self, recipe: Recipe, python: str, log: Log) -> StackLock:
        """Resolve the recipe for an interpreter of this machine."""
        resolved = packages.resolve(recipe.requires, str(recipe.index), python, log)
        version = subprocess.run(
            [python, "-c", _VERSION], capture_output=True, encoding="utf-8", errors="replace", check=True
        ).stdout.strip()
        return replace(requested_lock(recipe, PLATFORM), python=version, packages=resolved)


def _cache_name(name: str, names: Sequence[str]) -> str:
    """Return the name of a launch's compile cache: another one where variables reach it that change results."""
    passed = {key: value for key, value in sorted(inherited_variables(names).items()) if changes_results(key)}
    if not name or not passed:
        return name
    return f"{name}-{hashlib.sha256(repr(passed).encode(errors='surrogateescape')).hexdigest()[:6]}"


def _variable_facts(names: Sequence[str]) -> dict[str, Any]:
    """Name the user's variables that change results: which reach a launch, which don't."""
    facts = {"passed": sorted(filter(changes_results, inherited_variables(names))), "withheld": withheld_variables(names)}
    return {"variables": facts} if any(facts.values()) else {}


def _inspect_interpreter(python: str) -> dict[str, Any]:
    """Return the versions of an existing interpreter and its torch. Raises BuildFailed if it isn't a Python with torch."""
    code = (
        "import json,torch,sys; told = {'torch': torch.__version__, 'python': sys.version.split()[0]}; "
        "sys.stdout.flush(); sys.stdout.buffer.write(b'\\n' + json.dumps(told).encode() + b'\\n')"
    )  # in UTF-8, whatever PYTHONIOENCODING says
    try:
        returncode, output = containment.answer_of([python, "-c", code], INSPECTION_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"{python} can't be run: {error}") from None
    lines = output.strip().splitlines() or ["no output"]
    if returncode == NOT_STARTED:
        raise BuildFailed(f"{python} can't be run: {clipped(lines[-1].rpartition(': ')[2])}")
    if returncode:
        raise BuildFailed(f"{python} has no usable torch: {clipped(lines[-1])}")
    for line in reversed(lines):  # a site's own hooks may print further lines at the end
        with suppress(ValueError, RecursionError):
            versions = json.loads(line)
            if isinstance(versions, dict) and versions.keys() == {"torch", "python"}:
                return versions
    raise BuildFailed(f"{python} is no Python: it ended without a word on its torch")
