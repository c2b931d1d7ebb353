"""Reading of facts: whatever a file holds, it is a launch or a value that says why not, and readers go on."""

import copy
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import invoke
from support.read_back import spent, traces_of
from support.records import launch_lines, nights, write_run
from torchmatrix.analysis import run_summary, time_split
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.facts.environments import environment_of
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.reading import launch_of, read_launch, sorted_out
from torchmatrix.facts.run_record import record_of
from torchmatrix.facts.store import Results, RunFolder, verified
from torchmatrix.reporting import report

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    float("nan"),
    10**11,
    10**400,
    "",
    "x",
    [],
    ["x"],
    [None],
    [[]],
    {},
    {"x": {}},
    [{"x": 1}],
)


def lines() -> list[dict[str, Any]]:
    readings = [
        (float(t), {"device": "GPU-0", "temperature_celsius": 60, "power_watts": 500.0, "reasons": []}) for t in (95, 110)
    ]
    return launch_lines(
        readings=readings, flops=1e9, start={"waited_seconds": 0.0, "temperature_celsius": 40, "too_warm": False}
    )


def mutants(value: Any) -> Iterator[Any]:
    """Yield the value with one of its parts replaced by something wrong, or gone; every part, every wrong thing."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {name: kept for name, kept in value.items() if name != key}
            for other in (*WRONG, *mutants(inner)):
                yield {**value, key: other}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for other in (*WRONG, *mutants(inner)):
                yield [*value[:index], other, *value[index + 1 :]]


def read_all(launches: list[Launch]) -> None:
    """Give launches to every reader."""
    rows = run_summary.launch_rows(launches)
    run_summary.cells_table(CellIndex(rows).every)
    assert all(row.error is None or row.outcome != "ok" for row in rows)
    assert all(environment_of(launch) for launch in launches)
    time_split.phases_table(spent(launches))
    time_split.steps_table(spent(launches))
    traces_of(launches)


def test_readers_survive_a_change_of_any_field() -> None:
    whole, read = lines(), []
    for number, line in enumerate(whole):
        for mutant in mutants(copy.deepcopy(line)):
            if not isinstance(mutant.get("event"), str):
                continue  # no event: passed over by read_lines
            result = launch_of(Path("h/r/s/w/d/round1-try1.jsonl"), [*whole[:number], mutant, *whole[number + 1 :]])
            if isinstance(result, Launch):
                read.append(result)
            else:
                assert result.reason
    assert len(read) > 500
    read_all(read)


def of_every_kind() -> list[dict[str, Any]]:
    """Return the lines of an ok launch on two devices that has every event which a reader computes with."""
    sensed = {"temperature_celsius": 60, "power_watts": 500.0, "reasons": [], "foreign": [], "error": "a sensor is lost"}
    readings = [(float(t), {"device": f"GPU-{i}", "energy_joules": 500.0 * t, **sensed}) for t in (95, 125) for i in (0, 1)]
    probed = [{"bytes": size, "seconds": 0.1, "bus_bytes_per_second": 1e9} for size in (1024, 4096)]
    events: list[dict[str, Any]] = [
        {"event": "phase", "phase": "import", "seconds": 1.0},
        {"event": "warm-up", "steps": 10, "seconds": 3.0, "flat": True, "drift": 0.0},
        {"event": "enqueue", "step_seconds": [0.001, 0.001]},
        {"event": "all-reduce", "sizes": probed},
        {"event": "collective", "operation": "all-gather", "sizes": probed, "error": None},
        *(
            {
                "event": "stream",
                "phase": "decode",
                "unit": "tokens",
                "rank": rank,
                "items": [4, 4],
                "seconds": [0.1, 0.2],
                "requests": [0, 1],
                "start_monotonic_seconds": 150.0,
                "stop_monotonic_seconds": 151.0,
            }
            for rank in (0, 1)
        ),
        {"event": "transport", "library": "nccl", "network": "IB", "paths": ["NET/IB/0"]},
    ]
    start = {"waited_seconds": 0.0, "temperature_celsius": 40, "too_warm": False}
    served = {"latency": [6.0, 6.0], "end-to-end": [7.0, 7.0]}
    job = {"steps": 2}
    return launch_lines(devices=(0, 1), readings=readings, flops=1e9, told=events, served=served, start=start, job=job, steps=2)


def misfits(value: Any) -> Iterator[Any]:
    """Yield the value with a null, or with a list of another length or a number of another size, in any one of its places."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for other in (None, *misfits(inner)):
                yield {**value, key: other}
    elif isinstance(value, list) and value:
        yield from ([], value[:-1], [*value, value[-1]], 2 * value)
        for other in misfits(value[-1]):
            yield [*value[:-1], other]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from (-value, 2 * value, value / 1000)


