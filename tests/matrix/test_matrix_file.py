"""Meaning of matrix.toml, and the messages for its mistakes."""

from pathlib import Path

import pytest

from torchmatrix.core import assets
from torchmatrix.core.errors import BadInput
from torchmatrix.matrix import catalog
from torchmatrix.matrix.matrix_file import load, parse
from torchmatrix.matrix.stacks import PYPI, Stack
from torchmatrix.matrix.workloads import batch_key, batch_on

WORKLOAD = '[[workload]]\nmodel = "resnet50"\nbatch = 8\n'
STACK = '[[stack]]\ntorch = "2.5.1"\ncuda = "12.4"\n'
IMAGE = '[[stack]]\naccelerator = "cuda"\nimage = "'


def stack_of(text: str) -> Stack:
    return parse(text + WORKLOAD).stacks[0]


def problems_of(text: str) -> str:
    with pytest.raises(BadInput) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_the_default_matrix_is_valid_and_names_what_the_issue_promises() -> None:
    matrix = load(assets.DEFAULT_MATRIX)
    names = {stack.name for stack in matrix.stacks}
    assert {"torch2.7.1-cu128", "torch2.5.1-cu124", "torch2.5.1-rocm6.2", "torch2.5.1-cpu"} <= names
    newest = [stack for stack in matrix.stacks if stack.accelerator == "cuda"][:2]
    assert [stack.torch for stack in newest] == [list(catalog.load().releases)[-1], catalog.ngc_images()["26.05-py3"].torch]
    assert {stack.source for stack in matrix.stacks} == {"wheels", "image"}
    assert {stack.accelerator for stack in matrix.stacks} == {"cuda", "rocm", "cpu"}


def test_a_cuda_stack_is_pinned_to_its_own_index_and_pypi_only_where_pypi_has_that_cuda() -> None:
    stack = stack_of(STACK)
    pytorch, pypi = stack.indexes
    assert pytorch.url.endswith("/cu124") and pytorch.requirements == ("torch==2.5.1+cu124", "torchvision==0.20.1+cu124")
    assert (pypi.url, pypi.requirements) == (PYPI, ("torch==2.5.1", "torchvision==0.20.1"))
    assert [index.url for index in stack_of('[[stack]]\ntorch = "2.5.1"\ncuda = "11.8"\n').indexes] == [
        "https://download.pytorch.org/whl/cu118"
    ]


def test_stacks_derive_their_names_python_base_and_pins() -> None:
    stack = stack_of('[[stack]]\ntorch = "1.12.1"\ncpu = true\n')
    assert (stack.name, stack.accelerator, stack.python) == ("torch1.12.1-cpu", "cpu", "3.9")
    assert stack.base == "python:3.9-slim-bookworm"
    assert stack.packages == ("transformers==4.41.2", "numpy<2", "setuptools<70")
    assert stack.compile_python is None
    ngc = stack_of('[[stack]]\nimage = "nvcr.io/nvidia/pytorch:25.02-py3"\n')
    assert (ngc.name, ngc.source, ngc.accelerator) == ("nvidia-pytorch-25.02-py3", "image", "cuda")
    rocm = stack_of('[[stack]]\nimage = "rocm/pytorch:latest"\n')
    assert (rocm.name, rocm.accelerator) == ("rocm-pytorch-latest", "rocm")
    interpreter = stack_of('[[stack]]\npython = "/opt/venv/bin/python"\n')
    assert (interpreter.source, interpreter.accelerator) == ("interpreter", "any")


def test_axes_multiply_and_those_without_meaning_for_a_model_do_not() -> None:
    text = (
        STACK + '[[workload]]\nmodel = ["resnet50", "bert-base-cased"]\nprecision = ["fp32", "amp"]\nbatch = 8\n'
        'attention = ["eager", "sdpa"]\nimage_size = [64, 128]\n'
    )
    ids = [workload.id for workload in parse(text).workloads]
    assert ids == [
        "resnet50-train-fp32-b8-64px",
        "resnet50-train-fp32-b8-128px",
        "resnet50-train-amp-b8-64px",
        "resnet50-train-amp-b8-128px",
        "bert-base-cased-train-fp32-b8-s128-eager",
        "bert-base-cased-train-fp32-b8-s128-sdpa",
        "bert-base-cased-train-amp-b8-s128-eager",
        "bert-base-cased-train-amp-b8-s128-sdpa",
    ]


