"""The border of the facts: lines of JSON -> Launch or Unreadable. Malformed facts are handled here and nowhere else.

The host's own lines (the first and the last) make a file unreadable; a malformed line of the box makes a crashed launch.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torchmatrix.facts import checked, old_facts
from torchmatrix.facts.checked import Malformed, Record
from torchmatrix.facts.events import Event, read_lines, version_problem
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.parts import (
    AskedStack,
    AskedWorkload,
    Block,
    Box,
    Devices,
    Exit,
    Failure,
    Gpu,
    Memory,
    Precision,
    Readings,
    Reference,
    SeenDevice,
    Start,
    UsedImage,
    UsedMethod,
    WarmUp,
)
from torchmatrix.ground.errors import BadInput

T = TypeVar("T")
_NAMES = ("id", "ddp_id")
"""The fields of a recorded workload that are not factors."""
_SENSED = frozenset({
    "temperature_celsius", "sm_clock_mhz", "clock_mhz", "power_watts", "energy_joules", "busy_cpus", "throttle_count",
    "ecc_uncorrected",
})  # fmt: skip
"""The fields of a reading that are computed with."""


def read_launch(path: Path) -> Launch | Unreadable:
    """Read one launch file, whatever its name; a truncated last line is not an error."""
    try:
        lines = list(read_lines(path))
    except OSError as error:
        return Unreadable(path=path, reason=error.strerror or str(error))
    return launch_of(path, lines)


def launch_at(path: Path) -> Launch:
    """The launch in a file. Raises BadInput if there is none."""
    found = read_launch(path)
    if isinstance(found, Unreadable):
        raise BadInput(f"{path} is not a launch file: {found.reason}", hint="name a round*.jsonl under results/")
    return found


def launches_below(folder: Path, names: str = "round*-try*.jsonl") -> Iterator[Launch | Unreadable]:
    """The launches in a folder of results, in the order of their paths; without batch trials, whose names differ."""
    for path in sorted(folder.rglob(names)):
        found = read_launch(path)
        if isinstance(found, Launch) and (why := old_facts.misnamed(path, found.round, found.number)):
            found = Unreadable(path=path, reason=why)
        yield found


def sorted_out(found: Iterable[Launch | Unreadable]) -> tuple[list[Launch], list[Unreadable]]:
    """The launches, and the files that can't be read."""
    launches: list[Launch] = []
    rest: list[Unreadable] = []
    for one in found:
        if isinstance(one, Launch):
            launches.append(one)
        else:
            rest.append(one)
    return launches, rest


def launch_of(path: Path, lines: Sequence[Event]) -> Launch | Unreadable:
    """The launch in a file of these lines."""
    if not lines or lines[0]["event"] != "launch":
        return Unreadable(path=path, reason="it has no header")
    try:
        end = _exit(lines[-1]) if lines[-1]["event"] == "exit" else None
        return Launch(path=path, exit=end, **_header(path, lines[0]), **_told(lines[1:]))
    except Malformed as why:
        return Unreadable(path=path, reason=str(why))


def _header(path: Path, header: Record) -> dict[str, Any]:
    """The fields of the host's first line."""
    batch = header.get("batch_requested")
    image, start = checked.part(header, "image"), checked.part(header, "start")
    used = checked.whole_or_none(header, "batch_used")
    return {
        "run": checked.text(header, "run"),
        "cell": checked.text(header, "cell"),
        "round": checked.whole(header, "round"),
        "number": checked.whole(header, "try") if "try" in header else old_facts.number(path),
        "trial_batch": used if checked.flag(header, "trial") else None,
        "unix_seconds": checked.number(header, "unix_seconds"),
        "monotonic_seconds": checked.number_or_none(header, "monotonic_seconds"),
        "tool": checked.text_or_none(header, "tool"),
        "workload_hash": checked.text_or_none(header, "workload_hash"),
        "wire_version": checked.whole_or_none(header, "protocol"),
        "stack": _inside("stack", _stack, checked.part(header, "stack")),
        "workload": _inside("workload", _workload, checked.part(header, "workload"), header),
        "devices": _inside("gpus", _devices, checked.part(header, "gpus")),
        "method": _inside("method", _method, checked.part(header, "method")),
        "batch_requested": batch if isinstance(batch, str) else checked.whole_or_none(header, "batch_requested"),
        "batch_used": used,
        "start": _inside("start", _start, start) if start else None,
        "image": _inside("image", _image, image) if image else None,
        "host": checked.part(header, "host"),
        "engine": checked.part(header, "engine"),
        "command": checked.text(header, "command"),
    }


