"""One launch: waits for its devices, starts the box, watches it, records all that it says. Yields news, prints nothing."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import orjson

from torchmatrix import __version__
from torchmatrix.analysis import gpu_specs, watched
from torchmatrix.core import settings
from torchmatrix.core.errors import BuildFailed, EngineLost, LaunchFailed
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Engine, Execution, Image, LaunchSpec, Meeting, Recipe, time_limit
from torchmatrix.facts import launch_file, lines
from torchmatrix.facts.launch_file import LaunchFile
from torchmatrix.facts.reading import Proven, compare, launch_at
from torchmatrix.facts.store import RunFolder, keep_model
from torchmatrix.machine.host import Host, before_launch
from torchmatrix.machine.telemetry import Reading, Sensor, Watcher
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import AUTO, ddp_id
from torchmatrix.planning.plan import Cell, GpuSet
from torchmatrix.running import readiness
from torchmatrix.running.lanes import Turns
from torchmatrix.running.news import LaunchCommand, LaunchFinished, LaunchPhase, News
from torchmatrix.running.readiness import Ready

# What is asked of the box, as flags on its command line; a person can paste them.

DEADLINE_MARGIN_SECONDS = 60.0
"""A box ends itself so long after the host should have ended it: for the case that the host is dead."""


def factor_flags(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What a step does and how it is measured; `values`: of all factors, by name."""
    return tuple(word for factor in FACTORS for word in factor.words_for(values[factor.name]))


def device_flags(cell: Cell, host: Host, seed: int, timeout_seconds: float) -> dict[str, Any]:
    """The options that say on what a launch runs, and for how long at most; None: as the box has it."""
    gpus = cell.gpus
    return {
        "--device": "cpu" if gpus.vendor == "cpu" else "cuda",
        "--threads": gpus.threads,
        "--cpus": ":".join(gpus.cpus) or _near(host, gpus) or None,
        "--seed": seed,
        "--deadline": round(timeout_seconds + DEADLINE_MARGIN_SECONDS),
        "--model-builder": cell.workload.own.name if cell.workload.own else None,
        "--model-sha256": cell.workload.own.sha256 if cell.workload.own else None,
    }


def flags_in_words(options: Mapping[str, Any]) -> tuple[str, ...]:
    """As they stand on a command line."""
    return tuple(word for key, value in options.items() if value is not None for word in (key, str(value)))


def _near(host: Host, gpus: GpuSet) -> str:
    """The CPUs of each GPU's NUMA node, where the machine has several; empty where they aren't known."""
    cpus = [gpu.local_cpus or "" for gpu in gpus.gpus]
    return ":".join(cpus) if host.numa_nodes > 1 and any(cpus) else ""


INTERRUPTED = "interrupted by the user"
HEATING = "heating"
"""What a launch is for whose figure doesn't count and needs no proof."""
OF_NODE = "node"
"""The stream of an execution on which facts come that another node tells, as JSON."""


