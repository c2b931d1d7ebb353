"""Locked packages as text: layers, names, what is said of a failure, and what a container's index options are."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from support.sites import tiny_matrix, tiny_stack, tiny_wheels
from torchmatrix.core.settings import Settings
from torchmatrix.engines import builders, packages
from torchmatrix.engines.lockfile import StackLock

Site = Callable[..., Settings]
CPU = "https://download.pytorch.org/whl/cpu"


def test_each_package_is_in_one_layer_in_the_order_of_how_much_is_shared() -> None:
    lines = ["nvidia-cublas-cu12==1 --hash=sha256:1", "nvidia-nccl-cu12==2", "numpy==3", "torch==4", "mine @ git+https://x@y"]
    layers = packages.layers(lines)
    assert list(layers) == ["toolkit", "libraries", "rest", "torch"]
    assert layers == {"toolkit": lines[:1], "libraries": lines[1:2], "rest": [lines[2], lines[4]], "torch": [lines[3]]}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("typing-extensions==4.1 --hash=sha256:1", "typing-extensions"),
        ("typing_extensions-4.1-py3-none-any.whl", "typing-extensions"),
        ("Jinja2-3.1-py3-none-any.whl", "jinja2"),
        ("jinja2==3.1", "jinja2"),
        ("mine @ git+https://x@y", "mine"),
        ("ruamel.yaml-0.1-py3-none-any.whl", "ruamel-yaml"),
    ],
)
def test_a_wheel_and_a_line_of_the_lock_that_are_of_one_package_have_one_name(line: str, name: str) -> None:
    assert packages.name_of(line) == name


def test_a_password_in_the_users_own_index_stays_out_of_containers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site(TORCHMATRIX_MIRRORS="https://download.pytorch.org/whl=https://m.example/t")
    assert packages.index_options(CPU, for_container=True)[:4] == [
        "--index", "https://m.example/t/cpu", "--default-index", "https://pypi.org/simple",
    ]  # fmt: skip
    site(UV_DEFAULT_INDEX="https://own.example/simple")
    assert "https://own.example/simple" in packages.index_options(CPU, for_container=True)
    site(UV_DEFAULT_INDEX="https://me:secret@own.example/simple")
    assert not any("secret" in word for word in packages.index_options(CPU, for_container=True))
    assert not any("secret" in word for word in packages.index_options(CPU)), "uv has it from its variable"
    assert packages.environment()["UV_DEFAULT_INDEX"] == "https://me:secret@own.example/simple"


def names(paths: Iterable[str], folder: str) -> list[str]:
    return sorted(path.partition("/")[2] for path in paths if path.startswith(folder + "/"))


def test_a_build_is_given_of_the_wheelhouse_only_what_is_locked_and_no_index(site: Site, tmp_path: Path) -> None:
    wheels = tiny_wheels(tmp_path / "wheels")
    (wheels / "unrelated-1.0-py3-none-any.whl").write_bytes(b"x" * 1000)
    _, recipe = tiny_stack(tiny_matrix())
    held = StackLock(name="tiny", platform="linux/amd64", installer="uv==1", packages=("helper==1.0", "torch==2.5.1"))
    assert "install.sh" in builders.environment_files(recipe, held) and builders.dockerfile_of(recipe) == "wheels.Dockerfile"
    assert "INDEX_URL" in builders.environment_arguments(recipe, "base:1")
    site(TORCHMATRIX_WHEELHOUSE=wheels)
    assert builders.dockerfile_of(recipe) == "wheelhouse.Dockerfile"
    assert builders.environment_arguments(recipe, "base:1") == {"BASE": "base:1"}
    files = builders.environment_files(recipe, held)
    assert names(files, "wheelhouse") == ["helper-1.0-py3-none-any.whl", "torch-2.5.1-py3-none-any.whl"]
    assert names(files, "requirements") == ["libraries.txt", "rest.txt", "toolkit.txt", "torch.txt", "uv.txt"]
    assert files["requirements/rest.txt"] == b"helper==1.0\n"


def test_a_context_is_the_same_bytes_each_time_so_that_layers_are_found_again(site: Site, tmp_path: Path) -> None:
    site(TORCHMATRIX_WHEELHOUSE=tiny_wheels(tmp_path / "wheels"))
    _, recipe = tiny_stack(tiny_matrix())
    files = builders.environment_files(recipe, StackLock(name="tiny", platform="linux/amd64", packages=("torch==2.5.1",)))
    with builders.context_archive(files) as first, builders.context_archive(files) as second:
        assert first.read() == second.read()
    builders.write_context(files, tmp_path / "folder")
    assert (tmp_path / "folder/wheelhouse/torch-2.5.1-py3-none-any.whl").read_bytes()[:2] == b"PK"