def _inside(name: str, make: Callable[..., T], *records: Record) -> T:
    """A part of the header; a malformed value in it is reported as part.key."""
    try:
        return make(*records)
    except Malformed as why:
        raise Malformed(f"{name}.{why}") from None


def _stack(stack: Record) -> AskedStack:
    return AskedStack(
        name=checked.text(stack, "name"),
        torch=checked.text_or_none(stack, "torch"),
        source=checked.text_or_none(stack, "source"),
        accelerator=checked.text_or_none(stack, "accelerator"),
        cuda=checked.text_or_none(stack, "cuda"),
    )


def _workload(workload: Record, header: Record) -> AskedWorkload:
    name, parallel = checked.text(workload, "id"), checked.text_or_none(workload, "parallel") or "ddp"
    return AskedWorkload(
        id=name,
        ddp_id=checked.text_or_none(header, "ddp_workload") or old_facts.ddp_workload(name, parallel),
        model=checked.text(workload, "model"),
        unit=checked.text(workload, "unit"),
        mode=checked.text(workload, "mode"),
        precision=checked.text(workload, "precision"),
        compile=checked.flag(workload, "compile"),
        channels_last=checked.flag(workload, "channels_last"),
        attention=checked.text_or_none(workload, "attention"),
        batch=workload["batch"] if isinstance(workload.get("batch"), str) else checked.whole(workload, "batch"),
        image_size=checked.whole_or_none(workload, "image_size"),
        sequence_length=checked.whole_or_none(workload, "sequence_length"),
        parallel=parallel,
        explain=checked.flag(workload, "explain"),
        factors={key: value for key, value in workload.items() if key not in _NAMES},
    )


def _devices(devices: Record) -> Devices:
    indices = checked.wholes(devices, "indices")
    if not indices:
        raise Malformed("indices is empty")
    return Devices(
        label=checked.text(devices, "label"),
        indices=indices,
        vendor=checked.text_or_none(devices, "vendor"),
        gpus=tuple(_gpu(gpu) for gpu in checked.parts(devices, "gpus")),
        threads=checked.whole_or_none(devices, "threads") or 1,
    )


def _gpu(gpu: Record) -> Gpu:
    return Gpu(name=checked.text_or_none(gpu, "name"), uuid=checked.text_or_none(gpu, "uuid"), facts=gpu)


def _method(method: Record) -> UsedMethod:
    return UsedMethod(
        name=checked.text_or_none(method, "name") or "steady",
        statistic=checked.text_or_none(method, "statistic") or "median",
        start_below_celsius=checked.number_or_none(method, "start_below_celsius"),
        facts=method,
    )


def _start(start: Record) -> Start:
    return Start(
        waited_seconds=checked.number_or_nan(start, "waited_seconds"),
        temperature_celsius=checked.number_or_none(start, "temperature_celsius"),
        too_warm=checked.flag(start, "too_warm"),
    )


def _image(image: Record) -> UsedImage:
    return UsedImage(reference=checked.text(image, "reference"), id=checked.text_or_none(image, "id"), facts=image)


def _exit(end: Record) -> Exit:
    return Exit(
        unix_seconds=checked.number_or_none(end, "unix_seconds"),
        monotonic_seconds=checked.number_or_none(end, "monotonic_seconds"),
        returncode=checked.whole_or_none(end, "returncode"),
        reason=checked.text_or_none(end, "reason"),
        message=checked.text_or_none(end, "message"),
        oom_killed=checked.flag(end, "oom_killed"),
        tail=checked.texts(end, "tail"),
    )


