"""Manifests for Kubernetes: valid by its published schemas, without privileges, with all that the matrix needs."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from support import Command

MATRIX = """
[[stack]]
torch = "2.7.1"
cuda = "12.8"
[[workload]]
model = ["resnet50", "nets/tiny.py:Tiny"]
batch = 8
"""
OWN = "def Tiny(): ...\ndef batch(size, generator): ...\n"
NEEDED = ("--image", "registry.example/torchmatrix:1", "--claim", "results")


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "tiny.py").write_text(OWN)
    (tmp_path / "matrix.toml").write_text(MATRIX)
    return tmp_path / "matrix.toml"


def made(torchmatrix: Command, *words: str) -> list[dict[str, Any]]:
    done = torchmatrix("bundle", "kubernetes", *NEEDED, *words)
    assert done.returncode == 0, done.stderr
    items: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return items


@pytest.mark.parametrize(
    "words", [(), ("--gpus", "8", "--nodes", "2"), ("--gpus", "4", "--vendor", "amd", "--name", "night-1")]
)
def test_kubernetes_schemas_accept_the_manifests(torchmatrix: Command, matrix: Path, words: tuple[str, ...]) -> None:
    for manifest in made(torchmatrix, *words):
        for version in ("1.27", "1.31", "1.34"):
            kubernetes_validate.validate(manifest, version, strict=True)


def test_all_files_of_the_matrix_travel_and_nothing_runs_with_privileges(torchmatrix: Command, matrix: Path) -> None:
    config, job = made(torchmatrix, "resnet50*", "--where", "mode=train", "--gpus", "8", "--nodes", "3")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    paths = {item["path"]: config["data"][item["key"]] for item in pod["volumes"][0]["configMap"]["items"]}
    assert paths == {"matrix.toml": MATRIX, "nets/tiny.py": OWN}
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    (container,) = pod["containers"]
    assert container["args"][-3:] == ["resnet50*", "--where", "mode=train"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--image", "x"), "--image and --claim are needed"),
        ((*NEEDED, "--vendor", "intel"), "--vendor is intel, not nvidia or amd"),
        ((*NEEDED, "--name", "Night_1"), "is no name for Kubernetes"),
        ((*NEEDED, "--matrix", "gone.toml"), "no matrix file at gone.toml"),
    ],
)
def test_mistakes_are_told(torchmatrix: Command, matrix: Path, words: tuple[str, ...], message: str) -> None:
    done = torchmatrix("bundle", "kubernetes", *words)
    assert done.returncode == 2 and message in done.stderr and not done.stdout


def test_what_no_config_map_takes_is_refused(torchmatrix: Command, matrix: Path) -> None:
    matrix.with_name("matrix.lock").write_text("#" * 1_100_000 + "\nversion = 1\nstacks = []\n")
    done = torchmatrix("bundle", "kubernetes", *NEEDED)
    assert done.returncode == 2 and "a ConfigMap takes 1 MiB" in done.stderr
