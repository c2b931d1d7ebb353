"""GPUs that a mask leaves: each vendor's rules, of which a row is an environment and the GPUs that are left.

The rules' sources stand in torchmatrix/machine/masks.py.
"""

from dataclasses import replace

import pytest

from torchmatrix.machine.host import Gpu
from torchmatrix.machine.host_gpus import VendorGpus
from torchmatrix.machine.masks import masked


def found(vendor: str, names: list[str], called: list[tuple[str, ...]]) -> VendorGpus:
    """Return the GPUs of a machine with these names, each linked to each other."""
    gpus = tuple(
        Gpu(index=i, uuid=called[i][0] if called[i] else f"PCI-{i}", name=name, vendor=vendor) for i, name in enumerate(names)
    )
    links = tuple(tuple("X" if i == j else f"NV{i}{j}" for j in range(len(gpus))) for i in range(len(gpus)))
    return VendorGpus(gpus=gpus, links=links, p2p=links, driver="570", called=tuple(called))


H100 = found("nvidia", 4 * ["NVIDIA H100"], [(f"GPU-{i}{i}7f-aa", str(i)) for i in range(4)])
ONE_IS_DEAD = found("nvidia", 3 * ["NVIDIA H100"], [(f"GPU-{i}{i}7f-aa", str(i)) for i in (0, 2, 3)])
ALIKE = found("nvidia", 3 * ["NVIDIA L4"], [("GPU-abc0-1", "0"), ("GPU-abc1-1", "1"), ("GPU-def-1", "2")])
MIXED = found("nvidia", ["NVIDIA T400", "NVIDIA RTX A6000"], [("GPU-a", "0"), ("GPU-b", "1")])
SLICED = found(
    "nvidia",
    ["NVIDIA A100 MIG 3g.40gb", "NVIDIA A100 MIG 1g.10gb", "NVIDIA A100"],
    [("MIG-5e-1", "MIG-GPU-aa/1/0", "GPU-aa", "0"), ("MIG-5e-2", "MIG-GPU-aa/2/0"), ("GPU-bb", "1")],
)
TWELVE = found("nvidia", 12 * ["NVIDIA T4"], [(f"GPU-{i:02}", str(i)) for i in range(12)])

CUDA = [
    # As documented: in the host's order, whatever theirs
    (H100, "1,3", [1, 3]),
    (H100, "2,1", [1, 2]),
    (H100, " 0 , 2", [0, 2]),
    (H100, "", []),
    (H100, "0,", [0]),
    # The first entry that is no device ends the list
    (H100, "0,-1,1", [0]),
    (H100, "0,2,-1,1", [0, 2]),
    (H100, "-1", []),
    (H100, "-1,0", []),
    (H100, "NoDevFiles", []),
    (H100, "all", []),
    (H100, "3,4,0", [3]),
    (H100, "0,,1", [0]),
    (H100, "1,none,2", [1]),
    (H100, "9" * 5000, []),
    (TWELVE, "1,11,12,2", [1, 11]),
    # Numbers as C's strtoul reads them
    (H100, "1gpu2,2ampere", [1, 2]),
    (H100, "+2,03", [2, 3]),
    (H100, "0x1", [0]),
    (H100, "0000000000001,0000000000002", [1, 2]),
    (H100, "2,\N{ARABIC-INDIC DIGIT ONE}", [2]),
    # Who is named twice leaves none
    (H100, "0,1,1", []),
    (H100, "0,-1,0", [0]),
    (H100, "GPU-117f,GPU-117f-aa", []),
    # The beginning of a UUID that no other has
    (H100, "GPU-117f-aa,GPU-33", [1, 3]),
    (ALIKE, "GPU-abc0,GPU-def", [0, 2]),
    (ALIKE, "GPU-def,GPU-abc,GPU-abc0", [2]),
    (ALIKE, "GPU-", []),
    (ALIKE, "GPU-ABC0", []),
    (ALIKE, "abc0", []),
    (ALIKE, "GPU-abc0-1-and-more", []),
    # Numbers and UUIDs may stand beside each other
    (H100, "GPU-117f,2", [1, 2]),
    (H100, "2,GPU-227f", []),
    (SLICED, "GPU-bb,MIG-5e-1,0", []),
    (SLICED, "GPU-bb,MIG-5e-2,0", [0, 1, 2]),
    # A GPU that doesn't answer keeps its number
    (ONE_IS_DEAD, "2", [1]),
    (ONE_IS_DEAD, "0,1,3", [0]),
    # Slices by UUID, by their GPU and instances, or the first one by its GPU
    (SLICED, "MIG-5e-2,MIG-5e-1", [0, 1]),
    (SLICED, "MIG-GPU-aa/2/0", [1]),
    (SLICED, "MIG-GPU-aa", []),
    (SLICED, "MIG-5e", []),
    (SLICED, "0", [0]),
    (SLICED, "1", [2]),
    (SLICED, "2", []),
    (SLICED, "GPU-aa", [0]),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "mask", "left"), CUDA)
