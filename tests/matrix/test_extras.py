"""Packages that only some workloads need: which stacks get them, and which version."""

import itertools
from dataclasses import replace

import pytest

from torchmatrix.matrix import catalog, checks, matrix_file
from torchmatrix.matrix.catalog import Extra, version_key

STACKS = """
[[stack]]
torch = "2.5.1"
cpu = true
[[stack]]
torch = "2.5.1"
cuda = "12.4"
[[stack]]
python = "/opt/v/bin/python3"
"""
PLAIN = '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n'


def rows_of(needed_by: str) -> list[Extra]:
    return [extra for extra in catalog.load().extras if extra.needed_by == needed_by]


def packages_with(text: str, library: str = "timm") -> dict[str, list[str]]:
    """Return the packages of each stack beyond those that it has anyway, if the models were of this library."""
    plain = matrix_file.parse(text)
    workloads = [replace(workload, library=library) for workload in plain.workloads]
    stacks = checks.with_packages(plain.stacks, workloads)
    return {new.name: list(new.packages[len(old.packages) :]) for old, new in zip(plain.stacks, stacks, strict=True)}


def test_only_the_stacks_that_a_workload_may_run_on_get_the_packages_of_its_library() -> None:
    assert packages_with(STACKS + PLAIN) == {"torch2.5.1-cpu": ["timm==1.0.19"], "torch2.5.1-cu124": [], "interpreter": []}
    elsewhere = PLAIN.replace('"cpu"', '"gpu"')
    assert packages_with(STACKS + elsewhere)["torch2.5.1-cu124"] == ["timm==1.0.19"]
    assert packages_with(STACKS + PLAIN + 'stacks = ["*cu124"]\n')["torch2.5.1-cpu"] == []


def test_other_libraries_need_no_packages() -> None:
    assert set(map(tuple, packages_with(STACKS + PLAIN, "torchvision").values())) == {()}


def test_a_package_that_the_user_names_is_not_added_again() -> None:
    stacks = STACKS.replace("cpu = true\n", 'cpu = true\npackages = ["Timm<1"]\n')
    assert packages_with(stacks + PLAIN)["torch2.5.1-cpu"] == []


def test_a_vendors_image_whose_torch_is_unknown_gets_the_newest() -> None:
    text = '[[stack]]\nimage = "rocm/pytorch:latest"\n' + PLAIN.replace('"cpu"', '"gpu"')
    assert packages_with(text) == {"rocm-pytorch-latest": list(rows_of("timm")[-1].packages)}


@pytest.mark.parametrize("accelerator", ["cpu", "cuda", "rocm"])
@pytest.mark.parametrize("needed_by", sorted({extra.needed_by for extra in catalog.load().extras}))
def test_the_rows_of_an_extra_are_in_order_and_never_overlap(needed_by: str, accelerator: str) -> None:
    rows = catalog.extras_of(needed_by, accelerator)
    assert all(row.oldest <= row.newest and row.packages for row in rows)
    assert all(older.newest < newer.oldest for older, newer in itertools.pairwise(rows))
    releases = [version_key(torch)[:2] for torch in catalog.load().releases]
    assert all(row.oldest in releases and row.newest in releases for row in rows)


RUNTIME = PLAIN + 'mode = "infer"\nruntime = ["eager", "onnxruntime", "openvino"]\n'


def added(text: str) -> dict[str, tuple[str, ...]]:
    """Return the packages that each stack of a matrix has beyond those of the same matrix without runtimes."""
    with_them, without = (matrix_file.parse(matrix).stacks for matrix in (text, STACKS + PLAIN))
    return {new.name: new.packages[len(old.packages) :] for new, old in zip(with_them, without, strict=True)}


def test_a_runtime_brings_its_packages_to_the_stacks_of_its_device() -> None:
    packages = added(STACKS + RUNTIME)
    assert [package.partition("==")[0] for package in packages["torch2.5.1-cpu"]] == ["onnxruntime", "onnx", "openvino"]
    assert packages["torch2.5.1-cu124"] == packages["interpreter"] == ()
    on_gpu = added(STACKS + RUNTIME.replace('"cpu"', '"gpu"'))
    assert [package.partition("==")[0] for package in on_gpu["torch2.5.1-cu124"]] == ["onnxruntime-gpu", "onnx"]


def test_the_oldest_python_of_the_packages_narrows_the_choice() -> None:
    assert matrix_file.parse(STACKS + PLAIN).stacks[0].python_range == ">=3.9,<3.13"
    assert matrix_file.parse(STACKS + RUNTIME).stacks[0].python_range == ">=3.9,<3.13,>=3.11"


def test_a_stack_for_which_no_packages_are_known_lacks_them_unless_the_user_names_them() -> None:
    matrix = matrix_file.parse('[[stack]]\ntorch = "2.5.1"\ncpu = true\npython = "3.10"\n' + RUNTIME)
    assert [checks.without_packages(matrix.stacks[0], workload) for workload in matrix.workloads] == [
        None,
        "onnxruntime",
        "openvino",
    ]
    named = '[[stack]]\ntorch = "2.5.1"\ncpu = true\npython = "3.10"\npackages = ["onnxruntime<1.24", "onnx"]\n'
    matrix = matrix_file.parse(named + RUNTIME)
    assert [checks.without_packages(matrix.stacks[0], workload) for workload in matrix.workloads] == [None, None, "openvino"]
    assert matrix.stacks[0].packages[-2:] == ("onnxruntime<1.24", "onnx")


def test_training_in_float8_needs_torchao() -> None:
    training = '[[stack]]\ntorch = "{}"\ncpu = true\n' + PLAIN + 'precision = ["amp-bf16", "fp8", "fp8-rowwise"]\n'
    for torch, torchao in (("2.7.1", "0.11.0"), ("2.15.0", "0.18.0")):
        (stack,) = matrix_file.parse(training.format(torch)).stacks
        assert stack.packages[-1] == f"torchao=={torchao}"


def test_packages_that_come_with_a_vendors_image_are_not_added_to_it() -> None:
    text = '[[stack]]\nimage = "nvcr.io/nvidia/pytorch:25.02-py3"\n' + PLAIN.replace('"cpu"', '"gpu"') + 'mode = "infer"\n'
    assert matrix_file.parse(text + 'runtime = "torchao-int8"\n').stacks[0].packages == ()
    assert matrix_file.parse(text + 'runtime = "onnxruntime"\n').stacks[0].packages[0].startswith("onnxruntime-gpu==")
