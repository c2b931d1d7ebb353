"""Make one launch: wait for its devices, start the workload, watch it, record its output. Yields progress events."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torchmatrix.analysis import gpu_specs, watched
from torchmatrix.core import __version__, settings
from torchmatrix.core.errors import BadInput, BuildFailed, EngineLost, EngineUnusable, LaunchFailed
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Engine, Execution, Image, LaunchSpec, Recipe, Rendezvous, time_limit
from torchmatrix.facts import launch_file, lines
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.launch_file import LaunchFile
from torchmatrix.facts.reading import Proven, compare, launch_at
from torchmatrix.facts.store import RunFolder, keep_model
from torchmatrix.machine.host import Host, before_launch
from torchmatrix.machine.telemetry import Reading, Sensor, Watcher
from torchmatrix.machine.vendors import collectives_of, torch_device_of
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.method import Method
from torchmatrix.matrix.stacks import Stack
from torchmatrix.matrix.workloads import AUTO, ddp_id
from torchmatrix.planning.plan import Cell, GpuSet
from torchmatrix.running import readiness
from torchmatrix.running.progress import LaunchCommand, LaunchFinished, LaunchPhase, LaunchWaits, ProgressEvent
from torchmatrix.running.readiness import Patience, Ready

Waited = TypeVar("Waited")

# Flags of the workload's command line; a person can paste them.

DEADLINE_MARGIN_SECONDS = 60.0
"""A workload ends itself so long after the host should have ended it, in case the host is dead."""


def factor_flags(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the flags for a step and its measurement; `values`: of all factors, by name."""
    return tuple(word for factor in FACTORS for word in factor.words_for(values[factor.name]))


def device_flags(cell: Cell, host: Host, seed: int, timeout_seconds: float) -> dict[str, Any]:
    """Return the options for a launch's devices and its longest duration; None: the workload's default."""
    gpus = cell.gpus
    return {
        "--device": torch_device_of(gpus.vendor),
        "--threads": gpus.threads,
        "--cpus": ":".join(gpus.cpus) or _local_cpus(host, gpus) or None,
        "--seed": seed,
        "--deadline": round(timeout_seconds + DEADLINE_MARGIN_SECONDS),
        "--model-builder": cell.workload.own.name if cell.workload.own else None,
        "--model-sha256": cell.workload.own.sha256 if cell.workload.own else None,
    }


