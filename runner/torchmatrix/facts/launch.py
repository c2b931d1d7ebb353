"""One launch as its file records it, typed. Its outcome, error and throughput are derived here, never stored."""

import math
import re
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torchmatrix.core.formatting import number_or_nan
from torchmatrix.core.secrets import cleaned
from torchmatrix.facts import operations, parts, plausible, wire
from torchmatrix.facts.host_lines import Exit, Header, OtherNode, Readings, Transport
from torchmatrix.facts.parts import Unseen

UNFINISHED = ("interrupted", "lost")
"""Outcomes that a continued run measures again."""
ONE_MODEL = ("ddp", "fsdp", "tp")
"""The values of `parallel` with which several processes train one model; the others, no-sync (DDP without all-reduce) and
independent (nothing is shared), only explain what that costs."""
ONE_BATCH = ("tp",)
"""The values of `parallel` with which all devices compute one batch together; with the others each has a batch of its own."""
OK = "ok"
UNLIKE = "unlike"
"""The outcome of a launch that measured well, but under other conditions than the others of its cell: it makes no figure."""
_TORCHRUN_WORDS = (
    "error_file:",
    "ChildFailedError",
    "torch/distributed/elastic",
    "torch.distributed.elastic",
    "elastic/errors.html",
)
"""Words that torchrun adds to a failure: they look like errors and name no cause."""

