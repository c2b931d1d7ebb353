"""Two machines that really differ, in containers of one and of two cores: gathered, compared, in one report."""

import json
import os
import re
import subprocess
import sysconfig
import tarfile
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from support import REAL_MATRIX, invoke
from torchmatrix.engines import recipes
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.matrix import matrix_file

pytestmark = pytest.mark.thorough
HERE = Path(__file__).parents[2]
INSIDE = "/opt/stack/bin/python3"
MATRIX = f"""
[run]
launches = 2
[cpus]
counts = [1, 2]
[[stack]]
name = "torch2.5.1"
python = "{INSIDE}"
accelerator = "cpu"
[[workload]]
device = "cpu"
model = "resnet18"
batch = 2
image_size = 64
steps = 3
warmup_steps = 1
warmup_cap = 2
"""


@pytest.fixture(scope="module")
def image(client: docker.DockerClient) -> str:
    """A container image with real PyTorch."""
    text = REAL_MATRIX + '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n'
    (stack,) = matrix_file.parse(text).stacks
    lost = recipes.unreachable_indexes(recipes.indexes_to_probe([stack]))
    return DockerEngine(client).build(recipes.choose_recipe(stack, DockerEngine(client), lost), lambda line: None).reference


def measure(image: str, folder: Path, name: str, cores: str) -> Path:
    """The results of `torchmatrix run` in a container: a machine with a name, an identity and cores of its own."""
    folder.mkdir()
    (folder / "matrix.toml").write_text(MATRIX)
    (folder / "machine-id").write_text(name.encode().hex().ljust(32, "0")[:32] + "\n")
    modules = sysconfig.get_path("purelib")  # of this virtualenv: the container has the same Python
    done = subprocess.run(
        ["docker", "run", "--rm", "--hostname", name, "--cpuset-cpus", cores, "--user", f"{os.getuid()}:{os.getgid()}",
         "--volume", f"{folder}/machine-id:/etc/machine-id:ro", "--volume", f"{folder}:/work", "--workdir", "/work",
         "--volume", f"{HERE}:{HERE}:ro", "--env", f"PYTHONPATH={HERE}/runner:{modules}", "--env", "HOME=/tmp",
         "--env", "PYTHONDONTWRITEBYTECODE=1", image, "python3", "-m", "torchmatrix", "run", "--engine", "local"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "results"


def test_two_real_machines_are_gathered_by_ssh_and_archive_and_compared(
    image: str, there: Callable[[Path], str], tmp_path: Path
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    small = measure(image, tmp_path / "a", "small-box", "0")
    large = measure(image, tmp_path / "b", "large-box", "0-1")
    with tarfile.open(tmp_path / "large.tar.gz", "w:gz") as archive:
        archive.add(large, arcname="results")
    came = invoke(tmp_path, "gather", there(small), str(tmp_path / "large.tar.gz"), "--json")
    assert came.returncode == 0, came.stderr
    again = invoke(tmp_path, "gather", there(small), str(tmp_path / "large.tar.gz"), "--json")
    assert [sum(source["new"] for source in json.loads(told.stdout)["sources"]) for told in (came, again)] == [6, 0]

    assert invoke(tmp_path, "report", "--machines").returncode == 0
    page = (tmp_path / "reports/index.html").read_text()
    text = " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)).split())
    assert "small-box" in text and "large-box" in text
    assert "2 machines" in text

    told = json.loads(invoke(tmp_path, "compare", "large-box", "small-box", "--json").stdout)
    (row,) = told["rows"]  # one device each: the second machine's two have no counterpart
    assert row["ratio"] > 0 and row["launches"] == [2, 2]
