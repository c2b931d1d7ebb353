"""What the machine is taken to be: masks of schedulers, engines elsewhere, AMD's topology."""

import os
from pathlib import Path

from torchmatrix.host import Host, _amd, _masked, detect, seen_through


def test_this_machine_is_described() -> None:
    host = detect()
    assert host.memory_bytes > 0 and set(host.cores) <= os.sched_getaffinity(0) and host.name and host.kernel


def test_a_schedulers_mask_is_kept_by_index_and_by_uuid(nvidia_host: Host) -> None:
    notes: list[str] = []
    for mask in ("2,3", "GPU-222,GPU-333"):
        kept = _masked(nvidia_host.gpus, ("CUDA_VISIBLE_DEVICES",), {"CUDA_VISIBLE_DEVICES": mask}, notes)
        assert [gpu.index for gpu in kept] == [2, 3]
    assert notes[0] == "CUDA_VISIBLE_DEVICES is set: 2 of 4 GPUs are used; gpu0 is the first of them"
    assert _masked(nvidia_host.gpus, ("CUDA_VISIBLE_DEVICES",), {"CUDA_VISIBLE_DEVICES": ""}, notes) == ()
    assert _masked(nvidia_host.gpus, ("CUDA_VISIBLE_DEVICES",), {}, notes) == nvidia_host.gpus


def test_an_engine_on_another_machine_is_described_as_that_machine(nvidia_host: Host) -> None:
    info = {"Name": "server", "KernelVersion": "5.4", "OperatingSystem": "Other OS", "Architecture": "x86_64", "NCPU": 8,
            "MemTotal": 1 << 34}  # fmt: skip
    there = seen_through(nvidia_host, info, over_network=True)
    assert (there.name, there.gpus, len(there.cores), there.os) == ("server", (), 8, "Other OS")
    assert "run torchmatrix there" in there.notes[-1]
    here = {**info, "Name": nvidia_host.name, "KernelVersion": nvidia_host.kernel}
    assert seen_through(nvidia_host, here, over_network=True) is nvidia_host
    in_a_container = {**info, "Name": "outer", "KernelVersion": nvidia_host.kernel}
    assert seen_through(nvidia_host, in_a_container, over_network=False) is nvidia_host


def test_amd_gpus_are_read_from_the_kernels_topology(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, simd in enumerate((0, 304, 304)):
        node = nodes / str(number)
        (node / "mem_banks/0").mkdir(parents=True)
        unique = 0x1000 + number
        (node / "properties").write_text(
            f"simd_count {simd}\ngfx_target_version 90402\ndrm_render_minor {127 + number}\nunique_id {unique}\n"
        )
        (node / "name").write_text("aqua_vanjaram\n")
        (node / "mem_banks/0/properties").write_text("heap_type 1\nsize_in_bytes 206141652992\n")
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD128").touch()
    gpus, driver = _amd(tmp_path / "sys", tmp_path / "dev")
    assert [(g.index, g.capability, g.uuid) for g in gpus] == [
        (0, "gfx942", "GPU-0000000000001001"),
        (1, "gfx942", "GPU-0000000000001002"),
    ]
    assert gpus[0].render_node == str(tmp_path / "dev/dri/renderD128") and gpus[0].memory_bytes == 206141652992
    assert gpus[0].groups == (os.getgid(),) and driver