_AROUND = re.compile(
    r"frame #\d+:|Exception raised from |(CUDA|HIP) kernel errors might|For debugging|Device-side assertions? were"
)
"""Lines that C++ code of PyTorch prints after the one that names the cause: its stack, and advice."""
_SUMMARY = re.compile(r"\s*(rank|exitcode)\s*: (-?\d+) ")
"""A line of torchrun's summary, such as "  exitcode  : -6 (pid: 7)"."""
_SHORTEST_WINDOW_SECONDS = 1e-6
"""No step is shorter."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


_ATTENTION_KINDS = ("flash", "memory-efficient", "cuDNN", "fused", "math", "eager")


class Launch(Header, frozen=True, kw_only=True):
    """One launch as read back (reading.py): its header, the workload process's reports, and its end.

    `reported`: the container's report about itself, None if there is none; `told_ranks`: the reported number of ranks;
    `parameters`: of the model; `stamps`: the times of the workload's lines by its clock and the host's, none in facts of
    earlier versions. `windows`: the timed windows, which make the figure; `warm_up_blocks`: never make it; `unseen`: steps
    after the windows on other batches; `requests`: served one by one after the windows; `streams`: pieces of work of other
    named phases.

    `batches`: how many take turns, None if unknown. `changed_settings`: the settings of torch that the model's code changed, in
    words. `loading`: what loading data from disk took. `remarks`: the workload's remarks that a reader must know of the figure.
    `phases`: seconds by name.
    `enqueue_seconds`: host time for a step on an idle device, for each rank that reported it. `collectives`: the probed ones.
    `other_nodes`: the other nodes of a cluster that took part; `transport`: how the nodes communicate. `refused`: why the
    workload's version can't be read. `malformed`: its first invalid line. `exit`: None if the file was cut off. `verified`: the
    file has checksums, and they match. `left_out`: why it makes no figure with the others of its cell (see alike.py), `apart`:
    how the launches that make the figure differ; both empty if there is nothing to say.
    """

    path: Path
    reported: wire.ContainerReport | None
    told_ranks: int | None
    parameters: int | None
    stamps: tuple[parts.Stamp, ...]
    seen_devices: tuple[wire.SeenDevice, ...]
    compile_cache: str | None
    batches: int | None
    windows: tuple[wire.Block, ...]
    warm_up_blocks: tuple[wire.Block, ...]
    unseen: Unseen
    requests: tuple[wire.Requests, ...]
    streams: tuple[wire.Stream, ...]
    roofs: tuple[wire.Roof, ...]
    warm_up: wire.WarmUp | None
    phases: Mapping[str, float]
    memory: tuple[wire.Memory, ...]
    enqueue_seconds: tuple[float, ...]
    precision: tuple[wire.Precision, ...]
    changed_settings: tuple[str, ...]
    remarks: tuple[str, ...]
    reference: wire.Reference | None
    collectives: tuple[wire.AllReduce | wire.Collective, ...]
    telemetry: tuple[Readings, ...]
    other_nodes: tuple[OtherNode, ...]
    transport: Transport | None
    failures: tuple[wire.Failure, ...]
    is_done: bool
    refused: str | None
    malformed: str | None
    exit: Exit | None
    verified: bool
    loading: wire.Loading | None = None
    left_out: str = ""
    apart: str = ""

    @property
    def bus_bytes_per_second(self) -> float:
        """Return the bus bandwidth of the largest all-reduce that was probed; NaN if none was."""
        sizes = [size for probe in self.collectives if probe.operation == wire.ALL_REDUCE for size in probe.sizes]
        return number_or_nan(sizes[-1].bus_bytes_per_second) if sizes else math.nan

    @property
    def worth(self) -> float:
        """Return how many of its unit an item is that the workload counts: 1, but for the operations of microbenchmarks."""
        workload = self.workload
        is_operation = workload.mode == operations.MICRO
        return operations.amount(workload.model, workload.factors, self.devices.count) if is_operation else 1

    @property
    def attention(self) -> str | None:
        """Return what ran as attention, as the workload saw it in a step in eager mode; None if unknown."""
        types = self.precision[0].types if self.precision else None
        seen = types.get("attention") if isinstance(types, dict) else None
        kinds = ", ".join(kind for kind in _ATTENTION_KINDS if isinstance(seen, list) and kind in seen)
        return f"{kinds} (seen in the uncompiled step)" if kinds and self.workload.compile else kinds or None

    @property
    def batch(self) -> int | str:
        """Return the batch per device (tp: of all devices): the one that was used, else the requested one."""
        return self.batch_used or self.workload.batch

    @cached_property
    def outcome(self) -> str:
        """Derive the outcome: ok, oom, timeout, crashed, numerics, unsupported, build-failed, interrupted, lost or unlike."""
        if self.exit is None:
            return "lost"
        if self.exit.reason:
            return self.exit.reason
        if self.exit.oom_killed or any(failure.kind == "oom" for failure in self.failures):
            return "oom"
        if self.failures:
            return self.failures[0].kind
        complete = self.is_done and self.is_measured and not self.refused and not self.malformed and not self.wrong_devices
        credible = not self.has_empty_window and not self.contradiction
        is_ok = complete and self.exit.returncode == 0 and credible
        return (UNLIKE if self.left_out else OK) if is_ok else "crashed"

    @property
    def is_measured(self) -> bool:
        """Check whether it has timed windows, or streams if its mode has no windows."""
        return bool(self.windows or (self.streams and self._asked.windows is None))

    @property
    def is_ok(self) -> bool:
        """Check whether the launch has a figure."""
        return self.outcome == OK

    @property
    def has_failed(self) -> bool:
        """Check whether the launch failed; one that is only left out of its cell's figure did not."""
        return self.outcome not in (OK, UNLIKE)

    @property
    def makes_figures(self) -> bool:
        """Check whether the devices train or run one model together; all other launches explain what that costs."""
        return self.workload.parallel in ONE_MODEL

    @cached_property
    def contradiction(self) -> str | None:
        """Name the first report of the workload that contradicts the request or the host's clock; None if all may be true."""
        clock = plausible.Observed(begin=self.monotonic_seconds, seconds=self.seconds, offset=parts.clock_offset(self.stamps))
        return (
            plausible.contradiction(self.windows, self.told_ranks, self._asked, clock)
            or plausible.contradiction_of_unseen(self.unseen, self.windows, self._asked)
            or plausible.contradiction_of_requests(self.requests, self.windows, self._asked, clock)
            or plausible.contradiction_of_streams(self.streams, self._asked, clock)
            or self._clock.wrong
            or (self.reference.disproof if self.reference else None)
        )

    @cached_property
    def _clock(self) -> parts.ClockJudgement:
        edges = [[block.edges for block in blocks if block.edges] for blocks in (self.windows, self.warm_up_blocks)]
        return parts.judge_clocks(self.stamps, *edges)

    @cached_property
    def _asked(self) -> plausible.Requested:
        ranks, batch = self.devices.count, self.batch
        steps, windows = self.workload.steps, self.workload.windows
        if self.trial_batch is not None:
            steps, windows = 1, windows and 1
        return plausible.Requested(
            ranks=ranks,
            batches=batches_per_step(self.workload.parallel, ranks),
            here=ranks // self.devices.nodes,
            in_step=self.workload.mode == "train" and self.makes_figures,
            batch=batch * self.workload.items_each if isinstance(batch, int) else None,
            steps=steps,
            exactly=not self.workload.seconds or self.trial_batch is not None,
            windows=windows,
            requests=self._requests_asked,
            is_asynchronous=not self.devices.is_cpu,
        )

    @property
    def _requests_asked(self) -> int:
        return (self.workload.requests or 0) if self.workload.mode == "infer" and self.trial_batch is None else 0

    @property
    def unchecked(self) -> str | None:
        """Say what of the work or of the workload's clock could not be checked; None if all was, or no proof was wanted."""
        if self.reference is None:
            return None
        if self.reference.error:
            return f"eager fp32 gave no reference: {self.reference.error}"
        if self.reference.proof == "fingerprint" and not (self.exit and self.exit.losses_compared):
            return "its losses were not compared with those of the launch that was proven in full"
        unknown = self.reference.unwatched or self._clock.unknown
        return unknown and f"not known: {unknown}"

    @cached_property
    def devices_of_other_nodes(self) -> tuple[str, ...]:
        """Return the devices' names in readings, as device_on gives them or, for facts of 0.1, without the node."""
        recorded = (
            {reading["device"] for sample in self.telemetry for reading in sample.readings} if self.other_nodes else set()
        )
        names = [(node.number, [str(gpu.uuid) for gpu in node.gpus]) for node in self.other_nodes]
        return tuple(
            on if (on := f"{name}@{number}") in recorded or name == "cpu" else name
            for number, gpus in names
            for name in gpus or ["cpu"]
        )

    @cached_property
    def ambiguous_devices(self) -> frozenset[str]:
        """Return the names that several GPUs share, as 0.1 recorded UUIDs of AMD's: a reading may be that of another GPU."""
        names = Counter(str(gpu.get("uuid")) for gpu in self.host.get("gpus") or ())
        names.update(self.devices_of_other_nodes)
        return frozenset(name for name, times in names.items() if times > 1)

    @property
    def wrong_devices(self) -> str | None:
        """Name the NVIDIA GPU that the workload used although it isn't the launch's, or that several ranks used; else None.

        The GPUs that a container engine gives are checked, not trusted: some ignore requests for GPUs. Where torch reports no
        UUID, this can't be known.
        """
        if self.devices.vendor != "nvidia":
            return None
        others = (gpu.uuid for node in self.other_nodes for gpu in node.gpus if gpu.uuid)
        given = {bare_uuid(uuid) for uuid in (*self.devices.uuids, *others)}
        used = [uuid for device in self.seen_devices if device.uuid and _UUID.fullmatch(uuid := bare_uuid(device.uuid))]
        for uuid in used:
            if uuid not in given:
                return f"the workload used GPU-{uuid}, which is none of this launch's GPUs"
            if used.count(uuid) > 1:
                return f"several ranks used GPU-{uuid}"
        return None

    @property
    def has_empty_window(self) -> bool:
        """Check whether a timed window took no time on some rank: then its clock is broken and there is no figure."""
        return any(min(window.seconds) < _SHORTEST_WINDOW_SECONDS for window in self.windows)

    @property
    def seconds(self) -> float:
        """Return the time from header to exit on the monotonic clock; NaN if the file was cut off."""
        end = self.exit.monotonic_seconds if self.exit else None
        return math.nan if self.monotonic_seconds is None or end is None else float(end - self.monotonic_seconds)

    @property
    def error(self) -> str | None:
        """Return the first line that says what went wrong, without credentials; None for an ok launch."""
        if not self.has_failed:
            return f"left out: {self.left_out}" if self.left_out else None
        if self.exit is None:
            return "the tool ended before the launch did"
        return cleaned(
            self.refused
            or self.exit.message
            or next((failure.message.splitlines()[0] for failure in self.failures if failure.message), None)
            or self.malformed
            or self.wrong_devices
            or ("a timed window took no time: the workload's clock is broken" if self.has_empty_window else None)
            or (self.contradiction if self.is_done and self.is_measured else None)
            or _last_error(self.exit.tail)
            or _first_failed_rank(self.exit.tail)
            or in_words(self.exit.returncode, next((line for line in reversed(self.exit.tail) if line.strip()), ""))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A facts file that can't be read, and why."""

    path: Path
    reason: str


def batches_per_step(parallel: str, devices: int) -> int:
    """Return how many batches so many devices compute in a step."""
    return 1 if parallel in ONE_BATCH else devices


def measured_seconds(launch: Launch) -> float:
    """Return the total length of all timed windows, each as long as its slowest rank took."""
    return sum(window.slowest for window in launch.windows)


def measured_items(launch: Launch) -> float:
    """Return the items of all ranks in all timed windows; of a microbenchmark the TFLOP or GB of its operations."""
    return sum(window.items for window in launch.windows) * launch.worth


def rates_of_ranks(launch: Launch) -> tuple[float, ...]:
    """Return the items per second of each rank of an ok launch whose ranks work independently, each in the time that it took
    itself; empty where they wait for each other, as in training, and for a single rank.
    """
    ranks = launch.devices.count
    alone = launch.workload.mode in ("infer", operations.MICRO) and launch.workload.model not in operations.TOGETHER
    if ranks < 2 or not launch.is_ok or not (alone or launch.workload.parallel == "independent"):
        return ()
    seconds = [math.fsum(window.seconds[rank] for window in launch.windows) for rank in range(ranks)]
    return tuple(measured_items(launch) / ranks / each if each > 0 else math.nan for each in seconds)


def throughput(launch: Launch) -> float:
    """Return the items per second of an ok launch over all its timed windows; NaN for any other outcome."""
    if not launch.is_ok:
        return math.nan
    seconds = measured_seconds(launch)
    return measured_items(launch) / seconds if seconds > 0 else math.nan


def last_tries(launches: Iterable[Launch]) -> list[Launch]:
    """Return for each launch the last try that ended by itself, else the last try: tries that were repeated don't count."""
    last: dict[tuple[Path, int], Launch] = {}
    for launch in launches:
        key = (launch.path.parent, launch.round)
        if key not in last or _rank(launch) > _rank(last[key]):
            last[key] = launch
    return list(last.values())


def _rank(launch: Launch) -> tuple[bool, bool, int]:
    """Rank a try; one that never began, of which only the end of a job is known, replaces none that did."""
    return launch.outcome not in UNFINISHED, launch.start is not None, launch.number


def bare_uuid(uuid: str) -> str:
    """Return a UUID without NVML's prefix, which CUDA leaves out."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _last_error(tail: Sequence[str]) -> str | None:
    """Return the last line that looks like an error, but first a time-out of NCCL, which ends the process without an exception.

    An exception of C++ code that ends the process is followed by advice and its stack, in whose names errors occur; torchrun
    sums up after every failed process: such lines name no cause.
    """
    errors = [
        line.strip().removeprefix("what():").strip() for line in tail if "error" in line.lower() or "exception" in line.lower()
    ]
    late = [line.strip() for line in tail if "Watchdog caught collective operation timeout" in line]
    causes = [line for line in errors if not _AROUND.match(line) and not any(word in line for word in _TORCHRUN_WORDS)]
    return next((lines[-1] for lines in (late, causes) if lines), None)


def _first_failed_rank(tail: Sequence[str]) -> str | None:
    """Return how the rank that failed first ended, by torchrun's summary, which ends with that rank's paragraph."""
    fields = {match[1]: match[2] for line in tail if (match := _SUMMARY.match(line))}
    return f"rank {fields['rank']}: {in_words(int(fields['exitcode']))}" if len(fields) == 2 else None


def in_words(returncode: int | None, last_line: str = "") -> str:
    """Return an exit code in words: the signal's name if it stands for one (as a process or a container reports it).

    `last_line`: of the log, which may say why.
    """
    number = -returncode if returncode and returncode < 0 else (returncode or 0) - 128
    if number in signal.valid_signals():
        return f"ended by {signal.Signals(number).name}"
    if returncode == 0:
        return "it ended before it was done, with exit code 0"
    return f"exit code {returncode}, last line: {last_line.strip()}" if last_line else f"exit code {returncode} and no message"
