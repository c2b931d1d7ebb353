"""The only stand-in for NVML: a healthy machine with two linked GPUs; a test may replace any of its answers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

Answer = Callable[..., Any]


def gives(value: Any) -> Answer:
    """Return an answer that is the same for every argument."""
    return lambda *_: value


def raises(code: int) -> Answer:
    """Return an answer that is an error of NVML."""

    def function(*_: Any) -> Any:
        raise pynvml.NVMLError(code)

    return function


def field(code: int, value: int) -> list[Any]:
    """Return what nvmlDeviceGetFieldValues gives for one field."""
    return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=value))]


class FakeNvml:
    """pynvml's constants and errors, and answers of our own; None stands for a function that an older pynvml lacks.

    A GPU's handle is its index or UUID. `calls`: the functions that were called, in order.
    """

    def __init__(self, **answers: Answer | None) -> None:
        self.calls: list[str] = []
        usual: dict[str, Answer | None] = {**_LIBRARY, **_IDENTITY, **_LINKS, **_READINGS}
        self.answers = {name: answer for name, answer in (usual | answers).items() if answer}

    def __getattr__(self, name: str) -> Any:
        if name in self.answers:
            self.calls.append(name)
            return self.answers[name]
        if name.startswith("nvml"):
            raise AttributeError(name)
        return getattr(pynvml, name)


def linked(ends: dict[int, list[Any]], **answers: Answer | None) -> FakeNvml:
    """Return a machine whose GPUs 0, 1, ... have the NVLinks of `ends`: each leads to a GPU, to "switch", or is down (None)."""
    switch = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH

    def place(gpu: Any) -> Any:
        return SimpleNamespace(domain=0, bus=0xF0 if gpu == "switch" else gpu, device=0)

    def state(gpu: int, link: int) -> int:
        if link >= len(ends[gpu]):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(ends[gpu][link] is not None)

    links: dict[str, Answer | None] = {
        "nvmlDeviceGetPciInfo": place,
        "nvmlDeviceGetNvLinkState": state,
        "nvmlDeviceGetNvLinkRemoteDeviceType": lambda gpu, link: switch if ends[gpu][link] == "switch" else 0,
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda gpu, link: place(ends[gpu][link]),
    }
    return FakeNvml(**{**links, **answers})


_LIBRARY: dict[str, Answer] = {
    "nvmlInit": gives(None),
    "nvmlShutdown": gives(None),
    "nvmlDeviceGetCount": gives(2),
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
    "nvmlSystemGetCudaDriverVersion_v2": gives(12080),
    "nvmlSystemGetDriverVersion": gives(b"570.133.7"),
}
_IDENTITY: dict[str, Answer] = {
    "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
    "nvmlDeviceGetName": gives("NVIDIA A100"),
    "nvmlDeviceGetVbiosVersion": gives(b"92.00"),
    "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(
        busId=f"00000000:{gpu + 10:02X}:00.0".encode(), domain=0, bus=gpu + 10, device=0
    ),
    "nvmlDeviceGetMaxClockInfo": lambda _, kind: {pynvml.NVML_CLOCK_SM: 1410, pynvml.NVML_CLOCK_MEM: 1593}[kind],
    "nvmlDeviceGetCurrPcieLinkGeneration": gives(4),
    "nvmlDeviceGetCurrPcieLinkWidth": gives(16),
    "nvmlDeviceGetMaxPcieLinkGeneration": gives(4),
    "nvmlDeviceGetMaxPcieLinkWidth": gives(16),
}
_LINKS: dict[str, Answer] = {
    "nvmlDeviceGetNvLinkState": lambda _, link: int(link < 4),
    "nvmlDeviceGetNvLinkRemoteDeviceType": gives(pynvml.NVML_NVLINK_DEVICE_TYPE_GPU),
    "nvmlDeviceGetNvLinkRemotePciInfo": lambda gpu, _: SimpleNamespace(domain=0, bus=11 - gpu, device=0),
    "nvmlDeviceGetTopologyCommonAncestor": gives(pynvml.NVML_TOPOLOGY_SYSTEM),
    "nvmlDeviceGetP2PStatus": gives(pynvml.NVML_P2P_STATUS_OK),
}
_READINGS: dict[str, Answer] = {
    "nvmlDeviceGetTemperatureV": gives(61),
    "nvmlDeviceGetFieldValues": gives(field(0, 74)),
    "nvmlDeviceGetClockInfo": lambda _, kind: {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 2619}[kind],
    "nvmlDeviceGetPowerUsage": gives(412_500),
    "nvmlDeviceGetEnforcedPowerLimit": gives(700_000),
    "nvmlDeviceGetUtilizationRates": gives(SimpleNamespace(gpu=97)),
    "nvmlDeviceGetMemoryInfo": gives(SimpleNamespace(used=5 << 30, total=80 << 30)),
    "nvmlDeviceGetTotalEnergyConsumption": gives(1_234_567),
    "nvmlDeviceGetCurrentClocksEventReasons": gives(0),
    "nvmlDeviceGetTotalEccErrors": gives(0),
    "nvmlDeviceGetRemappedRows": gives((0, 0, 0, 0)),
    "nvmlDeviceGetMemoryBusWidth": gives(5120),
    "nvmlDeviceGetComputeRunningProcesses": gives([SimpleNamespace(pid=42), SimpleNamespace(pid=7)]),
    "nvmlDeviceGetGraphicsRunningProcesses": gives([SimpleNamespace(pid=42)]),
}
