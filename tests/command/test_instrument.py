"""The instrument on a workload of exactly known times, through protocol, engine, store and analysis: nothing may be off."""

import json
import math
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import FAKE_PYTHON, PATIENCE_SECONDS, Command
from torchmatrix.analysis import run_summary, scaling, speedups
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.core.errors import BuildFailed, EngineUnusable, LaunchFailed
from torchmatrix.engines import recipes
from torchmatrix.engines.choose import choose
from torchmatrix.facts import lines
from torchmatrix.facts.launch import Launch, last_tries
from torchmatrix.facts.store import Results
from torchmatrix.machine.host import Host
from torchmatrix.machine.telemetry import Reading
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import METHODS, Method
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix.running import launch_cell, rounds, run, session
from torchmatrix.running.launch_order import in_rounds
from torchmatrix.running.progress import Heated, LaunchFinished, LaunchStarted
from torchmatrix.running.readiness import Patience


def launches(folder: Path) -> list[Launch]:
    return [launch for run in Results(folder / "results").runs() for launch in run.launches()]


class SteadyDraw:
    """A CPU that draws exactly `watts` all the time and says so."""

    def __init__(self, watts: float, **more: Any) -> None:
        self._watts, self._more = watts, more

    def read(self) -> list[Reading]:
        return [{"device": "cpu", "energy_joules": self._watts * time.monotonic(), "power_watts": self._watts, **self._more}]

    def close(self) -> None:
        pass


def watched_job(fake_matrix: Path, host: Host, sensor: SteadyDraw) -> tuple[Cell, launch_cell.Job]:
    """Return the first cell of the stand-in's matrix, and a run whose machine is watched by `sensor`."""
    cell = make_plan(matrix_file.load(fake_matrix), host, Prerequisites(containers=False)).cells[0]
    results = Results(fake_matrix.parent / "results")
    local = choose("local", results.owner).local
    return cell, launch_cell.Job(
        folder=results.new_run(host.name), host=host, owner=results.owner, timeout_seconds=PATIENCE_SECONDS, seed=0,
        method=Method(), engine_for=lambda stack: local, recipe_for=lambda stack: recipes.recipes(stack)[0], sensors=[sensor],
    )  # fmt: skip


def read_at_its_stamps(file: Path, watts: float, speed: float) -> None:
    """Make the clock of a launch's file faster, and each reading of the energy counter what it was when its line was stamped.

    A sensor is read a moment before that, a long one on a busy machine.
    """
    events = lines.read(file).events
    for line in events:
        line |= {key: speed * value for key, value in line.items() if key.endswith("monotonic_seconds")}
        if line["event"] == "sample":
            line["seconds"] = [speed * value for value in line["seconds"]]
            line["step_seconds"] = [[speed * value for value in rank] for rank in line["step_seconds"]]
        for reading in line.get("readings", ()):
            assert reading["energy_joules"] > 0
            reading["energy_joules"] = watts * line["monotonic_seconds"]
    file.write_bytes(lines.packed(events))


