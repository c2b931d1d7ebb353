"""Two machines that really differ, in containers of one and of two cores: gathered, compared, in one report."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import docker
import pytest
from docker.errors import ImageNotFound

from support import invoke

pytestmark = pytest.mark.thorough
HERE = Path(__file__).parents[2]
BASE = "python:3.11-slim-bookworm"
MATRIX = """
[run]
launches = 2
[cpus]
counts = [1, 2]
[[stack]]
name = "torch2.5.1"
python = "{python}"
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


def measure(python: str, folder: Path, name: str, cores: str) -> Path:
    """Return the results of `torchmatrix run` in a container: a machine with its own name, identity and cores.

    The files that it sees are of this machine: the tool and its virtualenv, the stack's interpreter, and the Python of both.
    """
    folder.mkdir()
    (folder / "matrix.toml").write_text(MATRIX.format(python=python))
    (folder / "machine-id").write_text(name.encode().hex().ljust(32, "0")[:32] + "\n")
    shown = dict.fromkeys([str(HERE), sys.prefix, sys.base_prefix, str(Path(python).parents[1])])
    shared = [word for place in shown for word in ("--volume", f"{place}:{place}:ro")]
    done = subprocess.run(
        ["docker", "run", "--rm", "--hostname", name, "--cpuset-cpus", cores, "--user", f"{os.getuid()}:{os.getgid()}",
         "--volume", f"{folder}/machine-id:/etc/machine-id:ro", "--volume", f"{folder}:/work", "--workdir", "/work",
         *shared, "--env", "HOME=/tmp", "--env", "PYTHONDONTWRITEBYTECODE=1", BASE,
         sys.executable, "-m", "torchmatrix", "run", "--engine", "local"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "results"


@pytest.mark.sweep
def test_two_real_machines_are_gathered_by_ssh_and_archive_and_compared(
    client: docker.DockerClient, real_python: str, there: Callable[[Path], str], tmp_path: Path
) -> None:
    try:
        client.images.get(BASE)
    except ImageNotFound:
        pytest.skip(f"no base image {BASE}: tests/start-engine makes it")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    small = measure(real_python, tmp_path / "a", "small-box", "0")
    large = measure(real_python, tmp_path / "b", "large-box", "0-1")
    with tarfile.open(tmp_path / "large.tar.gz", "w:gz") as archive:
        archive.add(large, arcname="results")
    came = invoke(tmp_path, "gather", there(small), str(tmp_path / "large.tar.gz"), "--json")
    assert came.returncode == 0, came.stderr
    again = invoke(tmp_path, "gather", there(small), str(tmp_path / "large.tar.gz"), "--json")
    assert [sum(source["new"] for source in json.loads(done.stdout)["sources"]) for done in (came, again)] == [6, 0]

    assert invoke(tmp_path, "report", "--machines").returncode == 0
    page = (tmp_path / "reports/index.html").read_text()
    text = " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)).split())
    assert "small-box" in text and "large-box" in text
    assert "2 machines" in text

    record = json.loads(invoke(tmp_path, "compare", "large-box", "small-box", "--json").stdout)
    (row,) = record["rows"]  # one device each: the second machine's two have no counterpart
    assert row["ratio"] > 0 and row["launches"] == [2, 2]
