"""Releases between two others: those that have wheels, of one variant where that can be."""

import pytest

from torchmatrix.core.errors import BadInput
from torchmatrix.matrix import catalog, matrix_file
from torchmatrix.matrix.variants import named_release, releases_between


def names(old: str, new: str, accelerator: str, *variants: str | None) -> list[str]:
    return [wheels.name for wheels in releases_between(old, new, accelerator, variants)]


def test_the_catalog_s_releases_in_order_of_their_versions() -> None:
    stacks = names("2.5.1", "2.10.0", "cpu")
    assert stacks[0] == "torch2.5.1-cpu" and stacks[-1] == "torch2.10.0-cpu"
    assert stacks == [f"torch{version}-cpu" for version in sorted(catalog.load().releases, key=catalog.version_key)
                     if (2, 5, 1) <= catalog.version_key(version) <= (2, 10, 0)]  # fmt: skip


def test_one_cuda_for_all_where_all_have_it_else_the_usual_of_each() -> None:
    assert {name.partition("-")[2] for name in names("2.5.0", "2.6.0", "cuda")} == {"cu124"}
    assert names("2.5.1", "2.6.0", "cuda", "cu118", "cu118") == ["torch2.5.1-cu118", "torch2.6.0-cu118"]
    far = dict(name.removeprefix("torch").split("-") for name in names("1.12.1", "2.9.1", "cuda"))
    assert far["1.12.1"] == "cu102" and far["2.9.1"] == "cu128"
    assert all(catalog.load().releases[release].pypi == variant for release, variant in far.items())


def test_each_is_a_stack_of_that_name() -> None:
    for accelerator in ("cpu", "cuda", "rocm"):
        for wheels in releases_between("2.1.0", "2.7.1", accelerator, ()):
            keys = "".join(
                f"{key} = {str(value).lower() if value is True else repr(value)}\n" for key, value in wheels.table.items()
            )
            text = f'[[stack]]\n{keys}[[workload]]\nmodel = "resnet50"\nbatch = 1\n'
            assert [stack.name for stack in matrix_file.parse(text).stacks] == [wheels.name]


def test_a_stack_with_settings_of_its_own_is_no_release() -> None:
    tables = ('torch = "2.5.1"\ncpu = true\n', 'name = "mine"\ntorch = "2.5.1"\ncpu = true\npython = "3.10"\n')
    text = "".join(f"[[stack]]\n{table}" for table in tables) + '[[workload]]\nmodel = "resnet50"\nbatch = 1\n'
    stacks = matrix_file.parse(text).stacks
    assert named_release("torch2.5.1-cpu", stacks) == ("2.5.1", "cpu") and named_release("2.5.1", stacks) == ("2.5.1", None)
    with pytest.raises(BadInput, match="settings of its own"):
        named_release("mine", stacks)


def test_a_stack_of_pinned_wheels_is_no_release() -> None:
    address = "https://wheels.example/{}-2.99.dev1%2Bcpu-cp312-cp312-linux_x86_64.whl#sha256=" + "0" * 64
    text = f"[[stack]]\nwheels = {[address.format(name) for name in ('torch', 'torchvision')]}\n"
    (stack,) = matrix_file.parse(f'{text}[[workload]]\nmodel = "resnet50"\nbatch = 1\n').stacks
    with pytest.raises(BadInput, match="not made of a release's wheels"):
        named_release(stack.name, [stack])
    with pytest.raises(BadInput, match="neither a release") as error:
        named_release("2.5.1+cu124", [stack])
    assert error.value.hint == "the nearest releases: 2.5.1"
