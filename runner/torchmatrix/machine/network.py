"""By which network interface this machine reaches another one."""

import fcntl
import socket
import struct
from contextlib import suppress
from pathlib import Path

_SIOCGIFADDR = 0x8915
"""Linux's request for the IPv4 address of an interface (netdevice(7))."""
_INFINIBAND = Path("/dev/infiniband")


def interface_to(address: str) -> str:
    """The interface whose address this machine uses towards `address` (a name or an IPv4 address); empty if that is unknown.

    Nothing is sent: a UDP socket only looks the route up.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
            return next((name for _, name in socket.if_nameindex() if _address_of(probe, name) == own), "")
    except OSError:
        return ""


def _address_of(probe: socket.socket, interface: str) -> str:
    with suppress(OSError):
        found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        return socket.inet_ntoa(found[20:24])
    return ""


def free_port() -> int:
    """A TCP port that nothing listens on, on any address of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def fabric() -> tuple[str, ...]:
    """The device files by which programs use the network's hardware directly; none without such hardware."""
    return (str(_INFINIBAND),) if _INFINIBAND.exists() else ()
