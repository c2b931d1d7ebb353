"""Lanes that run at once: the test beforehand, turns, trouble. On stand-ins for GPUs, whose launches wait for each other."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from torchmatrix.core.errors import BuildFailed, EngineLost, LaunchFailed
from torchmatrix.engines.engine import Capabilities, Exit, Image, LaunchSpec, Line
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import Method
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix.running import launch_order, parallel
from torchmatrix.running.launch_cell import Job
from torchmatrix.running.progress import LanesDecided, LaunchFinished, ProgressEvent

MATRIX = """
[gpus]
counts = []
lists = [[0], [1]]
[[stack]]
name = "own"
python = "/usr/bin/python3"
accelerator = "cuda"
[[workload]]
model = "resnet18"
batch = 4
steps = 1
windows = 1
"""
MORE = '[[workload]]\nmodel = "resnet50"\nbatch = 4\nsteps = 1\nwindows = 1\n'
SECONDS = 0.001
"""Of a timed window; two clocks may differ by more."""


@dataclass
class Machine:
    """GPUs that slow each other down. `slower`: by what factor a window is longer beside another; `fails`: launches that do.

    On threads, which are those of lanes, a launch waits until `partners` of them are there, as long as there are so many lanes:
    those that run at once surely overlap.
    """

    partners: int = 2
    slower: Callable[[int], float] = lambda count: 1.0
    fails: Callable[[str, int], str] = lambda gpu, count: ""
    counts: dict[str, int] = field(default_factory=dict)
    waiting: list["Box"] = field(default_factory=list)
    seen: list[tuple[str, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, image: Image, spec: LaunchSpec) -> "Box":
        if self.fails(spec.gpus.label, 0) == "unstarted":
            raise LaunchFailed("there is no room")
        return Box(self, spec)

    name = "stand-in"
    capabilities = Capabilities(runs_images=False, isolates=False, build_seconds=0.0)

    def meet(self, box: "Box") -> None:
        if threading.current_thread().name != "lane":
            return
        with self.lock:
            self.waiting.append(box)
            if len(self.waiting) == self.partners:
                for launch in self.waiting:
                    launch.met.set()
                self.waiting.clear()
        while (
            not box.met.wait(timeout=0.001) and sum(thread.name == "lane" for thread in threading.enumerate()) >= self.partners
        ):
            pass
        with self.lock:
            if box in self.waiting:  # the others have ended
                self.waiting.remove(box)


class Box:
    """One launch: writes the workload's lines, with times that are told, not spent."""

    command = "stand-in"

    def __init__(self, machine: Machine, spec: LaunchSpec) -> None:
        self.machine, self.spec, self.stopped, self.met = machine, spec, threading.Event(), threading.Event()
        self.started: Mapping[str, Any] = {}
        self.gpu, self.code = spec.gpus.label, 0

    def __enter__(self) -> "Box":
        with self.machine.lock:
            self.machine.counts[self.gpu] = self.machine.counts.get(self.gpu, 0) + 1
            self.machine.seen.append((self.gpu, self.machine.counts[self.gpu]))
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def lines(self) -> Iterator[Line]:
        how = self.machine.fails(self.gpu, self.machine.counts[self.gpu])
        if how == "lost":
            raise EngineLost("the engine is gone", hint="start it")
        if how == "hang":
            assert self.stopped.wait(timeout=PATIENCE_SECONDS)
            self.code = -15
            return
        yield self.line("hello", protocol=1, arguments={}, compile_cache="warm")
        if how == "crash":
            self.code = 1
            yield self.line("failure", kind="crashed", rank=0, message="RuntimeError: on purpose")
            return
        self.machine.meet(self)
        is_slower = threading.current_thread().name == "lane" and self.machine.partners > 1
        took = SECONDS * (self.machine.slower(self.machine.counts[self.gpu]) if is_slower else 1.0)
        begin = time.monotonic()
        yield self.line(
            "sample", phase="measure", window=0, steps=1, items=4, start_monotonic_seconds=begin,
            stop_monotonic_seconds=begin + took, seconds=[took], enqueue_seconds=[took], step_seconds=[[took]], loss=[1.0],
            losses=[[1.0]],
        )  # fmt: skip
        yield self.line("done")

    def line(self, event: str, **fields: Any) -> Line:
        times = {"unix_seconds": time.time(), "monotonic_seconds": time.monotonic()}
        return "out", b"@matrix " + json.dumps({"event": event, **times, **fields}).encode() + b"\n"

    def stop(self) -> None:
        self.stopped.set()

    def wait(self) -> Exit:
        return Exit(returncode=self.code, oom_killed=False)

    def owns(self, pid: int) -> bool:
        return False


