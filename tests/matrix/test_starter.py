"""What `init` writes: the default matrix with only the rows of the machine, and nothing that plan would refuse."""

from functools import partial

from torchmatrix.machine.host import Host
from torchmatrix.matrix.matrix_file import parse
from torchmatrix.matrix.starter import starter_matrix
from torchmatrix.planning.fit import Supplies, suits
from torchmatrix.planning.plan import make_plan


def test_each_machine_gets_its_own_stacks_and_none_is_skipped(cpu_host: Host, nvidia_host: Host, amd_host: Host) -> None:
    for host, accelerator in ((cpu_host, "cpu"), (nvidia_host, "cuda"), (amd_host, "rocm")):
        matrix = parse(starter_matrix(host, containers=True, fits=partial(suits, host=host)))
        assert {stack.accelerator for stack in matrix.stacks} == {accelerator}
        plan = make_plan(matrix, host, Supplies(containers=True))
        unsuited = {skip.why.reason for skip in plan.skips}
        assert plan.cells and unsuited <= {"tf32 is a mode of NVIDIA GPUs"}


def test_without_a_container_engine_vendors_images_are_left_out(nvidia_host: Host) -> None:
    assert {stack.source for stack in parse(starter_matrix(nvidia_host, containers=False)).stacks} == {"wheels"}
    assert {stack.source for stack in parse(starter_matrix(nvidia_host, containers=True)).stacks} == {"wheels", "image"}


def test_an_interpreter_becomes_the_only_stack(cpu_host: Host, nvidia_host: Host) -> None:
    for host in (cpu_host, nvidia_host):
        (stack,) = parse(starter_matrix(host, containers=True, python="/opt/python")).stacks
        assert (stack.source, stack.python) == ("interpreter", "/opt/python")