def test_an_event_that_contradicts_itself_or_another_reaches_no_reader_and_a_launch_that_is_ok_is_whole() -> None:
    whole, read = of_every_kind(), []
    for number, line in enumerate(whole):
        for changed in (*([other] for other in misfits(line)), [], [line, line]):
            result = launch_of(Path("h/r/s/w/d/round1-try1.jsonl"), [*whole[:number], *changed, *whole[number + 1 :]])
            assert isinstance(result, Launch) or result.reason
            read += [result] if isinstance(result, Launch) else []
    for launch in read:
        for block in (*launch.windows, *launch.warm_up_blocks):
            assert {len(block.seconds)} >= {len(block.step_seconds)} - {0}, launch.path
            assert {block.steps} >= {len(steps) for steps in block.step_seconds}, launch.path
    assert len(read) > 500 and sum(launch.outcome == "ok" for launch in read) > 200
    read_all(read)


@pytest.mark.parametrize(
    ("event", "change", "reason"),
    [
        ("sample", {"step_seconds": [[0.1] * 2] * 3}, "step_seconds has 3 ranks, seconds has 2"),
        ("sample", {"step_seconds": [[0.1] * 2, [0.1]]}, "step_seconds has 1 steps of rank 1, steps is 2"),
        ("sample", {"enqueue_seconds": [0.1]}, "enqueue_seconds has 1 ranks, seconds has 2"),
        ("sample", {"skipped_steps": [0, 0, 0]}, "skipped_steps has 3 ranks, seconds has 2"),
        ("sample", {"start_monotonic_seconds": 9.0, "stop_monotonic_seconds": 8.5}, "it stops 0.500 s before it starts"),
        ("requests", {"start_monotonic_seconds": 1e9}, "s before it starts"),
    ],
)
def test_an_event_that_contradicts_itself_makes_a_crash_with_its_reason(
    event: str, change: dict[str, Any], reason: str
) -> None:
    events = [{**line, **change} if line["event"] == event else line for line in of_every_kind()]
    result = launch_of(Path("round1-try1.jsonl"), events)
    assert (
        isinstance(result, Launch)
        and result.outcome == "crashed"
        and not (result.windows if event == "sample" else result.requests)
    )
    assert f'the workload wrote an invalid "{event}" line: ' in str(result.error) and reason in str(result.error)


@pytest.mark.parametrize("rows", [[[0.1] * 2] * 3, [[0.1] * 2], [[0.1] * 2, [0.1]]])
def test_step_times_on_lines_of_their_own_fit_their_window(rows: list[list[float]]) -> None:
    events = of_every_kind()
    place = next(place for place, line in enumerate(events) if line.get("phase") == "measure")
    events.insert(place, {"event": "steps", "phase": "measure", "window": events[place]["window"], "step_seconds": rows})
    result = launch_of(Path("round1-try1.jsonl"), events)
    assert isinstance(result, Launch) and result.outcome == "crashed" and "step_seconds has" in str(result.error)
    assert len(result.windows) < 2 and all(len(block.step_seconds) == 2 for block in result.windows)


def test_no_verb_ends_in_a_traceback_over_a_launch_that_contradicts_itself(tmp_path: Path) -> None:
    rows = [[0.1] * 2] * 3
    changes = ({"step_seconds": rows}, {"step_seconds": rows[:1]}, {"memory_bytes": None}, {"readings": [{"device": "GPU-0"}]})
    for night in nights(2):
        run = write_run(tmp_path / "results", [{"rate": 100.0}], run=night)
        for number, change in enumerate(changes, start=2):
            events = [{**line, **(change if line.keys() & change.keys() else {})} for line in of_every_kind()]
            events = [json.loads(json.dumps(line).replace(str(141 * 2**30), "null")) for line in events]
            events[0] |= {"run": night, "round": number, "host": {"links": [["X", "NV4"], ["NV4", "X"]]}}
            (run.path / events[0]["cell"]).mkdir(parents=True, exist_ok=True)
            (run.path / events[0]["cell"] / f"round{number}-try1.jsonl").write_text(
                "\n".join(map(json.dumps, events)), encoding="utf-8"
            )
    for words in ("history --json", "gate", "audit last", "export out --no-charts", "compare last last~1"):
        done = invoke(tmp_path, *words.split())
        assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2, 5), done.stderr
    assert "step_seconds has 3 ranks, seconds has 2" in (tmp_path / "out/launches.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "change", "reason"),
    [
        (0, {"round": "one"}, 'round is "one", not a whole number'),
        (0, {"unix_seconds": 1e300}, "unix_seconds is 1e+300, not a number < 253402300800.0"),
        (0, {"unix_seconds": -1}, "unix_seconds is -1, not a whole number >= 0"),
        (0, {"stack": {}}, "stack.name is missing"),
        (0, {"gpus": {"indices": [], "label": "gpu0"}}, "gpus.indices is [], not a list of length >= 1"),
        (
            0,
            {"gpus": {"indices": [0], "label": "gpu0", "nodes": 10**11}},
            "gpus.nodes is 100000000000, not a whole number <= 10000",
        ),
        (-1, {"returncode": "0"}, 'returncode is "0", not a whole number'),
    ],
)
def test_what_the_host_wrote_must_be_whole(line: int, change: dict[str, Any], reason: str) -> None:
    changed = lines()
    changed[line] |= change
    result = launch_of(Path("round1-try1.jsonl"), changed)
    assert isinstance(result, Unreadable) and result.reason == reason


