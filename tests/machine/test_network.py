"""The interface by which another machine is reached."""

import socket

from torchmatrix.machine import host


def test_this_machine_reaches_itself_by_the_loopback() -> None:
    assert host.interface_to("127.0.0.1") == "lo"


def test_an_unknown_machine_is_reached_by_no_interface() -> None:
    assert host.interface_to("no-such-host.invalid") == ""


def test_the_port_can_be_listened_on() -> None:
    with socket.create_server(("", host.free_port())) as server:
        assert server.getsockname()[1] > 0