def test_energy_per_item_is_exact(fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two windows of 10 s at 70 W and 2 x 5 steps of 4 images, on a clock of ten times the speed."""
    monkeypatch.setenv("FAKE_SECONDS", "1")
    cell, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    list(rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 1)])))
    (file,) = job.folder.path.rglob("round*.jsonl")
    read_at_its_stamps(file, 70.0, 10.0)
    (launch,) = job.folder.launches()
    row = run_summary.launch_rows([launch])[0]
    assert launch.outcome == "ok" and row.value("energy_problem") is None
    assert row.energy_per_item == pytest.approx(70.0 * 20.0 / 40, rel=1e-6)
    assert row.power_watts == pytest.approx(70.0)


def test_a_throttled_launch_is_repeated_once_and_both_files_are_kept(
    fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "1.2")
    cell, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0, reasons=["hw_thermal_slowdown", "sw_power_cap"]))
    events = list(rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 1), (cell, 2)])))
    notes = [item.note for item in events if isinstance(item, LaunchFinished)]
    assert notes == ["throttled; once more at the end of the round", "throttled; kept and marked"] * 2
    assert len(list(job.folder.path.rglob("round1-*.jsonl"))) == 2
    (row,) = run_summary.cells_table(CellIndex(run_summary.launch_rows(last_tries(job.folder.launches()))).every)
    assert (row.n, row.throttled) == (2, 2)


@pytest.mark.parametrize("disturbed", [0, 1, 2, 3, 5])
def test_a_disturbed_launch_is_repeated_once_at_the_end_of_its_round(
    fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, disturbed: int
) -> None:
    (left := tmp_path / "left").write_text(str(disturbed))
    monkeypatch.setenv("FAKE_NEIGHBOUR", str(left))
    first, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    job = replace(job, patience=Patience(seconds=0.001))
    cells = make_plan(matrix_file.load(fake_matrix), cpu_host, Prerequisites(containers=False)).cells[:2]
    schedule = [(cell, number) for number in (1, 2) for cell in cells]
    events = list(rounds.execute(job, [first.stack], cells, in_rounds(schedule)))
    ends = [(item.cell.id, item.number, item.note) for item in events if isinstance(item, LaunchFinished)]
    again = [note for _, _, note in ends if "once more at the end of the round" in note]
    kept = [note for _, _, note in ends if "kept and marked" in note]
    # Disturbed in the order of launches: both of round 1, both again, then the first of round 2.
    assert (len(ends), len(again), len(kept)) == {0: (4, 0, 0), 1: (5, 1, 0), 2: (6, 2, 0), 3: (6, 2, 1), 5: (7, 3, 2)}[
        disturbed
    ]
    assert all("its threads waited 25 % of the time for CPUs that others used" in note for note in (*again, *kept))
    assert [number for _, number, _ in ends] == sorted(number for _, number, _ in ends), "within its round"
    rows = run_summary.cells_table(CellIndex(run_summary.launch_rows(last_tries(job.folder.launches()))).every)
    assert [(row.n, row.disturbed) for row in rows] == [(2, int(disturbed >= 3)), (2, int(disturbed >= 4))]


def test_without_patience_a_disturbed_launch_is_marked_and_not_repeated(
    fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (left := tmp_path / "left").write_text("1")
    monkeypatch.setenv("FAKE_NEIGHBOUR", str(left))
    cell, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    notes = [
        event.note
        for event in rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 1)]))
        if isinstance(event, LaunchFinished)
    ]
    assert notes == ["disturbed: its threads waited 25 % of the time for CPUs that others used (0.33 CPUs); kept and marked"]


def test_a_device_that_could_not_be_read_hides_no_disturbance(
    fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (left := tmp_path / "left").write_text("1")
    monkeypatch.setenv("FAKE_NEIGHBOUR", str(left))
    cell, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0, error="no answer"))
    ends = [
        event
        for event in rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 1)]))
        if isinstance(event, LaunchFinished)
    ]
    assert [end.note.startswith("no answer; disturbed: its threads waited 25 %") for end in ends] == [True]


def test_what_was_to_be_repeated_is_repeated_after_an_interruption(
    fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A disturbed launch that was not made again is left to do, and one that was throttled is, whatever the patience."""
    (left := tmp_path / "left").write_text("1")
    monkeypatch.setenv("FAKE_NEIGHBOUR", str(left))
    s = session.prepare(fake_matrix, tmp_path / "results", "local", [], [])
    cell, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    cell = next(planned for planned in s.plan.cells if planned.id == cell.id)
    patient = replace(s, matrix=replace(s.matrix, quiet_wait_minutes=1.0))
    first = [(cell, 1), (cell, 2)]
    assert [launch for launch in run.todo(patient, job.folder) if launch[0] == cell] == first
    list(rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 1)])))
    assert [launch for launch in run.todo(patient, job.folder) if launch[0] == cell] == first
    assert [launch for launch in run.todo(s, job.folder) if launch[0] == cell] == [(cell, 2)], "without patience"
    list(rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 1)])))
    assert [launch for launch in run.todo(patient, job.folder) if launch[0] == cell] == [(cell, 2)]
    job = replace(job, sensors=[SteadyDraw(70.0, reasons=["hw_thermal_slowdown"])])
    monkeypatch.setenv("FAKE_SECONDS", "1.2")
    for event in rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 2)])):
        if isinstance(event, LaunchFinished):
            break  # as Ctrl-C does, before it is made again
    assert [launch for launch in run.todo(s, job.folder) if launch[0] == cell] == [(cell, 2)]