def test_every_problem_is_reported_at_once_with_its_line_and_the_nearest_word() -> None:
    message = problems_of(
        """[run]
lanches = 3
[[stack]]
torch = "2.5.2"
cuda = "12.4"
[[stack]]
torch = "2.5.1"
cuda = "12.9"
[[workload]]
model = "resnet5O"
precision = ["fp32", "apm"]
batch = "many"
compile = 1
"""
    )
    assert 'line 2, [run], lanches: unknown key "lanches"; did you mean "launches"?' in message
    assert 'line 4, [[stack]] 1, torch: unknown version "2.5.2"; the nearest: 2.5.1, 2.6.0' in message
    assert "line 8, [[stack]] 2, cuda: torch 2.5.1 has no cu129 wheels; it has: cpu, cu118, cu121, cu124, rocm6.2" in message
    assert 'line 10, [[workload]] 1, model: unknown model "resnet5O"; did you mean "resnet50"?' in message
    assert 'line 11, [[workload]] 1, precision: unknown value "apm"; did you mean "amp"?' in message
    assert 'line 12, [[workload]] 1, batch: must be a whole number, "auto", or a table' in message
    assert "line 13, [[workload]] 1, compile: must be true or false, not 1" in message
    assert message.startswith("matrix.toml has 7 problems")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[stack]\n", "not valid TOML"),
        ("", "there must be at least one [[stack]]"),
        (STACK + STACK + WORKLOAD, '2 stacks are called "torch2.5.1-cu124"'),
        (STACK + WORKLOAD + WORKLOAD, '2 workloads are called "resnet50-train-fp32-b8-224px"'),
        ('[[stack]]\ntorch = "2.5.1"\n' + WORKLOAD, "needs exactly one of cuda"),
        ('[[stack]]\nname = "x"\n' + WORKLOAD, "needs exactly one of torch (wheels), image"),
        ('[[stack]]\ntorch = "2.5.1"\ncpu = true\npython = "3.13"\n' + WORKLOAD, "has wheels for Python 3.9 to 3.12, not 3.13"),
        ('[[stack]]\nimage = "example.org/own:1"\n' + WORKLOAD, "state what this image is for"),
        ('[[stack]]\nname = "a/b"\ntorch = "2.5.1"\ncpu = true\n' + WORKLOAD, "use letters, digits"),
        (STACK + 'index = "https://me:secret@example.org/simple"\n' + WORKLOAD, "contains credentials"),
        (STACK + 'packages = ["x @ git+https://me:token@example.org/x"]\n' + WORKLOAD, "contains credentials"),
        ('[[stack]]\ntorch = "²"\ncpu = true\n' + WORKLOAD, "line 2, [[stack]] 1, torch: is not a version"),
        (
            '[[stack]]\ntorch = "2.5.1"\ncpu = true\npython = "3.²"\n' + WORKLOAD,
            "is neither a version such as 3.11 nor the path",
        ),
        (STACK + 'transformers = "4.40.0\\n-r /etc/passwd"\n' + WORKLOAD, "must be one line of printable letters"),
        (STACK + 'torchvision = "0.20 --pre"\n' + WORKLOAD, "torchvision: is not a version"),
        (
            '[[stack]]\ntorch = "2.3.0+cu118"\n' + WORKLOAD,
            'torch: names its wheels by "+cu118": write torch = "2.3.0" and cuda = "11.8"',
        ),
        ('[[stack]]\ntorch = "2.3.0+rocm6.0"\n' + WORKLOAD, 'write torch = "2.3.0" and rocm = "6.0"'),
        ('[[stack]]\ntorch = "2.3.0+cpu"\ncpu = true\n' + WORKLOAD, 'write torch = "2.3.0" and cpu = true'),
        ('[[stack]]\ntorch = "2.5.1+cu126"\n' + WORKLOAD, 'and cuda = "12.6"'),
        ('[[stack]]\ntorch = "2.5.1+hpu"\n' + WORKLOAD, "there are no other wheels here"),
        ('[[stack]]\ntorch = "2.9.0.dev20260102+cu126"\n' + WORKLOAD, "a nightly is pinned by address and hash: wheels = ["),
        ('[[stack]]\ntorch = "2.3.0a0+git6c8c5ad"\n' + WORKLOAD, '"2.3.0a0+git6c8c5ad" is no release; '),
        (STACK + 'torchvision = "0.20.1+cu124"\n' + WORKLOAD, 'write torchvision = "0.20.1" and cuda = "12.4"'),
        (STACK + 'index = "--help"\n' + WORKLOAD, 'is not the address of a package index, https://…: "--help"'),
        (STACK + 'base = "--privileged"\n' + WORKLOAD, "is not an image reference"),
        (
            STACK + 'base = "docker://python:3.11"\n' + WORKLOAD,
            'base: is an address, not an image reference: write it without "docker://"',
        ),
        (
            IMAGE + 'oci://me:secret@nvcr.io/nvidia/pytorch:25.02-py3"\n' + WORKLOAD,
            "image: is an address, not an image reference",
        ),
        (IMAGE + 'nvcr.io/nvidia/pytorch:25.02-py3@sha256:00ff"\n' + WORKLOAD, 'image: has a malformed digest, "sha256:00ff"'),
        (IMAGE + f'pytorch/pytorch@sha256:{"g" * 64}"\n' + WORKLOAD, "has a malformed digest"),
        (IMAGE + f'pytorch/pytorch@{"a" * 64}"\n' + WORKLOAD, "has a malformed digest"),
        (IMAGE + 'pytorch/pytorch:@latest"\n' + WORKLOAD, "has a malformed digest"),
        (IMAGE + 'nvcr.io/NVIDIA/PyTorch:25.02-py3"\n' + WORKLOAD, "is not an image reference"),
        (IMAGE + 'pytorch/pytorch:"\n' + WORKLOAD, "is not an image reference"),
        (IMAGE + 'PyTorch/pytorch:2.5.1"\n' + WORKLOAD, "is not an image reference"),
        (IMAGE + f'{"a" * 256}:1"\n' + WORKLOAD, "is not an image reference"),
        (IMAGE + 'pytorch//pytorch:1"\n' + WORKLOAD, "is not an image reference"),
        ('[[stack]]\nimage = "-v /:/host"\naccelerator = "cpu"\n' + WORKLOAD, "is not an image reference"),
        (
            STACK + 'packages = ["-r /etc/passwd"]\n' + WORKLOAD,
            '"-r /etc/passwd" is not a requirement such as numpy<2 (PEP 508)',
        ),
        (STACK + 'packages = ["--extra-index-url=https://evil"]\n' + WORKLOAD, "is not a requirement"),
        (STACK + 'packages = ["numpy\\n--pre"]\n' + WORKLOAD, "must be one line of printable letters"),
        (STACK + 'packages = ["./evil"]\n' + WORKLOAD, "is not a requirement"),
        (STACK + 'packages = ["evil @ file:///tmp/evil"]\n' + WORKLOAD, "has an address other than https://"),
        (STACK + 'packages = ["evil @ git+file:///tmp/evil"]\n' + WORKLOAD, "has an address other than https://"),
        (STACK + 'packages = ["evil @ git+ssh://host/evil"]\n' + WORKLOAD, "has an address other than https://"),
        (STACK.replace("[[stack]]", f'[[stack]]\nname = "{"n" * 300}"') + WORKLOAD, "must have at most 64 letters, not 300"),
        (STACK + WORKLOAD + f'name = "{"n" * 300}"\n', "must have at most 64 letters, not 300"),
        (STACK + WORKLOAD + "[run]\nlaunches = 1000000000\n", "launches: must be at most 1000, not 1000000000"),
        (STACK + WORKLOAD + "[gpus]\ncounts = [100000000]\n", "counts: must be at most 64, not 100000000"),
        (STACK + WORKLOAD + "counts = [100000000]\n", "counts: must be at most 64, not 100000000"),
        (STACK + WORKLOAD + "[gpus]\nlists = [[0, 100000000]]\n", "different GPU indices below 64"),
        (STACK + WORKLOAD.replace("8", "10000000000"), "batch: must be at most 1000000000"),
        (STACK + WORKLOAD.replace("8", str([*range(1, 258)])), "batch: must have at most 256 values, not 257"),
        (
            STACK + WORKLOAD.replace("8", str([*range(1, 201)])) + f"image_size = {[*range(32, 232)]}\n",
            "its lists multiply to 40,000 workloads; at most 10,000",
        ),
        (
            STACK + WORKLOAD.replace("8", str([*range(1, 101)])) + f"image_size = {[*range(32, 132)]}\n"
            f"[gpus]\ncounts = {[*range(1, 65)]}\n",
            "up to 640,000 cells (1 stack, 10000 workloads); at most 100,000",
        ),
        (STACK + 'index = "https://example.org/simple?token=secret"\n' + WORKLOAD, "contains credentials"),
        (STACK + WORKLOAD + 'name = "a/../../b"\n', "use letters, digits"),
        (STACK + WORKLOAD + "[run]\ntimeout_minutes = inf\n", "must be a finite number"),
        (STACK + WORKLOAD + "[run]\ntimeout_minutes = 1e9\n", "must be at most 10080"),
        (STACK + WORKLOAD + 'stacks = ["torch9*"]\n', '"torch9*" matches no stack'),
        (STACK + WORKLOAD + "[gpus]\nlists = [[0, 0]]\n", "different GPU indices"),
        (STACK + WORKLOAD + "[gpu]\n", 'unknown table "gpu"; did you mean "gpus"?'),
        ('[stack]\ntorch = "2.5.1"\n' + WORKLOAD, "must be a list of tables: write [[stack]]"),
        (STACK + "[[workload]]\nbatch = 0\n", "must be at least 1, not 0"),
        (STACK + "[[workload]]\nmodel = []\nbatch = 8\n", "the list is empty"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str) -> None:
    assert words in problems_of(text)