class Others(Protocol):
    """The other nodes of a cluster that a launch runs on, too."""

    @property
    def meeting(self) -> Meeting:
        """Where all ranks find each other, as this node sees it."""
        ...

    def beside(self, execution: Execution, image: Image, spec: LaunchSpec) -> Execution:
        """The launch on all nodes, of which `execution` is this node's part."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a run needs besides its plan. `watch_notes`: what can't be watched, in words.

    `marks`: where the self-tests of images are remembered; None: images are not tested.
    `lane`, `turns`: in which lane its launches are, and what they share with those of other lanes; None: they run alone.
    `others`: None unless the launches run on several nodes.
    """

    folder: RunFolder
    host: Host
    owner: str
    timeout_seconds: float
    seed: int
    method: Method
    engine_for: Callable[[Stack], Engine]
    recipe_for: Callable[[Stack], Recipe]
    sensors: Sequence[Sensor] = ()
    watch_notes: Sequence[str] = ()
    marks: Path | None = None
    engine_facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    lane: str = ""
    turns: Turns | None = None
    others: Others | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One launch of a cell with a batch; `number` is its round. `trial`: only to see whether the batch fits.

    `fresh`: it compiles from an empty cache, which isn't kept.
    `probe`: it only shows whether lanes disturb each other: alone, beside, or first (which isn't counted); or it only heats the
    devices (HEATING).
    `proven`: the launch of the cell whose work was proven in full, and whose losses it must have; None if none was.
    """

    cell: Cell
    number: int
    batch: int
    trial: bool = False
    fresh: bool = False
    probe: str = ""
    proven: Proven | None = None


def bench_arguments(attempt: Attempt, job: Job) -> tuple[str, ...]:
    """The workload's flags; a person can paste them."""
    workload, gpus = attempt.cell.workload, attempt.cell.gpus
    own = {**workload.factors, "batch": attempt.batch, **(_TRIAL if attempt.trial else {})}
    known = None if attempt.fresh else attempt.proven  # newly compiled code is proven anew
    proofs = {
        "--proof": "none" if attempt.trial or attempt.probe == HEATING else "fingerprint" if known else None,
        "--proven": f"flops_per_item={known.flops_per_item!r}" if known and not math.isnan(known.flops_per_item) else None,
        "--peak-flops": _peak_flops(attempt),
    }
    words = (
        *factor_flags(own),
        *flags_in_words(device_flags(attempt.cell, job.host, job.seed, job.timeout_seconds) | proofs),
    )
    probe = (workload.explain or gpus.nodes > 1) and workload.makes_figures and gpus.count > 1
    return (*words, *(("--all-reduce-probe",) if probe else ()))


def _peak_flops(attempt: Attempt) -> float | None:
    """The largest peak of the cell's devices, in FLOP/s; None if one is unknown."""
    named = [gpu_specs.find(gpu.name, gpu.memory_bytes) for gpu in attempt.cell.gpus.gpus]
    peaks = [gpu_specs.peak_flops(facts, attempt.cell.workload.precision) if facts else None for facts in named]
    known = [peak for peak in peaks if peak]
    return max(known) if known and len(known) == len(peaks) else None


_TRIAL = {
    "steps": 1, "seconds": None, "windows": None, "requests": None, "warmup_steps": 1, "warmup_seconds": None, "warmup_cap": 1,
}  # fmt: skip
"""The lengths of a launch that only sees whether the batch fits; None: as the box has it."""


def launch(job: Job, attempt: Attempt, image: Image) -> Iterator[News]:
    """Run one attempt and record it; the last news is LaunchFinished."""
    cell = attempt.cell
    begin = time.monotonic()
    waiting = readiness.wait(job.sensors, devices_of(cell), job.method)
    while True:
        try:
            yield LaunchPhase(cell=cell, phase=next(waiting))
        except StopIteration as over:
            ready = over.value
            break
    try:
        execution = _started(job, attempt, image)
    except LaunchFailed as failure:
        reason, message = ("interrupted", INTERRUPTED) if _is_ending(job) else ("crashed", str(failure))
        yield _not_started(job, attempt, ready, reason, message, f"torchmatrix run '{cell.id}'")
        if reason == "interrupted":
            raise KeyboardInterrupt from None
        return
    file = _file_of(job, attempt)
    try:
        head = _header(job, attempt, ready, file.number)
        file.event("launch", **head, image=image_record(image), command=execution.command, started=execution.started)
        yield LaunchCommand(cell=cell, command=execution.command)
        yield from _run(job, attempt, execution, file)
    except LaunchFailed as failure:
        if _is_ending(job):
            file.close(reason="interrupted", message=INTERRUPTED)
            raise KeyboardInterrupt from None
        file.close(reason="crashed", message=str(failure))
    except EngineLost as lost:
        file.close(reason="interrupted", message=str(lost))
        raise
    except (KeyboardInterrupt, GeneratorExit):
        file.close(reason="interrupted", message=INTERRUPTED)
        raise
    finally:
        file.abandon()
    done, seconds = launch_at(file.path), time.monotonic() - begin
    note = "; ".join(watched.summarize(done).errors)
    yield LaunchFinished(cell=cell, number=attempt.number, launch=done, seconds=seconds, note=note)


def _started(job: Job, attempt: Attempt, image: Image) -> Execution:
    """The execution of an attempt, on all its nodes, to be used in a `with` block. Raises LaunchFailed."""
    cell = attempt.cell
    spec = LaunchSpec(
        arguments=bench_arguments(attempt, job),
        processes=len(cell.gpus.indices),
        gpus=cell.gpus,
        cache="" if attempt.trial or attempt.fresh else cache_name(cell, attempt.batch, job.lane),
        owner=job.owner,
        model_file=model_file_of(job, cell),
        meeting=job.others.meeting if job.others else None,
    )
    execution = job.engine_for(cell.stack).start(image, spec)
    return job.others.beside(execution, image, spec) if job.others else execution


def model_file_of(job: Job, cell: Cell) -> Path | None:
    """The kept file of a user's own model; None for a library's."""
    own = cell.workload.own
    return keep_model(job.folder.models, own.path, own.content) if own else None


def _run(job: Job, attempt: Attempt, execution: Execution, file: LaunchFile) -> Iterator[News]:
    """Start, watch and read the box to its end."""
    cell = attempt.cell
    telling, line_mb = Telling(execution, file.telemetry, job, cell), settings.load().line_mb
    transport = launch_file.TransportLog(cell.gpus.vendor)
    reached = job.turns.covering(execution) if job.turns else nullcontext()
    with execution, reached, Watcher(job.sensors, telling), time_limit(execution, job.timeout_seconds) as timed_out:
        for stream, line in execution.lines():
            if stream == OF_NODE:
                _keep(file, orjson.loads(line))
                continue
            event = launch_file.event_in(stream, line, line_mb)
            if event is None:
                transport.read(line)
                file.log(line)
            else:
                file.copy(launch_file.text_of(line))
                yield LaunchPhase(cell=cell, phase=_phase(event))
        end = execution.wait()
    if job.others:
        file.event("transport", **transport.found(job.others.meeting.interface))
    if end.returncode and _is_ending(job):
        raise KeyboardInterrupt
    others = {"beside": job.turns.beside(cell.id)} if job.turns else {}
    if timed_out.is_set():
        message = f"ended after the time-out of {job.timeout_seconds:g} s ([run] timeout_minutes)"
        file.close(reason="timeout", message=message, returncode=end.returncode, **others)
    elif end.problem:
        file.close(reason="crashed", message=end.problem, returncode=end.returncode, oom_killed=end.oom_killed, **others)
    else:
        compared = _compared(attempt, file.path) if end.returncode == 0 else {}
        file.close(returncode=end.returncode, oom_killed=end.oom_killed, **compared, **others)


def _compared(attempt: Attempt, path: Path) -> dict[str, Any]:
    """What the last line says of a launch beside the one of its cell that was proven in full."""
    if attempt.proven is None or not (launch := launch_at(path)).is_done:
        return {}
    found = compare(launch, attempt.proven)
    wrong = {"reason": "numerics", "message": found.contradiction} if found.contradiction else {}
    return {"losses_compared": found.losses, **wrong}


def _keep(file: LaunchFile, told: dict[str, Any]) -> None:
    """A fact of another node; its readings are timed by their arrival, since its clock is another one."""
    if told["event"] == "telemetry":
        file.telemetry(told["readings"])
    else:
        file.event(told.pop("event"), **told)


def _is_ending(job: Job) -> bool:
    """Whether the launches of all lanes are being ended: then this one did not end by itself."""
    return job.turns is not None and job.turns.are_over


def _file_of(job: Job, attempt: Attempt) -> LaunchFile:
    """Of an attempt; the names of trials and probes differ, so that their figures never count."""
    kind, number = ("batch", attempt.batch) if attempt.trial else ("probe" if attempt.probe else "round", attempt.number)
    return job.folder.new_launch(attempt.cell.id, number, kind)


def _phase(event: dict[str, Any]) -> str:
    """How far the box is: the phase that an event names, or the event; `warmed-up` ends the blocks of the warm-up."""
    return "warmed-up" if event["event"] == "warm-up" else str(event.get("phase") or event["event"])


def cache_name(cell: Cell, batch: int, lane: str) -> str:
    """One compile cache per workload, batch and number of devices on each node: compiled code depends on them.

    Each lane has its own: a cache is held by one launch at a time.
    """
    found = f"{batch}-" if cell.workload.batch == AUTO else ""
    own = f"-{lane}" if lane else ""
    return f"{cell.workload.id}-{found}n{len(cell.gpus.indices)}-{recipes.workload_hash()[:8]}{own}"


_OF_QUOTA = {"quota_periods", "quota_seconds"}
"""What this process's control groups made wait: not a launch that is in other ones."""


class Telling:
    """Tells the readings of a launch's own devices, with the processes that aren't the launch's."""

    def __init__(self, execution: Execution, tell: Callable[[list[Reading]], None], job: Job, cell: Cell) -> None:
        self._execution, self._tell, self._devices = execution, tell, devices_of(cell)
        self._left_out = {"processes"} | (_OF_QUOTA if job.engine_for(cell.stack).capabilities.has_own_groups else set())
        self._own: set[int] = set()

    def __call__(self, readings: list[Reading]) -> None:
        own = [reading for reading in readings if reading["device"] in self._devices]
        if own:
            self._tell([self._named(reading) for reading in own])

    def _named(self, reading: Reading) -> Reading:
        """Without the launch's own processes, the others by name.

        One that was ours stays ours while it ends and shows no mark any more. One that can't be seen from here (the tool
        runs in a container) may be ours: nothing is said of it.
        """
        pids = reading.get("processes", ())
        self._own |= {pid for pid in pids if self._execution.owns(pid)}
        others = [pid for pid in pids if pid not in self._own and Path(f"/proc/{pid}").exists()]
        rest = {key: value for key, value in reading.items() if key not in self._left_out}
        return rest | ({"foreign": [readiness.describe(pid) for pid in others]} if others else {})


def devices_of(cell: Cell) -> tuple[str, ...]:
    """What telemetry calls the devices of a cell; the CPU feeds them all."""
    return ("cpu", *(gpu.uuid for gpu in cell.gpus.gpus))


def record_failed_build(job: Job, cell: Cell, number: int, failure: BuildFailed) -> LaunchFinished:
    """A launch that could not be: its image was not built."""
    return record_failure(job, cell, number, "build-failed", str(failure), f"torchmatrix build '{cell.stack.name}/*'")


def record_failure(job: Job, cell: Cell, number: int, reason: str, message: str, command: str) -> LaunchFinished:
    """A launch that could not be started at all, as a fact of its own."""
    return _not_started(job, Attempt(cell=cell, number=number, batch=0), None, reason, message, command)


def _not_started(job: Job, attempt: Attempt, ready: Ready | None, reason: str, message: str, command: str) -> LaunchFinished:
    file = _file_of(job, attempt)
    file.event("launch", **_header(job, attempt, ready, file.number), image=None, command=command)
    file.close(reason=reason, message=message)
    return LaunchFinished(cell=attempt.cell, number=attempt.number, launch=launch_at(file.path), seconds=0.0)


def _header(job: Job, attempt: Attempt, ready: Ready | None, number: int) -> dict[str, Any]:
    """Who, where, what and how: enough to repeat the launch and to compare it. `number`: which try it is."""
    cell, host = attempt.cell, as_set_now(job, attempt.cell)
    return {
        "protocol": lines.VERSION,
        "tool": __version__,
        "run": job.folder.id,
        "cell": cell.id,
        "round": attempt.number,
        "try": number,
        "trial": attempt.trial,
        **({"probe": attempt.probe} if attempt.probe else {}),
        "method": _record_of(job.method) | ({"parallel": True} if job.turns else {}),
        "start": ready.as_record() if ready else None,
        "stack": _record_of(cell.stack),
        "workload": cell.workload.as_record(),
        "ddp_workload": ddp_id(cell.workload),
        "batch_requested": cell.workload.batch,
        "batch_used": attempt.batch or None,
        "workload_hash": recipes.workload_hash(),
        "gpus": {**_record_of(gpus_of(cell, host)), "label": cell.gpus.label},
        "engine": job.engine_facts.get(job.engine_for(cell.stack).name, {}),
        "machine": job.host.machine,
        "host": _host_record(host),
    }


def as_set_now(job: Job, cell: Cell) -> Host:
    """The host as it is set before this launch; as it was found where it can't be seen from here."""
    return before_launch(job.host, devices_of(cell)) if job.sensors else job.host


def gpus_of(cell: Cell, host: Host) -> GpuSet:
    """The device set of a cell with its GPUs as `host` has them."""
    now = {gpu.uuid: gpu for gpu in host.gpus}
    return replace(cell.gpus, gpus=tuple(now.get(gpu.uuid, gpu) for gpu in cell.gpus.gpus))


_record_of = lru_cache(1024)(asdict)  # of what a run's headers share
_host_record = lru_cache(16)(Host.as_record)


def image_record(image: Image) -> dict[str, Any]:
    """What a launch says of its image."""
    return {"reference": image.reference, "environment": image.environment, **image.facts}
