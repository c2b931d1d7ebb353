"""Read the settings that can change while a machine runs and affect what it measures: before each launch, without privileges.

What can't be read is None. Clocks, temperatures and links as they are at a moment are readings instead (see telemetry).
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torchmatrix.core.files import text_of
from torchmatrix.machine.cpu import whole_number

Facts = dict[str, Any]
Ask = Callable[..., Any]
"""A function of NVML by its name, with its arguments; None where NVML refuses."""
_COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")  # nvmlComputeMode_t
_MOST_BYTES = 4096


def of_host(root: Path = Path("/")) -> Facts:
    """Return fields of a Host. The frequency settings are those of all CPUs, the idle states those of the first."""
    cpus, huge = root / "sys/devices/system/cpu", root / "sys/kernel/mm/transparent_hugepage"
    policies = [str(path) for path in sorted((cpus / "cpufreq").glob("policy[0-9]*"))] or [f"{cpus}/cpu0/cpufreq"]
    return {
        "governor": _distinct_texts(policies, "scaling_governor"),
        "frequency_driver": text_of(Path(policies[0]) / "scaling_driver"),
        "energy_preference": _distinct_texts(policies, "energy_performance_preference"),
        "clock_limits": _clock_limits(policies),
        "turbo": _turbo(cpus),
        "idle_states": _idle_states(cpus),
        "smt": hyper_threading(cpus),
        "hugepages": _hugepages(huge),
        "numa_balancing": _read_flag(root / "proc/sys/kernel/numa_balancing"),
        "mitigations": _mitigations(cpus / "vulnerabilities"),
        "microcode": text_of(cpus / "cpu0/microcode/version") or _microcode(root / "proc/cpuinfo"),
    }


def of_nvidia(ask: Ask, nvml: Any, gpu: Any) -> Facts:
    """Return fields of a Gpu. Clocks that somebody locked (nvidia-smi -lgc) can't be asked for: they only show under load."""
    power, ecc, persistence, boost, compute, mig = (
        ask(f"nvmlDeviceGet{what}", gpu)
        for what in ("PowerManagementLimit", "EccMode", "PersistenceMode", "AutoBoostedClocksEnabled", "ComputeMode", "MigMode")
    )
    clocks = [ask("nvmlDeviceGetApplicationsClock", gpu, kind) for kind in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)]
    return {
        "power_limit_watts": power / 1000 if power else None,
        "ecc": bool(ecc[0]) if ecc else None,
        "persistence": bool(persistence) if persistence is not None else None,
        "application_clocks": " and ".join(f"{clock} MHz" for clock in clocks) if all(clocks) else None,
        "auto_boost": bool(boost[0]) if boost else None,
        "compute_mode": _COMPUTE_MODES[compute] if compute in range(len(_COMPUTE_MODES)) else None,
        "mig": bool(mig[0]) if mig else None,
        "repairs": _repairs(ask("nvmlDeviceGetRemappedRows", gpu)),
    }


def _repairs(rows: Any) -> str | None:
    """Describe the rows of memory that were replaced: for corrected and uncorrected errors, whether some wait for a reset, and
    whether a bank has no spare row left. None where the GPU doesn't tell.
    """
    if rows is None:
        return None
    corrected, uncorrected, pending, failed = rows
    count = corrected + uncorrected
    ends = [text for text, is_so in (("more wait for a reset", pending), ("one could not be remapped", failed)) if is_so]
    return "; ".join([f"{count} row{'' if count == 1 else 's'} remapped", *ends])


def of_amd(device: Path) -> Facts:
    """Return fields of a Gpu, from its folder in sysfs: https://docs.kernel.org/gpu/amdgpu/thermal.html."""
    caps = sorted(device.glob("hwmon/hwmon*/power1_cap"))
    microwatts = (text_of(caps[0]) if caps else None) or ""
    modes = [text_of(device / f"current_{what}_partition") for what in ("compute", "memory")]
    return {
        "power_limit_watts": int(microwatts) / 1e6 if microwatts.isdigit() else None,
        "performance_level": text_of(device / "power_dpm_force_performance_level"),
        "partitions": "/".join(filter(None, modes)) or None,
    }


def hyper_threading(cpus: Path) -> bool | None:
    """Check whether hyper-threads are in use."""
    return _read_flag(cpus / "smt/active")


def _distinct_texts(folders: Iterable[str], name: str) -> str | None:
    """Return the texts of the files of this name, each once."""
    return ", ".join(sorted({text for folder in folders if (text := _read_text(f"{folder}/{name}"))})) or None


def _read_text(path: str) -> str:
    """Read as text_of does, in a tenth of its time: a large server has a thousand such files. Empty if it can't be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _MOST_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _read_flag(path: Path) -> bool | None:
    number = whole_number(path)
    return None if number is None else number > 0


def _clock_limits(policies: Iterable[str]) -> str | None:
    """Return the limits that are set, such as "800 to 3500 MHz"."""
    texts = {(_read_text(f"{folder}/scaling_min_freq"), _read_text(f"{folder}/scaling_max_freq")) for folder in policies}
    limits = [(int(low) // 1000, int(high) // 1000) for low, high in texts if low.isdigit() and high.isdigit()]
    return ", ".join(f"{low} to {high} MHz" for low, high in sorted(limits)) or None


def _turbo(cpus: Path) -> bool | None:
    """Check whether turbo is on.

    https://docs.kernel.org/admin-guide/pm/intel_pstate.html, https://docs.kernel.org/admin-guide/pm/cpufreq.html
    """
    off = _read_flag(cpus / "intel_pstate/no_turbo")
    return _read_flag(cpus / "cpufreq/boost") if off is None else not off


def _idle_states(cpus: Path) -> str | None:
    """Return driver, governor and the states that are not disabled, such as "intel_idle, menu: POLL C1 C6"."""
    driver, governor = (text_of(cpus / "cpuidle" / name) for name in ("current_driver", "current_governor_ro"))
    states = sorted((cpus / "cpu0/cpuidle").glob("state[0-9]*"), key=lambda state: int(state.name[5:]))
    used = [name for state in states if (name := text_of(state / "name")) and not _read_flag(state / "disable")]
    if driver is None and not states:
        return None
    return f"{driver or 'unknown driver'}, {governor or 'unknown governor'}: {' '.join(used) or 'no state'}"


def _hugepages(folder: Path) -> str | None:
    """Return the words in brackets, such as "madvise, defrag madvise"."""
    chosen = [re.search(r"\[(.+)\]", text_of(folder / name) or "") for name in ("enabled", "defrag")]
    return ", defrag ".join(match[1] for match in chosen if match) or None if chosen[0] else None


def _mitigations(folder: Path) -> tuple[str, ...] | None:
    """Return the mitigations of what this CPU is affected by, such as "spectre_v2: Mitigation: Retpolines"."""
    texts = {path.name: text_of(path) for path in sorted(folder.glob("*"))}
    affected = tuple(f"{name}: {text}" for name, text in texts.items() if text and text != "Not affected")
    return affected if any(texts.values()) else None


def _microcode(cpuinfo: Path) -> str | None:
    """Return the microcode of the first CPU: the kernel takes long to list all."""
    try:
        with cpuinfo.open("rb") as file:
            match = re.search(rb"^microcode\s*: (\S+)", file.read(_MOST_BYTES), re.MULTILINE)
    except OSError:
        return None
    return match[1].decode(errors="replace") if match else None
