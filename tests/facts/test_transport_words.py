"""NCCL's log -> how the nodes of a launch talk. The lines have the form that NCCL 2.21 prints, with invented names."""

import pytest

from torchmatrix.facts.launch_file import TransportLog

INIT = "node7:81:81 [0] NCCL INFO "
IB = ("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.7<0>", "Using network IB")
ROCE = ("NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.7<0>", "Using network IB")
SOCKET = ("NET/IB : No device found.", "NET/Socket : Using [0]eth0:10.0.0.7<0>", "Using network Socket")
CHANNELS = (
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA",
    "Channel 01/0 : 7[3] -> 0[0] [receive] via NET/IB/1/GDRDMA", "Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA",
)  # fmt: skip


@pytest.mark.parametrize(("words", "network"), [(IB, "IB"), (ROCE, "RoCE"), (SOCKET, "Socket"), ((), None)])
def test_nccl_says_its_network(words: tuple[str, ...], network: str | None) -> None:
    transport = read("nccl", *words)
    assert (transport["library"], transport["network"]) == ("nccl", network)


def test_the_paths_are_those_between_nodes_each_once() -> None:
    assert read("nccl", *IB, *CHANNELS)["paths"] == ["NET/IB/0/GDRDMA", "NET/IB/1/GDRDMA"]


def test_gloo_says_nothing_and_uses_tcp() -> None:
    assert read("gloo", "Using network IB") == {"library": "gloo", "network": "TCP", "paths": [], "interface": "ib0"}


def test_the_network_of_intels_collectives_is_unknown() -> None:
    assert read("xccl") == {"library": "xccl", "network": None, "paths": [], "interface": "ib0"}


def read(library: str, *words: str) -> dict[str, object]:
    collector = TransportLog(library)
    for line in words:
        collector.read((INIT + line + "\n").encode() if library != "gloo" else b"nothing\n")
    return collector.found("ib0")


def test_on_one_node_the_ways_between_gpus_are_named() -> None:
    collector = TransportLog("nccl")
    assert collector.found_within() is None
    for text in ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "Channel 01 : 1[1] -> 0[0] via SHM/direct/direct",
                 "Connected NVLS tree"):  # fmt: skip
        collector.read(f"host:1:2 [0] NCCL INFO {text}\n".encode())
    within = collector.found_within()
    assert within and within["paths"] == ["NVLS", "P2P/CUMEM", "SHM/direct/direct"] and within["network"] is None
