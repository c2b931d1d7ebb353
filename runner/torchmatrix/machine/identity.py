"""Which machine this is: 16 hex digits that stay the same when GPUs move and when its name changes.

A keyed hash (HMAC-SHA-256) of /etc/machine-id, as sd_id128_get_machine_app_specific(3) makes one: the id itself is confidential
and is never recorded. Images are often cloned with it, so the permanent MAC address of the first PCI network card goes in too;
what only root can read (DMI serial numbers) does not, since the same machine must be the same for every user. Without a
machine-id: the DMI product UUID where it can be read, else a random id that is kept in the user's state folder.

The setting `machine` (TORCHMATRIX_MACHINE) overrides all that: 16 hex digits as they are, of any other text the hash. Use it
where an image is cloned with one network address, or to remain the same machine after a new installation.
"""

import hashlib
import hmac
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from torchmatrix.ground import settings
from torchmatrix.ground.files import text_of, write_whole

_FORM = re.compile(r"[0-9a-f]{16}")
_ID = re.compile(r"[0-9a-f]{32}")
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PLACEHOLDERS = frozenset({"03000200040005000006000700080009", "0123456789abcdef0123456789abcdef"})
"""Product UUIDs that a vendor wrote into all boards."""
_OURS = b"torchmatrix machine"
_PERMANENT = "0"
"""The kernel's addr_assign_type of an address that is burnt into the card."""


def identity(root: Path = Path("/"), state: Path | None = None) -> str | None:
    """This machine's identity; None if nothing can be read and nothing kept. `root`: where /etc and /sys are."""
    if said := settings.load().machine:
        return as_identity(said)
    source = _machine_id(root / "etc/machine-id") or _product(root / "sys/class/dmi/id/product_uuid")
    if source is None:
        return _kept((state or settings.state_folder()) / "machine")
    return _hashed(source, _first_network_card(root / "sys/class/net"))


def board_identity(dmi: Path = Path("/sys/class/dmi/id")) -> str | None:
    """The hash of the main board's serial number, which mostly only root can read; None: nothing can be read."""
    serials = (text_of(dmi / name) or "" for name in ("board_serial", "product_serial"))
    said = next((serial for serial in serials if any(map(str.isdigit, serial)) and len(set(serial)) > 2), None)
    return _hashed(said, "board") if said else None


def as_identity(said: str) -> str:
    """An identity that somebody chose: 16 hex digits as they are, the hash of any other text."""
    return said if _FORM.fullmatch(said) else _hashed(said, "")


def _hashed(key: str, more: str) -> str:
    return hmac.new(key.encode(), _OURS + more.encode(), hashlib.sha256).hexdigest()[:16]


def _machine_id(path: Path) -> str | None:
    """systemd writes "uninitialized" or nothing into images that get their id when they first start."""
    said = text_of(path) or ""
    return said if _ID.fullmatch(said) and set(said) != {"0"} else None


def _product(path: Path) -> str | None:
    said = (text_of(path) or "").lower().replace("-", "") if _UUID.fullmatch(text_of(path) or "") else ""
    return said if len(set(said)) > 1 and said not in _PLACEHOLDERS else None


def _first_network_card(folder: Path) -> str:
    """The permanent address of the card that comes first on the PCI bus; "" if there is none, as in most containers."""
    found = []
    for card in folder.glob("*"):
        place, address = str((card / "device").resolve()), text_of(card / "address")
        is_inside = "/pci" in place and "/usb" not in place and (card / "device").exists()
        if is_inside and address and text_of(card / "addr_assign_type") == _PERMANENT:
            found.append((place, text_of(card / "dev_port") or "0", address.lower()))
    return min(found)[2] if found else ""


def _kept(path: Path) -> str | None:
    """The random identity in a file, which is made on first use; of two processes that make it at once both get the same."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        if not path.exists():
            write_whole(part, secrets.token_hex(8).encode())
            with suppress(FileExistsError):
                os.link(part, path)
            part.unlink()
    said = text_of(path) or ""
    return said if _FORM.fullmatch(said) else None
