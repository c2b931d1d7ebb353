"""What there is to run with, looked at on this very machine with a stand-in engine: disk, built stacks, Pythons."""

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from torchmatrix.engines import recipes, supplies
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.engine import Recipe
from torchmatrix.matrix.matrix_file import parse
from torchmatrix.matrix.stacks import Stack

NOWHERE = "http://127.0.0.1:9/simple"
WHEELS = f'torch = "2.5.1"\ncpu = true\nindex = "{NOWHERE}"'


def stack_of(text: str) -> Stack:
    return parse(f'[[stack]]\n{text}\n[[workload]]\nmodel = "resnet18"\nbatch = 1\n').stacks[0]


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """As much of an engine as `find` asks."""

    name: str = "docker"
    root: str | None = None
    ready: bool = False
    stored: bool = False

    def facts(self) -> dict[str, Any]:
        return {"DockerRootDir": self.root}

    def is_ready(self, recipe: Recipe) -> bool:
        return self.ready

    def is_stored(self, recipe: Recipe) -> bool:
        return self.stored


def find(engine: StandIn, stack: Stack, folder: Path, is_here: bool = True) -> Any:
    return supplies.find([stack], engine, {}, folder, is_here)  # type: ignore[arg-type]


def test_the_disk_is_the_engines_own_and_unknown_where_it_cannot_be_seen(tmp_path: Path) -> None:
    stack = stack_of(WHEELS)
    docker = StandIn(root=str(tmp_path))
    assert find(docker, stack, Path("/")).disk.place == str(tmp_path)
    assert find(docker, stack, Path("/")).disk.free_bytes > 0
    assert find(docker, stack, Path("/"), is_here=False).disk is None
    assert find(StandIn(root=str(tmp_path / "elsewhere")), stack, Path("/")).disk is None
    assert find(StandIn(root=None), stack, Path("/")).disk is None
    local = find(StandIn(name="local"), stack, tmp_path / "not" / "yet")
    assert local.disk.place == str(tmp_path) and not local.containers


def test_what_is_built_is_stored_and_no_index_is_asked_for_it(tmp_path: Path) -> None:
    stack = stack_of(WHEELS)
    built = find(StandIn(ready=True), stack, tmp_path)
    assert (built.built, built.stored, built.unreachable) == ({stack.name}, {stack.name}, set())
    layers = find(StandIn(stored=True), stack, tmp_path)
    assert (layers.built, layers.stored, layers.unreachable) == (set(), {stack.name}, {NOWHERE})


@pytest.mark.parametrize(
    ("python", "python_range", "variables", "lacks"),
    [
        ("3.99", None, {"UV_PYTHON_DOWNLOADS": "never"}, True),
        ("3.99", None, {"UV_PYTHON_INSTALL_MIRROR": NOWHERE}, True),
        ("3.99", None, {"UV_PYTHON_INSTALL_MIRROR": "file:///mirror"}, False),
        ("3.99", ">=3.10,<3.99", {"UV_PYTHON_DOWNLOADS": "never"}, False),
        (platform.python_version(), None, {"UV_PYTHON_DOWNLOADS": "never"}, False),
    ],
)
def test_a_python_is_lacking_if_it_is_neither_here_nor_to_be_downloaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    python: str,
    python_range: str | None,
    variables: dict[str, str],
    lacks: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stack = replace(stack_of(WHEELS), python=python, python_range=python_range)
    assert find(StandIn(name="local"), stack, tmp_path).pythonless == ({stack.name} if lacks else set())
    assert find(StandIn(), stack, tmp_path).pythonless == set(), "a container brings its own"


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

    client: Any = SimpleNamespace(images=SimpleNamespace(get=get))
    assert DockerEngine(client).is_stored(recipe) is stored
