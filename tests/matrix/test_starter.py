"""The matrix that `init` writes: the default one with only the rows of the machine, and nothing that plan would refuse."""

from dataclasses import replace

import pytest

from torchmatrix.machine.host import Gpu, Host
from torchmatrix.matrix.matrix_file import parse
from torchmatrix.matrix.variants import starter_matrix
from torchmatrix.planning.fit import Prerequisites, suited
from torchmatrix.planning.plan import make_plan


def test_each_machine_gets_its_own_stacks_and_none_is_skipped(cpu_host: Host, nvidia_host: Host, amd_host: Host) -> None:
    for host, accelerator in ((cpu_host, "cpu"), (nvidia_host, "cuda"), (amd_host, "rocm")):
        matrix = parse(starter_matrix(host, containers=True, suited=suited))
        assert {stack.accelerator for stack in matrix.stacks} == {accelerator}
        plan = make_plan(matrix, host, Prerequisites(containers=True))
        unsuited = {skip.why.reason for skip in plan.skips}
        assert plan.cells and unsuited <= {"tf32 is a mode of NVIDIA GPUs"}


@pytest.mark.parametrize(
    ("model", "architecture", "stacks"),
    [
        (("AMD Instinct MI355X", "gfx950"), "x86_64", {"torch2.13.0-rocm7.2"}),
        (("AMD Radeon 8060S", "gfx1151"), "x86_64", {"torch2.13.0-rocm7.2"}),
        (("AMD Radeon RX 9070 XT", "gfx1201"), "x86_64", {"torch2.13.0-rocm7.2"}),
        (("AMD Instinct MI300X", "gfx942"), "x86_64", {"torch2.13.0-rocm7.2", "torch2.5.1-rocm6.2"}),
        (("NVIDIA GH200 480GB", "9.0"), "aarch64", {"torch2.15.0-cu130", "torch2.7.1-cu128"}),
        (("NVIDIA A100-PCIE-40GB", "8.0"), "aarch64", {"torch2.15.0-cu130"}),
        (("NVIDIA Thor", "11.0"), "aarch64", {"torch2.15.0-cu130"}),
    ],
)
def test_init_chooses_the_wheels_that_have_code_for_the_gpu_and_plan_skips_none(
    nvidia_host: Host, model: tuple[str, str], architecture: str, stacks: set[str]
) -> None:
    vendor = "amd" if model[0].startswith("AMD") else "nvidia"
    gpu = Gpu(index=0, uuid="GPU-0", name=model[0], vendor=vendor, capability=model[1], memory_bytes=80 << 30)
    host = replace(nvidia_host, vendor=vendor, gpus=(gpu,), driver="580.65.06", architecture=architecture)
    matrix = parse(starter_matrix(host, containers=False, suited=suited))
    assert {stack.name for stack in matrix.stacks} == stacks
    plan = make_plan(matrix, host, Prerequisites(containers=False))
    assert plan.cells and {skip.why.reason for skip in plan.skips} <= {"tf32 is a mode of NVIDIA GPUs"}


T400 = ("NVIDIA T400", "7.5")
H100, V100, K620 = ("NVIDIA H100", "9.0"), ("Tesla V100", "7.0"), ("NVIDIA Quadro K620", "5.0")
RX7900, RAPHAEL = ("AMD Radeon RX 7900 XTX", "gfx1100"), ("AMD Raphael", "gfx1036")


