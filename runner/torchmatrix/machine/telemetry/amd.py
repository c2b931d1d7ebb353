"""Read AMD's GPUs through the Python library amdsmi, or, without it, through the command amd-smi every few seconds.

The library: https://rocm.docs.amd.com/projects/amdsmi/en/latest/reference/amdsmi-py-api.html. Neither its order nor its UUID
need be the KFD's (which host.Gpu has, and HIP's order follows), so a GPU is found by its DRM render node, else by its PCI
address, else by HIP's UUID: "GPU-" and the KFD's unique id in hex, which is the ASIC's serial number too. A GPU that can't be
told from others is not read.
"""

import json
import math
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from torchmatrix.machine.host import Gpu
from torchmatrix.machine.telemetry import UNWATCHED, WHOLE_GPU_KEYS, Reading, Sensor

COMMAND_SECONDS = 5.0
"""The command starts a Python interpreter each time; running it more often would disturb the measurement."""

_Run = Callable[[Sequence[str]], str]
_LIST = ("list", "-e", "--json")

_CALLS = {
    "metrics": "amdsmi_get_gpu_metrics_info",
    "power": "amdsmi_get_power_info",
    "cap": "amdsmi_get_power_cap_info",
    "energy": "amdsmi_get_energy_count",
    "memory": "amdsmi_get_gpu_vram_usage",
    "activity": "amdsmi_get_gpu_activity",
    "ecc": "amdsmi_get_gpu_total_ecc_count",
    "processes": "amdsmi_get_gpu_process_list",
}

_PATHS = {
    "temperature_celsius": (
        "metrics.temperature_hotspot",
        "metrics.temperature_edge",
        "temperature.hotspot",
        "temperature.edge",
    ),
    "memory_temperature_celsius": ("metrics.temperature_mem", "temperature.mem"),
    "sm_clock_mhz": ("metrics.current_gfxclks", "metrics.current_gfxclk", "clock.gfx_0.clk"),
    "memory_clock_mhz": ("metrics.current_uclk", "clock.mem_0.clk"),
    "power_watts": ("power.socket_power", "power.current_socket_power", "power.average_socket_power"),
    "power_limit_watts": ("cap.power_cap",),  # µW
    "utilization_percent": ("activity.gfx_activity", "usage.gfx_activity"),
    "memory_used_bytes": ("memory.vram_used", "mem_usage.used_vram"),  # "MB" that are MiB
    "ecc_uncorrected": ("ecc.uncorrectable_count", "ecc.total_uncorrectable_count"),
    "ecc_corrected": ("ecc.correctable_count", "ecc.total_correctable_count"),
}
"""The paths of a key's value: in the library's answers (by their names in _CALLS), or in an entry of amd-smi metric --json."""

_SCALES = {"power_limit_watts": 1e-6, "memory_used_bytes": 1 << 20}

_ACCUMULATORS: dict[tuple[str, ...], str] = {
    ("metrics.prochot_residency_acc", "throttle.prochot_accumulated"): "hw_thermal_slowdown",
    ("metrics.ppt_residency_acc", "throttle.ppt_accumulated"): "sw_power_cap",
    ("metrics.socket_thm_residency_acc", "throttle.socket_thermal_accumulated"): "sw_thermal_slowdown",
    ("metrics.vr_thm_residency_acc", "throttle.vr_thermal_accumulated"): "sw_thermal_slowdown",
    ("metrics.hbm_thm_residency_acc", "throttle.hbm_thermal_accumulated"): "sw_thermal_slowdown",
}
"""Time spent throttled (MI300 and later): a counter that grew between two readings was a reason.

amdsmi_get_violation_status shows the same counters (amdsmi.h), but compares over 100 ms only, and waits for them.
"""

_BITS = {
    **dict.fromkeys(range(0, 8), "sw_power_cap"),  # PPT0-3, SPL, FPPT, SPPT, SPPT_APU
    **dict.fromkeys(range(16, 24), "current_limit"),  # TDC_*, EDC_*, APCC
    **dict.fromkeys(range(32, 44), "sw_thermal_slowdown"),  # TEMP_*: the firmware lowers the clock
    **dict.fromkeys(range(44, 48), "hw_thermal_slowdown"),  # VRHOT0-1, PROCHOT_CPU, PROCHOT_GFX
}
"""indep_throttle_status (Radeon, MI100, MI200): SMU_THROTTLER_*_BIT, Linux's drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h."""

