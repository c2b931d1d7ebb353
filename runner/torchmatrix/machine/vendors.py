"""What differs from one maker of GPUs to the next, outside of the files that read its driver: one entry each."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Vendor:
    """A maker of GPUs. `gpu`: its devices with the article; `ready`: by what a machine shows that they work.

    `accelerator`: of its stacks; `wheels`: how the variants of their wheels begin; `torch_device`: torch's type of device.
    `collectives`: the library that its ranks communicate by. `visible`: the variable that shows a process only some GPUs, by
    UUID if `by_uuid`, else by index. `nodes`: device files that each container needs beside the GPUs' render nodes.
    `apptainer`: its options that bring the driver's libraries. `pod_resource`: what its device plugin offers pods; empty for
    Intel's, whose name depends on the driver.
    """

    name: str
    gpu: str
    ready: str
    accelerator: str
    wheels: str
    torch_device: str
    collectives: str
    visible: str
    by_uuid: bool = False
    nodes: tuple[str, ...] = ()
    apptainer: tuple[str, ...] = ()
    pod_resource: str = ""


VENDORS = {
    vendor.name: vendor
    for vendor in (
        Vendor(
            name="nvidia", gpu="an NVIDIA GPU", ready="an NVIDIA GPU and its driver; `nvidia-smi` must list it",
            accelerator="cuda", wheels="cu", torch_device="cuda", collectives="nccl",
            visible="CUDA_VISIBLE_DEVICES", by_uuid=True,
            apptainer=("--nv",), pod_resource="nvidia.com/gpu",
        ),
        Vendor(
            name="amd", gpu="an AMD GPU", ready="an AMD GPU and the amdgpu driver; /dev/kfd must exist",
            accelerator="rocm", wheels="rocm", torch_device="cuda", collectives="nccl",
            visible="ROCR_VISIBLE_DEVICES", nodes=("/dev/kfd",),
            apptainer=("--rocm",), pod_resource="amd.com/gpu",
        ),
        Vendor(
            name="intel", gpu="an Intel GPU", ready="an Intel GPU that is a card of its own, and the i915 or xe driver; "
            "/dev/dri/renderD* must exist", accelerator="xpu", wheels="xpu", torch_device="xpu", collectives="xccl",
            visible="ZE_AFFINITY_MASK",
        ),
    )
}  # fmt: skip
ACCELERATORS = ("cpu", *(vendor.accelerator for vendor in VENDORS.values()))
"""What a stack may be for; "any" besides, for an interpreter."""


def accelerator_of(vendor: str | None) -> str:
    """Return the accelerator of the stacks for a machine with this vendor's GPUs; "cpu" for one without."""
    return VENDORS[vendor].accelerator if vendor in VENDORS else "cpu"


def torch_device_of(vendor: str | None) -> str:
    """Return torch's type of device: cuda (also for AMD's GPUs), xpu or cpu."""
    return VENDORS[vendor].torch_device if vendor in VENDORS else "cpu"


def collectives_of(vendor: str | None) -> str:
    """Return the library by which ranks on these devices communicate: gloo on a CPU."""
    return VENDORS[vendor].collectives if vendor in VENDORS else "gloo"
