"""The image of the tool itself: it builds from the repository, runs as an ordinary user, and measures in virtualenvs."""

from pathlib import Path

import docker
import pytest

from support import FAKE_PYTHON
from torchmatrix.engines import packages

ROOT = Path(__file__).parents[2]
MATRIX = """
[cpus]
counts = [1]
when = "always"
[[stack]]
name = "fake"
python = "/work/python"
accelerator = "cpu"
[[workload]]
device = "cpu"
model = "resnet18"
batch = 2
steps = 5
"""


@pytest.mark.thorough
@pytest.mark.sweep
def test_the_tools_image_plans_and_measures_as_an_ordinary_user(client: docker.DockerClient, tmp_path: Path) -> None:
    options = packages.index_options("https://download.pytorch.org/whl/cpu", for_container=True)
    index = dict(zip(options[::2], options[1::2], strict=True))["--default-index"]
    image, _ = client.images.build(
        path=str(ROOT), dockerfile="images/torchmatrix.Dockerfile", network_mode="host", rm=True,
        buildargs={"BASE": "python:3.11-slim-bookworm", "INDEX_URL": index},
    )  # fmt: skip
    (tmp_path / "matrix.toml").write_text(MATRIX)
    (tmp_path / "python").write_text(FAKE_PYTHON.read_text())
    for path in (tmp_path, tmp_path / "python"):
        path.chmod(0o755)
    words = ["run", "--matrix", "/work/matrix.toml", "--results", "/results", "--output", "/results/index.html", "--fast"]
    try:
        output = client.containers.run(
            image.id, words, volumes={str(tmp_path): {"bind": "/work", "mode": "ro"}}, network_mode="none", remove=True,
            stderr=True, cap_drop=["ALL"],
        ).decode()  # fmt: skip
        user = client.containers.run(image.id, ["-u"], entrypoint="id", remove=True).decode().strip()
    finally:
        client.images.remove(str(image.id), force=True)
    lines = output.splitlines()  # of both streams: which comes first is open
    assert {"launches: 1 ok", "/results/index.html"} <= set(lines) and user == "1000"