def test_what_cuda_visible_devices_leaves(machine: VendorGpus, mask: str, left: list[int]) -> None:
    kept = masked(machine, {"CUDA_VISIBLE_DEVICES": mask}, [])
    assert list(kept.gpus) == [machine.gpus[i] for i in left]
    assert kept.links == kept.p2p == tuple(tuple(machine.links[i][j] for j in left) for i in left)
    assert kept.driver == "570" and kept.called == tuple(machine.called[i] for i in left)


@pytest.mark.parametrize(
    ("mask", "order", "left"),
    [
        ("0", "PCI_BUS_ID", [0]),
        ("1", "PCI_BUS_ID", [1]),
        ("0", "FASTEST_FIRST", []),
        ("0", None, []),
        ("1,0", None, [0, 1]),
        ("GPU-b", None, [1]),
        ("GPU-b,0", None, [0, 1]),
        ("GPU-b,2", None, [1]),
    ],
)
def test_numbers_of_different_models_need_an_order_that_is_known(mask: str, order: str | None, left: list[int]) -> None:
    notes: list[str] = []
    environment = {"CUDA_VISIBLE_DEVICES": mask} | ({"CUDA_DEVICE_ORDER": order} if order else {})
    assert [gpu.index for gpu in masked(MIXED, environment, notes).gpus] == left
    assert ("CUDA_DEVICE_ORDER=PCI_BUS_ID" in notes[0]) is not bool(left)


MI300X = found("amd", 4 * ["MI300X"], [(f"GPU-{i}{i}7f5eed5eed5eed",) for i in range(4)])
IN_VM = found("amd", 2 * ["MI300X"], [(), ()])
PARTS = found("amd", 3 * ["MI300X"], [("GPU-5eed",), ("GPU-5eed",), ("GPU-abcd",)])
ROCR, HIP, CUDA_OF_HIP, ORDINAL = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"
SLURM = {"SLURM_JOB_ID": "7"}

