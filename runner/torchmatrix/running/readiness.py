"""Wait before a launch until its devices are free and cool enough; other people's processes are never touched."""

import pwd
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchmatrix.core.errors import EngineUnusable
from torchmatrix.facts.believable import is_believable, limits_of
from torchmatrix.machine import quiet
from torchmatrix.machine.telemetry import Reading, Sensor, read_within
from torchmatrix.matrix.method import Method
from torchmatrix.planning.plan import duration_in_words

BUSY_PATIENCE_SECONDS = 20.0
"""A process that just ended may stand in the driver's list for a moment."""
POLL_SECONDS = 1.0
FIRST_READING_SECONDS = 8.0
"""amd-smi is asked every five seconds only; a device that hasn't been read by then is taken as unknown."""
SENSOR_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """The start of a launch: how long it waited, and at which temperature (°C, the hottest device; None: unknown).

    `quiet_wait_seconds`: how long it had waited for other programs before.
    """

    waited_seconds: float
    temperature_celsius: float | None
    too_warm: bool
    quiet_wait_seconds: float = 0.0

    def as_record(self) -> dict[str, Any]:
        """Return the fields for the launch's header."""
        return asdict(self)


def wait(
    sensors: Sequence[Sensor],
    devices: Sequence[str],
    method: Method,
    patience_seconds: float = BUSY_PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> Generator[str, None, Ready]:
    """Wait until nobody uses `devices` and they are as cool as `method` says; yields what is waited for, in words.

    In a cell with GPUs only the GPUs count. A time-out of the cooling is recorded and the launch goes on; a device that stays
    busy, or a driver that doesn't answer, raises EngineUnusable.
    """
    begin = time.monotonic()
    if not sensors:
        return Ready(waited_seconds=0.0, temperature_celsius=None, too_warm=False)
    wanted = {device for device in devices if device != "cpu"} or set(devices)
    latest: dict[str, Reading] = {}
    busy_since: float | None = None
    key, limits = "temperature_celsius", limits_of(None)
    while True:
        latest |= {reading["device"]: reading for reading in _read(sensors) if reading["device"] in wanted}
        now = time.monotonic()
        celsius = [float(reading[key]) for reading in latest.values() if is_believable(key, reading.get(key), limits)]
        hottest = max(celsius, default=None)
        limit = method.start_below_celsius
        too_warm = limit is not None and hottest is not None and hottest >= limit
        busy = busy_with(list(latest.values()))
        busy_since = (busy_since or now) if busy else None
        if busy_since is not None and now - busy_since >= patience_seconds:
            raise _busy_error(busy)
        is_seen = wanted <= latest.keys() or now - begin >= FIRST_READING_SECONDS
        if is_seen and not busy and (not too_warm or now - begin >= method.cool_down_seconds):
            return Ready(waited_seconds=now - begin, temperature_celsius=hottest, too_warm=too_warm)
        yield _reason_to_wait(busy, too_warm, hottest, limit)
        time.sleep(poll_seconds)


@dataclass(kw_only=True, slots=True)
class Patience:
    """How long launches wait for other programs: each so many `seconds` at most, but none once that was in vain, until the
    machine was quiet again. 0: the machine is taken as it is; nothing waits, and disturbed launches are not made again.
    """

    seconds: float = 0.0
    _is_in_vain: bool = False

    def wait(self, needed: int) -> Generator[str, None, float]:
        """Wait until others leave so many CPUs; yield once what is waited for, and that it was in vain. Return the seconds."""
        begin, has_told = time.monotonic(), False
        while self.seconds and quiet.are_too_few(used := quiet.busy_cpus(), needed):
            waited = time.monotonic() - begin
            if self._is_in_vain or waited >= self.seconds:
                yield from () if self._is_in_vain else ("they go on: launched all the same, as are those after it",)
                self._is_in_vain = True
                return waited
            if not has_told:
                who = ", ".join(map(describe, quiet.busiest()))
                named = f" ({who})" if who else ""
                yield f"other programs use {used:.1f} CPUs{named}; {duration_in_words(self.seconds)} at most"
                has_told = True
            time.sleep(POLL_SECONDS)
        self._is_in_vain = False
        return time.monotonic() - begin if has_told else 0.0


def lost(sensors: Sequence[Sensor], devices: Sequence[str], poll_seconds: float = POLL_SECONDS) -> tuple[str, str] | None:
    """Return a device that can't be read twice in a row, and its driver's words; None while all answer."""
    errors: dict[str, str] = {}
    for wait_seconds in (poll_seconds, 0.0):
        readings = {reading["device"]: reading for reading in _read(sensors)} if sensors else {}
        errors = {device: str(readings[device]["error"]) for device in devices if "error" in readings.get(device, ())}
        if not errors:
            return None
        time.sleep(wait_seconds)
    return next(iter(errors.items()))


def _reason_to_wait(busy: Sequence[str], too_warm: bool, hottest: float | None, limit: float | None) -> str:
    if busy:
        return f"waiting for {busy[0]}"
    return f"cooling down: {hottest:.0f} °C, wanted below {limit:.0f} °C" if too_warm else "waiting for the first reading"


def _read(sensors: Sequence[Sensor]) -> list[Reading]:
    readings = read_within(sensors, SENSOR_PATIENCE_SECONDS)
    if readings is None:
        raise EngineUnusable(
            f"the devices' driver has not answered for {SENSOR_PATIENCE_SECONDS:.0f} s",
            hint="a GPU may have fallen off the bus: look for Xid in the kernel log (sudo dmesg), reset it or reboot; then the "
            "same command continues",
        )
    return readings


def busy_with(readings: Sequence[Reading]) -> list[str]:
    """Return who uses the devices, one phrase per process and device."""
    return [f"{describe(pid)} on {r['device']}" for r in readings if r["device"] != "cpu" for pid in r.get("processes", ())]


def _busy_error(busy: Sequence[str]) -> EngineUnusable:
    more = f" and {len(busy) - 1} more" if len(busy) > 1 else ""
    return EngineUnusable(
        f"the GPU is busy: {busy[0]}{more}",
        hint="a measurement beside another program is meaningless: wait for it, or choose other GPUs (CUDA_VISIBLE_DEVICES, "
        "[gpus] lists); torchmatrix ends nobody's process; the same command then continues",
    )


def describe(pid: int) -> str:
    """Describe a process by id, program and user; never by its command line, which may hold secrets."""
    program, user = "a program not visible from here", "unknown"
    with suppress(OSError, KeyError):
        program = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
        user = pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name
    return f"process {pid} ({program}, user {user})"
