"""Prerequisites, looked at on this very machine with a stand-in engine: disk, built stacks, Pythons."""

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from torchmatrix.engines import recipes
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.engine import Capabilities, Recipe, disk_of
from torchmatrix.engines.local import LocalEngine
from torchmatrix.engines.recipes import find_prerequisites
from torchmatrix.matrix.matrix_file import parse
from torchmatrix.matrix.stacks import Stack
from torchmatrix.planning.fit import Disk, why_not_supplied

NOWHERE = "http://127.0.0.1:9/simple"
WHEELS = f'torch = "2.5.1"\ncpu = true\nindex = "{NOWHERE}"'


def stack_of(text: str) -> Stack:
    return parse(f'[[stack]]\n{text}\n[[workload]]\nmodel = "resnet18"\nbatch = 1\n').stacks[0]


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A stand-in for as much of an engine as `find` asks."""

    containers: bool = True
    folder: Path | None = None
    ready: bool = False
    stored: bool = False
    why_not: str = ""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(runs_images=self.containers, isolates=self.containers, build_seconds=1.0)

    def disk(self) -> Disk | None:
        return disk_of(self.folder, "buy one") if self.folder else None

    def why_not_built(self) -> str:
        return self.why_not

    def is_ready(self, recipe: Recipe) -> bool:
        return self.ready

    def is_stored(self, recipe: Recipe) -> bool:
        return self.stored


def find(engine: StandIn, stack: Stack, is_here: bool = True) -> Any:
    return find_prerequisites([stack], engine, {}, is_here)  # type: ignore[arg-type]


def test_the_disk_is_the_engines_own_and_unknown_where_it_cannot_be_seen(tmp_path: Path) -> None:
    stack = stack_of(WHEELS)
    engine = StandIn(folder=tmp_path)
    assert find(engine, stack).disk.place == str(tmp_path)
    assert find(engine, stack).disk.free_bytes > 0
    assert find(engine, stack, is_here=False).disk is None
    assert find(StandIn(folder=tmp_path / "elsewhere"), stack).disk is None
    assert find(StandIn(), stack).disk is None


@pytest.mark.parametrize(("root", "is_seen"), [("here", True), ("elsewhere", False), (None, False)])
def test_dockers_disk_is_its_data_roots_where_that_can_be_seen(tmp_path: Path, root: str | None, is_seen: bool) -> None:
    (tmp_path / "here").mkdir()
    client: Any = SimpleNamespace(version=dict, info=lambda: {"DockerRootDir": root and str(tmp_path / root)})
    disk = DockerEngine(client).disk()
    assert (disk is not None) is is_seen
    assert disk is None or (disk.place == str(tmp_path / "here") and disk.larger == "move Docker's data root to a larger disk")


def test_the_local_engines_disk_is_that_of_a_folder_still_to_be_made(tmp_path: Path) -> None:
    disk = LocalEngine(tmp_path / "not" / "yet", "").disk()
    assert disk and disk.place == str(tmp_path) and disk.larger == "set TORCHMATRIX_CACHE to a folder on a larger disk"


def test_without_containers_the_plan_says_how_to_have_them() -> None:
    prerequisites = find(StandIn(containers=False), stack_of('image = "pytorch/pytorch:2.5.1"'))
    assert not prerequisites.containers and "Docker" in prerequisites.how_to_have_containers


def test_what_is_built_is_stored_and_no_index_is_asked_for_it() -> None:
    stack = stack_of(WHEELS)
    built = find(StandIn(ready=True), stack)
    assert (built.built, built.stored, built.unreachable) == ({stack.name}, {stack.name}, set())
    layers = find(StandIn(stored=True), stack)
    assert (layers.built, layers.stored, layers.unreachable) == (set(), {stack.name}, {NOWHERE})


@pytest.mark.parametrize(
    ("python", "python_range", "variables", "lacks"),
    [
        ("3.99", None, {"UV_PYTHON_DOWNLOADS": "never"}, True),
        ("3.99", None, {"UV_PYTHON_INSTALL_MIRROR": NOWHERE}, True),
        ("3.99", None, {"UV_PYTHON_INSTALL_MIRROR": "file:///mirror"}, False),
        ("3.99", None, {"UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON_PREFERENCE": "none"}, False),  # unknown: uv can't look
        ("3.99", ">=3.10,<3.99", {"UV_PYTHON_DOWNLOADS": "never"}, False),
        (platform.python_version(), None, {"UV_PYTHON_DOWNLOADS": "never"}, False),
    ],
)
def test_a_python_is_lacking_if_it_is_neither_here_nor_to_be_downloaded(
    monkeypatch: pytest.MonkeyPatch,
    python: str,
    python_range: str | None,
    variables: dict[str, str],
    lacks: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stack = replace(stack_of(WHEELS), python=python, python_range=python_range)
    assert find(StandIn(containers=False), stack).pythonless == ({stack.name} if lacks else set())
    assert find(StandIn(), stack).pythonless == set(), "a container brings its own"


@pytest.mark.parametrize(
    ("text", "held", "stored"),
    [
        (WHEELS, [], False),
        (WHEELS, ["torchmatrix/torch2.5.1-cpu:environment-{environment}"], True),
        (WHEELS, ["torchmatrix/torch2.5.1-cpu:environment-of-another-recipe"], False),
        ('image = "pytorch/pytorch:2.5.1"', ["pytorch/pytorch:2.5.1"], True),
        ('image = "pytorch/pytorch:2.5.1"', ["pytorch/pytorch:2.4.0"], False),
    ],
)
def test_docker_has_stored_what_shares_the_environment_or_the_vendors_image(text: str, held: list[str], stored: bool) -> None:
    (recipe,) = recipes.recipes(stack_of(text))
    names = [name.format(environment=recipe.environment) for name in held]

    def get(name: str) -> str:
        if name not in names:
            raise ImageNotFound(name)
        return name

    client: Any = SimpleNamespace(version=dict, images=SimpleNamespace(get=get))
    assert DockerEngine(client).is_stored(recipe) is stored


def test_an_engine_that_only_runs_what_was_built_elsewhere_skips_the_rest_and_asks_no_index() -> None:
    stack = stack_of(WHEELS)
    lacking = find(StandIn(why_not="no Docker answers here"), stack)
    assert lacking.unreachable == frozenset()
    why = why_not_supplied(stack, lacking)
    assert why and why.reason == "isn't built, and no Docker answers here" and "TORCHMATRIX_CACHE" in why.fix
    there = find(StandIn(why_not="no Docker answers here", ready=True), stack)
    assert why_not_supplied(stack, there) is None