@pytest.mark.parametrize(
    ("vendor", "models", "labels", "left"),
    [
        ("nvidia", [H100, H100, K620], {"gpu0", "gpu0+1"}, "GPU 2 (NVIDIA Quadro K620)"),
        ("nvidia", [K620, H100, H100], {"gpu1", "gpu1+2"}, "GPU 0 (NVIDIA Quadro K620)"),
        ("nvidia", [H100, H100, H100, K620, H100], {"gpu0", "gpu0+1", "gpu0+1+2+4"}, "GPU 3 (NVIDIA Quadro K620)"),
        ("nvidia", [K620, H100, K620], {"gpu1"}, "GPU 0 (NVIDIA Quadro K620), 2 (NVIDIA Quadro K620)"),
        ("nvidia", [V100, V100], {"gpu0", "gpu0+1"}, ""),
        ("amd", [RX7900, RAPHAEL], {"gpu0"}, "GPU 1 (AMD Raphael)"),
        ("amd", [RAPHAEL, RX7900], {"gpu1"}, "GPU 0 (AMD Raphael)"),
        ("amd", [RX7900, RX7900], {"gpu0", "gpu0+1"}, ""),
    ],
)
def test_init_leaves_out_a_card_that_stacks_have_no_code_for_and_says_so(
    nvidia_host: Host, vendor: str, models: list[tuple[str, str]], labels: set[str], left: str
) -> None:
    driver = "580.65.06" if vendor == "nvidia" else "6.8.5"
    gpus = tuple(
        Gpu(index=i, uuid=f"GPU-{i}", name=n, vendor=vendor, capability=c, memory_bytes=(2 if "K620" in n else 80) << 30)
        for i, (n, c) in enumerate(models)
    )
    host = replace(nvidia_host, vendor=vendor, gpus=gpus, driver=driver)
    text = starter_matrix(host, containers=True, suited=suited)
    plan = make_plan(parse(text), host, Prerequisites(containers=True))
    assert {cell.gpus.label for cell in plan.cells} == labels and not plan.skips
    assert (f"have code for it: {left}." in text) if left else ("Left out" not in text)


@pytest.mark.parametrize(
    ("gpus", "labels", "left"),
    [
        ([T400, H100, H100], {"gpu1", "gpu1+2"}, "a set is of one model: GPU 0 (NVIDIA T400)"),
        ([H100, T400, H100], {"gpu0", "gpu0+2"}, "a set is of one model: GPU 1 (NVIDIA T400)"),
        ([T400, H100], {"gpu1"}, "a set is of one model: GPU 0 (NVIDIA T400)"),
        ([("NVIDIA unknown", None), H100], {"gpu1"}, "a set is of one model: GPU 0 (NVIDIA unknown)"),
        ([K620, T400, H100], {"gpu2"}, "a set is of one model: GPU 1 (NVIDIA T400)"),
    ],
)
def test_a_display_card_that_stacks_have_code_for_takes_no_place_among_the_gpus(
    nvidia_host: Host, gpus: list[tuple[str, str | None]], labels: set[str], left: str
) -> None:
    made = tuple(
        Gpu(index=i, uuid=f"GPU-{i}", name=n, vendor="nvidia", capability=c, memory_bytes=(80 if "H100" in n else 2) << 30)
        for i, (n, c) in enumerate(gpus)
    )
    host = replace(nvidia_host, gpus=made, driver="580.65.06")
    text = starter_matrix(host, containers=True, suited=suited)
    plan = make_plan(parse(text), host, Prerequisites(containers=True))
    assert {cell.gpus.label for cell in plan.cells} == labels and not plan.skips and f"# Left out, since {left}." in text


def test_a_machine_for_which_no_stack_has_code_gets_all_and_plan_says_why(nvidia_host: Host) -> None:
    kepler = replace(nvidia_host, gpus=tuple(replace(gpu, capability="3.0") for gpu in nvidia_host.gpus))
    matrix = parse(starter_matrix(kepler, containers=False, suited=suited))
    assert len(matrix.stacks) > 2 and not make_plan(matrix, kepler, Prerequisites(containers=False)).cells


def test_without_a_container_engine_vendors_images_are_left_out(nvidia_host: Host) -> None:
    assert {stack.source for stack in parse(starter_matrix(nvidia_host, containers=False)).stacks} == {"wheels"}
    assert {stack.source for stack in parse(starter_matrix(nvidia_host, containers=True)).stacks} == {"wheels", "image"}


def test_an_interpreter_becomes_the_only_stack(cpu_host: Host, nvidia_host: Host) -> None:
    for host in (cpu_host, nvidia_host):
        (stack,) = parse(starter_matrix(host, containers=True, python="/opt/python")).stacks
        assert (stack.source, stack.python) == ("interpreter", "/opt/python")