@pytest.mark.parametrize("event", [{"event": "sample", "phase": "measure"}, {"event": "environment", "packages": 7}])
def test_an_invalid_line_of_the_workload_is_a_crash_with_its_reason(event: dict[str, Any]) -> None:
    result = launch_of(Path("round1-try1.jsonl"), [*lines()[:-1], event, lines()[-1]])
    assert isinstance(result, Launch) and result.outcome == "crashed"
    assert str(result.error).startswith(f'the workload wrote an invalid "{event["event"]}" line: ')


def test_files_that_are_not_ours_are_named_in_the_report_and_count_nowhere(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"rate": 99.0}, {"rate": 101.0}])
    first = run.launches()[0].path
    shutil.copy(first, first.with_name("round1-try1 (copy).jsonl"))
    shutil.copy(first, first.with_name("round7-try1.jsonl"))
    first.with_name("round8-try1.jsonl").write_text('{"event": "launch"}\n')
    first.with_name("round9-try1.jsonl").mkdir()
    run.append("skip", cell=5, reason="x")
    view = report.view_of(run)
    assert len(view.summary.launches) == 2 and len(view.summary.unreadable_launches) == 4
    page = report.render(view)
    for message in (
        "not that of a launch",
        "try 1 of round 1: it was copied",
        "run is missing",
        "Is a directory",
        "cell is 5, not a text",
    ):
        assert message in page
    assert not run.is_done(view.summary.launches[0].cell, 8)


def test_what_an_earlier_version_measured_at_once_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"rate": 99.0}])
    lanes = [{"devices": name, "cell": "c", "ratio": None, "alone": [1.0]} for name in ("gpu0", "gpu1", "gpu2")]
    run.append("parallel", shown=True, why="none is disturbed by more than 0.5 %", within=0.005, lanes=lanes)
    assert "gpu0, gpu1 and gpu2 run at once: none is disturbed by more than 0.5 %" in report.render(report.view_of(run))


def test_a_record_of_nonsense_is_an_empty_run_with_problems() -> None:
    header = {"event": "run", "host": [1], "matrix": 5}
    events = [header, {"event": "planned"}, {"event": "skip", "cell": "a/b/c"}, {"event": "batch", "batch": "x"}]
    record = record_of(events)
    assert (record.matrix, record.host, record.planned, record.skips, record.batches) == ("", {}, (), (), ())
    assert len(record.problems) == 4


def test_a_record_that_is_a_folder_is_a_run_without_words(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "h" / "mine")
    run.record.mkdir(parents=True)
    assert not run.read_record().complete and json.dumps(run.read_record().facts) == "{}"


def test_nesting_without_end_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "round1-try1.jsonl"
    path.write_text("[" * 100_000 + "\n")
    assert isinstance(read_launch(path), Unreadable)


def test_a_folder_that_cant_be_looked_into_is_unreadable_and_not_empty(tmp_path: Path) -> None:
    """Such a folder's path is longer than the system allows: nobody, not even root, can list it."""
    run = write_run(tmp_path, [{"rate": 100.0}])
    here = os.open(run.path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=here)
        below = os.open("x" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    launches, unreadable = sorted_out(run.everything())
    assert [launch.outcome for launch in launches] == ["ok"]
    assert [problem.reason for problem in unreadable] == ["File name too long"] and unreadable[0].path.name == "x" * 250
    (again,) = verified(Results(tmp_path)).unreadable
    assert again.path == unreadable[0].path