def test_a_missing_file_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no matrix file"):
        load(tmp_path / "none.toml")


def test_every_release_of_the_catalog_makes_a_stack_of_each_of_its_variants() -> None:
    for release in catalog.load().releases.values():
        for variant in release.wheels:
            if variant in ("cpu", "xpu"):
                key = f"{variant} = true"
            elif variant.startswith("cu"):
                key = f'cuda = "{variant[2:-1]}.{variant[-1]}"'
            else:
                key = f'rocm = "{variant[4:]}"'
            stack = stack_of(f'[[stack]]\ntorch = "{release.torch}"\n{key}\n')
            assert stack.name == f"torch{release.torch}-{variant}"
            assert stack.base == f"python:{release.default_python}-slim-bookworm"
            assert stack.indexes[0].url == f"https://download.pytorch.org/whl/{variant}"


@pytest.mark.parametrize(
    ("version", "near"),
    [
        ("2.5.3", "2.5.1, 2.6.0"),
        ("2.5", "2.5.0, 2.5.1"),
        ("1.11.0", "1.12.1"),
        ("2.1.9", "2.1.2, 2.2.0"),
        ("99.0", "2.15.0"),
    ],
)
def test_an_unknown_release_names_the_nearest_by_version(version: str, near: str) -> None:
    assert problems_of(f'[[stack]]\ntorch = "{version}"\ncpu = true\n' + WORKLOAD).endswith(f"the nearest: {near}")


