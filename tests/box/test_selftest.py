"""What the self-test of a stack finds wrong in a torch that is installed, by the metadata of real and of invented wheels."""

import sys
from pathlib import Path

import pytest

import selftest

EXTRAS = "".join(f"Provides-Extra: {name}\n" for name in ("opt-einsum", "device-gfx942", "device-gfx950"))


def install(folder: Path, name: str, more: str = "") -> None:
    place = folder / f"{name.replace('-', '_')}-2.12.0+rocm7.14.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.12.0+rocm7.14.0\n{more}")


@pytest.mark.parametrize(
    ("extras", "packages", "is_whole"),
    [
        (EXTRAS, [], False),
        (EXTRAS, ["amd-torch-device-gfx950"], True),
        (EXTRAS, ["amd-torchvision-device-gfx950"], False),
        ("Provides-Extra: opt-einsum\n", [], True),
        ("", [], True),
    ],
    ids=["host part only", "with code", "another package's code", "another wheel", "no extras"],
)
def test_a_torch_whose_code_for_gpus_is_a_package_of_its_own_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extras: str, packages: list[str], is_whole: bool
) -> None:
    install(tmp_path, "torch", extras)
    for name in packages:
        install(tmp_path, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    told = selftest.without_device_code()
    release = "2.12.0+rocm7.14.0"
    text = f"torch {release} has no code for any GPU: that is in packages such as amd-torch-device-gfx942=={release}"
    assert (told == []) if is_whole else (len(told) == 1 and told[0].startswith(text))


def test_a_vendors_torch_without_metadata_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert selftest.without_device_code() == []