ROCM = [
    (MI300X, {ROCR: "1,3"}, [1, 3]),
    (MI300X, {ROCR: ""}, []),
    (MI300X, {ROCR: "0, 2 ,-1,1"}, [0, 2]),
    (MI300X, {ROCR: "1,0x2,03"}, [1, 2, 3]),
    (MI300X, {ROCR: "2gpu"}, []),
    (MI300X, {ROCR: "1,,2"}, [1]),
    # A device that is named again ends the list
    (MI300X, {ROCR: "0,1,1,2"}, [0, 1]),
    # The beginning of a unique id that no other GPU has, in any case; of virtual machines there is none
    (MI300X, {ROCR: "gpu-117F,0,GPU-33"}, [0, 1, 3]),
    (MI300X, {ROCR: "GPU-"}, []),
    (IN_VM, {ROCR: "GPU-0000000000000000"}, []),
    (IN_VM, {ROCR: "1"}, [1]),
    (PARTS, {ROCR: "GPU-abcd,GPU-5eed,0"}, [2]),
    # HIP: an index with nothing around it, or a part of a unique id; the first that is no device ends, one again is left out
    (MI300X, {HIP: "1,3"}, [1, 3]),
    (MI300X, {HIP: "0, 1"}, [0]),
    (MI300X, {HIP: "01"}, []),
    (MI300X, {HIP: "0,0,2,-1,3"}, [0, 2]),
    (MI300X, {HIP: "GPU-117f,2"}, [1, 2]),
    (MI300X, {HIP: "GPU-117F"}, []),
    (PARTS, {HIP: "GPU-5eed"}, [0]),
    (MI300X, {HIP: ""}, []),
    (MI300X, {HIP: "-1"}, []),
    # CUDA_VISIBLE_DEVICES is HIP_VISIBLE_DEVICES' other name, and counts where that is empty
    (MI300X, {CUDA_OF_HIP: "2"}, [2]),
    (MI300X, {CUDA_OF_HIP: ""}, []),
    (MI300X, {CUDA_OF_HIP: "0,-1,1"}, [0]),
    (MI300X, {HIP: "1", CUDA_OF_HIP: "2"}, [1]),
    (MI300X, {HIP: "", CUDA_OF_HIP: "2"}, [2]),
    # HIP counts among what ROCr leaves, in ROCr's order
    (MI300X, {ROCR: "2,3", HIP: "1"}, [3]),
    (MI300X, {ROCR: "3,0", HIP: "0"}, [3]),
    (MI300X, {ROCR: "2,3", HIP: "2"}, []),
    (MI300X, {ROCR: "2,3", CUDA_OF_HIP: "2,3"}, []),
    (MI300X, {ROCR: "2,3", HIP: "GPU-33"}, [3]),
    (MI300X, {ROCR: "2,3", HIP: "GPU-11"}, []),
    (MI300X, {ROCR: "", HIP: "0"}, []),
    # GPU_DEVICE_ORDINAL is documented for HIP; where it is empty, it isn't set
    (MI300X, {ORDINAL: "0,2"}, [0, 2]),
    (MI300X, {ORDINAL: ""}, [0, 1, 2, 3]),
    (MI300X, {ORDINAL: "0,2", HIP: "2,3"}, [2]),
    (MI300X, {ROCR: "1,3", ORDINAL: "1"}, [3]),
    # Slurm that doesn't know its GPUs' vendor sets all variables alike
    (MI300X, {ROCR: "2,3", CUDA_OF_HIP: "2,3", ORDINAL: "2,3"} | SLURM, [2, 3]),
    (MI300X, {ROCR: "2,3", CUDA_OF_HIP: "1", ORDINAL: "2,3"} | SLURM, [3]),
    (MI300X, {ROCR: "2,3", HIP: "2,3"} | SLURM, []),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "environment", "left"), ROCM)
def test_what_rocms_variables_leave(machine: VendorGpus, environment: dict[str, str], left: list[int]) -> None:
    assert [gpu.index for gpu in masked(machine, environment, []).gpus] == left


@pytest.mark.parametrize(
    ("machine", "environment", "note"),
    [
        (H100, {"CUDA_VISIBLE_DEVICES": "1,3"}, "CUDA_VISIBLE_DEVICES is set: 2 of 4 GPUs are used; gpu0 is the first of them"),
        (
            H100,
            {"CUDA_VISIBLE_DEVICES": "0,\x1b[1m,1"},
            "CUDA_VISIBLE_DEVICES is set: 1 of 4 GPUs are used; gpu0 is the first of them; CUDA_VISIBLE_DEVICES ends at "
            "'\\x1b[1m', which is none of them",
        ),
        (
            MI300X,
            {ROCR: "0,1", HIP: "1,2"},
            "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES are set: 1 of 4 GPUs are used; gpu0 is the first of them; "
            "HIP_VISIBLE_DEVICES ends at '2', which is none of them",
        ),
    ],
)
def test_a_note_tells_what_a_mask_leaves_and_where_it_ends_early(
    machine: VendorGpus, environment: dict[str, str], note: str
) -> None:
    notes: list[str] = []
    masked(machine, environment, notes)
    assert notes == [note]


def test_without_a_mask_or_without_gpus_nothing_is_left_out_and_nothing_said() -> None:
    notes: list[str] = []
    for machine in (H100, MI300X, VendorGpus(driver="570")):
        assert masked(machine, {"NVIDIA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, notes) == machine
    assert masked(replace(VendorGpus(), driver="570"), {"CUDA_VISIBLE_DEVICES": "1"}, notes).gpus == () and notes == []
    assert masked(H100, {ROCR: "1", HIP: "1", ORDINAL: "1"}, notes) == H100, "AMD's variables are none of NVIDIA's"