def test_a_python_too_old_for_the_transformers_is_refused_unless_an_older_one_is_named() -> None:
    old = '[[stack]]\ntorch = "2.10.0"\ncpu = true\npython = "3.10"\n'
    assert "transformers 5.23.0 needs Python 3.11 or newer" in problems_of(old + WORKLOAD)
    assert stack_of(old + 'transformers = "4.57.6"\n').python == "3.10"
    assert stack_of('[[stack]]\ntorch = "2.10.0"\ncpu = true\n').python_range == ">=3.11,<3.15"


def test_an_ngc_image_in_the_table_knows_its_torch_and_cuda_and_another_does_not() -> None:
    listed = stack_of('[[stack]]\nimage = "nvcr.io/nvidia/pytorch:25.02-py3"\n')
    assert (listed.torch, listed.cuda) == ("2.7.0a0+6c54963f75", "12.8")
    pinned = stack_of(f'[[stack]]\nimage = "nvcr.io/nvidia/pytorch:25.02-py3@sha256:{"00ff" * 16}"\n')
    assert (pinned.torch, pinned.cuda) == (listed.torch, listed.cuda)
    for other in ("nvcr.io/nvidia/pytorch:99.01-py3", "nvcr.io/nvidia/tensorflow:25.02-py3", "pytorch/pytorch:latest"):
        stack = stack_of(f'[[stack]]\nimage = "{other}"\n')
        assert (stack.torch, stack.cuda, stack.accelerator) == (None, None, "cuda")


