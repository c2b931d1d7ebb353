"""What the communication library prints -> how the nodes of a launch talk. The words are NCCL's, which RCCL shares.

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug
"""

import re
from typing import Any

MOST_PATHS = 64
_NETWORK = re.compile(rb"NCCL INFO Using network (.+)")
_DEVICES = re.compile(rb"NCCL INFO NET/IB : Using (.+?)(?:; OOB|$)")
_PATH = re.compile(rb"NCCL INFO Channel .+ via (NET/\S+)")
_ROCE = re.compile(rb"/RoCE\b")


class Collector:
    """Reads the log of one launch. `vendor`: of its devices; ranks on CPUs use gloo, which prints nothing, and TCP."""

    def __init__(self, vendor: str | None) -> None:
        self._library = "gloo" if vendor == "cpu" else "nccl"
        self._network: str | None = "TCP" if vendor == "cpu" else None
        self._is_ethernet = False
        self._paths: set[str] = set()

    def read(self, line: bytes) -> None:
        """One line of the log."""
        if b"NCCL INFO" not in line:
            return
        line = line.strip()
        if found := _NETWORK.search(line):
            self._network = found[1].decode(errors="replace").strip()
        elif found := _DEVICES.search(line):
            self._is_ethernet = bool(_ROCE.search(found[1]))
        elif (found := _PATH.search(line)) and len(self._paths) < MOST_PATHS:
            self._paths.add(found[1].decode(errors="replace"))

    def found(self, interface: str) -> dict[str, Any]:
        """The fields of the event "transport": the network is in NCCL's word, but RoCE where its IB runs over Ethernet."""
        network = "RoCE" if self._network == "IB" and self._is_ethernet else self._network
        return {"library": self._library, "network": network, "paths": sorted(self._paths), "interface": interface or None}