@dataclass
class Run:
    """A run of MATRIX on a stand-in machine. `rounds` per cell."""

    folder: RunFolder
    cells: Sequence[Cell]
    host: Host
    rounds: int = 2

    def news(self, machine: Machine, built: Mapping[str, Image | BuildFailed] | None = None) -> Iterator[ProgressEvent]:
        """Measure what is left."""
        engine: Any = machine
        job = Job(
            folder=self.folder, host=self.host, owner="o", timeout_seconds=PATIENCE_SECONDS, seed=0, method=Method(),
            engine_for=lambda stack: engine, recipe_for=lambda stack: None,  # type: ignore[arg-type,return-value]
        )  # fmt: skip
        left = [
            (cell, number)
            for cell, number in launch_order.interleave(self.cells, self.rounds, 0)
            if not self.folder.is_done(cell.id, number)
        ]
        schedules = parallel.Schedules(
            cells=self.cells,
            of=lambda cells: ((cell, number) for cell, number in left if cell in cells),
            left=frozenset(cell.id for cell, _ in left),
            watch=lambda lane: nullcontext(()),
        )
        images = built or {"own": Image(reference="r", environment="e")}
        return parallel.measure(job, images, launch_order.allocate(self.cells), schedules)

    def launches(self) -> list[Launch]:
        """Return the launches of the matrix, by their begin."""
        return sorted(self.folder.launches(), key=begin)

    @property
    def outcomes(self) -> dict[str, list[str]]:
        """Return the outcomes of each GPU, in the order of the paths."""
        every = self.folder.launches()
        labels = sorted({launch.devices.label for launch in every})
        return {label: [launch.outcome for launch in every if launch.devices.label == label] for label in labels}


@pytest.fixture
def make_run(tmp_path: Path, nvidia_host: Host) -> Callable[..., Run]:
    def make(text: str = MATRIX, rounds: int = 2) -> Run:
        cells = make_plan(matrix_file.parse(text), nvidia_host, Prerequisites(containers=False)).cells
        return Run(folder=Results(tmp_path / "results").new_run("h"), cells=cells, host=nvidia_host, rounds=rounds)

    return make


def begin(launch: Launch) -> float:
    assert launch.monotonic_seconds is not None
    return launch.monotonic_seconds


def decision(news: Sequence[ProgressEvent]) -> LanesDecided:
    (decided,) = (item for item in news if isinstance(item, LanesDecided))
    return decided


def test_launches_on_two_gpus_run_at_once_after_a_test_whose_launches_never_count(make_run: Callable[..., Run]) -> None:
    run, machine = make_run(), Machine()
    news = list(run.news(machine))
    assert decision(news).at_once and "gpu0 and gpu1 run at once: none is disturbed by more than 0.5 %" in decision(news).why
    finished = [(item.cell.gpus.label, item.number) for item in news if isinstance(item, LaunchFinished)]
    assert sorted(finished) == [("gpu0", 1), ("gpu0", 2), ("gpu1", 1), ("gpu1", 2)]
    launches = run.launches()
    assert [launch.outcome for launch in launches] == ["ok"] * 4
    overlaps = [begin(after) < begin(before) + before.seconds for before, after in pairwise(launches)]
    assert overlaps[0] and overlaps[2], "the launches of a round overlap by the host's clock"
    beside = {launch.devices.label: launch.exit.beside for launch in launches if launch.exit}
    ids = {cell.gpus.label: cell.id for cell in run.cells}
    assert beside == {"gpu0": (ids["gpu1"],), "gpu1": (ids["gpu0"],)}
    assert {launch.method.facts["parallel"] for launch in launches} == {True}
    test = run.folder.read_record().parallel
    assert test is not None and test.shown
    lanes = [(lane.devices, lane.ratio, lane.low, lane.high, lane.alone, lane.beside) for lane in test.lanes]
    rates = pytest.approx((4000.0,) * 4)
    assert lanes == [
        (gpu, pytest.approx(1.0), pytest.approx(1.0), pytest.approx(1.0), rates, rates) for gpu in ("gpu0", "gpu1")
    ]


def test_a_pair_that_disturbs_runs_one_after_the_other_and_says_so(make_run: Callable[..., Run]) -> None:
    run, machine = make_run(), Machine(slower=lambda count: 1.02)
    news = list(run.news(machine))
    assert not decision(news).at_once
    assert decision(news).why.startswith(
        "gpu0 and gpu1 run one after the other: they disturb each other by more than 0.5 %: "
        "gpu0 beside the others / alone 0.9804 (0.9804 to 0.9804, n = 4)"
    )
    launches = run.launches()
    assert [launch.outcome for launch in launches] == ["ok"] * 4
    assert all(begin(after) >= begin(before) + before.seconds for before, after in pairwise(launches))
    assert all("parallel" not in launch.method.facts for launch in launches)
    assert all(launch.exit and launch.exit.beside == () for launch in launches)


def test_what_twelve_rounds_can_not_show_runs_one_after_the_other(make_run: Callable[..., Run]) -> None:
    run, machine = make_run(), Machine(slower=lambda count: 1.03 if count % 3 == 0 else 0.985)
    assert "not shown within 12 rounds" in decision(list(run.news(machine))).why
    test = run.folder.read_record().parallel
    assert test and not test.shown and [len(lane.alone) for lane in test.lanes] == [12, 12]