NIGHTLY = "https://download.pytorch.org/whl/nightly/cu126"
TORCH = f"{NIGHTLY}/torch-2.99.0.dev20260102%2Bcu126-cp312-cp312-manylinux_2_28_x86_64.whl#sha256={'0a' * 32}"
VISION = f"{NIGHTLY}/torchvision-0.30.0.dev20260102%2Bcu126-cp312-cp312-manylinux_2_28_x86_64.whl#sha256={'1b' * 32}"


def pinned(*wheels: str) -> str:
    return f"[[stack]]\nwheels = {list(wheels)}\n"


def test_a_nightly_is_a_stack_of_wheels_pinned_by_address_and_hash() -> None:
    stack = stack_of(pinned(TORCH, VISION))
    assert (stack.name, stack.source, stack.accelerator, stack.cuda) == (
        "torch2.99.0.dev20260102-cu126", "wheels", "cuda", "12.6",
    )  # fmt: skip
    assert (stack.torch, stack.variant, stack.python) == ("2.99.0.dev20260102", "cu126", "3.12")
    (index,) = stack.indexes
    assert index.url == NIGHTLY and index.requirements == (f"torch @ {TORCH}", f"torchvision @ {VISION}")
    elsewhere = [wheel.replace("download.pytorch.org/whl", "wheels.example") for wheel in (TORCH, VISION)]
    assert stack_of(pinned(*elsewhere)).indexes[0].url == "https://pypi.org/simple"
    rocm = [wheel.replace("cu126", "rocm6.4") for wheel in (TORCH, VISION)]
    assert (stack_of(pinned(*rocm)).accelerator, stack_of(pinned(*rocm)).cuda) == ("rocm", None)


@pytest.mark.parametrize(
    ("stack", "problem"),
    [
        (pinned(TORCH.partition("#")[0], VISION), "has no hash to tell whether it is the same file"),
        (pinned(TORCH[:-1], VISION), "has no hash to tell"),
        (pinned(TORCH.replace("sha256", "md5"), VISION), "has no hash to tell"),
        (pinned(TORCH.replace("https", "http"), VISION), "is not the address of a wheel"),
        (pinned(TORCH.replace(".whl", ".tar.gz"), VISION), "is not the address of a wheel"),
        (pinned(TORCH.replace("https://", "https://me:secret@"), VISION), "contains credentials"),
        (pinned(TORCH.replace("-cp312-cp312", ""), VISION), "is not the name of a wheel"),
        (pinned(TORCH.replace("manylinux_2_28_x86_64", "win_amd64"), VISION), "is not for Linux"),
        (pinned(TORCH), "wheels: lacks torchvision"),
        (pinned(VISION), "wheels: lacks torch"),
        (pinned(TORCH, VISION, VISION.replace("0102", "0103")), "wheels: names a package twice"),
        (pinned(TORCH.replace("%2Bcu126", ""), VISION), "tells no CPython, or no variant"),
        (pinned(TORCH.replace("cu126", "hpu"), VISION), "tells no CPython, or no variant"),
        (pinned(TORCH, VISION) + 'cuda = "12.6"\n', "cuda: comes with the wheels"),
        (pinned(TORCH, VISION) + 'torch = "2.5.1"\n', "needs exactly one of torch (wheels)"),
        ('[[stack]]\ntorch = "2.99.0.dev20260102"\ncuda = "12.6"\n', "a nightly is pinned by address and hash: wheels = ["),
    ],
)
def test_a_wheel_that_nobody_could_tell_from_another_is_refused(stack: str, problem: str) -> None:
    assert problem in problems_of(stack + WORKLOAD)


