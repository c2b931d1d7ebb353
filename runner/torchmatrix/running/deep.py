"""Run the container's self-check (images/workload/deep.py) over all devices of this machine, and watch it from the host."""

import math
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from torchmatrix.analysis import watched
from torchmatrix.core import settings
from torchmatrix.core.errors import BadInput, BuildFailed, EngineUnusable, ExitCode, LaunchFailed, NothingSelected
from torchmatrix.core.formatting import count, figure, number_or_nan
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Engine, Image, LaunchSpec, Recipe, time_limit
from torchmatrix.facts import launch_file
from torchmatrix.facts.launch import bare_uuid
from torchmatrix.facts.lines import Event
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.machine.telemetry import SLOWDOWNS, Reading, Sensor, Watcher
from torchmatrix.machine.vendors import torch_device_of
from torchmatrix.matrix import catalog
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.stacks import Stack
from torchmatrix.planning import fit
from torchmatrix.planning.plan import GpuSet, cpu_set, cut_slots
from torchmatrix.planning.selection import nearest_words
from torchmatrix.running import readiness, run, session
from torchmatrix.running.doctor import Check
from torchmatrix.running.session import Session

LIMIT_SECONDS = 600.0
"""Time limit of everything but the load: imports on a slow disk, the first all-reduce over many GPUs."""
CPU_PROCESSES = 2
TAIL_LINES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfCheck:
    """The self-check's events and the host's readings, as (monotonic seconds, reading). `ended`: what went wrong, or None."""

    stack: str
    engine: str
    command: str
    host: Host
    gpus: GpuSet
    events: tuple[Event, ...]
    readings: tuple[tuple[float, Reading], ...]
    watch_notes: tuple[str, ...]
    seconds: float
    ended: str | None
    tail: tuple[str, ...]

    def only(self, kind: str) -> Event | None:
        """Return the event of this kind; None if the self-check didn't get there."""
        return next((event for event in self.events if event["event"] == kind), None)

    def every(self, kind: str) -> list[Event]:
        """Return all events of this kind, in order."""
        return [event for event in self.events if event["event"] == kind]


def choose_stack(s: Session, name: str | None) -> tuple[Stack, Recipe]:
    """Return the stack called `name`, or the newest that is built, with its recipe. Raises BadInput or NothingSelected."""
    fitting = recipes.stacks_of(s.plan.cells)
    if name is not None and name not in [stack.name for stack in fitting]:
        near = ", ".join(nearest_words(name, [stack.name for stack in fitting])) or "none"
        raise BadInput(f"no stack {name} that this machine can run; the nearest: {near}", hint="torchmatrix plan --skipped")
    wanted = [stack for stack in fitting if name in (None, stack.name)]
    candidates = [(stack, recipes.ready_recipe(stack, s.engine_for(stack), s.locks.get(stack.name))) for stack in wanted]
    ready = [(stack, recipe) for stack, recipe in candidates if recipe]
    if not ready:
        problem = f"stack {name} is not built" if name else "no stack that this machine can run is built"
        raise NothingSelected(problem, hint=f"torchmatrix build '{name or '*'}'")
    return max(ready, key=lambda pair: catalog.version_key(pair[0].torch or "0"))


def examine(s: Session, stack: Stack, recipe: Recipe, seconds: float) -> Generator[str, None, SelfCheck]:
    """Wait for the devices, then run the self-check on all of them at once; yields each step. Raises EngineUnusable."""
    engine = s.engine_for(stack)
    gpus = all_devices(s.host, fit.suited(stack, s.host))
    with run.alone(s, gpus.gpus, seconds), run.watching(s) as (sensors, notes):
        session.remove_orphans(s)
        try:
            image = engine.build(recipe, lambda line: None)
        except BuildFailed as failure:
            raise EngineUnusable(f"{stack.name}: {failure}", hint=f"torchmatrix build '{stack.name}'") from None
        yield from readiness.wait(sensors, [gpu.uuid for gpu in gpus.gpus] or ["cpu"], Method())
        return (yield from look(s.host, engine, image, stack.name, gpus, s.results.owner, seconds, sensors, notes))


