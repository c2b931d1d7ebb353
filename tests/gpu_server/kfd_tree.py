"""The trees that Linux shows of an AMD server: /sys/class/kfd, /sys/class/drm and /dev with its render nodes."""

from pathlib import Path

from invented_servers import Facts, Server

_XGMI, _PCIE = 11, 2
NAMESPACE = """
set -e
mount -t tmpfs none /sys/module
mkdir /sys/module/amdgpu
echo "$AMDGPU" > /sys/module/amdgpu/version
kept=$(mktemp -d)
cp -a /sys/class/. "$kept" 2>/dev/null || true
mount -t tmpfs none /sys/class
cp -a "$kept"/. /sys/class
cp -a "$TREE"/class/. /sys/class
rm -r "$kept"
new=$(mktemp -d)
mount -t tmpfs none "$new"
for name in null zero full random urandom tty; do cp -a /dev/$name "$new"; done
ln -s /proc/self/fd "$new/fd"
mkdir "$new/pts" "$new/shm" "$new/dri"
mount --rbind /dev/pts "$new/pts"
mount --rbind /dev/shm "$new/shm"
mknod "$new/kfd" c 240 0
for minor in $RENDER_MINORS; do mknod "$new/dri/renderD$minor" c 241 $minor; done
chgrp "$RENDER_GROUP" "$new/kfd" "$new"/dri/*
chmod 660 "$new/kfd" "$new"/dri/*
mount --rbind "$new" /dev
exec "$@"
"""
"""A shell program that executes its arguments where these trees are /sys and /dev. Needs root; nobody else sees them.

The nodes are real character devices without a driver behind them. Variables: TREE, AMDGPU (the driver's version),
RENDER_MINORS, RENDER_GROUP.
"""


def write(server: Server, tree: Path) -> None:
    """Write KFD's topology of a server with two CPUs, and the PCI devices of its GPUs, below `tree`."""
    nodes = tree / "class/kfd/kfd/topology/nodes"
    for number in range(2):
        _file(nodes / f"{number}/properties", "cpu_cores_count 96\nsimd_count 0\n")
    for number, facts in server.devices.items():
        _gpu(nodes, number, facts, len(server.devices))
        device = tree / f"class/drm/renderD{facts['render']}/device"
        for name, text in _pci(facts).items():
            _file(device / name, f"{text}\n")


def _gpu(nodes: Path, number: int, facts: Facts, count: int) -> None:
    node = nodes / str(2 + number)
    properties = {"simd_count": 1216, "gfx_target_version": 90402, "drm_render_minor": facts["render"],
                  "unique_id": int(str(facts["uuid"])[4:], 16), "location_id": _location(str(facts["pci"])),
                  "max_engine_clk_fcompute": 2100}  # fmt: skip
    _file(node / "properties", _lines(properties))
    _file(node / "name", "ip discovery\n")
    _file(node / "mem_banks/0/properties", _lines({"heap_type": 1, "size_in_bytes": facts["memory"]}))
    for place, other in enumerate(range(2, 2 + count)):
        if other != 2 + number:
            link = {"type": _XGMI, "node_from": 2 + number, "node_to": other, "flags": 1}
            _file(node / f"io_links/{place + 1}/properties", _lines(link))
    _file(node / "io_links/0/properties", _lines({"type": _PCIE, "node_from": 2 + number, "node_to": 0, "flags": 1}))


def _location(address: str) -> int:
    _, bus, device = address.split(":")
    return int(bus, 16) << 8 | int(device[:2], 16) << 3 | int(device[3:])


def _pci(facts: Facts) -> dict[str, object]:
    return {"numa_node": facts["numa"], "current_link_speed": "32.0 GT/s PCIe", "current_link_width": 16,
            "max_link_speed": "32.0 GT/s PCIe", "max_link_width": 16, "product_name": facts["name"]}  # fmt: skip


def _lines(facts: dict[str, object]) -> str:
    return "".join(f"{name} {value}\n" for name, value in facts.items())


def _file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
