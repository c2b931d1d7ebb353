"""Devices that the method sustained heats before its first launch."""

from dataclasses import replace

from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix.running import rounds

TEXT = """
[gpus]
counts = [1]
[[stack]]
torch = "2.5.1"
cuda = "12.4"
[[workload]]
model = "resnet18"
batch = 4
compile = [true, false]
"""


def cells(host: Host) -> list[Cell]:
    return list(make_plan(matrix_file.parse(TEXT), host, Prerequisites(containers=True)).cells)


def test_the_neighbours_of_a_cell_are_heated_too(nvidia_host: Host) -> None:
    host = replace(nvidia_host, gpus=tuple(replace(nvidia_host.gpus[0], uuid=f"GPU-{number}") for number in range(4)))
    chosen = rounds.heating_cell(cells(host))
    assert not chosen.workload.compile and chosen.gpus.label == "gpu0"
    heats = rounds.load_on_all(chosen, host, 60.0)
    assert heats.gpus.label == "gpu0+1+2+3" and heats.gpus.gpus == host.gpus and heats.id.endswith("/gpu0+1+2+3")
    lengths = [heats.workload.factors[name] for name in ("warmup_seconds", "windows", "steps", "requests")]
    assert lengths == [60.0, 1, 1, 0] and heats.workload.batch == 4


def test_slices_of_a_gpu_share_its_heat(nvidia_host: Host) -> None:
    host = replace(nvidia_host, gpus=tuple(replace(nvidia_host.gpus[0], uuid=f"MIG-{n}", slice_of="GPU-0") for n in range(2)))
    chosen = cells(nvidia_host)[0]
    assert rounds.load_on_all(chosen, host, 60.0).gpus == chosen.gpus