def all_devices(host: Host, places: Sequence[int]) -> GpuSet:
    """Return the GPUs at these places, of whatever models; without any, two processes that share the CPU's cores."""
    if places:
        threads = max(1, len(host.cores) // len(host.gpus))
        gpus = tuple(host.gpus[place] for place in places)
        return GpuSet(indices=tuple(places), vendor=host.vendor, gpus=gpus, threads=threads)
    count = min(CPU_PROCESSES, len(host.cores))
    return cpu_set(tuple(range(count)), cut_slots(host.cores, host.core_groups, count))


def look(
    host: Host,
    engine: Engine,
    image: Image,
    stack: str,
    gpus: GpuSet,
    owner: str,
    seconds: float,
    sensors: Sequence[Sensor] = (),
    notes: Sequence[str] = (),
) -> Generator[str, None, SelfCheck]:
    """Run the container's self-check and watch it; a failure inside it is part of the result."""
    begin, events, tail = time.monotonic(), list[Event](), list[str]()
    readings: list[tuple[float, Reading]] = []
    code, refused, line_mb = 0, "", settings.load().line_mb

    def keep(batch: list[Reading]) -> None:
        readings.extend((time.monotonic(), reading) for reading in batch)

    limit = LIMIT_SECONDS + seconds
    try:
        execution = engine.start(image, _spec(gpus, owner, seconds))
        with execution, Watcher(sensors, keep), time_limit(execution, limit) as timed_out:
            yield f"$ {execution.command}"
            for stream, line in execution.lines():
                event = launch_file.event_in(stream, line, line_mb)
                if event is None:
                    tail = [*tail[1 - TAIL_LINES :], line[:500].decode(errors="replace").rstrip("\n")]
                    continue
                events.append(event)
                if event["event"] == "phase":
                    yield f"{event['phase']}: {event['seconds']:.1f} s"
            code = execution.wait().returncode
    except launch_file.Refused as refusal:
        refused = str(refusal)
    except LaunchFailed as failure:
        raise EngineUnusable(f"{stack}: {failure}", hint="torchmatrix doctor checks the engine") from None
    return SelfCheck(
        stack=stack,
        engine=engine.name,
        command=execution.command,
        host=host,
        gpus=gpus,
        events=tuple(events),
        readings=tuple(readings),
        watch_notes=tuple(notes),
        seconds=time.monotonic() - begin,
        ended=f"ended after {limit:.0f} s" if timed_out.is_set() else refused or _failure_in_words(events, code, tail),
        tail=tuple(tail),
    )


def _spec(gpus: GpuSet, owner: str, seconds: float) -> LaunchSpec:
    flags = ["--device", torch_device_of(gpus.vendor), "--seconds", f"{seconds:g}", "--threads", str(gpus.threads)]
    flags += ["--cpus", ":".join(gpus.cpus)] if gpus.cpus else []
    return LaunchSpec(program="deep.py", arguments=tuple(flags), gpus=gpus, cache="deep", owner=owner)


def _failure_in_words(events: Sequence[Event], code: int, tail: Sequence[str]) -> str | None:
    failures = [f"rank {event.get('rank')}: {event.get('message')}" for event in events if event["event"] == "failure"]
    if failures:
        return failures[0].splitlines()[0]
    if code == 0 and any(event["event"] == "done" for event in events):
        return None
    return f"exit code {code}; last line: {tail[-1] if tail else 'none'}"


def as_record(seen: SelfCheck) -> dict[str, Any]:
    """Return everything that was observed, for a file."""
    return {
        "stack": seen.stack,
        "engine": seen.engine,
        "command": seen.command,
        "host": seen.host.as_record(),
        "machine": seen.host.machine,
        "seconds": seen.seconds,
        "ended": seen.ended,
        "events": list(seen.events),
        "telemetry": [{"monotonic_seconds": at, **reading} for at, reading in seen.readings],
        "watch_notes": list(seen.watch_notes),
        "tail": list(seen.tail),
    }


# Findings in words: each device, link, precision, all-reduce and the load, with what to do about it.

SLOWER_BY = 0.05
"""A load that loses more than this share from its first to its last third, or from device to device, gets a note."""
_LINKS = "look at nvidia-smi topo -m, the IOMMU's settings and ACS in the BIOS"


def findings(seen: SelfCheck) -> list[Check]:
    """Return all findings, in the order of the self-check; the first tells whether it came to its end."""
    checks = [
        _check_end(seen),
        *_check_devices(seen),
        *_check_peers(seen),
        *_check_precisions(seen),
        *_check_all_reduce(seen),
        *_check_load(seen),
    ]
    return [*checks, *_check_readings(seen), *_check_energy(seen), _check_phases(seen)]


def _ok(subject: str, finding: str) -> Check:
    return Check(mark="ok", subject=subject, finding=finding)


def _note(subject: str, finding: str, fix: str = "") -> Check:
    return Check(mark="note", subject=subject, finding=finding, fix=fix)


def _bad(subject: str, finding: str, fix: str) -> Check:
    return Check(mark="bad", subject=subject, finding=finding, fix=fix, exit_code=ExitCode.CELL_NOT_OK)


def _check_end(seen: SelfCheck) -> Check:
    finding = f"{seen.stack} on {count(len(seen.gpus.indices), 'device')}, {seen.seconds:.0f} s"
    if seen.ended is None:
        return _ok("box", finding)
    return _bad("box", f"{finding}: {seen.ended}", "the last lines of the log are in the JSON file, under `tail`")


def _check_devices(seen: SelfCheck) -> Iterator[Check]:
    event = seen.only("devices")
    if event is None:
        return
    if not seen.gpus.gpus:
        yield _note("device mapping", "not checked: this machine has no GPU", "run it on the GPU server")
        return
    left_out = [f"{place} ({gpu.name})" for place, gpu in enumerate(seen.host.gpus) if place not in seen.gpus.indices]
    if left_out:
        yield _note("GPUs", f"not checked, since {seen.stack} has no code for it: GPU {', '.join(left_out)}")
    names = [str(device["name"]) for device in event.get("devices") or ()]
    pairs = list(zip(seen.gpus.gpus, event["devices"], strict=False))
    unknown = [str(gpu.index) for gpu, device in pairs if not device.get("uuid") or gpu.vendor != "nvidia"]
    wrong = [
        f"device {place} of the container is {device['uuid']}, GPU {gpu.index} of the host is {gpu.uuid}"
        for place, (gpu, device) in enumerate(pairs)
        if str(gpu.index) not in unknown and bare_uuid(device["uuid"]) not in _uuids_of(gpu)
    ]
    if wrong or len(names) != len(seen.gpus.gpus):
        fix = "the engine gives the container other GPUs than it was asked for: attach both files to an issue"
        yield _bad("device mapping", "; ".join(wrong) or f"the container has {count(len(names), 'device')}", fix)
    elif unknown:
        is_nvidia = seen.gpus.vendor == "nvidia"
        source, fix = ("this torch", "take a stack with torch 2.5 or newer: --stack NAME") if is_nvidia else ("HIP", "")
        finding = f"{', '.join(sorted(set(names)))}; {source} doesn't tell the UUID of GPU {', '.join(unknown)}"
        yield _note("device mapping", finding, fix)
    else:
        yield _ok("device mapping", f"{count(len(names), 'device')}, in the host's order, by UUID: {', '.join(names)}")


def _uuids_of(gpu: Gpu) -> set[str]:
    """Return the UUIDs that CUDA may report for a GPU: its own, or that of the GPU that it is a slice of."""
    return {bare_uuid(uuid) for uuid in (gpu.uuid, gpu.slice_of) if uuid}


def _check_peers(seen: SelfCheck) -> Iterator[Check]:
    event = seen.only("peers")
    if event is None:
        return
    if not event.get("access") or not event.get("bytes_per_second"):
        yield _note("peer access", "not checked: that needs two GPUs")
        return
    ids = range(len(event["access"]))
    if len(ids) != len(seen.gpus.indices):
        yield _bad("peer access", f"the workload reported {count(len(ids), 'device')}", "attach both files to an issue")
        return
    pairs = [(a, b) for a, b in product(ids, ids) if a != b]
    if event.get("wrong"):
        listing = ", ".join(f"{a} to {b}" for a, b in event["wrong"])
        yield _bad("peer access", f"a copy arrives wrong from GPU {listing}", f"don't measure before that is mended: {_LINKS}")
        return
    without = [f"{a} and {b}" for a, b in pairs if a < b and not event["access"][a][b]]
    speeds = [event["bytes_per_second"][a][b] / 1e9 for a, b in pairs]
    finding = f"copies arrive whole, at {figure(min(speeds))} to {figure(max(speeds))} GB/s"
    if without:
        yield _note("peer access", f"{finding}; through the host's memory between GPU {'; '.join(without)}", _LINKS)
    else:
        yield _ok("peer access", f"between all GPUs; {finding}")
    disputed = [f"{a} to {b}" for a, b in pairs if _driver_says(seen, a, b) not in (None, event["access"][a][b])]
    if disputed:
        yield _note("peer access", f"driver and container disagree about GPU {', '.join(disputed)}", _LINKS)


def _driver_says(seen: SelfCheck, a: int, b: int) -> bool | None:
    """Check whether the driver reports peer access between two GPUs; None where it can't tell."""
    if not seen.host.p2p:
        return None
    word = seen.host.p2p[seen.gpus.indices[a]][seen.gpus.indices[b]]
    return None if word == "n/a" else word == "ok"


def _check_precisions(seen: SelfCheck) -> Iterator[Check]:
    for event in seen.every("precision"):
        subject = f"precision {event.get('requested')}"
        if event.get("unsupported") or not event.get("effective"):
            yield _note(subject, str(event.get("unsupported")))
            continue
        used = sorted({f"{op} {rank[op]}" for rank in event["effective"] for op in ("matmul", "convolution")}, reverse=True)
        if event.get("problems"):
            fix = "an environment variable or the image overrides the precision: attach both files to an issue"
            yield _bad(subject, event["problems"][0], fix)
        else:
            yield _ok(subject, f"really computes in: {', '.join(used)}")


def _check_all_reduce(seen: SelfCheck) -> Iterator[Check]:
    event, devices = seen.only("all-reduce"), seen.only("devices")
    if event is None:
        if devices and len(seen.gpus.indices) == 1:
            yield _note("all-reduce", "not checked: that needs two devices")
        return
    if any(event.get("wrong_elements") or ()):
        ranks = ", ".join(str(rank) for rank, wrong in enumerate(event["wrong_elements"]) if wrong)
        yield _bad("all-reduce", f"the sum is wrong on rank {ranks}", f"try NCCL_P2P_DISABLE=1 to find the link; {_LINKS}")
        return
    largest = (event.get("sizes") or [{}])[-1]
    backend = devices["backend"] if devices else "the backend"
    size, rate = (number_or_nan(largest.get(name)) for name in ("bytes", "bus_bytes_per_second"))
    speed = f"{figure(rate / 1e9)} GB/s bus bandwidth at {'n/a' if math.isnan(size) else f'{size / 2**20:.0f}'} MiB"
    yield _ok("all-reduce", f"every element right on every rank; {backend}, {speed}")


def _check_load(seen: SelfCheck) -> Iterator[Check]:
    event = seen.only("load")
    if event is None:
        return
    if not all(event["finite"]):
        yield _bad("load", "a product is wrong", "the GPU computes wrongly: look for Xid in the kernel log (sudo dmesg)")
        return
    rates = event["flops_per_second"]
    means = [sum(rank) / len(rank) for rank in rates]
    finding = f"{event['stop_monotonic_seconds'] - event['start_monotonic_seconds']:.0f} s of {event['dtype']} products: "
    finding += f"{figure(min(means) / 1e9)} to {figure(max(means) / 1e9)} GFLOP/s per device"
    drops = [1 - watched.last_third(rank) / watched.first_third(rank) for rank in rates]
    slower = [f"device {rank} became {drop:.0%} slower" for rank, drop in enumerate(drops) if drop > SLOWER_BY]
    apart = 1 - min(means) / max(means)
    slower += [f"the slowest device is {apart:.0%} behind the fastest"] if apart > SLOWER_BY else []
    if slower:
        yield _note("load", f"{finding}; {'; '.join(slower)}", "see the clocks, temperatures and reasons below")
    else:
        yield _ok("load", f"{finding}, from its beginning to its end")


def _load_window(seen: SelfCheck) -> list[tuple[float, float]]:
    event = seen.only("load")
    return [(event["start_monotonic_seconds"], event["stop_monotonic_seconds"])] if event else []


def _series(seen: SelfCheck) -> dict[str, watched.Series]:
    """Return the readings of each device that was used."""
    wanted: dict[str, Gpu | None] = {gpu.uuid: gpu for gpu in seen.gpus.gpus} or {"cpu": None}
    return {
        device: watched.Series.of([point for point in seen.readings if point[1]["device"] == device], gpu)
        for device, gpu in wanted.items()
    }


def _check_readings(seen: SelfCheck) -> Iterator[Check]:
    """Yield temperature, clock, power and slow-downs of each device while the load ran."""
    for place, (device, series) in enumerate(_series(seen).items()):
        subject = "CPU under load" if device == "cpu" else f"GPU {seen.gpus.indices[place]} under load"
        inside = series.inside(_load_window(seen))
        errors = sorted({str(reading["error"]) for _, reading in series.points if "error" in reading})
        if errors:
            yield _bad(subject, errors[0], "the driver lost the device: reset it or reboot, then try again")
            continue
        if not inside:
            yield _note(subject, "no reading while the load ran", "; ".join(seen.watch_notes))
            continue
        reasons = watched.reason_shares(inside)
        finding = ", ".join(_spans_in_words(series, _load_window(seen))) or "neither temperature, clock nor power can be read"
        finding += (
            f"; clock-event reasons: {', '.join(f'{word} {share:.0%}' for word, share in reasons.items())}" if reasons else ""
        )
        if SLOWDOWNS & set(reasons):
            yield _note(subject, finding, "the device slows down under load: check cooling and power supply")
        else:
            yield _ok(subject, finding)


def _spans_in_words(series: watched.Series, windows: list[tuple[float, float]]) -> Iterator[str]:
    for word, unit, keys in _SHOWN:
        if values := series.values(windows, *keys):
            first, last = values[0], values[-1]
            span = f"{first:.0f}" if round(first) == round(last) else f"{first:.0f} to {last:.0f}"
            yield f"{word} {span} {unit}"


_SHOWN = (
    ("temperature", "°C", ("temperature_celsius",)),
    ("clock", "MHz", ("sm_clock_mhz", "clock_mhz")),
    ("power", "W", ("power_watts",)),
)


def _check_energy(seen: SelfCheck) -> Iterator[Check]:
    window = _load_window(seen)
    if not window:
        return
    joules, problem = watched.energy_of(list(_series(seen).values()), window)
    energy = "" if math.isnan(joules) else f"{joules:.0f} J in {window[0][1] - window[0][0]:.0f} s"
    if problem:
        yield _note("energy counter", "; ".join(filter(None, (energy, problem))), "; ".join(seen.watch_notes))
    else:
        yield _ok("energy counter", f"{energy}; the power readings agree within {watched.ENERGY_MUST_AGREE_WITHIN:.0%}")


def _check_phases(seen: SelfCheck) -> Check:
    spent = [f"{event['phase']} {event['seconds']:.1f} s" for event in seen.every("phase")]
    return _ok("time", ", ".join(spent) or "the workload named no phase")
