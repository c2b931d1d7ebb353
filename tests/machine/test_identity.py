"""Identity of a machine: stable when GPUs move, different for clones, and nothing confidential in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchmatrix.machine.host import as_identity, detect, identity

ID = "3c7a1f0b9d2e4c5f8a6b7c8d9e0f1a2b"


def machine(root: Path, machine_id: str = ID, cards: dict[str, tuple[str, str, str]] | None = None) -> Path:
    """Write what /etc and /sys of a machine say; `cards`: device, MAC address and the kernel's kind of address by name."""
    (root / "etc").mkdir(parents=True)
    (root / "etc/machine-id").write_text(machine_id + "\n")
    for name, (device, address, assigned) in (cards or {}).items():
        place = root / "sys/class/net" / name
        place.mkdir(parents=True)
        (root / "sys/devices" / device).mkdir(parents=True)
        (place / "device").symlink_to(root / "sys/devices" / device)
        (place / "address").write_text(address + "\n")
        (place / "addr_assign_type").write_text(assigned + "\n")
    return root


def test_the_identity_is_the_same_each_time_and_reveals_no_machine_id(tmp_path: Path) -> None:
    hashed = identity(machine(tmp_path), tmp_path)
    assert hashed == identity(tmp_path, tmp_path) and hashed is not None
    assert len(hashed) == 16 and hashed not in ID and not list(tmp_path.glob("machine*"))
    assert detect().machine == detect().machine


def test_clones_of_an_image_differ_by_their_first_network_card(tmp_path: Path) -> None:
    cards = {
        "eth1": ("pci0000:00/0000:00:04.0", "02:00:00:00:00:02", "0"),
        "eth0": ("pci0000:00/0000:00:03.0", "02:00:00:00:00:01", "0"),
    }
    extra = {
        "docker0": ("virtual/net", "02:42:00:00:00:09", "0"),
        "usb0": ("pci0000:00/0000:00:01.0/usb1", "02:00:00:00:00:07", "0"),
        "eth9": ("pci0000:00/0000:00:02.0", "02:00:00:00:00:08", "1"),
    }
    first = identity(machine(tmp_path / "a", cards=cards))
    assert identity(machine(tmp_path / "b", cards={**extra, **cards})) == first, (
        "a bridge, a dock and a random address don't count"
    )
    moved = {**cards, "eth0": (cards["eth0"][0], "02:00:00:00:00:03", "0")}
    assert identity(machine(tmp_path / "c", cards=moved)) != first


@pytest.mark.parametrize("machine_id", ["", "uninitialized", "0" * 32, "nonsense"])
def test_without_a_machine_id_it_is_the_boards_or_one_that_is_kept(tmp_path: Path, machine_id: str) -> None:
    root = machine(tmp_path / "root", machine_id)
    kept = identity(root, tmp_path / "state")
    assert kept is not None and identity(root, tmp_path / "state") == kept != identity(root, tmp_path / "of another user")
    board = root / "sys/class/dmi/id/product_uuid"
    board.parent.mkdir(parents=True)
    for placeholder in ("00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009", "Not Settable"):
        board.write_text(placeholder + "\n")
        assert identity(root, tmp_path / "state") == kept
    board.write_text("4C4C4544-0051-3010-8052-B4C04F4D3332\n")
    assert identity(root, tmp_path / "state") not in (kept, None)


def test_without_anything_to_read_or_write_there_is_no_identity(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert identity(tmp_path, tmp_path / "file") is None


def test_a_setting_overrides_the_identity(site: Callable[..., Any], tmp_path: Path) -> None:
    site(TORCHMATRIX_MACHINE="the third box")
    chosen = identity(machine(tmp_path))
    assert chosen == as_identity("the third box") != as_identity("the fourth box")
    site(TORCHMATRIX_MACHINE="0123456789abcdef")
    assert identity(tmp_path) == "0123456789abcdef"
    site(TORCHMATRIX_MACHINE="b\udcfcro")  # no UTF-8
    assert len(str(identity(tmp_path))) == 16 and identity(tmp_path) != as_identity("b\udce4ro")