def _told(events: Sequence[Event]) -> dict[str, Any]:
    """The fields that come from the box's lines and the telemetry; the first malformed line is reported."""
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event["event"], []).append(event)
    wrong: list[str] = []

    def all_of(kind: str, make: Callable[[Event], T]) -> tuple[T, ...]:
        try:
            return tuple(map(make, kinds.get(kind, ())))
        except Malformed as why:
            wrong.append(f'the box wrote an invalid "{kind}" line: {why}')
            return ()

    samples = all_of("sample", _sample)
    boxes, seen = all_of("environment", _box), all_of("setup", _seen)
    probed, reductions = all_of("precision", _precision), all_of("all-reduce", _bus_bandwidth)
    hellos = all_of("hello", lambda event: checked.text_or_none(event, "compile_cache"))
    warmed, compared = all_of("warm-up", _warm_up), all_of("reference", _reference)
    queued = all_of("enqueue", lambda event: checked.known_numbers(event, "step_seconds"))
    phases = all_of("phase", lambda event: (checked.text(event, "phase"), checked.number(event, "seconds")))
    return {
        "box": next(iter(boxes), None),
        "seen_devices": next(iter(seen), ()),
        "compile_cache": next(iter(hellos), None),
        "windows": tuple(block for phase, block in samples if phase == "measure"),
        "warm_up_blocks": tuple(block for phase, block in samples if phase == "warm-up"),
        "warm_up": next(iter(warmed), None),
        "phases": dict(reversed(phases)),
        "memory": all_of("memory", _memory),
        "enqueue_seconds": next(iter(queued), ()),
        "precision": next(iter(probed), ()),
        "reference": next(iter(compared), None),
        "bus_bytes_per_second": next(iter(reductions), math.nan),
        "telemetry": all_of("telemetry", _readings),
        "failures": all_of("failure", _failure),
        "is_done": "done" in kinds,
        "refused": next(filter(None, map(version_problem, kinds.get("hello", ()))), None),
        "malformed": next(iter(wrong), None),
    }


def _sample(event: Record) -> tuple[str | None, Block]:
    begin, end = (checked.number_or_none(event, f"{edge}_monotonic_seconds") for edge in ("start", "stop"))
    block = Block(
        steps=checked.whole(event, "steps"),
        items=checked.whole(event, "items"),
        seconds=checked.numbers(event, "seconds"),
        edges=None if begin is None or end is None else (begin, end),
        step_seconds=checked.rows_of_numbers(event, "step_seconds"),
    )
    if not block.seconds or block.steps < 1 or block.items < 1:
        raise Malformed("it has no seconds, steps or items")
    return checked.text_or_none(event, "phase"), block


def _box(event: Record) -> Box:
    return Box(torch=checked.text_or_none(event, "torch"), packages=checked.texts(event, "packages"), facts=event)


def _seen(event: Record) -> tuple[SeenDevice, ...]:
    return tuple(
        SeenDevice(
            name=checked.text_or_none(device, "name"),
            memory_bytes=checked.whole_or_none(device, "memory_bytes"),
            multiprocessors=checked.whole_or_none(device, "multiprocessors"),
        )
        for device in checked.parts(event, "devices")
    )


def _warm_up(event: Record) -> WarmUp:
    return WarmUp(seconds=checked.number_or_none(event, "seconds"), flat=checked.flag_or_none(event, "flat"))


def _memory(event: Record) -> Memory:
    peaks = checked.wholes(event, "peak_bytes")
    if not peaks:
        raise Malformed("peak_bytes is empty")
    return Memory(phase=checked.text_or_none(event, "phase"), peak_bytes=peaks)


def _precision(event: Record) -> tuple[Precision, ...]:
    return tuple(
        Precision(matmul=checked.text(found, "matmul"), convolution=checked.text(found, "convolution"))
        for found in checked.parts(event, "effective")
    )


def _reference(event: Record) -> Reference:
    return Reference(
        flops_per_item=checked.number_or_nan(event, "flops_per_item"),
        differences=checked.loose_numbers(event, "differences"),
        error=checked.text_or_none(event, "error"),
    )


def _bus_bandwidth(event: Record) -> float:
    sizes = checked.parts(event, "sizes")
    return checked.number_or_nan(sizes[-1], "bus_bytes_per_second") if sizes else math.nan


def _failure(event: Record) -> Failure:
    return Failure(kind=checked.text(event, "kind"), message=checked.text_or_none(event, "message"))


def _readings(event: Record) -> Readings:
    found = tuple(map(_reading, checked.parts(event, "readings")))
    return Readings(monotonic_seconds=checked.number(event, "monotonic_seconds"), readings=found)


def _reading(reading: Record) -> Record:
    """As it is, but without numbers that are null."""
    checked.text(reading, "device")
    for key in ("reasons", "foreign"):
        checked.texts(reading, key)
    checked.text_or_none(reading, "error")
    unknown = [key for key in reading.keys() & _SENSED if checked.number_or_none(reading, key) is None]
    return {key: value for key, value in reading.items() if key not in unknown} if unknown else reading
