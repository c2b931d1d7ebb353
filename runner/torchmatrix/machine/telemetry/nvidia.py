"""Read NVIDIA's GPUs through NVML, one handle per GPU for the whole launch: https://docs.nvidia.com/deploy/nvml-api/."""

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from torchmatrix.machine import topology
from torchmatrix.machine.host_gpus import LOST_HINT
from torchmatrix.machine.telemetry import UNWATCHED, WHOLE_GPU_KEYS, Reading, Sensor

REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of nvmlClocksEventReasons*. hw_slowdown is set together with the thermal or power-brake bit that caused it."""

_LOST = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED", "NVML_ERROR_NOT_FOUND", "NVML_ERROR_GPU_NOT_FOUND")
_PERMANENT_ERRORS = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_NO_PERMISSION", "NVML_ERROR_FUNCTION_NOT_FOUND")
_NOT_AVAILABLE = (None, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # NVML_VALUE_NOT_AVAILABLE, 32 and 64 bits wide

_SLICE_KEYS = ("memory_used_bytes", "processes")
"""The readings that NVML has of a MIG slice; temperature, clocks, reasons and errors are those of its GPU."""

_HINTS = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "is NVIDIA's driver installed? Try nvidia-smi",
    "NVML_ERROR_DRIVER_NOT_LOADED": "load the driver (sudo modprobe nvidia), then try nvidia-smi",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the driver was updated while it was loaded: reboot",
    "NVML_ERROR_NO_PERMISSION": "you need access to /dev/nvidiactl and /dev/nvidia0",
}


def open_nvidia(uuids: Sequence[str], nvml: Any = None) -> tuple[Sensor | None, str | None]:
    """Return the sensor of these GPUs, and what can't be monitored, with reasons. `nvml`: the module pynvml or its like."""
    if not uuids:
        return None, None
    try:
        module = nvml or importlib.import_module("pynvml")
    except ImportError as error:
        return None, f"{UNWATCHED}: {error}; reinstall torchmatrix (it needs nvidia-ml-py)"
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        hint = next((hint for name, hint in _HINTS.items() if _has_code(module, error, (name,))), "try nvidia-smi")
        return None, f"{UNWATCHED}: NVML can't be used: {error}; {hint}"
    sensor = NvidiaSensor(module, uuids)
    missing = "; ".join(f"{uuid}: {why}" for uuid, why in sensor.missing.items())
    note = f"{UNWATCHED} of some GPUs: {missing}; {LOST_HINT}" if missing else None
    if len(sensor.missing) < len(uuids):
        return sensor, note
    sensor.close()
    return None, note


class NvidiaSensor:
    """Reads GPUs by UUID. `missing`: the GPUs without a handle, and NVML's message about each. NVML is initialised already."""

    def __init__(self, nvml: Any, uuids: Sequence[str]) -> None:
        self._nvml = nvml
        self._handles: dict[str, Any] = {}
        self._wholes: dict[str, Any] = {}
        self._refused: set[tuple[str, str]] = set()
        self.missing: dict[str, str] = {}
        for uuid in uuids:
            try:
                self._handles[uuid] = nvml.nvmlDeviceGetHandleByUUID(uuid)
                if uuid.startswith("MIG-"):
                    self._wholes[uuid] = topology.whole_of(nvml, self._handles[uuid])
            except nvml.NVMLError as error:
                self.missing[uuid] = str(error)

    def read(self) -> list[Reading]:
        """Return one reading per GPU; that of a lost GPU has only an `error`."""
        return [self._read(uuid, handle) for uuid, handle in self._handles.items()]

    def close(self) -> None:
        """Shut NVML down (it counts its users: others in this process keep theirs)."""
        with suppress(Exception):
            self._nvml.nvmlShutdown()

    def _read(self, uuid: str, handle: Any) -> Reading:
        reading: Reading = {"device": uuid}
        trouble = "NVML answers nothing"
        whole = self._wholes.get(uuid)
        for key, ask in _FIELDS.items():
            if (uuid, key) in self._refused or (uuid in self._wholes and key in WHOLE_GPU_KEYS):
                continue
            try:
                value = ask(self._nvml, handle if whole is None or key in _SLICE_KEYS else whole)
            except Exception as error:  # NVMLError, or a function that this pynvml doesn't have
                if _has_code(self._nvml, error, _LOST):
                    return {"device": uuid, "error": f"{error}; {LOST_HINT}"}
                if isinstance(error, AttributeError) or _has_code(self._nvml, error, _PERMANENT_ERRORS):
                    self._refused.add((uuid, key))  # asking every second in vain would disturb the measurement
                trouble = str(error)
                continue
            if value is not None:
                reading[key] = value
        # A GPU off the bus often answers "Unknown Error" to everything instead of "GPU is lost".
        return reading if len(reading) > 1 else {"device": uuid, "error": f"{trouble}; {LOST_HINT}"}