@pytest.mark.parametrize(
    "image",
    [
        "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", "nvcr.io/nvidia/pytorch:25.02-py3", "localhost:5000/a/b_c__d-e.f:1",
        "docker.io/rocm/pytorch:rocm6.2_ubuntu22.04_py3.10_pytorch_release_2.3.0", "pytorch/pytorch", "Reg.Example:80/x:V1",
        "pytorch/pytorch@sha256:" + "0123456789abcdef" * 4, "10.0.0.7:5000/x:y@sha512:" + "0" * 128,
    ],
)  # fmt: skip
def test_image_references_of_every_form_are_read(image: str) -> None:
    assert stack_of(f'[[stack]]\nimage = "{image}"\naccelerator = "cuda"\n').image == image


WITH_A_STACK = '[[stack]]\ntorch = "2.5.1"\ncpu = true\n'


@pytest.mark.parametrize(
    ("name", "gib", "batch"),
    [
        ("NVIDIA H100", 79.6, 256),
        ("NVIDIA L4", 22.5, 128),
        ("NVIDIA H200", 140.4, 512),
        ("NVIDIA T4", 15.0, 64),
        ("x", None, 64),
    ],
)
def test_a_batch_is_chosen_by_model_first_then_by_the_nearest_memory_size(name: str, gib: float | None, batch: int) -> None:
    table = 'batch = { default = 64, "80GB" = 256, "24 gb" = 128, "H200" = 512 }'
    (workload,) = parse(WITH_A_STACK + f'[[workload]]\nmodel = "resnet50"\n{table}\n').workloads
    assert batch_on(workload, name, None if gib is None else int(gib * 2**30)) == batch


