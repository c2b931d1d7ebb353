"""A vendor's image must stay the vendor's: what the guard records, what it lets pip do, what it notices."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import vendor_guard
from support.records import launch_lines
from support.vendors import TORCH, plain_wheel, torch_wheel, wheel
from torchmatrix.core import assets
from torchmatrix.core.inputs import Malformed
from torchmatrix.facts import wire
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of

Guard = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return the folder of the invented vendor's packages: torch, numpy and one of nvidia-*, whose folder others share."""
    folder = tmp_path / "site"
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for path in (
        torch_wheel(wheels),
        plain_wheel(wheels, "numpy", "1.26.4"),
        wheel(wheels, "nvidia_cublas_cu12", "12.8.3", {"nvidia/__init__.py": "", "nvidia/cublas/lib.so": "code"}),
        plain_wheel(wheels, "other", "1.0"),
    ):
        unpack(path, folder)
    return folder


def unpack(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)


@pytest.fixture
def guard(tmp_path: Path, site: Path) -> Guard:
    """Return what runs the guard as the image does, with a Python that sees only `site` (-S) and its own library."""

    def call(*words: str) -> "subprocess.CompletedProcess[str]":
        program, state = str(assets.IMAGES / "vendor_guard.py"), str(tmp_path / "vendor.json")
        command = [sys.executable, "-S", program, *words, "--state", state]
        variables = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, env=variables, capture_output=True, text=True)

    return call


def test_what_the_vendor_delivered_is_recorded_and_found_again(guard: Guard, tmp_path: Path) -> None:
    assert guard("record").returncode == 0
    recorded = json.loads((tmp_path / "vendor.json").read_text())
    assert recorded["torch"] == TORCH == recorded["versions"]["torch"]
    assert recorded["versions"]["nvidia-cublas-cu12"] == "12.8.3" and recorded["versions"]["other"] == "1.0"
    assert set(recorded["digests"]) == {"torch", "numpy", "nvidia_cublas_cu12"}
    done = guard("check")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "torch": TORCH, "python": recorded["python"], "digests": recorded["digests"], "added": []
    }  # fmt: skip


def edit(path: str, text: str = "edited = True") -> Callable[[Path], None]:
    def harm(site: Path) -> None:
        (site / path).write_text(text)

    return harm


def remove(path: str) -> Callable[[Path], None]:
    return lambda site: (site / path).unlink()


def other_version(site: Path) -> None:
    (site / "other-1.0.dist-info").rename(site / "other-2.0.dist-info")
    (site / "other-2.0.dist-info" / "METADATA").write_text("Name: other\nVersion: 2.0\n")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (edit("torch/nn.py"), "torch/nn.py was changed"),
        (edit("torch/beside.py"), "torch/beside.py was added"),
        (remove("torch/nn.py"), "torch/nn.py is gone"),
        (edit("nvidia/cublas/lib.so"), "nvidia/cublas/lib.so was changed"),
        (edit("numpy-1.26.4.dist-info/RECORD"), "numpy-1.26.4.dist-info/RECORD was changed"),
        (other_version, "other was 1.0 and is 2.0"),
        (lambda site: shutil.rmtree(site / "other-1.0.dist-info"), "other was 1.0 and is gone"),
        (edit("torch/__init__.py", "__version__ = '2.8'"), f"torch reports version 2.8 instead of {TORCH}"),
    ],
)
def test_what_is_not_the_vendors_any_more_is_named(
    guard: Guard, site: Path, harm: Callable[[Path], None], message: str
) -> None:
    assert guard("record").returncode == 0
    harm(site)
    done = guard("check")
    assert done.returncode == 1 and done.stderr.startswith("error: ") and message in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_is_added_beside_is_no_change(guard: Guard, site: Path, tmp_path: Path) -> None:
    assert guard("record").returncode == 0
    unpack(plain_wheel(tmp_path, "transformers", "4.57.6"), site)
    unpack(wheel(tmp_path, "nvidia_new", "1", {"nvidia/new/lib.so": "code"}), site)
    done = guard("check")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["added"] == ["nvidia-new==1", "transformers==4.57.6"]


def test_a_torch_without_a_list_of_files_or_without_metadata_is_guarded_too(guard: Guard, site: Path) -> None:
    shutil.rmtree(site / f"torch-{TORCH}.dist-info")
    (site / "numpy-1.26.4.dist-info" / "RECORD").unlink()
    assert guard("record").returncode == 0
    (site / "torch" / "nn.py").write_text("edited")
    (site / "numpy" / "__init__.py").write_text("edited")
    done = guard("check")
    assert "torch/nn.py was changed" in done.stderr and "numpy/__init__.py was changed" in done.stderr


def test_only_what_is_missing_is_wanted(guard: Guard) -> None:
    assert guard("record").returncode == 0
    done = guard("install", "--usual", "Other==3.0")
    assert done.returncode == 0 and done.stdout == "nothing is missing: nothing to install\n"


def test_constraints_hold_what_pip_understands() -> None:
    versions = {
        "torch": TORCH,
        "a": "1!2.0rc1.post3.dev4",
        "b": "v1.0-1",
        "c": "1.0+git.1",
        "debian": "1.1build1",
        "d": "4d-stable",
    }
    assert vendor_guard.constraints_of(versions) == ["a==1!2.0rc1.post3.dev4", "b==v1.0-1", "c==1.0+git.1", f"torch=={TORCH}"]


@pytest.mark.parametrize("requirement", ["transformers==4.57.6", "Transformers", "transformers[torch]>=4", "transformers<5"])
def test_the_name_in_a_requirement(requirement: str) -> None:
    assert vendor_guard.name_of(requirement) == "transformers"


def test_what_the_guard_says_is_what_the_wire_and_a_launchs_header_take(guard: Guard) -> None:
    assert guard("record").returncode == 0
    said = json.loads(guard("check").stdout.strip().split("\n")[-1])
    result = {"losses": {"resnet18": 2.5}, "compiled": True, "vendor": said}
    wire.check({"event": "self-test", **result})
    first, *others = launch_lines()
    launch = launch_of(
        Path("h/r/s/w/d/round1-try1.jsonl"), [{**first, "image": {**first["image"], "self_test": result}}, *others]
    )
    assert isinstance(launch, Launch) and launch.image and launch.image.facts["self_test"]["vendor"] == said
    with pytest.raises(Malformed, match="vendor is "):
        wire.check({"event": "self-test", **result, "vendor": "nvidia"})
