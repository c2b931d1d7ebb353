"""A real stack: torch 2.5.1 with torchvision and transformers, built once per machine by the tool's own local engine; and a
real container engine."""

import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from support import REAL_MATRIX
from torchmatrix.engines.docker import connect
from torchmatrix.errors import EngineUnusable


@pytest.fixture(scope="session")
def real_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of the stack's virtualenv, as the launches of a build say."""
    from torchmatrix import images, matrix, session
    from torchmatrix.store import Results

    text = REAL_MATRIX + '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n'
    (stack,) = matrix.parse(text).stacks
    engines, _ = session.choose_engines("local", Results(tmp_path_factory.mktemp("results")))
    lost = images.unreachable_indexes(images.indexes_to_probe([stack]))
    return engines["local"].build(images.choose_recipe(stack, engines["local"], lost), lambda line: None).reference


@pytest.fixture
def real_matrix(tmp_path: Path, real_python: str) -> Path:
    """A matrix of that stack; a test appends its workloads."""
    path = tmp_path / "matrix.toml"
    path.write_text(REAL_MATRIX)
    return path


@pytest.fixture(scope="session")
def client() -> Iterator[docker.DockerClient]:
    """A daemon that answers, or a skip that says why."""
    if "DOCKER_HOST" not in os.environ and not Path("/var/run/docker.sock").exists():
        pytest.skip("no container engine: no Docker socket and no DOCKER_HOST (tests/start-engine starts one)")
    try:
        client = connect()
    except EngineUnusable as error:
        pytest.skip(f"no container engine: {error}")
    yield client
    client.close()
