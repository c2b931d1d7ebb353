"""One launch of the box's self-check (images/workload/deep.py) over all devices of this machine, watched from the host."""

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Engine, Image, LaunchSpec, Recipe, time_limit
from torchmatrix.facts import launch_file
from torchmatrix.facts.lines import Event
from torchmatrix.ground import settings
from torchmatrix.ground.errors import BadInput, BuildFailed, EngineUnusable, LaunchFailed, NothingSelected
from torchmatrix.machine.host import Host
from torchmatrix.machine.telemetry import Reading, Sensor, Watcher
from torchmatrix.matrix import catalog
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.stacks import Stack
from torchmatrix.planning import fit
from torchmatrix.planning.plan import GpuSet, cpu_set, cut_slots
from torchmatrix.planning.selection import nearest_words
from torchmatrix.running import housekeeping, readiness, run
from torchmatrix.running.session import Session

LIMIT_SECONDS = 600.0
"""What everything but the load may take: imports on a slow disk, the first all-reduce over many GPUs."""
CPU_PROCESSES = 2
TAIL_LINES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What the box said and the host read. `readings`: (monotonic seconds, reading). `ended`: what went wrong, or None."""

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
        """The event of this kind; None if the box didn't get there."""
        return next((event for event in self.events if event["event"] == kind), None)

    def every(self, kind: str) -> list[Event]:
        """All events of this kind, in order."""
        return [event for event in self.events if event["event"] == kind]


def choose_stack(s: Session, name: str | None) -> tuple[Stack, Recipe]:
    """The stack called `name`, or the newest that is built. Raises BadInput or NothingSelected."""
    fitting = recipes.stacks_of(s.plan.cells)
    if name is not None and name not in [stack.name for stack in fitting]:
        near = ", ".join(nearest_words(name, [stack.name for stack in fitting])) or "none"
        raise BadInput(f"no stack {name} that this machine can run; the nearest: {near}", hint="torchmatrix plan --skipped")
    wanted = [stack for stack in fitting if name in (None, stack.name)]
    ready = [(stack, recipe) for stack in wanted if (recipe := _ready(s, stack))]
    if not ready:
        what = f"stack {name} is not built" if name else "no stack that this machine can run is built"
        raise NothingSelected(what, hint=f"torchmatrix build '{name or '*'}'")
    return max(ready, key=lambda pair: catalog.version_key(pair[0].torch or "0"))


def _ready(s: Session, stack: Stack) -> Recipe | None:
    return recipes.ready_recipe(stack, s.engine_for(stack), s.locks.get(stack.name))


def examine(s: Session, stack: Stack, recipe: Recipe, seconds: float) -> Generator[str, None, Seen]:
    """Wait for the devices, then look at all of them at once; yields what is being done. Raises EngineUnusable."""
    engine = s.engine_for(stack)
    with s.results.hold(), run.watching(s) as (sensors, notes):
        housekeeping.remove_orphans(s)
        try:
            image = engine.build(recipe, lambda line: None)
        except BuildFailed as failure:
            raise EngineUnusable(f"{stack.name}: {failure}", hint=f"torchmatrix build '{stack.name}'") from None
        gpus = all_devices(s.host, fit.suited(stack, s.host))
        yield from readiness.wait(sensors, [gpu.uuid for gpu in gpus.gpus] or ["cpu"], Method())
        return (yield from look(s.host, engine, image, stack.name, gpus, s.results.owner, seconds, sensors, notes))


def all_devices(host: Host, places: Sequence[int]) -> GpuSet:
    """The GPUs at these places, of whatever models; without one, two processes that share the CPU's cores."""
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
) -> Generator[str, None, Seen]:
    """Run the box's self-check and watch it. What goes wrong in the box is part of the result."""
    begin, found, tail = time.monotonic(), list[Event](), list[str]()
    readings: list[tuple[float, Reading]] = []
    code, refused, line_mb = 0, "", settings.load().line_mb

    def keep(read: list[Reading]) -> None:
        readings.extend((time.monotonic(), reading) for reading in read)

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
                found.append(event)
                if event["event"] == "phase":
                    yield f"{event['phase']}: {event['seconds']:.1f} s"
            code = execution.wait().returncode
    except launch_file.Refused as why:
        refused = str(why)
    except LaunchFailed as failure:
        raise EngineUnusable(f"{stack}: {failure}", hint="torchmatrix doctor checks the engine") from None
    return Seen(
        stack=stack,
        engine=engine.name,
        command=execution.command,
        host=host,
        gpus=gpus,
        events=tuple(found),
        readings=tuple(readings),
        watch_notes=tuple(notes),
        seconds=time.monotonic() - begin,
        ended=f"ended after {limit:.0f} s" if timed_out.is_set() else refused or _trouble(found, code, tail),
        tail=tuple(tail),
    )


def _spec(gpus: GpuSet, owner: str, seconds: float) -> LaunchSpec:
    flags = ["--device", "cpu" if gpus.vendor == "cpu" else "cuda", "--seconds", f"{seconds:g}", "--threads", str(gpus.threads)]
    flags += ["--cpus", ":".join(gpus.cpus)] if gpus.cpus else []
    return LaunchSpec(
        program="deep.py", arguments=tuple(flags), processes=len(gpus.indices), gpus=gpus, cache="deep", owner=owner
    )


def _trouble(found: Sequence[Event], code: int, tail: Sequence[str]) -> str | None:
    failures = [f"rank {event.get('rank')}: {event.get('message')}" for event in found if event["event"] == "failure"]
    if failures:
        return failures[0].splitlines()[0]
    if code == 0 and any(event["event"] == "done" for event in found):
        return None
    return f"exit code {code}; last line: {tail[-1] if tail else 'none'}"


def as_record(seen: Seen) -> dict[str, Any]:
    """Everything that was seen, for a file."""
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