def test_a_launch_of_the_test_that_fails_ends_it(make_run: Callable[..., Run]) -> None:
    run, machine = make_run(), Machine(partners=1, fails=lambda gpu, count: "crash" if (gpu, count) == ("gpu1", 2) else "")
    why = decision(list(run.news(machine))).why
    assert "run one after the other: a launch of the test failed: own/" in why and "RuntimeError: on purpose" in why
    assert run.outcomes == {"gpu0": ["ok", "ok"], "gpu1": ["ok", "ok"]}


def test_launches_that_the_engine_can_not_start_have_crashed_say_why_and_the_others_are_measured(
    make_run: Callable[..., Run],
) -> None:
    run = make_run()
    why = decision(list(run.news(Machine(partners=1, fails=lambda gpu, count: "unstarted" if gpu == "gpu1" else "")))).why
    assert "a launch of the test failed: own/" in why and "there is no room" in why
    assert run.outcomes == {"gpu0": ["ok", "ok"], "gpu1": ["crashed", "crashed"]}
    failed = [launch for launch in run.launches() if launch.outcome == "crashed"]
    assert {launch.error for launch in failed} == {"there is no room"} and not any(launch.windows for launch in failed)


def test_a_continued_run_does_not_test_again(make_run: Callable[..., Run]) -> None:
    run, machine = make_run(), Machine()
    news = run.news(machine)
    for item in news:
        if isinstance(item, LanesDecided):
            break
    news.close()  # type: ignore[attr-defined]
    before = len(machine.seen)
    assert decision(list(run.news(machine))).at_once and len(machine.seen) == before + 4
    assert run.outcomes == {"gpu0": ["ok", "ok"], "gpu1": ["ok", "ok"]}


def test_an_interruption_ends_all_lanes_and_keeps_what_is_finished(make_run: Callable[..., Run]) -> None:
    """The test is 10 launches of each GPU; then gpu0 finishes one and hangs in its second, gpu1 hangs in its first."""
    hanging = Machine(partners=1, fails=lambda gpu, count: "hang" if (gpu, count) in (("gpu0", 12), ("gpu1", 11)) else "")
    run = make_run(rounds=3)
    events: list[ProgressEvent] = []
    news = run.news(hanging)
    for item in news:
        events.append(item)
        if {("gpu0", 12), ("gpu1", 11)} <= set(hanging.seen) and any(isinstance(event, LaunchFinished) for event in events):
            break
    news.close()  # type: ignore[attr-defined]
    assert run.outcomes == {"gpu0": ["ok", "interrupted"], "gpu1": ["interrupted"]}
    list(run.news(Machine(partners=1)))
    assert run.outcomes == {"gpu0": ["ok", "interrupted", "ok", "ok"], "gpu1": ["interrupted", "ok", "ok", "ok"]}


def test_what_ends_one_lane_ends_the_others_and_is_raised(make_run: Callable[..., Run]) -> None:
    def fails(gpu: str, count: int) -> str:
        return "" if count < 11 else "lost" if gpu == "gpu0" else "hang"

    run = make_run()
    with pytest.raises(EngineLost, match="the engine is gone"):
        list(run.news(Machine(partners=1, fails=fails)))
    assert run.outcomes["gpu0"] == ["interrupted"] and run.outcomes.get("gpu1", ["interrupted"]) == ["interrupted"]


def test_a_launch_that_compiles_from_an_empty_cache_runs_alone(make_run: Callable[..., Run]) -> None:
    run = make_run(f"{MATRIX}compile = true\n", rounds=3)
    list(run.news(Machine(partners=1)))
    beside = {
        number: [launch.exit.beside for launch in run.launches() if launch.round == number and launch.exit]
        for number in (1, 2, 3)
    }
    assert beside[1] == [(), ()] and len(beside[2]) == len(beside[3]) == 2


def test_a_failed_build_ends_nothing_and_is_not_tested(make_run: Callable[..., Run]) -> None:
    run = make_run(rounds=1)
    news = list(run.news(Machine(), {"own": BuildFailed("no wheel")}))
    assert decision(news) == LanesDecided(at_once=False, why="nothing is left that could run at once")
    assert run.outcomes == {"gpu0": ["build-failed"], "gpu1": ["build-failed"]}


def test_one_lane_is_told_and_measured(make_run: Callable[..., Run]) -> None:
    run = make_run(MATRIX.replace("[[0], [1]]", "[[0], [0, 1]]"), rounds=1)
    news = list(run.news(Machine()))
    assert decision(news).why == "nothing can run at once: no two cells on gpu0+1 have GPUs of their own"
    assert [launch.outcome for launch in run.launches()] == ["ok", "crashed"], "the stand-in tells of one rank"


def test_cells_of_one_lane_stay_interleaved(make_run: Callable[..., Run]) -> None:
    run = make_run(MATRIX + MORE, rounds=3)
    list(run.news(Machine()))
    launches = [launch for launch in run.launches() if launch.devices.label == "gpu1"]
    expected = [(cell.id, number) for cell, number in launch_order.interleave(run.cells, 3, 0) if cell.gpus.label == "gpu1"]
    assert [(launch.cell, launch.round) for launch in launches] == expected