_NOT_AVAILABLE = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # the greatest value of a field's type
_Names = tuple[str | None, str | None, str | None]
"""A GPU's render node, its PCI address, and its UUID; None: not told."""
_NAMELESS = ("GPU-0000000000000000", "N/A", "", None)  # in virtual machines the unique id is 0
_PERMANENT_ERRORS = (2, 3, 10)  # AMDSMI_STATUS_NOT_SUPPORTED, _NOT_YET_IMPLEMENTED, _NO_PERM
_HINT = "install AMD's Python library (pip install /opt/rocm/share/amd_smi) and check that amd-smi works"


def _import_amdsmi() -> Any:
    with redirect_stdout(sys.stderr):  # without its library it prints what it tried
        import amdsmi

    return amdsmi


def _run_amd_smi(arguments: Sequence[str]) -> str:
    """Return what `amd-smi` with these arguments prints. Raises OSError or subprocess.SubprocessError."""
    program = shutil.which("amd-smi") or "/opt/rocm/bin/amd-smi"
    done = subprocess.run(
        [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", timeout=10
    )
    if not done.stdout.strip():
        raise OSError(f"amd-smi ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stdout


def open_amd(
    gpus: Sequence[Gpu],
    load: Callable[[], Any] = _import_amdsmi,
    run: _Run = _run_amd_smi,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Sensor | None, str | None]:
    """Return the sensor of these GPUs, and what can't be monitored, with reasons.

    `load` gives the module amdsmi, `run` what amd-smi prints, `clock` seconds.
    """
    if not gpus:
        return None, None
    try:
        library = load()
        library.amdsmi_init()
        handles = _match(gpus, [(handle, _names(library, handle)) for handle in library.amdsmi_get_processor_handles()])
    except Exception as error:  # the import loads libamd_smi.so, which raises more than ImportError
        return _open_command(gpus, run, clock, f"the library amdsmi can't be used: {error or type(error).__name__}")
    sensor = AmdSensor(library, handles, _partition_uuids(gpus))
    if not handles:
        sensor.close()
    return (sensor if handles else None), _note_missing(gpus, handles)


def _open_command(gpus: Sequence[Gpu], run: _Run, clock: Callable[[], float], why: str) -> tuple[Sensor | None, str | None]:
    try:
        entries = _entries(run(_LIST))
        listed = [(e["gpu"], _normalise(e.get("render"), e.get("bdf"), e.get("hip_uuid"))) for e in entries]
    except Exception as error:
        return None, f"{UNWATCHED}: {why}; amd-smi can't be used: {error}; {_HINT}"
    indexes = _match(gpus, listed)
    slow = f"GPUs are read every {COMMAND_SECONDS:.0f} s only, without process ids and power limit: {why}; {_HINT}"
    notes = [slow if indexes else why, _note_missing(gpus, indexes)]
    sensor = AmdCommandSensor(run, indexes, clock, _partition_uuids(gpus)) if indexes else None
    return sensor, "; ".join(note for note in notes if note)


def _partition_uuids(gpus: Sequence[Gpu]) -> frozenset[str]:
    return frozenset(gpu.uuid for gpu in gpus if gpu.partition_of)


class AmdSensor:
    """Reads GPUs through the library, which is initialised already. `handles`: of each UUID; `parts`: UUIDs of partitions."""

    def __init__(self, library: Any, handles: Mapping[str, Any], parts: Collection[str]) -> None:
        self._library = library
        self._handles = dict(handles)
        self._refused: set[tuple[str, str]] = set()
        self._parts = parts
        self._throttle = _Throttle()

    def read(self) -> list[Reading]:
        """Return one reading per GPU."""
        return [self._read(uuid, handle) for uuid, handle in self._handles.items()]

    def close(self) -> None:
        """Shut the library down."""
        with suppress(Exception):
            self._library.amdsmi_shut_down()

    def _read(self, uuid: str, handle: Any) -> Reading:
        answers: dict[str, Any] = {}
        trouble = "amdsmi answers nothing"
        for name, function in _CALLS.items():
            if (uuid, name) in self._refused:
                continue
            try:
                answers[name] = getattr(self._library, function)(handle)
            except Exception as error:  # AmdSmiLibraryException, or a function that this release doesn't have
                if isinstance(error, AttributeError) or getattr(error, "err_code", None) in _PERMANENT_ERRORS:
                    self._refused.add((uuid, name))
                trouble = str(error)
        return _reading(uuid, answers, self._throttle, trouble, without=WHOLE_GPU_KEYS if uuid in self._parts else ())


class AmdCommandSensor:
    """Reads GPUs through `amd-smi metric --json`. `indexes`: the number there of each UUID; `parts`: UUIDs of partitions."""

    def __init__(self, run: _Run, indexes: Mapping[str, int], clock: Callable[[], float], parts: Collection[str]) -> None:
        self._run = run
        self._indexes = dict(indexes)
        self._clock = clock
        self._due = clock()
        self._parts = parts
        self._throttle = _Throttle()

    def read(self) -> list[Reading]:
        """Return one reading per GPU, or none until the next is due; repeating the last one would be false."""
        if self._clock() < self._due:
            return []
        self._due = self._clock() + COMMAND_SECONDS
        try:
            entries = {entry["gpu"]: entry for entry in _entries(self._run(("metric", "--json")))}
        except Exception as error:
            return [{"device": uuid, "error": f"amd-smi metric --json: {error}"} for uuid in self._indexes]
        trouble = "amd-smi does not report this GPU"
        without = {uuid: WHOLE_GPU_KEYS if uuid in self._parts else () for uuid in self._indexes}
        return [
            _reading(uuid, entries.get(index, {}), self._throttle, trouble, without[uuid])
            for uuid, index in self._indexes.items()
        ]

    def close(self) -> None:
        """Return without doing anything: nothing is held."""


class _Throttle:
    """Each GPU's accumulators of throttled time at the last reading."""

    def __init__(self) -> None:
        self._before: dict[str, dict[tuple[str, ...], float]] = {}

    def reasons(self, uuid: str, answers: Mapping[str, Any]) -> list[str] | None:
        """Return why it was throttled since the last reading; None at the first one and where there are no accumulators."""
        now = {paths: count for paths in _ACCUMULATORS if (count := _number_at(answers, paths)) is not None}
        before = self._before.get(uuid)
        self._before[uuid] = now
        if not before or not now:
            return None
        return sorted({_ACCUMULATORS[paths] for paths, count in now.items() if count > before.get(paths, count)})


def _reading(uuid: str, answers: Mapping[str, Any], throttle: _Throttle, trouble: str, without: Collection[str]) -> Reading:
    fields: dict[str, Any] = {key: _number_at(answers, paths) for key, paths in _PATHS.items()}
    for key, scale in _SCALES.items():
        fields[key] = None if fields[key] is None else fields[key] * scale
    reasons = throttle.reasons(uuid, answers)
    fields["reasons"] = _reasons(answers) if reasons is None else reasons
    fields["energy_joules"] = _energy(answers)
    processes = answers.get("processes")
    if isinstance(processes, list):  # of opaque handles in older releases
        pids = [process.get("pid") for process in processes if isinstance(process, dict)]
        fields["processes"] = sorted(set(pids)) if all(type(pid) is int for pid in pids) else None
    values = {key: value for key, value in fields.items() if value is not None and key not in without}
    return {"device": uuid, **values} if values else {"device": uuid, "error": f"{trouble}; look at sudo dmesg and amd-smi"}


def _energy(answers: Mapping[str, Any]) -> float | None:
    """Return joules. 0 is what GPUs without the counter show. The library counts in units of about 15.3 µJ."""
    ticks = _number_at(answers, ("energy.energy_accumulator", "energy.power"))  # older releases call it power
    resolution = _number_at(answers, ("energy.counter_resolution",))
    if ticks and resolution:
        return ticks * resolution / 1e6
    return _number_at(answers, ("energy.total_energy_consumption",)) or None


def _reasons(answers: Mapping[str, Any]) -> list[str] | None:
    """Return why it is throttled now; "throttled" from releases that make the bits a bool (True on some idle GPUs too)."""
    status = _value_at(answers, "metrics.indep_throttle_status")
    bits = _number_in(status)
    if bits is not None:
        return list(dict.fromkeys(_BITS.get(bit, f"bit_0x{1 << bit:x}") for bit in range(64) if int(bits) >> bit & 1))
    state = status if isinstance(status, bool) else _value_at(answers, "power.throttle_status")
    return ["throttled"] if state in (True, "THROTTLED") else [] if state in (False, "UNTHROTTLED") else None


def _number_at(answers: Mapping[str, Any], paths: Sequence[str]) -> float | None:
    """Return the first number at these paths."""
    return next((number for path in paths if (number := _number_in(_value_at(answers, path))) is not None), None)


def _value_at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _number_in(value: Any) -> float | None:
    """Return the number in 42, "42", {"value": 42, "unit": "W"} or (the mean) [42, "N/A"]; None if there is none available."""
    if isinstance(value, dict):
        return _number_in(value.get("value"))
    if isinstance(value, list):
        numbers = [number for item in value if (number := _number_in(item)) is not None]
        return sum(numbers) / len(numbers) if numbers else None
    with suppress(TypeError, ValueError, OverflowError):
        number = value if isinstance(value, int) else float(value)  # 64 bits don't fit a float
        return number if math.isfinite(number) and number not in _NOT_AVAILABLE and not isinstance(value, bool) else None
    return None


def _entries(printed: str) -> list[dict[str, Any]]:
    """Parse the JSON that amd-smi printed per GPU: a list, in newer releases under "gpu_data"; warnings may stand around it."""
    for start in re.finditer(r"^[\[{]", printed, re.MULTILINE):
        with suppress(ValueError, KeyError, TypeError):
            data, _ = json.JSONDecoder().raw_decode(printed, start.start())
            listed = data["gpu_data"] if isinstance(data, dict) else data
            if entries := [entry for entry in listed if isinstance(entry, dict) and "gpu" in entry]:
                return entries
    raise ValueError(f"no GPU in {printed.strip()[:80]!r}")


def _names(library: Any, handle: Any) -> _Names:
    """Return the names by which _match identifies a handle; older releases know neither the render node nor HIP's UUID."""
    names: dict[str, Any] = {}
    with suppress(Exception):
        names |= library.amdsmi_get_gpu_enumeration_info(handle)
    with suppress(Exception):
        names["bdf"] = library.amdsmi_get_gpu_device_bdf(handle)
    with suppress(Exception):
        names.setdefault("hip_uuid", f"GPU-{int(library.amdsmi_get_gpu_asic_info(handle)['asic_serial'], 16):016x}")
    minor = names.get("drm_render")
    render = f"renderD{minor}" if isinstance(minor, int) and minor else None
    return _normalise(render, names.get("bdf"), names.get("hip_uuid"))


def _normalise(*names: Any) -> _Names:
    render, address, uuid = (None if name in _NAMELESS else str(name) for name in names)
    return render, address.lower() if address else None, uuid


def _match(gpus: Sequence[Gpu], things: Sequence[tuple[Any, _Names]]) -> dict[str, Any]:
    """Return by UUID the thing that is this GPU: by the first type of name that both have, if no other thing and no other
    GPU matches.
    """
    names = {gpu.uuid: _normalise(Path(gpu.render_node or "").name, gpu.pci_bus, gpu.uuid) for gpu in gpus}

    def matches(gpu: _Names, thing: _Names) -> bool:
        return next((name == other for name, other in zip(gpu, thing, strict=True) if name and other), False)

    pairs = [(uuid, i) for uuid, gpu in names.items() for i, (_, thing) in enumerate(things) if matches(gpu, thing)]
    gpu_times, thing_times = (Counter(pair[side] for pair in pairs) for side in (0, 1))
    return {uuid: things[i][0] for uuid, i in pairs if gpu_times[uuid] == thing_times[i] == 1}


def _note_missing(gpus: Sequence[Gpu], matched: Mapping[str, Any]) -> str | None:
    uuids = ", ".join(gpu.uuid for gpu in gpus if gpu.uuid not in matched)
    return f"{UNWATCHED} of {uuids}: AMD's tools don't identify the GPU; {_HINT}" if uuids else None