def _has_code(nvml: Any, error: Exception, names: Sequence[str]) -> bool:
    """Check whether it is an NVMLError with one of these codes (which this pynvml may not have)."""
    return isinstance(error, nvml.NVMLError) and getattr(error, "value", None) in [getattr(nvml, name, -1) for name in names]


def _call_newest(nvml: Any, names: Sequence[str], *arguments: Any) -> Any:
    """Return the answer of the first of these functions that both pynvml and the driver have."""
    for name in names[:-1]:
        try:
            return getattr(nvml, name)(*arguments)
        except AttributeError:
            continue
        except nvml.NVMLError as error:
            if not _has_code(nvml, error, ("NVML_ERROR_FUNCTION_NOT_FOUND",)):
                raise
    return getattr(nvml, names[-1])(*arguments)


def _available(value: Any) -> Any:
    return None if value in _NOT_AVAILABLE else value


def _thousandth(value: Any) -> float | None:
    return None if value in _NOT_AVAILABLE else value / 1000


def _temperature(nvml: Any, handle: Any) -> Any:
    functions = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
    return _available(_call_newest(nvml, functions, handle, nvml.NVML_TEMPERATURE_GPU))


def _memory_temperature(nvml: Any, handle: Any) -> Any:
    field = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_MEMORY_TEMP])[0]
    if field.nvmlReturn:
        raise nvml.NVMLError(field.nvmlReturn)
    return _available(field.value.uiVal) or None  # 0 degrees: boards without the sensor say so


def _reasons(nvml: Any, handle: Any) -> list[str]:
    functions = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    mask = _call_newest(nvml, functions, handle)
    bits = [1 << shift for shift in range(64) if mask >> shift & 1]
    return [REASONS.get(bit, f"bit_0x{bit:x}") for bit in bits]


def _memory_errors(kind: str) -> Callable[[Any, Any], Any]:
    """Return what reads the memory errors of a kind since the driver was loaded."""

    def read(nvml: Any, handle: Any) -> Any:
        kinds = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
        return _available(nvml.nvmlDeviceGetTotalEccErrors(handle, kinds, nvml.NVML_VOLATILE_ECC))

    return read


def _processes(nvml: Any, handle: Any) -> list[int]:
    """Return the host's ids of processes that compute; graphics processes (a desktop's server) don't disturb."""
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return sorted({process.pid for process in processes if process.pid not in _NOT_AVAILABLE})


# Power is an average over 1 s on Ampere (but GA100) and later: it lags, so energy comes from the driver's counter.
_FIELDS: dict[str, Callable[[Any, Any], Any]] = {
    "temperature_celsius": _temperature,
    "memory_temperature_celsius": _memory_temperature,
    "sm_clock_mhz": lambda nvml, handle: _available(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
    "memory_clock_mhz": lambda nvml, handle: _available(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
    "pcie_generation": lambda nvml, handle: _available(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
    "power_watts": lambda nvml, handle: _thousandth(nvml.nvmlDeviceGetPowerUsage(handle)),
    "power_limit_watts": lambda nvml, handle: _thousandth(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)),
    "utilization_percent": lambda nvml, handle: _available(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
    "memory_used_bytes": lambda nvml, handle: _available(nvml.nvmlDeviceGetMemoryInfo(handle).used),
    "energy_joules": lambda nvml, handle: _thousandth(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)),
    "reasons": _reasons,
    "ecc_uncorrected": _memory_errors("UNCORRECTED"),
    "ecc_corrected": _memory_errors("CORRECTED"),
    "processes": _processes,
}