def flags_in_words(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options as words of a command line."""
    return tuple(word for key, value in options.items() if value is not None for word in (key, str(value)))


def _local_cpus(host: Host, gpus: GpuSet) -> str:
    """Return the CPUs of each GPU's NUMA node if the machine has several nodes; empty if they aren't known."""
    cpus = [gpu.local_cpus or "" for gpu in gpus.gpus]
    return ":".join(cpus) if host.numa_nodes > 1 and any(cpus) else ""


INTERRUPTED = "interrupted by the user"
HEATING = "heating"
"""The purpose of a launch whose figure doesn't count and needs no proof."""
OF_NODE = "node"
"""The stream of an execution that carries facts from another node, as JSON."""


class Peers(Protocol):
    """The other nodes of a cluster that take part in a launch."""

    @property
    def rendezvous(self) -> Rendezvous:
        """Return where all ranks find each other, as this node sees it."""
        ...

    def join(self, execution: Execution, image: Image, spec: LaunchSpec) -> Execution:
        """Return the launch on all nodes, of which `execution` is this node's part."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Everything that a run needs besides its plan. `watch_notes`: what can't be watched, in words.

    `marks`: where the self-tests of images are remembered; None: images are not tested.
    `patience`: with other programs. `peers`: None unless the launches run on several nodes.
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
    patience: Patience = field(default_factory=Patience)
    peers: Peers | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One launch of a cell with a batch; `number` is its round. `trial`: only to see whether the batch fits.

    `fresh`: it compiles from an empty cache, which isn't kept.
    `probe`: HEATING if it only heats the devices.
    `proven`: the launch of the cell whose work was proven in full and whose losses this one must have; None if there is none.
    """

    cell: Cell
    number: int
    batch: int
    trial: bool = False
    fresh: bool = False
    probe: str = ""
    proven: Proven | None = None


def bench_arguments(attempt: Attempt, job: Job) -> tuple[str, ...]:
    """Return the workload's flags; a person can paste them."""
    workload, gpus = attempt.cell.workload, attempt.cell.gpus
    factors = {**workload.factors, "batch": attempt.batch, **(_TRIAL if attempt.trial else {})}
    proven = None if attempt.fresh else attempt.proven  # newly compiled code is proven anew
    proofs = {
        "--proof": "none" if attempt.trial or attempt.probe == HEATING else "fingerprint" if proven else None,
        "--proven": f"flops_per_item={proven.flops_per_item!r}" if proven and not math.isnan(proven.flops_per_item) else None,
        "--peak-flops": _peak_flops(attempt),
    }
    words = (
        *factor_flags(factors),
        *flags_in_words(device_flags(attempt.cell, job.host, job.seed, job.timeout_seconds) | proofs),
    )
    probe = (workload.explain or gpus.nodes > 1) and workload.makes_figures and gpus.count > 1
    return (*words, *(("--all-reduce-probe",) if probe else ()))


def _peak_flops(attempt: Attempt) -> float | None:
    """Return the largest peak of the cell's devices, in FLOP/s; None if one is unknown."""
    specs = [gpu_specs.find(gpu.name, gpu.memory_bytes) for gpu in attempt.cell.gpus.gpus]
    asked = attempt.cell.workload
    peaks = [gpu_specs.peak_flops(spec, asked.precision, asked.factors["runtime"]) or 0.0 if spec else 0.0 for spec in specs]
    return max(peaks) if peaks and all(peaks) else None


_TRIAL = {
    "page_cache": None, "steps": 1, "seconds": None, "windows": None, "requests": None, "warmup_steps": 1,
    "warmup_seconds": None, "warmup_cap": 1,
}  # fmt: skip
"""The lengths of a launch that only sees whether the batch fits; None: the workload's default."""


def launch(job: Job, attempt: Attempt, image: Image) -> Iterator[ProgressEvent]:
    """Run one attempt and record it; the last event is LaunchFinished."""
    cell = attempt.cell
    begin = time.monotonic()
    ready = yield from _get_ready(job, cell)
    try:
        execution = _start(job, attempt, image)
    except LaunchFailed as failure:
        yield _not_started(job, attempt, ready, "crashed", str(failure), f"torchmatrix run '{cell.id}'", failure.is_own)
        return
    file = _new_file(job, attempt)
    try:
        head = _header(job, attempt, ready, file.number)
        file.event("launch", **head, image=image_record(image), command=execution.command, started=execution.started)
        yield LaunchCommand(cell=cell, command=execution.command)
        yield from _run(job, attempt, execution, file)
    except LaunchFailed as failure:
        file.close(reason="crashed", message=str(failure), own=failure.is_own)
    except EngineLost as lost:
        file.close(reason="interrupted", message=str(lost))
        raise
    except (KeyboardInterrupt, GeneratorExit):
        file.close(reason="interrupted", message=INTERRUPTED, own=True)
        raise
    finally:
        file.abandon()
    done, seconds = _launch_in(file), time.monotonic() - begin
    note = "; ".join(watched.summarize(done).errors)
    yield LaunchFinished(cell=cell, number=attempt.number, launch=done, seconds=seconds, note=note)


def _get_ready(job: Job, cell: Cell) -> Generator[ProgressEvent, None, Ready]:
    """Wait until other programs leave the launch its CPUs, and its devices are free and cool enough."""
    gpus = cell.gpus
    wait = job.patience.wait(len(gpus.indices) * (gpus.threads if gpus.vendor == "cpu" else 1))
    waited = yield from _each(wait, lambda reason: LaunchWaits(cell=cell, place="a quiet machine", reason=reason))
    cooling = readiness.wait(job.sensors, devices_of(cell), job.method)
    ready = yield from _each(cooling, lambda phase: LaunchPhase(cell=cell, phase=phase))
    return replace(ready, quiet_wait_seconds=waited)


def _each(
    waiting: Generator[str, None, Waited], event_of: Callable[[str], ProgressEvent]
) -> Generator[ProgressEvent, None, Waited]:
    """Yield an event for each text; return what the generator returns."""
    while True:
        try:
            yield event_of(next(waiting))
        except StopIteration as over:
            done: Waited = over.value
            return done


def _start(job: Job, attempt: Attempt, image: Image) -> Execution:
    """Return the execution of an attempt, on all its nodes, to be used in a `with` block. Raises LaunchFailed."""
    cell = attempt.cell
    cache = "" if attempt.trial or attempt.fresh else cache_name(cell, attempt.batch, job.host)
    rendezvous = job.peers.rendezvous if job.peers else None
    spec = spec_of(cell, job.owner, bench_arguments(attempt, job), cache, job.folder.models, rendezvous)
    execution = job.engine_for(cell.stack).start(image, spec)
    return job.peers.join(execution, image, spec) if job.peers else execution


def spec_of(
    cell: Cell, owner: str, arguments: tuple[str, ...], cache: str, models: Path, rendezvous: Rendezvous | None = None
) -> LaunchSpec:
    """Return what to run for a cell, whichever launch it is; a user's own model is kept in the folder `models`."""
    model = cell.workload.own
    model_file = keep_model(models, model.path, model.content) if model else None
    return LaunchSpec(
        arguments=arguments, gpus=cell.gpus, cache=cache, owner=owner, model_file=model_file, rendezvous=rendezvous
    )


def _run(job: Job, attempt: Attempt, execution: Execution, file: LaunchFile) -> Iterator[ProgressEvent]:
    """Start the workload, watch it and read it to its end."""
    cell = attempt.cell
    record, line_mb = DeviceReadings(execution, file.telemetry, job, cell), settings.load().line_mb
    transport = launch_file.TransportLog(collectives_of(cell.gpus.vendor))
    with execution, Watcher(job.sensors, record), time_limit(execution, job.timeout_seconds) as timed_out:
        for stream, line in execution.lines():
            if stream == OF_NODE:
                _record_peer(file, json.loads(line))  # which, unlike orjson, reads names that are not UTF-8
                continue
            event = launch_file.event_in(stream, line, line_mb)
            if event is None:
                transport.read(line)
                file.log(line)
            else:
                file.copy(launch_file.text_of(line))
                yield LaunchPhase(cell=cell, phase=_phase(event))
        end = execution.wait()
    if job.peers:
        file.event("transport", **transport.found(job.peers.rendezvous.interface))
    elif within := transport.found_within():
        file.event("transport", **within)
    if timed_out.is_set():
        message = f"ended after the time-out of {job.timeout_seconds:g} s ([run] timeout_minutes)"
        file.close(reason="timeout", message=message, own=True, returncode=end.returncode)
    elif end.problem:
        file.close(reason="crashed", message=end.problem, returncode=end.returncode, oom_killed=end.oom_killed)
    else:
        compared = _compare_losses(attempt, file) if end.returncode == 0 else {}
        file.close(returncode=end.returncode, oom_killed=end.oom_killed, **compared)


def _launch_in(file: LaunchFile) -> Launch:
    """Return the launch of a file that was just written. Raises EngineUnusable if somebody else changed or removed it."""
    try:
        return launch_at(file.path)
    except BadInput as why:
        raise EngineUnusable(str(why), hint="end what else writes into the results; the same command then continues") from None


def _compare_losses(attempt: Attempt, file: LaunchFile) -> dict[str, Any]:
    """Return fields for the last line that compare a launch with the launch of its cell that was proven in full."""
    if attempt.proven is None or not (launch := _launch_in(file)).is_done:
        return {}
    comparison = compare(launch, attempt.proven)
    wrong = {"reason": "numerics", "message": comparison.contradiction, "own": True} if comparison.contradiction else {}
    return {"losses_compared": comparison.losses, **wrong}


def _record_peer(file: LaunchFile, event: dict[str, Any]) -> None:
    """Record a fact of another node; its readings are timed by their arrival, since its clock is another one."""
    if event["event"] == "telemetry":
        file.telemetry(event["readings"])
    else:
        file.event(event.pop("event"), **event)


def _new_file(job: Job, attempt: Attempt) -> LaunchFile:
    """Create the file of an attempt; trials and probes are named differently, so that their figures never count."""
    prefix, number = ("batch", attempt.batch) if attempt.trial else ("probe" if attempt.probe else "round", attempt.number)
    return job.folder.new_launch(attempt.cell.id, number, prefix)


def _phase(event: dict[str, Any]) -> str:
    """Return the phase that an event names, or else the event; `warmed-up` ends the blocks of the warm-up."""
    return "warmed-up" if event["event"] == "warm-up" else str(event.get("phase") or event["event"])


def cache_name(cell: Cell, batch: int, host: Host) -> str:
    """Return the compile cache's name, by all on which compiled code depends: workload, batch, devices per node, threads, CPU.

    TorchInductor writes the number of threads and the width of vectors into its code. Up to torch 2.12.1 it doesn't key that by
    threads, and in none up to 2.15.0 by vectors: up to 2.10.0 code for two threads runs two of them wherever it is found.
    """
    prefix = f"{batch}-" if cell.workload.batch == AUTO else ""
    kind = hashlib.sha256(host.cpu.encode(errors="surrogateescape")).hexdigest()[:6]
    place = f"n{len(cell.gpus.indices)}-t{cell.gpus.threads}-{kind}"
    return f"{cell.workload.id}-{prefix}{place}-{recipes.workload_hash()[:8]}"


_QUOTA_FIELDS = {"quota_periods", "quota_seconds"}
"""Waits imposed by this process's control groups, which don't concern a launch in other groups."""


class DeviceReadings:
    """Filter that passes on the readings of a launch's devices, with the processes that aren't the launch's."""

    def __init__(self, execution: Execution, record: Callable[[list[Reading]], None], job: Job, cell: Cell) -> None:
        self._execution, self._record, self._devices = execution, record, devices_of(cell)
        self._left_out = {"processes"} | (_QUOTA_FIELDS if job.engine_for(cell.stack).capabilities.has_own_groups else set())
        self._launch_pids: set[int] = set()

    def __call__(self, readings: list[Reading]) -> None:
        of_launch = [reading for reading in readings if reading["device"] in self._devices]
        if of_launch:
            self._record([self._name_foreign(reading) for reading in of_launch])

    def _name_foreign(self, reading: Reading) -> Reading:
        """Return the reading without the launch's own processes, and with the others by name.

        A process of the launch stays its own while it ends and shows no mark any more. A process that can't be seen from here
        (the tool runs in a container) may belong to the launch, so it is left out.
        """
        pids = reading.get("processes", ())
        self._launch_pids |= {pid for pid in pids if self._execution.owns(pid)}
        others = [pid for pid in pids if pid not in self._launch_pids and Path(f"/proc/{pid}").exists()]
        rest = {key: value for key, value in reading.items() if key not in self._left_out}
        return rest | ({"foreign": [readiness.describe(pid) for pid in others]} if others else {})


def devices_of(cell: Cell) -> tuple[str, ...]:
    """Return telemetry's names for the devices of a cell; the CPU feeds them all."""
    return ("cpu", *(gpu.uuid for gpu in cell.gpus.gpus))


def record_failed_build(job: Job, cell: Cell, number: int, failure: BuildFailed) -> LaunchFinished:
    """Record a launch whose image was not built."""
    return record_failure(
        job, cell, number, "build-failed", str(failure), f"torchmatrix build '{cell.stack.name}/*'", own=False
    )


def record_failure(
    job: Job, cell: Cell, number: int, reason: str, message: str, command: str, own: bool = True
) -> LaunchFinished:
    """Record a launch that could not be started at all, as a fact. `own`: the message quotes no build and no cluster."""
    return _not_started(job, Attempt(cell=cell, number=number, batch=0), None, reason, message, command, own)


def _not_started(
    job: Job, attempt: Attempt, ready: Ready | None, reason: str, message: str, command: str, own: bool
) -> LaunchFinished:
    file = _new_file(job, attempt)
    file.event("launch", **_header(job, attempt, ready, file.number), image=None, command=command)
    file.close(reason=reason, message=message, own=own)
    return LaunchFinished(cell=attempt.cell, number=attempt.number, launch=_launch_in(file), seconds=0.0)


def _header(job: Job, attempt: Attempt, ready: Ready | None, number: int) -> dict[str, Any]:
    """Return who, where, what and how: enough to repeat the launch and to compare it. `number`: which try it is."""
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
        "method": _record_of(job.method),
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
    """Return the host as it is set before this launch; as detected where it can't be seen from here."""
    return before_launch(job.host, devices_of(cell)) if job.sensors else job.host


def gpus_of(cell: Cell, host: Host) -> GpuSet:
    """Return the device set of a cell with its GPUs as `host` has them."""
    now = {gpu.uuid: gpu for gpu in host.gpus}
    return replace(cell.gpus, gpus=tuple(now.get(gpu.uuid, gpu) for gpu in cell.gpus.gpus))


_record_of = lru_cache(1024)(asdict)  # the headers of a run share their stacks, methods and GPUs
_host_record = lru_cache(16)(Host.as_record)


def image_record(image: Image) -> dict[str, Any]:
    """Return the facts about an image that a launch records."""
    return {"reference": image.reference, "environment": image.environment, **image.facts}
