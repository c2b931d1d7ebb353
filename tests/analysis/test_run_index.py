"""The index of runs: histories and the gate read from it what the facts say, whatever happens to it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from support import PATIENCE_SECONDS
from support.records import nights, write_run
from torchmatrix.analysis import facts_cache, history, run_index
from torchmatrix.analysis.metrics import METRICS, THROUGHPUT, Metric, named
from torchmatrix.analysis.run_summary import shared_out
from torchmatrix.core import inputs
from torchmatrix.core.formatting import is_known
from torchmatrix.facts.launch import Unreadable
from torchmatrix.facts.store import Results
from torchmatrix.nightly import gate

READING = {"device": "GPU-0", "temperature_celsius": 61, "power_watts": 512.0, "sm_clock_mhz": 1500}
LAUNCHES: list[dict[str, Any]] = [
    {"readings": [(float(t), {**READING, "energy_joules": 512.0 * t}) for t in range(90, 130)], "flops": 67e9},
    {"rate": 101.0},
    {"rate": 180.0, "devices": (0, 1), "served": {"latency": [0.1] * 20, "end_to_end": [0.2] * 20}},
    {"stack": "b", "outcome": "oom", "error": "out of memory \u2028"},
    {"stack": "c", "outcome": "build-failed"},
    {"stack": "d", "vendor": "cpu", "method": None, "job": {"compile": True, "attention": "sdpa"}},
]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    for number, run in enumerate(nights(4)):
        host = {"name": "testhost", "driver": "570.86.15" if number < 2 else "575.51.03"}
        launches = [{**launch, "host": host} for launch in LAUNCHES]
        skips = [("rocm/w/gpu0", "needs an AMD GPU")]
        write_run(tmp_path, launches, skips, complete=number < 3, run=run, workload_hash="w", matrix="# a\n" * 40)
    return Results(tmp_path)


def from_index(results: Results, metric: Metric = THROUGHPUT) -> str:
    """Return the rows of all runs as text: NaN is equal to NaN here."""
    return repr(history.with_differences(run_index.rows(results, results.runs(), [], metric)))


def from_facts(results: Results, metric: Metric = THROUGHPUT) -> str:
    """Return the same without any cache."""
    return repr(history.series((facts_cache.whole_from_files(run).summary for run in results.runs()), metric))


def index_of(results: Results, metric: str = "throughput") -> Path:
    return results.root / facts_cache.FOLDER / f"{metric}.runs"


def hide_launches(results: Results) -> None:
    """Change all launch files without a trace in names, sizes and times: only who opens them sees it."""
    for path in results.root.rglob("round*.jsonl"):
        before = path.stat()
        path.write_bytes(path.read_bytes().replace(b'"event": "launch"', b'"event": "LAUNCH"'))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("metric", [metric.name for metric in METRICS if metric.name != "cost"])
def test_it_says_what_the_facts_say(results: Results, metric: str) -> None:
    truth = from_facts(results, named(metric))
    assert from_index(results, named(metric)) == truth
    assert from_index(results, named(metric)) == truth


def test_its_summaries_are_those_of_the_facts_in_their_columns(results: Results) -> None:
    truth = [facts_cache.whole_from_files(run).summary for run in results.runs()]
    for _ in range(2):
        for summary, whole in zip(run_index.summaries(results, results.runs()), truth, strict=True):
            for row, of_facts in zip(summary.launches, whole.launches, strict=True):
                assert repr(structs.asdict(row)) == repr({name: of_facts.value(name) for name in structs.asdict(row)})
            for name in ("id", "host", "path", "started", "complete", "command", "matrix", "workload_hash", "planned"):
                assert getattr(summary, name) == getattr(whole, name), name
            for name in ("skipped", "environments", "unreadable"):
                assert getattr(summary, name) == getattr(whole, name), name


def test_the_gate_judges_by_it_as_by_the_facts(results: Results) -> None:
    by_facts = gate.judge([facts_cache.whole_from_files(run).summary for run in results.runs()])
    for _ in range(2):
        assert repr(gate.judge(gate.read_runs(results))) == repr(by_facts)


def test_read_again_it_opens_no_launch(results: Results) -> None:
    before = from_index(results)
    hide_launches(results)
    assert from_index(results) == before != from_facts(results)


def test_only_what_is_new_is_read_and_appended(results: Results) -> None:
    before = from_index(results)
    written = index_of(results).read_bytes()
    hide_launches(results)
    write_run(results.root, LAUNCHES, run=nights(5)[4])
    after = from_index(results)
    assert after.startswith(before[:-1]) and nights(5)[4] in after
    assert index_of(results).read_bytes().startswith(written)


def change_size(cell: Path) -> None:
    path = cell / "round1-try1.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")


def change_time(cell: Path) -> None:
    path = cell / "round1-try1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"ok"', b'"OK"'))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def add_launch(cell: Path) -> None:
    (cell / "round9-try1.jsonl").write_bytes((cell / "round1-try1.jsonl").read_bytes())


def remove_launch(cell: Path) -> None:
    (cell / "round1-try1.jsonl").unlink()


def append_to_record(cell: Path) -> None:
    record = cell.parents[2] / "run.jsonl"
    record.write_bytes(record.read_bytes() + b'{"event": "run-exit", "complete": true}\n')


@pytest.mark.parametrize("change", [change_size, change_time, add_launch, remove_launch, append_to_record])
@pytest.mark.parametrize("days_old", [0, 1])
def test_a_run_that_changed_is_read_again(results: Results, change: Callable[[Path], None], days_old: int) -> None:
    def age() -> None:
        """Make all folders as old as those of a night that ended long ago, whose times are trusted."""
        for folder in (path for path in results.root.glob("testhost/**/") if path.is_dir()):
            state = folder.stat()
            os.utime(folder, ns=(state.st_atime_ns, state.st_mtime_ns - days_old * 86_400_000_000_000))

    age()
    from_index(results)
    change(results.runs()[1].path / "stack-a/resnet50-train-fp32-b4/gpu0")
    assert from_index(results) == from_facts(results)


def test_a_copied_results_folder_keeps_its_index(results: Results, tmp_path: Path) -> None:
    from_index(results)
    copied = Results(tmp_path.with_name(f"{tmp_path.name}-copied"))
    subprocess.run(["cp", "-r", "--preserve=timestamps", str(results.root), str(copied.root)], check=True)
    truth = from_facts(copied)
    hide_launches(copied)
    assert from_index(copied) == truth


def test_removed_runs_vanish_from_it_with_what_only_they_shared(results: Results) -> None:
    from_index(results)
    content = index_of(results).read_bytes()
    assert b"570.86.15" in content and b"575.51.03" in content
    for run in results.runs()[2:]:
        run.record.unlink()
    assert from_index(results) == from_facts(results)
    content = index_of(results).read_bytes()
    assert nights(4)[3].encode() not in content and b"575.51.03" not in content and b"570.86.15" in content


def test_a_run_that_is_read_while_it_grows_leaves_no_trail(results: Results) -> None:
    from_index(results)
    size = index_of(results).stat().st_size
    for _ in range(150):
        results.runs()[3].append("note")
        from_index(results)
    assert index_of(results).stat().st_size < 20 * size


def make_garbage(path: Path) -> None:
    path.write_bytes(b"this is nothing" * 300)


def make_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_the_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def make_noise(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xa5" * (len(data) - 100))


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


def make_older(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"torchmatrix ", b"torchmatrix 0", 1))


def append_garbage(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\xff" * 500)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


DAMAGES = [
    *(make_garbage, make_short, cut_the_end, make_noise, flip_a_bit, make_empty, make_older, append_garbage),
    *(make_folder, make_link, Path.unlink),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_it_is_made_anew_and_nobody_notices(results: Results, damage: Callable[[Path], None]) -> None:
    before = from_index(results)
    damage(index_of(results))
    assert from_index(results) == before
    write_run(results.root, LAUNCHES, run=nights(5)[4])
    assert from_index(results) == from_facts(results)
    if damage not in (make_folder, make_link):
        truth = from_facts(results)
        hide_launches(results)
        assert from_index(results) == truth


def other_shape(name: str) -> Callable[[Any], Any]:
    """Return what takes an entry and returns one that only its first fields make a sound one."""
    nothing = msgspec.msgpack.encode(([], []))
    shapes: dict[str, Callable[[Any], Any]] = {
        "short": lambda entry: ["_Entry", entry.run, []],
        "texts": lambda entry: ["_Entry", entry.run, entry.shared, entry.files, "summary", "rows"],
        "other summary": lambda entry: structs.replace(entry, summary=nothing),
        "cut rows": lambda entry: structs.replace(entry, rows=entry.rows[:-3]),
        "other rows": lambda entry: structs.replace(entry, rows=msgspec.msgpack.encode({"rows": 1})),
        "no environment": lambda entry: structs.replace(entry, rows=entry.rows.replace(b"shared", b"SHARED")),
        "no files": lambda entry: structs.replace(entry, files=[["a"]]),
    }
    return shapes[name]


@pytest.mark.parametrize("shape", ["short", "texts", "other summary", "cut rows", "other rows", "no environment", "no files"])
def test_an_entry_of_another_shape_is_made_anew(results: Results, shape: str) -> None:
    before, index = from_index(results), index_of(results)
    gated = repr(gate.judge(gate.read_runs(results)))
    with index.open("rb") as file:
        file.readline()
        entries = [run_index._entries.decode(packed) for record, packed in run_index._sound(file) if hasattr(record, "run")]
    forged = [run_index._framed(msgspec.msgpack.encode(other_shape(shape)(entry))) for entry in entries]
    for _ in range(2):
        with index.open("ab") as file:
            file.write(b"".join(forged))
        assert from_index(results) == before and repr(gate.judge(gate.read_runs(results))) == gated
    assert from_index(results) == before == from_facts(results)


def test_where_it_cannot_be_written_the_facts_are_read(results: Results) -> None:
    (results.root / facts_cache.FOLDER).write_text("somebody else's")
    assert from_index(results) == from_facts(results)


def test_what_cannot_be_read_is_said_each_time(results: Results) -> None:
    path = next(results.runs()[0].path.rglob("round1*.jsonl"))
    path.write_text("garbage")
    for _ in range(2):
        unreadable: list[Unreadable] = []
        list(run_index.rows(results, results.runs(), unreadable))
        (file,) = unreadable
        assert file.path == path and "header" in file.reason


def test_files_whose_names_are_no_utf8_are_read(results: Results) -> None:
    cell = results.runs()[0].path / "stack-a/resnet50-train-fp32-b4/gpu0"
    cell.rename(cell.with_name(os.fsdecode(b"gpu\xe9")))
    for _ in range(2):
        assert from_index(results) == from_facts(results)


def test_several_commands_at_once_read_the_same(results: Results) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from torchmatrix.analysis import run_index; from torchmatrix.facts.store import Results\n"
        "results = Results(Path(sys.argv[1]))\n"
        "for number in range(30):\n"
        "    results.runs()[number % 4].append('note')\n"
        "    print(len(list(run_index.rows(results, results.runs(), []))))"
    )
    command = [sys.executable, "-c", code, str(results.root)]
    five = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(5)]
    assert [process.communicate(timeout=PATIENCE_SECONDS) for process in five] == [("24\n" * 30, "")] * 5
    truth = from_index(results)
    assert truth == from_facts(results)


def double(numbers: list[int]) -> list[int]:
    return [2 * number for number in numbers]


def die_once(piece: tuple[Path, int]) -> int:
    folder, number = piece
    if number == 3 and not (folder / "died").exists():
        (folder / "died").touch()
        os._exit(9)
    return number


@pytest.mark.parametrize("processes", [1, 3])
def test_work_is_shared_out_in_order(processes: int) -> None:
    assert list(shared_out(double, [[1, 2], [3], [4]], processes)) == [[2, 4], [6], [8]]


def test_work_of_a_process_that_is_killed_is_done_by_this_one(tmp_path: Path) -> None:
    pieces = [(tmp_path, number) for number in range(8)]
    assert list(shared_out(die_once, pieces, 2)) == list(range(8)) and (tmp_path / "died").exists()


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Results]:
    for run in nights(210, "2024-01-01"):
        write_run(tmp_path, [{"rate": 100.0}], run=run)
    yield Results(tmp_path)


def test_many_runs_are_read_by_several_processes(many: Results) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from torchmatrix.analysis import run_index; from torchmatrix.facts.store import Results\n"
        "results = Results(Path(sys.argv[1]))\n"
        "rows = run_index.rows(results, results.runs(), [])\n"
        "from torchmatrix.analysis.history import with_differences\n"
        "print(repr(with_differences(rows)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(many.root)], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.stdout, done.stderr) == (from_facts(many) + "\n", "")


@pytest.mark.parametrize("is_wrong_first", [True, False])
def test_what_a_wrong_clock_shows_is_gone_once_it_is_right(
    results: Results, monkeypatch: pytest.MonkeyPatch, is_wrong_first: bool
) -> None:
    """The clock goes to 2020, before or after the runs were read for the first time."""

    def problems(seconds: float) -> tuple[list[str], list[str]]:
        monkeypatch.setattr(inputs.time, "time", lambda: seconds)
        unreadable: list[Unreadable] = []
        rows = list(run_index.rows(results, results.runs(), unreadable))
        assert {is_known(row.started) for row in rows} == {seconds > 1.7e9}
        read = facts_cache.read(results, results.runs())
        return [file.reason for file in unreadable], [problem.reason for run in read for problem in run.problems]

    right = time.time()
    for seconds in (1.58e9, right) if is_wrong_first else (right, 1.58e9, right):
        for found in problems(seconds):
            assert ["still to come" in reason for reason in found] == [True] * (4 if seconds < right else 0), found
