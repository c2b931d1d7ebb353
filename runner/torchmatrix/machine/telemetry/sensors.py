"""The sensors of this machine: its GPUs' and its CPU's, opened once per run."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torchmatrix.machine.cpu import quota
from torchmatrix.machine.host import Host
from torchmatrix.machine.telemetry import Sensor
from torchmatrix.machine.telemetry.amd import open_amd
from torchmatrix.machine.telemetry.cpu import open_cpu
from torchmatrix.machine.telemetry.nvidia import open_nvidia

CLOSE_SECONDS = 5.0


@contextmanager
def opened(host: Host) -> Iterator[tuple[tuple[Sensor, ...], tuple[str, ...]]]:
    """The sensors for `host` and what can't be monitored, in words; closed on leaving."""
    found: list[tuple[Sensor | None, str | None]] = [open_cpu(limits=quota())]
    if host.vendor == "nvidia":
        found.append(open_nvidia([gpu.uuid for gpu in host.gpus]))
    if host.vendor == "amd":
        found.append(open_amd(host.gpus))
    sensors: Sequence[Sensor] = [sensor for sensor, _ in found if sensor]
    try:
        yield tuple(sensors), tuple(note for _, note in found if note)
    finally:
        for sensor in sensors:
            closing = threading.Thread(target=sensor.close, daemon=True)  # a library that hangs must not block the tool
            closing.start()
            closing.join(timeout=CLOSE_SECONDS)