def test_a_cell_whose_newest_launch_failed_has_no_further_ones(
    fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as that of a GPU that was lost, or of a stack that can't be built any more when the run is continued."""
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8").replace("launches = 2", 'until = "1%"'), encoding="utf-8")
    s = session.prepare(fake_matrix, tmp_path / "results", "local", [], [])
    _, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    one, two = s.plan.cells
    first = [(cell, number) for number in range(1, 6) for cell in (one, two)]
    (paces := tmp_path / "paces.json").write_text(json.dumps([[1.0, 1.5] * 20, []]), encoding="utf-8")
    monkeypatch.setenv("FAKE_PACES", str(paces))
    list(rounds.execute(job, [one.stack], [one, two], in_rounds(first)))
    assert {(cell.id, number) for cell, number in run.further(s, job.folder, s.plan.cells)} == {(one.id, 6), (two.id, 6)}
    launch_cell.record_failure(job, one, 6, "crashed", "gpu0 is lost", "hint")
    assert run.further(s, job.folder, s.plan.cells) == [(two, 6)], "the round is finished"
    list(rounds.execute(job, [two.stack], [one, two], in_rounds([(two, 6)])))
    assert run.further(s, job.folder, s.plan.cells) == [(two, 7)]
    assert run.done(job.folder, []) == 12 and run.done(job.folder, [(two, 6)]) == 11


def test_a_round_of_which_nothing_comes_is_the_last_one(fake_matrix: Path, cpu_host: Host, tmp_path: Path) -> None:
    """Whatever the reason: a build that fails once the run is continued was recorded in an earlier round."""
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8").replace("launches = 2", 'until = "1%"'), encoding="utf-8")
    s = session.prepare(fake_matrix, tmp_path / "results", "local", [], [])
    _, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    for number in range(1, 6):
        for cell in s.plan.cells:
            list(rounds.execute(job, [cell.stack], [cell], [[(cell, number)]]))
    broken = {cell.stack.name: BuildFailed("no such interpreter") for cell in s.plan.cells}
    events = list(rounds.measure(job, broken, list(s.plan.cells), run._scheduled(s, job, [], lambda: 0.0, [])))
    ends = [event.launch.outcome for event in events if isinstance(event, LaunchFinished)]
    assert ends == ["build-failed"] * len(s.plan.cells)


def test_a_launch_that_could_not_be_started_takes_no_round_from_its_cell(
    fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failures = launch_cell._start, iter([LaunchFailed("the engine hung")])

    def fails_once(*asked: Any) -> Any:
        if failure := next(failures, None):
            raise failure
        return start(*asked)

    monkeypatch.setattr(launch_cell, "_start", fails_once)
    _, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    cell = session.prepare(fake_matrix, fake_matrix.parent / "results", "local", ["*cpu0"], []).plan.cells[0]
    events = list(rounds.execute(job, [cell.stack], [cell], [[(cell, 1)], [(cell, 2)]]))
    assert [event.launch.outcome for event in events if isinstance(event, LaunchFinished)] == ["crashed", "ok"]


PACES = {
    "open": ([1.0, 1.01, 0.99, 1.0, 1.0, 1.0, 1.0, 1.0], [0.975, 0.985, 0.962, 0.974, 0.975, 0.976, 0.975, 0.975]),
    "clear": ([1.0, 1.01, 0.99], [0.5, 0.505, 0.495]),
    "hopeless": ([1.0, 1.3, 0.8], [1.05, 0.7, 1.3]),
}
"""How many times as long the launches of a cell and of its compiled twin take."""


@pytest.mark.parametrize(("kind", "most"), [("open", 8), ("clear", 3), ("hopeless", 3)])
def test_until_decided_launches_again_what_is_open_and_can_be_decided(
    fake_matrix: Path, torchmatrix: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, most: int
) -> None:
    (paces := tmp_path / "paces.json").write_text(json.dumps(PACES[kind]))
    monkeypatch.setenv("FAKE_PACES", str(paces))
    text = (
        fake_matrix.read_text(encoding="utf-8")
        .replace("counts = [1, 2]", "counts = [1]")
        .replace("steps = 5", "steps = 50\ncompile = [false, true]")
    )
    fake_matrix.write_text(text.replace("launches = 2", 'until = "decided"'), encoding="utf-8")
    done = torchmatrix("run")
    assert done.returncode == 0 and "6 launches or more, until decided" in done.stderr
    numbers = Counter((launch.cell, launch.method.further) for launch in launches(fake_matrix.parent))
    assert len(set(numbers.values())) == 1 and {further for _, further in numbers} == {5}
    each = set(numbers.values()).pop()
    assert (3 < each <= most) if kind == "open" else each == most
    assert done.stderr.count("further ") == each - 3, "each round is told"
    (run_folder,) = Results(fake_matrix.parent / "results").runs()
    cells = CellIndex(run_summary.launch_rows(run_folder.launches()))
    (pair,) = speedups.ratios_of(cells).settings
    assert pair.verdict == {"open": "FASTER", "clear": "FASTER", "hopeless": "AMBIGUOUS"}[kind] and pair.n == each
    assert run_folder.read_record().complete and "0 launches to do" not in torchmatrix("run").stderr


def test_a_budget_ends_further_rounds_and_says_how_many_cells_are_left(
    fake_matrix: Path, torchmatrix: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (paces := tmp_path / "paces.json").write_text(json.dumps(PACES["open"]))
    monkeypatch.setenv("FAKE_PACES", str(paces))
    text = fake_matrix.read_text(encoding="utf-8").replace("counts = [1, 2]", "counts = [1]")
    fake_matrix.write_text(text.replace("steps = 5", "steps = 50\ncompile = [false, true]"), encoding="utf-8")
    done = torchmatrix("run", "--until", "decided", "--budget", "0")
    assert done.returncode == 0 and "spent: 2 cells would have been launched again" in done.stderr
    assert len(launches(fake_matrix.parent)) == 6 and "further " not in done.stderr.partition("[6/6]")[2]


def test_sustained_heats_all_devices_before_the_first_launch_and_counts_that_nowhere(fake_matrix: Path, cpu_host: Host) -> None:
    cell, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    job = replace(job, method=replace(METHODS["sustained"], warm_seconds=0.2))
    events = list(rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 1), (cell, 2)])))
    (place,) = (number for number, item in enumerate(events) if isinstance(item, Heated))
    assert not any(isinstance(item, LaunchStarted) for item in events[:place])
    (probe,) = job.folder.path.rglob("probe*.jsonl")
    header, *_ = lines.read(probe).events
    assert header["probe"] == "heating" and header["workload"]["warmup_seconds"] == 0.2 and "--proof none" in header["command"]
    assert [launch.round for launch in job.folder.launches()] == [1, 2]
    assert {launch.method.name for launch in job.folder.launches()} == {"sustained"}


