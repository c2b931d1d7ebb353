"""The border of the facts: lines of JSON -> Launch or Unreadable. Malformed facts are handled here and nowhere else.

The host's own lines (the first and the last) make a file unreadable; a malformed line of the box makes a crashed launch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torchmatrix.facts import box_lines, checked, lines, old_facts
from torchmatrix.facts.checked import Malformed, Record
from torchmatrix.facts.events import Event
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.parts import (
    AskedStack,
    AskedWorkload,
    Devices,
    Exit,
    OwnFile,
    Start,
    UsedImage,
    UsedMethod,
)
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.files import named_below

T = TypeVar("T")
MOST_NODES = 10_000
"""More nodes of one launch are malformed: each of their devices has a name."""
_NAMES = ("id", "ddp_id", "own")
"""The fields of a recorded workload that are not factors."""


def read_launch(path: Path) -> Launch | Unreadable:
    """Read one launch file, whatever its name; a truncated last line is not an error."""
    found = lines.read(path)
    return Unreadable(path=path, reason=found.damage) if found.damage else launch_of(path, found.events, found.verified)


def launch_at(path: Path) -> Launch:
    """The launch in a file. Raises BadInput if there is none."""
    found = read_launch(path)
    if isinstance(found, Unreadable):
        raise BadInput(f"{path} is not a launch file: {found.reason}", hint="name a round*.jsonl under results/")
    return found


def launches_below(folder: Path, names: str = "round*-try*.jsonl") -> Iterator[Launch | Unreadable]:
    """The launches in a folder of results, in the order of their paths; without batch trials, whose names differ."""
    return map(launch_in, launch_files(folder, names))


def launch_files(folder: Path, names: str = "round*-try*.jsonl") -> list[Path]:
    """The files that launches_below reads."""
    return named_below(folder, names)


def launch_in(path: Path) -> Launch | Unreadable:
    """The launch in a file of a results folder, if the file's name fits it."""
    found = read_launch(path)
    if isinstance(found, Launch) and (why := old_facts.misnamed(path, found.round, found.number)):
        return Unreadable(path=path, reason=why)
    return found


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


def launch_of(path: Path, events: Sequence[Event], verified: bool = False) -> Launch | Unreadable:
    """The launch in a file of these lines; `verified`: by their checksums."""
    if not events or events[0]["event"] != "launch":
        return Unreadable(path=path, reason="it has no header")
    try:
        end = _exit(events[-1]) if events[-1]["event"] == "exit" else None
        return Launch(path=path, exit=end, verified=verified, **_header(path, events[0]), **box_lines.told(events[1:]))
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
        "unix_seconds": checked.moment(header, "unix_seconds"),
        "monotonic_seconds": checked.number_or_none(header, "monotonic_seconds"),
        "tool": checked.text_or_none(header, "tool"),
        "workload_hash": checked.text_or_none(header, "workload_hash"),
        "wire_version": checked.whole_or_none(header, "protocol"),
        "machine": checked.text_or_none(header, "machine"),
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
        "started": checked.part(header, "started"),
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
        own=_own(checked.part(workload, "own")),
        factors={key: value for key, value in workload.items() if key not in _NAMES},
    )


def _own(own: Record) -> OwnFile | None:
    return OwnFile(path=checked.text(own, "path"), sha256=checked.text(own, "sha256")) if own else None


def _devices(devices: Record) -> Devices:
    indices = checked.wholes(devices, "indices")
    if not indices:
        raise Malformed("indices is empty")
    return Devices(
        label=checked.text(devices, "label"),
        indices=indices,
        vendor=checked.text_or_none(devices, "vendor"),
        gpus=box_lines.gpus_of(devices),
        threads=checked.whole_or_none(devices, "threads") or 1,
        nodes=checked.whole_up_to(devices, "nodes", MOST_NODES, default=1),
        unlike=checked.text_or_none(devices, "unlike") or "",
    )


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
        beside=checked.texts(end, "beside"),
        losses_compared=checked.whole_or_none(end, "losses_compared"),
    )