@pytest.mark.parametrize(
    ("table", "name", "gib", "key"),
    [
        ('"A10" = 32, "A100" = 256', "NVIDIA A100-SXM4-80GB", 79.2, "A100"),
        ('"A100" = 256, "A10" = 32', "NVIDIA A10", 22.5, "A10"),
        ('"A10" = 32', "NVIDIA A10G", 22.5, "default"),
        ('"L4" = 32, "L40" = 64', "NVIDIA L40S", 45.0, "default"),
        ('"4090" = 8, "RTX 4090" = 16', "NVIDIA GeForce RTX 4090", 24.0, "RTX 4090"),
        ('"rtx4090" = 16', "NVIDIA GeForce RTX 4090", 24.0, "rtx4090"),
        ('"A100" = 8, "A100 80 GB" = 16', "NVIDIA A100-SXM4-80GB", 79.2, "A100 80 GB"),
        ('"A100 80GB" = 16', "NVIDIA A100-SXM4-40GB", 39.5, "default"),
        ('"H200 141GB" = 16', "NVIDIA H200", 140.4, "H200 141GB"),  # the driver doesn't say the size, the memory does
        ('"80GB" = 8, "A100" = 16', "NVIDIA A100-SXM4-80GB", 79.2, "A100"),
        ('"80G" = 8, "40G" = 16', "NVIDIA A100-SXM4-80GB", 79.2, "80G"),
        ('"10G" = 8', "NVIDIA A10G", 22.5, "default"),
        ('"RTX" = 8, "24GB" = 16', "NVIDIA GeForce RTX 3090", 24.0, "24GB"),  # a family
        ('"RTX" = 8, "48GB" = 16', "NVIDIA GeForce RTX 3090", 24.0, "RTX"),
        ('"RTX 4090" = 128, "16GB" = 32', "NVIDIA GeForce RTX 4090 Laptop GPU", 16.0, "16GB"),  # another GPU
        ('"H100" = 128, "94GB" = 256', "NVIDIA H100 NVL", 93.6, "94GB"),
        ('"A100" = 8, "NVIDIA" = 4', "unknown NVIDIA GPU GPU-0000a100-a100", 80.0, "NVIDIA"),  # a UUID is no name
        ('"80GB" = 8, "72GB" = 16', "GPU of ours", 76.0, "80GB"),  # 5.0 % and 5.6 % off
        ('"MI300X" = 8, "MI300" = 4', "AMD Instinct MI300X", 191.7, "MI300X"),
        ('"MI300" = 4', "AMD Instinct MI300X", 191.7, "default"),
        ('"A100 80GB" = 256, "10GB" = 16', "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9.5, "10GB"),  # the size of its whole
        ('"A100-SXM4-80GB" = 256', "NVIDIA A100-SXM4-80GB MIG 2g.20gb", 19.5, "default"),
        ('"A100 MIG 1g.10gb" = 16, "A100" = 8', "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9.5, "A100 MIG 1g.10gb"),
        ('"GH200 480GB" = 256', "NVIDIA GH200 480GB", 95.0, "GH200 480GB"),  # the name bears the size of the CPU's memory
    ],
)
def test_a_batch_goes_by_whole_words_the_longest_key_first(table: str, name: str, gib: float, key: str) -> None:
    text = f'[[workload]]\nmodel = "resnet50"\nbatch = {{ default = 1, {table} }}\n'
    (workload,) = parse(WITH_A_STACK + text).workloads
    assert batch_key(workload, name, int(gib * 2**30)) == key
    assert batch_on(workload, name, int(gib * 2**30)) == dict(workload.batch_for).get(key, 1)


@pytest.mark.parametrize("table", ['"A100" = 8, "SXM4 A100" = 16, "A100 80GB" = 32', '"RTX" = 8, "GeForce" = 16'])
def test_two_keys_that_fit_a_gpu_equally_are_an_error(table: str) -> None:
    text = f'[[workload]]\nmodel = "resnet50"\nbatch = {{ default = 1, {table} }}\n'
    (workload,) = parse(WITH_A_STACK + text).workloads
    name = "NVIDIA A100-SXM4-80GB" if "A100" in table else "NVIDIA GeForce RTX 3090"
    with pytest.raises(BadInput, match=r'" and ".*" fit NVIDIA .* equally') as error:
        batch_key(workload, name, None)
    assert error.value.hint and '"A100" and' not in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('batch = { "80GB" = 64 }', "the table needs a default"),
        ('batch = { default = 8, "80GB" = 64, "80 gib" = 32 }', '"80GB" and "80 gib" mean the same'),
        ('batch = { default = 8, "RTX 4090" = 64, "rtx4090" = 32 }', '"RTX 4090" and "rtx4090" mean the same'),
        ('batch = { default = 8, "-" = 64 }', '"-" names no GPU and no memory size'),
        ("batch = { default = 0 }", '"default" must be a whole number of at least 1'),
        ('batch = { default = 8, "H200" = "many" }', '"H200" must be a whole number'),
        ("batch = 2.5", "must be a whole number"),
        ("batch = 8\nseconds = -1", "must be at least 0"),
    ],
)
def test_a_bad_batch_is_reported_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(BadInput) as error:
        parse(WITH_A_STACK + f'[[workload]]\nmodel = "resnet50"\n{text}\n')
    assert problem in str(error.value) and "line 6" in str(error.value).replace("line 7", "line 6")


def test_a_matrix_written_before_the_method_had_its_name_is_still_read() -> None:
    assert parse('[run]\nprotocol = "aime"\n' + STACK + WORKLOAD).method.name == "aime"
    message = problems_of('[run]\nprotocol = "aime"\nmethod = "cold"\n' + STACK + WORKLOAD)
    assert '"method"' in message and "protocol" in message


def test_another_index_may_serve_what_pytorchs_own_does_not() -> None:
    text = """[[stack]]\ntorch = "2.12.0"\nrocm = "7.14.0"\nindex = "https://repo.amd.com/rocm/whl-multi-arch/"
packages = ["torch[device-gfx950]"]\n[[workload]]\nmodel = "resnet50"\nbatch = 4\n"""
    (stack,) = parse(text).stacks
    (index, *_) = stack.indexes
    assert (stack.name, stack.variant) == ("torch2.12.0-rocm7.14.0", "rocm7.14.0") and "torch==2.12.0" in index.requirements
    with pytest.raises(BadInput, match=r"torch 2\.12\.0 has no rocm7\.14\.0 wheels"):
        parse(text.replace("index =", "# index ="))