def test_devices_that_cannot_be_heated_are_not_measured(
    fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BEHAVIOUR", "oom")
    cell, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    job = replace(job, method=METHODS["sustained"])
    with pytest.raises(EngineUnusable, match="could not be heated: oom") as error:
        list(rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 1)])))
    assert "--method steady" in error.value.hint and not job.folder.launches()


def test_every_launch_must_have_the_losses_of_the_first_one_that_was_proven(
    fake_matrix: Path, cpu_host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, job = watched_job(fake_matrix, cpu_host, SteadyDraw(70.0))
    losses = iter(("1.0", "0.9", "1.0"))
    monkeypatch.setenv("FAKE_LOSS", next(losses))
    finished = []
    for item in rounds.execute(job, [cell.stack], [cell], in_rounds([(cell, 1), (cell, 2), (cell, 3)])):
        if isinstance(item, LaunchFinished):
            finished.append(item.launch)
            monkeypatch.setenv("FAKE_LOSS", next(losses, ""))
    assert [launch.outcome for launch in finished] == ["ok", "numerics", "ok"]
    assert finished[1].error == "the loss of step 2 is 0.9, but was 1 in round1-try1"
    assert [launch.exit and launch.exit.losses_compared for launch in finished] == [None, 15, 15]
    assert [launch.unchecked for launch in finished] == [None, None, None]
    assert "--proof fingerprint --proven flops_per_item=2000000000.0" in finished[2].command


def test_the_loss_of_scaling_is_explained_exactly(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    """The stand-in takes 1.1 times as long next to another, 1.2 in DDP, 4 / 3 with all-reduce."""
    done = torchmatrix("explain", "*cpu0+1", "--launches", "2", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["E"] == pytest.approx(0.75)
    expected = {"E_hetero": 1.0, "E_corun": 1 / 1.1, "E_ddp": 1.1 / 1.2, "E_comm": 1.2 / (4 / 3)}
    assert {name: row[name] for name in scaling.FACTORS} == pytest.approx(expected)
    assert math.prod(row[name] for name in scaling.FACTORS) == pytest.approx(0.75)
    assert row["exposed_seconds"] == pytest.approx(0.0004 * (4 / 3 - 1.2))
    labels = {launch.cell.split("/", 1)[1] for launch in launches(tmp_path)}
    name = "resnet50-train-fp32-b4-224px"
    assert labels == {f"{name}/cpu0", f"{name}/cpu1", f"{name}/cpu0+1", f"{name}-no-sync/cpu0+1", f"{name}-independent/cpu0+1"}
    page = (tmp_path / "reports/index.html").read_text()
    assert "Where the loss comes from" in page and "0.909" in page and "Each device alone" in page


def test_explaining_one_device_is_refused(torchmatrix: Command, fake_matrix: Path) -> None:
    done = torchmatrix("explain", "*cpu0")
    assert done.returncode == 3 and "no selected cell trains on more than one device" in done.stderr


def test_the_largest_batch_is_found_in_fresh_processes_and_used_for_every_round(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8").replace("batch = 4", 'batch = "auto"'), encoding="utf-8")
    done = torchmatrix("run", FAKE_LARGEST_BATCH="13")
    assert done.returncode == 0, done.stderr
    recorded = launches(tmp_path)
    assert {(launch.batch_requested, launch.batch_used) for launch in recorded} == {("auto", 12)} and len(recorded) == 4
    tried = {path.name.split("-")[0] for path in tmp_path.rglob("batch*.jsonl")}
    assert tried == {"batch8", "batch16", "batch12"}
    assert '12 <abbr title="requested: auto">(auto)</abbr>' in (tmp_path / "reports/index.html").read_text()


def test_a_batch_of_one_that_does_not_fit_is_an_oom(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8").replace("batch = 4", 'batch = "auto"'), encoding="utf-8")
    done = torchmatrix("run", "*cpu0", FAKE_LARGEST_BATCH="0")
    assert done.returncode == 1
    (launch,) = launches(tmp_path)
    assert launch.outcome == "oom" and launch.error == "not even a batch of 1 fits"


def test_the_batch_verb_finds_and_measures_nothing(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    done = torchmatrix("batch", FAKE_LARGEST_BATCH="13")
    assert done.returncode == 0 and "12 is the largest that fits" in done.stderr
    assert not list(tmp_path.rglob("round*.jsonl"))


def test_the_batch_verb_exits_1_if_a_stack_does_not_build_and_still_finds_the_batches_of_the_others(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    gone = f'[[stack]]\nname = "gone"\npython = "{tmp_path}/no_python"\naccelerator = "cpu"\n'
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8") + gone, encoding="utf-8")
    done = torchmatrix("batch", FAKE_LARGEST_BATCH="13")
    assert done.returncode == 1 and "12 is the largest that fits" in done.stderr
    assert "build-failed gone/" in done.stderr and "no_python can't be run" in done.stderr


def test_comparing_two_runs_gives_ratio_and_verdict(torchmatrix: Command, fake_matrix: Path) -> None:
    assert torchmatrix("run").returncode == 0
    assert torchmatrix("run").returncode == 0
    done = torchmatrix("compare", "last", "last~1")
    assert done.returncode == 0 and done.stdout.count("the same within 2") == 2, done.stdout + done.stderr
    rows = json.loads(torchmatrix("compare", "last", "last~1", "--json").stdout)["rows"]
    assert [row["ratio"] for row in rows] == [1.0, 1.0]


def test_comparing_what_is_not_alike_is_refused_with_the_field(torchmatrix: Command, fake_matrix: Path) -> None:
    assert torchmatrix("run", "--fast").returncode == 0
    assert torchmatrix("run", "--fast", "--method", "aime").returncode == 0
    done = torchmatrix("compare", "last", "last~1")
    assert done.returncode == 2 and "not comparable" in done.stdout and "method.name (aime and steady)" in done.stdout


def test_adaptive_launches_stop_when_the_interval_is_narrow(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    done = torchmatrix("run", "*cpu0", "--until", "1%")
    assert done.returncode == 0, done.stderr
    from torchmatrix.matrix.method import ADAPTIVE_MINIMUM, CONFIRMING

    assert len(launches(tmp_path)) == ADAPTIVE_MINIMUM + CONFIRMING  # its times are exact, so the interval has no width
    assert {launch.method.facts["until"] for launch in launches(tmp_path)} == {0.01}


def test_a_batch_that_crashed_once_is_not_said_to_be_too_large(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    text = fake_matrix.read_text(encoding="utf-8").replace("batch = 4", 'batch = "auto"')
    python, flag = tmp_path / "python", tmp_path / "crashed"
    python.write_text(
        f'#!/bin/sh\ncase " $* " in *" --batch 16 "*) [ -e {flag} ] || {{ touch {flag}; FAKE_BEHAVIOUR=crash; '
        f'export FAKE_BEHAVIOUR; }};; esac\nexec {FAKE_PYTHON} "$@"\n'
    )
    python.chmod(0o755)
    fake_matrix.write_text(text.replace(str(FAKE_PYTHON), str(python)), encoding="utf-8")
    done = torchmatrix("batch", "*cpu0", FAKE_LARGEST_BATCH="32")
    assert "12 fits; whether more does is unknown: the trial failed: crashed" in done.stderr, done.stderr


def test_what_is_unsupported_is_over_after_one_launch_also_for_the_count_and_after_an_interruption(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    done = torchmatrix("run", "--launches", "3", FAKE_BEHAVIOUR="unsupported")
    assert done.returncode == 1 and "[2/2]" in done.stderr and "left)" not in done.stderr.partition("[2/2]")[2]
    (run,) = Results(tmp_path / "results").runs()
    run.record.write_text("".join(line for line in run.record.read_text().splitlines(True) if '"run-exit"' not in line))
    done = torchmatrix("run", "--launches", "3", FAKE_BEHAVIOUR="unsupported")
    assert done.returncode == 1 and len(launches(tmp_path)) == 2, done.stderr
